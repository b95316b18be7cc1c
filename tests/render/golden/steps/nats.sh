#!/bin/bash
# NATS: Dynamo's event plane.
# Started by job.sbatch on node 0 of the job; RUN_DIR and NODE_IP_n are exported there. Rendered by pdkit VERSION.
set -euo pipefail


args=(
  --jetstream  # Dynamo keeps its event streams there
  --store_dir "${RUN_DIR}"/nats  # thrown away with the run
  --addr "${NODE_IP_0}"  # only this cluster's addresses
  --port 4222  # NATS's own port, shifted as all are
)

# A new identity at every start: the gate's proof holds for these very processes only.
mkdir -p "${RUN_DIR}/boot"
cat /proc/sys/kernel/random/uuid > "${RUN_DIR}/boot/"nats

exec nats-server "${args[@]}"

#!/bin/bash
# etcd: where Dynamo's workers register.
# Started by job.sbatch on node 0 of the job; RUN_DIR and NODE_IP_n are exported there. Rendered by pdkit VERSION.
set -euo pipefail


args=(
  --data-dir "${RUN_DIR}"/etcd  # thrown away with the run
  --listen-client-urls http://"${NODE_IP_0}":2379  # only this cluster's addresses
  --advertise-client-urls http://"${NODE_IP_0}":2379  # only this cluster's addresses
  --listen-peer-urls http://"${NODE_IP_0}":2380  # only this cluster's addresses
  --initial-advertise-peer-urls http://"${NODE_IP_0}":2380  # only this cluster's addresses
  --initial-cluster default=http://"${NODE_IP_0}":2380  # a cluster of one
)

# A new identity at every start: the gate's proof holds for these very processes only.
mkdir -p "${RUN_DIR}/boot"
cat /proc/sys/kernel/random/uuid > "${RUN_DIR}/boot/"etcd

exec etcd "${args[@]}"

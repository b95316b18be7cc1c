#!/bin/bash
# Dynamo's frontend: OpenAI API in, prefill then decode behind it.
# Started by job.sbatch on node 0 of the job; RUN_DIR and NODE_IP_n are exported there. Rendered by pdkit VERSION.
set -euo pipefail

# a server of this deployment, on node 0
export ETCD_ENDPOINTS=http://"${NODE_IP_0}":2379
# requests go straight to the worker
export DYN_REQUEST_PLANE=tcp
# a server of this deployment, on node 0
export NATS_SERVER=nats://"${NODE_IP_0}":4222
# advertise this node's address on hosts with several
export DYN_TCP_RPC_HOST="${NODE_IP_0}"
# the same for answers
export DYN_TCP_RESPONSE_STREAM_HOST="${NODE_IP_0}"
# the same for events
export DYN_EVENT_PLANE_HOST="${NODE_IP_0}"

args=(
  --http-host "${NODE_IP_0}"  # this cluster's address, not every interface
  --http-port 8000  # infra.http_port of the recipe
)

# A new identity at every start: the gate's proof holds for these very processes only.
mkdir -p "${RUN_DIR}/boot"
cat /proc/sys/kernel/random/uuid > "${RUN_DIR}/boot/"frontend0

exec python3 -m dynamo.frontend "${args[@]}"

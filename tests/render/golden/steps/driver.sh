#!/bin/bash
# The in-job driver: proves readiness, runs the accuracy gate, then sweeps; writes everything into the run folder.
# Started by job.sbatch on node 0 of the job; RUN_DIR and NODE_IP_n are exported there. Rendered by pdkit VERSION.
set -euo pipefail

# a server of this deployment, on node 0
export ETCD_ENDPOINTS=http://"${NODE_IP_0}":2379
# requests go straight to the worker
export DYN_REQUEST_PLANE=tcp
# a server of this deployment, on node 0
export NATS_SERVER=nats://"${NODE_IP_0}":4222
# The code that runs here travels with the job.
export PYTHONPATH="${RUN_DIR}/pdkit.zip${PYTHONPATH:+:${PYTHONPATH}}"

exec python3 -m pdkit.job.driver "${RUN_DIR}"

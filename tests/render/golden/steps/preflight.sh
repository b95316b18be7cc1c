#!/bin/bash
# Preflight of one node: ports, GPUs, model, name, disk and clock, before any engine starts.
# Started by job.sbatch on every node of the job; RUN_DIR is exported there. Rendered by pdkit VERSION.
set -euo pipefail

# The code that runs here travels with the job.
export PYTHONPATH="${RUN_DIR}/pdkit.zip${PYTHONPATH:+:${PYTHONPATH}}"

exec python3 -m pdkit.job.preflight "${RUN_DIR}" "${SLURM_NODEID}"

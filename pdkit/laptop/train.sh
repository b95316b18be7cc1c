#!/usr/bin/env bash
# Train a tiny model in the engines' environment. usage: train.sh VENV_DIR dense|hybrid FOLDER
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH="$here/site:$here/../.." PDKIT_LAPTOP_TORCHVISION_SCHEMAS=1 HF_HUB_OFFLINE=1
export OMP_WAIT_POLICY=PASSIVE # threads that spin at a barrier stall each other for minutes on a busy machine
exec "$1/bin/python" -m pdkit.laptop.train "${@:2}"

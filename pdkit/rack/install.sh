#!/bin/sh
# Installs what a virtual rack needs on Debian or Ubuntu; does nothing where it is there already. Run as root.
set -eu

packages="slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libslurm-dev gcc libc6-dev iproute2 util-linux mount nats-server"

command -v apt-get >/dev/null || { echo "install.sh: only Debian and Ubuntu (apt-get) are known" >&2; exit 1; }

missing=""
for package in $packages; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing="$missing $package"
done
if [ -z "$missing" ]; then
  echo "install.sh: everything is there"
  exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "install.sh: needs root for:$missing" >&2
  exit 1
fi

# The packages' own services would be a second, unconfigured cluster; keep them from starting during the installation.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  trap 'rm -f "$policy"' EXIT
fi
apt-get update
# shellcheck disable=SC2086 # a list of words
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing

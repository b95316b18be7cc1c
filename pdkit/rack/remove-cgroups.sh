#!/bin/sh
# Removes the freezer groups that the nodes of a rack left behind: runs in a mount namespace of its own.
#   remove-cgroups.sh MOUNTPOINT RACK
set -eu
place=$1 rack=$2
mount -t cgroup -o freezer freezer "$place" 2>/dev/null || exit 0 # no freezer here, so no groups

groups() { find "$place" -mindepth 1 -depth -type d -path "$place/slurm_$rack-[0-9]*" "$@"; }

tries=0
while [ -n "$(groups -print -quit)" ]; do
  # A process that just ended keeps its group busy for a moment.
  groups -exec rmdir {} + 2>/dev/null || sleep 0.02
  tries=$((tries + 1))
  [ "$tries" -lt 100 ] || { groups >&2; exit 1; }
done

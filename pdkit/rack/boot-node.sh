#!/bin/sh
# Boots one node: runs inside its network namespace, with mount, UTS and IPC namespaces of its own.
#   boot-node.sh FOLDER NODE
set -eu
folder=$1 node=$2
hostname "$node"
mount --bind "$folder/etc/hosts" /etc/hosts
# Only a fresh sysfs shows the node's own interfaces; the machine's cgroups stay visible in it.
mount -t sysfs sysfs "$folder/sys"
mount --rbind /sys/fs/cgroup "$folder/sys/fs/cgroup"
mount --rbind "$folder/sys" /sys
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount --bind "$folder/disk/$node" "$folder/local"
if grep -q '^ProctrackType=proctrack/cgroup$' "$folder/etc/slurm.conf"; then
  mount -t tmpfs tmpfs "$folder/cgroup"
  mkdir "$folder/cgroup/freezer"
  mount -t cgroup -o freezer freezer "$folder/cgroup/freezer"
fi
exec slurmd -N "$node" -f "$folder/etc/slurm.conf"

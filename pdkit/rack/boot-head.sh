#!/bin/sh
# Boots one daemon of the head: runs inside its network namespace, with mount and UTS namespaces of its own.
#   boot-head.sh FOLDER HOSTNAME munged|slurmctld
set -eu
folder=$1
hostname "$2"
mount --bind "$folder/etc/hosts" /etc/hosts
case $3 in
  munged)
    exec munged --force --num-threads=4 --key-file="$folder/munge/key" --seed-file="$folder/munge/seed" \
      --socket="$folder/munge/socket" --pid-file="$folder/pid/munged.pid" --log-file="$folder/log/munged.log"
    ;;
  slurmctld) exec slurmctld -f "$folder/etc/slurm.conf" ;;
esac

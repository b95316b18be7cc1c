"""What the machine must have before a rack can start."""

from __future__ import annotations

import os
from pathlib import Path

from pdkit.errors import ClusterError
from pdkit.rack import process

_PACKAGES = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "srun": "slurm-client",
    "scancel": "slurm-client",
    "sinfo": "slurm-client",
    "gcc": "gcc",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
}
_HEADERS = {"slurm/spank.h": "libslurm-dev", "stdio.h": "libc6-dev"}
# Made and removed in namespaces of the probe's own.
_PROBE = "ip link add probe type bridge && ip link add one type veth peer name other && mount -t tmpfs none /dev/shm"
_FREEZER = 'mount -t cgroup -o freezer freezer "$1" && test -e "$1/release_agent"'


def missing_requirements() -> list[str]:
    """Everything that stands between this machine and a rack, each with what provides it; empty when it can start."""
    missing = [
        f"{program} (package {package})" for program, package in _PACKAGES.items() if process.find(program) is None
    ]
    missing += [
        f"{header} (package {package})"
        for header, package in _HEADERS.items()
        if not (Path("/usr/include") / header).is_file()
    ]
    if os.geteuid() != 0:
        missing.insert(0, "root: network namespaces and mounts need it (run with sudo)")
    elif not missing:
        missing += _missing_rights()
    return missing


def _missing_rights() -> list[str]:
    try:
        process.run(["unshare", "--net", "--uts", "--ipc", "--mount", "--propagation", "private", "sh", "-c", _PROBE])
    except ClusterError as error:
        return [f"the right to make namespaces, links and mounts (a container must be privileged): {error.message}"]
    return []


def require() -> None:
    """Raise a ClusterError that says what to do when a rack cannot start here."""
    missing = missing_requirements()
    if not missing:
        return
    packages = sorted({text.partition("(package ")[2].rstrip(")") for text in missing if "(package " in text})
    steps = [f"apt-get update && apt-get install -y --no-install-recommends {' '.join(packages)}"] if packages else []
    if os.geteuid() != 0:
        steps.append("repeat the command with sudo")
    raise ClusterError(
        f"a rack cannot start here; missing: {'; '.join(missing)}",
        fix=" and then ".join(steps) or "use a real or virtual machine, or a privileged container",
    )


def require_root() -> None:
    """Raise a ClusterError when the command needs root and does not have it."""
    if os.geteuid() != 0:
        raise ClusterError("only root sees the rack's namespaces", fix="repeat the command with sudo")


def why_no_cgroup(folder: Path) -> str | None:
    """Why Slurm cannot track processes by the cgroup freezer here, or None when it can."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        process.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", _FREEZER, "sh", folder])
    except ClusterError as error:
        return error.message
    return None

"""Booting the rack's daemons, asking Slurm about its nodes, and what is left to clean when they are gone."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from pdkit.errors import ClusterError
from pdkit.rack import network, process
from pdkit.rack.config import RackConfig

_HERE = Path(__file__).parent
_START_DEADLINE_S = 120
_DAEMONS = frozenset({"munged", "slurmctld", "slurmd"})
# Slurm's words for a node that takes or runs jobs; a suffix such as * (no answer) makes it another word.
UP_STATES = frozenset({"idle", "allocated", "mixed", "completing"})


def running(name: str, daemon: str) -> list[process.Process]:
    """The processes of `daemon` in the namespace `name`."""
    return [one for one in process.processes([name])[name] if one.name == daemon]


def boot_head(config: RackConfig) -> None:
    """Start munged and slurmctld where they do not run."""
    for daemon in ("munged", "slurmctld"):
        if not running(config.head, daemon):
            _boot(config, config.head, ["--uts", "--mount"], ["boot-head.sh", daemon])


def boot_node(config: RackConfig, node: str) -> None:
    """Start slurmd on `node`."""
    _boot(config, node, ["--uts", "--ipc", "--mount"], ["boot-node.sh"])


def _boot(config: RackConfig, name: str, spaces: Sequence[str], script: Sequence[str]) -> None:
    inside = ["nsenter", f"--net=/run/netns/{name}", "unshare", *spaces, "--propagation", "private"]
    file, *rest = script
    process.run([*inside, "sh", _HERE / file, config.folder, name, *rest])


def slurm_states(config: RackConfig) -> dict[str, tuple[str, str]]:
    """Slurm's state of every node and its reason."""
    listing = process.run(
        ["sinfo", "--noheader", "--Node", "--partition=batch", "--format=%N|%T|%E"],
        environment={"SLURM_CONF": str(config.conf)},
    )
    rows = [line.split("|", 2) for line in listing.splitlines()]
    return {node.strip(): (state, "" if reason == "none" else reason) for node, state, reason in rows}


def wait_until_up(config: RackConfig) -> None:
    """Wait until every node is idle or at work."""
    end = time.monotonic() + _START_DEADLINE_S
    while waiting := _waiting(config):
        drained = [node for node, (state, _) in waiting.items() if state.startswith(("drain", "maint"))]
        if len(drained) == len(waiting):
            raise ClusterError(
                f"{', '.join(f'{node} is {waiting[node][0]} ({waiting[node][1]})' for node in drained)}",
                fix=f"scontrol update nodename={','.join(drained)} state=resume",
            )
        if time.monotonic() > end:
            first = next(iter(waiting))
            raise ClusterError(
                f"{len(waiting)} of {config.nodes} nodes are not up after {_START_DEADLINE_S} s; "
                f"{first} is {waiting[first][0]}: {_last_words(config, f'slurmd.{first}.log')}",
                fix=f"read {config.folder}/log",
            )
        time.sleep(0.1)


def _waiting(config: RackConfig) -> dict[str, tuple[str, str]]:
    try:
        states = slurm_states(config)
    except ClusterError:
        # It answers only when it has read its state; when it is gone it never will.
        if not running(config.head, "slurmctld"):
            raise ClusterError(
                f"slurmctld ended: {_last_words(config, 'slurmctld.log')}",
                fix=f"read {config.folder}/log/slurmctld.log",
            ) from None
        return dict.fromkeys(config.node_names, ("unknown", "slurmctld does not answer yet"))
    return {node: value for node, value in states.items() if value[0] not in UP_STATES}


def _last_words(config: RackConfig, log: str) -> str:
    path = config.folder / "log" / log
    if not path.exists():
        return f"no {log}"
    return " | ".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-3:])


def refuse_strangers(config: RackConfig) -> None:
    """Raise when the rack's namespaces belong to a rack of another folder."""
    mark = f"{config.folder}{os.sep}"
    for found in process.processes(network.existing(config)).values():
        for one in found:
            if one.name in _DAEMONS and mark not in " ".join(one.command):
                raise ClusterError(
                    f"another rack is called {config.name}: {' '.join(one.command)}",
                    fix="give this one another --name and --subnet, or stop the other with its --folder",
                )


def remove_cgroups(config: RackConfig) -> None:
    """Remove the freezer groups of nodes that have no process left."""
    place = config.folder / "cgroup"
    place.mkdir(parents=True, exist_ok=True)
    inside = ["unshare", "--mount", "--propagation", "private", "sh"]
    process.run([*inside, _HERE / "remove-cgroups.sh", place, config.name])


def remove_mountpoints(config: RackConfig) -> None:
    """Remove the empty folders and files that container mounts needed; what was filled since stays."""
    record = config.folder / "state" / "mountpoints"
    if not record.exists():
        return
    made = dict.fromkeys(record.read_text(encoding="utf-8").splitlines())
    for path in map(Path, reversed(made)):
        if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
            path.rmdir()
        elif path.is_file() and path.stat().st_size == 0:
            path.unlink()
    record.unlink()

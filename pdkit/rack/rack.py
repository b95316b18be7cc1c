"""A virtual rack from start to stop: one function per thing a person does to a rack."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pdkit.errors import ClusterError, UsageError
from pdkit.rack import daemons, network, process, render, requirements
from pdkit.rack.config import RackConfig, stored


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node as Slurm and as the machine see it."""

    name: str
    state: str
    """Slurm's word, such as `idle`, `allocated`, `down*`; `off` when the rack does not run."""
    reason: str
    """Why Slurm does not use the node; empty when it does."""
    address: str
    plugged: bool
    """Whether the network cable is plugged in."""
    processes: int
    """How many processes run on the node, slurmd included; 0: the node is without power."""

    @property
    def up(self) -> bool:
        """Whether the node takes or runs jobs."""
        return self.state in daemons.UP_STATES


def start(config: RackConfig, *, tell: Callable[[str], object] | None = None) -> None:
    """Bring every node of the rack up and wait until each is idle or at work; what already runs stays."""
    requirements.require()
    _refuse_foreign_folder(config)
    with _locked(config):
        daemons.refuse_strangers(config)
        files = render.rendered(config, _proctrack(config, tell or _to_stderr))
        if _alive(config):
            _refuse_change(files)
        else:
            _clean(config)
            if stored(config.folder) != config:
                # Slurm refuses the memory of another cluster.
                shutil.rmtree(config.folder / "state", ignore_errors=True)
            render.write(config, files)
            network.build(config)
        daemons.boot_head(config)
        for node in config.node_names:
            _power(config, node)
        daemons.wait_until_up(config)


def _refuse_foreign_folder(config: RackConfig) -> None:
    # `stop --wipe` removes the folder, so nothing else may lie in it.
    if config.folder.exists() and stored(config.folder) is None:
        strange = sorted(path.name for path in config.folder.iterdir() if path.name not in ("lock", "cgroup"))
        if strange:
            raise UsageError(
                f"{config.folder} is not a rack's folder: it holds {', '.join(strange[:3])}",
                fix="choose a folder that is empty or does not exist yet",
            )


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


def _proctrack(config: RackConfig, tell: Callable[[str], object]) -> str:
    if config.proctrack == "pgid":
        return "pgid"
    why = requirements.why_no_cgroup(config.folder / "cgroup")
    if why is None:
        return "cgroup"
    if config.proctrack == "cgroup":
        raise ClusterError(f"no process tracking by cgroup here: {why}", fix="use auto or pgid")
    tell(f"Slurm tracks tasks by process group, so one that leaves its group outlives its step; no freezer: {why}")
    return "pgid"


def _alive(config: RackConfig) -> bool:
    return any(process.processes(network.existing(config)).values())


def _refuse_change(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            raise ClusterError(
                "the rack runs with other settings", at=str(path), fix="stop it first, with `pdkit rack stop`"
            )


def _power(config: RackConfig, node: str) -> None:
    network.set_plugged(config, node, plugged=True)
    if not daemons.running(node, "slurmd"):
        daemons.boot_node(config, node)


def stop(config: RackConfig, *, wipe: bool = False) -> None:
    """End every process, job and namespace of the rack; with `wipe`, remove its folder too."""
    requirements.require_root()
    # What the folder remembers is what was started, whatever the caller believes.
    started = stored(config.folder)
    if started is None:
        return
    config = started
    with _locked(config):
        daemons.refuse_strangers(config)
        for daemon in daemons.running(config.head, "slurmctld"):
            if not wipe:
                _cancel_jobs(config)
            process.terminate(daemon)
        names = network.existing(config)
        process.end_all(lambda: [one for found in process.processes(names).values() for one in found])
        _clean(config)
        if wipe:
            shutil.rmtree(config.folder)


def _clean(config: RackConfig) -> None:
    network.remove(config)
    daemons.remove_cgroups(config)
    daemons.remove_mountpoints(config)


def _cancel_jobs(config: RackConfig) -> None:
    # Jobs of a stopped rack must not come back with it. A controller that hangs is ended all the same.
    for partition in ("batch", "debug"):
        with contextlib.suppress(ClusterError):
            process.run(["scancel", f"--partition={partition}"], environment=environment(config), timeout_s=5)


def status(config: RackConfig) -> list[NodeState]:
    """Every node's state, in order."""
    requirements.require_root()
    head_exists = config.head in network.existing(config)
    words = daemons.slurm_states(config) if daemons.running(config.head, "slurmctld") else {}
    cables = network.plugged(config) if head_exists else frozenset()
    found = process.processes(config.node_names)
    return [
        NodeState(
            name=node,
            state=words.get(node, ("off", ""))[0],
            reason=words.get(node, ("off", ""))[1],
            address=config.node_address(node),
            plugged=node in cables,
            processes=len(found[node]),
        )
        for node in config.node_names
    ]


def runs(config: RackConfig) -> bool:
    """Whether the rack's controller is at work."""
    return config.head in network.existing(config) and bool(daemons.running(config.head, "slurmctld"))


def environment(config: RackConfig) -> dict[str, str]:
    """The variables that make sbatch, srun and squeue talk to this rack."""
    return {"SLURM_CONF": str(config.conf)}


def node_processes(config: RackConfig, node: str) -> list[process.Process]:
    """What runs on `node` (slurmd, slurmstepd, every task) or on the head (munged, slurmctld)."""
    if node != config.head:
        config.index(node)
    return process.processes([node])[node]


def kill_node(config: RackConfig, node: str) -> None:
    """Take the power from `node`: it falls silent, and every process on it is gone at once."""
    _require_running(config)
    network.set_plugged(config, node, plugged=False)
    process.end_all(lambda: node_processes(config, node))


def unplug_node(config: RackConfig, node: str) -> None:
    """Pull the network cable of `node`; its processes live on."""
    _require_running(config)
    network.set_plugged(config, node, plugged=False)


def plug_node(config: RackConfig, node: str) -> None:
    """Plug the network cable of `node` in again."""
    _require_running(config)
    network.set_plugged(config, node, plugged=True)


def start_node(config: RackConfig, node: str) -> None:
    """Give `node` its power and its cable back; Slurm uses it again when slurmd has answered."""
    _require_running(config)
    config.index(node)
    _power(config, node)


def _require_running(config: RackConfig) -> None:
    requirements.require_root()
    if config.head not in network.existing(config):
        raise ClusterError(f"the rack {config.name} does not run", fix="start it with `pdkit rack start`")


@contextlib.contextmanager
def _locked(config: RackConfig) -> Iterator[None]:
    """Let one start or stop at a time work on the folder."""
    config.folder.mkdir(parents=True, exist_ok=True)
    with (config.folder / "lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield

"""What a virtual rack is made of, and every name and path that follows from it."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
import re
from pathlib import Path
from typing import Any

from pdkit.errors import UsageError

# sockaddr_un holds 108 bytes with the final zero.
_SOCKET_PATH_BYTES = 107
# One host interface carries the rack's name; Linux allows 15 characters, and node names add a suffix.
_NAME = re.compile(r"[a-z][a-z0-9]{0,11}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RackConfig:
    """One virtual rack; two racks live side by side when folder, name and subnet differ."""

    folder: Path
    """Everything of the rack lies here: configuration, logs, state, sockets."""
    name: str = "nvl72"
    """Prefix of the node names (`nvl72-01`), name of the host interface and of the Slurm cluster."""
    nodes: int = 18
    """Compute trays, each with its own network namespace, address, hostname and `/dev/shm`."""
    gpus_per_node: int = 4
    """Fake GPUs that Slurm hands out (`CUDA_VISIBLE_DEVICES`); there is no device behind them."""
    cpus_per_node: int = 144
    """CPUs that Slurm counts, in two sockets; not a limit on what a task uses."""
    memory_mib: int = 950_000
    """Memory that Slurm counts; not a limit either."""
    gpu_type: str = "gb300"
    """GRES type and node feature."""
    subnet: str = "10.72.1"
    """First three bytes of the rack's private /24 network."""
    port: int = 26817
    """slurmctld listens here and slurmd on the next one, inside the rack's own namespaces."""
    accounts: tuple[str, ...] = ()
    """Accounts that a job may name; empty: any."""
    proctrack: str = "auto"
    """How Slurm finds the processes of a step: `cgroup`, `pgid`, or `auto` (cgroup where the kernel allows it)."""

    def __post_init__(self) -> None:
        if not self.folder.is_absolute():
            object.__setattr__(self, "folder", self.folder.absolute())
        _check(self)

    @property
    def node_names(self) -> tuple[str, ...]:
        """Every node's name, in order."""
        return tuple(f"{self.name}-{index:02d}" for index in range(1, self.nodes + 1))

    @property
    def head(self) -> str:
        """Hostname and namespace of the controller, which also holds the switch that joins the nodes."""
        return f"{self.name}-head"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Every network namespace of the rack, the head first."""
        return (self.head, *self.node_names)

    @property
    def head_address(self) -> str:
        """Where slurmctld listens."""
        return f"{self.subnet}.254"

    @property
    def host_address(self) -> str:
        """This machine's own address on the rack's network."""
        return f"{self.subnet}.253"

    @property
    def conf(self) -> Path:
        """The `slurm.conf` that `SLURM_CONF` names."""
        return self.folder / "etc" / "slurm.conf"

    @property
    def socket(self) -> Path:
        """The munge socket."""
        return self.folder / "munge" / "socket"

    @property
    def step_socket(self) -> Path:
        """The socket of a job's batch script with the longest number: without it no job starts, and none says why."""
        node = self.node_names[-1]
        return self.folder / "spool" / node / f"{node}_67043328.4294967291"

    @property
    def requests_log(self) -> Path:
        """One JSON line per task that asked for a container."""
        return self.folder / "log" / "containers.jsonl"

    @property
    def local_disk(self) -> Path:
        """A folder with the same path on every node and other content on each: the node-local disk."""
        return self.folder / "local"

    def node_address(self, node: str) -> str:
        """The address of `node`."""
        return f"{self.subnet}.{self.index(node)}"

    def index(self, node: str) -> int:
        """The place of `node` in the rack, from 1."""
        if node not in self.node_names:
            raise UsageError(
                f"the rack {self.name} has no node {node!r}",
                fix=f"name one of {self.node_names[0]} ... {self.node_names[-1]}",
            )
        return self.node_names.index(node) + 1


def _check(config: RackConfig) -> None:
    if re.search(r"[\s\"'#%,=\\]", str(config.folder)):
        raise UsageError(
            f"Slurm's configuration cannot hold the folder name {str(config.folder)!r}",
            fix="choose a --folder without spaces, quotes, '#', '%', ',', '=' and backslashes",
        )
    if not _NAME.fullmatch(config.name):
        raise UsageError(
            f"{config.name!r} cannot name a rack", fix="use 1 to 12 lower-case letters and digits, a letter first"
        )
    if not re.fullmatch(r"[a-z][a-z0-9]*", config.gpu_type):
        raise UsageError(f"{config.gpu_type!r} cannot name a GPU type", fix="use lower-case letters and digits")
    strange = [name for name in config.accounts if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name)]
    if strange:
        raise UsageError(f"{strange[0]!r} cannot name an account", fix="use letters, digits, '_', '.' and '-'")
    if config.proctrack not in ("auto", "cgroup", "pgid"):
        raise UsageError(f"unknown process tracking {config.proctrack!r}", fix="use auto, cgroup or pgid")
    _check_numbers(config)
    _check_paths(config)
    try:
        private = ipaddress.IPv4Network(f"{config.subnet}.0/24").is_private
    except ValueError:
        private = False
    if not private:
        raise UsageError(
            f"{config.subnet!r} is not the first three bytes of a private IPv4 network", fix="use for example 10.72.1"
        )


def _check_paths(config: RackConfig) -> None:
    longest = max((config.socket, config.step_socket), key=lambda path: len(os.fsencode(path)))
    socket_bytes = len(os.fsencode(longest))
    if socket_bytes > _SOCKET_PATH_BYTES:
        raise UsageError(
            f"a Unix socket path holds {_SOCKET_PATH_BYTES} bytes, and {longest} has {socket_bytes}",
            fix="choose a shorter --folder",
        )


def _check_numbers(config: RackConfig) -> None:
    limits = {"nodes": (1, 250), "gpus_per_node": (1, 16), "cpus_per_node": (2, 1024), "port": (1024, 65534)}
    for key, (low, high) in limits.items():
        if not low <= getattr(config, key) <= high:
            raise UsageError(f"{key} is {getattr(config, key)}", fix=f"use {low} to {high}")
    if config.cpus_per_node % 2:
        raise UsageError(f"cpus_per_node is {config.cpus_per_node}", fix="use an even number: a node has two sockets")
    if config.memory_mib < 1024:
        raise UsageError(f"memory_mib is {config.memory_mib}", fix="use at least 1024")


def to_record(config: RackConfig) -> dict[str, Any]:
    """The configuration as plain JSON values."""
    return {**dataclasses.asdict(config), "folder": str(config.folder), "accounts": list(config.accounts)}


def stored(folder: Path) -> RackConfig | None:
    """The configuration that `start` left in `folder`, or None where no rack was ever started."""
    path = folder / "rack.json"
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return RackConfig(**{**record, "folder": folder, "accounts": tuple(record["accounts"])})
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"cannot be read as a rack: {error}", at=str(path), fix="remove the folder, then start the rack again"
        ) from error


def default_folder() -> Path:
    """Where a user's rack lives: `$XDG_STATE_HOME/pdkit/rack`, else `~/.local/state/pdkit/rack`."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "pdkit" / "rack"

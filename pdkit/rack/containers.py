"""What the rack's nodes were asked to run in a container: the record of the Pyxis stand-in."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pdkit.rack.config import RackConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One `SRC:DST:FLAGS` of `--container-mounts`."""

    source: str
    target: str
    flags: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRequest:
    """What one task asked for; None means that the option was not given."""

    job: int
    step: str
    """Number of the step, or `batch`."""
    task: int
    node: str
    image: str | None
    mounts: tuple[Mount, ...]
    workdir: str | None
    name: str | None
    save: str | None
    env: str | None
    unshare: str | None
    mount_home: bool | None
    remap_root: bool | None
    entrypoint: bool | None
    entrypoint_log: bool | None
    writable: bool | None


def container_requests(config: RackConfig, *, job: int | None = None) -> list[ContainerRequest]:
    """Every task that asked for a container, oldest first; with `job`, that job's only."""
    if not config.requests_log.exists():
        return []
    lines = config.requests_log.read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [
        ContainerRequest(**{**record, "mounts": tuple(Mount(**mount) for mount in record["mounts"])})
        for record in records
        if job is None or record["job"] == job
    ]

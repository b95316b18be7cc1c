"""`pdkit rehearse`: the very job of a recipe on a virtual rack, with played engines, from submission to its end."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from pdkit.errors import ClusterError
from pdkit.launch.attend import attend
from pdkit.launch.jobs import own_live_jobs
from pdkit.launch.rehearsal import real_programs, rehearsal_sets
from pdkit.launch.slurm import Options
from pdkit.launch.status import status_of
from pdkit.launch.stop import stop_run
from pdkit.launch.submit import Planned, planned_for, submit_recipes
from pdkit.rack import config as racks
from pdkit.rack import rack, requirements
from pdkit.rack.config import RackConfig
from pdkit.render.engine import commands

RACK_SETS = (
    "cluster.partition=null",
    "cluster.account=null",
    "cluster.qos=null",
    "cluster.mounts={}",
    "cluster.time_limit='1:00:00'",
)
"""What is so on one cluster only; a rehearsal that takes an hour has failed."""
SERVERS = {"etcd": "etcd-server", "nats-server": "nats-server"}
"""Programs of Dynamo's own servers, and Debian's packages of them."""
DRAIN_SECONDS = 30.0
NODES = 18
"""Of a rack that is started for a rehearsal, unless told."""

Tell = Callable[[str], object]


def rehearse(
    recipe: Path, output: Path, sets: tuple[str, ...], *, nodes: int | None, console: Console, tell: Tell
) -> int:
    """Run every recipe of a file to its end and return the first exit code that is not 0.

    Uses the rack that runs already, else starts one of `nodes` nodes and ends it afterwards. Raises ClusterError where
    no rack can be.
    """
    planned = planned_for(recipe, rehearsal_sets(recipe, (*RACK_SETS, *sets)), None)
    require_servers(planned)
    wanted = max(plan.nodes for _, plan, _ in planned)
    with _rack(wanted, nodes, tell) as config, _environment(rack.environment(config)):
        folders = []
        try:
            for one in submit_recipes(planned, output, Options(), again=True, played=True):
                folders.append(one.folder)
                tell(f"{one.folder}: rehearsal as job {one.job} on {one.nodes} of {config.nodes} nodes")
            return attend(folders, console)
        finally:
            for status in status_of(folders)[0]:
                if status.live:
                    tell(f"{status.folder}: {stop_run(status, DRAIN_SECONDS)}")


def require_servers(planned: list[Planned]) -> None:
    """Raise ClusterError when a server that the job starts is not on this machine: nothing plays its part."""
    servers = {step.program[0] for _, plan, _ in planned for step in commands(plan) if step.program[0] in SERVERS}
    missing = sorted(name for name in servers if shutil.which(name, path=real_programs()) is None)
    if missing:
        fix = f"make engines rack-deps, or apt-get install {' '.join(SERVERS[name] for name in missing)}"
        raise ClusterError(f"a rehearsal of this recipe needs {' and '.join(missing)} on this machine", fix=fix)


@contextlib.contextmanager
def _rack(wanted: int, nodes: int | None, tell: Tell) -> Iterator[RackConfig]:
    """The rack of the caller's SLURM_CONF, else the user's own where it runs, else one for this rehearsal alone."""
    requirements.require()
    running = next((one for one in _known_racks() if rack.runs(one)), None)
    if running is not None:
        if running.nodes < wanted:
            message = f"the running rack {running.name} has {running.nodes} nodes, this recipe needs {wanted}"
            raise ClusterError(message, fix="pdkit rack stop, then rehearse again")
        yield running
        return
    config = own_rack(nodes or max(wanted, NODES))
    if config.nodes < wanted:
        raise ClusterError(f"--nodes is {config.nodes}, this recipe needs {wanted}", fix=f"--nodes {wanted}")
    rack.start(config, tell=lambda line: tell(f"note: {line}"))
    tell(f"rack {config.name}: {config.nodes} nodes up")
    try:
        yield config
    finally:
        with _environment(rack.environment(config)):
            others = own_live_jobs()
        if others:
            tell(f"rack {config.name} goes on: job {others[0].id} is at work; pdkit rack stop --folder {config.folder}")
        else:
            rack.stop(config, wipe=True)
            tell(f"rack {config.name}: stopped")


def own_rack(nodes: int) -> RackConfig:
    """The rack that lives only as long as a rehearsal; a user's own rack beside it meets nothing of it."""
    folder = racks.default_folder().with_name("rehearsal")
    return RackConfig(folder=folder, name="rehearsal", subnet="10.72.2", nodes=nodes, port=26819)


def _known_racks() -> Iterator[RackConfig]:
    told = os.environ.get("SLURM_CONF")
    folders = [Path(told).parent.parent] if told else []
    for folder in (*folders, racks.default_folder(), own_rack(1).folder):
        found = racks.stored(folder)
        if found is not None:
            yield replace(found, folder=folder)


@contextlib.contextmanager
def _environment(more: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

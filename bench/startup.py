"""How long pdkit itself takes from the start of a job to its last engine process: 12 nodes, played engines."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdkit.errors import PdkitError
from pdkit.job.events import read_events
from pdkit.launch.jobs import slurm
from pdkit.launch.progress import seconds_of
from pdkit.launch.record import read_json
from pdkit.launch.rehearsal import rehearsal_sets
from pdkit.launch.run import engines_folder
from pdkit.launch.slurm import Options
from pdkit.launch.submit import planned_for, submit_recipes
from pdkit.rack import rack
from pdkit.rack.requirements import missing_requirements
from pdkit.rehearse import RACK_SETS, own_rack, require_servers

RECIPE = "recipes/qwen38/published/4xtp2dp4-1xtp4dp4-cc2560.yaml"
LONGEST_SECONDS = 180


@dataclass(frozen=True, slots=True)
class Startup:
    """Seconds from the start of a job on the virtual rack."""

    recipe: str
    engines: int
    last_started_s: float
    """Until the last engine process was started."""
    ready_s: float
    """Until every one was proved to serve; played engines load nothing."""


def measure_startup() -> Startup | str:
    """Start one rehearsal and cancel it when it is ready; a sentence where that cannot be."""
    missing = missing_requirements()
    missing += [] if engines_folder(None) else ["Dynamo (make engines)"]
    if missing:
        return f"not measured, no rehearsal can run here; missing: {'; '.join(missing)}"
    config = own_rack(12)
    if rack.runs(config):
        return "not measured, a rehearsal is at work"
    try:
        rack.start(config, tell=lambda _: None)
        try:
            os.environ |= rack.environment(config)
            with tempfile.TemporaryDirectory(prefix="pdkit-bench-") as name:
                return _start(Path(name))
        finally:
            rack.stop(config, wipe=True)
    except PdkitError as error:
        return f"not measured: {error.message}"


def _start(runs: Path) -> Startup | str:
    recipe = Path(RECIPE)
    planned = planned_for(recipe, rehearsal_sets(recipe, RACK_SETS), None)
    require_servers(planned)
    [one] = submit_recipes(planned, runs, Options(), again=True, played=True)
    deadline = time.monotonic() + LONGEST_SECONDS
    while not (events := _by_name(one.folder)).get("ready"):
        if (one.folder / "result.json").exists() or time.monotonic() > deadline:
            return f"not measured, the job did not get ready: {read_json(one.folder / 'result.json', {})}"
        time.sleep(0.5)
    slurm(["scancel", one.job])
    engines = {process["name"] for process in read_json(one.folder / "plan.json")["placement"]}
    begin = seconds_of(events["job"][0]["time"])
    started = max(seconds_of(event["time"]) for event in events["started"] if event["step"] in engines)
    ready = seconds_of(events["ready"][0]["time"])
    return Startup(RECIPE, len(engines), round(started - begin, 1), round(ready - begin, 1))


def _by_name(folder: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for event in read_events(folder):
        found.setdefault(event["event"], []).append(event)
    return found


def shown(found: Startup | str) -> str:
    """For a person."""
    if isinstance(found, str):
        return f"start-up of a job: {found}"
    return (
        f"start-up of a job, {found.engines} engine processes on as many nodes of a virtual rack: the last one starts "
        f"after {found.last_started_s} s, all are proved ready after {found.ready_s} s (played engines load nothing)"
    )

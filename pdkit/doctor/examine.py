"""All checks of one machine for one recipe, or for none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pdkit.doctor.check import Check, of_look
from pdkit.doctor.engines import engine_checks
from pdkit.doctor.machine import fabric, gpu_memory, limits, processor, shared_memory
from pdkit.job import preflight
from pdkit.paths import expand
from pdkit.plan.contract import plan_data
from pdkit.plan.plan import Plan
from pdkit.recipe.schema import Recipe


def _alone() -> dict[str, Any]:
    """The plan of no recipe: GPUs may be there, and in a job of several nodes the others look for this one."""
    told = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    nodes = int(told) if told.isdigit() else 1
    return {"device": "cuda", "nodes": nodes, "ports": [], "placement": [], "roles": {}}


def examine(plan: Plan | None, node: int, python: Path | None, folder: Path) -> Iterator[Check]:
    """Every check, the quick ones first; `node` counts the plan's nodes from 0, `folder` is where runs will lie."""
    data = plan_data(plan, ()) if plan else None
    seen = _with_folders(data) if data else _alone()
    for about, looks in (
        ("ports", preflight.look_at_ports(seen, node) if data else iter(())),
        ("gpus", preflight.look_at_gpus(seen, node)),
        ("model", preflight.look_at_model(seen, node)),
        ("hostname", preflight.look_at_name(seen)),
        ("disk", preflight.look_at_disk(folder)),
        ("clock", preflight.look_at_clock(folder)),
    ):
        yield from (of_look(about, look) for look in looks)
    if plan:
        yield from _revision(plan.recipe)
        yield processor(plan.hardware.architecture)
    device = plan.hardware.device if plan else "cuda" if shutil.which("nvidia-smi") else "cpu"
    if device == "cuda":
        yield from gpu_memory(data, node)
        yield from fabric(data)
    processes = sum(one["node"] == node for one in seen["placement"])
    yield shared_memory(processes)
    yield from limits(device)
    yield from engine_checks(python, plan.recipe if plan else None, device)


def _with_folders(data: dict[str, Any]) -> dict[str, Any]:
    """The plan with `{pdkit}` in model paths expanded, as the engines' command lines have it."""
    roles = {name: {**role, "model_path": expand(role["model_path"])} for name, role in data["roles"].items()}
    return {**data, "roles": roles}


def _revision(recipe: Recipe) -> Iterator[Check]:
    """A revision can be seen in the hub's cache; a folder does not say which one it is."""
    if recipe.model.revision is None:
        return
    path, revision = recipe.model.path, recipe.model.revision
    if path.startswith("/"):
        yield Check("revision", "cannot be told", f"the folder {path} does not say whether it is {revision}")
        return
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    snapshot = home / "hub" / f"models--{path.replace('/', '--')}" / "snapshots" / revision
    if snapshot.is_dir():
        yield Check("revision", "ok", f"{path} at {revision} is in the cache")
    else:
        yield Check(
            "revision", "cannot be told", f"{snapshot} is not there: it would be fetched", "fetch it beforehand"
        )

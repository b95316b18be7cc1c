"""What the driver knows of the deployment that it proves and measures: the run folder, read once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pdkit.recipe.schema import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One engine process that has an API of its own, and what it must report."""

    name: str
    role: str
    endpoint: int
    ranks: tuple[int, ...]
    url: str
    """Base URL of its system server: health and metrics."""
    block_size: int
    kv_blocks: int | None
    """Blocks that the plan expects per rank, with the estimate's error taken off; None when the plan cannot say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The run folder as the driver sees it."""

    folder: Path
    recipe: Recipe
    plan: dict[str, Any]
    lock_digest: str
    rehearsal: bool
    """Whether played engines take the place of the real ones, so that no figure says anything about them."""
    url: str
    """Base URL of the first frontend."""
    model: str
    workers: tuple[Worker, ...]

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of all engine processes, headless ones included: each has its log and its boot id."""
        return tuple(process["name"] for process in self.plan["placement"])

    def log(self, name: str) -> Path:
        """The log of a process."""
        return self.folder / "logs" / f"{name}.log"

    def generating(self) -> list[Worker]:
        """The workers whose counters tell where prompts came from: decode, or agg."""
        return [worker for worker in self.workers if worker.role != "prefill"]

    def pair(self) -> bool:
        """Whether prefill and decode are apart."""
        return "prefill" in self.plan["roles"]


def read_deployment(folder: Path, address: Callable[[int], str]) -> Deployment:
    """Read `plan.json`, `recipe.yaml` and `lock.json`; `address` gives the address of a node of the job."""
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    recipe = Recipe.model_validate(yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8")))
    lock = json.loads((folder / "lock.json").read_text(encoding="utf-8"))
    frontend = plan["frontends"][0]
    return Deployment(
        folder=folder,
        recipe=recipe,
        plan=plan,
        lock_digest=lock["digest"],
        rehearsal="rehearsal" in lock,
        url=f"http://{address(frontend['node'])}:{frontend['port']}",
        model=plan["served_name"],
        workers=tuple(_worker(one, plan, address) for one in plan["placement"] if not one["headless"]),
    )


def _worker(process: dict[str, Any], plan: dict[str, Any], address: Callable[[int], str]) -> Worker:
    role = plan["roles"][process["role"]]
    return Worker(
        name=process["name"],
        role=process["role"],
        endpoint=process["endpoint"],
        ranks=tuple(process["ranks"]),
        url=f"http://{address(process['node'])}:{process['system_port']}",
        block_size=plan["block_size"]["effective"][process["role"]],
        kv_blocks=_least_blocks(role),
    )


def _least_blocks(role: dict[str, Any]) -> int | None:
    """Planned blocks less one per cent for rounding at start-up, less the error band of an estimate."""
    memory, blocks = role["memory"], role["kv"]["blocks"]
    if memory is None or memory["kv_cache_gib"] <= 0:
        return None
    sure = max(0.0, 1.0 - memory["error_gib"] / memory["kv_cache_gib"])
    return int(blocks * sure * 0.99)

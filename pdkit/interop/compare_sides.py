"""The two sides of a comparison: a pdkit recipe or an srt-slurm one, planned, with its load and its job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pdkit.errors import Finding, RecipeError, UsageError
from pdkit.facts.models import known_models
from pdkit.interop.files import is_srt_file
from pdkit.interop.reading import as_int
from pdkit.interop.srt import read_srt
from pdkit.interop.types import Imported, Note, SrtBenchmark, SrtRecipe
from pdkit.interop.unknown import STAND_IN
from pdkit.plan.plan import Plan, make_plan
from pdkit.plan.role import RolePlan
from pdkit.recipe.load import load
from pdkit.recipe.schema import Recipe, Role
from pdkit.render.script import directives


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How points are measured, in words that hold for both tools."""

    tool: str
    isl: int | None
    osl: int | None
    lengths: tuple[float, float]
    """Lengths are drawn evenly from [first x L, second x L]; both 1.0 for a fixed length."""
    concurrency: tuple[int, ...]
    prompts: int
    """Requests of a point, as a multiple of the concurrency."""
    warmup: int
    endpoint: str
    template: bool
    """Whether prompts go through the chat template."""
    shared_prefix: int
    repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Tokens per KV block of a role."""

    natural: int
    """What vLLM settles on by itself."""
    pinned: int | None
    """What `--block-size` says."""
    effective: int
    """What the engine uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One deployment of a comparison."""

    file: str
    name: str
    kind: Literal["pdkit", "srt-slurm"]
    known: bool
    """Whether there are facts of the model; without them block sizes and dtypes cannot be told."""
    plan: Plan
    nodes: int
    blocks: dict[Role, Block]
    load: Load | None
    """None when the job measures no speed."""
    accuracy: str
    """How answers are proved; empty when they are not."""
    job: dict[str, str]
    notes: tuple[Note, ...] = ()
    faults: tuple[Finding, ...] = ()
    """What is wrong with an srt-slurm recipe that its plan cannot show, such as workers that do not fit their nodes."""


def sides(path: Path) -> list[Side]:
    """Every deployment that one file stands for.

    Raises RecipeError when it cannot be read or planned.
    """
    if is_srt_file(path):
        return [_of_srt(path, one) for one in read_srt(path)]
    return [_of_pdkit(path, make_plan(loaded)) for loaded in load(path)]


def sides_below(path: Path) -> tuple[list[Side], list[Finding]]:
    """The deployments of a file or of all files of a folder, and why some of a folder's could not be read.

    Raises RecipeError for a single file that cannot be read, UsageError for a folder without recipes.
    """
    if not path.is_dir():
        return sides(path), []
    read = [_or_findings(one) for one in _files(path)]
    if not read:
        raise UsageError(f"{path}: no recipes (*.yaml) in this folder")
    return [one for found, _ in read for one in found], [one for _, faults in read for one in faults]


def _or_findings(path: Path) -> tuple[list[Side], tuple[Finding, ...]]:
    try:
        return sides(path), ()
    except RecipeError as error:
        return [], error.findings


def _files(folder: Path) -> Iterator[Path]:
    for pattern in ("*.yaml", "*.yml"):
        found = sorted(folder.rglob(pattern))
        yield from (one for one in found if not one.name.startswith("base") and not one.is_dir())


def _of_pdkit(path: Path, plan: Plan) -> Side:
    recipe = plan.recipe
    return Side(
        file=str(path),
        name=recipe.name,
        kind="pdkit",
        known=True,
        plan=plan,
        nodes=plan.nodes,
        blocks={role: _block(one, one.requested_block_size) for role, one in plan.roles.items()},
        load=_load(recipe),
        accuracy=f"GSM8K, {recipe.gate.protocol}, at least {recipe.gate.floor:.0%}, before any point, on these engines",
        job=_options(directives(plan)),
    )


def _of_srt(path: Path, one: Imported) -> Side:
    bench = one.srt.benchmark
    measures = bench.isl is not None and bool(bench.concurrency)
    known = one.recipe.model.facts in known_models()
    plan = make_plan(one.loaded, None if known else STAND_IN)
    flags = {role: srt.flags for role, srt in one.srt.roles.items()}
    return Side(
        file=str(path),
        name=one.srt.name,
        kind="srt-slurm",
        known=known,
        plan=plan,
        nodes=one.srt.nodes,
        # a recipe that leaves the size to vLLM is pinned by pdkit, and not by srt-slurm
        blocks={role: _block(part, as_int(flags[role].get("block-size"))) for role, part in plan.roles.items()},
        load=_srt_load(bench) if measures else None,
        accuracy="" if measures else f"{bench.type}, {bench.repeats} times, in a job of its own, no threshold",
        job=_srt_job(one.srt),
        notes=one.notes,
        faults=one.findings,
    )


def _block(role: RolePlan, pinned: int | None) -> Block:
    used = role.shape.resolved_block_size(pinned) if pinned else role.shape.natural_block_size
    return Block(natural=role.shape.natural_block_size, pinned=pinned, effective=used)


def _srt_job(srt: SrtRecipe) -> dict[str, str]:
    """What srt-slurm asks Slurm for (c88ef731, templates and core/runtime.py): all nodes as one segment."""
    slurm = {"time_limit": "time", "account": "account", "partition": "partition"}
    job = {"nodes": srt.nodes, "segment": srt.nodes, GPUS: srt.gpus_per_node, **srt.directives}
    job |= {name: srt.slurm[key] for key, name in slurm.items() if srt.slurm.get(key) is not None}
    return {name: str(value) for name, value in job.items()}


GPUS = "GPUs per node"
HOUSEKEEPING = ("job-name", "output", "open-mode", "signal", "no-requeue")
"""Options that neither choose nor hold resources."""


def _load(recipe: Recipe) -> Load:
    sweep, work = recipe.sweep, recipe.workload
    ratio = sweep.random_range_ratio or 0.0  # vllm-bench and aiperf draw on both sides of the length
    return Load(
        tool=sweep.tool,
        isl=work.isl,
        osl=work.osl,
        lengths=(1.0 - ratio, 1.0 + ratio),
        concurrency=tuple(work.concurrency),
        prompts=sweep.prompts_per_concurrency,
        warmup=sweep.warmup_per_concurrency,
        endpoint=sweep.endpoint,
        template=sweep.endpoint == "chat",
        shared_prefix=work.shared_prefix,
        repeats=sweep.repeats,
    )


def _srt_load(bench: SrtBenchmark) -> Load:
    return Load(
        tool=bench.type,
        isl=bench.isl,
        osl=bench.osl,
        lengths=(bench.range_ratio, 1.0),
        concurrency=bench.concurrency,
        prompts=bench.prompts_per_concurrency,
        warmup=bench.warmup_per_concurrency,
        endpoint=bench.endpoint,
        template=bench.chat_template,
        shared_prefix=0,
        repeats=bench.repeats,
    )


def _options(lines: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for line in lines:
        name, _, value = line.removeprefix("--").partition("=")
        if name not in HOUSEKEEPING:
            options[GPUS if name == "gres" else name] = value.removeprefix("gpu:") or "on"
    return options

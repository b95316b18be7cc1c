"""Two deployments side by side: every setting that matters, and whether a difference has an effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pdkit.facts.flags import flag_table
from pdkit.interop.compare_flags import default_of, effective, rests
from pdkit.interop.compare_load import benchmark_rows
from pdkit.interop.compare_rows import Row, row
from pdkit.interop.compare_sides import Block, Side
from pdkit.interop.compare_unsaid import settings_of_ours, unsaid
from pdkit.plan.plan import Plan
from pdkit.plan.role import RolePlan
from pdkit.recipe.schema import ROLES, Role
from pdkit.render.engine import commands
from pdkit.render.text import fill
from pdkit.render.worker import kv_transfer_config

PLACED = frozenset({
    "data-parallel-address", "data-parallel-hybrid-lb", "data-parallel-rpc-port", "data-parallel-size-local",
    "data-parallel-start-rank", "disaggregation-mode", "headless", "master-addr", "master-port", "nnodes", "node-rank",
})  # fmt: skip
"""Flags that follow from topology and placement, compared as such."""
APART = frozenset({
    "block-size", "compilation-config", "data-parallel-size", "dtype", "enable-expert-parallel", "kv-cache-dtype",
    "kv-transfer-config", "mamba-ssm-cache-dtype", "max-cudagraph-capture-size", "max-model-len",
    "max-num-batched-tokens", "max-num-seqs", "model", "pipeline-parallel-size", "revision", "served-model-name",
    "speculative-config", "tensor-parallel-size",
})  # fmt: skip
"""Flags with a row of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two deployments and every setting of both."""

    left: Side
    right: Side
    rows: tuple[Row, ...]

    @property
    def same_in_effect(self) -> bool:
        """Whether engines, their environment and the load do the same on both sides."""
        return not any(one.decides for one in self.rows)


def compare(left: Side, right: Side) -> Comparison:
    """Compare two planned deployments."""
    rows = [*_software(left, right), *settings_of_ours(left, right)]
    for role in ROLES:
        rows += _role(left, right, role)
    rows += [*benchmark_rows(left.load, right.load), *_accuracy(left, right), *_job(left, right), *_names(left, right)]
    rows += unsaid(left, right)
    return Comparison(left=left, right=right, rows=tuple(rows))


def _software(left: Side, right: Side) -> Iterator[Row]:
    ours, theirs = left.plan.recipe, right.plan.recipe
    yield row("software", "model", ours.model.path, theirs.model.path, why="other weights")
    yield row("software", "revision", ours.model.revision, theirs.model.revision, why="the checkpoint may change")
    yield row("software", "image", ours.engine.image, theirs.engine.image, why="other engines")
    yield row("software", "vLLM", ours.engine.vllm, theirs.engine.vllm, why="other flags, defaults and kernels")
    yield row("software", "Dynamo", ours.engine.dynamo, theirs.engine.dynamo, why="another router")
    yield row("software", "hardware", left.plan.hardware.name, right.plan.hardware.name, why="other GPUs")
    yield row("topology", "GPUs in use", left.plan.gpus, right.plan.gpus, why="figures per GPU shift")
    yield row("topology", "nodes", left.nodes, right.nodes, why="GPUs held by the job, idle ones included")
    sizes = (one.plan.hardware.gpus_per_node for one in (left, right))
    yield row("topology", "GPUs per node", *sizes, why="what travels between nodes")


def _role(left: Side, right: Side, role: Role) -> Iterator[Row]:
    ours, theirs = left.plan.roles.get(role), right.plan.roles.get(role)
    if ours is None and theirs is None:
        return
    if ours is None or theirs is None:
        shapes = (f"{one.endpoints} x {one.topology}" if one else None for one in (ours, theirs))
        yield row("topology", "endpoints", *shapes, role=role, why="the role is on one side only")
        return
    yield from _topology(ours, theirs)
    known = left.known and right.known
    yield from _blocks(left.blocks[role], right.blocks[role], role, known=known)
    yield from _sizing(ours, theirs)
    yield from _caches(ours, theirs, known=known)
    yield from _flags(left.plan, right.plan, role)
    yield from _environment(left.plan, right.plan, role)


def _topology(ours: RolePlan, theirs: RolePlan) -> Iterator[Row]:
    role = ours.role
    why = "capacity and balance of prefill and decode"
    yield row("topology", "topology", str(ours.topology), str(theirs.topology), role=role, why="shards and experts")
    yield row("topology", "endpoints", ours.endpoints, theirs.endpoints, role=role, why=why)
    yield row("topology", "MTP", ours.mtp, theirs.mtp, role=role, why="speed per user, state per request, block size")


def _blocks(ours: Block, theirs: Block, role: Role, *, known: bool) -> Iterator[Row]:
    why = "tokens per KV block: transfer, capacity, and whether both roles shake hands"
    if not known:
        shown = ("unpinned" if one.pinned is None else one.pinned for one in (ours, theirs))
        note = f"{why}; without facts of the model nothing says what vLLM would settle on"
        yield row("block size", "--block-size", *shown, role=role, why=note)
        return
    natural = f"both use {ours.effective} all the same" if ours.effective == theirs.effective else ""
    note = "follows from TP, MTP and dtypes"
    yield row("block size", "natural block size", ours.natural, theirs.natural, role=role, why=note, effect=natural)
    effect, shown = "", ("unpinned" if one.pinned is None else one.pinned for one in (ours, theirs))
    if ours.effective == theirs.effective and ours.pinned != theirs.pinned:
        where = "here" if ours.pinned is None else "there"
        effect = f"unpinned {where}, but vLLM settles on {ours.effective} on both sides"
        if ours.pinned is not None and theirs.pinned is not None:
            effect = f"vLLM raises both to {ours.effective}"
    yield row("block size", "--block-size", *shown, role=role, why="see the effective size", effect=effect)
    yield row("block size", "effective block size", ours.effective, theirs.effective, role=role, why=why)


def _sizing(ours: RolePlan, theirs: RolePlan) -> Iterator[Row]:
    role = ours.role
    reasons = {
        "max_model_len": "longest request, and requests that the KV cache is shown to hold",
        "max_num_seqs": "requests at once per rank",
        "max_num_batched_tokens": "tokens per step: time to first token, memory of activations",
        "max_cudagraph_capture_size": "larger batches run without a CUDA graph",
        "cudagraph_mode": "which steps replay a graph",
    }
    for name, why in reasons.items():
        one, other = getattr(ours.sizing, name), getattr(theirs.sizing, name)
        yield row("sizing", name.replace("_", "-"), one.value, other.value, role=role, why=why)
    graphs = [len(one.sizing.capture_sizes(one.mtp)) for one in (ours, theirs)]
    yield row("sizing", "CUDA graphs", *graphs, role=role, why="start-up time and memory")


def _caches(ours: RolePlan, theirs: RolePlan, *, known: bool) -> Iterator[Row]:
    role = ours.role
    for what, name, why in (
        ("model dtype", "dtype", "answers and speed"),
        ("KV dtype", "kv_cache_dtype", "bytes per token, answers"),
        ("SSM dtype", "ssm_dtype", "bytes of state, answers"),
    ):
        one, other = getattr(ours, name), getattr(theirs, name)
        if not known:
            yield row("cache", what, one.reason, other.reason, role=role, why=why)
            continue
        effect = ""
        if one.value == other.value and one.reason != other.reason:
            effect = f"`{one.reason}` and `{other.reason}` both come to {one.value}"
        shown = (one.reason if effect else one.value, other.reason if effect else other.value)
        yield row("cache", what, *shown, role=role, why=why, effect=effect)
    layouts, why = (ours.conv_state_layout, theirs.conv_state_layout), "NIXL reads states dim-first on both sides"
    yield row("cache", "conv state layout", *layouts, role=role, why=why)
    sent = [kv_transfer_config(one, one.kv_transfer) if one.kv_transfer else None for one in (ours, theirs)]
    yield row("connector", "--kv-transfer-config", *sent, role=role, why="how KV travels, and what a lost block does")


def _flags(left: Plan, right: Plan, role: Role) -> Iterator[Row]:
    """All other flags of the first process of a role; one that is left out counts as its default."""
    ours, theirs = _effective(left, role), _effective(right, role)
    for name in sorted((ours.keys() | theirs.keys()) - PLACED - APART):
        one, other, effect = ours.get(name), theirs.get(name), ""
        missing = right if name not in theirs else left if name not in ours else None
        if missing is not None:
            given, default = (one if other is None else other), default_of(name, missing.recipe.engine.vllm)
            if default is not None and given == default:
                side = "there" if missing is right else "here"
                effect = f"left out {side}, and vLLM's default is {str(default).lower()}"
        yield row("flags", f"--{name}", one, other, role=role, why="a setting of vLLM", effect=effect)


def _effective(plan: Plan, role: Role) -> dict[str, Any]:
    name = next((process.name for process in plan.placement if process.role == role), None)
    worker = next((one for one in commands(plan) if one.name == name), None)
    if worker is None:  # endpoints that cannot be placed are a finding of their own
        return {}
    words = [fill(word, lambda node: f"<node {node}>", "<run>") for flag in worker.flags for word in flag.words()]
    found = effective(words, flag_table(plan.recipe.engine.vllm))
    return found | rests(found)


def _environment(left: Plan, right: Plan, role: Role) -> Iterator[Row]:
    ours, theirs = (plan.roles[role].settings.env for plan in (left, right))
    for name in sorted(ours.keys() | theirs.keys()):
        values = (None if name not in env else str(env[name]) for env in (ours, theirs))
        yield row("environment", name, *values, role=role, why="a variable of the engine")


def _accuracy(left: Side, right: Side) -> Iterator[Row]:
    why = "speed without a proof of the answers" if not (left.accuracy and right.accuracy) else "another proof"
    yield row("accuracy", "answers", left.accuracy or None, right.accuracy or None, why=why)


def _job(left: Side, right: Side) -> Iterator[Row]:
    for name in sorted(left.job.keys() | right.job.keys()):
        yield row("job", name, left.job.get(name), right.job.get(name), why="how Slurm gives out nodes")


def _names(left: Side, right: Side) -> Iterator[Row]:
    yield row("names", "recipe", left.name, right.name, why="a label")
    yield row("names", "served model", left.plan.served_name, right.plan.served_name, why="what clients ask for")

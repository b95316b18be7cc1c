"""Memory of one GPU: what vLLM may use, what weights and overheads take, what stays for the KV cache.

KV cache = total x utilization - non-torch - weights - peak activation - CUDA-graph estimate (vllm 0.32
v1/worker/gpu_worker.py:740-744). Where the facts hold a measured row for this very configuration it is taken;
otherwise the parts are estimated, marked so, and carry an error band.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pdkit.facts.hardware import HardwareFacts
from pdkit.facts.models import MeasuredMemory, ModelFacts
from pdkit.plan.sizing import Sizing
from pdkit.recipe.topology import Topology

DEFAULT_UTILIZATION = 0.92
"""vLLM's default since 0.32 and the published recipes' (cli default of --gpu-memory-utilization)."""
WEIGHTS_ERROR = 0.08
"""Estimated against measured weights: -0.5 % (TEP8) and -6.6 % (TP4DP4+EP); replicated parts are not modelled."""
ACTIVATION_BYTES_PER_TOKEN_AND_WIDTH = 32
"""Peak activation per batched token and hidden unit, a guess that the error band covers."""
OVERHEADS_ERROR_GIB = 1.5
"""Least error of overheads taken from a neighbour: rows of one topology with near sizes differ by up to 1.1 GiB."""
ASSUMED_HIDDEN = 8192
"""Where the facts do not tell a model's width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """GiB on one GPU."""

    total_gib: float
    utilization: float
    budget_gib: float
    non_torch_gib: float
    weights_gib: float
    peak_activation_gib: float
    cudagraph_estimate_gib: float
    kv_cache_gib: float
    """What stays for the KV cache; below zero when the model does not fit."""
    source: Literal["measured", "estimated", "given"]
    error_gib: float
    """Half width of the error band of `kv_cache_gib`; 0 when measured or given."""
    reason: str


def plan_memory(
    model: ModelFacts,
    hardware: HardwareFacts,
    topology: Topology,
    mtp: int,
    sizing: Sizing,
    *,
    utilization: float | None,
    kv_cache_gib: float | None,
    weights_gib: float | None,
) -> Memory | None:
    """The budget of one GPU, or None when the size of the weights is unknown.

    `utilization` and `kv_cache_gib` are the recipe's values; `weights_gib` is the whole checkpoint, where given.
    """
    share = utilization or DEFAULT_UTILIZATION
    budget = hardware.gpu_memory_gib * share
    rows = [row for row in model.measured if row.hardware == hardware.name]
    same = [row for row in rows if row.topology == str(topology) and row.mtp == mtp]
    exact = next((row for row in same if _same_sizes(row, sizing, mtp) and _adds_up(row, budget)), None)
    if exact and kv_cache_gib is None and weights_gib is None:
        return _measured(exact, hardware, share)
    weights = _weights(model, topology, mtp, same, weights_gib)
    if weights is None:
        return None
    overheads = _overheads(model, rows, same, sizing)
    left = budget - weights.gib - overheads.non_torch - overheads.activation - overheads.graphs
    given = kv_cache_gib is not None
    return Memory(
        total_gib=hardware.gpu_memory_gib,
        utilization=share,
        budget_gib=round(budget, 2),
        non_torch_gib=overheads.non_torch,
        weights_gib=round(weights.gib, 2),
        peak_activation_gib=overheads.activation,
        cudagraph_estimate_gib=overheads.graphs,
        kv_cache_gib=kv_cache_gib if kv_cache_gib is not None else round(left, 2),
        source="given" if given else "estimated",
        error_gib=0.0 if given else round(weights.error + overheads.error, 2),
        reason="KV cache size given by the recipe" if given else f"{weights.reason}; {overheads.reason}",
    )


def _same_sizes(row: MeasuredMemory, sizing: Sizing, mtp: int) -> bool:
    return (row.max_num_seqs, row.max_num_batched_tokens, row.cudagraphs) == (
        sizing.max_num_seqs.value,
        sizing.max_num_batched_tokens.value,
        len(sizing.capture_sizes(mtp)),
    )


def _adds_up(row: MeasuredMemory, budget_gib: float) -> bool:
    """Whether the row was measured with this budget: another GPU or share leaves another KV cache."""
    return abs(budget_gib - row.weights_gib - _sum(row) - row.kv_cache_gib) <= 0.02


def _measured(row: MeasuredMemory, hardware: HardwareFacts, share: float) -> Memory:
    return Memory(
        total_gib=hardware.gpu_memory_gib,
        utilization=share,
        budget_gib=round(hardware.gpu_memory_gib * share, 2),
        non_torch_gib=row.non_torch_gib,
        weights_gib=row.weights_gib,
        peak_activation_gib=row.peak_activation_gib,
        cudagraph_estimate_gib=row.cudagraph_estimate_gib,
        kv_cache_gib=row.kv_cache_gib,
        source="measured",
        error_gib=0.0,
        reason=f"measured at start-up for {row.topology}, MTP {row.mtp}, max-num-seqs {row.max_num_seqs}",
    )


@dataclass(frozen=True, slots=True)
class _Weights:
    gib: float
    error: float
    reason: str


def _weights(
    model: ModelFacts, topology: Topology, mtp: int, same: list[MeasuredMemory], total_gib: float | None
) -> _Weights | None:
    if same and total_gib is None:
        return _Weights(same[0].weights_gib, 0.0, "weights measured for this topology")
    if model.weights is None and total_gib is None:
        return None
    if model.weights is None or total_gib is not None:
        gib = (total_gib or 0.0) / topology.gpus_per_rank
        if model.moe and topology.ep:
            gib = (total_gib or 0.0) / topology.gpus
        return _Weights(gib, gib * 2 * WEIGHTS_ERROR, "weights from model.weights_gib, spread evenly")
    experts, dense = model.weights.experts_gib, model.weights.dense_gib
    spread = topology.ep_size if topology.ep else topology.tp
    gib = (experts / spread + dense / topology.tp) / topology.pp
    if mtp and model.mtp_layers:
        gib += model.mtp_layers / model.layers * (experts / spread + dense / topology.tp)
    return _Weights(gib, gib * WEIGHTS_ERROR, f"weights estimated: experts / {spread} + dense / {topology.tp}")


@dataclass(frozen=True, slots=True)
class _Overheads:
    non_torch: float
    activation: float
    graphs: float
    error: float
    reason: str


def _overheads(model: ModelFacts, rows: list[MeasuredMemory], same: list[MeasuredMemory], sizing: Sizing) -> _Overheads:
    """Non-torch, activation and graph memory from the nearest measured rows, else from rough formulas."""
    tokens = sizing.max_num_batched_tokens.value
    graphs = sizing.max_cudagraph_capture_size.value > 0
    near = same or rows
    if near and tokens <= max(row.max_num_batched_tokens for row in near):
        row = min(near, key=lambda one: (one.max_num_batched_tokens < tokens, abs(one.max_num_batched_tokens - tokens)))
        spread = max(_sum(one) for one in near) - min(_sum(one) for one in near)
        error = round(max(spread, OVERHEADS_ERROR_GIB), 2)
        reason = f"overheads of the nearest measured run ({row.topology}, max-num-seqs {row.max_num_seqs})"
        estimate = row.cudagraph_estimate_gib if graphs else 0.0
        return _Overheads(row.non_torch_gib, row.peak_activation_gib, estimate, error, reason)
    # Beyond the largest measured step a topology's own rows say little: the largest of this hardware are nearer.
    non_torch = max((row.non_torch_gib for row in rows), default=2.5)
    width = model.hidden_size or ASSUMED_HIDDEN
    activation = round(tokens * width * ACTIVATION_BYTES_PER_TOKEN_AND_WIDTH / 2**30, 2)
    estimate = max((row.cudagraph_estimate_gib for row in rows), default=3.0) if graphs else 0.0
    error = round(activation / 2 + non_torch / 2 + estimate / 2, 2)
    return _Overheads(non_torch, activation, estimate, error, f"overheads estimated for {tokens} tokens a step")


def _sum(row: MeasuredMemory) -> float:
    return row.non_torch_gib + row.peak_activation_gib + row.cudagraph_estimate_gib

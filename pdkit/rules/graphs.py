"""Rules about CUDA graphs: which batches they cover, and the memory they take."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.plan.role import RolePlan
from pdkit.rules.given import given_env, is_off
from pdkit.rules.rule import Case, Hit, rule
from pdkit.rules.versions import version


@rule(
    "PD008",
    "CUDA graphs cover the widest decode batch",
    "A verify batch is max-num-seqs x (1 + MTP) tokens; without a graph of exactly that width the largest batches run "
    "eager (vllm#37865: 133 against 25 tok/s).",
)
def graphs_cover_batch(case: Case) -> Iterator[Hit]:
    """The capture list must contain the widest batch; what only spare seats would need is a warning."""
    for role in case.plan.roles.values():
        sizes = role.sizing.capture_sizes(role.mtp)
        need = role.sizing.max_num_seqs.value * (1 + role.mtp)
        if not role.sizing.cudagraph_mode.value.startswith("FULL") or (sizes and need <= sizes[-1]):
            continue
        yield Hit(
            message=f"{role.role}: the widest batch is {need} tokens, the captured graphs end at "
            f"{sizes[-1] if sizes else 0} (max-cudagraph-capture-size {role.sizing.max_cudagraph_capture_size.value}, "
            f"max-num-batched-tokens {role.sizing.max_num_batched_tokens.value})",
            path=case.where(role.role, "max_cudagraph_capture_size"),
            fix=f"capture {need} tokens with max_num_seqs a multiple of 8 or 16, or lower it{_in_tokens(role)}",
            severity="warning" if sizes and _load_tokens(case, role) <= sizes[-1] else "error",
        )


def _in_tokens(role: RolePlan) -> str:
    """A reminder where the size looks like a count of sequences."""
    counted = role.mtp and role.sizing.max_cudagraph_capture_size.value == role.sizing.max_num_seqs.value
    return f"; sizes count tokens, 1 + MTP {role.mtp} for each sequence" if counted else ""


def _load_tokens(case: Case, role: RolePlan) -> int:
    """Tokens of a rank's batch under the load, spread evenly; what is beyond are spare seats."""
    share = role.share_of(max(case.plan.recipe.workload.concurrency))
    return min(share, role.sizing.max_num_seqs.value) * (1 + role.mtp)


UNDERESTIMATED = 0.31
"""Graphs took 9.90 GiB where 7.56 were estimated (measured: TP4DP4+EP, MTP 3, 85 graphs)."""
MOST_SHARE = 0.97
"""More has died in graph capture (vllm#57475)."""
ESTIMATED_SINCE = "0.21"
"""vLLM takes an estimate of the graphs off the KV cache by default since 0.21 (vllm#30515, vllm#45178)."""
ESTIMATE_VARIABLE = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"


@rule(
    "PD051",
    "Memory beside vLLM's share holds the CUDA context and what graphs take beyond their estimate",
    "vLLM boots to its KV check and then runs out of memory in graph capture: 0.98 died, 0.97 worked (vllm#57475); "
    "graphs have taken 31 % more than estimated. Before 0.21, or with the estimate switched off, all graph memory "
    "comes on top (vllm#30515); a TEP8 decode captured 8192 tokens where its DEP siblings stopped at 2048 "
    "(InferenceX#1735).",
)
def graphs_have_room(case: Case) -> Iterator[Hit]:
    """What utilization leaves, against the context and the graphs; and capture sizes far beyond vLLM's own."""
    for role in case.plan.roles.values():
        memory, sizing = role.memory, role.sizing
        if case.plan.hardware.device != "cuda" or memory is None or not sizing.capture_sizes(role.mtp):
            continue
        outside = _graphs_outside(case, role)
        need = case.plan.hardware.cuda_context_gib + memory.cudagraph_estimate_gib * (
            1.0 if outside else UNDERESTIMATED
        )
        left = memory.total_gib - memory.budget_gib
        what = f"CUDA context and {'all graphs' if outside else 'graphs beyond their estimate'} need about {need:.1f}"
        if left >= need:
            what = f"engines have died above {MOST_SHARE}"
        if (left < need or memory.utilization > MOST_SHARE) and memory.source != "given":
            yield Hit(
                message=f"{role.role}: utilization {memory.utilization} leaves {left:.1f} GiB of {memory.total_gib}; "
                f"{what}",
                path=case.where(role.role, "gpu_memory_utilization"),
                fix=f"lower gpu_memory_utilization to {min(1 - need / memory.total_gib, MOST_SHARE):.2f}",
                severity="warning",
            )
        capture, own = sizing.max_cudagraph_capture_size.value, case.plan.hardware.default_max_capture
        if capture > 2 * own:
            yield Hit(
                message=f"{role.role}: graphs up to {capture} tokens are captured, vLLM's own end at {own}; their "
                "memory is beyond what has been measured",
                path=case.where(role.role, "max_cudagraph_capture_size"),
                fix="spread the seats over more ranks, or capture less",
                severity="warning",
            )


def _graphs_outside(case: Case, role: RolePlan) -> bool:
    """Whether graph memory may not be taken off the KV cache; a build between releases may be an old one."""
    if ESTIMATE_VARIABLE in role.settings.env:
        return is_off(given_env(role)[ESTIMATE_VARIABLE])
    return version(case.plan.recipe.engine.vllm).has(ESTIMATED_SINCE) is not True

"""Rules about what fits on one GPU: memory, seats, lengths."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.plan.memory import WEIGHTS_ERROR, Memory
from pdkit.plan.role import RolePlan
from pdkit.rules.given import given_args, given_env, is_off
from pdkit.rules.rule import Case, Hit, rule


@rule(
    "PD005",
    "Weights, overheads and at least one request fit the GPU",
    "vLLM finds out after loading for minutes: no memory left for the KV cache, or less than one request needs.",
)
def fits_memory(case: Case) -> Iterator[Hit]:
    """The KV cache must hold one request; an estimate within its error band only warns."""
    for role in case.plan.roles.values():
        budget = role.memory
        if budget is None:
            yield Hit(
                message=f"the size of the weights of `{case.plan.model.name}` is unknown, so memory cannot be planned",
                path=("model", "facts"),
                fix="add `model.weights_gib`, the size of the checkpoint",
            )
            return
        need = role.layout.request_mib(role.sizing.max_model_len.value) / 1024
        yield from _given_cache(case, role, budget)
        if budget.kv_cache_gib < need:
            sure = budget.kv_cache_gib + budget.error_gib < need
            band = f" +- {budget.error_gib} (estimated)" if budget.error_gib else ""
            yield Hit(
                message=f"{role.role}: {budget.kv_cache_gib}{band} GiB are left for the KV cache on a GPU of "
                f"{budget.total_gib} GiB (weights {budget.weights_gib}), one request of "
                f"{role.sizing.max_model_len.value} tokens needs {need:.2f}",
                path=(role.role, "topology"),
                fix="spread the weights over more GPUs, or lower max_model_len or max_num_batched_tokens",
                severity="error" if sure else "warning",
            )


def _given_cache(case: Case, role: RolePlan, budget: Memory) -> Iterator[Hit]:
    """A KV cache of given size skips vLLM's profiling: it must fit beside all else, the CUDA context included."""
    if budget.source != "given" or case.plan.hardware.device != "cuda":
        return
    context = case.plan.hardware.cuda_context_gib
    rest = context + budget.non_torch_gib + budget.peak_activation_gib + budget.cudagraph_estimate_gib
    need, doubt = budget.weights_gib + rest + budget.kv_cache_gib, budget.weights_gib * 2 * WEIGHTS_ERROR
    if need > budget.total_gib:
        yield Hit(
            message=f"{role.role}: a KV cache of {budget.kv_cache_gib} GiB beside weights of {budget.weights_gib} and "
            f"{rest:.1f} of overheads is more than the {budget.total_gib} GiB of a GPU",
            path=case.where(role.role, "kv_cache_memory_gib"),
            fix="leave `kv_cache_memory_gib` out: vLLM then takes what is left",
            severity="error" if need - doubt > budget.total_gib else "warning",
        )


@rule(
    "PD006",
    "Seats cover the concurrency",
    "Where endpoints x DP x max-num-seqs is below the load, requests queue and the point measures the queue "
    "(InferenceX#2665; 12 published recipes of the peer drive more than they seat).",
)
def seats_cover_concurrency(case: Case) -> Iterator[Hit]:
    """Every requested concurrency must find a seat on the generating role."""
    role = _generating(case)
    ranks, limit = role.ranks * role.endpoints, role.max_concurrency
    seats = role.sizing.max_num_seqs.value * ranks
    kv = f"; the KV cache would hold {int(limit.per_rank_of_load * ranks)} of these requests" if limit else ""
    for index, concurrency in enumerate(case.plan.recipe.workload.concurrency):
        if concurrency > seats:
            yield Hit(
                message=f"concurrency {concurrency} exceeds the {seats} seats of {role.role} "
                f"({role.endpoints} endpoints x {role.ranks} ranks x max-num-seqs {role.sizing.max_num_seqs.value})"
                f"{kv}",
                path=("workload", "concurrency", index),
                fix=f"raise {role.role}.max_num_seqs or lower the concurrency",
            )


@rule(
    "PD007",
    "The KV cache holds the requests of the load",
    "More seats than KV means preemption: requests are thrown out and recomputed, on decode without their transferred "
    "blocks. Full graphs are even refused when seats exceed the state blocks (vllm#38270).",
)
def kv_holds_seats(case: Case) -> Iterator[Hit]:
    """Seats that the load takes against requests that fit; prefill holds prompts only briefly and is not judged by it.

    Seats that the load leaves free do no harm. Where not even one request fits PD005 has said so.
    """
    for role in case.plan.roles.values():
        limit, seqs = role.max_concurrency, role.sizing.max_num_seqs.value
        if limit is None or role.memory is None or role.role == "prefill":
            continue
        taken = min(seqs, role.share_of(max(case.plan.recipe.workload.concurrency)))
        if limit.per_rank < 1 or taken <= limit.per_rank_of_load:
            continue
        tokens = case.plan.recipe.workload.request_tokens
        above = role.layout.max_concurrency(role.memory.kv_cache_gib + role.memory.error_gib, tokens)
        yield Hit(
            message=f"{role.role}: max-num-seqs {seqs} is more than the {limit.per_rank_of_load} requests of "
            f"{tokens} tokens that the KV cache of a rank holds ({role.memory.source})",
            path=case.where(role.role, "max_num_seqs"),
            fix=f"lower {role.role}.max_num_seqs to {int(limit.per_rank_of_load)} or spread over more ranks",
            severity="error" if taken > above else "warning",
        )


@rule(
    "PD050",
    "The state blocks hold max-num-seqs",
    "Every sequence needs a state block per GDN group, 1 + MTP of them, one more with prefix caching. vLLM refuses "
    "full graphs when max-num-seqs exceeds the blocks: 1024 seats over 512, 600, 658 and 969 of them (vllm#38270, "
    "vllm#38632, NeMo-RL#2620, vllm#55148).",
)
def state_blocks_hold_seats(case: Case) -> Iterator[Hit]:
    """max-num-seqs against all blocks where graphs are full, and the states of all seats against them on prefill."""
    for role in case.plan.roles.values():
        memory, layout, seqs = role.memory, role.layout, role.sizing.max_num_seqs.value
        if memory is None or not layout.gdn_groups or not _holds_a_request(role):
            continue
        blocks, most = layout.blocks(memory.kv_cache_gib), layout.blocks(memory.kv_cache_gib + memory.error_gib)
        states = layout.gdn_groups * layout.blocks_per_gdn_group
        full = role.sizing.cudagraph_mode.value.startswith("FULL")
        if full and seqs > blocks:
            need, fitting = (
                f"max-num-seqs {seqs} exceeds the {blocks} blocks of a rank, and vLLM refuses full graphs",
                blocks,
            )
        elif role.role == "prefill" and seqs * states > blocks:
            need = f"{seqs} sequences x {states} state blocks exceed the {blocks} blocks of a rank"
            fitting = blocks // states
        else:
            continue
        yield Hit(
            message=f"{role.role}: {need} ({memory.source})",
            path=case.where(role.role, "max_num_seqs"),
            fix=f"lower {role.role}.max_num_seqs to {max(1, fitting)}, or spread over more ranks",
            severity="error" if full and seqs > most else "warning",
        )


def _holds_a_request(role: RolePlan) -> bool:
    """Where not even one request fits PD005 has said so."""
    return role.max_concurrency is not None and role.max_concurrency.per_rank >= 1


@rule(
    "PD052",
    "The limit that binds prefill is the one that was meant",
    "Capacity is the least of several limits, and the one that a person sets is often not the one that binds "
    "(measured: 530,000 tokens of KV held 250 requests, max-num-seqs 32 let 32 in). Prompts beyond it wait, and TTFT "
    "measures it.",
)
def prefill_limit_is_named(case: Case) -> Iterator[Hit]:
    """Prompts that the KV cache of a prefill rank holds, against its seats."""
    role = case.plan.roles.get("prefill")
    if role is None or role.memory is None or not _holds_a_request(role):
        return
    load, seqs = case.plan.recipe.workload, role.sizing.max_num_seqs.value
    prompts = int(role.layout.max_concurrency(role.memory.kv_cache_gib, load.isl + load.template_tokens))
    if 1 <= prompts < seqs:
        yield Hit(
            message=f"prefill: the KV cache binds: a rank holds {prompts} prompts of {load.isl} tokens at once "
            f"({role.memory.source}), max-num-seqs would let {seqs} in; all {role.ranks * role.endpoints} ranks hold "
            f"{prompts * role.ranks * role.endpoints}, the load asks for {max(load.concurrency)}",
            path=case.where("prefill", "max_num_seqs"),
            fix=f"lower prefill.max_num_seqs to {prompts}, or spread prefill over more ranks",
            severity="info",
        )


@rule(
    "PD009",
    "Requests fit max-model-len",
    "ISL + OSL + chat template beyond max-model-len: every request is refused or cut, and the point is void.",
)
def length_fits(case: Case) -> Iterator[Hit]:
    """Longest request against max-model-len, and that against the model."""
    load, model = case.plan.recipe.workload, case.plan.model
    need = load.request_tokens
    for role in case.plan.roles.values():
        limit = role.sizing.max_model_len.value
        if limit < need:
            yield Hit(
                message=f"{role.role}: max-model-len {limit} is less than ISL {load.isl} + OSL {load.osl} + "
                f"template {load.template_tokens} = {need}",
                path=case.where(role.role, "max_model_len"),
                fix="leave max_model_len out, or raise it",
            )
        if limit > model.max_position_embeddings:
            yield Hit(
                message=f"{role.role}: max-model-len {limit} is more than the model's {model.max_position_embeddings}",
                path=case.where(role.role, "max_model_len"),
                fix="lower it, or shorten ISL and OSL",
                severity="warning" if _length_is_stretched(role) else "error",
            )


def _length_is_stretched(role: RolePlan) -> bool:
    """Whether the recipe makes vLLM take more than the model's own length: YaRN by hf-overrides, or the variable."""
    stretched = not is_off(given_env(role).get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0"))
    return stretched or any(one.name.partition(".")[0] == "hf-overrides" for one in given_args(role))


GATE_PROMPT_TOKENS = {"completions-5shot": 1024, "chat-cot": 320}
"""Longest GSM8K prompt of each protocol in tokens, rounded up (estimated from the texts' length)."""


@rule(
    "PD021",
    "The gate's answers fit max-model-len",
    "An answer that is cut by max-model-len counts as truncated; a thinking model needs thousands of tokens.",
)
def gate_fits_length(case: Case) -> Iterator[Hit]:
    """Prompt and answer limit of the gate against max-model-len."""
    gate, role = case.plan.recipe.gate, _generating(case)
    need = gate.max_tokens + GATE_PROMPT_TOKENS[gate.protocol]
    if gate.data is None and need > role.sizing.max_model_len.value:
        yield Hit(
            message=f"a gate question needs up to {need} tokens, max-model-len is {role.sizing.max_model_len.value}",
            path=("gate", "max_tokens"),
            fix="lower gate.max_tokens or raise max_model_len",
            severity="warning",
        )


def _generating(case: Case) -> RolePlan:
    roles = case.plan.roles
    return roles["decode"] if "decode" in roles else roles["agg"]

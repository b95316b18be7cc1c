"""Rules about what fits: GPUs, nodes, memory, seats, graphs, lengths."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.plan.plan import RolePlan
from pdkit.rules.rule import Case, Hit, rule


@rule(
    "PD003",
    "Every endpoint can be split and placed",
    "vLLM refuses at start-up a TP that does not divide the heads, and ranks that do not spread evenly over nodes.",
)
def endpoint_can_be_placed(case: Case) -> Iterator[Hit]:
    """Heads divide by TP, layers by PP are many enough, ranks spread evenly."""
    for role in case.plan.roles.values():
        for fault in (*_head_faults(case, role), *_expert_faults(case, role)):
            yield Hit(message=f"{role.role}: {fault}", path=(role.role, "topology"), fix="choose another topology")
    if case.plan.placement_fault:
        largest = max(case.plan.roles.values(), key=lambda role: role.gpus)
        yield Hit(message=case.plan.placement_fault, path=(largest.role, "topology"), fix="check the sizes")


def _head_faults(case: Case, role: RolePlan) -> Iterator[str]:
    model, tp, pp = case.plan.model, role.topology.tp, role.topology.pp
    if max(tp, model.num_kv_heads) % min(tp, model.num_kv_heads):
        yield f"TP{tp} and {model.num_kv_heads} KV heads do not divide each other"
    if model.gdn and model.gdn.num_v_heads % tp:
        yield f"TP{tp} does not divide the {model.gdn.num_v_heads} GDN value heads"
    if model.gdn and model.gdn.num_k_heads % tp:
        yield f"TP{tp} does not divide the {model.gdn.num_k_heads} GDN key heads"
    if pp > model.layers:
        yield f"PP{pp} is more than the {model.layers} layers"


def _expert_faults(case: Case, role: RolePlan) -> Iterator[str]:
    model, topology = case.plan.model, role.topology
    if model.moe and topology.ep and model.moe.experts % topology.ep_size:
        yield f"{model.moe.experts} experts do not spread evenly over EP{topology.ep_size}"
    if topology.ep and model.moe is None:
        yield f"`{model.name}` has no experts to spread with +EP"
    if topology.dp > 1 and model.moe is None and topology.gpus > case.plan.hardware.gpus_per_node:
        yield "DP over nodes needs a MoE model: vLLM's ranks of a dense model die at start-up"


@rule(
    "PD004",
    "The deployment fits the rack",
    "KV and expert traffic must stay in one NVLink domain (18 nodes x 4 GPUs on NVL72); a larger job waits for ever or "
    "falls back to a slower network (vllm#51377).",
)
def fits_rack(case: Case) -> Iterator[Hit]:
    """Nodes needed against nodes there."""
    plan, have = case.plan, case.plan.hardware.nodes
    if plan.nodes > have:
        largest = max(plan.roles.values(), key=lambda role: role.gpus)
        yield Hit(
            message=f"{plan.gpus} GPUs on {plan.nodes} nodes do not fit {plan.hardware.name}: "
            f"{have} nodes x {plan.hardware.gpus_per_node} GPUs",
            path=case.where(largest.role, "endpoints"),
            fix="fewer endpoints or smaller topologies",
        )
    frontends = plan.recipe.infra.frontends
    if frontends > plan.nodes > 0:
        yield Hit(
            message=f"{frontends} frontends on {plan.nodes} nodes: a node takes one, the others would be left out",
            path=("infra", "frontends"),
            fix=f"at most {plan.nodes}",
        )


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


@rule(
    "PD006",
    "Seats cover the concurrency",
    "Where endpoints x DP x max-num-seqs is below the load, requests queue and the point measures the queue "
    "(InferenceX#2665; 12 published recipes of the peer drive more than they seat).",
)
def seats_cover_concurrency(case: Case) -> Iterator[Hit]:
    """Every requested concurrency must find a seat on the generating role."""
    role = _generating(case)
    seats = role.sizing.max_num_seqs.value * role.ranks * role.endpoints
    for index, concurrency in enumerate(case.plan.recipe.workload.concurrency):
        if concurrency > seats:
            yield Hit(
                message=f"concurrency {concurrency} exceeds the {seats} seats of {role.role} "
                f"({role.endpoints} endpoints x {role.ranks} ranks x max-num-seqs {role.sizing.max_num_seqs.value})",
                path=("workload", "concurrency", index),
                fix=f"raise {role.role}.max_num_seqs or lower the concurrency",
            )


@rule(
    "PD007",
    "The KV cache holds max-num-seqs requests",
    "More seats than KV means preemption: requests are thrown out and recomputed, on decode without their transferred "
    "blocks. Full graphs are even refused when seats exceed the state blocks (vllm#38270).",
)
def kv_holds_seats(case: Case) -> Iterator[Hit]:
    """max-num-seqs against requests that fit; prefill holds prompts only briefly and is not judged by it.

    Where not even one request fits PD005 has said so.
    """
    for role in case.plan.roles.values():
        limit, seqs = role.max_concurrency, role.sizing.max_num_seqs.value
        if limit is None or role.memory is None or role.role == "prefill":
            continue
        if limit.per_rank < 1 or seqs <= limit.per_rank_of_load:
            continue
        tokens = case.plan.recipe.workload.request_tokens
        above = role.layout.max_concurrency(role.memory.kv_cache_gib + role.memory.error_gib, tokens)
        yield Hit(
            message=f"{role.role}: max-num-seqs {seqs} is more than the {limit.per_rank_of_load} requests of "
            f"{tokens} tokens that the KV cache of a rank holds ({role.memory.source})",
            path=case.where(role.role, "max_num_seqs"),
            fix=f"lower {role.role}.max_num_seqs to {int(limit.per_rank_of_load)} or spread over more ranks",
            severity="error" if seqs > above else "warning",
        )


@rule(
    "PD008",
    "CUDA graphs cover the widest decode batch",
    "A verify batch is max-num-seqs x (1 + MTP) tokens; without a graph of exactly that width the largest batches run "
    "eager (vllm#37865: 133 against 25 tok/s).",
)
def graphs_cover_batch(case: Case) -> Iterator[Hit]:
    """The capture list must contain the widest batch."""
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
            fix=f"capture {need} tokens with max_num_seqs a multiple of 8 or 16, or lower max_num_seqs",
            severity="warning" if sizes and need - sizes[-1] < 16 else "error",
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
            )


@rule(
    "PD020",
    "A step computes whole blocks where it must",
    "In mamba cache mode align (prefix caching on a hybrid) only whole blocks are scheduled; a step smaller than one "
    "block never runs anything (vllm#34445).",
)
def step_holds_block(case: Case) -> Iterator[Hit]:
    """max-num-batched-tokens against the block size."""
    for role in case.plan.roles.values():
        tokens, block = role.sizing.max_num_batched_tokens.value, role.block_size.value
        if role.settings.prefix_caching and case.plan.model.hybrid and tokens < block:
            yield Hit(
                message=f"{role.role}: max-num-batched-tokens {tokens} is below one block of {block} tokens with "
                "prefix caching on a hybrid model",
                path=case.where(role.role, "max_num_batched_tokens"),
                fix="raise it to one block at least, or switch prefix caching off",
            )


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

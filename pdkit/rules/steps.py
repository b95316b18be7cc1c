"""Rules about one scheduler step: what it must hold."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.plan.role import RolePlan
from pdkit.rules.given import given_args
from pdkit.rules.rule import Case, Hit, rule


@rule(
    "PD020",
    "A step computes whole blocks where it must",
    "In mamba cache mode align (prefix caching on a hybrid) only whole blocks are scheduled; a step smaller than one "
    "block never runs anything (vllm#34445).",
)
def step_holds_block(case: Case) -> Iterator[Hit]:
    """max-num-batched-tokens, and a lower long-prefill-token-threshold, against the block size in mode align."""
    for role in case.plan.roles.values():
        block, free = role.block_size.value, {one.name: one for one in given_args(role)}
        mode = free.get("mamba-cache-mode")
        if not case.plan.model.hybrid or not (role.settings.prefix_caching or (mode and mode.value == "align")):
            continue
        if role.sizing.max_num_batched_tokens.value < block:
            yield _short(case, role, "max-num-batched-tokens", role.sizing.max_num_batched_tokens.value)
        limit = free.get("long-prefill-token-threshold")
        if limit and isinstance(limit.value, int) and 0 < limit.value < block:
            yield _short(case, role, limit.name, limit.value, ("args", limit.key))


def _short(
    case: Case, role: RolePlan, name: str, tokens: int, where: tuple[str, ...] = ("max_num_batched_tokens",)
) -> Hit:
    return Hit(
        message=f"{role.role}: {name} {tokens} is below one block of {role.block_size.value} tokens with "
        "prefix caching on a hybrid model",
        path=case.where(role.role, *where),
        fix="raise it to one block at least, or switch prefix caching off",
    )


@rule(
    "PD067",
    "A step holds what the scheduler demands",
    "vLLM refuses at start-up fewer batched tokens than seats, and without chunked prefill fewer than max-model-len "
    "(vllm 0.31 config/scheduler.py, verify_max_model_len).",
)
def step_holds_a_batch(case: Case) -> Iterator[Hit]:
    """max-num-batched-tokens against max-num-seqs, and against max-model-len without chunked prefill."""
    for role in case.plan.roles.values():
        tokens, seqs = role.sizing.max_num_batched_tokens.value, role.sizing.max_num_seqs.value
        length, path = role.sizing.max_model_len.value, case.where(role.role, "max_num_batched_tokens")
        whole = any(one.name == "enable-chunked-prefill" and one.value is False for one in given_args(role))
        if tokens < seqs:
            yield Hit(
                message=f"{role.role}: max-num-batched-tokens {tokens} is below max-num-seqs {seqs}",
                path=path,
                fix=f"raise {role.role}.max_num_batched_tokens to {seqs * (1 + role.mtp)}, or leave it out",
            )
        if whole and tokens < length:
            yield Hit(
                message=f"{role.role}: without chunked prefill a step must hold max-model-len {length}, "
                f"max-num-batched-tokens is {tokens}",
                path=path,
                fix="leave chunked prefill on",
            )

"""Rules about prefix caching on hybrid models, where only whole blocks with a kept state can be found again.

A hybrid in cache mode align keeps the GDN state only where a step ends, and steps end on block boundaries (vllm 0.26
v1/core/sched/scheduler.py:355-425): after each full step, and at the last boundary of the prompt. With a draft,
attention drops the last block that matches. From 0.24 on vLLM also keeps the state where a later prompt was seen to
part from an earlier one, so the third prompt with a common beginning finds it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.plan.role import RolePlan
from pdkit.rules.given import option
from pdkit.rules.rule import Case, Hit, rule
from pdkit.rules.versions import version

KEEPS_JUNCTIONS = "0.24"
"""The vLLM from which the state is kept where prompts part (sources of 0.23.0 and 0.24.0)."""


def kept_states(tokens: int, block: int, step_tokens: int, *, draft: bool) -> list[int]:
    """Positions of a prompt at which its state stays in the cache, when it has the steps for itself."""
    last = tokens // block * block - (block if draft else 0)
    step = step_tokens // block * block
    return [*(range(step, last, step) if step else ()), *([last] if last > 0 else [])]


def expected_hit(shared: int, tokens: int, block: int, step_tokens: int, *, draft: bool, junctions: bool) -> int:
    """Tokens that a prompt finds in the cache when its first `shared` tokens stood in equally long prompts before."""
    usable = shared // block * block - (block if draft else 0)
    if junctions:
        return max(usable, 0)
    return max((at for at in kept_states(tokens, block, step_tokens, draft=draft) if at <= usable), default=0)


def _cached_hybrids(case: Case) -> Iterator[RolePlan]:
    """Roles that compute prompts of a hybrid model with prefix caching on."""
    for role in case.plan.roles.values():
        if case.plan.model.hybrid and role.settings.prefix_caching and role.role != "decode":
            yield role


@rule(
    "PD040",
    "A block fits into the longest request",
    "Prefix caching finds whole blocks only. With a block above max-model-len it never finds anything and still holds "
    "a block more per request, without a word (vllm#48402: block 8320, max-model-len 4096).",
)
def block_fits_a_request(case: Case) -> Iterator[Hit]:
    """The resolved block against max-model-len, where a hybrid caches prefixes."""
    for role in _cached_hybrids(case):
        block, limit = role.block_size.value, role.sizing.max_model_len.value
        if block > limit:
            yield Hit(
                message=f"{role.role}: a block of {block} tokens is longer than max-model-len {limit}: "
                "prefix caching can never find anything",
                path=case.where(role.role, "prefix_caching"),
                fix="switch prefix caching off, or raise TP or max_model_len",
                severity="warning",
            )


@rule(
    "PD041",
    "The common beginning of the prompts reaches a kept state",
    "Below one block of common text prefix caching on a hybrid finds nothing, by design (vllm#40696, vllm#51250, "
    "vllm#36010). Before vLLM 0.24 that also goes for longer beginnings: only the state at a prompt's last boundary "
    "is kept, and it lies in the part that prompts do not share (vllm#45238).",
)
def prefix_reaches_a_state(case: Case) -> Iterator[Hit]:
    """Expected hits of the load, from the resolved block, `workload.shared_prefix` and the version."""
    load, engine = case.plan.recipe.workload, case.plan.recipe.engine.vllm
    junctions = version(engine).has(KEEPS_JUNCTIONS)
    for role in _cached_hybrids(case):
        block, step = role.block_size.value, role.sizing.max_num_batched_tokens.value
        if block > role.sizing.max_model_len.value or option(role, "mamba-cache-mode") == "all":
            continue  # PD040 has said so; mode all keeps the state of every block
        hits = [
            expected_hit(load.shared_prefix, load.isl, block, step, draft=role.mtp > 0, junctions=kept)
            for kept in ((False, True) if junctions is None else (junctions,))
        ]
        if min(hits) > 0:
            continue
        found, kept = "0 hits" + _because(load.shared_prefix, block, draft=role.mtp > 0), max(hits)
        if kept:
            found = f"0 hits before vLLM {KEEPS_JUNCTIONS}, {kept} tokens later; which it is in {engine} is not known"
        shares = f"prompts of {load.isl} tokens share {load.shared_prefix}, blocks are {block}"
        yield Hit(
            message=f"{role.role}: {shares}: {found}",
            path=case.where(role.role, "prefix_caching"),
            fix="switch prefix caching off, or give the load a longer `workload.shared_prefix`",
            severity="info" if kept else "warning",
        )


def _because(shared: int, block: int, *, draft: bool) -> str:
    if shared < block:
        return " by design"
    if draft and shared < 2 * block:
        return ", since a draft costs the last block that matches"
    return ", since only the state at the end of a step is kept"

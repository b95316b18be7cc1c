"""The load of an srt-slurm recipe to `workload`, `sweep` and `gate`."""

from __future__ import annotations

from typing import Any

from pdkit.interop.draft import Draft
from pdkit.interop.types import SrtRecipe

GSM8K_LOAD = (1024, 256, 100)
"""ISL and OSL of the peer's GSM8K questions at most, and how many its client asks at once (aiohttp's limit)."""
NOMINAL_LOAD = (1024, 1024, 1)
"""For a recipe whose load is a program of its own."""
TEMPLATE_TOKENS = 64
"""The recipe format's default."""
GATE_TOKENS, GATE_PROMPT = 2048, 320
"""The gate's longest answer by default, and its longest prompt."""


def put_workload(draft: Draft, recipe: SrtRecipe) -> None:
    """ISL, OSL and concurrency; prompts and warm-up; the gate."""
    load, where = recipe.benchmark, ("benchmark",)
    if load.type == "sa-bench" and load.isl and load.osl:
        numbers: tuple[int, int, list[int]] = (load.isl, load.osl, list(load.concurrency) or [1])
    else:
        isl, osl, concurrency = GSM8K_LOAD if load.type == "gsm8k" else NOMINAL_LOAD
        isl, osl = _within(draft, isl, osl)
        numbers = isl, osl, list(load.concurrency) or [concurrency]
        why = f"a {load.type} load has no lengths: {isl}/{osl} at concurrency {numbers[2][0]} stands in for it"
        draft.note("changed", ("benchmark", "type"), why, "workload")
    for name, value in zip(("isl", "osl", "concurrency"), numbers, strict=True):
        draft.put(("workload", name), value, (*where, "concurrencies" if name == "concurrency" else name))
    if load.type == "sa-bench" and load.endpoint == "completions":
        # what sa-bench adds of a template it takes off the prompt (srt-slurm c88ef731, benchmark_serving.py:463)
        draft.put(("workload", "template_tokens"), 0, (*where, "use_chat_template"))
    if load.type == "sa-bench":
        _put_sweep(draft, recipe)
    _put_gate(draft, recipe, numbers[0] + numbers[1])


def _within(draft: Draft, isl: int, osl: int) -> tuple[int, int]:
    """A stand-in load that fits every role's max-model-len."""
    lengths = [_length(draft.data.get(role)) for role in ("prefill", "decode", "agg")]
    least = min(filter(None, lengths), default=isl + osl + TEMPLATE_TOKENS)
    if isl + osl + TEMPLATE_TOKENS <= least:
        return isl, osl
    half = max(1, (least - TEMPLATE_TOKENS) // 2)
    return min(isl, half), min(osl, half)


def _length(role: Any) -> int | None:
    value = (role or {}).get("max_model_len")
    return value if isinstance(value, int) and value > 0 else None


def _put_sweep(draft: Draft, recipe: SrtRecipe) -> None:
    load = recipe.benchmark
    where = ("benchmark",)
    if load.endpoint != "chat":
        draft.put(("sweep", "endpoint"), "completions", (*where, "endpoint"))
    if load.prompts_per_concurrency != 8:
        draft.put(("sweep", "prompts_per_concurrency"), load.prompts_per_concurrency, (*where, "num_prompts_mult"))
    if load.warmup_per_concurrency > 1:
        draft.put(("sweep", "warmup_per_concurrency"), load.warmup_per_concurrency, (*where, "num_warmup_mult"))
    elif load.warmup_per_concurrency == 0:
        draft.note("changed", (*where, "num_warmup_mult"), "pdkit warms up with one full wave at least")
    if load.range_ratio != 1.0:
        why = f"srt-slurm draws lengths from {load.range_ratio:g} to 1 times ISL and OSL; pdkit's are fixed"
        draft.note("changed", (*where, "random_range_ratio"), why)
    if load.request_rate != "inf":
        why = f"pdkit keeps the concurrency full; srt-slurm starts {load.request_rate} requests per second"
        draft.note("changed", (*where, "req_rate"), why)


def _put_gate(draft: Draft, recipe: SrtRecipe, tokens: int) -> None:
    """GSM8K as the peer asks it, else the gate's own protocol, with answers that fit max-model-len."""
    load, where = recipe.benchmark, ("benchmark", "type")
    if load.type == "gsm8k":
        draft.put(("gate", "protocol"), "completions-5shot", where)
        draft.put(("gate", "max_tokens"), 256, where)
        if load.repeats > 1:
            draft.note("changed", ("benchmark", "repeat"), "pdkit's gate asks each question once, greedily")
        return
    lengths = [_length(draft.data.get(role)) for role in ("decode", "agg")]
    longest = min(filter(None, lengths), default=-(-tokens // 1024) * 1024)
    if longest < GATE_TOKENS + GATE_PROMPT:
        draft.put(("gate", "max_tokens"), max(1, longest - GATE_PROMPT), where)
        draft.note("added", where, "pdkit's gate is part of every job; its answers are cut to max-model-len", "gate")

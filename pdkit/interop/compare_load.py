"""The loads of two deployments side by side: lengths, requests, warm-up, the tool and what it sends."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.interop.compare_rows import Row, row
from pdkit.interop.compare_sides import Load

_SHORTENED = "sa-bench takes the tokens of its template off the prompt"
_TOOLS = {"vllm-bench", "sa-bench"}
_WARMUP = {"sa-bench": "a process of its own at 250 requests per second", "vllm-bench": "one wave at the concurrency"}


def benchmark_rows(ours: Load | None, theirs: Load | None) -> Iterator[Row]:
    """How the load of two deployments compares; None for a side that measures no speed."""
    if ours is None or theirs is None:
        shown = (f"{one.tool} at {_list(one.concurrency)}" if one else None for one in (ours, theirs))
        yield row("benchmark", "load", *shown, why="only one side measures speed")
        return
    yield row("benchmark", "ISL", ours.isl, theirs.isl, why="work of prefill, KV per request")
    yield row("benchmark", "OSL", ours.osl, theirs.osl, why="work of decode")
    yield row("benchmark", "lengths", _lengths(ours), _lengths(theirs), why=_mean(ours, theirs))
    yield row("benchmark", "concurrency", _list(ours.concurrency), _list(theirs.concurrency), why="other points")
    yield row(
        "benchmark", "requests per point", _times(ours.prompts), _times(theirs.prompts), why="noise, share of ramps"
    )
    effect = ""
    if ours.warmup == theirs.warmup and ours.tool != theirs.tool:
        effect = "the same number of requests before the clock runs"
    shown = (f"{_times(one.warmup)}, {_WARMUP.get(one.tool, 'by the tool')}" for one in (ours, theirs))
    yield row("benchmark", "warm-up", *shown, why="graphs, caches and connections may be cold", effect=effect)
    yield row(
        "benchmark", "API", ours.endpoint, theirs.endpoint, why="chat template; MTP accepts other shares of tokens"
    )
    yield row("benchmark", "shared prefix", ours.shared_prefix, theirs.shared_prefix, why="what prefix caching saves")
    effect = _SHORTENED if ours.tool != theirs.tool and ours.endpoint == theirs.endpoint else ""
    yield row(
        "benchmark", "chat template", ours.template, theirs.template, why="tokens around each prompt", effect=effect
    )
    yield row("benchmark", "repeats", ours.repeats, theirs.repeats, why="noise")
    effect = "both send random tokens, all at once, up to the concurrency" if {ours.tool, theirs.tool} <= _TOOLS else ""
    yield row("benchmark", "load tool", ours.tool, theirs.tool, why="another traffic", effect=effect)


def _times(number: int) -> str:
    return f"{number} x concurrency"


def _list(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values))


def _lengths(load: Load) -> str:
    low, high = load.lengths
    return "fixed" if low == high == 1.0 else f"{low:g} to {high:g} of ISL and OSL"


def _mean(ours: Load, theirs: Load) -> str:
    mean = [sum(one.lengths) / 2 for one in (ours, theirs)]
    return f"on average {mean[0]:g} and {mean[1]:g} of the lengths: figures per token do not compare"

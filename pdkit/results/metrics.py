"""Every figure of a point, as a pure formula over the trace of its requests. `docs/metrics.md` explains each one.

The load tools report their own averages; pdkit takes only their per-request times: one definition for all tools.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One answered request, as the client saw it."""

    start_seconds: float
    """When it was sent, on the clock of its trace."""
    ttft_seconds: float
    """From sending to the first chunk with a token."""
    itl_seconds: tuple[float, ...]
    """Gaps between successive chunks; a chunk can hold several tokens."""
    input_tokens: int
    """Prompt tokens, as the server counted them."""
    output_tokens: int
    """Generated tokens, as the server counted them."""

    @property
    def e2e_seconds(self) -> float:
        """From sending to the last chunk with a token."""
        return self.ttft_seconds + sum(self.itl_seconds)

    @property
    def end_seconds(self) -> float:
        """When its last token arrived."""
        return self.start_seconds + self.e2e_seconds


Trace = Sequence[Request]
BUNCHED_SECONDS = 1e-4
"""No engine makes its next token so soon: the chunks had been waiting for each other on the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Mean and percentiles of a latency in milliseconds."""

    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the sorted values lie, interpolated linearly between neighbours."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def distribution(seconds: Sequence[float]) -> Distribution | None:
    """Mean, median, p90 and p99 of some durations, or None when there are none."""
    if not seconds:
        return None
    return Distribution(
        mean_ms=1000 * math.fsum(seconds) / len(seconds),
        p50_ms=1000 * percentile(seconds, 0.50),
        p90_ms=1000 * percentile(seconds, 0.90),
        p99_ms=1000 * percentile(seconds, 0.99),
    )


def tpot_seconds(request: Request) -> float | None:
    """Time per output token after the first: (E2E - TTFT) / (output tokens - 1); None for a single token."""
    if request.output_tokens < 2:
        return None
    return (request.e2e_seconds - request.ttft_seconds) / (request.output_tokens - 1)


def ttft(trace: Trace) -> Distribution | None:
    """Time to first token over requests."""
    return distribution([request.ttft_seconds for request in trace])


def tpot(trace: Trace) -> Distribution | None:
    """Time per output token over requests: each request counts once, however long it is."""
    return distribution([each for request in trace if (each := tpot_seconds(request)) is not None])


def itl(trace: Trace) -> Distribution | None:
    """Gaps between chunks over all chunks of all requests."""
    return distribution([gap for request in trace for gap in request.itl_seconds])


def e2e(trace: Trace) -> Distribution | None:
    """End-to-end latency over requests."""
    return distribution([request.e2e_seconds for request in trace])


def duration_seconds(trace: Trace) -> float:
    """From the first request sent to the last token received: ramp and tail are part of it."""
    if not trace:
        return 0.0
    return max(request.end_seconds for request in trace) - min(request.start_seconds for request in trace)


def input_tokens(trace: Trace) -> int:
    """Prompt tokens of all requests."""
    return sum(request.input_tokens for request in trace)


def output_tokens(trace: Trace) -> int:
    """Generated tokens of all requests."""
    return sum(request.output_tokens for request in trace)


def rate(amount: float, seconds: float) -> float:
    """Amount per second; zero when no time passed, since then nothing was measured."""
    return amount / seconds if seconds > 0 else 0.0


def output_tok_s(trace: Trace) -> float:
    """Generated tokens per second of the whole deployment."""
    return rate(output_tokens(trace), duration_seconds(trace))


def total_tok_s(trace: Trace) -> float:
    """Prompt and generated tokens per second of the whole deployment."""
    return rate(input_tokens(trace) + output_tokens(trace), duration_seconds(trace))


def tok_s_user(tpot_ms: float) -> float:
    """Tokens per second that one user sees: 1000 / TPOT in milliseconds."""
    return 1000 / tpot_ms if tpot_ms > 0 else 0.0


def mean_in_flight(trace: Trace) -> float:
    """Requests in flight on average over the duration (Little's law: summed E2E / duration)."""
    return rate(math.fsum(request.e2e_seconds for request in trace), duration_seconds(trace))


def peak_in_flight(trace: Trace) -> int:
    """Most requests in flight at one moment, in whole microseconds; one ending as another begins does not overlap."""
    changes = [(round(request.start_seconds, 6), 1) for request in trace]
    changes += [(round(request.end_seconds, 6), -1) for request in trace]
    now = peak = 0
    for _, change in sorted(changes):
        now += change
        peak = max(peak, now)
    return peak


def bunched_share(trace: Trace) -> float:
    """Share of the chunks after a request's first that arrived less than 0.1 ms after the one before; 0 without any."""
    gaps = [gap for request in trace for gap in request.itl_seconds]
    return rate(sum(gap < BUNCHED_SECONDS for gap in gaps), len(gaps))


def acceptance_rate(accepted_tokens: int, draft_tokens: int) -> float:
    """Share of the drafted tokens that the model accepted."""
    return accepted_tokens / draft_tokens


def acceptance_length(accepted_tokens: int, drafts: int) -> float:
    """Tokens per decoding step: the model's own one plus the accepted drafted ones."""
    return 1 + accepted_tokens / drafts


def relative_spread(values: Sequence[float]) -> float:
    """(largest - smallest) / median of repeated measurements; 0 for a single one."""
    middle = percentile(values, 0.5)
    return (max(values) - min(values)) / middle if middle > 0 else 0.0

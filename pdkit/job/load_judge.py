"""Whether one run of the load tool may count, and why not."""

from __future__ import annotations

from pdkit.job.load_settings import LoadSettings
from pdkit.results.metrics import input_tokens, output_tok_s, output_tokens, peak_in_flight
from pdkit.results.normalise import Measurements

LENGTH_TOLERANCE = 0.01
SATURATED_CORE_SHARE = 0.95
TOOL_TOLERANCE = 0.05
"""How far the tool's own throughput may be from the trace's: it counts a little of its own set-up as duration."""


def reasons_against(
    settings: LoadSettings, concurrency: int, measured: Measurements, core_share: float | None
) -> tuple[str, ...]:
    """Every reason why these measurements are invalid; empty when they are valid."""
    return (
        *_requests(settings.requests(concurrency), measured),
        *_lengths(settings, measured),
        *_client(concurrency, measured, core_share),
    )


def _requests(asked: int, measured: Measurements) -> list[str]:
    reasons = []
    if measured.failed:
        why = f" (the first: {measured.first_error})" if measured.first_error else ""
        reasons.append(f"{measured.failed} of {measured.sent} requests failed{why}")
    if output_tokens(measured.trace) == 0:
        reasons.append("not a single token was generated")
    if measured.empty:
        reasons.append(f"{measured.empty} of {measured.sent} requests were answered without a token")
    if measured.sent != asked:
        reasons.append(f"{measured.sent} requests were sent, {asked} were asked for")
    return reasons


def _lengths(settings: LoadSettings, measured: Measurements) -> list[str]:
    """Means within 1 %, and no answer short: with end-of-text ignored, a short one was cut off."""
    if not measured.trace:
        return []
    reasons = []
    isl = input_tokens(measured.trace) / len(measured.trace)
    longest = settings.isl + (settings.template_tokens if settings.endpoint == "chat" else 0)
    if not settings.isl * (1 - LENGTH_TOLERANCE) <= isl <= longest * (1 + LENGTH_TOLERANCE):
        template = f" to {longest} with the chat template" if longest > settings.isl else ""
        reasons.append(f"prompts had {isl:.1f} tokens on average, {settings.isl}{template} were asked for")
    lengths = [request.output_tokens for request in measured.trace]
    short = [length for length in lengths if length < settings.osl * (1 - LENGTH_TOLERANCE)]
    if short:
        shortest = f"the shortest after {min(short)} of {settings.osl} tokens"
        reasons.append(f"{len(short)} of {len(lengths)} answers ended early, {shortest}")
    osl = output_tokens(measured.trace) / len(measured.trace)
    if not short and osl > settings.osl * (1 + LENGTH_TOLERANCE):
        reasons.append(f"answers had {osl:.1f} tokens on average, {settings.osl} were asked for")
    return reasons


def _client(concurrency: int, measured: Measurements, core_share: float | None) -> list[str]:
    reasons = []
    peak = peak_in_flight(measured.trace)
    if peak < min(concurrency, len(measured.trace)):
        reasons.append(f"the client never had more than {peak} of {concurrency} requests in flight")
    if core_share is not None and core_share > SATURATED_CORE_SHARE:
        reasons.append(
            f"a thread of the load client used {100 * core_share:.0f} % of a core, so the client was the limit"
        )
    ours = output_tok_s(measured.trace)
    theirs = measured.tool_output_tok_s
    if measured.trace and not measured.failed and abs(ours - theirs) > TOOL_TOLERANCE * max(ours, theirs):
        reasons.append(f"the load tool reports {theirs:.1f} output tok/s, its own trace gives {ours:.1f}")
    return reasons

"""From the runs of the load tool to a point."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pdkit.job.load_settings import LoadSettings
from pdkit.job.verdict import Passed
from pdkit.results import metrics
from pdkit.results.normalise import Measurements
from pdkit.results.points import Acceptance, Latency, Point, Spread

BUNCHED_LIMIT = 0.1
"""Share of bunched chunks above which a point says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """One run of the load tool for a point."""

    reasons: tuple[str, ...]
    """Why it is invalid; empty when it is valid."""
    measured: Measurements | None = None
    """None when the tool left nothing to read."""
    core_share: float | None = None
    """Share of one core of the client's busiest thread, where it could be watched for long enough."""
    acceptance: Acceptance | None = None
    """MTP acceptance, where there is any."""


def make_point(settings: LoadSettings, passed: Passed, concurrency: int, repeats: list[Repeat]) -> Point:
    """The point of one concurrency: the figures of the median repeat, the spread of all, the reasons of any."""
    chosen = _median_repeat(repeats)
    measured = chosen.measured
    trace = measured.trace if measured else ()
    reasons = _reasons(repeats)
    tpot = metrics.tpot(trace)
    total, output = metrics.total_tok_s(trace), metrics.output_tok_s(trace)
    return Point(
        concurrency=concurrency,
        valid=not reasons,
        invalid_reasons=reasons,
        notes=_notes(settings, concurrency, chosen),
        random_tokens_with_mtp=settings.mtp > 0,
        isl_asked=settings.isl,
        osl_asked=settings.osl,
        isl_measured=metrics.input_tokens(trace) / len(trace) if trace else 0.0,
        osl_measured=metrics.output_tokens(trace) / len(trace) if trace else 0.0,
        requests=settings.requests(concurrency),
        completed=len(trace),
        errors=measured.failed + measured.empty if measured else settings.requests(concurrency),
        duration_seconds=metrics.duration_seconds(trace),
        in_flight_mean=metrics.mean_in_flight(trace),
        in_flight_peak=metrics.peak_in_flight(trace),
        total_tok_s=total,
        output_tok_s=output,
        gpus=settings.gpus,
        gpus_by_role=settings.gpus_by_role,
        total_tok_s_gpu=total / settings.gpus,
        output_tok_s_gpu=output / settings.gpus,
        total_tok_s_gpu_by_role={role: total / gpus for role, gpus in settings.gpus_by_role.items()},
        output_tok_s_gpu_by_role={role: output / gpus for role, gpus in settings.gpus_by_role.items()},
        tok_s_user_mean=metrics.tok_s_user(tpot.mean_ms) if tpot else None,
        tok_s_user_median=metrics.tok_s_user(tpot.p50_ms) if tpot else None,
        tok_s_user_p90=metrics.tok_s_user(tpot.p90_ms) if tpot else None,
        ttft=_latency(metrics.ttft(trace)),
        tpot=_latency(tpot),
        itl=_latency(metrics.itl(trace)),
        e2e=_latency(metrics.e2e(trace)),
        acceptance=chosen.acceptance,
        spread=_spread(repeats),
        client_core_share=chosen.core_share,
        rehearsal=settings.rehearsal,
        tool=settings.tool,
        tool_version=(measured.tool_version if measured else None) or settings.tool_version,
        gate_digest=passed.gate_digest,
        lock_digest=passed.lock_digest,
        boot_ids=passed.boot_ids,
    )


def _latency(value: metrics.Distribution | None) -> Latency | None:
    return Latency(**asdict(value)) if value else None


def _output_tok_s(repeat: Repeat) -> float:
    return metrics.output_tok_s(repeat.measured.trace) if repeat.measured else 0.0


def _median_repeat(repeats: list[Repeat]) -> Repeat:
    """The repeat in the middle by output tok/s (the lower of two): all figures of a point then belong together."""
    return sorted(repeats, key=_output_tok_s)[(len(repeats) - 1) // 2]


def _reasons(repeats: list[Repeat]) -> tuple[str, ...]:
    if len(repeats) == 1:
        return repeats[0].reasons
    return tuple(f"repeat {n}: {reason}" for n, each in enumerate(repeats, start=1) for reason in each.reasons)


def _spread(repeats: list[Repeat]) -> Spread:
    outputs = tuple(_output_tok_s(each) for each in repeats)
    tpots = (metrics.tpot(each.measured.trace) for each in repeats if each.measured)
    return Spread(
        output_tok_s=outputs,
        tpot_mean_ms=tuple(each.mean_ms for each in tpots if each),
        output_tok_s_relative=metrics.relative_spread(outputs),
    )


def _notes(settings: LoadSettings, concurrency: int, chosen: Repeat) -> tuple[str, ...]:
    notes, measured = [], chosen.measured
    if settings.mtp:
        notes.append(f"MTP {settings.mtp} ran on random tokens: acceptance on real text differs")
        if chosen.acceptance is None:
            notes.append("MTP acceptance could not be read")
    if settings.prefix_caching and settings.tool == "vllm-bench":
        notes.append("prefix caching is on, and random prompts of vllm bench repeat when they outnumber the vocabulary")
    if settings.prompts_per_concurrency < 8:
        notes.append(f"{settings.requests(concurrency)} requests are few: ramp and tail weigh in the throughput")
    if settings.warmup_per_concurrency < 1:
        notes.append("measured without a warm-up wave")
    if measured and metrics.bunched_share(measured.trace) > BUNCHED_LIMIT:
        share = f"{100 * metrics.bunched_share(measured.trace):.0f} % of the chunks"
        notes.append(f"{share} arrived together with the one before: something held tokens back, so TPOT flatters")
    return tuple(notes)

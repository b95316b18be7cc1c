"""The artifacts of the load tools, brought into one shape: a trace and what went wrong beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from pdkit.errors import MeasurementError
from pdkit.results.metrics import Request, acceptance_length, acceptance_rate
from pdkit.results.points import Acceptance


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What one run of a load tool gave, whichever tool it was."""

    trace: tuple[Request, ...]
    """The requests that were answered with at least one token."""
    sent: int
    """Requests that the tool sent."""
    failed: int
    """Requests that failed."""
    empty: int
    """Requests that ended well, but without a token."""
    first_error: str
    """What the first failure said; empty when none failed or it said nothing."""
    clock: Literal["monotonic", "wall"]
    """Clock of the start times: the machine's monotonic one, or seconds since 1970."""
    tool_output_tok_s: float
    """The tool's own figure, to notice when its artifact is misread."""
    tool_version: str | None
    """The tool's version where its artifact tells it."""
    acceptance: Acceptance | None
    """MTP acceptance where the tool could read it from the server."""


class _Artifact(BaseModel):
    """Base of what a tool writes: keys that pdkit does not use are its own affair."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


_Model = TypeVar("_Model", bound=_Artifact)


class _VllmResult(_Artifact):
    """`vllm bench serve --save-result --save-detailed`; times in seconds, one entry per request sent."""

    failed: int
    output_throughput: float
    start_times: list[float]
    ttfts: list[float]
    itls: list[list[float]]
    input_lens: list[int]
    output_lens: list[int]
    errors: list[str]
    spec_decode_num_drafts: int = 0
    spec_decode_draft_tokens: int = 0
    spec_decode_accepted_tokens: int = 0


def from_vllm_bench(result: str | bytes) -> Measurements:
    """Read the JSON that `vllm bench serve --save-result --save-detailed` writes.

    It takes the last chunk as the end of a request, so E2E = TTFT + summed gaps there as here.
    """
    read = _parse(_VllmResult, result)
    lists = (read.start_times, read.ttfts, read.itls, read.input_lens, read.output_lens, read.errors)
    if len({len(each) for each in lists}) != 1:
        raise MeasurementError("the per-request lists of this result differ in length")
    sent = len(read.errors)
    answered = [n for n in range(sent) if not read.errors[n] and read.output_lens[n]]
    messages = [message for message in read.errors if message]
    failed = max(read.failed, len(messages))
    return Measurements(
        trace=tuple(
            Request(
                start_seconds=read.start_times[n],
                ttft_seconds=read.ttfts[n],
                itl_seconds=tuple(read.itls[n]),
                input_tokens=read.input_lens[n],
                output_tokens=read.output_lens[n],
            )
            for n in answered
        ),
        sent=sent,
        failed=failed,
        empty=max(sent - len(answered) - failed, 0),
        first_error=messages[0].strip().splitlines()[-1] if messages else "",
        clock="monotonic",
        tool_output_tok_s=read.output_throughput,
        tool_version=None,
        acceptance=acceptance(
            drafts=read.spec_decode_num_drafts,
            draft_tokens=read.spec_decode_draft_tokens,
            accepted_tokens=read.spec_decode_accepted_tokens,
            source="load tool",
        ),
    )


def acceptance(
    *, drafts: int, draft_tokens: int, accepted_tokens: int, source: Literal["load tool", "engine counters"]
) -> Acceptance | None:
    """Acceptance from counter differences, or None when nothing was drafted."""
    if drafts <= 0 or draft_tokens <= 0:
        return None
    return Acceptance(
        rate=acceptance_rate(accepted_tokens, draft_tokens),
        length=acceptance_length(accepted_tokens, drafts),
        source=source,
    )


class _Average(_Artifact):
    avg: float


class _AiperfSummary(_Artifact):
    """`profile_export_aiperf.json`."""

    aiperf_version: str
    output_token_throughput: _Average


class _Number(_Artifact):
    value: float


class _Numbers(_Artifact):
    value: list[float]


class _AiperfMetrics(_Artifact):
    """Of one request; times in milliseconds. A failed request has none of them, a one-token answer has no gaps."""

    time_to_first_token: _Number = _Number(value=0)
    inter_chunk_latency: _Numbers = _Numbers(value=[])
    input_sequence_length: _Number = _Number(value=0)
    output_sequence_length: _Number = _Number(value=0)


class _AiperfMetadata(_Artifact):
    benchmark_phase: str
    request_start_ns: int


class _AiperfError(_Artifact):
    code: int | None = None
    type: str | None = None
    message: str | None = None

    def text(self) -> str:
        return " ".join(str(part) for part in (self.code, self.type, self.message) if part)


class _AiperfRecord(_Artifact):
    """One line of `profile_export.jsonl`."""

    metadata: _AiperfMetadata
    metrics: _AiperfMetrics
    error: _AiperfError | None = None

    def request(self) -> Request:
        return Request(
            start_seconds=self.metadata.request_start_ns / 1e9,
            ttft_seconds=self.metrics.time_to_first_token.value / 1000,
            itl_seconds=tuple(gap / 1000 for gap in self.metrics.inter_chunk_latency.value),
            input_tokens=int(self.metrics.input_sequence_length.value),
            output_tokens=int(self.metrics.output_sequence_length.value),
        )


def from_aiperf(summary: str | bytes, records: Iterable[str | bytes]) -> Measurements:
    """Read aiperf's `profile_export_aiperf.json` and the lines of its `profile_export.jsonl`.

    What aiperf calls inter-token latency is TPOT in pdkit; its inter-chunk latencies are the gaps.
    """
    whole = _parse(_AiperfSummary, summary)
    lines = (_parse(_AiperfRecord, record, f"line {n}: ") for n, record in enumerate(records, start=1))
    measured = [each for each in lines if each.metadata.benchmark_phase == "profiling"]
    failures = [each.error for each in measured if each.error]
    answered = [each for each in measured if not each.error and each.metrics.output_sequence_length.value]
    return Measurements(
        trace=tuple(each.request() for each in answered),
        sent=len(measured),
        failed=len(failures),
        empty=len(measured) - len(failures) - len(answered),
        first_error=failures[0].text() if failures else "",
        clock="wall",
        tool_output_tok_s=whole.output_token_throughput.avg,
        tool_version=whole.aiperf_version,
        acceptance=None,
    )


def _parse(model: type[_Model], text: str | bytes, where: str = "") -> _Model:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise MeasurementError(f"{where}{key}{': ' if key else ''}{first['msg']}") from None

"""The artifacts of both tools, cut down from real ones, become the same measurements."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pdkit.errors import MeasurementError
from pdkit.results.metrics import Request
from pdkit.results.normalise import from_aiperf, from_vllm_bench

WANTED = (
    Request(start_seconds=10.0, ttft_seconds=0.04, itl_seconds=(0.004, 0.006), input_tokens=128, output_tokens=3),
    Request(start_seconds=10.5, ttft_seconds=0.05, itl_seconds=(), input_tokens=127, output_tokens=1),
)


def vllm(**changes: Any) -> str:
    result: dict[str, Any] = {
        "date": "20261129-184336",
        "backend": "openai",
        "completed": 2,
        "failed": 0,
        "output_throughput": 7.3,
        "mean_ttft_ms": 45.0,
        "start_times": [10.0, 10.5],
        "ttfts": [0.04, 0.05],
        "itls": [[0.004, 0.006], []],
        "input_lens": [128, 127],
        "output_lens": [3, 1],
        "generated_texts": ["a b c", "a"],
        "errors": ["", ""],
    }
    return json.dumps(result | changes)


def aiperf_record(start_ns: int, ttft_ms: float, gaps: list[float], tokens: tuple[int, int], **changes: Any) -> str:
    values = {
        "time_to_first_token": ttft_ms,
        "input_sequence_length": tokens[0],
        "output_sequence_length": tokens[1],
        **({"inter_chunk_latency": gaps} if gaps else {}),
    }
    record: dict[str, Any] = {
        "metadata": {"benchmark_phase": "profiling", "request_start_ns": start_ns, "worker_id": "worker_1"},
        "metrics": {name: {"value": value, "unit": "ms"} for name, value in values.items()},
    }
    return json.dumps(record | changes)


SUMMARY = json.dumps(
    {"schema_version": "1.4", "aiperf_version": "0.13.0", "output_token_throughput": {"unit": "tokens/sec", "avg": 7.3}}
)
GOOD = [aiperf_record(10_000_000_000, 40.0, [4.0, 6.0], (128, 3)), aiperf_record(10_500_000_000, 50.0, [], (127, 1))]


def test_both_tools_give_the_same_trace() -> None:
    ours, theirs = from_vllm_bench(vllm()), from_aiperf(SUMMARY, GOOD)
    assert ours.trace == WANTED
    for found, wanted in zip(theirs.trace, WANTED, strict=True):
        assert found.start_seconds == wanted.start_seconds
        assert found.ttft_seconds == pytest.approx(wanted.ttft_seconds)
        assert found.itl_seconds == pytest.approx(wanted.itl_seconds)
        assert (found.input_tokens, found.output_tokens) == (wanted.input_tokens, wanted.output_tokens)
    for each in (ours, theirs):
        assert (each.sent, each.failed, each.empty, each.first_error) == (2, 0, 0, "")
        assert each.tool_output_tok_s == 7.3
    assert (ours.clock, theirs.clock) == ("monotonic", "wall")
    assert (ours.tool_version, theirs.tool_version) == (None, "0.13.0")


def test_vllm_failures_are_counted_even_when_they_say_nothing() -> None:
    found = from_vllm_bench(vllm(failed=1, output_lens=[3, 0], errors=["", ""]))
    assert (len(found.trace), found.failed, found.empty) == (1, 1, 0)


def test_vllm_tells_the_last_line_of_a_traceback() -> None:
    found = from_vllm_bench(vllm(failed=1, output_lens=[3, 0], errors=["", "Traceback\n  at x\nTimeoutError: slow\n"]))
    assert (found.failed, found.first_error) == (1, "TimeoutError: slow")


def test_vllm_answers_without_a_token_are_empty_not_failed() -> None:
    found = from_vllm_bench(vllm(output_lens=[3, 0]))
    assert (len(found.trace), found.failed, found.empty) == (1, 0, 1)


def test_vllm_acceptance_is_taken_from_the_tool() -> None:
    found = from_vllm_bench(
        vllm(spec_decode_num_drafts=100, spec_decode_draft_tokens=300, spec_decode_accepted_tokens=150)
    )
    assert found.acceptance is not None
    assert (found.acceptance.rate, found.acceptance.length, found.acceptance.source) == (0.5, 2.5, "load tool")
    assert from_vllm_bench(vllm()).acceptance is None


def test_aiperf_warm_ups_are_left_out() -> None:
    warmup = json.loads(GOOD[0])
    warmup["metadata"]["benchmark_phase"] = "warmup"
    assert from_aiperf(SUMMARY, [json.dumps(warmup), *GOOD]).sent == 2


def test_aiperf_failures_have_no_metrics() -> None:
    bad = json.loads(GOOD[0]) | {"metrics": {}, "error": {"code": 503, "type": "Service Unavailable", "message": ""}}
    found = from_aiperf(SUMMARY, [json.dumps(bad), *GOOD])
    assert (found.sent, found.failed, len(found.trace)) == (3, 1, 2)
    assert found.first_error == "503 Service Unavailable"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (vllm()[:-1], "Invalid JSON"),
        (json.dumps({"failed": 0}), "output_throughput: Field required"),
        (vllm(ttfts=[0.1]), "differ in length"),
        (vllm(itls=[["x"], []]), "itls.0.0"),
    ],
)
def test_a_result_that_cannot_be_read_is_told(text: str, words: str) -> None:
    with pytest.raises(MeasurementError, match=words):
        from_vllm_bench(text)


def test_an_aiperf_line_that_cannot_be_read_is_told_with_its_number() -> None:
    with pytest.raises(MeasurementError, match="line 2: metadata"):
        from_aiperf(SUMMARY, [GOOD[0], "{}"])

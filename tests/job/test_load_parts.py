"""The parts of the sweep that need no load tool: counters, CPU shares, settings."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from pdkit.job.load_client import Sample, busiest_share, threads_of_group
from pdkit.job.load_counters import DraftCounters, acceptance_between, parse_counters, read_counters
from pdkit.job.load_judge import reasons_against
from pdkit.job.load_settings import LoadSettings
from pdkit.results.metrics import Request
from pdkit.results.normalise import Measurements

PAGE = """
# HELP vllm:spec_decode_num_drafts_total Number of drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 60.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 300.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 1.2e+02
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 999.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
"""


def test_counters_are_summed_over_ranks_and_engines() -> None:
    assert parse_counters([PAGE, PAGE]) == DraftCounters(drafts=320, draft_tokens=600, accepted_tokens=240)


def test_acceptance_is_that_of_the_difference() -> None:
    before = DraftCounters(drafts=100, draft_tokens=300, accepted_tokens=100)
    after = DraftCounters(drafts=300, draft_tokens=900, accepted_tokens=400)
    found = acceptance_between(before, after)
    assert found is not None
    assert (found.rate, found.length, found.source) == (0.5, 2.5, "engine counters")


def test_acceptance_is_none_when_nothing_was_drafted_or_read() -> None:
    some = DraftCounters(drafts=1, draft_tokens=3, accepted_tokens=1)
    assert acceptance_between(some, some) is None
    assert acceptance_between(None, some) is None
    assert read_counters(["http://127.0.0.1:1/metrics"], timeout_seconds=0.2) is None


def test_the_busiest_thread_counts_not_their_sum() -> None:
    main, helper = (1, 1), (1, 2)
    samples = [Sample(float(n), {main: 0.5 * n, helper: 0.4 * n}) for n in range(11)]
    assert busiest_share(samples, 2.0, 8.0) == pytest.approx(0.5)


def test_cpu_use_before_the_window_does_not_count() -> None:
    thread = (1, 1)
    busy_start = [Sample(n / 2, {thread: min(n / 2, 4.0)}) for n in range(21)]  # imports for 4 s, then idle
    assert busiest_share(busy_start, 4.0, 9.0) == pytest.approx(0.0)
    assert busiest_share(busy_start, 3.25, 5.25) == pytest.approx(0.75 / 2)


def test_cpu_seconds_of_a_process_group_are_read_by_thread() -> None:
    burn = "import sys, time\nwhile time.process_time() < 0.5: pass\nprint('done', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        threads = threads_of_group(child.pid)
        assert set(threads) == {(child.pid, child.pid)}
        assert threads[child.pid, child.pid] >= 0.4
        child.communicate(b"")
    assert threads_of_group(child.pid) == {}


def test_a_saturated_client_is_a_reason() -> None:
    one = Request(start_seconds=0.0, ttft_seconds=1.0, itl_seconds=(0.1,) * 49, input_tokens=100, output_tokens=50)
    measured = Measurements(
        trace=(one,) * 8, sent=8, failed=0, empty=0, first_error="", clock="wall",
        tool_output_tok_s=400 / 5.9, tool_version=None, acceptance=None,
    )  # fmt: skip
    assert reasons_against(load_settings(), 1, measured, 0.94) == ()
    (reason,) = reasons_against(load_settings(), 1, measured, 0.97)
    assert reason == "a thread of the load client used 97 % of a core, so the client was the limit"


def test_a_thread_that_started_late_counts_from_its_start() -> None:
    samples = [Sample(0.0, {(1, 1): 0.0}), Sample(2.0, {(1, 1): 0.0, (1, 2): 1.0})]
    assert busiest_share(samples, 0.0, 2.0) == pytest.approx(0.5)


def test_a_window_that_was_not_watched_has_no_share() -> None:
    thread = (1, 1)
    samples = [Sample(0.0, {thread: 0.0}), Sample(10.0, {thread: 9.0}), Sample(10.5, {})]
    assert busiest_share(samples, 11.0, 12.0) is None
    assert busiest_share(samples, 1.0, 1.5) is None
    assert busiest_share([], 0.0, 5.0) is None


def load_settings(**changes: object) -> LoadSettings:
    base: dict[str, object] = {
        "tool": "vllm-bench",
        "tool_version": "0.31.0",
        "url": "http://127.0.0.1:1",
        "model": "tiny",
        "tokenizer": "tiny",
        "concurrency": (1, 2),
        "isl": 100,
        "osl": 50,
        "gpus": 8,
        "gpus_by_role": {"prefill": 4, "decode": 4},
    }
    return LoadSettings.model_validate(base | changes)


def test_every_point_repeat_and_warm_up_has_its_own_seed() -> None:
    settings = load_settings()
    seeds = [settings.seed_of(c, r) for c in (1, 2, 3, 4096) for r in range(1, 100)]
    assert len(set(seeds)) == len(seeds)
    assert max(seeds) < 2**32


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpus": 7}, "adds up to more than gpus"),
        ({"concurrency": (2, 2)}, "lists a value twice"),
        ({"concurrency": ()}, "at least 1 item"),
        ({"isll": 3}, "Extra inputs"),
    ],
)
def test_settings_that_cannot_be_measured_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        load_settings(**changes)

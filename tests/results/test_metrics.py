"""One test per formula, on a trace small enough to check by hand; and the documentation names every one."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from pdkit.results import metrics
from pdkit.results.metrics import Request

# Two requests: [0 s .. 1.4 s] with 5 tokens and [0.5 s .. 2.5 s] with 3 tokens, then one of a single token.
FIRST = Request(
    start_seconds=0.0, ttft_seconds=1.0, itl_seconds=(0.1, 0.1, 0.1, 0.1), input_tokens=100, output_tokens=5
)
SECOND = Request(start_seconds=0.5, ttft_seconds=1.6, itl_seconds=(0.2, 0.2), input_tokens=50, output_tokens=3)
SINGLE = Request(start_seconds=2.5, ttft_seconds=0.5, itl_seconds=(), input_tokens=30, output_tokens=1)
TRACE = (FIRST, SECOND, SINGLE)


def test_e2e_ends_with_the_last_chunk() -> None:
    assert FIRST.e2e_seconds == pytest.approx(1.4)
    assert SECOND.end_seconds == pytest.approx(2.5)
    assert SINGLE.e2e_seconds == 0.5


def test_tpot_leaves_out_the_first_token() -> None:
    assert metrics.tpot_seconds(FIRST) == pytest.approx(0.1)
    assert metrics.tpot_seconds(SINGLE) is None


def test_tpot_counts_tokens_where_gaps_count_chunks() -> None:
    drafted = Request(start_seconds=0, ttft_seconds=1, itl_seconds=(0.3, 0.3), input_tokens=1, output_tokens=7)
    assert metrics.tpot_seconds(drafted) == pytest.approx(0.1)
    found = metrics.itl([drafted])
    assert found is not None
    assert found.mean_ms == pytest.approx(300)


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 2.5), (0.9, 3.7), (1.0, 4.0)])
def test_percentiles_are_interpolated(share: float, value: float) -> None:
    assert metrics.percentile([4.0, 1.0, 3.0, 2.0], share) == pytest.approx(value)


def test_a_distribution_is_in_milliseconds() -> None:
    found = metrics.distribution([0.001, 0.003])
    assert found is not None
    assert (found.mean_ms, found.p50_ms) == (2.0, 2.0)
    assert (found.p90_ms, found.p99_ms) == pytest.approx((2.8, 2.98))
    assert metrics.distribution([]) is None


def test_chunks_that_come_together_are_bunched() -> None:
    held = Request(
        start_seconds=0, ttft_seconds=1, itl_seconds=(0.5, 0.0, 0.00009, 0.0001), input_tokens=1, output_tokens=5
    )
    assert metrics.bunched_share([held]) == 0.5
    assert metrics.bunched_share([held, FIRST]) == 0.25
    assert metrics.bunched_share([SINGLE]) == 0.0


def test_ttft_is_over_requests() -> None:
    found = metrics.ttft(TRACE)
    assert found is not None
    assert found.mean_ms == pytest.approx((1000 + 1600 + 500) / 3)
    assert found.p50_ms == pytest.approx(1000)


def test_tpot_weighs_requests_equally() -> None:
    found = metrics.tpot(TRACE)
    assert found is not None
    assert found.mean_ms == pytest.approx(150)


def test_itl_is_over_all_gaps() -> None:
    found = metrics.itl(TRACE)
    assert found is not None
    assert found.mean_ms == pytest.approx((4 * 100 + 2 * 200) / 6)


def test_e2e_is_over_requests() -> None:
    found = metrics.e2e(TRACE)
    assert found is not None
    assert found.mean_ms == pytest.approx((1400 + 2000 + 500) / 3)


def test_the_duration_runs_from_the_first_request_to_the_last_token() -> None:
    assert metrics.duration_seconds(TRACE) == pytest.approx(3.0)
    assert metrics.duration_seconds([]) == 0.0


def test_throughput_is_tokens_over_the_duration() -> None:
    assert (metrics.input_tokens(TRACE), metrics.output_tokens(TRACE)) == (180, 9)
    assert metrics.output_tok_s(TRACE) == pytest.approx(3.0)
    assert metrics.total_tok_s(TRACE) == pytest.approx(63.0)
    assert metrics.rate(5, 0.0) == 0.0


def test_a_user_sees_the_inverse_of_tpot() -> None:
    assert metrics.tok_s_user(20.0) == 50.0
    assert metrics.tok_s_user(0.0) == 0.0


def test_in_flight_is_littles_law_and_a_count() -> None:
    assert metrics.mean_in_flight(TRACE) == pytest.approx((1.4 + 2.0 + 0.5) / 3.0)
    assert metrics.peak_in_flight(TRACE) == 2
    assert metrics.peak_in_flight([]) == 0


def test_back_to_back_requests_do_not_overlap() -> None:
    one = Request(start_seconds=0.0, ttft_seconds=1.0, itl_seconds=(), input_tokens=1, output_tokens=1)
    two = Request(start_seconds=1.0, ttft_seconds=1.0, itl_seconds=(), input_tokens=1, output_tokens=1)
    assert metrics.peak_in_flight([one, two]) == 1


def test_acceptance() -> None:
    assert metrics.acceptance_rate(accepted_tokens=30, draft_tokens=60) == 0.5
    assert metrics.acceptance_length(accepted_tokens=30, drafts=20) == 2.5


def test_spread_is_relative_to_the_median() -> None:
    assert metrics.relative_spread([90.0, 100.0, 110.0]) == pytest.approx(0.2)
    assert metrics.relative_spread([7.0]) == 0.0
    assert metrics.relative_spread([0.0, 0.0]) == 0.0


def test_every_formula_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    formulas = [
        name for name, value in inspect.getmembers(metrics, inspect.isfunction) if value.__module__ == metrics.__name__
    ]
    assert len(formulas) > 15
    assert [name for name in formulas if f"`{name}`" not in text] == []

"""Expected GPU-hours: the arithmetic, and what it is compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdkit.commands import planned
from pdkit.plan.contract import plan_data
from pdkit.plan.cost import PACES, expected_cost, slurm_seconds
from pdkit.plan.plan import Plan

RECIPES = Path(__file__).parents[2] / "recipes"


def front_door(*sets: str) -> Plan:
    [(_, plan, _)] = planned(RECIPES / "qwen38_tep8.yaml", sets)
    return plan


def test_the_parts_add_up() -> None:
    cost = expected_cost(front_door(), startup_minutes=20)
    assert (cost.gpus, cost.startup_minutes, len(cost.points_minutes)) == (16, 20.0, 2)
    minutes = 20 + cost.gate_minutes + sum(cost.points_minutes)
    assert cost.minutes == pytest.approx(minutes, abs=0.2)
    assert cost.gpu_hours == pytest.approx(16 * minutes / 60, abs=0.1)
    # two jobs of one point each, and one for accuracy: two more start-ups
    assert cost.apart_gpu_hours == pytest.approx(cost.gpu_hours + 16 * 2 * 20 / 60, abs=0.02)
    assert cost.startup_source == "given with --startup-minutes"


def test_the_start_up_reads_the_largest_weights() -> None:
    plan, pace = front_door(), PACES["cuda"]
    weights = max(role.memory.weights_gib for role in plan.roles.values() if role.memory)
    seconds = pace.startup_seconds + weights / pace.weights_gib_s
    assert expected_cost(plan).startup_minutes == pytest.approx(seconds / 60, abs=0.05)


def test_a_point_is_near_its_published_time_at_both_ends() -> None:
    """2560 requests at once ran at 5000 total tok/s/GPU, single ones at 180 generated tok/s."""
    [(_, wide, _)] = planned(RECIPES / "qwen38" / "published" / "4xtp2dp4-1xtp4dp4-cc2560.yaml")
    tokens = 9 * 2560 * wide.recipe.workload.request_tokens  # eight waves and one of warm-up
    [minutes] = expected_cost(wide).points_minutes
    assert minutes == pytest.approx(tokens / (5000 * 48) / 60, rel=0.15)
    [(_, low, _)] = planned(RECIPES / "qwen38" / "published" / "1xtep8-1xtep8-mtp-cc1-4.yaml")
    assert expected_cost(low).points_minutes[0] == pytest.approx((9 * 1024 / 180 + 15) / 60, rel=0.1)


def test_more_work_costs_more() -> None:
    base = expected_cost(front_door())
    for setting in (
        "sweep.repeats=2",
        "workload.concurrency=[8, 12, 16]",
        "gate.max_tokens=16384",
        "prefill.endpoints=2",
    ):
        assert expected_cost(front_door(setting)).gpu_hours > base.gpu_hours, setting
    assert expected_cost(front_door("gate.questions=100")).gate_minutes < base.gate_minutes


def test_the_laptops_own_questions_are_counted() -> None:
    [(_, plan, _)] = planned(RECIPES / "local" / "tiny_pd.yaml")
    assert expected_cost(plan).gate_minutes < 1, "32 questions, not 1319"


def test_a_job_that_would_not_end_in_time_is_told() -> None:
    assert expected_cost(front_door()).fits
    assert not expected_cost(front_door("cluster.time_limit=0:10:00")).fits


def test_the_contract_carries_the_cost() -> None:
    plan = front_door()
    assert plan_data(plan, [])["cost"]["gpu_hours"] == expected_cost(plan).gpu_hours
    assert plan_data(plan, [], 60.0)["cost"]["startup_minutes"] == 60.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("2:00:00", 7200),
        ("99:59:59", 359999),
        ("1-4", 100800),
        ("1-04:30", 102600),
        ("1-4:30:10", 102610),
    ],
)
def test_slurms_times(text: str, seconds: int) -> None:
    assert slurm_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "two hours", "1:2:3:4", "-5", "1-"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a time"):
        slurm_seconds(text)

"""Stages and times out of events, without a cluster."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from pdkit.launch.board import eta_text
from pdkit.launch.progress import Eta, attempt_of, progress_of

PLAN: dict[str, Any] = {
    "workload": {"concurrency": [8, 16, 32]},
    "cost": {"startup_minutes": 10},
    "placement": [
        {"name": "prefill0-0", "role": "prefill", "endpoint": 0},
        {"name": "prefill0-1", "role": "prefill", "endpoint": 0},
        {"name": "prefill1", "role": "prefill", "endpoint": 1},
        {"name": "decode0", "role": "decode", "endpoint": 0},
        {"name": "decode1", "role": "decode", "endpoint": 1},
    ],
}


def at(second: float, event: str, **fields: object) -> dict[str, Any]:
    time = dt.datetime.fromtimestamp(1_800_000_000 + second, dt.timezone.utc)
    return {"time": time.isoformat(timespec="milliseconds"), "event": event, **fields}


def told(*events: dict[str, Any], now: float = 100) -> tuple[str, Eta | None]:
    progress = progress_of(events, PLAN, 0, 1_800_000_000 + now)
    return progress.stage, progress.eta


JOB = at(0, "job", job="1", restart=0)
READY = at(40, "stage", stage="ready")


@pytest.mark.parametrize(
    ("events", "stage"),
    [
        ([], "queued"),
        ([JOB], "preflight"),
        ([JOB, at(1, "stage", stage="preflight")], "preflight"),
        ([JOB, at(1, "stage", stage="preflight"), at(2, "started", step="etcd")], "preflight"),
        ([JOB, at(1, "stage", stage="preflight"), at(2, "started", step="prefill0-0")], "loading 0/4 endpoints"),
        ([JOB, READY], "loading 0/4 endpoints"),
        ([JOB, READY, at(41, "progress", note="waiting for prefill0-1, decode1")], "loading 2/4 endpoints"),
        ([JOB, READY, at(41, "progress", note="waiting for frontend0, decode0")], "loading 3/4 endpoints"),
        ([JOB, READY, at(41, "progress", note="waiting for model tiny")], "loading 4/4 endpoints"),
        ([JOB, READY, at(41, "progress", note="reading what decode0 reports")], "proving"),
        ([JOB, READY, at(50, "ready", seconds=10)], "ready"),
        ([JOB, READY, at(50, "ready"), at(51, "stage", stage="gate")], "gate"),
        ([JOB, READY, at(51, "stage", stage="gate"), at(52, "progress", note="812/1319, 800 right")], "gate 812/1319"),
        ([JOB, at(51, "stage", stage="gate"), at(52, "passed", accuracy=1.0)], "gate passed"),
        ([JOB, at(53, "stage", stage="sweep")], "sweep"),
        (
            [JOB, at(53, "stage", stage="sweep"), at(54, "progress", note="concurrency 512: measuring, 5 s")],
            "point c=512",
        ),
        ([JOB, at(53, "stage", stage="sweep"), at(54, "swept", points=3)], "sweep done"),
        ([JOB, at(53, "stage", stage="tidying"), at(54, "progress", note="nearly")], "tidying"),
    ],
)
def test_stages(events: list[dict[str, Any]], stage: str) -> None:
    assert told(*events)[0] == stage


def test_the_start_up_is_the_plans_estimate_until_it_has_passed() -> None:
    assert told(JOB, now=100)[1] == Eta("ready", 500)
    assert told(JOB, READY, now=601)[1] is None


def test_the_gate_goes_on_at_its_pace() -> None:
    gate = [at(0, "stage", stage="gate"), at(1, "progress", note="0/100, 0 right")]
    assert told(*gate)[1] is None
    gate.append(at(11, "progress", note="25/100, 25 right"))
    assert told(*gate, now=11)[1] == Eta("gate", 30)
    assert told(*gate, now=31)[1] == Eta("gate", 10)


def test_points_to_come_take_as_long_as_those_before() -> None:
    sweep = [at(0, "stage", stage="sweep"), at(1, "point", concurrency=8, state="kept")]
    assert told(*sweep)[1] is None, "a point that was kept took no time"
    sweep.append(at(60, "point", concurrency=16, state="valid"))
    assert told(*sweep, now=70)[1] == Eta("end", 50)


def test_an_attempt_is_the_newest_jobs_own() -> None:
    events = [JOB, at(1, "failed", exit_code=8), at(9, "job", job="2", restart=0), at(10, "stage", stage="ready")]
    assert attempt_of(events, "2") == events[2:]
    assert attempt_of(events, "3") == [], "submitted, and not begun"
    again = [*events, at(20, "job", job="2", restart=1)]
    assert attempt_of(again, "2") == again[4:]


def test_a_local_attempt_begins_with_its_launch() -> None:
    events = [at(0, "launched", run_id="a"), at(1, "failed", exit_code=8), at(2, "launched", run_id="b")]
    assert attempt_of(events, None) == events[2:]


@pytest.mark.parametrize(
    ("eta", "text"),
    [
        (None, ""),
        (Eta("gate", 42.4), "gate in 42 s"),
        (Eta("end", 1234), "end in 21 min"),
        (Eta("start", 4 * 3600 + 120), "start in 4:02 h"),
        (Eta("start", 30 * 3600), "start in 1 day, 6:00 h"),
    ],
)
def test_times_as_a_person_says_them(eta: Eta | None, text: str) -> None:
    assert eta_text(eta) == text

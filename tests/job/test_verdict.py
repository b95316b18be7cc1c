"""The verdict: statistics against values of scipy, each limit on its own, and a proof that cannot be made by hand."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pdkit.errors import GateError
from pdkit.job.answers import Answer, TwinAnswer
from pdkit.job.verdict import Limits, Passed, judge, mcnemar, wilson

# By scipy.stats.binomtest of `lost` among all that differ at 0.5, two-sided and alternative "greater".
MCNEMAR = [
    (0, 0, 1.0, 1.0),
    (1, 0, 1.0, 0.5),
    (0, 1, 1.0, 1.0),
    (4, 0, 0.125, 0.0625),
    (5, 0, 0.0625, 0.03125),
    (5, 5, 1.0, 0.623046875),
    (10, 3, 0.09228515625, 0.046142578125),
    (3, 10, 0.09228515625, 0.98876953125),
    (20, 9, 0.06142834573984146, 0.03071417286992073),
    (31, 12, 0.005401572654591291, 0.0027007863272956456),
    (60, 60, 1.0, 0.536342489455058),
    (80, 55, 0.038471500325522025, 0.019235750162761012),
    (150, 100, 0.0018833009350761602, 0.0009416504675380801),
    (700, 619, 0.027573696259397113, 0.013786848129698557),
]
# By the proportion_ci of scipy.stats.binomtest at 0.95 with method "wilson".
WILSON = [
    (0, 10, 0.0, 0.27753279986288926),
    (10, 10, 0.7224672001371109, 1.0),
    (190, 200, 0.910421851861224, 0.9726173543992361),
    (1253, 1319, 0.93683409789538, 0.9604767567690968),
    (1, 1, 0.20654931437723745, 1.0),
    (31, 32, 0.8425573617998744, 0.9944621398359969),
]


def an_answer(number: int, *, right: bool = True, **changes: Any) -> Answer:
    values: dict[str, Any] = {
        "id": f"q{number:04d}",
        "question_sha256": "q",
        "prompt_sha256": "p",
        "text": "#### 4",
        "reasoning": "",
        "strict": "4" if right else "5",
        "flexible": "4" if right else "5",
        "gold": "4",
        "correct": right,
        "finish_reason": "stop",
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "seconds": 0.1,
        "in_flight": 1,
        "http_status": 200,
        "retried": False,
        "empty": False,
        "error": None,
    }
    return Answer(**(values | changes))


def failed(number: int) -> Answer:
    return an_answer(number, strict=None, flexible=None, correct=None, finish_reason=None, error="HTTP 500: boom")


def limits(questions: int, **changes: Any) -> Limits:
    values = {
        "floor": 0.9,
        "max_truncated_share": 0.01,
        "max_empty_share": 0.0,
        "twin_alpha": 0.05,
        "scored_by": "strict",
    }
    return Limits(questions=questions, **(values | changes))


def answers(right: int, wrong: int) -> list[Answer]:
    return [an_answer(n, right=n <= right) for n in range(1, right + wrong + 1)]


def twin_of(right: set[int], total: int) -> dict[str, TwinAnswer]:
    made = {}
    for n in range(1, total + 1):
        value = "4" if n in right else "7"
        made[f"q{n:04d}"] = TwinAnswer(
            id=f"q{n:04d}", question_sha256="q", prompt_sha256="p", strict=value, flexible=value, gold="4"
        )
    return made


@pytest.mark.parametrize(("lost", "gained", "two_sided", "drop"), MCNEMAR)
def test_mcnemar_is_exact(lost: int, gained: int, two_sided: float, drop: float):
    assert mcnemar(lost, gained) == pytest.approx((two_sided, drop), rel=1e-12)


@given(st.integers(0, 200), st.integers(0, 200))
def test_mcnemar_is_symmetric_and_monotone(lost: int, gained: int):
    two_sided, drop = mcnemar(lost, gained)
    assert mcnemar(gained, lost)[0] == two_sided
    assert 0 < drop <= 1
    assert 0 < two_sided <= 1
    assert mcnemar(lost + 1, gained)[1] <= drop


@pytest.mark.parametrize(("right", "answered", "low", "high"), WILSON)
def test_wilson_is_scipys(right: int, answered: int, low: float, high: float):
    assert wilson(right, answered) == pytest.approx((low, high), abs=1e-12)


def test_a_good_gate_passes_and_says_how_good():
    verdict = judge(answers(95, 5), limits(100), None)
    assert verdict.passed
    assert verdict.reasons == ()
    assert verdict.accuracy == 0.95
    assert verdict.standard_error == pytest.approx(0.0217945, abs=1e-6)
    assert "95 of 100 right, 95.00%" in verdict.words
    assert "no twin" in verdict.words


def test_the_standard_error_of_the_public_set_at_95_percent_is_0_60_points():
    assert judge(answers(1253, 66), limits(1319), None).standard_error == pytest.approx(0.0060, abs=5e-5)


def test_the_floor_itself_passes_and_one_answer_less_fails():
    assert judge(answers(90, 10), limits(100), None).passed
    verdict = judge(answers(89, 11), limits(100), None)
    assert not verdict.passed
    assert verdict.words == "accuracy 89.00% (100 answers, strict) is below the floor 90.00%"


def test_a_failed_request_fails_the_gate_and_is_not_a_wrong_answer():
    verdict = judge([*answers(99, 0), failed(100)], limits(100), None)
    assert not verdict.passed
    assert (verdict.answered, verdict.correct, verdict.accuracy, verdict.failed) == (99, 99, 1.0, 1)
    assert verdict.words == "1 of 100 requests failed, the first with: HTTP 500: boom"


def test_nothing_but_failures_has_no_accuracy():
    verdict = judge([failed(1), failed(2)], limits(2), None)
    assert not verdict.passed
    assert verdict.reasons[-1] == "there is no answer to score"
    assert "floor" not in verdict.words


def test_questions_that_were_not_asked_fail_the_gate():
    verdict = judge(answers(50, 0), limits(100), None)
    assert verdict.words == "the gate ended after 50 of 100 questions"
    assert not judge([], limits(100), None).passed


def test_truncated_and_empty_answers_have_their_own_limits():
    cut = [*answers(98, 0), an_answer(99, finish_reason="length"), an_answer(100, finish_reason="length")]
    verdict = judge(cut, limits(100), None)
    assert verdict.words == "2 of 100 answers are cut by the token limit (2.00%, limit 1.00%)"
    assert judge(cut, limits(100, max_truncated_share=0.02), None).passed
    hollow = [*answers(99, 0), an_answer(100, right=False, empty=True, text="")]
    verdict = judge(hollow, limits(100), None)
    assert verdict.words == "1 of 100 answers are empty (1.00%, limit 0.00%)"


def test_every_reason_is_given_at_once():
    bad = [*answers(50, 47), an_answer(98, right=False, empty=True), an_answer(99, finish_reason="length"), failed(100)]
    assert len(judge(bad, limits(101, max_truncated_share=0.0), None).reasons) == 5


def test_a_drop_below_the_twin_fails_although_the_floor_is_kept():
    verdict = judge(answers(93, 7), limits(100), twin_of(set(range(1, 101)), 100))
    assert not verdict.passed
    assert verdict.twin is not None
    assert (verdict.twin.lost, verdict.twin.gained, verdict.twin.twin_accuracy) == (7, 0, 1.0)
    assert verdict.twin.p_drop == pytest.approx(2**-7)
    assert "dropped from the twin's 100.00% to 93.00%: 7 answers lost, 0 gained" in verdict.words


def test_being_better_than_the_twin_passes_however_different():
    verdict = judge(answers(100, 0), limits(100), twin_of(set(range(1, 91)), 100))
    assert verdict.passed
    assert verdict.twin is not None
    assert verdict.twin.p_two_sided == pytest.approx(2 / 2**10)
    assert verdict.twin.p_drop == 1.0


def test_the_pairs_count_and_not_the_totals():
    """Equal accuracies: 4 lost and 4 gained are no drop, and the same answers are not even a difference."""
    verdict = judge(answers(96, 4), limits(100), twin_of(set(range(5, 101)), 100))
    assert verdict.passed
    assert verdict.twin is not None
    assert (verdict.twin.lost, verdict.twin.gained) == (4, 4)
    same = judge(answers(96, 4), limits(100), twin_of(set(range(1, 97)), 100)).twin
    assert same is not None
    assert (same.lost, same.gained, same.p_two_sided) == (0, 0, 1.0)


def test_failed_requests_are_no_pairs():
    verdict = judge([*answers(99, 0), failed(100)], limits(100), twin_of(set(range(1, 101)), 100))
    assert verdict.twin is not None
    assert (verdict.twin.pairs, verdict.twin.lost) == (99, 0)


def test_the_twin_is_scored_by_the_same_filter():
    twin = {
        "q0001": TwinAnswer(id="q0001", question_sha256="q", prompt_sha256="p", strict=None, flexible="4", gold="4")
    }
    by = {name: judge(answers(1, 0), limits(1, scored_by=name), twin).twin for name in ("strict", "flexible")}
    assert [paired.gained for paired in by.values() if paired] == [1, 0]


def test_an_answer_is_scored_or_an_error():
    with pytest.raises(ValidationError):
        an_answer(1, error="HTTP 500")
    with pytest.raises(ValidationError):
        an_answer(1, correct=None)


def test_a_proof_cannot_be_made_by_hand():
    values = {"lock_digest": "l", "boot_ids": ("b",), "gate_digest": "g", "accuracy": 1.0}
    with pytest.raises(TypeError):
        Passed(**values)
    with pytest.raises(TypeError, match="only the accuracy gate"):
        Passed(**values, seal=object())
    with pytest.raises(TypeError):
        type("Mine", (Passed,), {})(**values)


def sealed() -> Passed:
    from pdkit.job import verdict

    return Passed(lock_digest="l", boot_ids=("a", "b"), gate_digest="g", accuracy=1.0, seal=verdict._SEAL)


def test_a_proof_cannot_be_copied_changed_or_sent_elsewhere():
    with pytest.raises(dataclasses.FrozenInstanceError):
        sealed().lock_digest = "other"  # type: ignore[misc]
    with pytest.raises((TypeError, ValueError)):
        dataclasses.replace(sealed(), lock_digest="other")
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="read it with its evidence"):
            make(sealed())


def test_a_proof_is_void_for_another_lock_or_a_restarted_engine():
    sealed().check(lock_digest="l", boot_ids=("b", "a"))
    with pytest.raises(GateError, match="another lock"):
        sealed().check(lock_digest="m", boot_ids=("a", "b"))
    for boots in (("a",), ("a", "c"), ("a", "b", "c")):
        with pytest.raises(GateError, match="restarted"):
            sealed().check(lock_digest="l", boot_ids=boots)


def test_the_type_checker_refuses_a_proof_made_by_hand(tmp_path: Path):
    file = tmp_path / "forged.py"
    call = 'Passed(lock_digest="l", boot_ids=(), gate_digest="g", accuracy=1.0'
    file.write_text(f"from pdkit.job.verdict import Passed\n{call})\n{call}, seal=object())\nclass Mine(Passed): ...\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    errors = [line for line in said.splitlines() if "forged.py" in line and "error:" in line]
    assert [line.split(":")[1] for line in errors] == ["2", "3", "4"]

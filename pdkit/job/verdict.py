"""The verdict over many answers, and the proof that the gate passed. Pure: no clock, no files, no network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import NoReturn, final

from pdkit.errors import GateError
from pdkit.job.answers import Answer, Record, ScoredBy, TwinAnswer
from pdkit.job.gsm8k import is_correct

_Z95 = 1.959963984540054


class Limits(Record):
    """What the answers must keep to. Failed requests have no limit: the first one fails the gate."""

    questions: int
    """How many questions must have been asked."""
    floor: float
    """The least accuracy, as a share."""
    max_truncated_share: float
    max_empty_share: float
    twin_alpha: float
    """A drop below the twin fails when chance alone gives one that large less often than this."""
    scored_by: ScoredBy


class Paired(Record):
    """The exact McNemar test of the same questions, asked here and of the twin."""

    pairs: int
    twin_accuracy: float
    lost: int
    """Right at the twin, wrong here."""
    gained: int
    """Wrong at the twin, right here."""
    p_two_sided: float
    p_drop: float
    """How often chance alone loses at least `lost` of the questions on which the two differ."""


class Verdict(Record):
    """Everything that the gate concludes from its answers."""

    passed: bool
    words: str
    """Why it passed or failed, for a person."""
    reasons: tuple[str, ...]
    """One sentence per limit that was not kept; empty when it passed."""
    asked: int
    answered: int
    correct: int
    accuracy: float
    standard_error: float
    wilson_low: float
    wilson_high: float
    strict_accuracy: float
    flexible_accuracy: float
    truncated: int
    empty: int
    failed: int
    retried: int
    peak_in_flight: int
    twin: Paired | None


def mcnemar(lost: int, gained: int) -> tuple[float, float]:
    """The two-sided and the one-sided (a drop) p value of the exact McNemar test."""
    differing = lost + gained
    ways = [math.comb(differing, k) for k in range(differing + 1)]
    all_ways = 2**differing
    drop = sum(ways[lost:]) / all_ways
    two_sided = 2 * sum(ways[: min(lost, gained) + 1]) / all_ways
    return min(1.0, two_sided), drop


def wilson(correct: int, answered: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a share."""
    if not answered:
        return 0.0, 1.0
    share, z2 = correct / answered, _Z95**2
    centre = share + z2 / (2 * answered)
    half = _Z95 * math.sqrt(share * (1 - share) / answered + z2 / (4 * answered**2))
    return max(0.0, (centre - half) / (1 + z2 / answered)), min(1.0, (centre + half) / (1 + z2 / answered))


def judge(answers: Sequence[Answer], limits: Limits, twin: Mapping[str, TwinAnswer] | None) -> Verdict:
    """Conclude from the answers whether performance may be measured; `twin` maps question ids to the twin's answers."""
    good = [answer for answer in answers if answer.error is None]
    right = sum(answer.correct is True for answer in good)
    share = right / len(good) if good else 0.0
    low, high = wilson(right, len(good))
    paired = _paired(good, limits, twin) if twin is not None and good else None
    reasons = tuple(_reasons(answers, good, share, limits, paired))
    return Verdict(
        passed=not reasons,
        words="; ".join(reasons) if reasons else _praise(right, len(good), low, high, paired),
        reasons=reasons,
        asked=len(answers),
        answered=len(good),
        correct=right,
        accuracy=share,
        standard_error=math.sqrt(share * (1 - share) / len(good)) if good else 0.0,
        wilson_low=low,
        wilson_high=high,
        strict_accuracy=_share([is_correct(answer.strict, answer.gold) for answer in good]),
        flexible_accuracy=_share([is_correct(answer.flexible, answer.gold) for answer in good]),
        truncated=sum(answer.truncated for answer in good),
        empty=sum(answer.empty for answer in good),
        failed=len(answers) - len(good),
        retried=sum(answer.retried for answer in answers),
        peak_in_flight=max((answer.in_flight for answer in answers), default=0),
        twin=paired,
    )


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0


def _paired(good: Sequence[Answer], limits: Limits, twin: Mapping[str, TwinAnswer]) -> Paired:
    both = [(answer.correct is True, twin[answer.id].correct(limits.scored_by)) for answer in good]
    lost = sum(theirs and not ours for ours, theirs in both)
    gained = sum(ours and not theirs for ours, theirs in both)
    two_sided, drop = mcnemar(lost, gained)
    return Paired(
        pairs=len(both),
        twin_accuracy=_share([theirs for _, theirs in both]),
        lost=lost,
        gained=gained,
        p_two_sided=two_sided,
        p_drop=drop,
    )


def _reasons(
    answers: Sequence[Answer], good: Sequence[Answer], share: float, limits: Limits, paired: Paired | None
) -> list[str]:
    reasons = []
    failed = [answer for answer in answers if answer.error is not None]
    if failed:
        reasons.append(f"{len(failed)} of {len(answers)} requests failed, the first with: {failed[0].error}")
    if len(answers) < limits.questions:
        reasons.append(f"the gate ended after {len(answers)} of {limits.questions} questions")
    if not good:
        return [*reasons, "there is no answer to score"]
    for name, count, limit in (
        ("empty", sum(answer.empty for answer in good), limits.max_empty_share),
        ("cut by the token limit", sum(answer.truncated for answer in good), limits.max_truncated_share),
    ):
        if count / len(good) > limit:
            reasons.append(f"{count} of {len(good)} answers are {name} ({count / len(good):.2%}, limit {limit:.2%})")
    if share < limits.floor:
        reasons.append(
            f"accuracy {share:.2%} ({len(good)} answers, {limits.scored_by}) is below the floor {limits.floor:.2%}"
        )
    if paired is not None and paired.p_drop < limits.twin_alpha:
        reasons.append(
            f"accuracy dropped from the twin's {paired.twin_accuracy:.2%} to {share:.2%}: {paired.lost} answers lost, "
            f"{paired.gained} gained, which chance alone does with p = {paired.p_drop:.2g} (limit {limits.twin_alpha})"
        )
    return reasons


def _praise(right: int, answered: int, low: float, high: float, paired: Paired | None) -> str:
    words = f"{right} of {answered} right, {right / answered:.2%} (95 % interval {low:.2%} to {high:.2%})"
    if paired is None:
        return f"{words}; there is no twin to compare with"
    pair = (
        f"twin {paired.twin_accuracy:.2%}, {paired.lost} lost, {paired.gained} gained, p of a drop {paired.p_drop:.2g}"
    )
    return f"{words}; {pair}"


class _Seal:
    """What only the gate holds."""


_SEAL = _Seal()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Proof that the accuracy gate passed on these engine processes. Only the gate can build one."""

    lock_digest: str
    boot_ids: tuple[str, ...]
    """The engine processes that gave the answers, sorted."""
    gate_digest: str
    """Digest of `gate.json`, which holds the digest of every answer."""
    accuracy: float
    seal: InitVar[_Seal]

    def __post_init__(self, seal: _Seal) -> None:
        if seal is not _SEAL:
            raise TypeError("only the accuracy gate can build a Passed")

    def __reduce__(self) -> NoReturn:
        # A copy in another process would be a proof without its evidence: read it from the run folder instead.
        raise TypeError("a Passed cannot be copied or pickled; read it with its evidence")

    def check(self, *, lock_digest: str, boot_ids: Sequence[str]) -> None:
        """Raise unless the deployment is still the one that passed."""
        if lock_digest != self.lock_digest:
            raise GateError(
                "the gate passed for another lock than this run's", fix="Run the gate again on this deployment."
            )
        if tuple(sorted(boot_ids)) != self.boot_ids:
            raise GateError(
                "an engine was restarted after the gate, which makes it void",
                fix="Run the gate again on these processes.",
            )

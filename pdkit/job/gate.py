"""The accuracy gate: ask at serving concurrency, keep every answer, and allow performance to be measured or not."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pdkit.errors import GateError, RecipeError, UsageError
from pdkit.files import write_text
from pdkit.job.answers import Answer, ScoredBy
from pdkit.job.client import Reply, ask_all
from pdkit.job.evidence import (
    ANSWERS,
    TWIN,
    VERDICT,
    Header,
    read_answers,
    read_passed,
    seal,
    sha256_of,
    start_or_resume,
    write_verdict,
)
from pdkit.job.fetch import fetch_data
from pdkit.job.gsm8k import (
    Protocol,
    Question,
    Readable,
    Request,
    build_request,
    draw_shots,
    extract_flexible,
    extract_strict,
    is_correct,
    load_protocol,
    load_questions,
    shipped_file,
    visible_text,
)
from pdkit.job.twin import load_twin, record_twin
from pdkit.job.verdict import Limits, Passed, judge

__all__ = ["GateSettings", "Progress", "fetch_data", "read_passed", "record_twin", "run_gate"]

_MOST_FAILED = 16
"""The gate has failed with the first failed request; a few more show the pattern, all of them only cost time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """Everything that the gate is asked to do."""

    base_url: str
    model: str
    """The served name."""
    protocol: str
    """A name of `accuracy/gsm8k.yaml`."""
    data: Path
    data_sha256: str | None
    shots: Path | None
    """Worked examples in the form of the data file; None takes the five shipped ones where the protocol needs any."""
    question_limit: int | None
    """Ask the first so many questions only; None asks all."""
    concurrency: int
    max_tokens: int
    floor: float
    max_truncated_share: float
    max_empty_share: float
    timeout_seconds: float
    """The longest that one answer may take."""
    twin: Path | None
    lock_digest: str
    boot_ids: tuple[str, ...]
    scored_by: ScoredBy
    twin_alpha: float = 0.05

    def __post_init__(self) -> None:
        assert min(self.concurrency, self.max_tokens, self.timeout_seconds) > 0
        assert self.boot_ids, "without boot ids a restarted engine could not void the gate"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the gate is."""

    asked: int
    total: int
    correct: int
    failed: int


@dataclass(frozen=True, slots=True)
class _Item:
    """One question, ready to be asked."""

    question: Question
    request: Request
    prompt_sha256: str


def run_gate(settings: GateSettings, out: Path, on_progress: Callable[[Progress], None]) -> Passed:
    """Ask the questions and return the proof that the answers are good enough; raises GateError with the reason if not.

    `on_progress` is called at every answer and at least once a second; what it raises ends the gate, the evidence kept.
    Called again for the same lock, processes and settings, it asks only what has no answer yet.
    """
    protocol = load_protocol(settings.protocol)
    items, shots, shots_file = _exam(settings, protocol)
    twin = None
    if settings.twin is not None:
        twin = load_twin(settings.twin, [(item.question.id, item.prompt_sha256) for item in items])
    header = _header(settings, items, shots, shots_file)
    answers = start_or_resume(out, header)
    if settings.twin is not None:  # kept beside the evidence, so that the verdict can be drawn again
        write_text(out / TWIN, settings.twin.read_text(encoding="utf-8"))
    missing = [item for item in items if item.question.id not in answers]
    try:
        _ask(settings, protocol, missing, answers, out, len(items), on_progress)
    except OSError as error:
        raise UsageError(f"cannot write the evidence: {error.strerror}", at=str(out / ANSWERS)) from error
    # Judged from the file, so that the verdict and a later reader see the very same answers.
    evidence = write_verdict(out, header, judge(read_answers(out / ANSWERS)[1], header.limits, twin))
    if not evidence.passed:
        fix = f"Each answer is in {out / ANSWERS}."
        raise GateError(evidence.words, at=str(out / VERDICT), fix=fix, code="PD212")
    return seal(evidence)


def _exam(settings: GateSettings, protocol: Protocol) -> tuple[list[_Item], int, Readable | None]:
    """What is asked, how many worked examples each question has, and the file that they come from."""
    questions = load_questions(settings.data, settings.data_sha256)
    limit = len(questions) if settings.question_limit is None else settings.question_limit
    if not 1 <= limit <= len(questions):
        raise RecipeError(f"{limit} questions are asked for, the file has {len(questions)}", at=str(settings.data))
    file: Readable | None = settings.shots
    if file is None and protocol.shots:
        file = shipped_file("shots.jsonl")
    draws = draw_shots(protocol, load_questions(file) if file else [], len(questions))
    items = []
    for question, shots in zip(questions[:limit], draws[:limit], strict=True):
        request = build_request(protocol, question, shots, model=settings.model, max_tokens=settings.max_tokens)
        items.append(_Item(question, request, request.sha256))
    return items, len(draws[0]), file


def _header(settings: GateSettings, items: Sequence[_Item], shots: int, shots_file: Readable | None) -> Header:
    asked = "\n".join(f"{item.question.sha256} {item.prompt_sha256}" for item in items)
    return Header(
        lock_digest=settings.lock_digest,
        boot_ids=tuple(sorted(settings.boot_ids)),
        model=settings.model,
        protocol=settings.protocol,
        max_tokens=settings.max_tokens,
        shots=shots,
        concurrency=settings.concurrency,
        data_sha256=sha256_of(settings.data),
        shots_sha256=sha256_of(shots_file) if shots_file else None,
        prompts_sha256=hashlib.sha256(asked.encode()).hexdigest(),
        twin_sha256=sha256_of(settings.twin) if settings.twin else None,
        limits=Limits(
            questions=len(items),
            floor=settings.floor,
            max_truncated_share=settings.max_truncated_share,
            max_empty_share=settings.max_empty_share,
            twin_alpha=settings.twin_alpha,
            scored_by=settings.scored_by,
        ),
    )


def _ask(
    settings: GateSettings,
    protocol: Protocol,
    missing: Sequence[_Item],
    answers: dict[str, Answer],
    out: Path,
    total: int,
    on_progress: Callable[[Progress], None],
) -> None:
    """Ask what is missing and append each answer to the evidence as it arrives."""
    failed = sum(answer.error is not None for answer in answers.values())
    correct = sum(answer.correct is True for answer in answers.values())
    on_progress(Progress(len(answers), total, correct, failed))
    if failed >= _MOST_FAILED:
        return
    replies = ask_all(
        settings.base_url,
        [item.request for item in missing],
        concurrency=settings.concurrency,
        timeout_seconds=settings.timeout_seconds,
    )
    with contextlib.closing(replies), (out / ANSWERS).open("ab", buffering=0) as stream:
        for arrived in replies:
            if arrived is not None:
                answer = _answer(missing[arrived[0]], arrived[1], protocol, settings.scored_by)
                _append(stream, answer)
                answers[answer.id] = answer
                failed += answer.error is not None
                correct += answer.correct is True
            on_progress(Progress(len(answers), total, correct, failed))
            if failed >= _MOST_FAILED:
                return


def _append(stream: io.FileIO, answer: Answer) -> None:
    line = memoryview(answer.model_dump_json().encode() + b"\n")
    while line:  # unbuffered: nothing of an answer stays in this process, and a full disk is seen at once
        line = line[stream.write(line) :]


def _answer(item: _Item, reply: Reply, protocol: Protocol, scored_by: ScoredBy) -> Answer:
    visible = visible_text(protocol, reply.text)
    good = reply.error is None
    strict = extract_strict(visible) if good else None
    flexible = extract_flexible(visible) if good else None
    gold = item.question.gold
    return Answer(
        id=item.question.id,
        question_sha256=item.question.sha256,
        prompt_sha256=item.prompt_sha256,
        text=reply.text,
        reasoning=reply.reasoning,
        strict=strict,
        flexible=flexible,
        gold=gold,
        correct=is_correct(strict if scored_by == "strict" else flexible, gold) if good else None,
        finish_reason=reply.finish_reason,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        seconds=reply.seconds,
        in_flight=reply.in_flight,
        http_status=reply.http_status,
        retried=reply.retried,
        empty=good and not visible.strip(),
        error=reply.error,
    )

"""The evidence of the accuracy gate on disk: one line per answer while it runs, then the verdict that rests on them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, JsonValue, ValidationError

from pdkit.errors import GateError
from pdkit.files import write_json, write_text
from pdkit.job.answers import Answer, Record, TwinAnswer
from pdkit.job.gsm8k import Readable
from pdkit.job.verdict import _SEAL, Limits, Passed, Verdict, judge

ANSWERS = "gate.jsonl"
VERDICT = "gate.json"
TWIN = "gate-twin.jsonl"

_H = TypeVar("_H", bound=Record)
_R = TypeVar("_R", bound=Record)


class Header(Record):
    """The first line of `gate.jsonl`: what the answers were asked of, and how. Equal headers, same gate."""

    kind: Literal["pdkit-gate"] = "pdkit-gate"
    version: Literal[1] = Field(1, alias="schema")
    lock_digest: str
    boot_ids: tuple[str, ...]
    """The engine processes, sorted."""
    model: str
    protocol: str
    max_tokens: int
    shots: int
    """Worked examples before each question."""
    concurrency: int
    data_sha256: str
    shots_sha256: str | None
    prompts_sha256: str
    """Digest over all that is asked, in order."""
    twin_sha256: str | None
    limits: Limits


class TwinHeader(Record):
    """The first line of a twin's file."""

    kind: Literal["pdkit-twin"] = "pdkit-twin"
    version: Literal[1] = Field(1, alias="schema")
    name: str
    model: str
    protocol: str
    max_tokens: int
    shots: int
    concurrency: int
    data_sha256: str
    shots_sha256: str | None
    strict_accuracy: float
    flexible_accuracy: float
    lock_digest: str
    gate_digest: str
    """The gate that these answers were taken from."""


class Evidence(Record):
    """The content of `gate.json`."""

    version: Literal[1] = Field(1, alias="schema")
    passed: bool
    words: str
    header: Header
    verdict: Verdict
    answers_sha256: str
    gate_digest: str = ""

    def digest(self) -> str:
        """Digest of everything but the digest itself."""
        text = json.dumps(self.model_dump(mode="json", exclude={"gate_digest"}), sort_keys=True)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def start_or_resume(out: Path, header: Header) -> dict[str, Answer]:
    """The answers that this very gate has already; evidence of any other gate is set aside, never mixed."""
    file = out / ANSWERS
    if file.exists():
        # A process that was killed while it wrote leaves half a line, which never counted as an answer.
        content = file.read_bytes()
        os.truncate(file, content.rfind(b"\n") + 1)
        found, answers = read_answers(file)
        if found == header:
            return {answer.id: answer for answer in answers}
        _set_aside(out)
    write_text(file, header.model_dump_json(by_alias=True) + "\n")
    return {}


def _set_aside(out: Path) -> None:
    number = 1
    while (out / _aside(ANSWERS, number)).exists():
        number += 1
    for name in (VERDICT, TWIN, ANSWERS):  # the verdict first: it must never stand beside answers that are not its own
        if (out / name).exists():
            (out / name).rename(out / _aside(name, number))


def _aside(name: str, number: int) -> str:
    """The name of a gate's file: 0 is the gate of now, 1 and up are those set aside."""
    return f"{Path(name).stem}.{number}{Path(name).suffix}" if number else name


def _read_lines(file: Path, head: type[_H], line_type: type[_R]) -> tuple[_H, list[_R]]:
    """Read a file of a header line and records; any bad line is an error with its place."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise GateError(f"cannot read the evidence: {error.strerror}", at=str(file)) from error
    header = _parse(head, lines[0] if lines else b"", f"{file}:1:1")
    return header, [_parse(line_type, line, f"{file}:{number}:1") for number, line in enumerate(lines[1:], start=2)]


def _parse(model: type[_R], line: bytes, at: str) -> _R:
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        message = " ".join([*map(str, first["loc"]), first["msg"]])
        fix = "Move the file away and run the gate again."
        raise GateError(f"this line is not evidence: {message}", at=at, fix=fix) from error


def read_answers(file: Path) -> tuple[Header, list[Answer]]:
    """Read `gate.jsonl`."""
    header, answers = _read_lines(file, Header, Answer)
    if len({answer.id for answer in answers}) != len(answers):
        raise GateError("a question was answered twice", at=str(file), fix="Remove the file and run the gate again.")
    return header, answers


def read_twin(file: Path) -> tuple[TwinHeader, dict[str, TwinAnswer]]:
    """Read the stored answers of a twin, by question id."""
    header, answers = _read_lines(file, TwinHeader, TwinAnswer)
    return header, {answer.id: answer for answer in answers}


def sha256_of(file: Readable) -> str:
    """Digest of a file's bytes."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def write_verdict(out: Path, header: Header, verdict: Verdict) -> Evidence:
    """Write `gate.json` over the answers that are on disk now."""
    evidence = Evidence(
        passed=verdict.passed,
        words=verdict.words,
        header=header,
        verdict=verdict,
        answers_sha256=sha256_of(out / ANSWERS),
    )
    sealed = evidence.model_copy(update={"gate_digest": evidence.digest()})
    value: JsonValue = sealed.model_dump(mode="json", by_alias=True)
    write_json(out / VERDICT, value)
    return sealed


def read_passed(out: Path, *, lock_digest: str, boot_ids: Sequence[str]) -> Passed:
    """The proof in a run folder: its evidence judged again, and found to be of this lock and these processes."""
    passed = _read_passed(out, 0)
    passed.check(lock_digest=lock_digest, boot_ids=boot_ids)
    return passed


def read_verdict(file: Path) -> Evidence:
    """What a gate.json says, not judged."""
    try:
        return Evidence.model_validate_json(file.read_bytes())
    except OSError as error:
        raise GateError("the gate has not passed here", at=str(file), fix="Run the gate first.") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise GateError(f"this is not a verdict of the gate: {key}: {first['msg']}", at=str(file)) from error


def passed_gates(out: Path, *, lock_digest: str) -> tuple[dict[str, Passed], str]:
    """Every gate of this lock that passed in a run folder by its digest, those set aside too; each is judged again.

    Also says what is wrong with the newest one; empty when nothing is.
    """
    found, wrong, number = {}, "", 0
    while number == 0 or (out / _aside(ANSWERS, number)).exists():
        try:
            passed = _read_passed(out, number)
            passed.check(lock_digest=lock_digest, boot_ids=passed.boot_ids)
            found[passed.gate_digest] = passed
        except GateError as error:
            wrong = wrong if number else error.message
        number += 1
    return found, wrong


def _read_passed(out: Path, number: int) -> Passed:
    file, lines = out / _aside(VERDICT, number), out / _aside(ANSWERS, number)
    evidence = read_verdict(file)
    if not evidence.passed:
        raise GateError(f"the gate failed: {evidence.words}", at=str(file))
    if evidence.digest() != evidence.gate_digest or _sha256_here(lines) != evidence.answers_sha256:
        raise GateError("the evidence was changed after the verdict", at=str(file), fix="Run the gate again.")
    header, answers = read_answers(lines)
    twin = _twin_of(out / _aside(TWIN, number), header)
    if header != evidence.header or judge(answers, header.limits, twin) != evidence.verdict:
        raise GateError("the verdict does not follow from the answers", at=str(file), fix="Run the gate again.")
    return seal(evidence)


def _sha256_here(file: Path) -> str:
    """The digest of a file; of none at all it is empty."""
    return sha256_of(file) if file.is_file() else ""


def _twin_of(file: Path, header: Header) -> Mapping[str, TwinAnswer] | None:
    if header.twin_sha256 is None:
        return None
    if not file.exists() or sha256_of(file) != header.twin_sha256:
        raise GateError("the twin's answers are not those that were compared with", at=str(file))
    return read_twin(file)[1]


def seal(evidence: Evidence) -> Passed:
    """Turn a passing verdict that is on disk into the proof of it; for the gate alone."""
    if not evidence.passed:
        raise GateError(f"the gate failed: {evidence.words}")
    return Passed(
        lock_digest=evidence.header.lock_digest,
        boot_ids=evidence.header.boot_ids,
        gate_digest=evidence.gate_digest,
        accuracy=evidence.verdict.accuracy,
        seal=_SEAL,
    )

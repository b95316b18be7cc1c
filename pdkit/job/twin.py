"""The aggregated twin: storing its answers, and comparing with them only what was asked in the very same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pdkit.errors import GateError, RecipeError
from pdkit.files import write_text
from pdkit.job.answers import TwinAnswer
from pdkit.job.evidence import ANSWERS, VERDICT, Evidence, TwinHeader, read_answers, read_passed, read_twin
from pdkit.job.verdict import Passed


def record_twin(out: Path, passed: Passed, target: Path, name: str) -> Path:
    """Store the answers of the gate that passed in `out` as those of the twin `name`, without anybody's texts."""
    again = read_passed(out, lock_digest=passed.lock_digest, boot_ids=passed.boot_ids)
    if again.gate_digest != passed.gate_digest:
        raise GateError("this folder holds another gate than the one that passed", at=str(out / VERDICT))
    verdict = Evidence.model_validate_json((out / VERDICT).read_bytes()).verdict
    header, answers = read_answers(out / ANSWERS)
    head = TwinHeader(
        name=name,
        strict_accuracy=verdict.strict_accuracy,
        flexible_accuracy=verdict.flexible_accuracy,
        gate_digest=passed.gate_digest,
        **{key: getattr(header, key) for key in TwinHeader.model_fields if key in _SHARED},
    )
    kept = set(TwinAnswer.model_fields)
    lines = [answer.model_dump_json(include=kept) for answer in sorted(answers, key=lambda answer: answer.id)]
    write_text(target, "\n".join([head.model_dump_json(by_alias=True), *lines]) + "\n")
    return target


_SHARED = ("model", "protocol", "max_tokens", "shots", "concurrency", "data_sha256", "shots_sha256", "lock_digest")


def load_twin(file: Path, asked: Sequence[tuple[str, str]]) -> Mapping[str, TwinAnswer]:
    """The twin's answers, checked to be to the very same requests; `asked` holds question ids and prompt digests."""
    try:
        header, answers = read_twin(file)
    except GateError as error:
        raise RecipeError(f"cannot use this twin: {error.message}", at=error.at) from error
    how = f"{header.protocol}, {header.shots} examples, at most {header.max_tokens} tokens"
    for question, prompt_sha256 in asked:
        if question not in answers:
            raise RecipeError(
                f"twin {header.name} has no answer to question {question}: it was asked {len(answers)} questions",
                at=str(file),
                fix="Record the twin over at least the questions that this gate asks.",
            )
        if answers[question].prompt_sha256 != prompt_sha256:
            raise RecipeError(
                f"twin {header.name} was asked question {question} in another way ({how}); nothing can be concluded",
                at=str(file),
                fix="Use the same data, examples, protocol and token limit as the twin, or record the twin again.",
            )
    return answers

"""The records of one answer: what came back for a question here, and what the twin answered to it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator

from pdkit.job.gsm8k import is_correct

ScoredBy = Literal["strict", "flexible"]
"""Which of the two extracted answers counts."""


class Record(BaseModel):
    """A line or a part of an evidence file."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Answer(Record):
    """What came back for one question: an answer, or the error of its request."""

    id: str
    question_sha256: str
    prompt_sha256: str
    """Digest of everything that was asked, the served model's name apart: equal digests were asked in the same way."""
    text: str
    reasoning: str
    """The thinking, where the server separates it."""
    strict: str | None
    flexible: str | None
    gold: str
    correct: bool | None
    """By the filter that the gate scores with; None for a failed request, which is never a wrong answer."""
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    seconds: float
    in_flight: int
    """Requests under way, this one included, when it was sent."""
    http_status: int | None
    retried: bool
    """The first connection was refused before a byte was sent, and the request was sent once more."""
    empty: bool
    """Nothing is left of the answer to score."""
    error: str | None

    @model_validator(mode="after")
    def _either_correct_or_error(self) -> Answer:
        if (self.correct is None) != (self.error is not None):
            raise ValueError("an answer is either scored or an error")
        return self

    @property
    def truncated(self) -> bool:
        """The answer was cut by the token limit."""
        return self.finish_reason == "length"


class TwinAnswer(Record):
    """What the aggregated twin answered to one question."""

    id: str
    question_sha256: str
    prompt_sha256: str
    strict: str | None
    flexible: str | None
    gold: str

    def correct(self, scored_by: ScoredBy) -> bool:
        """Whether the twin was right, by that filter."""
        return is_correct(self.strict if scored_by == "strict" else self.flexible, self.gold)

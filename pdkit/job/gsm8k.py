"""GSM8K: the questions of a file, the request that asks one, and what counts as its answer."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal
from typing import Protocol as Shape

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pdkit.errors import RecipeError
from pdkit.paths import shipped

# The two filters and the four normalisations of lm-eval's task gsm8k, so that a score here is a score there.
_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_IGNORED = (re.compile(","), re.compile(r"\$"), re.compile(r"(?s).*#### "), re.compile(r"\.$"))
_PLACE = re.compile(r"\{(question|answer)\}")
_THINK_START = "<think>"


class Readable(Shape):
    """A file, on disk or inside the zip that a job runs from."""

    def read_bytes(self) -> bytes:
        """The content."""
        ...


def shipped_file(name: str) -> Readable:
    """A file of the folder `accuracy`: in a checkout, in a wheel, and in the zip that a job runs from."""
    packed = resources.files("pdkit") / "_shipped" / "accuracy" / name
    return packed if packed.is_file() else shipped("accuracy") / name


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DataFile(_Frozen):
    """A public file that is fetched by the user and known by its digest."""

    name: str
    url: str
    sha256: str
    lines: int


class Protocol(_Frozen):
    """One way to ask the questions, with every parameter that can change a score."""

    endpoint: Literal["completions", "chat"]
    source: str
    """Where the protocol comes from."""
    shots: int
    """Worked examples before each question."""
    shots_seed: int
    """Seed of the draw when the pool holds more examples than `shots`."""
    example: str
    prompt: str
    stop: tuple[str, ...]
    seed: int
    think_end: str | None
    """What ends the thinking inside the text when the server does not separate it; only what follows is scored."""
    max_tokens: int
    """The limit that the source uses; a recipe may set another one."""


class Accuracy(_Frozen):
    """The content of `accuracy/gsm8k.yaml`."""

    version: Literal[1] = Field(alias="schema")
    data: dict[str, DataFile]
    protocols: dict[str, Protocol]


@dataclass(frozen=True, slots=True)
class Question:
    """One line of a data file."""

    number: int
    """Line number in its file, from 1."""
    question: str
    answer: str

    @property
    def id(self) -> str:
        """The name of the question in evidence files."""
        return f"q{self.number:04d}"

    @property
    def gold(self) -> str:
        """The right answer, normalised."""
        return normalise(self.answer)

    @property
    def sha256(self) -> str:
        """Digest of the question and its answer."""
        return hashlib.sha256(f"{self.question}\n{self.answer}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request that asks one question."""

    path: str
    body: dict[str, Any]

    @property
    def sha256(self) -> str:
        """Digest of everything that is asked, the served model's name apart."""
        asked = {key: value for key, value in self.body.items() if key != "model"}
        return hashlib.sha256(json.dumps([self.path, asked], sort_keys=True).encode()).hexdigest()


def load_accuracy(path: Path | None = None) -> Accuracy:
    """Read `accuracy/gsm8k.yaml`, the shipped one unless another is named."""
    file = path or shipped_file("gsm8k.yaml")
    try:
        return Accuracy.model_validate(yaml.safe_load(file.read_bytes()))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise RecipeError(f"cannot read the accuracy protocols: {error}", at=str(file)) from error


def load_protocol(name: str) -> Protocol:
    """The shipped protocol of that name."""
    protocols = load_accuracy().protocols
    if name not in protocols:
        raise RecipeError(f"there is no accuracy protocol {name!r}", fix=f"Use one of: {', '.join(protocols)}.")
    return protocols[name]


def load_questions(path: Readable, sha256: str | None = None) -> list[Question]:
    """Read a data file of `{"question", "answer"}` lines, checked against its digest when one is given."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecipeError(f"cannot read the questions: {error.strerror}", at=str(path)) from error
    found = hashlib.sha256(content).hexdigest()
    if sha256 is not None and found != sha256:
        raise RecipeError(
            f"this is not the data set that was asked for: sha256 is {found}, expected {sha256}",
            at=str(path),
            fix="Fetch the file again, or name the digest of the file that is meant.",
        )
    lines = content.splitlines()
    if not lines:
        raise RecipeError("the file holds no questions", at=str(path))
    return [_question(line, number, f"{path}:{number}:1") for number, line in enumerate(lines, start=1)]


def _question(line: bytes, number: int, at: str) -> Question:
    form = 'Each line must be an object with "question" and "answer", and the answer must end with "#### NUMBER".'
    try:
        row = json.loads(line)
    except ValueError as error:
        raise RecipeError(f"this line is not JSON: {error}", at=at, fix=form) from error
    if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("question", "answer")):
        raise RecipeError("this line has no question and answer", at=at, fix=form)
    if extract_strict(row["answer"]) is None:
        raise RecipeError('the answer has no "#### NUMBER"', at=at, fix=form)
    return Question(number, row["question"], row["answer"])


def draw_shots(protocol: Protocol, pool: Sequence[Question], questions: int) -> list[tuple[Question, ...]]:
    """The worked examples of each question, in order.

    A pool no larger than the protocol's number is used whole, in its order, for every question. From a larger one each
    question draws its own, as lm-eval does: one generator for the whole file, so that the draw depends on the position
    of a question only.
    """
    if not protocol.shots:
        if pool:
            raise RecipeError("this protocol asks without worked examples, but a file of them is given")
        return [()] * questions
    if not pool:
        raise RecipeError("this protocol needs worked examples, and none are given")
    if len(pool) <= protocol.shots:
        return [tuple(pool)] * questions
    draw = random.Random(protocol.shots_seed)  # noqa: S311 - the very generator that lm-eval uses
    return [tuple(draw.sample(pool, protocol.shots)) for _ in range(questions)]


def build_request(
    protocol: Protocol, question: Question, shots: Sequence[Question], *, model: str, max_tokens: int
) -> Request:
    """The greedy request that asks one question."""
    examples = "".join(_fill(protocol.example, shot) for shot in shots)
    prompt = examples + _fill(protocol.prompt, question)
    body: dict[str, Any] = {"model": model, "temperature": 0, "max_tokens": max_tokens, "seed": protocol.seed}
    if protocol.stop:
        body["stop"] = list(protocol.stop)
    if protocol.endpoint == "completions":
        return Request("/v1/completions", body | {"prompt": prompt})
    return Request("/v1/chat/completions", body | {"messages": [{"role": "user", "content": prompt}]})


def _fill(template: str, question: Question) -> str:
    # In one pass, so that a question which happens to hold "{answer}" stays what it is.
    return _PLACE.sub(lambda place: question.question if place.group(1) == "question" else question.answer, template)


def visible_text(protocol: Protocol, text: str) -> str:
    """The part of an answer that is scored: without the thinking, where the server left it inside the text."""
    if protocol.think_end is None:
        return text
    if protocol.think_end in text:
        return text.rsplit(protocol.think_end, 1)[1].lstrip()
    return "" if text.lstrip().startswith(_THINK_START) else text


def extract_strict(text: str) -> str | None:
    """The number after the first `#### `, as lm-eval's filter strict-match; None where lm-eval says [invalid]."""
    found = _STRICT.search(text)
    return found.group(1) if found else None


def extract_flexible(text: str) -> str | None:
    """The last number of the text, as lm-eval's filter flexible-extract; None where lm-eval says [invalid]."""
    found = [match.group(0) for match in _FLEXIBLE.finditer(text)]
    return found[-1] if found else None


def normalise(text: str) -> str:
    """What lm-eval's exact_match compares: no commas, dollars, final full stop, nor anything up to the last `#### `."""
    for ignored in _IGNORED:
        text = ignored.sub("", text)
    return text.lower()


def is_correct(extracted: str | None, gold: str) -> bool:
    """Whether an extracted answer equals the right one (already normalised)."""
    return extracted is not None and normalise(extracted) == gold

"""A point: one measured concurrency, with everything needed to judge it, and its file in the run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pdkit.errors import UsageError
from pdkit.files import write_json


class Record(BaseModel):
    """Base of what is written down: frozen, and an unknown key is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, populate_by_name=True, hide_input_in_errors=True
    )


class Latency(Record):
    """A latency in milliseconds."""

    mean_ms: float
    """Mean."""
    p50_ms: float
    """Median."""
    p90_ms: float
    """90th percentile."""
    p99_ms: float
    """99th percentile."""


class Acceptance(Record):
    """How well the MTP head guessed."""

    rate: float
    """Accepted drafted tokens / drafted tokens."""
    length: float
    """Tokens per decoding step: 1 + accepted tokens / drafts."""
    source: Literal["load tool", "engine counters"]
    """Who counted; the engines' counters include the warm-up wave."""


class Spread(Record):
    """What repeated measurements of the same point gave."""

    output_tok_s: tuple[float, ...]
    """Output tokens per second of each repeat."""
    tpot_mean_ms: tuple[float, ...]
    """Mean TPOT of each repeat that has one."""
    output_tok_s_relative: float
    """(largest - smallest) / median of the output tokens per second."""


class Point(Record):
    """One concurrency, measured. With repeats, the figures are those of the repeat with the median output tok/s."""

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    """Version of this format."""
    concurrency: int
    """Requests that the client keeps in flight over the whole deployment."""
    valid: bool
    """False when the figures must not be used; the reasons say why."""
    invalid_reasons: tuple[str, ...] = ()
    """Why the point is invalid, one sentence each."""
    notes: tuple[str, ...] = ()
    """What a reader must know to compare the point with others."""
    rehearsal: bool = False
    """Played engines answered: the figures are of pdkit's own stand-ins and say nothing about performance."""
    random_tokens_with_mtp: bool
    """MTP ran on random tokens: its acceptance, and so tok/s/user, says little about real text."""

    isl_asked: int
    """Input sequence length asked for, in tokens, before the chat template."""
    osl_asked: int
    """Output sequence length asked for, in tokens."""
    isl_measured: float
    """Mean prompt tokens that the server counted."""
    osl_measured: float
    """Mean generated tokens that the server counted."""
    requests: int
    """Requests asked for."""
    completed: int
    """Requests answered with at least one token."""
    errors: int
    """Requests that failed or were answered without a token."""
    duration_seconds: float
    """First request sent to last token received."""
    in_flight_mean: float
    """Mean number of requests in flight."""
    in_flight_peak: int
    """Largest number of requests in flight at once."""

    total_tok_s: float
    """Prompt and generated tokens per second."""
    output_tok_s: float
    """Generated tokens per second."""
    gpus: int
    """GPUs that the deployment holds: the divisor of the figures per GPU."""
    gpus_by_role: dict[str, int]
    """GPUs of each role: the divisors of the figures per role."""
    total_tok_s_gpu: float
    """Total tokens per second / all GPUs held."""
    output_tok_s_gpu: float
    """Generated tokens per second / all GPUs held."""
    total_tok_s_gpu_by_role: dict[str, float]
    """Total tokens per second / GPUs of the role."""
    output_tok_s_gpu_by_role: dict[str, float]
    """Generated tokens per second / GPUs of the role."""

    tok_s_user_mean: float | None
    """1000 / mean TPOT."""
    tok_s_user_median: float | None
    """1000 / median TPOT."""
    tok_s_user_p90: float | None
    """1000 / p90 TPOT, the interactivity of MLPerf Endpoints."""
    ttft: Latency | None
    """Time to first token."""
    tpot: Latency | None
    """Time per output token after the first."""
    itl: Latency | None
    """Gap between two chunks."""
    e2e: Latency | None
    """Whole request."""
    acceptance: Acceptance | None
    """MTP acceptance, where MTP ran and it could be read."""
    spread: Spread
    """The repeats."""
    client_core_share: float | None
    """Share of one core that the client's busiest thread used while measuring; 1 means that it was the limit."""

    tool: str
    """Load tool."""
    tool_version: str
    """Version of the load tool."""
    gate_digest: str
    """Digest of the gate that this point stands on."""
    lock_digest: str
    """Digest of the run's lock file."""
    boot_ids: tuple[str, ...]
    """Boot ids of the engine processes that answered."""

    @model_validator(mode="after")
    def _valid_means_without_reasons(self) -> Point:
        if self.valid == bool(self.invalid_reasons):
            raise ValueError("a point is valid exactly when it has no invalid_reasons")
        return self


def voided(point: Point, doubts: Mapping[int, str]) -> Point:
    """The point, invalid when there is a doubt about its concurrency."""
    if point.concurrency not in doubts:
        return point
    reasons = (*point.invalid_reasons, doubts[point.concurrency])
    return point.model_copy(update={"valid": False, "invalid_reasons": reasons})


def point_file(run: Path, concurrency: int) -> Path:
    """The file of one concurrency in a run folder."""
    return run / "points" / f"c{concurrency:04d}.json"


def write_point(run: Path, point: Point) -> Path:
    """Write a point into its run folder, atomically, and return its file."""
    path = point_file(run, point.concurrency)
    write_json(path, point.model_dump(mode="json", by_alias=True))
    return path


def read_point(path: Path) -> Point:
    """Read one point file."""
    try:
        return Point.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(
            f"this is not a point: {key}: {first['msg']}",
            at=str(path),
            fix="measure this point again, or take the file out of points/",
        ) from None


def read_points(run: Path) -> tuple[Point, ...]:
    """All points of a run, by concurrency."""
    found = {path: read_point(path) for path in (run / "points").glob("c*.json")}
    for path, point in found.items():
        if path != point_file(run, point.concurrency):
            message = f"this file holds concurrency {point.concurrency}, its name tells another one"
            raise UsageError(message, at=str(path), fix="take the file out of points/, or give it its name back")
    return tuple(sorted(found.values(), key=lambda point: point.concurrency))


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; an error with line and column when it is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UsageError(f"this is not JSON: {error.msg}", at=f"{path}:{error.lineno}:{error.colno}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"this is not JSON: byte {error.start} is not UTF-8", at=str(path)) from None
    if not isinstance(value, dict):
        raise UsageError("this must be a JSON object", at=str(path))
    return value

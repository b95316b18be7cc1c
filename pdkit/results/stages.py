"""The parts of the earlier stages' files that the report reads; keys that it does not use are their own affair."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from pdkit.errors import UsageError


class _Stage(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


StageT = TypeVar("StageT", bound=_Stage)


class EngineReady(_Stage):
    """What one rank of a running engine said about itself; 0 where it said nothing."""

    role: str
    block_size: int = 0
    kv_blocks: int = 0
    max_concurrency: float = 0.0


class Check(_Stage):
    """One thing that was proved before the deployment counted as ready, or not."""

    name: str
    ok: bool
    expected: str
    seen: str
    engine: str = ""
    code: str = ""


class Ready(_Stage):
    """`ready.json`."""

    engines: tuple[EngineReady, ...] = ()
    checks: tuple[Check, ...] = ()
    message: str = ""


class GateLimits(_Stage):
    """What the answers had to keep to."""

    questions: int
    floor: float
    scored_by: str


class GateHeader(_Stage):
    """How the questions were asked."""

    protocol: str
    concurrency: int
    max_tokens: int
    limits: GateLimits


class GateTwin(_Stage):
    """The paired test against the aggregated twin."""

    pairs: int
    twin_accuracy: float
    lost: int
    gained: int
    p_drop: float


class GateVerdict(_Stage):
    """What was counted."""

    answered: int
    correct: int
    accuracy: float
    wilson_low: float
    wilson_high: float
    truncated: int
    empty: int
    failed: int
    twin: GateTwin | None = None


class Gate(_Stage):
    """`gate.json`."""

    passed: bool
    words: str
    header: GateHeader
    verdict: GateVerdict
    gate_digest: str


class Lock(_Stage):
    """`lock.json`."""

    digest: str
    pdkit: str = ""
    image: str | None = None
    engine: dict[str, str] = {}
    rehearsal: str | None = None


class Result(_Stage):
    """`result.json`."""

    message: str = ""


def read_stage(path: Path, model: type[StageT]) -> StageT | None:
    """Read one stage's file; None when the run did not come so far."""
    if not path.exists():
        return None
    try:
        return model.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{key}{': ' if key else ''}{first['msg']}", at=str(path)) from None

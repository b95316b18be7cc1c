"""Whether the points of a run folder may be believed: each must follow from its lock, its gate and its trace."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import yaml

from pdkit.errors import MeasurementError
from pdkit.job.deployment import read_deployment
from pdkit.job.evidence import passed_gates
from pdkit.job.load_judge import reasons_against
from pdkit.job.load_point import Repeat, make_point
from pdkit.job.load_settings import LoadSettings
from pdkit.job.load_tools import artifacts_folder, read_artifacts
from pdkit.job.settings import load_settings
from pdkit.job.verdict import Passed
from pdkit.results.points import Point, read_points

_TOLD = ("notes", "tool_version")
"""What a point says in words; another version of pdkit may put it in others."""


def doubts(run: Path) -> dict[int, str]:
    """Why the points that call themselves valid must not be used, by concurrency; empty when all may.

    A point counts when its run folder is as it was rendered, when the answers of the gate that it names pass once more,
    and when its figures are those of the trace that the load tool left.
    """
    points = [point for point in read_points(run) if point.valid]
    if not points:
        return {}
    try:
        wrong = changed(run)
        deployment = read_deployment(run, lambda _node: "localhost")
    except (OSError, ValueError, KeyError, yaml.YAMLError) as error:
        wrong = f"its recipe, plan and lock cannot be read: {str(error).splitlines()[0]}"
    if wrong:
        return {point.concurrency: wrong for point in points}
    gates, why = passed_gates(run, lock_digest=deployment.lock_digest)
    settings = load_settings(deployment)
    found = {point.concurrency: _doubt(point, gates, why, settings, run) for point in points}
    return {concurrency: doubt for concurrency, doubt in found.items() if doubt}


def changed(run: Path) -> str:
    """How a run folder differs from what was rendered, by its lock; empty when it does not."""
    lock = json.loads((run / "lock.json").read_text(encoding="utf-8"))
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    locked = {key: value for key, value in lock.items() if key != "digest"}
    if lock["digest"] != _sha256(json.dumps(locked, sort_keys=True).encode()):
        return "lock.json was changed: its digest is another one"
    if lock["recipe"] != _sha256((run / "recipe.yaml").read_bytes()) or lock["plan"] != plan["digest"]:
        return "recipe.yaml or plan.json is not the one that lock.json was written for"
    return ""


def _sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _doubt(point: Point, gates: dict[str, Passed], why: str, settings: LoadSettings, run: Path) -> str:
    """Why a point must not be used; empty when it may."""
    passed = gates.get(point.gate_digest)
    if passed is None:
        return "no gate that passed in this run stands behind it" + (f": {why}" if why else "")
    if point.concurrency not in settings.concurrency:
        return "the recipe asks for no such concurrency"
    try:
        repeats = [_repeat(point, number, settings, run) for number in range(1, settings.repeats + 1)]
    except MeasurementError as error:
        return f"its trace cannot be read: {error.message} ({error.at})"
    again = make_point(settings, passed, point.concurrency, repeats)
    if again.invalid_reasons:
        return f"its trace says otherwise: {again.invalid_reasons[0]}"
    seen, due = point.model_dump(exclude=set(_TOLD)), again.model_dump(exclude=set(_TOLD))
    changed = [name for name, value in due.items() if not _same(seen[name], value)]
    return f"it does not follow from its trace and its gate: {', '.join(changed)}" if changed else ""


def _repeat(point: Point, number: int, settings: LoadSettings, run: Path) -> Repeat:
    """One run of the load tool as its artifacts tell it; what they cannot tell is taken from the point."""
    measured = read_artifacts(settings, artifacts_folder(run, point.concurrency, number))
    return Repeat(
        measured=measured,
        reasons=reasons_against(settings, point.concurrency, measured, point.client_core_share),
        core_share=point.client_core_share,
        acceptance=measured.acceptance or point.acceptance,
    )


def _same(one: Any, other: Any) -> bool:
    """Equal, the last digits of a float apart: Pythons differ in how they add."""
    if isinstance(one, float) and isinstance(other, (float, int)):
        return math.isclose(one, other, rel_tol=1e-9)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)

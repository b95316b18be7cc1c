"""A run folder as the report reads it: every stage's file, as far as the run came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdkit.errors import UsageError
from pdkit.results.points import Point, read_json, read_points
from pdkit.results.stages import Gate, Lock, Ready, Result, read_stage

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What is in a run folder. A stage that did not happen has no file and is None here."""

    folder: Path
    plan: Json
    lock: Lock | None
    ready: Ready | None
    gate: Gate | None
    result: Result | None
    points: tuple[Point, ...]

    @property
    def name(self) -> str:
        """The recipe's name."""
        return str(self.plan.get("recipe", self.folder.name))

    @property
    def valid_points(self) -> tuple[Point, ...]:
        """The points whose figures may be used; a rehearsal has none."""
        return tuple(point for point in self.points if point.valid and not point.rehearsal and not self.rehearsal)

    @property
    def rehearsal(self) -> bool:
        """Whether played engines took the place of the real ones."""
        return self.lock is not None and self.lock.rehearsal is not None

    @property
    def started(self) -> bool:
        """Whether anything of it has run."""
        return bool(self.ready or self.gate or self.result) or (self.folder / "events.jsonl").exists()

    def roles(self) -> dict[str, Json]:
        """The planned roles by name."""
        return dict(self.plan.get("roles", {}))

    def findings(self) -> list[Json]:
        """What the rules found in the plan before launch, what the recipe accepts included."""
        return list(self.plan.get("findings", ()))

    def configuration(self) -> str:
        """How the model is split, in one line: `2x TP4DP2+EP > TEP8, MTP 3`."""
        parts = []
        for role in self.roles().values():
            endpoints = role.get("endpoints", 1)
            parts.append(f"{endpoints}x {role['topology']}" if endpoints > 1 else str(role["topology"]))
        mtp = max((role.get("mtp", 0) for role in self.roles().values()), default=0)
        return " \N{RIGHTWARDS ARROW} ".join(parts) + (f", MTP {mtp}" if mtp else "")


def read_run(folder: Path) -> RunRecord:
    """Read a run folder. Only `plan.json` must be there; any file that is there must be right."""
    if not folder.is_dir():
        raise UsageError("there is no such run folder", at=str(folder))
    plan = folder / "plan.json"
    if not plan.exists():
        raise UsageError("this is not a run folder: it has no plan.json", at=str(folder))
    return RunRecord(
        folder=folder,
        plan=read_json(plan),
        lock=read_stage(folder / "lock.json", Lock),
        ready=read_stage(folder / "ready.json", Ready),
        gate=read_stage(folder / "gate.json", Gate),
        result=read_stage(folder / "result.json", Result),
        points=read_points(folder),
    )


def readable(folders: Sequence[Path]) -> tuple[list[Path], list[UsageError]]:
    """The run folders that can be read, and what is wrong with each other one."""
    found = {folder: _fault(folder) for folder in folders}
    return [folder for folder, fault in found.items() if not fault], [fault for fault in found.values() if fault]


def _fault(folder: Path) -> UsageError | None:
    try:
        read_run(folder)
    except UsageError as fault:
        return fault
    except OSError as error:
        return UsageError(f"this cannot be read: {error.strerror}", at=str(error.filename))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A run among others: its name there, and its style in every figure and table."""

    run: RunRecord
    label: str
    style: int


def configurations(records: Sequence[RunRecord]) -> list[Configuration]:
    """A name and a style for each run: the recipe's name, where two have the same the folder's, else its path."""
    names = Counter(record.name for record in records)
    folders = Counter(record.folder.resolve().name for record in records)
    labels = [_label(record, names, folders) for record in records]
    twice = [label for label, count in Counter(labels).items() if count > 1]
    if twice:
        raise UsageError(f"this run is named {labels.count(twice[0])} times", at=twice[0], fix="name it once")
    # Runs with points come first, so that the best readable colours are not spent on runs without a curve.
    order = sorted(range(len(records)), key=lambda n: not records[n].valid_points)
    styles = {n: style for style, n in enumerate(order)}
    return [Configuration(run=record, label=labels[n], style=styles[n]) for n, record in enumerate(records)]


def _label(record: RunRecord, names: Counter[str], folders: Counter[str]) -> str:
    if names[record.name] == 1:
        return record.name
    folder = record.folder.resolve()
    return folder.name if folders[folder.name] == 1 else str(folder)

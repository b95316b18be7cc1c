"""From the events of a run to the stage it is in, how far that is, and when it will be over where that can be told."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

Event = dict[str, Any]
Json = dict[str, Any]

_ASKED = re.compile(r"(\d+)/(\d+)")
_POINT = re.compile(r"concurrency (\d+): (.*)")


@dataclass(frozen=True, slots=True)
class Eta:
    """When something will be reached."""

    of: str
    """`start`, `ready`, `gate` or `end`."""
    seconds: float
    """From now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run is."""

    stage: str
    note: str = ""
    points: tuple[int, int] = (0, 0)
    eta: Eta | None = None


def seconds_of(time: str) -> float:
    """Seconds since the epoch of an event's time."""
    return dt.datetime.fromisoformat(time).timestamp()


def attempt_of(events: Sequence[Event], job: str | None) -> list[Event]:
    """The events since the newest attempt began: the job, or without one the launch on this machine.

    Empty when the newest job has not begun.
    """
    begins = [index for index, event in enumerate(events) if event["event"] in ("job", "launched")]
    if not begins:
        return [] if job else list(events)
    newest = events[begins[-1]]
    return list(events[begins[-1] :]) if newest.get("job") == job else []


def progress_of(attempt: Sequence[Event], plan: Json, measured: int, now: float) -> Progress:
    """The stage of one attempt; `measured` points of the run are valid already."""
    points = (measured, len(plan["workload"]["concurrency"]))
    stages = [index for index, event in enumerate(attempt) if event["event"] == "stage"]
    since = attempt[stages[-1] :] if stages else attempt
    view = _View(since, attempt, plan, now)
    name = str(since[0]["stage"]) if stages else ("starting" if attempt else "queued")
    look = _LOOKS.get(name, _other)
    return replace(look(view, name), points=points)


@dataclass(frozen=True, slots=True)
class _View:
    """The events that a stage is told by."""

    since: Sequence[Event]
    """From the beginning of the stage."""
    attempt: Sequence[Event]
    plan: Json
    now: float

    def has(self, event: str) -> bool:
        return any(one["event"] == event for one in self.since)

    def note(self) -> str:
        """The last progress that was told."""
        return next((str(event["note"]) for event in reversed(self.since) if event["event"] == "progress"), "")

    def endpoints(self, missing: set[str]) -> str:
        """`3/4 endpoints`: those of which no process is missing, and all."""
        processes = self.plan["placement"]
        everything = {(process["role"], process["endpoint"]) for process in processes}
        lacking = {(process["role"], process["endpoint"]) for process in processes if process["name"] in missing}
        return f"{len(everything - lacking)}/{len(everything)} endpoints"

    def engines(self) -> set[str]:
        return {process["name"] for process in self.plan["placement"]}

    def ready_eta(self) -> Eta | None:
        """By the plan's estimate of the start-up; nothing once that has passed."""
        if "cost" not in self.plan:  # rendered by a pdkit that did not estimate it
            return None
        left = self.plan["cost"]["startup_minutes"] * 60 - (self.now - seconds_of(self.attempt[0]["time"]))
        return Eta("ready", left) if left > 0 else None


def _other(view: _View, name: str) -> Progress:
    return Progress(stage=name, note=view.note())


def _starting(view: _View, _name: str) -> Progress:
    """The nodes are looked at until the first engine starts; the driver then tells which of them is there."""
    started = {event["step"] for event in view.attempt if event["event"] == "started"}
    stage = f"loading {view.endpoints(view.engines())}" if started & view.engines() else "preflight"
    return Progress(stage=stage, eta=view.ready_eta())


def _loading(view: _View, _name: str) -> Progress:
    if view.has("ready"):
        return Progress(stage="ready")
    note = view.note()
    missing = set(note.removeprefix("waiting for ").split(", ")) if note else view.engines()
    if note and not note.startswith("waiting for "):  # every engine is there; what they serve is being proved
        return Progress(stage="proving", note=note)
    return Progress(stage=f"loading {view.endpoints(missing)}", note=note, eta=view.ready_eta())


def _gate(view: _View, _name: str) -> Progress:
    if view.has("passed"):
        return Progress(stage="gate passed")
    told = [(event["time"], _ASKED.match(event["note"])) for event in view.since if event["event"] == "progress"]
    asked = [(seconds_of(time), int(found[1]), int(found[2])) for time, found in told if found]
    if not asked:
        return Progress(stage="gate")
    (first_time, first, _), (time, count, total) = asked[0], asked[-1]
    eta = None
    if count > first:
        left = (total - count) * (time - first_time) / (count - first)
        eta = Eta("gate", max(0.0, time + left - view.now))
    return Progress(stage=f"gate {count}/{total}", note=view.note().partition(", ")[2], eta=eta)


def _sweep(view: _View, _name: str) -> Progress:
    if view.has("swept"):
        return Progress(stage="sweep done")
    told = [event for event in view.since if event["event"] in ("progress", "point")]
    found = _POINT.match(str(told[-1].get("note", ""))) if told else None
    if found is None:  # between two points
        return Progress(stage="sweep", eta=_sweep_eta(view))
    return Progress(stage=f"point c={found[1]}", note=found[2], eta=_sweep_eta(view))


def _sweep_eta(view: _View) -> Eta | None:
    """By the mean time of the points that were measured in this attempt."""
    told = [event for event in view.since if event["event"] == "point"]
    fresh = [event for event in told if event["state"] != "kept"]
    if not fresh:
        return None
    begin, last = seconds_of(view.since[0]["time"]), seconds_of(fresh[-1]["time"])
    left = len(view.plan["workload"]["concurrency"]) - len(told)
    return Eta("end", max(0.0, last + left * (last - begin) / len(fresh) - view.now))


_LOOKS = {"starting": _starting, "preflight": _starting, "ready": _loading, "gate": _gate, "sweep": _sweep}

"""The sweep: one point per concurrency, measured only on engines that passed the gate."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pdkit.errors import MeasurementError
from pdkit.job.load_client import ClientRun, busiest_share, run_client
from pdkit.job.load_counters import acceptance_between, read_counters
from pdkit.job.load_judge import reasons_against
from pdkit.job.load_point import Repeat, make_point
from pdkit.job.load_settings import LoadSettings
from pdkit.job.load_tools import artifacts_folder, read_artifacts, tool_argv, tool_environment, warmup_argv
from pdkit.job.verdict import Passed
from pdkit.results.normalise import Measurements
from pdkit.results.points import Point, point_file, read_point, write_point

__all__ = ["LoadSettings", "Progress", "sweep"]

RESTARTED = "an engine restarted while this was measured, so the gate no longer holds"

State = Literal["warming up", "measuring", "kept", "valid", "invalid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the sweep is doing."""

    concurrency: int
    state: State
    repeat: int = 1
    """Counted from 1."""
    seconds: float = 0.0
    """Seconds that the load tool has been running."""
    point: Point | None = None
    """The finished point, in the last three states."""


OnProgress = Callable[[Progress], None]
BootIds = Callable[[], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """What every step of a sweep needs."""

    settings: LoadSettings
    passed: Passed
    out: Path
    on_progress: OnProgress
    boot_ids: BootIds

    def engines_are_those_of_the_gate(self) -> bool:
        return sorted(self.boot_ids()) == sorted(self.passed.boot_ids)


def sweep(
    settings: LoadSettings, passed: Passed, out: Path, on_progress: OnProgress, *, boot_ids: BootIds
) -> list[Point]:
    """Measure one point per concurrency into `out`/points and return them.

    A valid point of the same lock is kept, the others are measured. While the load tool runs, `on_progress` is called
    twice a second; whatever it raises ends the tool and the sweep. `boot_ids` asks the engines who they are.
    Raises MeasurementError at once when an engine is not the one that passed the gate, and at the end when a point is
    invalid.
    """
    bench = _Bench(settings=settings, passed=passed, out=out, on_progress=on_progress, boot_ids=boot_ids)
    points = []
    for concurrency in settings.concurrency:
        point = _kept(bench, concurrency)
        state: State = "kept"
        if point is None:
            point = _measure(bench, concurrency)
            state = "valid" if point.valid else "invalid"
        on_progress(Progress(concurrency=concurrency, state=state, point=point))
        points.append(point)
        if any(RESTARTED in reason for reason in point.invalid_reasons):
            break
    _raise_for_invalid(points, settings, out)
    return points


def _kept(bench: _Bench, concurrency: int) -> Point | None:
    path = point_file(bench.out, concurrency)
    if not path.exists():
        return None
    point = read_point(path)
    return point if point.valid and point.lock_digest == bench.passed.lock_digest else None


def _measure(bench: _Bench, concurrency: int) -> Point:
    """Measure one concurrency, all its repeats, and write the point."""
    if not bench.engines_are_those_of_the_gate():
        raise MeasurementError(
            f"concurrency {concurrency} was not measured: the engines are not the processes that passed the gate",
            fix="run the gate again; `pdkit run --resume` does",
            code="PD211",
        )
    repeats = []
    for number in range(1, bench.settings.repeats + 1):
        repeat = _repeat(bench, concurrency, number)
        restarted = not bench.engines_are_those_of_the_gate()
        repeats.append(replace(repeat, reasons=(*repeat.reasons, RESTARTED)) if restarted else repeat)
        if restarted:
            break
    point = make_point(bench.settings, bench.passed, concurrency, repeats)
    write_point(bench.out, point)
    return point


def _repeat(bench: _Bench, concurrency: int, number: int) -> Repeat:
    """Run the load tool once and judge what it left."""
    settings = bench.settings
    folder = artifacts_folder(bench.out, concurrency, number)
    if folder.exists():
        shutil.rmtree(folder)  # left by an earlier try: its artifacts must not pass for this one's
    folder.mkdir(parents=True)
    warmup = warmup_argv(settings, concurrency, number, folder / "warmup")
    if warmup:
        ended = _run(bench, warmup, concurrency, number, "warming up")
        if ended.exit_code != 0:
            return _failed(settings, ended, "the warm-up")
    urls = settings.metrics_urls if settings.mtp else ()
    before = read_counters(urls) if urls else None
    ended = _run(bench, tool_argv(settings, concurrency, number, folder), concurrency, number, "measuring")
    if ended.exit_code != 0:
        return _failed(settings, ended, "the load tool")
    after = read_counters(urls) if before else None
    try:
        measured = read_artifacts(settings, folder)
    except MeasurementError as error:
        return Repeat(reasons=(f"{error.message} ({error.at})",))
    core_share = busiest_share(ended.samples, *_window(measured))
    return Repeat(
        measured=measured,
        reasons=reasons_against(settings, concurrency, measured, core_share),
        core_share=core_share,
        acceptance=measured.acceptance or acceptance_between(before, after),
    )


def _run(bench: _Bench, argv: list[str], concurrency: int, number: int, state: State) -> ClientRun:
    suffix = "_warmup" if state == "warming up" else ""

    def tick(seconds: float) -> None:
        bench.on_progress(Progress(concurrency=concurrency, state=state, repeat=number, seconds=seconds))

    return run_client(
        argv,
        environment=tool_environment(bench.settings, os.environ),
        log=bench.out / "logs" / f"load_c{concurrency:04d}_r{number}{suffix}.log",
        timeout_seconds=bench.settings.timeout_seconds,
        on_tick=tick,
    )


def _failed(settings: LoadSettings, ended: ClientRun, what: str) -> Repeat:
    if ended.exit_code is None:
        return Repeat(reasons=(f"{what} had not ended after {settings.timeout_seconds:g} s",))
    return Repeat(reasons=(f"{what} ended with exit code {ended.exit_code}: {ended.last_words}",))


def _window(measured: Measurements) -> tuple[float, float]:
    """First request to last token, on this machine's monotonic clock."""
    if not measured.trace:
        return 0.0, 0.0
    shift = time.time() - time.monotonic() if measured.clock == "wall" else 0.0
    start = min(request.start_seconds for request in measured.trace)
    end = max(request.end_seconds for request in measured.trace)
    return start - shift, end - shift


def _raise_for_invalid(points: list[Point], settings: LoadSettings, out: Path) -> None:
    invalid = [point for point in points if not point.valid]
    if not invalid:
        return
    first = invalid[0]
    unmeasured = len(settings.concurrency) - len(points)
    stopped = f"; the sweep stopped, {unmeasured} more not measured" if unmeasured else ""
    raise MeasurementError(
        f"{len(invalid)} of {len(points)} points invalid{stopped}. "
        f"Concurrency {first.concurrency}: {first.invalid_reasons[0]}",
        at=str(point_file(out, first.concurrency)),
        fix="the points are kept and marked; run again with --resume to measure only these",
        code="PD213",
    )

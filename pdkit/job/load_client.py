"""Run a load tool in a process group of its own and watch whether the client itself was the limit."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pdkit.errors import MeasurementError

SAMPLE_SECONDS = 0.5
GRACE_SECONDS = 3.0
SHORTEST_WINDOW_SECONDS = 1.0
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

Thread = tuple[int, int]
"""Process id and thread id."""


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU seconds of every thread of the client at one moment of the monotonic clock."""

    at: float
    cpu_seconds: dict[Thread, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRun:
    """How a load tool ended."""

    exit_code: int | None
    """None when it was stopped because it took too long."""
    samples: tuple[Sample, ...]
    """CPU use while it ran."""
    last_words: str
    """The last line of its output that speaks of an error, or simply the last one."""


def run_client(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: Path,
    timeout_seconds: float,
    on_tick: Callable[[float], None],
) -> ClientRun:
    """Run `argv` to its end, its output in `log`.

    `on_tick` gets the seconds so far, twice a second. Whatever it raises ends the tool, as do an interrupt and the
    timeout: the whole process group is gone before this returns or raises.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as stream:
        try:
            process = subprocess.Popen(
                list(argv), stdout=stream, stderr=subprocess.STDOUT, env=dict(environment), start_new_session=True
            )
        except FileNotFoundError:
            raise MeasurementError(
                f"the load tool `{argv[0]}` is not installed here", fix="install it, or choose the other `sweep.tool`"
            ) from None
    try:
        exit_code, samples = _watch(process, timeout_seconds, on_tick)
    finally:
        _end_group(process)
    return ClientRun(exit_code=exit_code, samples=tuple(samples), last_words=_last_words(log))


def _watch(
    process: subprocess.Popen[bytes], timeout_seconds: float, on_tick: Callable[[float], None]
) -> tuple[int | None, list[Sample]]:
    started = time.monotonic()
    samples = []
    while True:
        samples.append(Sample(time.monotonic(), threads_of_group(process.pid)))
        try:
            return process.wait(timeout=SAMPLE_SECONDS), samples
        except subprocess.TimeoutExpired:
            seconds = time.monotonic() - started
        if seconds > timeout_seconds:
            return None, samples
        on_tick(seconds)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the tool's group: politely first, since aiperf then ends its workers itself."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE_SECONDS)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def threads_of_group(group: int) -> dict[Thread, float]:
    """CPU seconds of each thread of each process in a process group, from /proc."""
    found: dict[Thread, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _stat(entry / "stat", "pgrp") == group:
            for task in _tasks(entry):
                ticks = _stat(task / "stat", "cpu")
                if ticks is not None:
                    found[int(entry.name), int(task.name)] = ticks / _TICKS_PER_SECOND
    return found


def _tasks(process: Path) -> list[Path]:
    try:
        return list((process / "task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []  # it ended between the two looks


def _stat(path: Path, field: str) -> int | None:
    """One field of a /proc stat file, or None when the process is gone."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold spaces and parentheses; the fixed fields follow the last one.
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[2]) if field == "pgrp" else int(fields[11]) + int(fields[12])


def busiest_share(samples: Sequence[Sample], start: float, end: float) -> float | None:
    """Share of a core that the busiest thread used between two moments; None when less than a second was watched."""
    seen = [sample for sample in samples if sample.cpu_seconds]
    if not seen:
        return None
    start, end = max(start, seen[0].at), min(end, seen[-1].at)
    if end - start < SHORTEST_WINDOW_SECONDS:
        return None
    before, after = _cpu_at(seen, start), _cpu_at(seen, end)
    return max(cpu - before.get(thread, 0.0) for thread, cpu in after.items()) / (end - start)


def _cpu_at(samples: Sequence[Sample], moment: float) -> dict[Thread, float]:
    """CPU seconds of each thread at a moment inside the samples, interpolated between the two around it."""
    later = next(index for index, sample in enumerate(samples) if sample.at >= moment)
    right = samples[later]
    if right.at == moment or later == 0:
        return right.cpu_seconds
    left = samples[later - 1]
    part = (moment - left.at) / (right.at - left.at)
    return {
        thread: left.cpu_seconds.get(thread, 0.0) * (1 - part) + cpu * part for thread, cpu in right.cpu_seconds.items()
    }


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"\b(ERROR|\w+(Error|Exception))\b", line)]
    return (telling or lines or [""])[-1]

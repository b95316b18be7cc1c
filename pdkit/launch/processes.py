"""Processes of a local run: each in a session of its own, with its own log, and none left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MARK = "PDKIT_RUN_ID"
"""Environment variable that every process of a run inherits; by it leftovers are found."""
GRACE_SECONDS = 10.0
"""Dynamo drains for 5 s, vLLM's cores take 2 to 3 more."""
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Managed:
    """One running step."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def ended(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        return self.process.poll()


def start(name: str, argv: list[str], *, log: Path, environment: Mapping[str, str]) -> Managed:
    """Start a process; it dies with this one, even when this one is killed."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  (one C call, before exec)
        )
    return Managed(name, process, log)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def stop(processes: Iterable[Managed], grace_seconds: float) -> None:
    """End processes and their groups: TERM, then KILL for what is left after the grace."""
    group = list(processes)
    for one in group:
        _signal_group(one, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and any(one.ended() is None for one in group):
        time.sleep(0.1)
    for one in group:
        _signal_group(one, signal.SIGKILL)
        one.process.wait()


def _signal_group(one: Managed, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(one.process.pid, number)


def marked(run_id: str) -> list[int]:
    """Ids of all living processes that carry the mark of a run, this one not counted."""
    wanted = f"{MARK}={run_id}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0") and _alive(folder):
                    found.append(int(folder.name))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it ended meanwhile, or is another user's
    return found


def _alive(folder: Path) -> bool:
    return (folder / "stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()[0] != "Z"


def sweep(run_id: str) -> list[int]:
    """Kill what still carries the mark of a run; returns what was killed."""
    found = marked(run_id)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found

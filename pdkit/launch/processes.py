"""Processes of a local run: each in a session of its own, with its own log, and none left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MARK = "PDKIT_RUN_ID"
"""Environment variable that every process of a run inherits; by it leftovers are found."""
GRACE_SECONDS = 10.0
"""Dynamo drains for 5 s, vLLM's cores take 2 to 3 more."""
SWEEP_SECONDS = 3.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


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


@dataclass(frozen=True, slots=True)
class Seen:
    """A living process of this machine."""

    pid: int
    parent: int
    session: int
    marked: bool


def _seen(run_id: str) -> list[Seen]:
    wanted = f"{MARK}={run_id}".encode()
    folders = (folder for folder in Path("/proc").iterdir() if folder.name.isdigit())
    return [one for folder in folders if (one := _look(folder, wanted)) is not None]


def _look(folder: Path, wanted: bytes) -> Seen | None:
    try:
        # the name in parentheses may hold anything; the fields follow the last one
        fields = (folder / "stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()
        marked = wanted in (folder / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return None  # it ended meanwhile
    except PermissionError:
        marked = False  # another user's, or one that hides its environment
    return None if fields[0] == "Z" else Seen(int(folder.name), int(fields[1]), int(fields[3]), marked)


def marked(run_id: str, *, adopted: bool = False) -> list[int]:
    """Ids of the living processes of a run, this one not counted.

    Those that carry its mark and all of their sessions, since vLLM's cores write a title over their environment; with
    `adopted`, also what lost its parent and came to this process (see adopt_orphans).
    """
    seen = [one for one in _seen(run_id) if one.pid != os.getpid()]
    sessions = {one.session for one in seen if one.marked} - {os.getsid(0)}
    return [one.pid for one in seen if one.marked or one.session in sessions or (adopted and one.parent == os.getpid())]


def adopt_orphans() -> None:
    """From now on a process whose parent dies below this one becomes its child, so that none can hide."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def sweep(run_id: str, *, adopted: bool = False) -> None:
    """Kill what is left of a run, until nothing is; a few seconds at most, for a process that the kernel holds.

    `adopted` is for the end of a run, when every step that this process started has been waited for.
    """
    deadline = time.monotonic() + SWEEP_SECONDS
    while (found := marked(run_id, adopted=adopted)) and time.monotonic() < deadline:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    if adopted:
        _bury_orphans()


def _bury_orphans() -> None:
    """Take note of the end of adopted processes, so that none stays behind as a zombie."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


class Guard:
    """A process that ends the steps when this one is killed."""

    def __init__(self, run_id: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pdkit.launch.guard", run_id], stdin=subprocess.PIPE, start_new_session=True
        )

    def watch(self, pid: int) -> None:
        """Take care of one more step."""
        self._tell(f"{pid}\n")

    def dismiss(self) -> None:
        """All has ended: nothing to guard any more."""
        with contextlib.suppress(BrokenPipeError):
            self._tell("done\n")
        self.process.communicate()

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()

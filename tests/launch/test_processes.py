"""Processes of a run are found and ended, however well they hide."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdkit.launch import processes
from pdkit.launch.processes import MARK, Managed

Start = Callable[[str], Managed]


@pytest.fixture
def run_id() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def start(run_id: str, tmp_path: Path) -> Iterator[Start]:
    """Start a shell script as a step of the run."""
    started = []

    def run(script: str) -> Managed:
        environment = {**os.environ, MARK: run_id}
        log = tmp_path / f"{len(started)}.log"
        started.append(processes.start("step", ["sh", "-c", script], log=log, environment=environment))
        return started[-1]

    yield run
    processes.stop(started, 0)
    processes.sweep(run_id)


def wait_until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 15
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_process_without_the_mark_is_found_by_its_session(start: Start, run_id: str) -> None:
    step = start("env -i sleep 60 & sleep 61")
    wait_until(lambda: len(processes.marked(run_id)) >= 3)
    found = {command(Path(f"/proc/{pid}/cmdline")) for pid in processes.marked(run_id)}
    assert {b"sleep\x0060\x00", b"sleep\x0061\x00"} <= found
    processes.sweep(run_id)
    assert processes.marked(run_id) == []
    assert step.process.wait(5) == -9


def test_another_run_is_not_touched(start: Start, run_id: str) -> None:
    step = start("sleep 60")
    processes.sweep(str(uuid.uuid4()))
    assert step.ended() is None
    assert step.process.pid in processes.marked(run_id)


def test_term_is_given_time_and_then_kill_ends_the_whole_group(start: Start) -> None:
    polite = start("trap 'sleep 0.3; exit 5' TERM; sleep 60 & wait")
    deaf = start("trap '' TERM; echo on; sleep 60")
    wait_until(lambda: deaf.log.read_text() == "on\n")
    begun = time.monotonic()
    processes.stop([polite, deaf], 1.0)
    assert time.monotonic() - begun < 3
    assert (polite.ended(), deaf.ended()) == (5, -9)


def test_a_step_that_cannot_be_logged_is_an_error_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("")
    with pytest.raises(OSError, match="logs"):
        processes.start("step", ["true"], log=tmp_path / "logs" / "step.log", environment={})


LAUNCHER = """
import os, sys, time
from pathlib import Path
from pdkit.launch import processes
processes.adopt_orphans()
environment = {**os.environ, processes.MARK: sys.argv[1]}
guard = processes.Guard(sys.argv[1])
one = processes.start("step", ["sh", "-c", sys.argv[3]], log=Path(sys.argv[2]), environment=environment)
guard.watch(one.process.pid)
print(one.process.pid, flush=True)
if sys.argv[4] == "stop":
    time.sleep(1)
    processes.stop([one], 0.2)
    guard.dismiss()
    processes.sweep(sys.argv[1], adopted=True)
    print("children:", Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text())
else:
    time.sleep(60)
"""


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_no_process_survives_its_launcher(run_id: str, tmp_path: Path, end: str) -> None:
    """Not one that ignores TERM; nor one without session and environment, where the launcher can still act."""
    seconds = [f"6{n}.{random.randrange(10**9)}" for n in (1, 2)]  # by them the two are told from all others
    hidden = f"env -i setsid sleep {seconds[1]} & " if end == "stop" else ""
    words = [sys.executable, "-c", LAUNCHER, run_id, tmp_path / "log", f"trap '' TERM; {hidden}sleep {seconds[0]}", end]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        step = int(launcher.stdout.readline())
        wait_until(lambda: len(sleeping(seconds)) == (2 if hidden else 1))
        if end == "kill":
            launcher.kill()
        left = launcher.communicate(timeout=15)[0]
    assert left == ("children: \n" if end == "stop" else "")
    wait_until(lambda: not Path(f"/proc/{step}").exists() and processes.marked(run_id) == [])
    assert sleeping(seconds) == []


def sleeping(seconds: list[str]) -> list[str]:
    """Those of the given times that a process sleeps."""
    running = {command(file) for file in Path("/proc").glob("[0-9]*/cmdline")}
    return [one for one in seconds if b"sleep\0" + one.encode() + b"\0" in running]


def command(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""  # it ended between the two looks

"""`pdkit stop`: drain a run, so that it writes what it has, and end what does not end by itself."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from pdkit.errors import ClusterError, UsageError
from pdkit.launch.jobs import Job, ask, one_sentence, slurm
from pdkit.launch.local import LOCK, RUN_ID
from pdkit.launch.processes import marked, sweep
from pdkit.launch.status import RunStatus

CANCEL_SECONDS = 60.0
"""Slurm kills what is left of a cancelled job after KillWait, 30 s by default."""
POLL_SECONDS = 0.5


def stop_run(run: RunStatus, drain_seconds: float) -> str:
    """Stop a run and say how it went. Raises ClusterError or UsageError when it cannot be stopped."""
    if not run.live or run.state == "RENDERED":
        return f"nothing to stop: {run.error or run.stage}"
    if run.job is not None:
        return _stop_job(run.job, drain_seconds)
    return _stop_here(run.folder, drain_seconds)


def _stop_job(number: str, drain_seconds: float) -> str:
    """TERM to the job's script, which lets the driver write and ends every step; then plain cancelling."""
    begin = time.monotonic()
    job = _look(number)
    if not job.live:
        return f"job {number} has ended meanwhile: {job.state}"
    if job.waiting:
        _scancel(number)
        _wait(lambda: not _look(number).live, CANCEL_SECONDS)
        return f"job {number} was waiting; it is cancelled"
    if job.state != "COMPLETING":
        _scancel("--batch", "--signal=TERM", number)
    if _wait(lambda: not _look(number).live, drain_seconds):
        return f"job {number} drained in {time.monotonic() - begin:.0f} s"
    _scancel(number)
    if _wait(lambda: not _look(number).live, CANCEL_SECONDS):
        return f"job {number} did not drain in {drain_seconds:g} s; it is cancelled"
    raise ClusterError(
        f"job {number} does not end: Slurm says {_look(number).state}", fix=f"scontrol show job {number}"
    )


def _look(number: str) -> Job:
    answer = ask([number])
    if answer.problem:
        raise ClusterError(answer.problem)
    return answer.jobs.get(number, Job(id=number, state="FORGOTTEN"))


def _scancel(*words: str) -> None:
    done = slurm(["scancel", *words])
    if done.returncode != 0 and "already completing or completed" not in done.stderr:
        raise ClusterError(f"scancel refused: {one_sentence(done.stderr)}")


def _wait(check: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _stop_here(folder: Path, drain_seconds: float) -> str:
    """TERM to the launcher, which stops the driver first; then KILL for whatever carries the run's mark."""
    mark = (folder / RUN_ID).read_text(encoding="utf-8").strip()
    begin = time.monotonic()
    launcher = launcher_of(folder)
    if launcher is not None:
        os.kill(launcher, signal.SIGTERM)
        if _wait(lambda: launcher_of(folder) is None and not marked(mark), drain_seconds):
            return f"drained in {time.monotonic() - begin:.0f} s"
        with contextlib.suppress(ProcessLookupError):
            os.kill(launcher, signal.SIGKILL)
    sweep(mark)
    if marked(mark):
        raise UsageError("some processes do not end", at=str(folder), fix=f"kill -9 {marked(mark)[0]}")
    return f"killed, as it {'did not drain' if launcher else 'had lost its launcher'}"


def launcher_of(folder: Path) -> int | None:
    """The process that runs this folder on this machine: it holds the folder's lock open."""
    lock = str((folder / LOCK).resolve())
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if any(os.readlink(descriptor) == lock for descriptor in (entry / "fd").iterdir()):  # noqa: PTH115
                    return int(entry.name)
    return None

"""How runs are getting on: from their folders alone, plus one look at Slurm's queue for all of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pdkit.job.events import read_events
from pdkit.job.logwatch import last_lines
from pdkit.launch.jobs import Answer, Job, ask
from pdkit.launch.processes import marked
from pdkit.launch.progress import Eta, Progress, attempt_of, progress_of, seconds_of
from pdkit.launch.record import read_json, submissions
from pdkit.launch.redact import redact
from pdkit.launch.rehearsal import rehearsed

SETTLED_SECONDS = 600.0
"""A result this old is final: its job has ended, Slurm need not be asked."""
SLURMS_OWN_WORDS = {
    "TIMEOUT": "the time limit ended the job",
    "PREEMPTED": "another job took its nodes",
    "NODE_FAIL": "a node failed",
    "BOOT_FAIL": "a node did not boot",
    "OUT_OF_MEMORY": "a node ran out of memory",
    "CANCELLED": "it was cancelled",
    "DEADLINE": "its deadline passed",
    "REVOKED": "another cluster took it",
}
"""States that say more than the exit code of the job's script."""
_KILLED = ("RaisedSignal", "JobLaunchFailure")
"""Slurm's reasons for a script that has begun and left no exit code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One run as it is now."""

    folder: Path
    recipe: str
    job: str | None
    """Number of the newest job; None for a local run, or for a folder that was never submitted."""
    state: str
    """Slurm's word for the job; else `RUNNING`, `ENDED`, `GONE` (no process is left) for a local run, `RENDERED`
    for a folder that never ran, `FORGOTTEN` for a job that Slurm no longer knows, `UNKNOWN` when it could not be asked.
    """
    stage: str
    """`queued`, `preflight`, `loading 3/4 endpoints`, `ready`, `gate 812/1319`, `point c=512`, `done`, `failed`."""
    note: str
    """More about the stage, or why a job waits."""
    points: tuple[int, int]
    """Points measured, and wanted."""
    eta: Eta | None
    error: str
    """Why it failed; empty while nothing did."""
    exit_code: int | None
    nodes: str
    rehearsal: bool
    """Whether played engines take the place of the real ones."""

    @property
    def live(self) -> bool:
        """Whether something may still happen."""
        return self.exit_code is None and self.stage not in ("done", "failed", "rendered")


@dataclass(frozen=True, slots=True)
class _Run:
    """What a run folder says, read once."""

    folder: Path
    plan: dict[str, Any]
    events: list[dict[str, Any]]
    jobs: list[dict[str, Any]]
    measured: int
    """Valid points."""
    result: dict[str, Any] | None
    result_age: float
    rehearsal: bool

    @property
    def job(self) -> str | None:
        """The newest job: the last one submitted, or one that was submitted by hand after it."""
        begun = [event for event in self.events if event["event"] == "job"]
        if begun and not any(job["id"] == begun[-1]["job"] for job in self.jobs):
            by_hand, newest = begun[-1], self.jobs[-1:]
            if not newest or seconds_of(by_hand["time"]) > seconds_of(newest[0]["submitted"]):
                return str(by_hand["job"])
        return str(self.jobs[-1]["id"]) if self.jobs else None

    @property
    def settled(self) -> bool:
        return self.result is not None and self.result_age > SETTLED_SECONDS


def status_of(folders: Iterable[Path]) -> tuple[list[RunStatus], str]:
    """The status of every run, and why Slurm could not be asked (empty when it was)."""
    before = [_read(folder) for folder in folders]
    answer = ask(run.job for run in before if run.job and not run.settled)
    # Read again behind Slurm's back: a job that has ended meanwhile has written its result before.
    runs = [_read(run.folder) if run.job in answer.jobs else run for run in before]
    return [_status(run, answer) for run in runs], answer.problem


def to_data(statuses: Iterable[RunStatus], problem: str) -> dict[str, Any]:
    """The JSON of `pdkit status --json`."""
    return {
        "schema": 1,
        "slurm": problem or "ok",
        "runs": [{**asdict(one), "folder": str(one.folder), "live": one.live} for one in statuses],
    }


def _read(folder: Path) -> _Run:
    result, age = _result(folder)
    return _Run(
        folder=folder,
        plan=read_json(folder / "plan.json"),
        events=read_events(folder),
        jobs=submissions(folder),
        measured=sum(read_json(file, {"valid": False})["valid"] for file in folder.glob("points/c*.json")),
        result=result,
        result_age=age,
        rehearsal=rehearsed(folder),
    )


def _result(folder: Path) -> tuple[dict[str, Any] | None, float]:
    file = folder / "result.json"
    result: dict[str, Any] | None = read_json(file)
    with contextlib.suppress(FileNotFoundError):  # a new attempt has just set it aside
        return result, time.time() - file.stat().st_mtime
    return None, 0.0


def _status(run: _Run, answer: Answer) -> RunStatus:
    number = run.job
    job = answer.jobs.get(number) if number else None
    attempt = attempt_of(run.events, number)
    result = run.result if attempt else None
    progress = progress_of(attempt, run.plan, run.measured, time.time())
    if job is not None and job.live:
        return _live(run, job, progress)
    if number is None:
        return _local(run, progress, result)
    if job is None and answer.problem and not result:
        return _build(run, progress, state="UNKNOWN", note=answer.problem)
    state = job.state if job else ("ENDED" if result else "FORGOTTEN")
    return _ended(run, progress, result, state, job)


def _live(run: _Run, job: Job, progress: Progress) -> RunStatus:
    if not job.waiting:
        return _build(run, progress, state=job.state, job=job)
    eta = Eta("start", max(0.0, job.start - time.time())) if job.start else None
    waits = Progress(stage="queued", note=job.reason, points=progress.points, eta=eta)
    return _build(run, waits, state=job.state, job=job)


def _local(run: _Run, progress: Progress, result: dict[str, Any] | None) -> RunStatus:
    """A run of this machine; its processes carry the mark in `run.id`."""
    mark = run.folder / "run.id"
    if result is not None:
        return _ended(run, progress, result, "ENDED", None)
    if not mark.is_file():
        return _build(run, Progress(stage="rendered", points=progress.points), state="RENDERED")
    if marked(mark.read_text(encoding="utf-8").strip()):
        return _build(run, progress, state="RUNNING")
    error = f"it ended while {progress.stage} and left no result: what ran it was killed, or runs on another machine"
    return _build(run, Progress(stage="failed", points=progress.points), state="GONE", error=error)


def _ended(run: _Run, progress: Progress, result: dict[str, Any] | None, state: str, job: Job | None) -> RunStatus:
    """The result says how it went, unless Slurm knows better."""
    words = SLURMS_OWN_WORDS.get(state, "")
    if result is not None and result["exit_code"] == 0:
        note = f"rehearsal, no performance figure: {result['message']}" if run.rehearsal else result["message"]
        ended = Progress(stage="done", note=note, points=progress.points)
        return _build(run, ended, state=state, job=job, exit_code=0)
    if job is not None and job.reason.startswith(_KILLED) and progress.stage != "queued":
        words = "the job's script was killed"
    why = [words] if words else []
    if result is not None:
        why.append(result["message"])
    elif state == "FORGOTTEN":
        why.append(f"Slurm no longer knows job {run.job}, and it left no result")
    elif not why:
        why.append(f"job {run.job} ended as {state}{f' ({job.reason})' if job and job.reason else ''} without a result")
    if result is None and state != "FORGOTTEN" and progress.stage != "queued":
        why.append(_last_words(run.folder))
    note = "" if progress.stage == "queued" else f"while {progress.stage}"
    failed = Progress(stage="failed", note=note, points=progress.points)
    code = result["exit_code"] if result else None
    return _build(run, failed, state=state, job=job, exit_code=code, error="; ".join(why))


def _last_words(folder: Path) -> str:
    log = folder / "logs" / "job.log"
    if not log.is_file():
        return "there is no logs/job.log: is the run folder on a file system that all nodes share?"
    return f"logs/job.log ends with: {''.join(last_lines(log, 1)).strip()}"


def _build(
    run: _Run,
    progress: Progress,
    *,
    state: str,
    job: Job | None = None,
    note: str = "",
    error: str = "",
    exit_code: int | None = None,
) -> RunStatus:
    return RunStatus(
        folder=run.folder,
        recipe=str(run.plan["recipe"]),
        job=run.job,
        state=state,
        stage=progress.stage,
        note=redact(note or progress.note),
        points=progress.points,
        eta=progress.eta,
        error=redact(error),
        exit_code=exit_code,
        nodes=job.nodes if job else "",
        rehearsal=run.rehearsal,
    )

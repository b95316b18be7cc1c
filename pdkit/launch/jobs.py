"""What Slurm says of jobs: squeue, else sacct, else scontrol, whichever is here and knows them, never for long."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pdkit.errors import ClusterError

ANSWER_SECONDS = 15.0
"""squeue itself gives up on a silent controller only after 20 s."""
WAITING = frozenset(("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
"""States of a job that holds no node."""
_AT_WORK = ("CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
LIVE = WAITING | frozenset(_AT_WORK)
"""States of a job that has not ended."""
_FIELDS = "%i|%T|%r|%S|%e|%N|%Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as Slurm sees it now."""

    id: str
    state: str
    """Slurm's word, such as `PENDING`, `RUNNING`, `FAILED`, `NODE_FAIL`."""
    reason: str = ""
    """Why it waits or ended, in Slurm's word; empty when Slurm says nothing."""
    start: float | None = None
    """When it started, or is expected to, in seconds since the epoch."""
    end: float | None = None
    """When it ended, or has to, in seconds since the epoch."""
    nodes: str = ""
    folder: Path | None = None
    """The folder it was submitted in: its run folder."""

    @property
    def live(self) -> bool:
        """Whether it waits or is at work."""
        return self.state in LIVE

    @property
    def waiting(self) -> bool:
        """Whether it holds no node yet."""
        return self.state in WAITING


@dataclass(frozen=True, slots=True)
class Answer:
    """What could be learned of some jobs."""

    jobs: dict[str, Job] = field(default_factory=dict)
    """By id; a job that Slurm has forgotten is not in it."""
    problem: str = ""
    """Why Slurm could not be asked; empty when it was."""


def ask(ids: Iterable[str]) -> Answer:
    """Look jobs up, all of them by one squeue call. Never raises: a run folder is readable without Slurm too."""
    wanted = sorted(set(ids), key=int)
    if not wanted:
        return Answer()
    try:
        found = _known(wanted)
    except ClusterError as error:
        return Answer({}, error.message)
    return Answer({job.id: job for job in found})


def own_live_jobs() -> list[Job]:
    """Every waiting or running job of this user. Raises ClusterError when Slurm cannot be asked."""
    done = slurm(["squeue", "--me", "--noheader", "--states=all", f"--format={_FIELDS}"])
    if done.returncode != 0:
        raise ClusterError(f"squeue refused: {one_sentence(done.stderr)}")
    return [job for job in _squeue(done.stdout) if job.live]


def slurm(argv: Sequence[str], *, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's programs. Raises ClusterError when it is not here, has no cluster, or is silent."""
    elsewhere = 'use a login node of the cluster, or a virtual rack: pdkit rack start; eval "$(pdkit rack env)"'
    if shutil.which(argv[0]) is None:
        raise ClusterError(f"there is no Slurm on this machine: `{argv[0]}` is not on PATH", fix=elsewhere)
    seconds = ANSWER_SECONDS if seconds is None else seconds
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(argv, env=environment, text=True, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        fix = "ask for the controller's state: scontrol ping"
        raise ClusterError(f"Slurm is silent: {argv[0]} gave no answer within {seconds:g} s", fix=fix) from None
    if done.returncode and "Could not establish a configuration source" in done.stderr:
        raise ClusterError("Slurm is installed on this machine, but it belongs to no cluster", fix=elsewhere)
    return done


def one_sentence(stderr: str) -> str:
    """What a Slurm program complained about, without its decorations and its hints about --help."""
    lines = [re.sub(r"^(\w+: )?((error|fatal): )?", "", line.strip()) for line in stderr.splitlines()]
    lines = [line for line in lines if line and not line.startswith(('Try "', "See "))]
    if not lines:
        return "it gave no reason"
    last = re.sub(r"^(Batch job submission failed|allocation failure): ", "", lines[-1])
    return f"{'; '.join(lines[:-1])} ({last})" if len(lines) > 1 else last


def _known(ids: list[str]) -> list[Job]:
    found: dict[str, Job] = {}
    programs = [(name, look) for name, look in _SOURCES if shutil.which(name)]
    if not programs:
        slurm([_SOURCES[0][0]])  # says what is missing
    problem: ClusterError | None = None
    for _, look in programs:
        missing = [one for one in ids if one not in found]
        try:
            found |= {job.id: job for job in look(missing)} if missing else {}
        except ClusterError as error:
            problem = problem or error
    if problem and not found:
        raise problem
    return list(found.values())


def _from_squeue(ids: list[str]) -> list[Job]:
    """Ended jobs are known for MinJobAge seconds."""
    done = slurm(["squeue", "--noheader", "--states=all", f"--jobs={','.join(ids)}", f"--format={_FIELDS}"])
    if done.returncode != 0 and "Invalid job id" not in done.stderr:
        raise ClusterError(f"squeue failed: {one_sentence(done.stderr)}")
    return [job for job in _squeue(done.stdout) if job.id in ids]


def _squeue(text: str) -> list[Job]:
    rows = (line.split("|", 6) for line in text.splitlines() if line.count("|") >= 6)
    return [_job(*row) for row in rows]


def _from_sacct(ids: list[str]) -> list[Job]:
    """The accounting knows every job, where there is one."""
    fields = "JobIDRaw,State,Reason,Start,End,NodeList,WorkDir"
    done = slurm(["sacct", "-n", "-P", "-X", "-o", fields, "-j", ",".join(ids)])
    return _squeue(done.stdout) if done.returncode == 0 else []


def _from_scontrol(ids: list[str]) -> list[Job]:
    """As long as squeue, but there even where squeue is not."""
    if shutil.which("squeue"):
        return []
    found = []
    for one in ids:
        done = slurm(["scontrol", "show", "job", "--oneliner", one])
        told = dict(re.findall(r"(\w+)=(\S*)", done.stdout))
        if told:
            names = ("JobId", "JobState", "Reason", "StartTime", "EndTime", "NodeList", "WorkDir")
            found.append(_job(*(told.get(name, "") for name in names)))
    return found


_SOURCES = (("squeue", _from_squeue), ("sacct", _from_sacct), ("scontrol", _from_scontrol))


def _job(number: str, state: str, reason: str, start: str, end: str, nodes: str, folder: str) -> Job:
    return Job(
        id=number,
        state=state.split(maxsplit=1)[0],  # sacct: `CANCELLED by 1000`
        reason="" if reason in ("None", "(null)") else reason,
        start=float(start) if start.isdigit() else None,
        end=float(end) if end.isdigit() else None,
        nodes="" if nodes in ("(null)", "None assigned") else nodes,
        folder=Path(folder) if folder else None,
    )

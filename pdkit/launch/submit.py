"""`pdkit submit`: a recipe becomes a job, once per engine configuration; an unfinished run goes on."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pdkit.errors import ClusterError, Finding, FindingsError, UsageError
from pdkit.launch.clusters import Cluster, choose_cluster
from pdkit.launch.jobs import Job, own_live_jobs
from pdkit.launch.record import read_json, submissions
from pdkit.launch.rehearsal import MOCKER, environment_of, equip, rehearsed
from pdkit.launch.run import finished
from pdkit.launch.slurm import Options, RefusedError, refuse_secrets, submit, test_only
from pdkit.plan.plan import Plan, make_plan
from pdkit.recipe.load import Loaded, load
from pdkit.render.folder import next_run_folder, rendered_files, write_run_folder
from pdkit.render.lock import sha256
from pdkit.rules.catalogue import check

LOCK_SECONDS = 120
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)

Planned = tuple[Loaded, Plan, list[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job of a recipe: a new one, or the one that does the same already."""

    folder: Path
    job: str
    state: str
    """`SUBMITTED` for a new job, else Slurm's word."""
    nodes: int

    @property
    def new(self) -> bool:
        """Whether it was submitted now."""
        return self.state == "SUBMITTED"


def planned_for(recipe: Path, sets: tuple[str, ...], cluster: Cluster | None) -> list[Planned]:
    """Every recipe of a file with the cluster's values below it, its plan and findings.

    Raises FindingsError when a rule finds an error.
    """
    recipes = [cluster.under(one) if cluster else one for one in load(recipe, sets)]
    plans = [(one, make_plan(one)) for one in recipes]
    found = [(one, plan, check(plan, one.source)) for one, plan in plans]
    errors = [finding for _, _, findings in found for finding in findings if finding.severity == "error"]
    if errors:
        raise FindingsError("\n".join(map(str, dict.fromkeys(errors))))
    return found


def submit_recipes(
    planned: list[Planned], output: Path, options: Options, *, again: bool, played: bool = False
) -> Iterator[Submission]:
    """Submit each recipe as a job of its own; what the same lock does already is told instead, unless `again`.

    `played` makes rehearsals of them: played engines take the place of the real ones.
    """
    rehearsal = MOCKER if played else None
    for loaded, plan, findings in planned:
        with _alone(output):
            files = rendered_files(plan, loaded.source, findings, rehearsal)
            refuse_secrets(files)
            same = None if again else _live_with_lock(json.loads(files["lock.json"])["digest"])
            if same is not None:
                yield Submission(folder=same.folder or Path(), job=same.id, state=same.state, nodes=plan.nodes)
                continue
            folder = next_run_folder(output, plan)
            write_run_folder(folder, plan, loaded.source, findings, rehearsal)
            try:
                if played:
                    equip(folder)
                job = submit(folder, _with_players(folder, options))
            except (RefusedError, UsageError):
                shutil.rmtree(folder)  # nothing has run, and nothing will
                raise
        yield Submission(folder=folder, job=job, state="SUBMITTED", nodes=plan.nodes)


def _with_players(folder: Path, options: Options) -> Options:
    """`options` as they are; for a rehearsal, with the environment that puts the played engines first."""
    if not rehearsed(folder):
        return options
    return replace(options, environment={**options.environment, **environment_of(folder)})


def _live_with_lock(digest: str) -> Job | None:
    """The waiting or running job of this user whose run folder has that very lock."""
    for job in own_live_jobs():
        if job.folder and read_json(job.folder / "lock.json", {}).get("digest") == digest:
            return job
    return None


def would_start(planned: list[Planned], options: Options) -> Iterator[tuple[str, str]]:
    """For each recipe its name and what Slurm says to it; nothing is submitted or left. Raises RefusedError."""
    for loaded, plan, findings in planned:
        with tempfile.TemporaryDirectory(prefix="pdkit-test-only-") as name:
            folder = Path(name) / "run"
            write_run_folder(folder, plan, loaded.source, findings)
            yield plan.recipe.name, test_only(folder, options)


def resume(folder: Path, options: Options) -> Submission:
    """Submit a run folder again; its job proves itself and is gated anew, and measures only the missing points.

    A folder that was rendered and never submitted is submitted. A job that waits or runs already is told instead.
    Raises UsageError when nothing is missing, or when the folder is not what was rendered.
    """
    folder = folder.resolve()
    _refuse_changed(folder)
    nodes = read_json(folder / "plan.json")["nodes"]
    with _alone(folder.parent):
        for job in own_live_jobs():
            if job.folder == folder:
                return Submission(folder=folder, job=job.id, state=job.state, nodes=nodes)
        if finished(folder):
            raise UsageError("nothing is missing in this run", at=str(folder), fix=f"pdkit report {folder}")
        number = submit(folder, _with_players(folder, options))
        return Submission(folder=folder, job=number, state="SUBMITTED", nodes=nodes)


def options_for(folder: Path | None, cluster: Cluster | None, options: Options) -> Options:
    """`options` with what the cluster gives to jobs; a resumed run takes the cluster that it was submitted to."""
    if cluster is None and folder is not None:
        names = [job["cluster"] for job in submissions(folder) if job["cluster"]]
        cluster = choose_cluster(names[-1] if names else None)
    if cluster is None:
        return options
    return replace(options, cluster=cluster.name, environment={**cluster.environment(), **options.environment})


def _refuse_changed(folder: Path) -> None:
    """Points of another recipe must not join those that are there."""
    lock, plan = read_json(folder / "lock.json"), read_json(folder / "plan.json")
    if lock is None or plan is None:
        raise UsageError("this is not a run folder: it has no lock.json", at=str(folder))
    if sha256((folder / "recipe.yaml").read_bytes()) != lock["recipe"] or plan["digest"] != lock["plan"]:
        message = "this run folder is not as it was rendered, so its evidence and new points would not belong together"
        raise UsageError(message, at=str(folder), fix="submit the recipe as a new run")


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One submission into a folder at a time: two would take the same number, or both think they are the first.

    Raises ClusterError when another one does not end.
    """
    os.umask(os.umask(0o022) | 0o022)  # whatever the user's, nobody else may write into a run
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + LOCK_SECONDS
    with (folder / f".submit-{os.getuid()}.lock").open("w") as stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    message = f"another pdkit submit has been at work in {folder} for {LOCK_SECONDS} s"
                    raise ClusterError(message, fix="see what it waits for") from None
                time.sleep(0.05)
                continue
            except OSError as error:
                # Some cluster file systems have no locks: then only submissions at the very same moment can meet.
                if error.errno not in _NO_LOCKS:
                    raise
            break
        yield

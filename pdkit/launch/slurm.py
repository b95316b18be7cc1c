"""The submitit seam: a run folder's own `job.sbatch` is the job, submitit hands it to Slurm."""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.slurm.slurm import SlurmExecutor

from pdkit.errors import ClusterError, UsageError
from pdkit.launch.jobs import one_sentence, own_live_jobs, slurm
from pdkit.launch.record import remember
from pdkit.launch.redact import holds_secret

SUBMITTED = "submitted"
"""The texts that were given to Slurm, one per job."""
SUBMIT_SECONDS = 120
_FIXES = (
    ("account", "choose another `cluster.account`; `sacctmgr show assoc user=$USER` lists yours"),
    ("partition", "choose another `cluster.partition`; `sinfo -s` lists them"),
    ("qos", "choose another `cluster.qos`; `sacctmgr show assoc user=$USER format=qos` lists yours"),
    ("time limit", "ask for less with `cluster.time_limit`; `sinfo -o '%P %l'` shows the limits"),
    (
        "unrecognized option",
        "this Slurm does not know the option: see `cluster.directives`, or `cluster.segment: none`",
    ),
    ("segment", "set `cluster.segment` to a divisor of the number of nodes, or to none"),
    ("dependency", "name jobs that Slurm still knows, as in afterok:123"),
    ("node", "ask for fewer nodes; `sinfo -o '%P %D %G'` shows what there is"),
)
_OVERRIDES = {
    "account": "SBATCH_ACCOUNT",
    "partition": "SBATCH_PARTITION",
    "qos": "SBATCH_QOS",
    "time": "SBATCH_TIMELIMIT",
    "gres": "SBATCH_GRES",
    "exclusive": "SBATCH_EXCLUSIVE",
    "job-name": "SBATCH_JOB_NAME",
    "output": "SBATCH_OUTPUT",
    "signal": "SBATCH_SIGNAL",
    "no-requeue": "SBATCH_REQUEUE",
    "requeue": "SBATCH_NO_REQUEUE",
}
"""sbatch prefers these variables to a script's own lines; the recipe wins over them."""


class RefusedError(ClusterError):
    """Slurm said no, so there is no job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a job is submitted."""

    hold: bool = False
    """Submit it held; `scontrol release ID` lets it go."""
    dependency: str | None = None
    """Slurm's `--dependency`, such as `afterok:123`."""
    cluster: str | None = None
    """Name of the cluster in clusters.yaml, remembered for a resumption."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that the job gets beside this process's own: secrets go this way, never through a command line."""

    def words(self) -> list[str]:
        """What sbatch is given for them."""
        hold = ["--hold"] if self.hold else []
        # A job whose condition can never be met would wait for ever.
        wait = [f"--dependency={self.dependency}", "--kill-on-invalid-dep=yes"] if self.dependency else []
        return hold + wait


class RenderedExecutor(SlurmExecutor):
    """Submits a script that is complete already, instead of a pickled function."""

    def __init__(self, folder: Path, words: list[str]) -> None:
        super().__init__(folder / SUBMITTED)
        self.run_folder = folder
        self.words = words

    @classmethod
    def name(cls) -> str:
        """The name under which submitit knows Slurm."""
        return "slurm"

    def submit_rendered(self) -> str:
        """Submit the run folder's job and return its number."""
        (self.run_folder / SUBMITTED).mkdir(exist_ok=True)
        return str(self._submit_command("").job_id)

    def _num_tasks(self) -> int:
        return 1  # of the batch script; its steps are its own affair

    def _make_submission_file_text(self, command: str, uid: str) -> str:  # noqa: ARG002
        return (self.run_folder / "job.sbatch").read_text(encoding="utf-8")

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        return ["timeout", str(SUBMIT_SECONDS), *sbatch_words(self.run_folder, self.words), str(submission_file_path)]


def sbatch_words(folder: Path, words: list[str]) -> list[str]:
    """The sbatch command for a run folder, without the script."""
    return ["sbatch", f"--chdir={folder}", *words]


def submit(folder: Path, options: Options | None = None) -> str:
    """Submit a run folder and return the job's id, which `job.json` keeps too.

    Raises RefusedError with Slurm's reason when there is no job, ClusterError when Slurm cannot be asked, UsageError
    when the folder is not safe to run.
    """
    options, folder = options or Options(), folder.resolve()
    refuse_unsafe(folder)
    slurm(["sbatch", "--version"])  # a clear word where there is no Slurm
    words = options.words()
    try:
        with _environment(folder, options.environment), contextlib.redirect_stderr(io.StringIO()):
            job = RenderedExecutor(folder, words).submit_rendered()
    except FailedJobError as error:
        job = _after_failure(folder, error)
    except FailedSubmissionError as error:
        raise ClusterError(f"sbatch said something unknown: {' '.join(str(error).split())}") from None
    remember(folder, job, words, options.cluster)
    return job


def _after_failure(folder: Path, error: FailedJobError) -> str:
    """The job's id when Slurm took it although sbatch gave no answer; else the reason why there is none."""
    if getattr(error.__cause__, "returncode", None) != 124:  # timeout's own code
        raise refusal(str(error)) from None
    for job in own_live_jobs():
        if job.folder == folder:
            return job.id
    raise ClusterError(f"sbatch gave no answer within {SUBMIT_SECONDS} s", fix="look with squeue, then submit again")


def refusal(stderr: str) -> RefusedError:
    """A refusal of sbatch as one sentence, with what to do."""
    sentence = one_sentence(stderr)
    fix = next((fix for word, fix in _FIXES if word in sentence.lower()), None)
    return RefusedError(f"Slurm refused the job: {sentence}", fix=fix)


def test_only(folder: Path, options: Options) -> str:
    """What Slurm says to a run folder without taking it: when and where it would start. Raises RefusedError."""
    script = str(folder / "job.sbatch")
    with _environment(folder, {}):
        done = slurm([*sbatch_words(folder, ["--test-only", *options.words()]), script], seconds=SUBMIT_SECONDS)
    if done.returncode != 0:
        raise refusal(done.stderr)
    return one_sentence(done.stderr)


@contextlib.contextmanager
def _environment(folder: Path, more: Mapping[str, str]) -> Iterator[None]:
    """This process's environment with `more`, and without what would overrule the recipe."""
    options = re.findall(r"^#SBATCH --([a-z-]+)", (folder / "job.sbatch").read_text(encoding="utf-8"), re.MULTILINE)
    overruling = [_OVERRIDES[option] for option in options if option in _OVERRIDES]
    before = {name: os.environ.get(name) for name in (*overruling, *more)}
    try:
        for name in overruling:
            os.environ.pop(name, None)
        os.environ.update(more)
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def refuse_unsafe(folder: Path) -> None:
    """Raise UsageError when others could change what runs in this folder, or when a secret stands in it."""
    for path in (folder, *folder.iterdir(), *(folder / "steps").iterdir()):
        if path.stat().st_mode & stat.S_IWOTH:
            message = "anyone may write here, so anyone could run commands in your name"
            raise UsageError(message, at=str(path), fix=f"chmod -R o-w {folder}")
    written = (folder / "recipe.yaml", folder / "plan.json", folder / "job.sbatch", *(folder / "steps").iterdir())
    refuse_secrets({str(path): path.read_text(encoding="utf-8") for path in written})


def refuse_secrets(texts: Mapping[str, str]) -> None:
    """Raise UsageError when a secret stands in what everybody may read; the texts by their place."""
    for place, text in texts.items():
        for number, line in enumerate(text.splitlines(), start=1):
            if holds_secret(line):
                fix = "take it out of the recipe: give it in the environment, or as `hf_token_file` in clusters.yaml"
                raise UsageError("a secret would be written down here", at=f"{place}:{number}:1", fix=fix)

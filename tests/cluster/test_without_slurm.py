"""Where Slurm is not, is silent, or has forgotten: clear words, no hanging, and the folder still tells its story."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pdkit.launch import jobs
from pdkit.launch.jobs import Job, ask, one_sentence

HERE = Path(__file__).parent
Programs = Callable[..., None]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Put only these shell scripts on PATH in place of Slurm's programs."""

    def make(**scripts: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        for name, text in scripts.items():
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)
        for name in ("sh", "cat", "sleep", "timeout"):
            if not (folder / name).exists():
                (folder / name).symlink_to(subprocess.check_output(["which", name], text=True).strip())
        monkeypatch.setenv("PATH", str(folder))

    return make


@pytest.fixture
def folder(pdkit, home: Path, tmp_path: Path) -> Path:
    pdkit("render", HERE / "small.yaml", "-o", tmp_path / "runs")
    [found] = (tmp_path / "runs").iterdir()
    return found


def submitted(folder: Path, *ids: str) -> Path:
    entry = {"submitted": "2026-11-29T10:00:00+00:00", "options": [], "cluster": None}
    (folder / "job.json").write_text(json.dumps({"schema": 1, "jobs": [{"id": one, **entry} for one in ids or ["12"]]}))
    return folder


def begun(folder: Path, job: str = "12") -> None:
    line = {"time": "2026-11-29T10:00:05.000+00:00", "event": "job", "job": job, "restart": 0, "nodes": "n[01-02]"}
    (folder / "events.jsonl").write_text(json.dumps(line) + "\n")


def status(pdkit, folder: Path) -> dict[str, object]:
    ran = pdkit("status", folder, "--json")
    assert ran.code == 0, ran.err
    return dict(json.loads(ran.out)["runs"][0])


def test_slurm_that_belongs_to_no_cluster(pdkit, programs: Programs, home: Path, tmp_path: Path) -> None:
    said = (
        "squeue: error: fetch_config: DNS SRV lookup failed\nsqueue: fatal: Could not establish a configuration source"
    )
    programs(squeue=f"echo '{said}' >&2; exit 1", sbatch="exit 9")
    ran = pdkit("submit", HERE / "small.yaml", "-o", tmp_path / "runs")
    assert ran.code == 3
    assert ran.err.startswith(
        "Slurm is installed on this machine, but it belongs to no cluster\n  fix: use a login node"
    )


def test_submitting_without_slurm_says_what_is_missing(programs: Programs, pdkit, folder: Path) -> None:
    programs()
    ran = pdkit("submit", HERE / "small.yaml", "-o", folder.parent)
    assert ran.code == 3
    assert "there is no Slurm on this machine" in ran.err
    assert "pdkit rack start" in ran.err
    assert len(list(folder.parent.glob("[!.]*"))) == 1, "no new folder"


def test_a_folder_that_never_ran_is_told_so(programs: Programs, pdkit, folder: Path) -> None:
    programs()
    run = status(pdkit, folder)
    assert (run["state"], run["stage"], run["live"]) == ("RENDERED", "rendered", False)


def test_status_without_slurm_tells_what_the_folder_tells(programs: Programs, pdkit, folder: Path) -> None:
    programs()
    begun(submitted(folder))
    run = status(pdkit, folder)
    assert (run["state"], run["stage"], run["job"]) == ("UNKNOWN", "preflight", "12")
    assert "there is no Slurm" in str(run["note"])
    (folder / "result.json").write_text(json.dumps({"exit_code": 6, "stage": "gate", "message": "the gate failed"}))
    run = status(pdkit, folder)
    assert (run["state"], run["stage"], run["exit_code"], run["error"]) == ("ENDED", "failed", 6, "the gate failed")


def test_a_silent_slurm_is_not_waited_for(
    programs: Programs, pdkit, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(squeue="exec sleep 60")
    monkeypatch.setattr(jobs, "ANSWER_SECONDS", 0.3)
    begun(submitted(folder))
    start = time.monotonic()
    run = status(pdkit, folder)
    assert time.monotonic() - start < 5
    assert (run["state"], "Slurm is silent: squeue gave no answer within 0.3 s" in str(run["note"])) == (
        "UNKNOWN",
        True,
    )


def test_a_forgotten_job_without_result_has_failed(programs: Programs, pdkit, folder: Path) -> None:
    programs(squeue='echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1')
    run = status(pdkit, submitted(folder))
    assert (run["state"], run["stage"]) == ("FORGOTTEN", "failed")
    assert run["error"] == "Slurm no longer knows job 12, and it left no result"


def test_a_result_of_an_earlier_job_is_not_this_ones(programs: Programs, pdkit, folder: Path) -> None:
    programs(squeue='echo "13|CANCELLED|None|N/A|N/A||/x"')
    begun(submitted(folder, "12", "13"), "12")
    (folder / "result.json").write_text(json.dumps({"exit_code": 0, "stage": "done", "message": "all passed"}))
    run = status(pdkit, folder)
    assert (run["stage"], run["exit_code"], run["error"]) == ("failed", None, "it was cancelled")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("TIMEOUT", "the time limit ended the job; logs/job.log ends with: still loading"),
        ("PREEMPTED", "another job took its nodes; logs/job.log ends with: still loading"),
        ("NODE_FAIL", "a node failed; logs/job.log ends with: still loading"),
        ("FAILED", "job 12 ended as FAILED (NonZeroExitCode) without a result; logs/job.log ends with: still loading"),
    ],
)
def test_slurms_own_word_is_the_reason(programs: Programs, pdkit, folder: Path, state: str, words: str) -> None:
    programs(squeue=f'echo "12|{state}|NonZeroExitCode|1795980000|1795980100|n01|/x"')
    begun(submitted(folder))
    (folder / "logs" / "job.log").write_text("started\nstill loading\n")
    run = status(pdkit, folder)
    assert (run["stage"], run["error"], run["note"]) == ("failed", words, "while preflight")


def test_sacct_knows_what_squeue_has_forgotten(programs: Programs) -> None:
    programs(
        squeue='echo "8|RUNNING|None|1795980000|1795990000|n01|/runs/8"',
        sacct='echo "7|CANCELLED by 1000|None|1795970000|1795970100|n02|/runs/7"',
    )
    found = ask(["7", "8", "9"])
    assert found.problem == ""
    assert found.jobs == {
        "8": Job(id="8", state="RUNNING", start=1795980000.0, end=1795990000.0, nodes="n01", folder=Path("/runs/8")),
        "7": Job(id="7", state="CANCELLED", start=1795970000.0, end=1795970100.0, nodes="n02", folder=Path("/runs/7")),
    }


def test_accounting_that_is_off_is_no_fault(programs: Programs) -> None:
    programs(squeue="exit 0", sacct='echo "Slurm accounting storage is disabled" >&2; exit 1')
    assert ask(["7"]) == jobs.Answer({}, "")


def test_scontrol_stands_in_for_a_missing_squeue(programs: Programs) -> None:
    line = (
        "JobId=7 JobName=a JobState=RUNNING Reason=None StartTime=1795980000 EndTime=N/A NodeList=n01 WorkDir=/runs/7"
    )
    programs(scontrol=f'[ "$4" = 7 ] && echo "{line}" || {{ echo "Invalid job id" >&2; exit 1; }}')
    expected = Job(id="7", state="RUNNING", start=1795980000.0, nodes="n01", folder=Path("/runs/7"))
    assert ask(["7", "9"]).jobs == {"7": expected}


def test_squeue_is_asked_once_for_all(programs: Programs, tmp_path: Path) -> None:
    programs(squeue=f'echo "$@" >> {tmp_path}/asked')
    ask(["3", "21", "3"])
    [asked] = (tmp_path / "asked").read_text().splitlines()
    assert "--jobs=3,21" in asked


@pytest.mark.parametrize(
    ("stderr", "sentence"),
    [
        (
            "sbatch: error: Batch job submission failed: Node count specification invalid",
            "Node count specification invalid",
        ),
        (
            "allocation failure: Requested node configuration is not available",
            "Requested node configuration is not available",
        ),
        (
            "sbatch: unrecognized option '--bogus'\nTry \"sbatch --help\" for more information",
            "unrecognized option '--bogus'",
        ),
        (
            (
                "sbatch: error: Invalid --segment specification: 4 nodes are not a multiple of 3\n"
                "sbatch: error: Batch job submission failed: Invalid node count"
            ),
            "Invalid --segment specification: 4 nodes are not a multiple of 3 (Invalid node count)",
        ),
        ("", "it gave no reason"),
    ],
)
def test_slurms_complaints_become_one_sentence(stderr: str, sentence: str) -> None:
    assert one_sentence(stderr) == sentence


def test_a_run_that_is_not_there(pdkit, folder: Path, tmp_path: Path) -> None:
    for words, said in (
        (("status", "nope", "-o", folder.parent), "no run `nope`"),
        (("status", tmp_path), "this is not a run folder"),
        (("logs", "99", "-o", folder.parent), "no run `99`"),
        (("status", "-o", tmp_path / "empty"), "no run in"),
        (("submit",), "give either a recipe or --resume RUN"),
        (("submit", HERE / "small.yaml", "--resume", folder), "give either a recipe or --resume RUN"),
        (("submit", "--resume", folder, "--again"), "--resume takes the run as it is"),
    ):
        ran = pdkit(*words)
        assert (ran.code, said in ran.err) == (2, True), ran
    assert os.environ["XDG_CONFIG_HOME"]

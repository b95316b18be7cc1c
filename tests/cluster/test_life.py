"""A run on the rack from submission to its end, as `pdkit status` tells it."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MATRIX = HERE / "one_node.yaml"


def event(name: str, **fields: object) -> dict[str, object]:
    return {"event": name, **fields}


def note(stage: str, text: str) -> dict[str, object]:
    return event("progress", stage=stage, note=text)


@pytest.fixture(scope="module")
def late(cluster) -> Path:
    """A run whose minute is nearly over when the last test of this file looks at it."""
    return cluster.submit("--set", "cluster.time_limit='1'", "--set", "name=late")


@pytest.fixture(scope="module")
def requeued(cluster) -> Path:
    """A run that has been requeued; Slurm takes some time to start it again."""
    folder = cluster.submit("--set", "name=requeued", "--set", "cluster.directives={requeue: true, no-requeue: false}")
    cluster.driving(folder)
    (folder / "seen.json").unlink()
    cluster.slurm("scontrol", "requeue", cluster.job(folder))
    return folder


def test_a_run_is_told_through_its_whole_life(cluster, late: Path, requeued: Path) -> None:
    folder = cluster.submit("--hold")
    queued = cluster.status(folder)
    assert (queued["state"], queued["stage"], queued["note"]) == ("PENDING", "queued", "JobHeldUser")
    assert queued["points"] == [0, 2]
    cluster.slurm("scontrol", "release", cluster.job(folder))
    running = cluster.reach(folder, "loading 0/2 endpoints")
    assert running["eta"]["of"] == "ready"
    assert running["nodes"].startswith(cluster.config.name)
    for acts, stage in (
        ([event("stage", stage="ready"), note("ready", "waiting for decode0")], "loading 1/2 endpoints"),
        ([note("ready", "proving that KV moves from prefill to decode")], "proving"),
        ([event("ready", seconds=1, engines=2)], "ready"),
        ([event("stage", stage="gate"), note("gate", "0/1319, 0 right")], "gate 0/1319"),
        ([note("gate", "812/1319, 800 right")], "gate 812/1319"),
        ([event("passed", accuracy=0.98), event("stage", stage="sweep")], "sweep"),
        ([note("sweep", "concurrency 8: measuring, 5 s")], "point c=8"),
        (
            [event("point", concurrency=8, state="valid"), note("sweep", "concurrency 16: warming up, 1 s")],
            "point c=16",
        ),
    ):
        cluster.tell(folder, *acts)
        last = cluster.reach(folder, stage)
    assert last["eta"]["of"] == "end"
    assert last["live"]
    cluster.tell(folder, {"end": 0, "message": "ready, gate and sweep passed"})
    done = cluster.reach(folder, "done", state="COMPLETED")
    assert (done["exit_code"], done["error"], done["live"]) == (0, "", False)


def test_the_table_and_the_watch_say_the_same(cluster, pdkit) -> None:
    folder = cluster.submit("--set", "name=watched", "--hold")
    table = pdkit("status", "-o", cluster.runs).out
    [row] = [line for line in table.splitlines() if line.startswith(folder.name)]
    assert row.split()[1:] == [cluster.job(folder), "pending", "queued", "0/2", "JobHeldUser"]
    cluster.slurm("scancel", cluster.job(folder))
    watched = pdkit("status", cluster.job(folder), "-o", cluster.runs, "--watch").out
    assert watched.splitlines()[-1].endswith("cancelled, failed: it was cancelled")


def test_a_job_waits_for_another_and_goes_with_it(cluster) -> None:
    first = cluster.submit("--set", "name=first", "--hold")
    second = cluster.submit("--set", "name=second", f"--dependency=afterok:{cluster.job(first)}")
    waiting = cluster.status(second)
    assert (waiting["stage"], waiting["note"]) == ("queued", "Dependency")
    cluster.slurm("scancel", cluster.job(first))
    ended = cluster.reach(second, "failed", state="CANCELLED")
    assert ended["error"] == "it was cancelled"


def test_a_dead_engine_is_named(cluster, pdkit) -> None:
    folder = cluster.submit("--set", "name=dying")
    cluster.driving(folder)
    cluster.slurm("scancel", "--signal=KILL", step_of(cluster, folder, "decode0"))
    failed = cluster.reach(folder, "failed", state="FAILED")
    assert failed["exit_code"] == 4
    assert failed["error"] == "decode0 was killed by signal 9 before the driver; see logs/decode0.log"
    # the driver was told to end, wrote what it had, and does not pass for the cause
    assert (folder / "kept.json").exists()
    assert "standing in for dynamo.vllm" in pdkit("logs", folder, "decode0").out


def step_of(cluster, folder: Path, name: str) -> str:
    listed = cluster.slurm("squeue", "--noheader", "--steps", f"--jobs={cluster.job(folder)}", "--format=%i %j")
    return next(line.split()[0] for line in listed.splitlines() if line.split()[1] == name)


def test_what_others_submitted_by_hand_is_told_too(cluster) -> None:
    folder = cluster.submit("--set", "name=by-hand", "--hold")
    cluster.slurm("scancel", cluster.job(folder))
    cluster.slurm("sbatch", f"--chdir={folder.resolve()}", folder / "job.sbatch")
    cluster.driving(folder)
    by_hand = cluster.reach(folder, "loading")
    assert by_hand["job"] != cluster.job(folder)
    # and a second job in the same folder gives way at once
    third = cluster.slurm("sbatch", "--parsable", f"--chdir={folder.resolve()}", folder / "job.sbatch").strip()
    words = f"job {by_hand['job']} runs in {folder.resolve()} already"
    cluster.wait_until(lambda: words in (folder / "logs" / "job.log").read_text(), words)
    cluster.wait_until(lambda: "FAILED" in state(cluster, third), "it has ended")
    assert cluster.status(folder)["stage"].startswith("loading")
    cluster.slurm("scancel", by_hand["job"])


def state(cluster, job: str) -> str:
    return cluster.slurm("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").strip()


def test_fifty_at_once_give_fifty_jobs(cluster, pdkit) -> None:
    """Five shells submit ten jobs each at the same moment; then some are let go and some are cancelled."""
    output = cluster.runs / "fifty"

    def shell(number: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pdkit.cli", "submit", MATRIX, "-o", output, "--hold", "--json"]
        command += ["--set", f"workload.isl={1024 - number}", "--set", "name=fifty"]
        return subprocess.run(command, text=True, capture_output=True, check=False, timeout=120)

    with ThreadPoolExecutor(5) as shells:
        done = list(shells.map(shell, range(5)))
    assert [one.returncode for one in done] == [0] * 5, [one.stderr for one in done]
    jobs = {job["job"]: Path(job["folder"]) for one in done for job in json.loads(one.stdout)["jobs"]}
    assert (len(jobs), len(set(jobs.values()))) == (50, 50)
    listed = cluster.slurm("squeue", "--noheader", "--me", "--states=pending", "--format=%i %Z").splitlines()
    queue = dict(line.split() for line in listed)
    assert {job: queue.get(job) for job in jobs} == {job: str(folder.resolve()) for job, folder in jobs.items()}
    assert table(pdkit, output) == {(job, "pending", "queued") for job in jobs}

    started, cancelled = sorted(jobs, key=int)[:3], sorted(jobs, key=int)[3:6]
    cluster.slurm("scancel", *cancelled)
    cluster.slurm("scontrol", "release", ",".join(started))
    for job in started:
        cluster.driving(jobs[job])
    cluster.tell(jobs[started[0]], {"end": 6, "message": "the gate failed: 0 of 8 right"})
    cluster.reach(jobs[started[0]], "failed", state="FAILED")
    expected = {(job, "pending", "queued") for job in jobs} - {
        (job, "pending", "queued") for job in started + cancelled
    }
    expected |= {(job, "cancelled", "failed") for job in cancelled} | {(started[0], "failed", "failed")}
    expected |= {(job, "running", "loading") for job in started[1:]}
    assert table(pdkit, output) == expected
    cluster.slurm("scancel", *jobs)


def table(pdkit, output: Path) -> set[tuple[str, str, str]]:
    rows = [line.split() for line in pdkit("status", "-o", output).out.splitlines()[1:]]
    return {(row[1], row[2], row[3]) for row in rows}


def test_a_requeued_job_begins_anew_in_its_folder(cluster, requeued: Path) -> None:
    cluster.driving(requeued)
    job = cluster.job(requeued)
    begun = [(one["job"], one["restart"]) for one in events(requeued) if one["event"] == "job"]
    assert begun == [(job, 0), (job, 1)]
    again = cluster.reach(requeued, "loading 0/2")
    assert (again["job"], again["error"]) == (job, "")
    assert json.loads((requeued / "earlier" / "1" / "result.json").read_text())["exit_code"] == 8
    cluster.slurm("scancel", job)


def test_a_run_that_comes_near_its_limit_keeps_what_it_has(cluster, late: Path) -> None:
    ended = cluster.reach(late, "failed", state="FAILED", deadline_s=90)
    assert ended["exit_code"] == 8
    assert ended["error"].startswith("the time limit came near; what was finished is kept")
    assert (late / "kept.json").exists()
    assert [one["event"] for one in events(late)][-2:] == ["failed", "failed"]  # the driver's, and the job's


def events(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]

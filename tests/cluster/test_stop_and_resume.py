"""Stopping runs on the rack and on this machine, and going on with them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pdkit.launch.processes import sweep
from pdkit.rack import rack as racks

HERE = Path(__file__).parent
TINY = HERE.parents[1] / "recipes" / "local" / "tiny_pd.yaml"


def on_nodes(cluster) -> list[str]:
    """What runs on the nodes beside Slurm itself."""
    found = [one for node in cluster.config.node_names for one in racks.node_processes(cluster.config, node)]
    return [one.name for one in found if not one.name.startswith("slurm")]


def test_a_run_drains_and_goes_on(cluster, pdkit) -> None:
    folder = cluster.submit("--set", "name=stopped")
    cluster.driving(folder)
    boot = {file.name: file.read_text() for file in (folder / "boot").iterdir()}
    (folder / "discovery").mkdir()
    (folder / "points").mkdir(exist_ok=True)
    (folder / "points" / "c0008.json").write_text(json.dumps({"valid": True}))
    first = cluster.job(folder)

    shown = pdkit("submit", "--resume", folder, "--json")
    [running] = json.loads(shown.out)["jobs"]
    assert (running["job"], running["new"]) == (first, False), "a run that is at work is shown, not joined"

    stopped = pdkit("stop", folder)
    assert stopped.code == 0, stopped.err
    assert f"job {first} drained in" in stopped.out
    assert on_nodes(cluster) == []
    assert (folder / "kept.json").exists(), "the driver was told, and wrote what it had"
    ended = cluster.status(folder)
    assert (ended["state"], ended["stage"], ended["exit_code"]) == ("FAILED", "failed", 8)
    assert ended["error"] == "stopped by a signal to the job; what was finished is kept"
    assert "nothing to stop" in pdkit("stop", folder).out

    (folder / "seen.json").unlink()
    resumed = pdkit("submit", "--resume", first, "-o", cluster.runs)
    assert "submitted, 2 nodes" in resumed.out, resumed.err
    second = cluster.job(folder)
    assert second != first
    cluster.driving(folder)
    now = cluster.status(folder)
    assert (now["job"], now["state"], now["points"], now["error"]) == (second, "RUNNING", [1, 2], "")
    # nothing of the first job passes for the second one's
    assert not (folder / "discovery").exists()
    assert not (folder / "result.json").exists()
    assert json.loads((folder / "earlier" / "1" / "result.json").read_text())["exit_code"] == 8
    assert f"driver of {first}" in (folder / "earlier" / "1" / "logs" / "driver.log").read_text()
    assert f"driver of {second}" in (folder / "logs" / "driver.log").read_text()
    new = {file.name: file.read_text() for file in (folder / "boot").iterdir()}
    assert set(new) == set(boot)
    assert not set(new.values()) & set(boot.values()), "new processes, new identities"
    cluster.tell(folder, {"end": 0, "message": "ready, gate and sweep passed"})
    cluster.reach(folder, "done", state="COMPLETED")


def test_a_waiting_job_is_cancelled_and_one_that_does_not_drain_too(cluster, pdkit) -> None:
    waiting = cluster.submit("--set", "name=waiting", "--hold")
    assert f"job {cluster.job(waiting)} was waiting; it is cancelled" in pdkit("stop", waiting).out
    assert cluster.status(waiting)["state"] == "CANCELLED"
    folder = cluster.submit("--set", "name=stubborn")
    cluster.driving(folder)
    said = pdkit("stop", cluster.job(folder), "-o", cluster.runs, "--drain", 0).out
    assert f"job {cluster.job(folder)} did not drain in 0 s; it is cancelled" in said
    assert on_nodes(cluster) == []
    assert cluster.status(folder)["error"].startswith("it was cancelled")


def test_a_changed_folder_is_not_gone_on_with(cluster, pdkit) -> None:
    pdkit("render", HERE / "small.yaml", "-o", cluster.runs / "changed")
    [folder] = (cluster.runs / "changed").iterdir()
    recipe = folder / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("osl: 128", "osl: 64"))
    ran = pdkit("submit", "--resume", folder)
    assert (ran.code, "not as it was rendered" in ran.err) == (2, True)
    assert not (folder / "job.json").exists()


@pytest.fixture
def local_run(cluster, stand_ins: Path, tmp_path: Path):
    """`pdkit run` on this machine, its engines and driver stand-ins."""
    command = [sys.executable, "-m", "pdkit.cli", "run", TINY, "-o", tmp_path, "--engines", stand_ins.parent]
    popen = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "NO_COLOR": "1"}
    )
    cluster.wait_until(lambda: list(tmp_path.glob("*/seen.json")), "the driver listens")
    [file] = tmp_path.glob("*/seen.json")
    yield popen, file.parent
    popen.kill()
    popen.communicate()


def test_a_run_on_this_machine_is_told_and_stopped_too(cluster, pdkit, local_run) -> None:
    popen, folder = local_run
    cluster.tell(
        folder, {"event": "stage", "stage": "gate"}, {"event": "progress", "stage": "gate", "note": "3/32, 3 right"}
    )
    told = cluster.reach(folder, "gate 3/32")
    assert told["job"] is None
    assert "drained in" in pdkit("stop", folder).out
    assert popen.wait(10) == 8, popen.stdout.read()
    ended = cluster.status(folder)
    assert (ended["state"], ended["stage"], ended["exit_code"]) == ("ENDED", "failed", 8)
    assert "stopped by SIGTERM" in ended["error"]


def test_a_run_of_which_nothing_is_left_is_gone(cluster, local_run) -> None:
    """As after a power cut: neither the launcher nor the driver could write a word."""
    popen, folder = local_run
    popen.send_signal(signal.SIGSTOP)
    sweep((folder / "run.id").read_text().strip())
    popen.kill()
    gone = cluster.reach(folder, "failed", state="GONE", deadline_s=20)
    assert "left no result" in gone["error"]
    assert gone["note"] == ""

"""Whole jobs with played engines under the real Dynamo, etcd, NATS and load tool: that they end, and what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pdkit.job.events import read_events

ROOT = Path(__file__).parents[2]
FRONT_DOOR = ROOT / "recipes" / "qwen38_tep8.yaml"
LARGE = ROOT / "recipes" / "qwen38" / "published" / "4xtp2dp4-1xtp4dp4-cc2560.yaml"
SMALL = Path(__file__).with_name("small.yaml")
EQUALS = ROOT / "recipes" / "qwen38" / "pairs" / "1xtep8-1xtep8.yaml"

pytestmark = pytest.mark.local


@pytest.fixture
def dynamo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Dynamo and the load tool are."""
    engines = ROOT / ".venv-vllm"
    if not (engines / "bin" / "python3").exists():
        pytest.skip("the engines are not installed here: make engines")
    monkeypatch.setenv("PDKIT_ENGINES", str(engines))


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def scripts(folder: Path) -> dict[str, bytes]:
    files = [folder / "job.sbatch", *(folder / "steps").iterdir()]
    return {file.name: file.read_bytes() for file in files}


def finish(cluster: Any, folder: Path, deadline_s: float) -> dict[str, Any]:
    cluster.wait_until((folder / "result.json").exists, f"{folder.name} has ended", deadline_s=deadline_s)
    return dict(cluster.reach(folder, "done", state="COMPLETED", deadline_s=60))


def is_marked_rehearsal(pdkit: Any, folder: Path, status: dict[str, Any]) -> None:
    assert status["rehearsal"] is True
    assert status["note"] == "rehearsal, no performance figure: ready, gate and sweep passed"
    assert read(folder, "lock.json")["rehearsal"] == "mocker"
    points = [json.loads(file.read_text()) for file in sorted((folder / "points").iterdir())]
    assert points
    assert all(point["valid"] and point["rehearsal"] for point in points)
    assert pdkit("report", folder, "-o", folder / "page.html").code == 0
    assert "is a rehearsal: no performance figure" in (folder / "page.html").read_text()
    assert read(folder, "page.json")["frontier"] == []


@pytest.mark.usefixtures("dynamo")
def test_the_largest_recipe_and_the_front_door_beside_it_run_to_the_end(cluster, pdkit, tmp_path: Path) -> None:
    large = cluster.submit("--engine", "mocker", recipe=LARGE)
    small = cluster.submit("--engine", "mocker", recipe=FRONT_DOOR)
    done = {folder: finish(cluster, folder, deadline_s=400) for folder in (small, large)}

    nodes = {folder: {event["node"] for event in read_events(folder) if event["event"] == "started"} for folder in done}
    assert (len(nodes[large]), len(nodes[small])) == (12, 4)
    assert not nodes[large] & nodes[small]
    steps = [event["step"] for event in read_events(large) if event["event"] == "started"]
    assert sum(step.startswith("prefill") for step in steps) == 8
    assert sum(step.startswith("decode") for step in steps) == 4
    assert len(read(large, "ready.json")["engines"]) == 16 + 4, "every DP rank reports"
    assert read(large, "points/c2560.json")["in_flight_peak"] == 2560
    for folder, status in done.items():
        assert read(folder, "gate.json")["verdict"]["accuracy"] == 0.96
        is_marked_rehearsal(pdkit, folder, status)

    # the very job: nothing in its scripts knows that it is rehearsed
    assert pdkit("render", FRONT_DOOR, "-o", tmp_path).code == 0
    [measured] = tmp_path.iterdir()
    assert scripts(small) == scripts(measured)
    assert "rehearsal" not in read(measured, "lock.json")

    # as a preempted job would have left it; the next one has played engines again
    (small / "points" / "c0016.json").unlink()
    (small / "result.json").write_text('{"schema": 1, "exit_code": 8, "stage": "sweep", "message": "stopped"}')
    assert pdkit("submit", "--resume", small).code == 0
    cluster.wait_until(lambda: not (small / "result.json").exists(), "the next job has begun")
    is_marked_rehearsal(pdkit, small, finish(cluster, small, deadline_s=120))
    told = [(one["concurrency"], one["state"]) for one in read_events(small) if one["event"] == "point"]
    assert told == [(8, "valid"), (16, "valid"), (8, "kept"), (16, "valid")]


@pytest.mark.usefixtures("dynamo", "home", "rack")
def test_wrong_answers_end_a_rehearsal_on_a_rack_of_its_own(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`rack` is not used, but says why no rack can be here."""
    state = tmp_path_factory.mktemp("s")  # a short path: sockets lie below it
    environment = {name: value for name, value in os.environ.items() if name != "SLURM_CONF"}
    environment |= {"XDG_STATE_HOME": str(state), "PDKIT_MOCKER_RIGHT": "0.5"}
    command = [sys.executable, "-m", "pdkit.cli", "rehearse", str(EQUALS), "-o", str(tmp_path / "runs"), "--nodes", "4"]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=180, check=False)
    assert done.returncode == 6, done.stdout + done.stderr
    assert "rack rehearsal: 4 nodes up" in done.stdout
    [folder] = [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    assert next(one for one in read(folder, "ready.json")["checks"] if one["name"] == "P/D text")["seen"] == "equal"
    assert read(folder, "gate.json")["verdict"]["correct"] == 100
    assert not list((folder / "points").iterdir())
    assert not (folder / "load").exists(), "the load tool was never started"
    assert (folder / "report.html").exists()
    assert not (state / "pdkit" / "rehearsal").exists(), "its rack is gone"
    assert not [path for path in Path("/run/netns").iterdir() if path.name.startswith("rehearsal-")]


def test_played_engines_refuse_to_stand_in_a_measurement(tmp_path: Path) -> None:
    (tmp_path / "lock.json").write_text('{"digest": "sha256:0"}')
    command = [sys.executable, "-m", "pdkit.mocker.engine", "--model", "m"]
    environment = {**os.environ, "RUN_DIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == 1
    assert "played engines run in rehearsals only" in done.stderr


def test_run_submits_a_recipe_for_gpus_and_stays_to_its_end(cluster, pdkit) -> None:
    ended = []
    run = threading.Thread(
        target=lambda: ended.append(pdkit("run", SMALL, "--set", "name=watched", "-o", cluster.runs))
    )
    run.start()
    cluster.wait_until(lambda: list(cluster.runs.glob("watched-*/seen.json")), "the driver listens")
    [folder] = cluster.runs.glob("watched-*")
    cluster.tell(folder, {"end": 5, "message": "decode0 never came"})
    run.join(60)
    [ran] = ended
    assert ran.code == 5, ran.err
    assert "submitted, 2 nodes" in ran.out
    assert "decode0 never came" in ran.out
    assert (folder / "report.html").exists()

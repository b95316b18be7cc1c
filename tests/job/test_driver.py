"""The driver by itself: what it makes of the recipe, and how it ends. Whole runs are in tests/launch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pdkit.commands import planned
from pdkit.errors import EngineError, GateError, MeasurementError, NotReadyError, UsageError
from pdkit.job import driver as driver_module
from pdkit.job import vigil
from pdkit.job.deployment import Deployment, read_deployment
from pdkit.job.driver import Driver, finish, node_address
from pdkit.job.events import read_events
from pdkit.job.ready import Ready
from pdkit.job.settings import gate_settings, load_settings
from pdkit.job.transfers import Counters
from pdkit.render.folder import write_run_folder

from ..fakes.launches import RECIPE

READY = Ready(boot_ids=("decode0=x", "instance=1"), engines=(), checks=(), seconds=1.0, message="")
Make = Callable[..., Deployment]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A deployment of the fakes' recipe of which nothing runs."""

    def one(*sets: str) -> Deployment:
        loaded, plan, findings = planned(RECIPE, ("infra.http_port=1024", *sets))[0]
        write_run_folder(tmp_path / "run", plan, loaded.source, findings)
        return read_deployment(tmp_path / "run", lambda _node: "127.0.0.1")

    return one


def start(folder: Path, **environment: str) -> subprocess.Popen[str]:
    """The driver as its step starts it, from the run folder's own code."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("NODE_IP_")}
    tool = folder.parent / "bin" / "vllm"  # asked for at the start, and not called here
    tool.parent.mkdir(exist_ok=True)
    tool.touch(mode=0o755)
    inherited["PATH"] = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(
        [sys.executable, "-m", "pdkit.job.driver", folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**inherited, "PYTHONPATH": str(folder / "pdkit.zip"), **environment},
    )


def result(folder: Path) -> dict[str, object]:
    return dict(json.loads((folder / "result.json").read_text()))


def test_the_gate_is_as_the_recipe_says(make: Make) -> None:
    deployment = make("gate.questions=7", "gate.concurrency=null", "workload.concurrency=[2, 16, 4]", "gate.floor=0.5")
    settings = gate_settings(deployment, READY)
    assert settings.base_url == "http://127.0.0.1:1024"
    assert settings.model == "tiny"
    assert settings.data == deployment.folder / "accuracy" / "questions.jsonl"
    assert (settings.data_sha256, settings.shots, settings.twin) == (None, None, None)
    assert (settings.question_limit, settings.concurrency, settings.max_tokens, settings.floor) == (7, 16, 128, 0.5)
    assert settings.lock_digest == deployment.lock_digest
    assert settings.boot_ids == READY.boot_ids


def test_the_sweep_is_as_the_recipe_says(make: Make) -> None:
    deployment = make("decode.topology=TP2", "decode.endpoints=2", "sweep.repeats=2", "common.prefix_caching=false")
    settings = load_settings(deployment)
    assert (settings.tool, settings.tool_version) == ("vllm-bench", "0.31.0")
    assert (settings.isl, settings.osl, settings.concurrency, settings.repeats) == (256, 32, (1,), 2)
    assert (settings.gpus, settings.gpus_by_role) == (5, {"prefill": 1, "decode": 4})
    assert settings.metrics_urls == tuple(f"{worker.url}/metrics" for worker in deployment.workers[1:])
    assert not settings.prefix_caching


def test_a_step_outside_of_its_job_is_told_so(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_IP_0", "10.1.1.1")
    monkeypatch.delenv("NODE_IP_1", raising=False)
    assert node_address(0) == "10.1.1.1"
    with pytest.raises(UsageError, match="NODE_IP_1 is not set"):
        node_address(1)
    folder = make().folder
    driver = start(folder)
    text, _ = driver.communicate(timeout=30)
    assert driver.returncode == 2
    assert text.splitlines()[0] == "NODE_IP_0 is not set"
    assert (result(folder)["exit_code"], result(folder)["stage"]) == (2, "start")


@pytest.mark.parametrize("signals", [(signal.SIGTERM,), (signal.SIGINT,) * 2, (signal.SIGTERM,) * 5], ids=len)
def test_signals_end_the_driver_once_with_what_it_has(make: Make, signals: tuple[signal.Signals, ...]) -> None:
    folder = make().folder
    driver = start(folder, NODE_IP_0="127.0.0.1")
    deadline = time.monotonic() + 30
    while not any(event["event"] == "progress" for event in read_events(folder)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for number in signals:
        driver.send_signal(number)
    text, _ = driver.communicate(timeout=30)
    assert driver.returncode == 8
    assert text == f"stopped by {signals[0].name}; what was finished is kept\n"
    assert result(folder) == {"schema": 1, "exit_code": 8, "stage": "ready", "message": text.strip(), "code": None}
    assert [event["event"] for event in read_events(folder)] == ["stage", "progress", "failed"]


def test_a_full_disk_ends_the_driver_with_a_clear_word(make: Make) -> None:
    folder = make().folder
    (folder / "events.jsonl").symlink_to("/dev/full")
    driver = start(folder, NODE_IP_0="127.0.0.1")
    text, _ = driver.communicate(timeout=30)
    assert driver.returncode == 2
    assert text.splitlines()[0].endswith("cannot write: No space left on device")
    assert "Traceback" not in text
    assert (result(folder)["exit_code"], result(folder)["stage"]) == (2, "ready")


def test_the_end_is_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert finish(tmp_path, NotReadyError("not yet", fix="wait", code="PD201"), "ready") == 5
    words = "PD201 not yet\n  fix: wait"
    assert result(tmp_path) == {"schema": 1, "exit_code": 5, "stage": "ready", "message": words, "code": "PD201"}
    assert capsys.readouterr().err == f"{words}\n"
    assert finish(tmp_path, None, "done") == 0
    assert result(tmp_path)["exit_code"] == 0
    assert [(event["event"], event["exit_code"]) for event in read_events(tmp_path)] == [("failed", 5), ("done", 0)]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "missing", "code"),
    [
        (GateError("wrong answers"), ["decode0"], 4),
        (MeasurementError("no tokens"), ["decode0"], 4),
        (GateError("wrong answers"), [], 6),
        (MeasurementError("no tokens"), [], 7),
        (NotReadyError("no"), ["decode0"], 5),
    ],
)
def test_a_dead_engine_is_the_cause_of_what_follows(
    make: Make, monkeypatch: pytest.MonkeyPatch, error: GateError, missing: list[str], code: int
) -> None:
    monkeypatch.setattr(driver_module, "missing_parts", lambda _deployment: missing)
    driver = Driver(make())
    driver.stage = "gate"
    assert driver_module._fail(driver, error) == code
    message = str(result(driver.folder)["message"])
    assert error.message in message
    assert ("decode0 no longer there while the gate ran" in message) == (code == 4)


def test_no_point_outlives_a_fatal_line_of_its_last_moments(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep asks for the identities right before it writes a point."""
    monkeypatch.setattr(driver_module, "boot_ids", lambda _deployment: ("decode0=x",))
    monkeypatch.setattr(vigil, "read_look", lambda _deployment: {"decode0": Counters(received=100.0)})
    driver = Driver(make())
    driver.deployment.log("decode0").write_text("INFO fine\n")
    assert driver._identities() == ("decode0=x",)
    driver.deployment.log("decode0").write_text("INFO fine\nReleasing expired KV blocks for request 7\n")
    with pytest.raises(EngineError, match="the log of decode0 says that the run is void"):
        driver._identities()


def test_progress_is_told_when_it_changes_and_not_too_often(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(make())
    now = 100.0
    monkeypatch.setattr(driver_module.time, "monotonic", lambda: now)
    for seconds, note in ((0, "a"), (1, "b"), (driver_module.EVENT_SECONDS, "a"), (6, "b"), (20, "b")):
        now = 100.0 + seconds
        driver._note(note)
    assert [event["note"] for event in read_events(driver.folder)] == ["a", "b"]

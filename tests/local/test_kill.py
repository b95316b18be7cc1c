"""kill -9 of real processes in the middle of the work: the run ends soon, says who died, and leaves nothing."""

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

from .conftest import ENGINES, ROOT, leftovers

pytestmark = pytest.mark.local

START_SECONDS = 400
END_SECONDS = 15


def children(pid: int) -> list[int]:
    listing = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(one) for one in listing.stdout.split()]


def events(folder: Path) -> list[dict[str, object]]:
    file = folder / "events.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def main_process(folder: Path, step: str) -> int:
    return next(int(str(one["pid"])) for one in events(folder) if one["event"] == "started" and one["step"] == step)


def engine_core(folder: Path, step: str) -> int:
    """vLLM's scheduler, the child of a worker's main process that holds the KV."""
    for pid in children(main_process(folder, step)):
        if b"EngineCore" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError(f"{step} has no EngineCore")


def in_stage(folder: Path, stage: str) -> bool:
    return any(one["event"] == "progress" and one.get("stage") == stage for one in events(folder))


@pytest.mark.parametrize(
    ("stage", "victim", "find"),
    [("gate", "frontend0", main_process), ("sweep", "prefill0", main_process), ("sweep", "decode0", engine_core)],
)
def test_a_killed_process_ends_the_run(
    stage: str, victim: str, find: Callable[[Path, str], int], tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    argv = [sys.executable, "-m", "pdkit.cli", "run", str(ROOT / "recipes" / "local" / "tiny_pd.yaml"), "-o", str(runs)]
    argv += ["--set", "gate.concurrency=1", "--set", "workload.concurrency=[1]", "--set", "workload.osl=256"]
    with (tmp_path / "output").open("w") as log:
        run = subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, "PDKIT_ENGINES": str(ENGINES)})
    try:
        started = time.monotonic()
        while not (runs.exists() and any(in_stage(folder, stage) for folder in runs.iterdir())):
            assert run.poll() is None, (tmp_path / "output").read_text()
            assert time.monotonic() - started < START_SECONDS
            time.sleep(0.1)
        folder = next(runs.iterdir())
        os.kill(find(folder, victim), signal.SIGKILL)
        killed = time.monotonic()
        code = run.wait(END_SECONDS + 30)
        took = time.monotonic() - killed
    finally:
        run.kill()
    said = (tmp_path / "output").read_text()
    assert code == 4, said
    assert took < END_SECONDS, f"{took:.1f} s\n{said}"
    assert victim in said
    assert leftovers((folder / "run.id").read_text()) == []
    assert json.loads((folder / "result.json").read_text())["exit_code"] == 4
    assert (folder / "gate.jsonl").exists()
    assert (folder / "report.html").exists()
    assert list((folder / "points").iterdir()) == []

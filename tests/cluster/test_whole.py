"""The real driver as a job on the rack, over fake engines that are real processes: proof, gate, sweep, and going on."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

import pytest

from pdkit.job.events import read_events

from ..fakes.engines import make_engines

ROOT = Path(__file__).parents[2]
TINY = ROOT / "recipes" / "local" / "tiny_pd.yaml"


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake engines first on the PATH of jobs; they listen on their node's own address."""
    folder = make_engines(tmp_path / "engines")
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DYN_SYSTEM_HOST", "0.0.0.0")
    monkeypatch.setenv("PDKIT_RUN_ID", str(uuid.uuid4()))  # the local launcher's mark, which they expect


def identities(folder: Path) -> list[str]:
    return list(json.loads((folder / "gate.json").read_text())["header"]["boot_ids"])


@pytest.mark.usefixtures("engines")
def test_a_job_proves_gates_sweeps_and_goes_on_with_what_is_missing(cluster, pdkit) -> None:
    sets = ("--set", "workload.concurrency=[1, 2]", "--set", "infra.discovery=file")  # the fakes know no other
    folder = cluster.submit(*sets, recipe=TINY)
    done = cluster.reach(folder, "done", state="COMPLETED", deadline_s=90)
    assert (done["points"], done["exit_code"], done["note"]) == ([2, 2], 0, "ready, gate and sweep passed")
    first = identities(folder)

    finished = pdkit("submit", "--resume", folder)
    assert (finished.code, "nothing is missing" in finished.err) == (2, True)

    # the result alone is not believed: one point does not follow from its trace
    kept = (folder / "points" / "c0001.json").read_bytes()
    changed = json.loads((folder / "points" / "c0002.json").read_text())
    changed["output_tok_s"] *= 2
    (folder / "points" / "c0002.json").write_text(json.dumps(changed))
    assert pdkit("submit", "--resume", folder).code == 0
    cluster.wait_until(lambda: not (folder / "result.json").exists(), "the next job has begun")
    done = cluster.reach(folder, "done", state="COMPLETED", deadline_s=90)
    assert done["points"] == [2, 2]
    assert (folder / "points" / "c0001.json").read_bytes() == kept
    measured = [(one["concurrency"], one["state"]) for one in read_events(folder) if one["event"] == "point"]
    assert measured == [(1, "valid"), (2, "valid"), (1, "kept"), (2, "valid")]
    second = identities(folder)
    assert not set(first) & set(second), "proved and gated anew, as other processes"
    assert (folder / "gate.1.jsonl").exists()
    points = {file.stem: json.loads(file.read_text()) for file in (folder / "points").glob("c*.json")}
    assert points["c0001"]["gate_digest"] != points["c0002"]["gate_digest"], "each point names its own gate"
    assert set(points["c0001"]["boot_ids"]) == set(first)
    assert set(points["c0002"]["boot_ids"]) == set(second)

"""The demo with real engines: what it leaves, what a resumed run redoes, and every misconfiguration caught by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .conftest import ROOT, Run, pdkit_run

pytestmark = pytest.mark.local

QUICK = ("--set", "sweep.prompts_per_concurrency=2", "--set", "workload.osl=8")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return pdkit_run("tiny_pd.yaml", tmp_path_factory.mktemp("demo") / "runs", *QUICK)


def test_the_demo_is_ready_gated_swept_and_reported(demo: Run) -> None:
    assert demo.code == 0, demo.output
    ready, gate = demo.json("ready.json"), demo.json("gate.json")
    assert ready["ready"] is True
    assert {engine["block_size"] for engine in ready["engines"]} == {128}
    proved = {check["name"]: check["seen"] for check in ready["checks"]}
    assert proved["P/D text"] == "equal"
    assert proved["failed transfers"].startswith("0")
    assert gate["passed"] is True
    assert gate["verdict"]["accuracy"] >= 0.95
    assert demo.points == ["c0001.json", "c0002.json", "c0004.json", "c0008.json"]
    for name in demo.points:
        point = demo.json(f"points/{name}")
        assert point["valid"] is True, point["invalid_reasons"]
        assert point["gate_digest"] == gate["gate_digest"]
        assert sorted(point["boot_ids"]) == sorted(ready["boot_ids"])
    page = (demo.folder / "report.html").read_text()
    assert "<svg" in page
    assert "tiny-pd" in page
    assert demo.json("result.json")["exit_code"] == 0


def test_the_plan_was_what_vllm_then_reported(demo: Run) -> None:
    planned = demo.json("plan.json")["roles"]["decode"]
    seen = next(engine for engine in demo.json("ready.json")["engines"] if engine["role"] == "decode")
    assert seen["kv_blocks"] == planned["kv"]["blocks"]
    assert seen["max_concurrency"] == pytest.approx(planned["max_concurrency"]["per_rank"], rel=0.005)


def test_a_resumed_run_redoes_only_what_is_missing(demo: Run) -> None:
    said = pdkit_run("tiny_pd.yaml", demo.folder.parent, *QUICK, "--resume")
    assert (said.code, said.folder) == (0, demo.folder)
    assert "nothing is missing" in said.output
    kept = {name: (demo.folder / "points" / name).read_bytes() for name in demo.points if name != "c0004.json"}
    before = demo.json("gate.json")["gate_digest"]
    (demo.folder / "points" / "c0004.json").unlink()
    (demo.folder / "result.json").unlink()
    again = pdkit_run("tiny_pd.yaml", demo.folder.parent, *QUICK, "--resume")
    assert again.code == 0, again.output
    assert {name: (again.folder / "points" / name).read_bytes() for name in kept} == kept
    after = again.json("gate.json")["gate_digest"]
    assert after != before
    assert again.json("points/c0004.json")["gate_digest"] == after


def test_a_hybrid_model_moves_its_state_exactly(tmp_path: Path) -> None:
    run = pdkit_run("tiny_hybrid_pd.yaml", tmp_path / "runs", *QUICK, "--set", "workload.concurrency=[2]")
    assert run.code == 0, run.output
    planned = run.json("plan.json")["roles"]["decode"]
    engine = run.json("ready.json")["engines"][0]
    assert engine["kv_blocks"] == planned["kv"]["blocks"]
    assert engine["max_concurrency"] == pytest.approx(planned["max_concurrency"]["per_rank"], rel=0.005)


FAULTS = {
    "decode blocks of 256": (
        ("prefill.block_size=128", "decode.block_size=256"),
        ("block size", "prefill 128, decode 256"),
    ),
    "decode blocks of 32": (
        ("prefill.block_size=128", "decode.block_size=32"),
        ("block size", "prefill 128, decode 32"),
    ),
    "no connector on decode": (("decode.kv_transfer=none",), ("decode0", "KV")),
    "another dtype on decode": (("decode.dtype=float32",), ("decode0", "dtype")),
    "another model path on decode": (("decode.model_path={copy}",), ("decode0", "model")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_pair_that_does_not_fit_is_stopped_before_any_point(fault: str, tmp_path: Path) -> None:
    settings, words = FAULTS[fault]
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "pdkit" / "laptop" / "models" / "dense", copy)
    sets = [word for one in settings for word in ("--set", one.format(copy=copy))]
    run = pdkit_run("tiny_pd.yaml", tmp_path / "runs", "--force", *sets)
    assert run.code == 5, run.output
    assert run.points == []
    assert not (run.folder / "gate.json").exists()
    for word in words:
        assert word in run.output
    assert run.json("ready.json")["ready"] is False
    assert (run.folder / "report.html").exists()


def test_the_same_faults_are_findings_without_force(tmp_path: Path) -> None:
    for settings, _ in FAULTS.values():
        sets = [word for one in settings for word in ("--set", one.format(copy=tmp_path))]
        run = refused(tmp_path, *sets)
        assert run[0] == 1
        assert "error PD0" in run[1]


def refused(output: Path, *options: str) -> tuple[int, str]:
    import subprocess
    import sys

    argv = [sys.executable, "-m", "pdkit.cli", "run", str(ROOT / "recipes" / "local" / "tiny_pd.yaml")]
    done = subprocess.run([*argv, "-o", str(output / "none"), *options], text=True, capture_output=True, check=False)
    assert not (output / "none").exists()
    return done.returncode, done.stderr

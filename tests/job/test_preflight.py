"""The preflight of one node, on this machine and on machines made of folders and small programs."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pdkit.job import preflight
from pdkit.job.preflight import disagreements, look_at_node


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    write_plan(tmp_path, device="cpu")
    return tmp_path


def write_plan(folder: Path, **changes: Any) -> None:
    plan = {
        "device": "cuda",
        "nodes": 1,
        "ports": [],
        "placement": [{"node": 0, "role": "agg", "gpus": [0, 1]}],
        "roles": {"agg": {"model_path": str(folder / "model")}},
    }
    (folder / "plan.json").write_text(json.dumps(plan | changes))


def faults(folder: Path, node: int = 0) -> list[str]:
    return [look.what for look in look_at_node(folder, node) if look.level == "fault"]


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A program of that name, first on PATH."""
    tool = folder / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/bash\n{body}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")


def test_a_good_node_has_no_fault(folder: Path) -> None:
    assert faults(folder) == []
    assert not list(folder.glob(".clock*"))


def test_a_taken_port_is_named_with_its_owner(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        write_plan(folder, device="cpu", ports=[{"node": 0, "port": port, "owner": "decode0 nixl"}])
        assert f"port {port} (decode0 nixl) is taken" in faults(folder)[0]
    write_plan(folder, device="cpu", ports=[{"node": 1, "port": port, "owner": "decode0 nixl"}])
    assert faults(folder) == []


def test_gpus_in_use_or_missing_are_faults(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plan(folder)
    nvidia_smi(folder, monkeypatch, "printf '0, 300\\n1, 90000\\n'")
    assert "GPU 1 is in use: 90000 MiB" in faults(folder)[0]
    (folder / "bin" / "nvidia-smi").write_text("#!/bin/bash\nprintf '0, 300\\n'\n")
    assert "GPU 1 is planned, the node shows 1 GPUs" in faults(folder)[0]
    (folder / "bin" / "nvidia-smi").write_text("#!/bin/bash\necho no driver; exit 9\n")
    assert "nvidia-smi failed: no driver" in faults(folder)[0]


def test_without_nvidia_smi_it_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plan(folder)
    monkeypatch.setenv("PATH", str(folder))
    notes = [look.what for look in look_at_node(folder, 0) if look.level == "note"]
    assert any("no nvidia-smi here" in note for note in notes)
    assert faults(folder) == []


def test_an_unreadable_model_is_a_fault(folder: Path) -> None:
    (folder / "model" / "config.json").unlink()
    assert "the model cannot be read" in faults(folder)[0]


def test_a_hostname_on_the_loopback_matters_only_between_nodes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loopback = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
    monkeypatch.setattr(preflight.socket, "getaddrinfo", lambda *_words: loopback)
    assert faults(folder) == []
    write_plan(folder, device="cpu", nodes=2)
    assert "resolves to the loopback only (127.0.1.1)" in faults(folder)[0]


def test_a_full_disk_and_a_wrong_clock_are_faults(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "FREE_DISK_GIB", 1e9)
    real = preflight.time.time
    monkeypatch.setattr(preflight.time, "time", lambda: real() - 60)
    found = faults(folder)
    assert "GiB are free in the run folder" in found[0]
    assert "the clock differs from the file server's by +" in found[1]


def test_the_program_prints_each_look_and_exits_3_on_a_fault(folder: Path) -> None:
    argv = [sys.executable, "-m", "pdkit.job.preflight", str(folder), "0"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(line.startswith(("ok: ", "note: ")) for line in done.stdout.splitlines())
    (folder / "model" / "config.json").unlink()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "fault: " in done.stdout
    kept = json.loads((folder / "preflight" / "0.json").read_text())
    assert any(look["level"] == "fault" for look in kept["looks"])


def test_nodes_with_different_checkpoints_disagree(folder: Path) -> None:
    assert disagreements(folder) == []
    for node, digest in ((0, "aaa"), (1, "aaa"), (2, "bbb")):
        looks = [{"level": "ok", "what": f"host{node}: model /m, config sha256 {digest}"}]
        file = folder / "preflight" / f"{node}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"node": node, "looks": looks}))
    assert disagreements(folder) == ["the model /m differs between nodes: aaa on [0, 1]; bbb on [2]"]

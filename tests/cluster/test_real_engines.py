"""Real vLLM, NIXL and Dynamo as a Slurm job on the rack: KV crosses the network, and the answers stay right."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from pdkit.laptop.environment import node_environment

ROOT = Path(__file__).parents[2]
TINY = ROOT / "recipes" / "local" / "tiny_pd.yaml"
ENGINES = ROOT / ".venv-vllm"
KV_BYTES_PER_TOKEN = 4 * 2 * 2 * 32 * 2
"""4 layers, K and V, 2 heads of 32, bfloat16: what one prompt token of the tiny model must move."""
QUICK = ("--set", "workload.concurrency=[2]", "--set", "sweep.prompts_per_concurrency=2", "--set", "workload.osl=8")

pytestmark = pytest.mark.local


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (ENGINES / "bin" / "python3").exists():
        pytest.skip("the engines are not installed here: make engines")
    for name, value in node_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{ENGINES / 'bin'}{os.pathsep}{os.environ['PATH']}")


def sent_bytes(node: str) -> int:
    """Bytes that left a node by its network interface."""
    argv = ["ip", "netns", "exec", node, "cat", "/sys/class/net/eth0/statistics/tx_bytes"]
    return int(subprocess.run(argv, text=True, capture_output=True, check=True).stdout)


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize(("decode", "nodes"), [("TP1", 2), ("TP2", 3)])
def test_a_pair_on_several_nodes_answers_right(cluster, decode: str, nodes: int) -> None:
    before = {name: sent_bytes(name) for name in cluster.config.node_names}
    hardware = "hardware={facts: cpu, nodes: 18, gpus_per_node: 1}"
    folder = cluster.submit("--set", hardware, "--set", f"decode.topology={decode}", *QUICK, recipe=TINY)
    cluster.wait_until((folder / "result.json").exists, "the job has ended", deadline_s=420)
    cluster.reach(folder, "done", state="COMPLETED", deadline_s=60)
    plan, ready, gate = (json.loads((folder / f"{name}.json").read_text()) for name in ("plan", "ready", "gate"))
    assert plan["nodes"] == nodes
    assert gate["verdict"]["accuracy"] >= 0.95
    assert json.loads((folder / "points" / "c0002.json").read_text())["valid"] is True
    moved = {check["engine"]: check["seen"] for check in ready["checks"] if check["name"].endswith("by KV transfer")}
    assert set(moved) == {plan["placement"][1]["name"]}
    answers = [json.loads(line) for line in (folder / "gate.jsonl").read_text().splitlines()[1:]]
    gate_bytes = sum(answer["prompt_tokens"] for answer in answers) * KV_BYTES_PER_TOKEN
    first = json.loads((folder / "events.jsonl").read_text().splitlines()[0])
    assert first["event"] == "job"
    prefill_node = next(
        event["node"]
        for event in map(json.loads, (folder / "events.jsonl").read_text().splitlines())
        if event["event"] == "started" and event["step"] == "prefill0"
    )
    assert sent_bytes(prefill_node) - before[prefill_node] > gate_bytes, "KV went around the network"

"""Whole runs on fake engines: many endpoints and ranks, going on after an end, several at once, and clear refusals."""

from __future__ import annotations

import json
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from ..fakes.launches import Launch, launch, stop


@pytest.fixture
def held(engines: Path, tmp_path: Path) -> Iterator[Launch]:
    """A run that waits for its decode engine."""
    run = launch(engines, tmp_path / "held", lies="decode0:unready")
    try:
        run.wait_for("ready")
        yield run
    finally:
        stop(run)


@pytest.fixture
def apart() -> str:
    """Ports far from those that every other run on this machine tries first: they are still free at a resume."""
    return f"infra.port_shift={40 * random.randrange(75, 200)}"


def ports(run: Launch) -> set[int]:
    return {port["port"] for port in run.json("plan.json")["ports"]}


def test_every_rank_of_every_endpoint_is_proved(engines: Path, tmp_path: Path) -> None:
    pair = [f"{role}.{what}" for role in ("prefill", "decode") for what in ("endpoints=2", "topology=TP1DP2")]
    run = launch(engines, tmp_path, *pair)
    assert run.end() == 0, run.text
    proof = run.json("ready.json")
    ranks = [f"{role}{endpoint} rank {rank}" for role in ("prefill", "decode") for endpoint in "01" for rank in "01"]
    assert [f"{one['name']} rank {one['rank']}" for one in proof["engines"]] == ranks
    assert {(one["kv_blocks"], one["kv_tokens"], one["block_size"]) for one in proof["engines"]} == {(512, 65536, 128)}
    for rank in ranks:
        part = "prompt tokens computed" if "prefill" in rank else "prompt tokens by KV transfer"
        seen = {check["name"]: check["seen"] for check in proof["checks"] if check["seen"].endswith(f"({rank})")}
        assert set(seen) == {part, "failed transfers"}
        assert int(seen[part].split()[0]) > 0
    assert [point["valid"] for point in run.points()] == [True]
    assert run.json("result.json")["exit_code"] == 0
    assert run.left_running() == []


def test_texts_of_roles_that_round_differently_are_noted_and_not_judged(engines: Path, tmp_path: Path) -> None:
    run = launch(engines, tmp_path, "decode.topology=TP2", lies="decode0:first-blocks")
    assert run.end() == 0, run.text
    (check,) = [check for check in run.json("ready.json")["checks"] if check["name"] == "P/D text"]
    assert check["expected"] == "noted only"
    assert check["seen"].startswith("P/D '")
    assert "not judged" in check["seen"]


def test_resume_after_a_killed_launcher_redoes_only_what_is_missing(engines: Path, tmp_path: Path, apart: str) -> None:
    two = (apart, "workload.concurrency=[1, 2]")
    first = launch(engines, tmp_path, *two, load="2=hangs")
    first.wait_for("sweep")
    first.process.kill()
    first.end()
    deadline = time.monotonic() + 15
    while first.left_running() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert first.left_running() == []
    kept = (first.folder / "points" / "c0001.json").read_bytes()
    answers = (first.folder / "gate.jsonl").read_bytes()
    proof = (first.folder / "ready.json").read_bytes()

    second = launch(engines, tmp_path, *two, arguments=("--resume",))
    assert second.end() == 0, second.text
    assert second.folder == first.folder
    assert "going on; what was there is now in earlier/1" in second.text
    assert second.text.count("started decode0") == 1
    assert "failed" not in second.text
    assert "point at concurrency 1: kept" in second.text
    assert "point at concurrency 2: valid" in second.text
    assert (second.folder / "points" / "c0001.json").read_bytes() == kept
    assert [point["valid"] for point in second.points()] == [True, True]
    assert len({point["gate_digest"] for point in second.points()}) == 2
    calls = (second.folder / "load-calls").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["1", "2", "2"]

    # the gate was run again, by other processes, and all evidence of the first ones is kept
    assert (second.folder / "gate.1.jsonl").read_bytes() == answers
    assert second.json("gate.1.json")["gate_digest"] == json.loads(kept)["gate_digest"]
    old, new = (set(second.json(name)["header"]["boot_ids"]) for name in ("gate.1.json", "gate.json"))
    assert len(old) == len(new) == 4
    assert not old & new
    assert (second.folder / "earlier" / "1" / "ready.json").read_bytes() == proof
    assert "INFO decode0 ready" in (second.folder / "earlier" / "1" / "logs" / "decode0.log").read_text()

    third = launch(engines, tmp_path, *two, arguments=("--resume",))
    assert third.end() == 0
    assert f"{second.folder}: nothing is missing; report: {second.folder / 'report.html'}" in third.text
    assert len(third.text.splitlines()) == 1


def test_resume_after_a_fatal_line_is_not_void_for_ever(engines: Path, tmp_path: Path, apart: str) -> None:
    first = launch(engines, tmp_path, apart, lies="gate/decode0:log=EngineDeadError;gate/prefill0:slow=0.3")
    assert first.end() == 4, first.text
    second = launch(engines, tmp_path, apart, arguments=("--resume",))
    assert second.end() == 0, second.text
    assert second.folder == first.folder


def test_two_runs_that_start_at_once_take_different_ports(engines: Path, tmp_path: Path) -> None:
    both = [launch(engines, tmp_path / name) for name in ("a", "b")]
    assert [run.end() for run in both] == [0, 0], both[0].text + both[1].text
    assert not ports(both[0]) & ports(both[1])
    assert [run.left_running() for run in both] == [[], []]


def test_a_running_folder_is_left_alone(engines: Path, tmp_path: Path, held: Launch) -> None:
    second = launch(engines, tmp_path / "held", arguments=("--resume",))
    assert second.end() == 2
    assert f"{held.folder} is running already, started by another pdkit" in second.text
    assert held.process.poll() is None
    assert sum(name in " ".join(held.left_running()) for name in ("frontend", "prefill", "decode", "driver")) == 4


def test_taken_ports_are_avoided_and_what_was_chosen_is_recorded(engines: Path, tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1] - 200  # room for shifts below the highest port
        with closing(socket.create_server(("127.0.0.1", port))):
            wish = f"infra.http_port={port}"
            run = launch(engines, tmp_path, wish, lies="decode0:exit-at-start")
            assert run.end() == 4, run.text
    infra = yaml.safe_load((run.folder / "recipe.yaml").read_text())["infra"]
    shift = infra["port_shift"]
    assert infra["http_port"] == port
    assert shift > 0
    assert shift % 40 == 0
    assert run.json("plan.json")["frontends"][0]["port"] == port + shift
    with closing(socket.create_server(("127.0.0.1", port + shift))):
        again = launch(engines, tmp_path, wish, arguments=("--resume",))
        assert again.end() == 2
    assert (
        f"port {port + shift} (frontend0) is taken, and this run's ports are written in its recipe.yaml" in again.text
    )
    assert "without --resume" in again.text


REFUSALS = {
    "no engines there": (("--engines", "nowhere"), {}, "nowhere is not a Python environment\n  fix: make engines"),
    "no engines where the variable says": ((), {"PDKIT_ENGINES": "nowhere"}, "nowhere is not a Python environment"),
    "nothing to resume": (("--resume",), {}, "no run of this recipe in"),
    "a recipe of several": (("--set", 'matrix={"decode.max_num_seqs": [8, 16]}'), {}, "stands for 2 recipes"),
    "an output that is a file": (("--output", os.devnull), {}, "cannot be written: "),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_run_is_said_in_one_breath(tmp_path: Path, name: str) -> None:
    arguments, environment, words = REFUSALS[name]
    run = launch(None, tmp_path, arguments=arguments, environment=environment)
    assert run.end() == 2, run.text
    assert words in run.text
    assert "Traceback" not in run.text
    assert len(run.text.splitlines()) <= 3


def test_findings_stop_a_run_before_it_has_a_folder(engines: Path, tmp_path: Path) -> None:
    run = launch(engines, tmp_path, "prefill.block_size=128", "decode.block_size=256")
    assert run.end() == 1
    assert "PD0" in run.text
    assert not (tmp_path / "runs").exists()

"""Whatever dies in a job, in whatever stage: it ends soon, with the right code and words, and nothing is left or lost.

The runs are real jobs on the rack, several at a time; a test judges its own.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest

from pdkit.rack import rack as racks
from pdkit.rack.config import RackConfig

from ..fakes.engines import make_engines
from .faults import HELD, Fault, Faulty, kill, play, step

VICTIMS = {
    "prefill0": step("prefill0", "dynamo.vllm", "prefill"),
    "decode0": step("decode0", "dynamo.vllm", "decode"),
    "frontend0": step("frontend0", "dynamo.frontend"),
    "driver": step("driver", "pdkit.job.driver"),
    "the job's script": step("driver", "slurm_script"),
}
WORDS = {name: f"{name} was killed by signal 9 before the driver; see logs/{name}.log" for name in VICTIMS} | {
    "driver": "the driver was killed by signal 9 and left no result; see logs/driver.log",
    "the job's script": "the job's script was killed",
}


IGNORE = "ignore=[{code: PD059, reason: these engines start at once}]"
SLURMD_SECONDS = 60
"""A node is given up when it has been silent for 30 s."""


def on_node(act: Callable[[RackConfig, str], None], name: str) -> Callable[[Faulty], None]:
    return lambda run: act(run.cluster.config, run.node(name))


def to_the_job(*words: str) -> Callable[[Faulty], None]:
    return lambda run: run.cluster.slurm(*words, run.job)


def ask_decode_to_end(run: Faulty) -> None:
    os.kill(VICTIMS["decode0"](run).pid, signal.SIGTERM)


def lost(act: Callable[[Faulty], None], stage: str = "gate", *, silent: bool = False) -> Fault:
    """A node is lost to Slurm."""
    return Fault(
        stage,
        act,
        8,
        ("a node failed; ",) if silent else ("a node failed; lost ",),
        "NODE_FAIL",
        seconds=SLURMD_SECONDS,
        silent=silent,
    )


FAULTS = {
    "slurmd of decode's node killed": lost(kill(step("decode0", "slurmd"))),
    "slurmd of the script's node killed": lost(kill(step("driver", "slurmd")), silent=True),
    "decode's node unplugged": lost(on_node(racks.unplug_node, "decode0"), "sweep"),
    "decode's node without power": lost(on_node(racks.kill_node, "decode0"), "ready"),
    "the script's node without power": lost(on_node(racks.kill_node, "driver"), "sweep", silent=True),
    "srun killed": Fault("gate", kill(step("driver", "srun", "--job-name=decode0")), 4, (WORDS["decode0"],)),
    "a worker ends with 0": Fault("gate", ask_decode_to_end, 4, ("decode0 ended with exit code 0 before the driver",)),
    "a worker hangs at start": Fault(
        "ready", lambda _: None, 5, ("PD201", "missing decode0"), sets=("infra.ready_timeout_seconds=3", IGNORE)
    ),
    "another job in its folder": Fault(
        "gate",
        lambda run: (run.folder / "job.id").write_text("999999"),
        4,
        ("without a result; ", "job 999999 has taken "),
        silent=True,
    ),
    "cancelled": Fault("sweep", to_the_job("scancel"), 8, ("it was cancelled; ",), "CANCELLED"),
    "time is nearly over": Fault(
        "sweep", to_the_job("scancel", "--batch", "--signal=USR1"), 8, ("the time limit came near; what was",)
    ),
} | {
    f"{victim} killed in {stage}": Fault(
        stage,
        kill(find),
        8 if victim == "the job's script" else 4,
        (WORDS[victim],),
        silent=victim == "the job's script",
    )
    for victim, find in VICTIMS.items()
    for stage in HELD
}


@pytest.fixture(scope="module")
def ended(request: pytest.FixtureRequest, cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Faulty]:
    """The runs of all selected cases, after their end."""
    wanted = [item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")]
    folder = tmp_path_factory.mktemp("f")
    chosen = {name: fault for name, fault in FAULTS.items() if name in wanted}
    return play(cluster, make_engines(folder / "engines"), folder, chosen)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_a_job_soon_and_leaves_its_evidence(
    ended: dict[str, Faulty], wait_until: Callable[..., float], name: str
) -> None:
    fault, run = FAULTS[name], ended[name]
    status = run.status
    assert [word for word in fault.words if word not in status.error] == [], run.text()
    # without its script the driver may see TERM first, or engines that are gone
    codes = {fault.code, 4} if name.startswith("the job's script") else {fault.code}
    assert run.code in codes, run.text()
    assert status.state == fault.state, run.text()
    assert run.seconds < fault.seconds
    wait_until(lambda: not run.left_running(), f"nothing is left of it: {run.left_running()}", deadline_s=15)
    if not fault.silent:
        result = run.json("result.json")
        assert result["exit_code"] == fault.code
        assert run.events("failed")[-1]["message"] == result["message"]
    assert (run.folder / "ready.json").exists() == (fault.stage != "ready" or fault.code == 5)
    assert (run.folder / "gate.jsonl").exists() == (fault.stage != "ready")
    gate = run.folder / "gate.json"
    assert (gate.exists() and run.json("gate.json")["passed"]) == (fault.stage == "sweep")
    assert (run.folder / "load-calls").exists() == (fault.stage == "sweep"), "no load without a gate that passed"
    assert run.points() == ([1] if fault.stage == "sweep" else [])
    for line in (run.folder / "gate.jsonl").read_text().splitlines() if fault.stage != "ready" else []:
        json.loads(line)

"""Runs on the rack that something happens to: real jobs on two nodes over fake engines, several at a time."""

from __future__ import annotations

import json
import math
import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pdkit.job.events import read_events
from pdkit.launch.attend import exit_code
from pdkit.launch.jobs import own_live_jobs
from pdkit.launch.status import RunStatus, status_of
from pdkit.rack import rack as racks
from pdkit.rack.process import Process

TINY = Path(__file__).parents[2] / "recipes" / "local" / "tiny_pd.yaml"
SETS = (
    "hardware={facts: cpu, nodes: 18, gpus_per_node: 1}",  # prefill and decode on a node each
    "infra.discovery=file",  # the fakes know no other
    "gate.questions=12",
    "gate.concurrency=4",
    "workload.concurrency=[1, 2]",
)
HELD: dict[str, dict[str, str]] = {  # what keeps a run in a stage until something happens to it
    "ready": {"lies": "decode0:unready"},
    "gate": {"lies": "gate/decode0:slow=30"},
    "sweep": {"load": "2=hangs"},
}
WIDTH = 5
STAGE_SECONDS = 60


@dataclass
class Faulty:
    """One run that something happens to."""

    cluster: Any
    folder: Path
    run_id: str
    lies: Path
    """What the engines lie about, read again and again; another such file beside it is the load tool's."""
    began: float = field(default_factory=time.monotonic)
    acted: float = 0.0
    ended: float = 0.0
    gone: str = ""

    @property
    def job(self) -> str:
        return str(self.cluster.job(self.folder))

    @property
    def status(self) -> RunStatus:
        return status_of([self.folder])[0][0]

    @property
    def code(self) -> int:
        """The exit code that `pdkit run` would end with."""
        return exit_code(self.status)

    @property
    def seconds(self) -> float:
        """From what happened to the end of the job."""
        return self.ended - self.acted

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in read_events(self.folder) if event["event"] == kind]

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())

    def points(self) -> list[int]:
        files = sorted((self.folder / "points").glob("*.json"))
        return [point["concurrency"] for point in map(json.loads, (file.read_text() for file in files))]

    def text(self) -> str:
        logs = [self.folder / "logs" / name for name in ("job.log", "driver.log")]
        return "\n".join([self.gone, str(self.status), *(log.read_text() for log in logs if log.exists())])

    def node(self, step: str) -> str:
        return str(next(event["node"] for event in reversed(self.events("started")) if event["step"] == step))

    def process(self, node: str, *words: str) -> Process:
        """The oldest process on a node whose command holds all words."""
        found = [one for one in racks.node_processes(self.cluster.config, node) if _holds(one, words)]
        assert found, (node, words, racks.node_processes(self.cluster.config, node))
        return min(found, key=lambda one: one.pid)

    def in_stage(self, stage: str) -> bool:
        """Whether the stage is at work: it has its evidence file, or its load tool runs."""
        sign = {"ready": "boot/decode0", "gate": "gate.jsonl", "sweep": "pids"}[stage]
        return stage in [event["stage"] for event in self.events("stage")] and (self.folder / sign).exists()

    def let_go(self) -> None:
        """Nothing holds the run any more."""
        self.lies.write_text("")
        self.lies.with_name("load").write_text("")

    def left_running(self) -> list[str]:
        """What still runs of it anywhere on the machine: by its environment, or by the word that the cores carry."""
        marks = f"PDKIT_RUN_ID={self.run_id}".encode(), f"0.{uuid.UUID(self.run_id).int}".encode()
        return [words for one in Path("/proc").glob("[0-9]*") if (words := _marked(one, *marks))]


def _marked(process: Path, variable: bytes, word: bytes) -> str:
    """The command of a process that has the variable or the word; else nothing."""
    try:
        command = (process / "cmdline").read_bytes()
        mine = command and (variable in (process / "environ").read_bytes().split(b"\0") or word in command)
    except OSError:  # it has ended
        return ""
    return command.replace(b"\0", b" ").decode(errors="replace") if mine else ""


def _holds(process: Process, words: tuple[str, ...]) -> bool:
    return all(word in process.command or word == process.name for word in words)


def begin(
    cluster: Any, engines: Path, room: Path, *sets: str, lies: str = "", load: str = "", output: Path | None = None
) -> Faulty:
    """Submit a run; `room` is a fresh folder for what belongs to it."""
    room.mkdir(parents=True)
    run_id, lie_file = str(uuid.uuid4()), room / "lies"
    lie_file.write_text(lies)
    (room / "load").write_text(load)
    environment = {
        "PATH": f"{engines / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "FAKE_LIES": f"@{lie_file}",
        "FAKE_LOAD": f"@{room / 'load'}",
        "PDKIT_RUN_ID": run_id,
    }
    words = [word for one in (*SETS, f"name={room.name}", *sets) for word in ("--set", one)]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        folder = cluster.submit("-o", output or cluster.runs, *words, recipe=TINY)
    return Faulty(cluster, folder, run_id, lie_file)


@dataclass(frozen=True)
class Fault:
    """What happens to a run in which stage, and how it must end."""

    stage: str
    act: Callable[[Faulty], object]
    code: int
    words: tuple[str, ...]
    """What `pdkit status` must say."""
    state: str = "FAILED"
    sets: tuple[str, ...] = ()
    seconds: float = 30.0
    """From what happens to the end."""
    silent: bool = False
    """The job's script cannot write how it ended: it was killed, or Slurm does not reach it."""
    held: dict[str, str] | None = None
    """What keeps the run in the stage, when it is not HELD."""
    output: Path | None = None
    """Where the run folder shall be."""


def play(cluster: Any, engines: Path, room: Path, faults: Mapping[str, Fault]) -> dict[str, Faulty]:
    """Begin the runs, let each fault happen in its stage, and wait for every end; then the rack is whole again."""
    try:
        done = _play(cluster, engines, room, faults)
        return {name: done[name] for name in faults}
    finally:
        racks.start(cluster.config)


def _play(cluster: Any, engines: Path, room: Path, faults: Mapping[str, Fault]) -> dict[str, Faulty]:
    waiting, live, done = list(faults), dict[str, Faulty](), dict[str, Faulty]()
    while waiting or live:
        while waiting and len(live) < WIDTH:
            name = waiting.pop(0)
            fault, plain = faults[name], "".join(letter if letter.isalnum() else "-" for letter in name.lower())
            held = fault.held or HELD[fault.stage]
            live[name] = begin(cluster, engines, room / plain, *fault.sets, **held, output=fault.output)
        queue = {job.id for job in own_live_jobs()}
        for name, run in list(live.items()):
            limit = run.acted + faults[name].seconds if run.acted else run.began + STAGE_SECONDS
            if time.monotonic() > limit and run.job in queue and not run.ended:
                run.ended = math.inf  # far too late: its test will tell
                cluster.slurm("scancel", run.job)
            if not run.acted and run.in_stage(faults[name].stage):
                run.acted = time.monotonic()
                faults[name].act(run)
            elif run.job not in queue:
                run.ended = run.ended or time.monotonic()
                run.gone = cluster.slurm("squeue", "--states=all", "--noheader", f"--jobs={run.job}", "--format=%T %r")
                done[name] = live.pop(name)
        time.sleep(0.1)
    return done


def kill(find: Callable[[Faulty], Process]) -> Callable[[Faulty], None]:
    return lambda run: os.kill(find(run).pid, signal.SIGKILL)


def step(name: str, *words: str) -> Callable[[Faulty], Process]:
    """The main process of a step, on the node where it runs."""
    return lambda run: run.process(run.node(name), *words)

"""`pdkit run` as a person starts it, on fake engines, and everything that it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

RECIPE = Path(__file__).with_name("small.yaml")
LONGEST_SECONDS = 90


@dataclass
class Launch:
    """One `pdkit run`, under way or ended. Its run folders are in `output`."""

    process: subprocess.Popen[bytes]
    output: Path
    log: Path
    started: float = field(default_factory=time.monotonic)

    @property
    def folder(self) -> Path:
        """The run folder that it has told."""
        told = [line for line in self.text.splitlines() if line.startswith("run folder: ")]
        return Path(told[0].removeprefix("run folder: "))

    @property
    def text(self) -> str:
        return self.log.read_text()

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        file = self.folder / "events.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [event for event in map(json.loads, lines) if kind in ("", event["event"])]

    def pid(self, step: str) -> int:
        return int(next(event["pid"] for event in reversed(self.events("started")) if event["step"] == step))

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())

    def points(self) -> list[dict[str, Any]]:
        return [json.loads(file.read_text()) for file in sorted((self.folder / "points").iterdir())]

    def wait_for(self, stage: str) -> None:
        """Until the stage is at work: it has its evidence file, or its load tool runs."""
        sign = {"ready": "events.jsonl", "gate": "gate.jsonl", "sweep": "pids"}[stage]
        deadline = time.monotonic() + LONGEST_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.text
            begun = [event["stage"] for event in self.events("stage")] if "run folder: " in self.text else []
            if stage in begun and (self.folder / sign).exists():
                return
            time.sleep(0.05)
        raise AssertionError(f"no stage {stage}:\n{self.text}")

    def end(self) -> int:
        """Wait for the end; the exit code, negative for a signal."""
        try:
            return self.process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"still running after {LONGEST_SECONDS} s:\n{self.text}") from None

    def left_running(self) -> list[str]:
        """What still runs of it: by the mark of its environment, by its sessions and ports, by the fakes' cores."""
        run_id = (self.folder / "run.id").read_text()
        mark, trace = f"PDKIT_RUN_ID={run_id}".encode(), f"0.{uuid.UUID(run_id).int}"
        sessions = {event["pid"] for event in self.events("started")}
        listening = _listening_inodes({port["port"] for port in self.json("plan.json")["ports"]})
        found = [_belongs(one, mark, trace, sessions, listening) for one in Path("/proc").glob("[0-9]*")]
        return [what for what in found if what]


def _belongs(folder: Path, mark: bytes, trace: str, sessions: set[int], listening: set[str]) -> str:
    try:
        stat = (folder / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()
        environment = (folder / "environ").read_bytes().split(b"\0")
        if stat[0] == "Z":
            return ""
        sockets = {str(one.readlink()) for one in (folder / "fd").iterdir()} if listening else set()
        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""  # it has ended, or is none of ours
    elsewhere = any(one.startswith(b"PDKIT_RUN_ID=") for one in environment) and mark not in environment
    mine = mark in environment or trace in words or int(stat[3]) in sessions
    return f"{folder.name} {words}" if mine or (sockets & listening and not elsewhere) else ""


def _listening_inodes(ports: set[int]) -> set[str]:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) in ports}


def launch(
    engines: Path | None,
    output: Path,
    *sets: str,
    lies: str = "",
    load: str = "",
    arguments: tuple[str, ...] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Launch:
    """Start `pdkit run`; the run folder will be in `output`/runs."""
    output.mkdir(parents=True, exist_ok=True)
    number = len(list(output.glob("*.out")))
    log = output / f"{number}.out"
    settings = [word for one in sets for word in ("--set", one)]
    settings += ["--engines", str(engines)] if engines else []
    command = [sys.executable, "-m", "pdkit.cli", "run", str(RECIPE), "-o", str(output / "runs"), *settings]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, *arguments],
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, "FAKE_LIES": lies, "FAKE_LOAD": load, **environment},
            start_new_session=True,
        )
    return Launch(process, output, log)


def stop(one: Launch) -> None:
    """For a test that failed in the middle: Ctrl-C, then wait."""
    if one.process.poll() is None:
        one.process.send_signal(signal.SIGINT)
        one.end()

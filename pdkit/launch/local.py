"""The local launcher: the steps of a rendered run folder as processes of this machine, supervised to the end.

The very scripts that a Slurm job runs are run here; the driver among them proves, gates and measures.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from pdkit.errors import EngineError, InterruptedRunError, PdkitError, UsageError
from pdkit.files import write_json
from pdkit.job.events import emit
from pdkit.job.logwatch import last_lines
from pdkit.job.ready import READY
from pdkit.launch import ports, processes
from pdkit.launch.processes import MARK, Guard, Managed
from pdkit.plan.plan import Plan
from pdkit.render.engine import commands

DRIVER = "driver"
RESULT = "result.json"
LOCK = "run.lock"
POLL_SECONDS = 0.2
FAILED_GRACE_SECONDS = 4.0
"""After a failure nothing needs to drain: the run must end within seconds."""
RUN_ID = "run.id"
EARLIER = "earlier"
"""Folder of a run folder: what earlier launches of it have left, one folder each."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Watch = Callable[["Supervisor"], None]


@dataclass(slots=True)
class Supervisor:
    """The processes of one run."""

    folder: Path
    environment: dict[str, str]
    run_id: str
    guard: Guard
    steps: list[Managed] = field(default_factory=list)
    driver: Managed | None = None

    def start(self, name: str) -> Managed:
        """Start one step of the run folder."""
        argv = ["bash", str(self.folder / "steps" / f"{name}.sh")]
        log = self.folder / "logs" / f"{name}.log"
        one = processes.start(name, argv, log=log, environment=self.environment)
        self.steps.append(one)
        self.guard.watch(one.process.pid)
        emit(self.folder, "started", step=name, pid=one.process.pid)
        return one

    def supervise(self, watch: Watch) -> int:
        """Wait until the first step ends: the driver's code is the run's, any other end is a failure."""
        while True:
            watch(self)
            for one in self.steps:
                code = one.ended()
                if code is None:
                    continue
                if one is self.driver and code == _recorded(self.folder):
                    return code
                raise EngineError(death(one, code))
            time.sleep(POLL_SECONDS)

    def stop(self, grace_seconds: float) -> None:
        """Stop the driver first, so that it writes what it has, then everything else; signals wait meanwhile."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        last = [one for one in self.steps if one is self.driver]
        processes.stop(last, grace_seconds)
        processes.stop([one for one in self.steps if one not in last], grace_seconds)
        self.steps.clear()
        self.guard.dismiss()
        processes.sweep(self.run_id, adopted=True)


def _recorded(folder: Path) -> int | None:
    """The exit code that the driver has written down; a driver that broke leaves none, or another one."""
    result = folder / RESULT
    return json.loads(result.read_text(encoding="utf-8"))["exit_code"] if result.is_file() else None


def death(one: Managed, code: int) -> str:
    """What a person wants to know about a step that ended."""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    lines = "\n".join(f"  | {line}" for line in last_lines(one.log))
    return f"{one.name} {how} after {one.seconds:.0f} s; the run is over\n  last lines of logs/{one.log.name}:\n{lines}"


def run_local(folder: Path, plan: Plan, environment: dict[str, str], watch: Watch) -> int:
    """Run a rendered folder on this machine and return the driver's exit code.

    `environment` is added to this process's own; `watch` is called several times a second. Raises EngineError when a
    step ends before the driver, InterruptedRunError on Ctrl-C or TERM; nothing is left running either way. Raises
    UsageError when another process runs this folder, or its ports are taken.
    """
    with _only_here(folder):
        set_aside = _end_earlier_run(folder)
        ports.reserve(plan)
        run_id = str(uuid.uuid4())
        (folder / RUN_ID).write_text(run_id, encoding="utf-8")
        emit(folder, "launched", run_id=run_id, set_aside=set_aside)
        addresses = {f"NODE_IP_{node}": ports.LOCALHOST for node in range(plan.nodes)}
        own = {**os.environ, **environment, **addresses, "RUN_DIR": str(folder), MARK: run_id}
        processes.adopt_orphans()
        supervisor = Supervisor(folder, own, run_id, Guard(run_id))
        with _interruptible():
            return _run(supervisor, plan, watch)


def _run(supervisor: Supervisor, plan: Plan, watch: Watch) -> int:
    grace, failure = FAILED_GRACE_SECONDS, None
    try:
        for command in commands(plan):
            supervisor.start(command.name)
        supervisor.driver = supervisor.start(DRIVER)
        code = supervisor.supervise(watch)
        grace = processes.GRACE_SECONDS
    except PdkitError as error:
        failure = error
        raise
    finally:
        supervisor.stop(grace)
        if failure:
            _write_result(supervisor.folder, failure)
    return code


@contextmanager
def _only_here(folder: Path) -> Iterator[None]:
    """Let no second launcher into a run folder; the lock goes with this process however it ends."""
    with (folder / LOCK).open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"{folder} is running already, started by another pdkit"
            raise UsageError(message, fix="wait for it, or stop it with Ctrl-C where it was started") from None
        yield


def _end_earlier_run(folder: Path) -> str | None:
    """End what an earlier, killed run of this folder has left, and set its evidence aside; returns where.

    Its logs would void this run again, and its proof is of other processes. Points stay: each names its gate.
    """
    mark = folder / RUN_ID
    if not mark.is_file():
        return None
    processes.sweep(mark.read_text(encoding="utf-8").strip())
    for name in ("discovery", "etcd", "nats"):
        shutil.rmtree(folder / name, ignore_errors=True)
    number = next(n for n in range(1, 10**6) if not (folder / EARLIER / str(n)).exists())
    aside = folder / EARLIER / str(number)
    aside.mkdir(parents=True)
    for name in ("logs", "boot", READY, RESULT, RUN_ID):
        if (folder / name).exists():
            (folder / name).rename(aside / name)
    return f"{EARLIER}/{number}"


def _write_result(folder: Path, error: PdkitError) -> None:
    """The launcher knows best why a run ended when a step died or a person stopped it."""
    write_json(
        folder / RESULT,
        {"schema": 1, "exit_code": error.exit_code, "stage": "run", "message": str(error)},
    )
    emit(folder, "failed", exit_code=error.exit_code, message=error.message.splitlines()[0])


@contextmanager
def _interruptible() -> Iterator[None]:
    """TERM and HUP end the run as Ctrl-C does."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        raise InterruptedRunError(f"stopped by {signal.Signals(number).name}; what was finished is kept")

    before = {number: signal.signal(number, interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        for number in SIGNALS:
            signal.signal(number, before[number])

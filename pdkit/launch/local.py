"""The local launcher: the steps of a rendered run folder as processes of this machine, supervised to the end.

The very scripts that a Slurm job runs are run here; the driver among them proves, gates and measures.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
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
from pdkit.launch import processes
from pdkit.launch.processes import MARK, Managed
from pdkit.plan.plan import Plan
from pdkit.render.engine import commands

DRIVER = "driver"
POLL_SECONDS = 0.2
FAILED_GRACE_SECONDS = 4.0
"""After a failure nothing needs to drain: the run must end within seconds."""
LOCALHOST = "127.0.0.1"
RUN_ID = "run.id"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PORT_STEP = 40
"""How far ports move when the planned ones are taken; co-prime to nothing in particular, larger than any range."""

Watch = Callable[["Supervisor"], None]


@dataclass(slots=True)
class Supervisor:
    """The processes of one run."""

    folder: Path
    environment: dict[str, str]
    run_id: str
    steps: list[Managed] = field(default_factory=list)
    driver: Managed | None = None

    def start(self, name: str) -> Managed:
        """Start one step of the run folder."""
        argv = ["bash", str(self.folder / "steps" / f"{name}.sh")]
        log = self.folder / "logs" / f"{name}.log"
        one = processes.start(name, argv, log=log, environment=self.environment)
        self.steps.append(one)
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
                if one is self.driver:
                    return code if code >= 0 else self._driver_died(code)
                raise EngineError(death(one, code))
            time.sleep(POLL_SECONDS)

    def _driver_died(self, code: int) -> int:
        assert self.driver is not None
        raise EngineError(death(self.driver, code))

    def stop(self, grace_seconds: float) -> None:
        """Stop the driver first, so that it writes what it has, then everything else; signals wait meanwhile."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        last = [one for one in self.steps if one is self.driver]
        processes.stop(last, grace_seconds)
        processes.stop([one for one in self.steps if one not in last], grace_seconds)
        self.steps.clear()
        processes.sweep(self.run_id)


def death(one: Managed, code: int) -> str:
    """What a person wants to know about a step that ended."""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    lines = "\n".join(f"  | {line}" for line in last_lines(one.log))
    return f"{one.name} {how} after {one.seconds:.0f} s; the run is over\n  last lines of logs/{one.log.name}:\n{lines}"


def run_local(folder: Path, plan: Plan, environment: dict[str, str], watch: Watch) -> int:
    """Run a rendered folder on this machine and return the driver's exit code.

    `environment` is added to this process's own; `watch` is called several times a second. Raises EngineError when a
    step ends before the driver, InterruptedRunError on Ctrl-C or TERM; nothing is left running either way.
    """
    _end_earlier_run(folder)
    run_id = str(uuid.uuid4())
    (folder / RUN_ID).write_text(run_id, encoding="utf-8")
    addresses = {f"NODE_IP_{node}": LOCALHOST for node in range(plan.nodes)}
    own = {**os.environ, **environment, **addresses, "RUN_DIR": str(folder), MARK: run_id}
    supervisor = Supervisor(folder, own, run_id)
    grace = FAILED_GRACE_SECONDS
    with _interruptible():
        try:
            for command in commands(plan):
                supervisor.start(command.name)
            supervisor.driver = supervisor.start(DRIVER)
            code = supervisor.supervise(watch)
            grace = processes.GRACE_SECONDS
        except PdkitError as error:
            supervisor.stop(grace)
            _write_result(folder, error)
            raise
        finally:
            supervisor.stop(grace)
    return code


def _end_earlier_run(folder: Path) -> None:
    """What an earlier, killed run of this folder has left: processes, discovery files, boot ids."""
    mark = folder / RUN_ID
    if mark.is_file():
        processes.sweep(mark.read_text(encoding="utf-8").strip())
    for name in ("discovery", "boot", "etcd", "nats"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "result.json").unlink(missing_ok=True)


def _write_result(folder: Path, error: PdkitError) -> None:
    """The launcher knows best why a run ended when a step died or a person stopped it."""
    write_json(
        folder / "result.json",
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


def free_port_shift(plan: Plan) -> int:
    """By how much to shift all ports so that each is free on this machine; 0 when the planned ones are.

    Raises UsageError when none of a hundred tries succeeds.
    """
    planned = [port.port - plan.recipe.infra.port_shift for port in plan.ports]
    for shift in range(0, 100 * PORT_STEP, PORT_STEP):
        if all(_is_free(port + shift) for port in planned):
            return shift
    raise UsageError("no free ports for this deployment on this machine", fix="stop what listens on them (ss -ltnp)")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCALHOST, port))
        except OSError:
            return False
    return True

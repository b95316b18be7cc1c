"""The in-job driver: ready, then the gate, then the sweep; every stage leaves its file, and the next needs the former.

    python3 -m pdkit.job.driver RUN_FOLDER

The same code runs in a Slurm job and on a laptop. Its exit code is the job's: 0 ok, 4 an engine failed, 5 not ready,
6 the gate failed, 7 a measurement is invalid, 8 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import requests

from pdkit.errors import (
    ClusterError,
    EngineError,
    GateError,
    InterruptedRunError,
    MeasurementError,
    PdkitError,
    UsageError,
)
from pdkit.files import write_json
from pdkit.job.audit import changed, doubts
from pdkit.job.deployment import Deployment, read_deployment
from pdkit.job.events import emit
from pdkit.job.gate import Progress as GateProgress
from pdkit.job.gate import run_gate
from pdkit.job.load import Progress as LoadProgress
from pdkit.job.load import sweep
from pdkit.job.load_tools import installed
from pdkit.job.logwatch import LogWatch
from pdkit.job.preflight import disagreements
from pdkit.job.ready import prove
from pdkit.job.router import boot_ids, missing_parts, unregistered
from pdkit.job.settings import gate_settings, load_settings
from pdkit.job.vigil import Vigil
from pdkit.results.points import point_file

RESULT = "result.json"
ROOM = ".room"
"""Space that is kept for the result, so that a full disk can be told."""
ROOM_BYTES = 64 * 1024
SIGNALS = (signal.SIGTERM, signal.SIGINT)
EVENT_SECONDS = 5.0
"""Progress of the gate and the sweep is told at most so often."""


class Driver:
    """Runs the stages of one run folder and tells `events.jsonl` about them."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.folder = deployment.folder
        self.load = load_settings(deployment)
        self.watch = LogWatch([deployment.log(name) for name in deployment.steps])
        self.last_event = 0.0
        self.last_note = ""
        self.stage = "start"
        self.vigil = Vigil(deployment)

    def run(self) -> None:
        """All stages; raises the PdkitError of the stage that fails."""
        (self.folder / ROOM).write_bytes(os.urandom(ROOM_BYTES))  # nothing that a file system could compress
        wrong = changed(self.folder)
        if wrong:
            raise UsageError(wrong, at=str(self.folder), fix="run the recipe as a new run")
        for difference in disagreements(self.folder):
            raise ClusterError(difference, fix="bring the same checkpoint to every node", code="PD214")
        if not installed(self.load, os.environ):
            fix = "install it in the engines' environment, or choose the other `sweep.tool`"
            raise UsageError(f"the load tool `{self.load.tool}` is not installed here", fix=fix)
        self._enter("ready")
        ready = prove(self.deployment, self._note)
        emit(self.folder, "ready", seconds=ready.seconds, engines=len(ready.engines))
        self.vigil.begin()
        self._enter("gate")
        passed = run_gate(gate_settings(self.deployment, ready), self.folder, self._gate_progress)
        self.vigil.kv_kept_moving()
        self.vigil.gate_is_over()
        emit(self.folder, "passed", accuracy=passed.accuracy)
        self._all_registered()
        self._set_doubtful_points_aside()
        self._enter("sweep")
        points = sweep(
            self.load,
            passed,
            self.folder,
            self._load_progress,
            boot_ids=self._identities,
        )
        self._all_registered()
        self.vigil.drained()
        emit(self.folder, "swept", points=len(points))

    def _set_doubtful_points_aside(self) -> None:
        """What an earlier launch left counts only with its evidence; the rest is measured again."""
        for concurrency, why in doubts(self.folder).items():
            file = point_file(self.folder, concurrency)
            file.rename(file.with_name(f"void-{file.name}"))
            emit(self.folder, "voided", concurrency=concurrency, why=why)

    def _enter(self, stage: str) -> None:
        self.stage = stage
        emit(self.folder, "stage", stage=stage)

    def _note(self, note: str) -> None:
        now = time.monotonic()
        if note != self.last_note and now - self.last_event >= EVENT_SECONDS:
            self.last_event, self.last_note = now, note
            emit(self.folder, "progress", stage=self.stage, note=note)

    def _gate_progress(self, progress: GateProgress) -> None:
        self._logs_are_clean()
        note = f"{progress.asked}/{progress.total}, {progress.correct} right"
        self._note(note + (f", {progress.failed} failed" if progress.failed else ""))

    def _load_progress(self, progress: LoadProgress) -> None:
        self._logs_are_clean()
        if progress.point is not None:
            emit(self.folder, "point", concurrency=progress.concurrency, state=progress.state)
            return
        self._note(f"concurrency {progress.concurrency}: {progress.state}, {progress.seconds:.0f} s")

    def _logs_are_clean(self) -> None:
        if job := taken_over(self.folder):
            raise InterruptedRunError(f"job {job} has taken this run folder over: nothing more is written")
        for hit in self.watch.look():
            name = hit.log.removesuffix(".log")
            raise EngineError(f"the log of {name} says that the run is void: {hit}", code="PD205")

    def _identities(self) -> tuple[str, ...]:
        """Asked for before a point is written, so no point outlives a fatal line of its last moments."""
        self._logs_are_clean()
        self.vigil.kv_kept_moving()
        return boot_ids(self.deployment)

    def _all_registered(self) -> None:
        """A lost engine would mean silently less of the deployment."""
        lost = unregistered(self.deployment)
        if lost:
            message = f"the router has lost the {', the '.join(lost)}"
            fix = "file discovery loses engines that stall; use `infra.discovery: etcd`"
            raise EngineError(message, fix=fix, code="PD211")


def node_address(node: int) -> str:
    """The address of a node of the job, as the job script has exported it."""
    name = f"NODE_IP_{node}"
    if name not in os.environ:
        raise UsageError(f"{name} is not set", fix="start the driver by the job script, which exports it")
    return os.environ[name]


def taken_over(folder: Path) -> str:
    """The job that runs in this folder now, when it is another one than this: Slurm had lost this one's node."""
    mine, file = os.environ.get("RUN_JOB"), folder / "job.id"
    owner = file.read_text(encoding="utf-8").strip() if mine and file.is_file() else ""
    return owner if owner != mine else ""


def finish(folder: Path, error: PdkitError | None, stage: str) -> int:
    """Write `result.json` and return the exit code."""
    code = error.exit_code if error else 0
    message = str(error) if error else "ready, gate and sweep passed"
    if error:
        sys.stderr.write(f"{message}\n")
    if taken_over(folder):
        return code
    if "RUN_JOB" in os.environ and (folder / RESULT).exists():  # the job's script knows the cause, and has told it
        emit(folder, "failed", exit_code=code, message=message)
        return code
    (folder / ROOM).unlink(missing_ok=True)
    result = {"schema": 1, "exit_code": code, "stage": stage, "message": message, "code": error.code if error else None}
    write_json(folder / RESULT, result)
    emit(folder, "done" if code == 0 else "failed", exit_code=code, message=message)
    return code


def _interrupt(number: int, _frame: FrameType | None) -> None:
    for other in SIGNALS:  # a second signal must not break what the first one began
        signal.signal(other, signal.SIG_IGN)
    raise InterruptedRunError(f"stopped by {signal.Signals(number).name}; what was finished is kept")


def main() -> int:
    """Run the stages of the folder given on the command line."""
    folder = Path(sys.argv[1]).resolve()
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    try:
        return _stages(folder)
    except PdkitError as error:
        return finish(folder, error, "start")
    except OSError as error:  # not even the result could be written
        sys.stderr.write(f"{error}\n")
        return UsageError.exit_code


def _stages(folder: Path) -> int:
    driver = Driver(read_deployment(folder, node_address))
    try:
        driver.run()
    except PdkitError as error:
        return _fail(driver, error)
    except requests.RequestException as error:
        return _fail(driver, EngineError(f"an engine or the router stopped answering: {error}", code="PD211"))
    except OSError as error:
        return _fail(driver, UsageError(f"cannot write: {error.strerror}", at=str(error.filename or folder)))
    return finish(folder, None, "done")


def _fail(driver: Driver, error: PdkitError) -> int:
    """A dead engine is the cause, not the wrong answers or the failed requests that follow from it."""
    if isinstance(error, (GateError, MeasurementError)):
        missing = missing_parts(driver.deployment)
        if missing:
            words = f"{', '.join(missing)} no longer there while the {driver.stage} ran: {error.message}"
            error = EngineError(words, code="PD211")
    return finish(driver.folder, error, driver.stage)


if __name__ == "__main__":
    sys.exit(main())

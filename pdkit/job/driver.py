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
from pdkit.job.deployment import Deployment, read_deployment
from pdkit.job.events import emit
from pdkit.job.gate import GateSettings, fetch_data, run_gate
from pdkit.job.gate import Progress as GateProgress
from pdkit.job.gsm8k import load_accuracy
from pdkit.job.load import LoadSettings, sweep
from pdkit.job.load import Progress as LoadProgress
from pdkit.job.logwatch import LogWatch
from pdkit.job.preflight import disagreements
from pdkit.job.ready import Ready, prove
from pdkit.job.router import boot_ids, missing_parts, unregistered

RESULT = "result.json"
SIGNALS = (signal.SIGTERM, signal.SIGINT)
EVENT_SECONDS = 5.0
"""Progress of the gate and the sweep is told at most so often."""


class Driver:
    """Runs the stages of one run folder and tells `events.jsonl` about them."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.folder = deployment.folder
        self.watch = LogWatch([deployment.log(name) for name in deployment.steps])
        self.last_event = 0.0
        self.last_note = ""
        self.stage = "start"

    def run(self) -> None:
        """All stages; raises the PdkitError of the stage that fails."""
        for difference in disagreements(self.folder):
            raise ClusterError(difference, fix="bring the same checkpoint to every node")
        self._enter("ready")
        ready = prove(self.deployment, self._note)
        emit(self.folder, "ready", seconds=ready.seconds, engines=len(ready.engines))
        self._enter("gate")
        passed = run_gate(gate_settings(self.deployment, ready), self.folder, self._gate_progress)
        emit(self.folder, "passed", accuracy=passed.accuracy)
        self._all_registered()
        self._enter("sweep")
        points = sweep(
            load_settings(self.deployment),
            passed,
            self.folder,
            self._load_progress,
            boot_ids=self._identities,
        )
        self._all_registered()
        emit(self.folder, "swept", points=len(points))

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
        for hit in self.watch.look():
            raise EngineError(f"the log of {hit.log.removesuffix('.log')} says that the run is void: {hit}")

    def _identities(self) -> tuple[str, ...]:
        """Asked for before a point is written, so no point outlives a fatal line of its last moments."""
        self._logs_are_clean()
        return boot_ids(self.deployment)

    def _all_registered(self) -> None:
        """A lost engine would mean silently less of the deployment."""
        lost = unregistered(self.deployment)
        if lost:
            message = f"the router has lost the {', the '.join(lost)}"
            raise EngineError(message, fix="file discovery loses engines that stall; use `infra.discovery: etcd`")


def gate_settings(deployment: Deployment, ready: Ready) -> GateSettings:
    """The gate as the recipe wants it; the data set is the run folder's, or the public one from the cache."""
    gate, folder = deployment.recipe.gate, deployment.folder / "accuracy"
    data, sha256 = folder / "questions.jsonl", None
    if gate.data is None:
        spec = load_accuracy().data["test"]
        data, sha256 = fetch_data(spec, cache_folder()), spec.sha256
    return GateSettings(
        base_url=deployment.url,
        model=deployment.model,
        protocol=gate.protocol,
        data=data,
        data_sha256=sha256,
        shots=folder / "shots.jsonl" if gate.shots else None,
        question_limit=gate.questions,
        concurrency=gate.concurrency or max(deployment.recipe.workload.concurrency),
        max_tokens=gate.max_tokens,
        floor=gate.floor,
        max_truncated_share=gate.max_truncated_share,
        max_empty_share=gate.max_empty_share,
        timeout_seconds=gate.timeout_seconds,
        twin=folder / "twin.jsonl" if gate.twin else None,
        lock_digest=deployment.lock_digest,
        boot_ids=ready.boot_ids,
        scored_by=gate.scored_by,
    )


def load_settings(deployment: Deployment) -> LoadSettings:
    """The sweep as the recipe wants it."""
    recipe, roles = deployment.recipe, deployment.plan["roles"]
    generating = roles.get("decode") or roles["agg"]
    load = recipe.workload
    return LoadSettings(
        tool=recipe.sweep.tool,
        tool_version=recipe.engine.vllm if recipe.sweep.tool == "vllm-bench" else "",
        url=deployment.url,
        endpoint=recipe.sweep.endpoint,
        model=deployment.model,
        tokenizer=generating["model_path"],
        concurrency=tuple(load.concurrency),
        isl=load.isl,
        osl=load.osl,
        template_tokens=load.template_tokens,
        prompts_per_concurrency=recipe.sweep.prompts_per_concurrency,
        warmup_per_concurrency=recipe.sweep.warmup_per_concurrency,
        repeats=recipe.sweep.repeats,
        gpus=deployment.plan["gpus_allocated"],
        gpus_by_role={role: one["gpus_per_endpoint"] * one["endpoints"] for role, one in roles.items()},
        mtp=generating["mtp"],
        prefix_caching=any(recipe.settings(role).prefix_caching for role in recipe.roles()),
        metrics_urls=tuple(f"{worker.url}/metrics" for worker in deployment.generating()),
    )


def cache_folder() -> Path:
    """Where public data files are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pdkit"


def node_address(node: int) -> str:
    """The address of a node of the job, as the job script has exported it."""
    name = f"NODE_IP_{node}"
    if name not in os.environ:
        raise UsageError(f"{name} is not set", fix="start the driver by the job script, which exports it")
    return os.environ[name]


def finish(folder: Path, error: PdkitError | None, stage: str) -> int:
    """Write `result.json` and return the exit code."""
    code = error.exit_code if error else 0
    message = str(error) if error else "ready, gate and sweep passed"
    if error:
        sys.stderr.write(f"{message}\n")
    write_json(folder / RESULT, {"schema": 1, "exit_code": code, "stage": stage, "message": message})
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
        return _fail(driver, EngineError(f"an engine or the router stopped answering: {error}"))
    except OSError as error:
        return _fail(driver, UsageError(f"cannot write: {error.strerror}", at=str(error.filename or folder)))
    return finish(folder, None, "done")


def _fail(driver: Driver, error: PdkitError) -> int:
    """A dead engine is the cause, not the wrong answers or the failed requests that follow from it."""
    if isinstance(error, (GateError, MeasurementError)):
        missing = missing_parts(driver.deployment)
        if missing:
            error = EngineError(f"{', '.join(missing)} no longer there while the {driver.stage} ran: {error.message}")
    return finish(driver.folder, error, driver.stage)


if __name__ == "__main__":
    sys.exit(main())

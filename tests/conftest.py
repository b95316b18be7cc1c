"""What holds for all tests: nothing is left running, in CI no test skips for want of Slurm or the engines, and the
virtual rack of tests/rack and tests/cluster: started once, always stopped, beside whatever rack a user runs.
"""

from __future__ import annotations

import dataclasses
import os
import random
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from pdkit.rack import rack as racks
from pdkit.rack.config import RackConfig
from pdkit.rack.requirements import missing_requirements

MUST_RUN_IN_CI = {"rack", "local"}
NOT_ENDED = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED"}


def pytest_configure() -> None:
    """Let SIGTERM end the tests as Ctrl-C does, so that fixtures stop the racks and engines they started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    marks = MUST_RUN_IN_CI & {mark.name for mark in item.iter_markers()}
    expected = hasattr(report, "wasxfail")
    if report.skipped and marks and not expected and os.environ.get("CI"):
        reason = call.excinfo.value if call.excinfo else "skipped"
        report.outcome = "failed"
        report.longrepr = f"CI may not skip a test marked {', '.join(sorted(marks))}: {reason}"
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"rack", "new_rack"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("rack")


@dataclasses.dataclass(frozen=True)
class Slurm:
    """Slurm's commands on the rack, as a user types them."""

    config: RackConfig
    folder: Path

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in words],
            env={**os.environ, **racks.environment(self.config)},
            cwd=self.folder,
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )

    def submit(self, script: str, *options: str) -> int:
        """Submit a script whose output goes to job-ID.out and return the job's number."""
        path = self.folder / f"{secrets.token_hex(4)}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        done = self.run("sbatch", "--parsable", "--output=job-%j.out", *options, path)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def state(self, job: int) -> str:
        return self.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").stdout.strip()

    def output(self, job: int) -> str:
        path = self.folder / f"job-{job}.out"
        return path.read_text() if path.exists() else ""

    def wait(self, job: int, *, deadline_s: float = 90) -> str:
        """Wait for the job's end and return its last state."""
        wait_until(lambda: self.state(job) not in NOT_ENDED, f"job {job} has ended", deadline_s=deadline_s)
        return self.state(job)


def wait_until(check: Callable[[], object], what: str, *, deadline_s: float = 60) -> float:
    """Wait until `check` is true and return the seconds it took."""
    begin = time.monotonic()
    while not check():
        assert time.monotonic() - begin < deadline_s, f"not in {deadline_s} s: {what}"
        time.sleep(0.1)
    return time.monotonic() - begin


@pytest.fixture(name="wait_until", scope="session")
def _wait_until() -> Callable[..., float]:
    return wait_until


@pytest.fixture(scope="session")
def new_rack() -> Iterator[Callable[..., RackConfig]]:
    """Make the settings of racks that meet no other rack; each is stopped and wiped at the end."""
    missing = missing_requirements()
    if missing:
        reason = f"no virtual rack here; missing: {'; '.join(missing)}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    made: list[RackConfig] = []

    def make(**settings: object) -> RackConfig:
        config = RackConfig(
            # Not pytest's own folder: its path may be too long for the munge socket.
            folder=Path(tempfile.mkdtemp(prefix="pdkit-rack-")),
            name=f"t{secrets.token_hex(3)}",
            subnet=f"10.{random.randint(73, 79)}.{random.randint(0, 255)}",
            port=random.randint(20000, 30000),
            **settings,
        )
        made.append(config)
        return config

    yield make
    for config in made:
        racks.stop(config, wipe=True)
        shutil.rmtree(config.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def rack(new_rack: Callable[..., RackConfig]) -> RackConfig:
    """A running rack of 18 nodes; jobs may name the account `perf`."""
    config = new_rack(accounts=("perf",))
    racks.start(config)
    return config


@pytest.fixture
def slurm(rack: RackConfig, tmp_path: Path) -> Iterator[Slurm]:
    """Slurm's commands on the whole and idle rack; what a test leaves behind is put right."""
    racks.start(rack)
    yield Slurm(rack, tmp_path)
    for partition in ("batch", "debug"):
        Slurm(rack, tmp_path).run("scancel", f"--partition={partition}")
    racks.start(rack)
    wait_until(lambda: all(state.state == "idle" for state in racks.status(rack)), "every node is idle again")

"""Real jobs on the virtual rack whose engines only wait and whose driver does what the test tells it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pdkit.cli import app
from pdkit.errors import PdkitError
from pdkit.rack import rack as racks
from pdkit.rack.config import RackConfig

HERE = Path(__file__).parent
SMALL = HERE / "small.yaml"


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


def pdkit(*words: object) -> Ran:
    """Run pdkit's command line in this process."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, PdkitError):
        return Ran(result.exception.exit_code, result.stdout, str(result.exception))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


def make_stand_ins(folder: Path) -> Path:
    """A `python3` for jobs: engines and preflight are shell, the driver is driver.py; returns its bin folder."""
    script = folder / "bin" / "python3"
    script.parent.mkdir(parents=True)
    real, driver = shlex.quote(sys.executable), shlex.quote(str(HERE / "driver.py"))
    script.write_text(
        f'#!/bin/sh\ncase "$2" in\n'
        f'dynamo.*) echo "standing in for $2"; exec sleep 900 ;;\n'
        f"pdkit.job.preflight) exit 0 ;;\n"
        f'pdkit.job.driver) exec {real} {driver} "$3" ;;\n'
        f'*) exec {real} "$@" ;;\nesac\n'
    )
    script.chmod(0o755)
    return script.parent


@dataclass
class Cluster:
    """The rack, and the runs that a test makes on it."""

    config: RackConfig
    runs: Path
    wait_until: Callable[..., float]
    known: list[Path] = field(default_factory=list)

    def slurm(self, *words: object) -> str:
        done = subprocess.run([str(word) for word in words], text=True, capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, *words: object, recipe: Path = SMALL) -> Path:
        """Submit one run and return its folder."""
        ran = pdkit("submit", recipe, "-o", self.runs, "--json", *words)
        assert ran.code == 0, ran.err
        [job] = json.loads(ran.out)["jobs"]
        assert job["new"], job
        return Path(job["folder"])

    def status(self, folder: Path) -> dict[str, Any]:
        ran = pdkit("status", folder, "--json")
        assert ran.code == 0, ran.err
        [run] = json.loads(ran.out)["runs"]
        return dict(run)

    def job(self, folder: Path) -> str:
        return str(json.loads((folder / "job.json").read_text())["jobs"][-1]["id"])

    def tell(self, folder: Path, *acts: dict[str, Any]) -> None:
        """Let the driver of a run do something."""
        with (folder / "told.jsonl").open("a") as stream:
            stream.writelines(json.dumps(act) + "\n" for act in acts)

    def reach(self, folder: Path, stage: str, *, state: str = "RUNNING", deadline_s: float = 60) -> dict[str, Any]:
        """Wait until a run is in a stage."""
        seen: list[dict[str, Any]] = []

        def there() -> bool:
            seen.append(self.status(folder))
            there = seen[-1]["stage"].startswith(stage) and seen[-1]["state"] == state
            assert there or seen[-1]["live"], "it has ended otherwise"
            return there

        try:
            self.wait_until(there, f"{state}, {stage}", deadline_s=deadline_s)
        except AssertionError as error:
            log = folder / "logs" / "job.log"
            raise AssertionError(f"{seen[-1]}\n{log.read_text() if log.exists() else 'no job.log'}") from error
        return seen[-1]

    def driving(self, folder: Path) -> None:
        """Wait until the driver of the newest job listens."""
        self.wait_until((folder / "seen.json").exists, "the driver listens")


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stand_ins(tmp_path_factory.mktemp("stand-ins"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user without clusters.yaml, token and variables for sbatch."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        for name in [one for one in os.environ if one.startswith("SBATCH_")] + ["HF_TOKEN"]:
            patch.delenv(name, raising=False)
        yield folder


@pytest.fixture(scope="module")
def cluster(
    rack: RackConfig,
    stand_ins: Path,
    home: Path,
    wait_until: Callable[..., float],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """The whole rack, this process a user of it; no job outlives the tests of a module."""
    racks.start(rack)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in racks.environment(rack).items():
            patch.setenv(name, value)
        patch.setenv("PATH", f"{stand_ins}{os.pathsep}{os.environ['PATH']}")
        found = Cluster(rack, tmp_path_factory.mktemp("c") / "runs", wait_until)
        yield found
        for partition in ("batch", "debug"):
            found.slurm("scancel", f"--partition={partition}")
        idle = lambda: all(state.state == "idle" for state in racks.status(rack))  # noqa: E731
        wait_until(idle, "every node is idle again")


@pytest.fixture(name="pdkit", scope="session")
def _pdkit() -> Callable[..., Ran]:
    return pdkit

"""`pdkit run` with the real engines, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ENGINES = ROOT / ".venv-vllm"
SECONDS = 540


@dataclass(frozen=True)
class Run:
    """A finished `pdkit run`."""

    code: int
    output: str
    folder: Path

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())

    @property
    def points(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "points").iterdir())


def pdkit_run(recipe: str, output: Path, *options: str) -> Run:
    """Run a local recipe and fail when anything of it is left running."""
    argv = [sys.executable, "-m", "pdkit.cli", "run", str(ROOT / "recipes" / "local" / recipe), "-o", str(output)]
    environment = {**os.environ, "PDKIT_ENGINES": str(ENGINES)}
    done = subprocess.run(
        [*argv, *options],
        cwd=output.parent,
        env=environment,
        text=True,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    folders = sorted(output.iterdir(), key=lambda path: path.stat().st_mtime)
    assert folders, done.stderr
    left = leftovers((folders[-1] / "run.id").read_text())
    assert left == [], f"still running: {left}"
    return Run(done.returncode, done.stdout + done.stderr, folders[-1])


def leftovers(run_id: str) -> list[int]:
    from pdkit.launch.processes import marked

    return marked(run_id)


@pytest.fixture(scope="session", autouse=True)
def engines() -> None:
    """The engines' environment, which `make engines` makes."""
    if not (ENGINES / "bin" / "python").exists():
        pytest.skip("the engines are not installed here: make engines")

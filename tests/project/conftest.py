"""The files of this repository, for the tests about it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Tracked = Callable[..., dict[str, Path]]


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def tracked(root: Path) -> Tracked:
    """Ask for the files that git keeps, by name from the root; limited to git's path patterns."""

    def ask(*patterns: str) -> dict[str, Path]:
        command = ["git", "ls-files", "-z", "--", *patterns]
        listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
        found = {name: root / name for name in listed.split("\0") if name}
        return {name: path for name, path in found.items() if path.is_file()}

    return ask

"""install.sh never leaves a half-made environment under its final name, and never removes what is not its own."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import LAPTOP

pytestmark = pytest.mark.skipif(sys.version_info[:2] not in ((3, 11), (3, 12)), reason="install.sh wants 3.11 or 3.12")


def install(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LAPTOP / "install.sh", folder],
        env={**os.environ, "PDKIT_PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def digest() -> str:
    parts = [LAPTOP / "engines.lock", LAPTOP / "install.sh", LAPTOP / "shim" / "METADATA"]
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()


def made_before(folder: Path, stamp: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "pyvenv.cfg").write_text("")
    (folder / "pdkit-engines.sha256").write_text(stamp + "\n")
    return folder


NO_PACKAGES = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}


def test_an_environment_of_the_same_lock_is_reused_at_once(tmp_path: Path) -> None:
    result = install(made_before(tmp_path / "engines", digest()), **NO_PACKAGES)
    assert result.returncode == 0, result.stderr
    assert "up to date" in result.stdout


def test_a_failed_install_keeps_the_old_environment_and_names_the_log(tmp_path: Path) -> None:
    folder = made_before(tmp_path / "engines", "of another lock")
    result = install(folder, **NO_PACKAGES)
    assert result.returncode == 1
    assert "No matching distribution found for torch" in result.stderr
    assert f"the whole log is in {folder}.building/install.log" in result.stderr
    assert (folder / "pdkit-engines.sha256").read_text() == "of another lock\n"
    assert not (tmp_path / "engines.building" / "pdkit-engines.sha256").exists()


def test_a_folder_that_is_no_environment_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    result = install(tmp_path)
    assert result.returncode == 1
    assert "is not a Python environment" in result.stderr
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_another_python_is_refused_with_the_remedy(tmp_path: Path) -> None:
    result = install(tmp_path / "engines", PDKIT_PYTHON="/bin/false")
    assert result.returncode == 1
    assert "PDKIT_PYTHON=" in result.stderr

"""What is said where a rack cannot start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pdkit.errors import ClusterError
from pdkit.rack import process, requirements

RACK = Path(requirements.__file__).parent


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any program, and a user who is not root."""
    monkeypatch.setattr(process, "_PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.mark.usefixtures("bare")
def test_everything_missing_is_named() -> None:
    missing = requirements.missing_requirements()
    assert missing[0].startswith("root")
    for word in ("slurmctld", "slurmd", "munged", "srun", "gcc", "ip "):
        assert any(text.startswith(word) for text in missing), word


@pytest.mark.usefixtures("bare")
def test_the_fix_is_one_apt_get_command_of_packages_that_install_sh_knows() -> None:
    with pytest.raises(ClusterError) as caught:
        requirements.require()
    command = re.search(r"apt-get install -y --no-install-recommends ([a-z0-9 -]+?) and then", str(caught.value.fix))
    assert command, caught.value.fix
    packages = set(command.group(1).split())
    assert {"slurmctld", "slurmd", "slurm-client", "munge", "gcc", "iproute2"} <= packages
    line = re.search(r'^packages="(.*)"$', (RACK / "install.sh").read_text(), re.MULTILINE)
    assert line
    assert packages <= set(line.group(1).split())


@pytest.mark.usefixtures("bare")
def test_a_program_that_is_not_there_is_an_error_without_traceback() -> None:
    with pytest.raises(ClusterError, match="slurmnope cannot be started"):
        process.run(["slurmnope"])


def test_a_failing_program_is_quoted() -> None:
    with pytest.raises(ClusterError, match="ended with 3: why"):
        process.run(["sh", "-c", "echo why >&2; exit 3"])


def test_a_hanging_program_is_ended() -> None:
    with pytest.raises(ClusterError, match="gave no answer"):
        process.run(["sleep", "20"], timeout_s=0.2)


@pytest.mark.parametrize("script", sorted(RACK.glob("*.sh")), ids=lambda path: path.name)
def test_shell_scripts_are_clean(script: Path) -> None:
    shellcheck = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run([shellcheck, script], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(
    shutil.which("gcc") is None or not Path("/usr/include/slurm/spank.h").exists(), reason="no gcc or no slurm/spank.h"
)
@pytest.mark.parametrize("source", sorted((RACK / "spank").glob("*.c")), ids=lambda path: path.name)
def test_plugins_compile_without_a_warning(source: Path, tmp_path: Path) -> None:
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(["gcc", *flags, "-o", tmp_path / "a.so", source], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr

"""Every script of every shipped recipe: bash reads it, shellcheck has nothing to say, and it is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pdkit.commands import planned, recipe_files
from pdkit.paths import shipped
from pdkit.plan.plan import Plan
from pdkit.render.script import scripts

RECIPES = shipped("recipes")
SHELLCHECK = Path(sys.executable).with_name("shellcheck")


@pytest.fixture(scope="module")
def rendered() -> list[tuple[Plan, dict[str, str]]]:
    files = [path for path in recipe_files([RECIPES]) if path.parent.name != "local"]
    return [(plan, scripts(plan)) for path in files for _, plan, _ in planned(path)]


@pytest.fixture(scope="module")
def written(rendered: list[tuple[Plan, dict[str, str]]], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Each different script once, in a file; those of the local recipes too, which have no etcd and no NATS."""
    local = [(plan, scripts(plan)) for path in recipe_files([RECIPES / "local"]) for _, plan, _ in planned(path)]
    folder = tmp_path_factory.mktemp("scripts")
    unique = {
        text: f"{plan.recipe.name}-{Path(name).name}"
        for plan, texts in [*rendered, *local]
        for name, text in texts.items()
    }
    for text, name in unique.items():
        (folder / name).write_text(text)
    return [str(folder / name) for name in unique.values()]


def test_bash_reads_every_script(written: list[str]) -> None:
    loop = 'bad=0; for file; do bash -n "$file" || bad=1; done; exit $bad'
    done = subprocess.run(["bash", "-c", loop, "bash", *written], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(written) > 150


def _as_shellcheck_sees(text: str) -> str:
    """Numbers and remarks make no difference to it: most of the rack's scripts are then the same few."""
    lines = [line for line in text.splitlines() if not line.startswith("#") or "shellcheck" in line]
    return re.sub(r"\d+", "0", re.sub(r"  # .*", "", "\n".join(lines)))


def test_shellcheck_has_nothing_to_say(written: list[str]) -> None:
    different = list({_as_shellcheck_sees(Path(name).read_text()): name for name in written}.values())
    assert len(different) > 20
    done = subprocess.run([SHELLCHECK, "--format=gcc", *different], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_one_script_per_process_and_one_for_the_job(rendered: list[tuple[Plan, dict[str, str]]]) -> None:
    for plan, texts in rendered:
        infra = ["etcd", "nats", "frontend0", "driver"]
        processes = [process.name for process in plan.placement]
        assert sorted(texts) == sorted(
            ["job.sbatch", "steps/preflight.sh", *(f"steps/{name}.sh" for name in (*infra, *processes))]
        )
        for name in (*infra, *processes):
            assert f"\nstart {name} " in texts["job.sbatch"]


def test_every_script_says_what_it_is_and_stops_at_errors(rendered: list[tuple[Plan, dict[str, str]]]) -> None:
    for _, texts in rendered:
        for name, text in texts.items():
            lines = text.splitlines()
            assert lines[0] == "#!/bin/bash", name
            assert lines[1].startswith("# "), name
            assert "set -euo pipefail" in lines, name
            assert text.endswith("\n"), name
            assert "{{" not in text, name
            assert "None" not in text.replace("NONE", ""), name


def test_every_derived_flag_has_a_reason(rendered: list[tuple[Plan, dict[str, str]]]) -> None:
    for _, texts in rendered:
        for name, text in texts.items():
            if not name.startswith("steps/") or "args=(" not in text:
                continue
            flags = [line for line in text.split("args=(\n")[1].split("\n)")[0].splitlines() if line]
            assert flags, name
            for line in flags:
                assert line.startswith("  --"), line
                assert len(line.split("  # ", 1)[1]) > 5, line

"""The rendered job scripts, taken by a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdkit.commands import planned, recipe_files
from pdkit.render.folder import write_run_folder

RECIPES = Path(__file__).parents[2] / "recipes"
FRONT_DOOR = RECIPES / "qwen38_tep8.yaml"


def render(recipe: Path, folder: Path, *sets: str) -> Path:
    loaded, plan, findings = planned(recipe, sets)[0]
    write_run_folder(folder, plan, loaded.source, findings)
    return folder


def test_the_front_door_job_is_accepted(slurm) -> None:
    folder = render(FRONT_DOOR, slurm.folder / "front-door")
    done = slurm.run("sbatch", "--test-only", f"--chdir={folder}", folder / "job.sbatch")
    assert done.returncode == 0, done.stderr
    assert "576 processors" in done.stderr  # 4 whole nodes of 144 CPUs


@pytest.mark.parametrize("recipe", sorted(recipe_files([RECIPES / "qwen38" / "published"])), ids=lambda path: path.stem)
def test_every_published_point_is_accepted(slurm, recipe: Path) -> None:
    folder = render(recipe, slurm.folder / recipe.stem)
    done = slurm.run("sbatch", "--test-only", f"--chdir={folder}", folder / "job.sbatch")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("cluster.partition=nope", "Invalid partition name specified"),
        ("cluster.account=nobody", "Invalid account or account/partition combination"),
        ("cluster.time_limit=99:00:00", "Requested time limit is invalid"),
        ("cluster.segment=3", "4 nodes are not a multiple of 3"),
        ("cluster.directives={bogus: true}", "unrecognized option"),
    ],
)
def test_what_the_cluster_does_not_have_is_refused(slurm, setting: str, said: str) -> None:
    folder = render(FRONT_DOOR, slurm.folder / setting.partition("=")[0], setting)
    done = slurm.run("sbatch", "--test-only", f"--chdir={folder}", folder / "job.sbatch")
    assert done.returncode != 0
    assert said in done.stderr

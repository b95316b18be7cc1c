"""The run folder: everything that was asked and decided, and what runs, in one place, written atomically."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import yaml

from pdkit.errors import Finding, RecipeError, UsageError
from pdkit.files import to_json, write_text
from pdkit.paths import expand
from pdkit.plan.contract import plan_data
from pdkit.plan.plan import Plan
from pdkit.recipe.source import Source
from pdkit.render.bundle import bundle
from pdkit.render.lock import lock_data
from pdkit.render.script import scripts

EXECUTABLE = (".sh", ".sbatch")
BUILDING = re.compile(r"\.\S+-[0-9a-f]{8}-\d+\.\w{8}")
"""Name of a run folder that is being written."""
STALE_SECONDS = 300.0
"""Writing one takes less than a second; whoever began this long ago was killed."""


def rendered_files(
    plan: Plan, source: Source, findings: Iterable[Finding], rehearsal: str | None = None
) -> dict[str, str]:
    """All text files of the run folder by their path; same recipe, same bytes."""
    recipe_text = yaml.safe_dump(source.data, sort_keys=False, allow_unicode=True, width=120)
    return {
        "recipe.yaml": recipe_text,
        "plan.json": to_json(plan_data(plan, findings)),
        "lock.json": to_json(lock_data(plan, recipe_text, rehearsal)),
        **scripts(plan),
    }


def write_run_folder(
    folder: Path, plan: Plan, source: Source, findings: Iterable[Finding], rehearsal: str | None = None
) -> None:
    """Write the run folder as a whole: it appears complete or not at all. `rehearsal` is the lock's.

    Raises UsageError when `folder` exists and is not empty, or cannot be written.
    """
    try:
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} is there already", fix="choose another folder with -o, or remove it")
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        building = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise _cannot_be_written(folder, error) from None
    try:
        for name, text in rendered_files(plan, source, findings, rehearsal).items():
            write_text(building / name, text, mode=0o755 if name.endswith(EXECUTABLE) else 0o644)
        for name, file in accuracy_files(plan, source).items():
            (building / "accuracy").mkdir(exist_ok=True)
            shutil.copyfile(file, building / "accuracy" / name)
        (building / "pdkit.zip").write_bytes(bundle())
        for name in ("logs", "points"):
            (building / name).mkdir()
        building.chmod(0o755)
        if folder.exists():
            folder.rmdir()
        building.replace(folder)
    except BaseException as error:
        shutil.rmtree(building, ignore_errors=True)
        if isinstance(error, OSError):
            raise _cannot_be_written(folder, error) from None
        raise


def _sweep(parent: Path) -> None:
    """Remove the halves of run folders that killed commands have left."""
    for one in parent.iterdir():
        if BUILDING.fullmatch(one.name) and time.time() - one.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(one, ignore_errors=True)


def _cannot_be_written(folder: Path, error: OSError) -> UsageError:
    return UsageError(f"{folder} cannot be written: {error.strerror}", fix="choose another folder with -o")


def accuracy_files(plan: Plan, source: Source) -> dict[str, Path]:
    """The gate's own files that the recipe names, by their name in the run folder: they travel with the job.

    Raises RecipeError PD105 for a file that is not there.
    """
    found = {}
    for name, key in (("questions.jsonl", "data"), ("shots.jsonl", "shots"), ("twin.jsonl", "twin")):
        given = getattr(plan.recipe.gate, key)
        if given is None:
            continue
        path = Path(expand(given))
        if not path.is_file():
            at = source.at(("gate", key))
            raise RecipeError(f"`gate.{key}`: no such file: {path}", at=at, fix="check the path", code="PD105")
        found[name] = path
    return found


def next_run_folder(parent: Path, plan: Plan) -> Path:
    """`<recipe>-<digest8>-<n>` with the first n that is free."""
    stem = f"{plan.recipe.name}-{plan.digest.removeprefix('sha256:')[:8]}"
    try:
        taken = set(os.listdir(parent)) if parent.is_dir() else set()  # noqa: PTH208  (names only, one call)
    except OSError as error:
        raise _cannot_be_written(parent, error) from None
    number = next(n for n in range(1, 10**6) if f"{stem}-{n}" not in taken)
    return parent / f"{stem}-{number}"

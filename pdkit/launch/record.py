"""`job.json`: every job that a run folder was submitted as, oldest first."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

from pdkit.errors import UsageError
from pdkit.files import write_json

JOBS = "job.json"


def remember(folder: Path, job: str, words: list[str], cluster: str | None) -> None:
    """Add a job to `job.json`."""
    now = dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")
    entry = {"id": job, "submitted": now, "options": words, "cluster": cluster}
    write_json(folder / JOBS, {"schema": 1, "jobs": [*submissions(folder), entry]})


def submissions(folder: Path) -> list[dict[str, Any]]:
    """The jobs that a run folder was submitted as, oldest first."""
    found: list[dict[str, Any]] = read_json(folder / JOBS, {"jobs": []})["jobs"]
    return found


def read_json(file: Path, missing: Any = None) -> Any:
    """The content of a JSON file, or `missing` where there is none. Raises UsageError for what is no JSON."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return missing
    except ValueError as error:
        raise UsageError(f"this is not JSON: {error}", at=str(file), fix="pdkit did not write this") from None


def find_run(name: str, parent: Path) -> Path:
    """The run folder that a person means: its path, its name below `parent`, or the number of its job.

    Raises UsageError when there is none.
    """
    for folder in (Path(name), parent / name):
        if (folder / "plan.json").is_file():
            return folder
    if name.isdigit():
        for folder in run_folders(parent):
            if any(job["id"] == name for job in submissions(folder)):
                return folder
    if Path(name).is_dir():
        raise UsageError("this is not a run folder: it has no plan.json", at=name)
    raise UsageError(f"no run `{name}`, neither here nor in {parent}", fix="pdkit status lists the runs")


def run_folders(parent: Path) -> list[Path]:
    """Every run folder directly below `parent`, oldest first."""
    return sorted((file.parent for file in parent.glob("*/plan.json")), key=lambda folder: folder.stat().st_mtime)

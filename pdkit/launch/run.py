"""`pdkit run` on this machine: render, start, supervise, report; or go on with what an earlier run left unfinished."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import yaml

from pdkit.commands import planned
from pdkit.errors import Finding, FindingsError, UsageError
from pdkit.job.audit import doubts
from pdkit.launch.ports import choose_shift
from pdkit.plan.plan import Plan
from pdkit.recipe.load import Loaded
from pdkit.render.folder import next_run_folder, write_run_folder
from pdkit.results.points import read_points


def prepare(
    recipe: Path, sets: tuple[str, ...], output: Path, *, force: bool, engines: Path | None
) -> tuple[Path, Plan]:
    """A fresh run folder for this machine, its ports free and reserved for this process.

    `force` runs a recipe in spite of its findings: for tests that the later stages catch what the checks would have.
    Raises FindingsError when a rule finds an error, UsageError when the file stands for several recipes or the engines
    are not there; nothing is written then.
    """
    loaded, plan, findings = _only(recipe, sets)
    shift = choose_shift(plan)
    if shift != plan.recipe.infra.port_shift:
        loaded, plan, findings = _only(recipe, (*sets, f"infra.port_shift={shift}"))
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors and not force:
        raise FindingsError("\n".join(map(str, errors)))
    engine_environment(plan, engines)
    folder = next_run_folder(output, plan)
    write_run_folder(folder, plan, loaded.source, findings)
    return folder.resolve(), plan


def goes_to_slurm(recipe: Path, sets: tuple[str, ...]) -> bool:
    """Whether a recipe is submitted rather than started here: it needs GPUs of several nodes, or Slurm hands them out.

    Inside a job, and on a GPU machine without Slurm, a recipe of one node runs where it is.
    """
    gpus = [plan for _, plan, _ in planned(recipe, sets) if plan.hardware.device != "cpu"]
    if not gpus or "SLURM_JOB_ID" in os.environ:
        return False
    return any(plan.nodes > 1 for plan in gpus) or shutil.which("sbatch") is not None


def find_unfinished(recipe: Path, sets: tuple[str, ...], output: Path) -> tuple[Path, Plan]:
    """The newest run folder of this very recipe. Raises UsageError when there is none."""
    loaded, plan, _ = _only(recipe, sets)
    files = output.glob(f"{loaded.recipe.name}-*/plan.json")
    for file in sorted(files, key=lambda one: one.parent.stat().st_mtime, reverse=True):
        folder = file.parent
        written = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
        shift = written.get("infra", {}).get("port_shift", 0)
        same = plan if shift == plan.recipe.infra.port_shift else _only(recipe, (*sets, f"infra.port_shift={shift}"))[1]
        if json.loads(file.read_text(encoding="utf-8"))["digest"] == same.digest:
            return folder.resolve(), same
    raise UsageError(f"no run of this recipe in {output}", fix="run it without --resume first")


def finished(folder: Path) -> bool:
    """Whether nothing is missing: the driver said so, and every point is there and may be believed."""
    result = folder / "result.json"
    if not result.is_file() or json.loads(result.read_text(encoding="utf-8"))["exit_code"] != 0:
        return False
    wanted = json.loads((folder / "plan.json").read_text(encoding="utf-8"))["workload"]["concurrency"]
    valid = {point.concurrency for point in read_points(folder) if point.valid} - doubts(folder).keys()
    return valid >= set(wanted)


def outcome(folder: Path) -> str:
    """How the run ended, in the words of who saw it."""
    return str(json.loads((folder / "result.json").read_text(encoding="utf-8"))["message"])


def engine_environment(plan: Plan, engines: Path | None) -> dict[str, str]:
    """What the steps need to find the engines: their PATH, and on a machine without GPU the laptop's settings.

    Raises UsageError when there is no environment with the engines.
    """
    folder = engines_folder(engines)
    environment = {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"} if folder else {}
    if plan.hardware.device == "cpu":
        if folder is None:
            raise UsageError("no engines on this machine: .venv-vllm is not there", fix="make engines")
        from pdkit.laptop.environment import laptop_environment  # noqa: PLC0415  (only for machines without GPU)

        environment |= laptop_environment()
    return environment


def engines_folder(given: Path | None) -> Path | None:
    """The engines' environment: the one given, else $PDKIT_ENGINES, else `.venv-vllm` here or beside pdkit's own.

    Raises UsageError when what is there is no Python environment.
    """
    told = os.environ.get("PDKIT_ENGINES")
    places = [Path(told)] if told else [Path.cwd() / ".venv-vllm", Path(sys.prefix).parent / ".venv-vllm"]
    found = given or next((place for place in places if place.is_dir()), Path(told) if told else None)
    if found and not (found / "bin" / "python3").is_file():
        raise UsageError(f"{found.absolute()} is not a Python environment", fix="make engines")
    return found.absolute() if found else None


def _only(recipe: Path, sets: tuple[str, ...]) -> tuple[Loaded, Plan, list[Finding]]:
    plans = planned(recipe, sets)
    if len(plans) != 1:
        raise UsageError(f"{recipe} stands for {len(plans)} recipes; run takes one", fix="choose one with --set")
    return plans[0]

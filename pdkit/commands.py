"""What several commands do first: recipe file to plans and findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pdkit.errors import Finding, RecipeError, UsageError
from pdkit.plan.plan import Plan, make_plan
from pdkit.recipe.load import Loaded, load
from pdkit.rules.accepting import UNUSED
from pdkit.rules.catalogue import check


@dataclass(slots=True)
class Checked:
    """The outcome of one recipe file."""

    file: Path
    recipes: int = 0
    findings: list[Finding] = field(default_factory=list)


def planned(file: Path, sets: tuple[str, ...] = ()) -> list[tuple[Loaded, Plan, list[Finding]]]:
    """Every recipe of a file with its plan and findings; RecipeError when it cannot be read or planned."""
    plans = [(loaded, make_plan(loaded)) for loaded in load(file, sets)]
    found = [check(plan, loaded.source) for loaded, plan in plans]
    unused = {one for findings in found for one in findings if one.code == UNUSED and one.severity == "warning"}
    # not every recipe of a matrix need break a rule that the file ignores
    used = {one for one in unused if not all(one in findings for findings in found)}
    return [
        (loaded, plan, [one for one in findings if one not in used])
        for (loaded, plan), findings in zip(plans, found, strict=True)
    ]


def checked_files(paths: Iterable[Path], sets: tuple[str, ...] = ()) -> Iterator[Checked]:
    """Check files and folders; a recipe that cannot be read becomes findings, so that the others are still checked."""
    for file in recipe_files(paths):
        result = Checked(file)
        try:
            results = planned(file, sets)
        except RecipeError as error:
            result.recipes = 1
            result.findings = list(error.findings)
        else:
            result.recipes = len(results)
            result.findings = list(dict.fromkeys(finding for _, _, findings in results for finding in findings))
        yield result


def recipe_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Files as they are; of a folder all `*.yaml` below it but bases, which are only extended (`base*.yaml`)."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        found = [one for one in sorted(path.rglob("*.yaml")) if not one.name.startswith("base") and not one.is_dir()]
        if not found:
            raise UsageError(f"{path}: no recipes (*.yaml) in this folder")
        yield from found

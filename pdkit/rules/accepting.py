"""The rule about `ignore:` itself: what is accepted must be there, and must be something that can be accepted."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdkit.errors import Finding
from pdkit.recipe.load import nearest
from pdkit.rules.rule import Case, Hit, rule

UNUSED = "PD099"
_ACCEPTED = re.compile(r" \[accepted: (.+)\]$", re.DOTALL)


def accepted_because(finding: Finding) -> str:
    """The reason why a finding is accepted; empty when it is not."""
    found = _ACCEPTED.search(finding.message) if finding.severity == "info" else None
    return found[1] if found else ""


@rule(
    UNUSED,
    "What is ignored is there and may be ignored",
    "An `ignore:` that no longer matches hides the next fault of its kind, and one with a mistyped code hides "
    "nothing. A finding after which no request could work, or every answer could be wrong, cannot be accepted.",
)
def ignores_are_needed(case: Case) -> Iterator[Hit]:
    """Each entry of `ignore:`; one that a base brings along may be unused, and so may one of a few variants."""
    codes = [entry.code for entry in case.plan.recipe.ignore]
    for index, entry in enumerate(case.plan.recipe.ignore):
        path, may = ("ignore", index, "code"), case.acceptable.get(entry.code)
        if entry.code.startswith("PD1"):
            yield Hit(
                message=f"{entry.code} says that the file is not a recipe, which cannot be accepted",
                path=path,
                fix="remove it",
            )
        elif entry.code.startswith("PD2"):
            yield Hit(
                message=f"{entry.code} is a gate of a run, which nothing accepts beforehand",
                path=path,
                fix="remove it; `gate` has the limits that a recipe may set",
            )
        elif entry.code in codes[:index]:
            yield Hit(
                message=f"{entry.code} is accepted twice, and only one reason is told",
                path=path,
                fix="keep one of them",
            )
        elif may is None:
            yield Hit(message=f"no rule has the code {entry.code}", path=path, fix=nearest(entry.code, case.acceptable))
        elif not may and entry.code in case.errors | {UNUSED}:
            yield Hit(
                message=f"{entry.code} cannot be accepted: nothing works where it does not hold",
                path=path,
                fix="remove it and mend what it finds; `pdkit run --force` runs in spite of findings",
            )
        elif entry.code not in case.found and _written_here(case, index):
            yield Hit(
                message=f"{entry.code} is ignored and does not occur",
                path=path,
                fix="remove it",
                severity="warning",
            )


def _written_here(case: Case, index: int) -> bool:
    """Whether the entry stands in the recipe itself or on the command line, not in a file that is extended."""
    place = case.source.at(("ignore", index, "code"))
    return place.startswith("--set ") or place.rsplit(":", 2)[0] == case.source.file

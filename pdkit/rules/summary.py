"""What was found over many recipes: each fault once, and how often each code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pdkit.errors import Finding
from pdkit.rules.accepting import accepted_because
from pdkit.rules.catalogue import RULES

READING = "The recipe can be read"
_FIGURE = re.compile(r"\d+(\.\d+)*")


def each_once(findings: Iterable[Finding]) -> list[Finding]:
    """Each fault once: what a base says wrong is wrong in all that extends it, there perhaps with other figures."""
    told: dict[tuple[str, str, str, str], Finding] = {}
    for one in findings:
        told.setdefault((one.code, one.severity, one.at, _FIGURE.sub("0", one.message)), one)
    return list(told.values())


@dataclass(frozen=True, slots=True)
class CodeCount:
    """The findings of one code."""

    code: str
    title: str
    errors: int
    warnings: int
    notes: int
    accepted: int
    recipes: int
    """Recipe files in which it was found."""


def counted(found: Iterable[tuple[str, Finding]]) -> list[CodeCount]:
    """One count per code that was found, from pairs of recipe file and finding, the most frequent first."""
    by_code: dict[str, list[tuple[str, Finding]]] = {}
    for file, finding in found:
        by_code.setdefault(finding.code, []).append((file, finding))
    titles = {rule.code: rule.title for rule in RULES}
    counts = [
        CodeCount(
            code=code,
            title=titles.get(code, READING),
            errors=sum(one.severity == "error" for _, one in pairs),
            warnings=sum(one.severity == "warning" for _, one in pairs),
            notes=sum(one.severity == "info" and not accepted_because(one) for _, one in pairs),
            accepted=sum(bool(accepted_because(one)) for _, one in pairs),
            recipes=len({file for file, _ in pairs}),
        )
        for code, pairs in by_code.items()
    ]
    return sorted(counts, key=lambda one: (-one.errors, -one.warnings, one.code))

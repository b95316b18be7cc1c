"""One line of a comparison: a setting on both sides, and whether the difference has an effect."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["same", "same in effect", "differs", "only here", "only there"]
Group = Literal[
    "software", "topology", "sizing", "block size", "cache", "connector", "flags", "environment", "benchmark",
    "accuracy", "job", "names",
]  # fmt: skip
GROUPS: tuple[Group, ...] = (
    "software", "topology", "sizing", "block size", "cache", "connector", "flags", "environment", "benchmark",
    "accuracy", "job", "names",
)  # fmt: skip
BESIDE: frozenset[Group] = frozenset({"accuracy", "job", "names"})
"""Groups that change neither what the engines do nor what is measured of them; they do not decide the outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting on both sides."""

    group: Group
    role: str
    """The role, empty for what belongs to the whole deployment."""
    what: str
    left: str
    right: str
    verdict: Verdict
    why: str = ""

    @property
    def decides(self) -> bool:
        """Whether engines or measurements differ here."""
        return self.verdict not in ("same", "same in effect") and self.group not in BESIDE


def row(group: Group, what: str, left: Any, right: Any, *, role: str = "", why: str = "", effect: str = "") -> Row:
    """Compare two values; None is a value that is not there. `effect` says why unlike values do the same."""
    verdict: Verdict = "differs"
    if left == right:
        verdict = "same"
    elif effect:
        verdict = "same in effect"
    elif right is None:
        verdict = "only here"
    elif left is None:
        verdict = "only there"
    note = "" if verdict == "same" else effect or why
    return Row(group=group, role=role, what=what, left=text(left), right=text(right), verdict=verdict, why=note)


def text(value: Any) -> str:
    """A value for a person: nothing for None, JSON for mappings."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value)

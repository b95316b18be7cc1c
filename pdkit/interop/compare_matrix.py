"""Two folders of recipes: which deployments belong together, and what differs in each pair."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from pdkit.interop.compare import Comparison, compare
from pdkit.interop.compare_rows import GROUPS, Group
from pdkit.interop.compare_sides import Side

SIGNS = {"same": "=", "same in effect": "≈", "differs": "≠", "only here": "←", "only there": "→"}
_WORST = ("differs", "only here", "only there", "same in effect", "same")


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Pairs of deployments, and those without a partner."""

    pairs: tuple[Comparison, ...]
    only_left: tuple[Side, ...]
    only_right: tuple[Side, ...]

    @property
    def same_in_effect(self) -> bool:
        """Whether all deployments have a partner that does the same."""
        return not (self.only_left or self.only_right) and all(pair.same_in_effect for pair in self.pairs)


def match(left: Sequence[Side], right: Sequence[Side], *, alone: bool = False) -> Matrix:
    """Pair by topology and concurrency; what is left then by topology alone, each deployment once.

    `alone`: a single deployment on each side is a pair, whatever they are.
    """
    ours, theirs = list(left), list(right)
    pairs: list[Comparison] = []
    if alone and len(ours) == len(theirs) == 1:
        return Matrix(pairs=(compare(ours[0], theirs[0]),), only_left=(), only_right=())
    for key in (_shape_and_load, _shape):
        pairs += _paired(ours, theirs, key)
    return Matrix(pairs=tuple(pairs), only_left=tuple(ours), only_right=tuple(theirs))


def _paired(ours: list[Side], theirs: list[Side], key: Callable[[Side], Hashable]) -> list[Comparison]:
    """Pairs whose key is the same, taken out of both lists."""
    found: list[Comparison] = []
    for one in list(ours):
        other = next((each for each in theirs if key(each) == key(one)), None)
        if other is not None:
            ours.remove(one)
            theirs.remove(other)
            found.append(compare(one, other))
    return found


def _shape(side: Side) -> tuple[Any, ...]:
    return tuple((role, plan.endpoints, plan.topology, plan.mtp) for role, plan in side.plan.roles.items())


def _shape_and_load(side: Side) -> tuple[Any, ...]:
    return _shape(side), side.load.concurrency if side.load else None


def shape_text(side: Side) -> str:
    """Roles and load of a deployment in a few words: `2 x TP2DP4+EP | TP4DP4+EP mtp3 @ 256`."""
    roles = (
        f"{f'{plan.endpoints} x ' if plan.endpoints > 1 else ''}{plan.topology}{f' mtp{plan.mtp}' if plan.mtp else ''}"
        for plan in side.plan.roles.values()
    )
    load = f" @ {', '.join(map(str, side.load.concurrency))}" if side.load else ""
    return " | ".join(roles) + load


def verdicts(pair: Comparison) -> dict[Group, str]:
    """The worst verdict of each group of settings; a group without settings is the same."""
    found: dict[Group, str] = {}
    for group in GROUPS:
        there = {one.verdict for one in pair.rows if one.group == group}
        found[group] = next((verdict for verdict in _WORST if verdict in there), "same")
    return found

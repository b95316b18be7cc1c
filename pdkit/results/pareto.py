"""The frontier: the points that no other point beats on both axes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


def frontier(points: Iterable[T], *, x: Callable[[T], float], y: Callable[[T], float]) -> tuple[T, ...]:
    """The non-dominated points, both axes to be maximised, by rising x.

    A point is dominated when another one is at least as good on both axes and better on one. Of points that are equal
    on both, the first given one stays. So x rises strictly and y falls strictly along the result.
    """
    # Sorting is stable: among equals the first given comes first and the later ones fail the strict comparison.
    ordered = sorted(points, key=lambda point: (-x(point), -y(point)))
    kept: list[T] = []
    for point in ordered:
        if not kept or y(point) > y(kept[-1]):
            kept.append(point)
    return tuple(reversed(kept))


def step_curve(corners: Iterable[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """The line that a frontier really promises: from each corner level to the left, then up to the next.

    At any x it shows the best y that some point with at least this x reaches. Nothing is interpolated between points.
    """
    rising = sorted(corners)
    if not rising:
        return ()
    line = [(0.0, rising[0][1])]
    for (left_x, left_y), (_, right_y) in pairwise(rising):
        line += [(left_x, left_y), (left_x, right_y)]
    last_x, last_y = rising[-1]
    return (*line, (last_x, last_y), (last_x, 0.0))


def level_at(corners: Iterable[tuple[float, float]], x: float) -> float:
    """The y that the step curve promises at `x`; 0 beyond the last corner."""
    return max((corner_y for corner_x, corner_y in corners if corner_x >= x), default=0.0)

"""The frontier: strictly non-dominated, ties resolved, a step line that promises nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pdkit.results.pareto import frontier, level_at, step_curve

Pair = tuple[float, float]
PAIRS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=12)


def corners(pairs: list[Pair]) -> tuple[Pair, ...]:
    return frontier(pairs, x=lambda pair: pair[0], y=lambda pair: pair[1])


def beats(one: Pair, other: Pair) -> bool:
    return one[0] >= other[0] and one[1] >= other[1] and one != other


def test_dominated_points_are_left_out() -> None:
    assert corners([(1, 9), (5, 5), (4, 4), (9, 1), (5, 1)]) == ((1, 9), (5, 5), (9, 1))


def test_of_equal_x_the_higher_stays_and_of_equal_y_the_faster() -> None:
    assert corners([(1, 5), (1, 7), (3, 7)]) == ((3, 7),)


def test_of_equal_points_the_first_stays() -> None:
    points = [("a", 1.0, 2.0), ("b", 1.0, 2.0), ("c", 0.5, 2.0)]
    assert frontier(points, x=lambda p: p[1], y=lambda p: p[2]) == (points[0],)


@given(PAIRS)
def test_the_frontier_is_exactly_the_non_dominated_set(pairs: list[Pair]) -> None:
    found = corners(pairs)
    assert set(found) == {pair for pair in pairs if not any(beats(other, pair) for other in pairs)}
    assert len(found) == len(set(found))
    assert list(found) == sorted(found)


@given(PAIRS)
def test_the_frontier_does_not_depend_on_the_order(pairs: list[Pair]) -> None:
    assert corners(pairs) == corners(pairs[::-1])


def test_the_step_line_never_lies_above_what_was_measured() -> None:
    assert step_curve([(2, 10), (5, 4)]) == ((0.0, 10), (2, 10), (2, 4), (5, 4), (5, 0.0))
    assert step_curve([]) == ()


@given(PAIRS, st.floats(0.1, 9))
def test_a_level_is_reached_by_some_point(pairs: list[Pair], x: float) -> None:
    level = level_at(corners(pairs), x)
    reached = [pair[1] for pair in pairs if pair[0] >= x]
    assert level == max(reached, default=0.0)

"""The topology grammar: every accepted spelling, one canonical form, and refusals with the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdkit.recipe.topology import MOST, Topology, parse_topology

sizes = st.integers(1, MOST)


@pytest.mark.parametrize(
    ("text", "expected", "canonical"),
    [
        ("TP4DP2+EP", Topology(4, 2, 1, ep=True), "TP4DP2+EP"),
        ("TP2DEP4", Topology(2, 4, 1, ep=True), "TP2DP4+EP"),
        ("TEP8", Topology(8, 1, 1, ep=True), "TEP8"),
        ("TP8+EP", Topology(8, 1, 1, ep=True), "TEP8"),
        ("DEP8", Topology(1, 8, 1, ep=True), "DEP8"),
        ("DP16+EP", Topology(1, 16, 1, ep=True), "DEP16"),
        ("TP1DP16+EP", Topology(1, 16, 1, ep=True), "DEP16"),
        ("TP1PP6+EP", Topology(1, 1, 6, ep=True), "TP1PP6+EP"),
        ("TP2PP2", Topology(2, 1, 2), "TP2PP2"),
        ("TP8", Topology(8), "TP8"),
        ("DP4", Topology(1, 4), "TP1DP4"),
        ("PP2TP2", Topology(2, 1, 2), "TP2PP2"),
        ("  tp4dp2+ep ", Topology(4, 2, 1, ep=True), "TP4DP2+EP"),
        ("TEP4DP2", Topology(4, 2, 1, ep=True), "TP4DP2+EP"),
        ("TEP4DEP2", Topology(4, 2, 1, ep=True), "TP4DP2+EP"),
        ("TP1+EP", Topology(1, 1, 1, ep=True), "TEP1"),
    ],
)
def test_spellings(text: str, expected: Topology, canonical: str) -> None:
    assert parse_topology(text) == expected
    assert str(expected) == canonical


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not understood"),
        ("TP", "is not understood"),
        ("TP4X2", "is not understood"),
        ("4TP", "is not understood"),
        ("TP4 DP2", "is not understood"),
        ("TP-4", "is not understood"),
        ("TP4.0", "is not understood"),
        ("+EP", "is not understood"),
        ("TP٤", "is not understood"),
        ("TP4+DP2", "only `+EP` may follow"),
        ("TP4+EP8", "only `+EP` may follow"),
        ("TP4+EP+EP", "only `+EP` may follow"),
        ("TP4EP8", "the EP size follows from TP x DP"),
        ("EP8", "the EP size follows from TP x DP"),
        ("TP4TP2", "TP is given twice"),
        ("TEP4TP2", "TP is given twice"),
        ("DP4DEP2", "DP is given twice"),
        ("TP0", "TP must be between 1 and 4096"),
        ("TP4097", "TP must be between 1 and 4096"),
        ("DP99999999999999999999", "DP must be between 1 and 4096"),
    ],
)
def test_refusals_say_why_and_quote_the_text(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="topology") as error:
        parse_topology(text)
    assert reason in str(error.value)
    assert f"`{text}`" in str(error.value)


@given(sizes, sizes, sizes, st.booleans())
def test_print_and_parse_round_trip(tp: int, dp: int, pp: int, ep: bool) -> None:
    topology = Topology(tp, dp, pp, ep=ep)
    assert parse_topology(str(topology)) == topology
    assert str(parse_topology(str(topology).lower())) == str(topology)


@given(st.text(alphabet="TDEP0123+ tep", max_size=12))
def test_any_text_is_a_topology_or_a_reason(text: str) -> None:
    try:
        topology: Topology | str = parse_topology(text)
    except ValueError as error:
        topology = str(error)
    if isinstance(topology, str):
        assert topology.startswith("topology `")
    else:
        assert parse_topology(str(topology)) == topology


def test_sizes_that_follow() -> None:
    topology = parse_topology("TP2DP4PP3+EP")
    assert (topology.gpus, topology.gpus_per_rank, topology.ep_size) == (24, 6, 8)
    assert parse_topology("TP2DP4PP3").ep_size == 1

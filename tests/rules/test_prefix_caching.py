"""Expected hits against what was measured and reported."""

from __future__ import annotations

import pytest

from pdkit.rules.prefix_caching import expected_hit, kept_states


def test_hits_as_they_were_measured() -> None:
    """One prompt of about 3000 tokens three times, blocks of 1072: 4288 tokens found, twice two blocks."""
    assert 2 * expected_hit(3000, 3000, 1072, 8192, draft=False, junctions=False) == 4288
    assert expected_hit(600, 600, 1072, 8192, draft=False, junctions=False) == 0


def test_only_the_last_boundary_is_kept() -> None:
    """Prompts of 2200 tokens that share 1500, blocks of 528 (vllm#45238): the one kept state lies beyond."""
    assert expected_hit(1500, 2200, 528, 8192, draft=False, junctions=False) == 0
    assert expected_hit(1500, 2200, 528, 8192, draft=False, junctions=True) == 1056
    assert expected_hit(1500, 2200, 528, 1100, draft=False, junctions=False) == 1056


@pytest.mark.parametrize(("draft", "kept"), [(False, [1056, 2112, 3168, 3696]), (True, [1056, 2112, 3168])])
def test_states_are_kept_where_steps_end(draft: bool, kept: list[int]) -> None:
    assert kept_states(4000, 528, 1100, draft=draft) == kept


def test_a_step_below_one_block_keeps_the_end_only() -> None:
    assert kept_states(4000, 528, 500, draft=False) == [3696]
    assert kept_states(500, 528, 500, draft=True) == []

"""Rules stay cheap: they run at every keystroke of an editor and over whole trees."""

from __future__ import annotations

import time

import pytest

from pdkit.plan.plan import make_plan
from pdkit.recipe.load import load
from pdkit.rules.catalogue import check

from .sides import MIXED, RECIPES

MOST_MS = 20


@pytest.mark.parametrize("recipe", [MIXED, "qwen38/published/4xtp2dp4-1xtp4dp4-cc2560.yaml"])
def test_the_whole_catalogue_over_one_plan(recipe: str) -> None:
    [loaded] = load(RECIPES / recipe)
    plan = make_plan(loaded)

    def once() -> float:
        begin = time.process_time()
        check(plan, loaded.source)
        return 1000 * (time.process_time() - begin)

    assert min(once() for _ in range(10)) <= MOST_MS

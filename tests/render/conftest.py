"""Plans and rendered scripts for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pdkit.commands import planned
from pdkit.errors import Finding
from pdkit.paths import shipped
from pdkit.plan.plan import Plan
from pdkit.recipe.source import Source

Ready = tuple[Plan, Source, list[Finding]]


@pytest.fixture(scope="session")
def ready() -> Callable[..., Ready]:
    """`ready("qwen38_tep8.yaml", "decode.mtp=0")`: a recipe planned and checked, as rendering wants it."""

    def make(recipe: str | Path, *sets: str) -> Ready:
        [(loaded, plan, findings)] = planned(shipped("recipes") / recipe, sets)
        return plan, loaded.source, findings

    return make

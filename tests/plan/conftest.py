"""Plans for the tests of this folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pdkit.cli import main
from pdkit.commands import planned
from pdkit.paths import shipped
from pdkit.plan.plan import Plan

RECIPES = shipped("recipes")


@pytest.fixture
def plan_of() -> Callable[..., Plan]:
    """`plan_of("qwen38_tep8.yaml", "decode.mtp=0")` is the plan of a shipped recipe with settings changed."""

    def plan(recipe: str | Path, *sets: str) -> Plan:
        [(_, one, _findings)] = planned(RECIPES / recipe, sets)
        return one

    return plan


@pytest.fixture
def plan_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """What `pdkit plan RECIPE --json --set …` prints, whether or not a rule finds an error."""

    def run(recipe: str | Path, *sets: str) -> dict[str, Any]:
        options = [word for text in sets for word in ("--set", text)]
        monkeypatch.setattr(sys, "argv", ["pdkit", "plan", str(RECIPES / recipe), "--json", *options])
        with pytest.raises(SystemExit):
            main()
        data: dict[str, Any] = json.loads(capsys.readouterr().out)
        return data

    return run

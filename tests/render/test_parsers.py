"""Dynamo's workers are told which parsers to use."""

from __future__ import annotations

from pdkit.commands import planned
from pdkit.paths import shipped
from pdkit.render.engine import commands


def _flags(*sets: str) -> list[dict[str, object]]:
    [(_, plan, _)] = planned(shipped("recipes") / "qwen38_tep8.yaml", sets)
    workers = [one for one in commands(plan) if one.kind == "worker"]
    return [{flag.name: flag.value for flag in one.flags if flag.name.startswith("--dyn-")} for one in workers]


def test_parsers_of_the_recipe_reach_every_worker() -> None:
    found = _flags("serving.tool_parser=qwen3_coder", "serving.reasoning_parser=qwen3")
    assert found
    assert all(one == {"--dyn-tool-call-parser": "qwen3_coder", "--dyn-reasoning-parser": "qwen3"} for one in found)


def test_without_parsers_all_stays_text() -> None:
    assert all(one == {} for one in _flags())

"""The shipped recipes: all of them are there, plan without an error, and have names of their own."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pdkit.commands import planned, recipe_files
from pdkit.paths import shipped
from pdkit.plan.plan import Plan
from pdkit.recipe.yaml_marks import parse

RECIPES = shipped("recipes")
LOCAL = RECIPES / "local"
FILES = sorted(recipe_files([RECIPES]))
QWEN38 = [path for path in FILES if LOCAL not in path.parents]


@pytest.fixture(scope="module")
def outcomes() -> dict[Path, list[tuple[Plan, list[str]]]]:
    return {
        path: [(plan, [str(one) for one in findings if one.severity == "error"]) for _, plan, findings in planned(path)]
        for path in QWEN38
    }


def test_every_recipe_plans_without_an_error(outcomes: dict[Path, list[tuple[Plan, list[str]]]]) -> None:
    assert len(outcomes) >= 38
    errors = {path.name: lines for path, plans in outcomes.items() for _, lines in plans if lines}
    assert errors == {}


def test_every_recipe_has_a_name_of_its_own(outcomes: dict[Path, list[tuple[Plan, list[str]]]]) -> None:
    names = Counter(plan.recipe.name for plans in outcomes.values() for plan, _ in plans)
    assert [name for name, count in names.items() if count > 1] == []


def _shapes(folder: str, outcomes: dict[Path, list[tuple[Plan, list[str]]]]) -> list[dict[str, tuple[int, str, int]]]:
    return [
        {role: (one.endpoints, str(one.topology), one.mtp) for role, one in plan.roles.items()}
        for path, plans in outcomes.items()
        if path.parent == RECIPES / "qwen38" / folder
        for plan, _ in plans
    ]


def test_pairs_are_the_twelve_combinations(outcomes: dict[Path, list[tuple[Plan, list[str]]]]) -> None:
    prefills = [(1, "TEP8"), (1, "TP4DP2+EP"), *((count, "TP2DP4+EP") for count in (1, 2, 3, 4))]
    expected = Counter(itertools.product(prefills, ["TEP8", "TP4DP4+EP"]))
    found = Counter((shape["prefill"][:2], shape["decode"][1]) for shape in _shapes("pairs", outcomes))
    assert found == expected
    assert len(expected) == 12


def test_aggregated_sweeps_are_all_there(outcomes: dict[Path, list[tuple[Plan, list[str]]]]) -> None:
    prefill_only = [
        "TP4DP2+EP",
        "TP2DP4+EP",
        "TP4DP4+EP",
        "TP2DP8+EP",
        "DEP16",
        "TP1PP6+EP",
        "TP1PP8+EP",
        "TEP8",
        "TEP16",
    ]
    decode_only = ["TP2DP4+EP", "TP4DP8+EP", "TEP8", "TEP16"]
    shapes = {path: plan for path, plans in outcomes.items() for plan, _ in plans if path.parent.name == "agg"}
    by_load: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for plan in shapes.values():
        load, one = plan.recipe.workload, plan.roles["agg"]
        by_load.setdefault((load.isl, load.osl), []).append((str(one.topology), one.mtp))
    assert sorted(by_load[8192, 2]) == sorted((topology, 0) for topology in prefill_only)
    assert sorted(by_load[1, 1000]) == sorted((topology, mtp) for topology in decode_only for mtp in (0, 3))
    assert set(by_load) == {(8192, 2), (1, 1000)}


def test_published_points_are_eight(outcomes: dict[Path, list[tuple[Plan, list[str]]]]) -> None:
    assert len(_shapes("published", outcomes)) == 8


def test_bases_are_not_checked_on_their_own() -> None:
    assert not [path for path in FILES if path.name.startswith("base")]
    assert sorted(path.name for path in RECIPES.rglob("base*.yaml")) == [
        "base.yaml",
        "base_decode_only.yaml",
        "base_prefill_only.yaml",
    ]


@pytest.mark.parametrize("path", [path for path in QWEN38 if path.parent != RECIPES], ids=lambda path: path.stem)
def test_a_recipe_shows_only_what_differs_from_its_base(path: Path) -> None:
    own = parse(path.read_text(), str(path)).data
    assert "extends" in own
    assert len(path.read_text().splitlines()) <= 25


def test_the_front_door(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of("qwen38_tep8.yaml")
    prefill, decode = plan.roles["prefill"], plan.roles["decode"]
    assert (str(prefill.topology), prefill.endpoints, prefill.mtp) == ("TP4DP2+EP", 1, 3)
    assert (str(decode.topology), decode.endpoints, decode.mtp) == ("TEP8", 1, 3)
    assert plan.recipe.workload.concurrency == [8, 16]
    assert (plan.nodes, plan.gpus) == (4, 16)


def test_the_local_recipe_needs_no_rack() -> None:
    if not (LOCAL / "tiny_pd.yaml").is_file():
        pytest.skip("the local recipe is not there yet")
    data = parse((LOCAL / "tiny_pd.yaml").read_text(), "tiny_pd.yaml").data
    assert (data["hardware"], data["infra"]["event_plane"]) == ("cpu", "zmq")


def test_the_plan_is_json_with_stable_keys(plan_json: Callable[..., dict[str, object]]) -> None:
    data = plan_json("qwen38_tep8.yaml")
    assert data["schema"] == 1
    assert {"recipe", "digest", "gpus", "nodes", "workload", "block_size", "roles", "placement", "ports"} <= set(data)
    assert {"network", "findings"} <= set(data)
    assert json.loads(json.dumps(data)) == data

"""Whatever stands in a recipe file, the outcome is recipes or a RecipeError: never another exception."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pdkit.errors import RecipeError
from pdkit.paths import shipped
from pdkit.plan.plan import make_plan
from pdkit.recipe.load import load
from pdkit.recipe.schema import Recipe
from pdkit.recipe.source import read_file
from pdkit.recipe.yaml_marks import parse
from pdkit.rules.catalogue import check

BASE = (shipped("recipes") / "qwen38_tep8.yaml").read_text()
FRAGMENTS = [
    "schema: 1", "name: x", "decode:", "  topology: TEP8", "extends: base.yaml", "matrix:", "  a.b: [1, 2]",
    "  <<: *a", "<<: {a: 1}", "&a", "*a", "!!str", "- ", "? ", ": ", "{", "}", "[", "]", "'", '"', "|", ">", "#", "---",
    "\t", "\n", "  ", "\u2028", "\ufeff", "\x00", "\x85", "é", "null", "1e999", "0x", "9" * 200, "%YAML 1.2",
]  # fmt: skip
words = st.sampled_from(["TEP8", "auto", "qwen3.8-2.4t", "1:00:00", "fp8", 10**400, -1, 0, 1, 8])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | words


def _nest(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)


values = st.recursive(scalars, _nest, max_leaves=6)
quick = settings(max_examples=100, deadline=None)


def _outcome(text: str, path: Path) -> str:
    try:
        for loaded in load(path, read=lambda file: text if file == path else read_file(file)):
            check(make_plan(loaded), loaded.source)
    except RecipeError as error:
        assert all(one.code.startswith("PD1") and one.at and one.message for one in error.findings)  # noqa: PT017
        return "refused"
    return "planned"


@given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=14).map("".join))
@quick
def test_scraps_of_yaml(text: str) -> None:
    _outcome(text, Path("r.yaml"))
    try:
        parse(text, "r.yaml")
    except RecipeError as error:
        assert [one.code[:4] for one in error.findings] == ["PD10"]  # noqa: PT017


@given(start=st.integers(0, len(BASE)), length=st.integers(0, 12), patch=st.text(max_size=5))
@quick
def test_a_good_recipe_with_a_hole_or_a_patch(start: int, length: int, patch: str) -> None:
    _outcome(BASE[:start] + patch + BASE[start + length :], shipped("recipes") / "r.yaml")


SECTIONS = sorted((field.alias or name) for name, field in Recipe.model_fields.items())
GOOD = {
    "schema": 1,
    "name": "good",
    "model": {"facts": "qwen3.8-2.4t", "path": "m"},
    "engine": {"vllm": "0.26.0", "dynamo": "1.6.1"},
    "hardware": "gb300-nvl72",
    "prefill": {"topology": "TEP8"},
    "decode": {"topology": "TEP8"},
    "workload": {"isl": 8, "osl": 8, "concurrency": [1]},
}
SETTINGS = sorted(
    itertools.product(
        ("model", "engine", "hardware", "common", "decode", "workload", "gate", "cluster", "infra"),
        ("facts", "path", "topology", "endpoints", "mtp", "args", "env", "block_size", "isl", "concurrency"),
    )
)


@given(st.dictionaries(st.sampled_from(SECTIONS), values, min_size=1, max_size=2))
@quick
def test_sections_of_any_kind(parts: dict[str, object]) -> None:
    _outcome(yaml.safe_dump({**GOOD, **parts}, allow_unicode=True), Path("r.yaml"))


@given(st.sampled_from(SETTINGS), values)
@quick
def test_settings_of_any_kind(where: tuple[str, str], value: object) -> None:
    section, name = where
    data: dict[str, object] = {**GOOD}
    below = data.get(section)
    data[section] = {**(below if isinstance(below, dict) else {"facts": below} if below else {}), name: value}
    _outcome(yaml.safe_dump(data, allow_unicode=True), Path("r.yaml"))


def test_bytes_of_any_kind(tmp_path: Path) -> None:
    noise = random.Random(7)
    for _ in range(40):
        (tmp_path / "r.yaml").write_bytes(noise.randbytes(noise.randrange(200)))
        try:
            load(tmp_path / "r.yaml")
        except RecipeError as error:
            assert [one.code[:4] for one in error.findings] == ["PD10"]  # noqa: PT017


def test_the_recipe_that_is_patched_is_a_good_one() -> None:
    assert _outcome(BASE, shipped("recipes") / "r.yaml") == "planned"
    assert _outcome(yaml.safe_dump(GOOD), Path("r.yaml")) == "planned"

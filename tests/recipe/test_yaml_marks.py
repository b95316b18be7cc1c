"""YAML reading: YAML 1.2 scalars, places of every key and value, and refusal of what has no meaning in a recipe."""

from __future__ import annotations

from typing import Any

import pytest

from pdkit.errors import RecipeError
from pdkit.recipe.yaml_marks import LONGEST_NUMBER, MOST_LEVELS, MOST_PARTS, parse


def _refusal(text: str) -> tuple[str, str, str]:
    """(code, place, message) of the one finding."""
    with pytest.raises(RecipeError) as error:
        parse(text, "r.yaml")
    [finding] = error.value.findings
    assert finding.fix
    return finding.code, finding.at, finding.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4:00:00", "4:00:00"),
        ("04:00:00", "04:00:00"),
        ("no", "no"),
        ("NO", "NO"),
        ("off", "off"),
        ("y", "y"),
        ("1e-3", 0.001),
        ("1e3", 1000.0),
        ("+.5e+3", 500.0),
        ("5.", 5.0),
        (".nan", ".nan"),
        (".inf", ".inf"),
        ("2026-11-29", "2026-11-29"),
        ("0777", 777),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("-7", -7),
        ("true", True),
        ("False", False),
        ("tRue", "tRue"),
        ("~", None),
        ("null", None),
        ("", None),
        ("'null'", "null"),
        ('"5"', "5"),
        ("=", "="),
        ("!!int 5", 5),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    found = parse(f"a: {text}", "r.yaml").data["a"]
    assert (found, type(found)) == (value, type(value))


def test_endless_digits_stay_text() -> None:
    for digits in ("9" * 5000, "0x" + "f" * 5000, "1." + "0" * LONGEST_NUMBER):
        assert parse(f"a: {digits}", "r.yaml").data["a"] == digits


def test_places_of_keys_and_values() -> None:
    document = parse("a:\n  b: 1\n  'c d': [x, {e: 2}]\n", "r.yaml")
    assert document.data == {"a": {"b": 1, "c d": ["x", {"e": 2}]}}
    assert {path: str(mark) for path, mark in document.keys.items()} == {
        ("a",): "r.yaml:1:1",
        ("a", "b"): "r.yaml:2:3",
        ("a", "c d"): "r.yaml:3:3",
        ("a", "c d", 1, "e"): "r.yaml:3:15",
    }
    assert str(document.values["a", "b"]) == "r.yaml:2:6"
    assert str(document.values["a", "c d", 1]) == "r.yaml:3:14"


def test_keys_are_always_text() -> None:
    assert parse("{null: 1, 1: 2, true: 3}", "r.yaml").data == {"null": 1, "1": 2, "true": 3}


def test_an_empty_file_has_no_data() -> None:
    assert parse("", "r.yaml").data is None
    assert parse("# only a comment\n", "r.yaml").data is None


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert parse("\ufeffa: 1", "r.yaml").data == {"a": 1}


def test_merged_keys_keep_their_own_place_and_lose_to_own_keys() -> None:
    document = parse("base: &base {x: 1, y: 2}\nown:\n  <<: *base\n  y: 3\n", "r.yaml")
    assert document.data["own"] == {"x": 1, "y": 3}
    assert str(document.keys["own", "x"]) == "r.yaml:1:14"
    assert str(document.keys["own", "y"]) == "r.yaml:4:3"


def test_of_several_merged_mappings_the_first_wins() -> None:
    assert parse("a: {<<: [{x: 1}, {x: 2, y: 3}]}", "r.yaml").data["a"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "code", "place", "words"),
    [
        ("a: b: c", "PD101", "1:5", "mapping values are not allowed"),
        ("a: [1, 2", "PD101", "2:1", "did not find expected"),
        ("a: 'x", "PD101", "1:6", "unexpected end of stream"),
        ("a: *gone", "PD101", "1:4", "undefined alias"),
        ("a: 1\n---\nb: 2", "PD101", "2:1", "another document"),
        ("a:\n\tb: 1", "PD101", "2:1", "cannot start any token"),
        ("a: 1\x850", "PD101", "3:1", "could not find expected"),
        ("a: @x", "PD101", "1:4", "cannot start any token"),
        ("? [a]\n: 1", "PD101", "1:3", "a key must be plain text"),
        ('"a\\0": 1', "PD101", "1:1", "a key must be plain text"),
        ('a: "x\\0y"', "PD101", "1:4", "a NUL character"),
        ("a: \x07", "PD101", "1:4", "control characters"),
        ("a: é\nb: é\x01", "PD101", "2:5", "control characters"),
        ("a: \udcff", "PD101", "1:1", "not Unicode text"),
        ('a: "\\ud800"', "PD101", "1:7", "invalid Unicode"),
        ("a: !!str 007", "PD101", "1:4", "tag"),
        ('a: !!int "5"', "PD101", "1:4", "tag"),
        ("a: !!python/object/apply:os.system [x]", "PD101", "1:4", "tag"),
        ("a: !!set {b}", "PD101", "1:4", "tag"),
        ("a: !mine 5", "PD101", "1:4", "tag"),
        ("<<: 5", "PD101", "1:5", "`<<` takes a mapping"),
        ("<<: [5]", "PD101", "1:6", "`<<` takes a mapping"),
        ("a: &x [*x]", "PD101", "1:4", "an anchor that contains itself"),
        ("a: &x {b: *x}", "PD101", "1:4", "an anchor that contains itself"),
        ("a: &x\n  <<: *x", "PD101", "1:4", "an anchor that contains itself"),
        ("a: &x {b: {<<: *x}}", "PD101", "1:4", "an anchor that contains itself"),
        ("a: 1\nb: 2\na: 3", "PD102", "3:1", "the key `a` stands twice in one mapping (first at line 1)"),
        ("x: {a: {b: 1, b: 1}}", "PD102", "1:15", "the key `b` stands twice"),
        ("1: x\n'1': y", "PD102", "2:1", "the key `1` stands twice"),
    ],
)
def test_refusals(text: str, code: str, place: str, words: str) -> None:
    found = _refusal(text)
    assert found[:2] == (code, f"r.yaml:{place}")
    assert words in found[2]


def test_a_tab_is_called_a_tab() -> None:
    with pytest.raises(RecipeError, match="YAML is indented with spaces, this line has a tab"):
        parse("a:\n  \tb: 1\n  c: 2", "r.yaml")


def test_deep_nesting_is_refused_not_a_crash() -> None:
    assert "levels deep" in _refusal("a: " + "[" * (MOST_LEVELS + 1) + "]" * (MOST_LEVELS + 1))[2]
    for endless in ("[" * 100_000, "{a: " * 5_000, "- " * 100_000 + "1"):
        assert _refusal(endless)[0] == "PD101"


def test_aliases_that_multiply_are_refused_quickly() -> None:
    lists = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    merges = "a0: &a0 {}\n"
    for level in range(1, 12):
        nine = ", ".join([f"*a{level - 1}"] * 9)
        lists += f"a{level}: &a{level} [{nine}]\n"
        merges += f"a{level}: &a{level} {{<<: [{nine}]}}\n"
    for text in (lists, merges):
        assert _refusal(text)[2] == f"more than {MOST_PARTS} values"

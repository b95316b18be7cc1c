"""What templates may print: words, lists of words, comments; anything else is an error and not an empty string."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError

from pdkit.paths import shipped
from pdkit.render.script import Comment, _environment, to_words
from pdkit.render.text import Address, RunFolder, fill, join, to_shell


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", "''"),
        ("a b", "'a b'"),
        (7, "7"),
        (["a", "b c", 3], "a 'b c' 3"),
        (("x",), "x"),
        ([], ""),
        (Comment(" it's \n two\tlines "), "it's two lines"),
        (Address(2), '"${NODE_IP_2}"'),
        (RunFolder(), '"${RUN_DIR}"'),
        (join("http://", Address(0), ":80"), 'http://"${NODE_IP_0}":80'),
        (join("a b", RunFolder(), "/c d"), "'a b'\"${RUN_DIR}\"'/c d'"),
        (join(), ""),
    ],
)
def test_values_that_have_a_meaning(value: Any, text: str) -> None:
    assert to_words(value) == text


@pytest.mark.parametrize("value", [None, True, {"a": 1}, 1.5, object(), ["a", None]])
def test_values_that_have_none(value: Any) -> None:
    with pytest.raises(TypeError, match="no meaning in a script"):
        to_words(value)


def _render(tmp_path: Path, text: str, **values: Any) -> str:
    (tmp_path / "t.j2").write_text(text)
    return _environment(tmp_path).get_template("t.j2").render(values)


def test_what_is_not_given_is_an_error(tmp_path: Path) -> None:
    for text in ("{{ nothing }}", "{% for one in nothing %}{% endfor %}", "{{ given.nothing }}"):
        with pytest.raises(UndefinedError, match="nothing"):
            _render(tmp_path, text, given={"other": 1})
    with pytest.raises(TypeError, match="no meaning in a script"):
        _render(tmp_path, "{{ none }}", none=None)


def test_bash_s_own_braces_are_left_alone(tmp_path: Path) -> None:
    text = 'n=${#list[@]}; echo "${x:-{}}" # {# no comment #}'
    assert _render(tmp_path, text + "[# a comment #]") == text


def test_templates_decide_nothing() -> None:
    """Loops over what the plan has prepared: no conditions, no filters, no macros, no arithmetic."""
    import re

    for path in shipped("slurm").rglob("*.j2"):
        tags = re.findall(r"{%-?\s*(\w+)", path.read_text())
        assert set(tags) <= {"for", "endfor"}, path
        for expression in re.findall(r"{{(.*?)}}", path.read_text()):
            assert re.fullmatch(r" [a-z_]+(\.[a-z_]+)? ", expression), (path, expression)


def test_late_parts_are_filled_in_where_no_shell_is() -> None:
    value = join("tcp://", Address(1), ":5", RunFolder(), "/x y")
    assert fill(value, lambda node: f"10.0.0.{node}", "/r") == "tcp://10.0.0.1:5/r/x y"
    assert to_shell(value) == 'tcp://"${NODE_IP_1}":5"${RUN_DIR}"\'/x y\''

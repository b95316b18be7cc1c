"""A chat template tells how a model calls tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdkit.facts.models import model_facts
from pdkit.facts.templates import parsers_of
from pdkit.paths import expand

CALLS = {
    "qwen3_coder": "{% if tools %}<tool_call>\n<function=name>\n<parameter=x>{% endif %}",
    "hermes": '{% if tools %}<tool_call>{"name": "f", "arguments": {}}</tool_call>{% endif %}',
    "mistral": "{% if tools %}[TOOL_CALLS]{% endif %}",
    "none": "{% for message in messages %}{{ message.content }}{% endfor %}",
}


@pytest.mark.parametrize(("parser", "template"), CALLS.items())
def test_the_form_of_calls_is_read(parser: str, template: str, tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(template)
    assert parsers_of(tmp_path) == (parser, None)


def test_an_unknown_form_is_not_guessed(tmp_path: Path) -> None:
    assert parsers_of(tmp_path) == (None, None)
    (tmp_path / "chat_template.jinja").write_text("{% if tools %}call f now{% endif %}<think>{{ enable_thinking }}")
    assert parsers_of(tmp_path) == (None, "qwen3")


def test_a_template_may_stand_in_the_tokenizer_s_config(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": CALLS["mistral"]}))
    assert parsers_of(tmp_path) == ("mistral", None)
    (tmp_path / "tokenizer_config.json").write_text("[")
    assert parsers_of(tmp_path) == (None, None)


def test_a_folder_s_model_has_its_template_s_parsers() -> None:
    assert model_facts(expand("{pdkit}/laptop/models/dense"), "r.yaml:1:1").tool_parser == "none"
    assert model_facts("qwen3.8-2.4t", "r.yaml:1:1").tool_parser == "qwen3_coder"

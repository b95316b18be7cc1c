"""A recipe's data as the YAML that a person would write."""

from __future__ import annotations

import io
from typing import Any

import yaml

from pdkit.recipe.load import field_names
from pdkit.recipe.yaml_marks import parse

ORDER = (
    "schema", "name", "description", "model", "engine", "hardware", "common", "prefill", "decode", "agg", "workload",
    "gate", "sweep", "infra", "cluster", "ignore",
)  # fmt: skip
"""The order of a recipe's parts in the reference."""
APART = {"model", "engine", "hardware", "common", "prefill", "decode", "agg", "workload", "gate", "sweep", "infra",
         "cluster"}  # fmt: skip
WIDTH = 118
FLAT = 100
"""Longest mapping or list, in characters, that stands on one line."""


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.2 reads as something else than text, and nothing more."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _represent(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    safe = value and "\n" not in value and _reads_as(value)
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if safe else '"')


def _reads_as(value: str) -> bool:
    """Whether the bare text comes back as this very text."""
    if (
        not value.isprintable()
        or value != value.strip()
        or value[0] in "!&*?|>%@`'\"#,[]{}-:"
        or ": " in value
        or " #" in value
    ):
        return False
    return not value.endswith(":") and parse(value, "").data == value


_Dumper.add_representer(str, _represent)


def recipe_text(data: dict[str, Any], heading: list[str]) -> str:
    """The file: comment lines, then the parts in their usual order with an empty line before each larger one."""
    lines = ["# " + "".join(char if char.isprintable() else "?" for char in line) for line in heading]
    for name in (one for one in ORDER if one in data):
        if name in APART:
            lines.append("")
        lines.append(_dumped({name: _in_order(name, data[name])}))
    return "\n".join(lines) + "\n"


def _in_order(name: str, value: Any) -> Any:
    """The settings of a part in the order of the reference."""
    if not isinstance(value, dict):
        return value
    known = ["topology", "endpoints", *field_names((name,))]
    return dict(sorted(value.items(), key=lambda item: known.index(item[0]) if item[0] in known else len(known)))


def _dumped(value: Any) -> str:
    node = _Dumper(io.StringIO(), sort_keys=False).represent_data(value)
    _flatten(node)
    return str(yaml.serialize(node, Dumper=_Dumper, width=WIDTH, allow_unicode=True)).rstrip("\n")


def _flatten(node: yaml.Node, depth: int = 0) -> None:
    """Lists and small mappings inside a setting on one line."""
    if not isinstance(node, yaml.CollectionNode):
        return
    node.flow_style = isinstance(node, yaml.SequenceNode) or (depth > 2 and len(str(_plain(node))) < FLAT)
    for part in node.value:
        for one in part if isinstance(part, tuple) else (part,):
            _flatten(one, depth + 1)


def _plain(node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {_plain(key): _plain(value) for key, value in node.value}
    return [_plain(one) for one in node.value] if isinstance(node, yaml.SequenceNode) else node.value

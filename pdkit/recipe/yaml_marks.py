"""YAML text to plain data plus the place of every key and value.

Scalars follow YAML 1.2's core schema, so the YAML 1.1 traps are gone: `4:00:00` and `no` stay text, `1e-3` is a number,
a date stays text. Duplicate keys are refused. Anchors and `<<` merges work; a merged key keeps its own place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from pdkit.errors import Finding, RecipeError

Path = tuple[str | int, ...]

_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]+$|0x[0-9a-fA-F]+$|0o[0-7]+$")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_SPECIAL = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a file, counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(slots=True)
class Document:
    """Plain data and the marks of its parts; a path is the tuple of keys and indices that leads to a part."""

    data: Any
    keys: dict[Path, Mark] = field(default_factory=dict)
    """Where the key of a mapping entry stands."""
    values: dict[Path, Mark] = field(default_factory=dict)
    """Where a value stands."""


def parse(text: str, file: str) -> Document:
    """Read one YAML document.

    Raises RecipeError with the place for syntax errors (PD101) and duplicate keys (PD102).
    """
    try:
        root = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, file) from None
    except yaml.YAMLError as error:
        raise RecipeError.of(Finding("PD101", "error", f"not YAML: {error}", f"{file}:1:1")) from None
    document = Document(data=None)
    if root is not None:
        document.data = _build(root, (), document, file, frozenset())
    return document


def scalar(text: str) -> Any:
    """The value of a plain scalar by YAML 1.2's core schema."""
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _INT.match(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if _FLOAT.match(text):
        return float(text)
    return text


def _syntax_error(error: yaml.MarkedYAMLError, file: str) -> RecipeError:
    mark = error.problem_mark or error.context_mark
    at = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else f"{file}:1:1"
    message = " ".join(str(part) for part in (error.context, error.problem) if part)
    return RecipeError.of(
        Finding("PD101", "error", f"not YAML: {message}", at, "check indentation, quotes and colons on this line")
    )


def _mark(node: yaml.Node, file: str) -> Mark:
    return Mark(file, node.start_mark.line + 1, node.start_mark.column + 1)


def _build(node: yaml.Node, path: Path, document: Document, file: str, open_nodes: frozenset[int]) -> Any:
    mark = _mark(node, file)
    document.values[path] = mark
    if id(node) in open_nodes:
        raise RecipeError.of(Finding("PD101", "error", "an anchor that contains itself", str(mark)))
    if not node.tag.startswith("tag:yaml.org,2002:"):
        raise RecipeError.of(
            Finding("PD101", "error", f"the tag `{node.tag}` is not allowed", str(mark), "write plain YAML values")
        )
    open_nodes |= {id(node)}
    if isinstance(node, yaml.ScalarNode):
        return node.value if node.style else scalar(node.value)
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*path, i), document, file, open_nodes) for i, item in enumerate(node.value)]
    data: dict[str, Any] = {}
    for key, key_mark, value in _entries(node, file):
        data[key] = _build(value, (*path, key), document, file, open_nodes)
        document.keys[(*path, key)] = key_mark
    return data


def _entries(node: yaml.MappingNode, file: str) -> Iterator[tuple[str, Mark, yaml.Node]]:
    """Merged entries first, so that the mapping's own entries win; each own key once."""
    own: dict[str, Mark] = {}
    for key_node, value in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            for source in reversed(value.value if isinstance(value, yaml.SequenceNode) else [value]):
                if not isinstance(source, yaml.MappingNode):
                    message = "`<<` takes a mapping or a list of mappings"
                    raise RecipeError.of(Finding("PD101", "error", message, str(_mark(source, file))))
                yield from _entries(source, file)
    for key_node, value in node.value:
        mark = _mark(key_node, file)
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        if not isinstance(key_node, yaml.ScalarNode):
            raise RecipeError.of(Finding("PD101", "error", "a key must be plain text", str(mark)))
        key = key_node.value
        if key in own:
            message = f"the key `{key}` stands twice in one mapping (first at line {own[key].line})"
            raise RecipeError.of(Finding("PD102", "error", message, str(mark), "keep one of the two"))
        own[key] = mark
        yield key, mark, value

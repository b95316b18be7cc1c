"""YAML text to plain data plus the place of every key and value.

Scalars follow YAML 1.2's core schema, so the YAML 1.1 traps are gone: `4:00:00` and `no` stay text, `1e-3` is a number,
a date stays text. Duplicate keys are refused. Anchors and `<<` merges work; a merged key keeps its own place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from pdkit.errors import Finding, RecipeError

Path = tuple[str | int, ...]

MOST_LEVELS = 40
"""Deepest nesting of a recipe."""
MOST_PARTS = 20_000
"""Keys and values that one file may stand for, aliases written out."""
LONGEST_NUMBER = 100
"""Characters of a number; no setting needs more."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE = "tag:yaml.org,2002:merge"
_NOT_TEXT = "save the file as UTF-8 text"
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
        loader = _Loader(text)
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, file) from None
    except yaml.reader.ReaderError as error:
        before = text.encode()[: error.position].decode(errors="ignore").split("\n")
        at = f"{file}:{len(before)}:{len(before[-1]) + 1}"
        raise RecipeError.of(Finding("PD101", "error", f"not YAML: {error.reason}", at, _NOT_TEXT)) from None
    except UnicodeEncodeError:  # a surrogate, which only a command line can hold
        raise RecipeError.of(Finding("PD101", "error", "not Unicode text", f"{file}:1:1", _NOT_TEXT)) from None
    document = Document(data=None)
    if root is not None:
        document.data = _Builder(document, file, loader.resolve).build(root, (), frozenset())
    return document


def scalar(text: str) -> Any:
    """The value of a plain scalar by YAML 1.2's core schema; digits without end stay text."""
    if text in _SPECIAL:
        return _SPECIAL[text]
    if len(text) > LONGEST_NUMBER:
        return text
    if _INT.match(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if _FLOAT.match(text):
        return float(text)
    return text


def _syntax_error(error: yaml.MarkedYAMLError, text: str, file: str) -> RecipeError:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    message = " ".join(str(part) for part in (error.context, error.problem) if part)
    fix = "check indentation, quotes and colons on this line"
    if "".join(text.splitlines()[line : line + 1]).lstrip(" ").startswith("\t"):
        fix = "YAML is indented with spaces, this line has a tab"
    return RecipeError.of(Finding("PD101", "error", f"not YAML: {message}", f"{file}:{line + 1}:{column + 1}", fix))


def _mark(node: yaml.Node, file: str) -> Mark:
    return Mark(file, node.start_mark.line + 1, node.start_mark.column + 1)


@dataclass(slots=True)
class _Builder:
    """Builds plain data out of YAML nodes, and refuses what would never end or has no meaning here."""

    document: Document
    file: str
    resolve: Callable[[type, Any, tuple[bool, bool]], str]
    """The tag that a node has when none is written."""
    built: int = 0

    def build(self, node: yaml.Node, path: Path, open_nodes: frozenset[int]) -> Any:
        """The data of a node; `open_nodes` are those that it stands in."""
        self.document.values[path] = _mark(node, self.file)
        self._enter(node, path, open_nodes)
        plain = isinstance(node, yaml.ScalarNode) and not node.style
        if node.tag != self.resolve(type(node), node.value, (plain, False)):
            raise self._refused(f"the tag `{node.tag}` is not allowed", node, "write plain YAML values")
        open_nodes |= {id(node)}
        if isinstance(node, yaml.ScalarNode):
            if "\0" in node.value:
                raise self._refused("a NUL character cannot be given to a program", node, "remove it")
            return node.value if node.style else scalar(node.value)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, i), open_nodes) for i, item in enumerate(node.value)]
        data: dict[str, Any] = {}
        for key, key_mark, value in self._entries(node, path, open_nodes):
            data[key] = self.build(value, (*path, key), open_nodes)
            self.document.keys[(*path, key)] = key_mark
        return data

    def _enter(self, node: yaml.Node, path: Path, open_nodes: frozenset[int]) -> None:
        self.built += 1
        if id(node) in open_nodes:
            raise self._refused("an anchor that contains itself", node, "write the values out")
        if len(path) > MOST_LEVELS:
            raise self._refused(f"nested more than {MOST_LEVELS} levels deep", node, "write it flatter")
        if self.built > MOST_PARTS:
            raise self._refused(f"more than {MOST_PARTS} values", node, "do aliases multiply each other?")

    def _entries(
        self, node: yaml.Node, path: Path, open_nodes: frozenset[int]
    ) -> Iterator[tuple[str, Mark, yaml.Node]]:
        """Merged entries first, so that the mapping's own entries win; each own key once."""
        own: dict[str, Mark] = {}
        for key_node, value in node.value:
            if key_node.tag == _MERGE:
                for source in reversed(value.value if isinstance(value, yaml.SequenceNode) else [value]):
                    if not isinstance(source, yaml.MappingNode):
                        raise self._refused("`<<` takes a mapping or a list of mappings", source, "for example *name")
                    self._enter(source, path, open_nodes)
                    yield from self._entries(source, path, open_nodes | {id(source)})
        for key_node, value in node.value:
            if key_node.tag == _MERGE:
                continue
            mark = _mark(key_node, self.file)
            if not isinstance(key_node, yaml.ScalarNode) or "\0" in key_node.value:
                raise self._refused("a key must be plain text", key_node, "write `key: value`")
            key = key_node.value
            if key in own:
                message = f"the key `{key}` stands twice in one mapping (first at line {own[key].line})"
                raise RecipeError.of(Finding("PD102", "error", message, str(mark), "keep one of the two"))
            own[key] = mark
            yield key, mark, value

    def _refused(self, message: str, node: yaml.Node, fix: str) -> RecipeError:
        return RecipeError.of(Finding("PD101", "error", message, str(_mark(node, self.file)), fix))

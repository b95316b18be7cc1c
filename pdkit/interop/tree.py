"""YAML as a tree in which every part keeps its place, so that parts can be merged, sliced and filled in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pdkit.recipe.source import Source
from pdkit.recipe.yaml_marks import Document, Mark, Path


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its place, and the place of the key it stands under."""

    data: Any
    """A scalar, or the plain shape of `parts`."""
    value: Mark
    key: Mark | None = None
    parts: dict[str | int, Node] | None = field(default=None)
    """Entries of a mapping by key, or of a list by number; None for a scalar."""

    @property
    def is_list(self) -> bool:
        """Whether this is a list."""
        return isinstance(self.data, list)

    @property
    def is_mapping(self) -> bool:
        """Whether this is a mapping."""
        return isinstance(self.data, dict)

    @property
    def children(self) -> dict[str | int, Node]:
        """Entries; none for a scalar."""
        return self.parts or {}

    def plain(self) -> Any:
        """The data without places."""
        if self.is_mapping:
            return {key: part.plain() for key, part in self.children.items()}
        return [part.plain() for part in self.children.values()] if self.is_list else self.data


def tree(document: Document, file: str) -> Node:
    """A parsed document as a tree."""

    def build(data: Any, path: Path) -> Node:
        parts: dict[str | int, Node] | None = None
        if isinstance(data, dict):
            parts = {key: build(value, (*path, key)) for key, value in data.items()}
        elif isinstance(data, list):
            parts = {index: build(value, (*path, index)) for index, value in enumerate(data)}
        return Node(data, document.values.get(path) or Mark(file, 1, 1), document.keys.get(path), parts)

    return build(document.data, ())


def source(node: Node, file: str) -> Source:
    """A tree as data and tables of places."""
    found = Source(file, node.plain())
    for path, part in _walk(node, ()):
        found.values[path] = part.value
        if part.key is not None:
            found.keys[path] = part.key
    return found


def _walk(node: Node, path: Path) -> Iterator[tuple[Path, Node]]:
    yield path, node
    for key, part in node.children.items():
        yield from _walk(part, (*path, key))


def with_parts(node: Node, parts: dict[str | int, Node]) -> Node:
    """The same mapping with other entries."""
    return replace(node, parts=parts)


def merge(below: Node, above: Node) -> Node:
    """`above` over `below` as srt-slurm merges: mappings entry by entry, a null removes, all else is replaced."""
    if not (below.is_mapping and above.is_mapping):
        return above
    parts = dict(below.children)
    for key, part in above.children.items():
        if part.data is None:
            parts.pop(key, None)
        else:
            parts[key] = merge(parts[key], part) if key in parts else part
    return with_parts(below, parts)

"""A recipe file, its `extends`, `--set` and `matrix` to plain data in which every part knows its `file:line:col`."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pdkit.errors import Finding, RecipeError
from pdkit.files import open_regular
from pdkit.recipe.yaml_marks import Document, Mark, Path, parse

ReadText = Callable[[FilePath], str]

MOST_RECIPES = 1000
"""Recipes that one `matrix` may stand for."""
MOST_FILES = 100
"""Files that one recipe may be made of, those read twice counted twice."""
LARGEST_FILE = 2**20
"""Bytes of one file."""


@dataclass(slots=True)
class Source:
    """Merged plain data of one recipe and where each part was written."""

    file: str
    data: dict[str, Any]
    keys: dict[Path, Mark] = field(default_factory=dict)
    values: dict[Path, Mark] = field(default_factory=dict)

    def at(self, path: Path, *, key: bool = False) -> str:
        """`file:line:col` of the part at `path`, or of the nearest part around it that was written down."""
        for end in range(len(path), 0, -1):
            marks = (self.keys, self.values) if key or end < len(path) else (self.values, self.keys)
            for table in marks:
                if path[:end] in table:
                    return str(table[path[:end]])
        return f"{self.file}:1:1"


def read_file(path: FilePath) -> str:
    """The text of a recipe file; RecipeError PD105 when it cannot be read."""
    try:
        with open_regular(path) as stream:
            data = stream.read(LARGEST_FILE + 1)
        text = data.decode("utf-8")
    except FileNotFoundError:
        raise RecipeError.of(Finding("PD105", "error", "no such file", f"{path}:1:1", "check the path")) from None
    except (OSError, UnicodeDecodeError) as error:
        fix = "a recipe is a file of UTF-8 text"
        raise RecipeError.of(Finding("PD105", "error", f"cannot be read: {error}", f"{path}:1:1", fix)) from None
    if len(data) > LARGEST_FILE:
        fix = "is this the right file?"
        raise RecipeError.of(Finding("PD105", "error", "larger than 1 MiB", f"{path}:1:1", fix))
    return text


def is_file(path: FilePath) -> bool:
    """Whether `path` is a file; a name that the file system cannot hold is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def load_sources(path: FilePath, sets: tuple[str, ...] = (), read: ReadText = read_file) -> list[Source]:
    """The sources of all recipes that one file stands for: one, or as many as its `matrix` expands to.

    Raises RecipeError: PD101 and PD102 for bad YAML, PD105 for a file that is not there, PD106 for a bad `extends`,
    PD107 for a bad `--set`, PD108 for a bad `matrix`.
    """
    source = _with_bases(path, (), _limited(read))
    for text in sets:
        _apply_set(source, text)
    return list(_expand(source))


def _limited(read: ReadText) -> ReadText:
    """`read` for MOST_FILES files: a chain of bases that each name two more would be read for ever."""
    numbers = itertools.count(1)

    def read_one(path: FilePath) -> str:
        if next(numbers) > MOST_FILES:
            message, fix = f"more than {MOST_FILES} files extend one another", "do bases multiply each other?"
            raise RecipeError.of(Finding("PD106", "error", message, f"{path}:1:1", fix))
        return read(path)

    return read_one


def _with_bases(path: FilePath, chain: tuple[FilePath, ...], read: ReadText) -> Source:
    document = parse(read(path), str(path))
    if not isinstance(document.data, dict):
        message = "a recipe is a mapping of keys to values"
        raise RecipeError.of(Finding("PD104", "error", message, f"{path}:1:1", "start with `schema: 1`"))
    names = document.data.pop("extends", [])
    at = str(document.values.get(("extends",), f"{path}:1:1"))
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        message = "`extends` takes a file name or a list of them"
        raise RecipeError.of(Finding("PD106", "error", message, at, "for example extends: base.yaml"))
    merged = Source(str(path), {})
    for name in names:
        base = path.parent / name
        if base.resolve() in [one.resolve() for one in (*chain, path)]:
            message = f"`extends: {name}` leads back to this file"
            raise RecipeError.of(Finding("PD106", "error", message, at, "put what both share into a third file"))
        if not is_file(base):
            message, fix = f"`extends: {name}`: no such file", f"the path is relative to {path.parent}"
            raise RecipeError.of(Finding("PD106", "error", message, at, fix))
        below = _with_bases(base, (*chain, path), read)
        _overlay(merged, Document(below.data, below.keys, below.values))
    _overlay(merged, document)
    return merged


def _overlay(source: Source, document: Document) -> None:
    """Put a document over a source: mappings merge, everything else is replaced together with its marks."""
    source.data = _merge(source.data, document.data, (), source)
    source.keys.update(document.keys)
    source.values.update(document.values)


def _merge(below: Any, above: Any, path: Path, source: Source) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        for table in (source.keys, source.values):
            for stale in [known for known in table if known[: len(path)] == path and len(known) > len(path)]:
                del table[stale]
        return above
    merged = dict(below)
    for key, value in above.items():
        merged[key] = _merge(below[key], value, (*path, key), source) if key in below else value
    return merged


def _apply_set(source: Source, text: str) -> None:
    """Apply one `--set a.b=value`; the value is read as YAML."""
    left, equals, right = text.partition("=")
    name = f"--set {text}"
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", left):
        message = f"`{text}` is not of the form a.b=value"
        raise RecipeError.of(Finding("PD107", "error", message, f"{name}:1:1", "for example --set decode.mtp=0"))
    value = parse(right, name)
    path = tuple(left.split("."))
    document = _nested(path, value.data)
    document.values[path] = Mark(name, 1, 1 + len(left) + 1)
    for depth in range(1, len(path) + 1):
        document.keys[path[:depth]] = Mark(name, 1, 1 + len(".".join(path[: depth - 1])) + (depth > 1))
    for table, marks in ((document.keys, value.keys), (document.values, value.values)):
        for part, mark in marks.items():
            table[(*path, *part)] = Mark(name, mark.line, mark.column + (len(left) + 1 if mark.line == 1 else 0))
    _overlay(source, document)


def _nested(path: Path, value: Any) -> Document:
    """A document that holds only `value`, at `path`."""
    for key in reversed(path):
        value = {key: value}
    return Document(value)


def _expand(source: Source) -> Iterator[Source]:
    """One source per combination of the `matrix` values, each with its own name."""
    matrix = source.data.pop("matrix", None)
    if matrix is None:
        yield source
        return
    _check_matrix(matrix, source)
    for indices in itertools.product(*(range(len(values)) for values in matrix.values())):
        variant = Source(source.file, source.data, dict(source.keys), dict(source.values))
        labels = [str(source.data.get("name", ""))]
        for name, index in zip(matrix, indices, strict=True):
            _overlay(variant, _choice(source, name, index, matrix[name][index]))
            labels.append(_label(matrix[name][index]))
        if labels[0]:  # else the missing name is a fault of its own
            variant.data = {**variant.data, "name": "-".join(labels)}
        yield variant


def _check_matrix(matrix: Any, source: Source) -> None:
    if not isinstance(matrix, dict) or not matrix:
        at, fix = source.at(("matrix",), key=True), "for example matrix: {decode.mtp: [0, 3]}"
        raise RecipeError.of(Finding("PD108", "error", "`matrix` maps dotted names to lists", at, fix))
    for name, values in matrix.items():
        if not isinstance(values, list) or not values:
            message = f"`matrix.{name}` needs a list of at least one value"
            at = source.at(("matrix", name))
            raise RecipeError.of(Finding("PD108", "error", message, at, f"for example {name}: [1, 2]"))
    count = math.prod(map(len, matrix.values()))
    if count > MOST_RECIPES:
        message = f"`matrix` stands for {count} recipes, more than {MOST_RECIPES}"
        at = source.at(("matrix",), key=True)
        raise RecipeError.of(Finding("PD108", "error", message, at, "split the file"))


def _choice(source: Source, name: str, index: int, value: Any) -> Document:
    """One value of the matrix as a document whose marks point at the matrix."""
    path = tuple(name.split("."))
    document = _nested(path, value)
    for depth in range(1, len(path) + 1):
        document.keys[path[:depth]] = source.keys[("matrix", name)]
    for part, mark in source.values.items():
        if part[:3] == ("matrix", name, index):
            document.values[(*path, *part[3:])] = mark
    return document


def _label(value: Any) -> str:
    """A part of a name out of a matrix value: `TP4DP2+EP` -> `tp4dp2ep`."""
    text = "-".join(map(str, value)) if isinstance(value, list) else str(value)
    if isinstance(value, dict):
        text = "-".join(_label(part) for part in value.values())
    return re.sub(r"[^a-z0-9.-]", "", text.lower()) or "x"

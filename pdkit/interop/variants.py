"""One srt-slurm file to the recipes it stands for: `base` with `override_*` and `zip_override_*`, and `sweep`.

What the peer does (srt-slurm c88ef731, core/config.py and core/sweep.py): overrides first, in the order of their names,
the base itself left out; then every combination of `sweep`, whose values replace `{name}` in all texts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from pdkit.errors import Finding, RecipeError
from pdkit.interop.tree import Node, merge, source, tree, with_parts
from pdkit.recipe.source import MOST_RECIPES, Source, read_file
from pdkit.recipe.yaml_marks import Mark, parse

OVERRIDE, ZIP = "override_", "zip_override_"
CODE = "PD120"


def variants(path: FilePath) -> list[tuple[str, Source]]:
    """(name of the variant, expanded recipe) for each recipe of a file; the name is empty for a plain file.

    Raises RecipeError: PD101, PD102 and PD105 as for any recipe, PD120 for overrides and sweeps that do not expand.
    """
    document = parse(read_file(path), str(path))
    root = tree(document, str(path))
    if not root.is_mapping:
        raise _fault("an srt-slurm recipe is a mapping of keys to values", root.value, "is this the right file?")
    expanded = [
        ("_".join(filter(None, (name, label))), source(filled, str(path)))
        for name, one in _overridden(root)
        for label, filled in _swept(one)
    ]
    if not expanded:
        raise _fault("a base without any `override_*`", root.value, "add `override_NAME:`, or write the recipe plainly")
    return expanded


def _fault(message: str, mark: Mark, fix: str) -> RecipeError:
    return RecipeError.of(Finding(CODE, "error", message, str(mark), fix))


def _overridden(root: Node) -> Iterator[tuple[str, Node]]:
    base = root.children.get("base")
    if base is None:
        yield "", root
        return
    if not base.is_mapping:
        raise _fault("`base` should be a mapping", base.value, "put the shared settings below it")
    if "schema" in root.children:
        base = with_parts(base, {"schema": root.children["schema"], **base.children})
    keys = sorted(key for key in root.children if isinstance(key, str))
    for key in (key for key in keys if key.startswith(OVERRIDE)):
        part = _mapping(root.children[key], key)
        yield key, _named(merge(base, part), base, "" if "name" in part.children else key.removeprefix(OVERRIDE))
    for key in (key for key in keys if key.startswith(ZIP)):
        part, group = _mapping(root.children[key], key), key.removeprefix(ZIP)
        given = "name" in part.children and part.children["name"].is_list
        for index in range(_zip_length(part, key)):
            sliced = merge(base, _slice(part, index))
            yield f"{key}[{index}]", _named(sliced, base, "" if given else f"{group}_{index}")


def _mapping(node: Node, key: str) -> Node:
    if not node.is_mapping:
        raise _fault(f"`{key}` should be a mapping", node.value, "write what differs from `base`")
    return node


def _named(node: Node, base: Node, suffix: str) -> Node:
    """The recipe under its own name: that of the base and the suffix, where it gives none itself."""
    if not suffix:
        return node
    old = base.children.get("name")
    text = f"{old.data if old else 'unnamed'}_{suffix}"
    name = Node(text, (old or node).value, old.key if old else None)
    return with_parts(node, {**node.children, "name": name})


def _lists(node: Node) -> Iterator[Node]:
    for part in node.children.values():
        if part.is_list:
            yield part
        elif part.is_mapping:
            yield from _lists(part)


def _zip_length(node: Node, key: str) -> int:
    lists = list(_lists(node))
    if not lists or not all(one.data for one in lists):
        message = f"`{key}` zips lists, and it has {'an empty one' if lists else 'none'}"
        raise _fault(message, node.value, "give one value per variant")
    lengths = {len(one.data) for one in lists} - {1}
    if len(lengths) > 1:
        message = f"`{key}` has lists of {' and '.join(map(str, sorted(lengths)))} values, which do not zip"
        raise _fault(message, node.value, "give every list one value per variant, or a single one for all")
    return max(lengths, default=1)


def _slice(node: Node, index: int) -> Node:
    """The entries of one variant: of each list the element of that number, or the only one."""
    parts: dict[str | int, Node] = {}
    for key, part in node.children.items():
        if part.is_list:
            parts[key] = replace(part.children[index if len(part.data) > 1 else 0], key=part.key)
        else:
            parts[key] = _slice(part, index) if part.is_mapping else part
    return with_parts(node, parts)


def _swept(root: Node) -> Iterator[tuple[str, Node]]:
    sweep = root.children.get("sweep")
    if sweep is None:
        yield "", root
        return
    if not sweep.is_mapping or not all(part.is_list and part.data for part in sweep.children.values()):
        raise _fault("`sweep` maps names to lists of values", sweep.value, "for example sweep: {tp: [4, 8]}")
    count = math.prod(len(part.data) for part in sweep.children.values())
    if count > MOST_RECIPES:
        raise _fault(f"`sweep` stands for {count} recipes, more than {MOST_RECIPES}", sweep.value, "split the file")
    rest = with_parts(root, {key: part for key, part in root.children.items() if key != "sweep"})
    names = [str(name) for name in sweep.children]
    for chosen in itertools.product(*(part.plain() for part in sweep.children.values())):
        values = dict(zip(names, chosen, strict=True))
        label = "_".join(f"{name}{value}" for name, value in values.items())
        yield label, _named(_filled(rest, values), rest, label)


def _filled(node: Node, values: dict[str, Any]) -> Node:
    """The tree with `{name}` replaced in every text; a text that is only a placeholder takes a list as it is."""
    if node.parts is not None:
        return with_parts(node, {key: _filled(part, values) for key, part in node.children.items()})
    if not isinstance(node.data, str):
        return node
    text = node.data
    for name, value in values.items():
        mark = f"{{{name}}}"
        if isinstance(value, list) and text == mark:
            parts: dict[str | int, Node] = {index: Node(one, node.value) for index, one in enumerate(value)}
            return Node(value, node.value, node.key, parts)
        text = text.replace(mark, ",".join(map(str, value)) if isinstance(value, list) else str(value))
    return replace(node, data=text)

"""Which severities a rule can give, for its page."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import TypeGuard

from pdkit.rules.rule import Rule


def severities(rule: Rule) -> list[str]:
    """The severities that a rule can give, read from the source of its function and of those that it calls."""
    calls = [node for function in _reached(rule.check, set()) for node in ast.walk(function) if _is_hit(node)]
    found: set[str] = set() if calls else {"error"}
    for hit in calls:
        given = [word.value for word in hit.keywords if word.arg == "severity"]
        words = {str(node.value) for one in given for node in ast.walk(one) if isinstance(node, ast.Constant)}
        # a severity out of a table may be either
        found |= words & {"error", "warning", "info"} or ({"error", "warning"} if given else {"error"})
    return [one for one in ("error", "warning", "info") if one in found]


def _is_hit(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "Hit"


def _reached(function: Callable[..., object], seen: set[object]) -> Iterator[ast.AST]:
    """The source of a function, and of every function of its module that it names."""
    seen.add(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    yield tree
    for node in ast.walk(tree):
        named = vars(inspect.getmodule(function)).get(node.id) if isinstance(node, ast.Name) else None
        if inspect.isfunction(named) and named not in seen and named.__module__ == function.__module__:
            yield from _reached(named, seen)

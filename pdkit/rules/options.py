"""One free flag or variable of a role, whatever spelling the recipe uses."""

from __future__ import annotations

import json
from typing import Any

from pdkit.plan.plan import RolePlan
from pdkit.recipe.owned import flag_name


def key_of(role: RolePlan, flag: str) -> str | None:
    """The key under `args` that gives this flag; the last one, as vLLM would take it."""
    return next((key for key in reversed(role.settings.args) if flag_name(key) == flag), None)


def option(role: RolePlan, flag: str) -> Any:
    """The value of a flag; for `parent.key` also out of the parent's mapping. None where nothing is said."""
    key = key_of(role, flag)
    if key is not None:
        return role.settings.args[key]
    parent, dot, name = flag.partition(".")
    whole = option(role, parent) if dot else None
    if isinstance(whole, str):
        whole = _mapping(whole)
    return whole.get(name) if isinstance(whole, dict) else None


def switch(role: RolePlan, flag: str) -> bool | None:
    """Whether a switch is on, its `no-` form taken into account; None where nothing is said."""
    key = key_of(role, flag)
    if key is None:
        return None
    negated = key.strip().lstrip("-").replace("_", "-").startswith("no-")
    return bool(role.settings.args[key]) != negated


def variable(role: RolePlan, name: str) -> str | None:
    """An environment variable of the role as text."""
    value = role.settings.env.get(name)
    return None if value is None else str(value)


def _mapping(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None  # the rules about flags say that it is no JSON

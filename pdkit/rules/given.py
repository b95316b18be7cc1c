"""What a recipe gives freely, `args:` and `env:` of a role, whatever spelling it uses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pdkit.plan.role import RolePlan
from pdkit.recipe.owned import flag_name

OFF = {"", "0", "false", "n", "no", "off", "none"}
"""Values by which a variable switches something off."""


@dataclass(frozen=True, slots=True)
class Given:
    """One free flag."""

    key: str
    """As the recipe spells it."""
    name: str
    """As vLLM spells it in full, with dashes, none of them nor `no-` in front."""
    value: Any
    """The value; of a switch, whether it is on, whichever way it is written."""


def given_args(role: RolePlan) -> Iterator[Given]:
    """The free flags of a role."""
    for key, value in role.settings.args.items():
        negated = key.strip().lstrip("-").replace("_", "-").startswith("no-")
        yield Given(key, flag_name(key), not value if negated and isinstance(value, bool) else value)


def key_of(role: RolePlan, flag: str) -> str | None:
    """The key under `args` that gives this flag; the last one, as vLLM would take it."""
    one = _last(role, flag)
    return one.key if one else None


def option(role: RolePlan, flag: str) -> Any:
    """The value of a flag; for `parent.key` also out of the parent's mapping. None where nothing is said."""
    one = _last(role, flag)
    if one is not None:
        return one.value
    parent, dot, name = flag.rpartition(".")
    whole = _mapping(option(role, parent)) if dot else {}
    return next((value for key, value in whole.items() if str(key).replace("_", "-") == name.replace("_", "-")), None)


def switch(role: RolePlan, flag: str) -> bool | None:
    """Whether a switch is on; None where nothing is said."""
    value = option(role, flag)
    return None if value is None else bool(value)


def given_env(role: RolePlan) -> dict[str, str]:
    """The free variables of a role, as the engine reads them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in role.settings.env.items()
    }


def is_off(value: str) -> bool:
    """Whether a variable's value switches something off."""
    return value.strip().lower() in OFF


def _last(role: RolePlan, flag: str) -> Given | None:
    name = flag.replace("_", "-")
    return next((one for one in reversed([*given_args(role)]) if one.name == name), None)


def _mapping(value: Any) -> dict[str, Any]:
    """A JSON flag in either form; what is no mapping the rules about flags tell."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}

"""What a recipe gives freely: `args:` and `env:` of a role, in one spelling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pdkit.plan.plan import Plan, RolePlan
from pdkit.recipe.owned import flag_name

OFF = {"", "0", "false", "n", "no", "off", "none"}
"""Values by which a variable switches something off."""


@dataclass(frozen=True, slots=True)
class Given:
    """One free flag."""

    key: str
    """As the recipe spells it."""
    name: str
    """As vLLM spells it in full, without dashes and `no-` in front."""
    value: Any
    """The value; of a switch, whether it is on, whichever way it is written."""


def given_args(role: RolePlan) -> Iterator[Given]:
    """The free flags of a role."""
    for key, value in role.settings.args.items():
        negated = key.strip().lstrip("-").replace("_", "-").startswith("no-")
        yield Given(key, flag_name(key), not value if negated and isinstance(value, bool) else value)


def given_env(role: RolePlan) -> dict[str, str]:
    """The free variables of a role, as the engine reads them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in role.settings.env.items()
    }


def is_off(value: str) -> bool:
    """Whether a variable's value switches something off."""
    return value.strip().lower() in OFF


def spans_nodes(plan: Plan, role: RolePlan) -> bool:
    """Whether an endpoint of the role has processes on several nodes."""
    return any(process.role == role.role and process.processes > 1 for process in plan.placement)

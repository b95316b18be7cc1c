"""Checking a recipe whose model pdkit has no facts for: rules that need them are not run to a verdict, and are named.

Which rules those are is not written down but seen: the model and what was computed from it are watched while a rule
looks at the plan, and what a rule finds after it has looked at them is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from pdkit.errors import Finding
from pdkit.facts.models import ModelFacts, Moe
from pdkit.plan.plan import Plan
from pdkit.plan.role import RolePlan
from pdkit.recipe.load import Loaded
from pdkit.rules.catalogue import ACCEPTABLE, RULES
from pdkit.rules.rule import Case, Rule

STAND_IN = ModelFacts(
    name="unknown",
    architecture="unknown",
    dtype="bfloat16",
    max_position_embeddings=10_000_000,
    full_attention_layers=1,
    num_kv_heads=1,
    head_dim=1,
    weights=None,
    mtp_layers=1,
    moe=Moe(experts=0, active_experts=0),
)
"""Lets sizes, placement and ports be planned; nothing that is computed from it is shown."""
DERIVED = frozenset(
    ("shape", "layout", "memory", "max_concurrency", "network", "block_size", "ssm_dtype", "conv_state_layout")
)
"""Parts of a role's plan that hang on the model."""


class _Watched:
    """Something whose attributes are noted when they are asked for: all of them, or those of the given names."""

    def __init__(self, watched: Any, seen: set[str], names: frozenset[str] | None = None) -> None:
        self._watched, self._seen, self._names = watched, seen, names

    def __getattr__(self, name: str) -> Any:
        if self._names is None or name in self._names:
            self._seen.add(name)
        return getattr(self._watched, name)


def check_without_facts(plan: Plan, loaded: Loaded) -> Iterator[Finding]:
    """What the rules find that do not need the model, and one finding that names the others."""
    seen: set[str] = set()
    plan = replace(plan, roles={role: replace(one, max_concurrency=None) for role, one in plan.roles.items()})
    watched = replace(
        plan,
        model=cast("ModelFacts", _Watched(plan.model, seen)),
        roles={role: cast("RolePlan", _Watched(one, seen, DERIVED)) for role, one in plan.roles.items()},
    )
    undecided = []
    for rule in RULES:
        seen.clear()
        found = list(rule.findings(Case(watched, loaded.source, ACCEPTABLE)))
        if seen and not _decided(rule, plan):
            undecided.append(rule.code)
        else:
            yield from found
    message = f"no facts for the model `{plan.recipe.model.facts}`, so not decided: {', '.join(sorted(undecided))}"
    fix = "import the recipe and name the model's config.json as model.facts"
    yield Finding("PD112", "info", message, loaded.source.at(("model", "facts")), fix)


def _decided(rule: Rule, plan: Plan) -> bool:
    """Rules that look at the model and still are right without it.

    PD001: two block sizes that are given and differ are wrong for any model; only the cause would name it.
    PD006: seats against concurrency; what the KV cache would hold is only told along, and there is no such figure.
    PD009: the length of the load against max-model-len; the stand-in's own length is never the shorter.
    """
    given = all(role.requested_block_size for role in plan.roles.values())
    return rule.code in ("PD006", "PD009") or (rule.code == "PD001" and given)

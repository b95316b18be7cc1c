"""The rule about environment variables: what nobody reads is ignored in silence."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import lru_cache

from pdkit.facts.flags import nixl_variables, removed_or_renamed
from pdkit.recipe.owned import OWNED_ENV
from pdkit.rules.engines import Engines, engines_of
from pdkit.rules.rule import Case, Hit, rule
from pdkit.rules.versions import version

VERY_NEAR = 0.9
"""Likeness of two names of which one must be a mistyped other."""


@rule(
    "PD070",
    "Somebody reads each variable",
    "A variable that no engine reads changes nothing and says nothing: `VLLM_ATTENTION_BACKEND` still stood in recipes "
    "long after it was gone (vllm#50292, vllm#30564), as did the all2all variable (vllm#33535, llm-d#856).",
)
def variables_are_read(case: Case) -> Iterator[Hit]:
    """`env` against the variables that vLLM, Dynamo, NIXL and UCX read; others belong to somebody else."""
    engines = engines_of(case)
    for role in case.plan.roles.values():
        for name in role.settings.env:
            sure, message, fix = (False, "", "") if name in OWNED_ENV else _unread(case, engines, name)
            if message:
                yield Hit(
                    message=f"{role.role}: {message}",
                    path=case.where(role.role, "env", name),
                    fix=fix,
                    severity="error" if sure else "warning",
                    key=True,
                )


def _unread(case: Case, engines: Engines, name: str) -> tuple[bool, str, str]:
    """(whether it is certain, message, fix) for a variable; no message when it is read, or is nobody's we know."""
    if name.startswith("VLLM_"):
        names = frozenset[str]().union(*(table.env for table in engines.vllm))
        reader, sure = engines.vllm_name, engines.certain
    elif name.startswith("DYN_"):
        names, reader, sure = engines.tables.worker.env, f"Dynamo {engines.tables.worker.version}", False
    elif name.startswith(("NIXL_", "UCX_")):
        release, names = nixl_variables()
        reader, sure = f"NIXL {release} with its UCX", False
    else:
        return False, "", ""
    if not names or name in names:
        return False, "", ""
    near = _near(name, frozenset(names))
    gone = removed_or_renamed(name)
    if gone is not None:
        has = version(case.plan.recipe.engine.vllm).has(gone.version)
        message = f"`{name}` is read no more, since {gone.version}: it has no effect"
        return (has is True, message, f"instead: {gone.instead}") if has is not False else (False, "", "")
    if any(one.endswith("_") and name.startswith(one) for one in names) and not _is(name, near):
        return False, "", ""  # a member of a family whose names are made at run time
    message = f"{reader} does not read `{name}`: it {'has' if sure else 'may have'} no effect"
    return sure, message, f"did you mean `{near[0]}`?" if near else "remove it, or accept this where a plug-in reads it"


@lru_cache(maxsize=256)
def _near(name: str, names: frozenset[str]) -> list[str]:
    """The likeliest name that is meant; hundreds are compared, so each question is asked once."""
    return difflib.get_close_matches(name, [one for one in names if not one.endswith("_")], n=1, cutoff=0.6)


def _is(name: str, near: list[str]) -> bool:
    return bool(near) and difflib.SequenceMatcher(None, name, near[0]).ratio() >= VERY_NEAR

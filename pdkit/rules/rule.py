"""What a rule is: a code, a title, why it exists, and one function over a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pdkit.errors import Finding, Severity
from pdkit.plan.plan import Plan
from pdkit.plan.role import RolePlan
from pdkit.recipe.schema import Role
from pdkit.recipe.source import Source
from pdkit.recipe.yaml_marks import Path


@dataclass(frozen=True, slots=True)
class Case:
    """What a rule looks at."""

    plan: Plan
    source: Source
    acceptable: Mapping[str, bool] = field(default_factory=dict)
    """Every code, and whether a recipe may accept its errors; warnings it always may."""
    found: frozenset[str] = frozenset()
    """Codes that the rules before this one have found."""
    errors: frozenset[str] = frozenset()
    """Those of them that were found as errors."""

    @property
    def generating(self) -> RolePlan:
        """The role that generates: decode, or agg."""
        roles = self.plan.roles
        return roles["decode"] if "decode" in roles else roles["agg"]

    @property
    def pair(self) -> tuple[RolePlan, RolePlan] | None:
        """(prefill, decode), or None for an aggregated deployment."""
        roles = self.plan.roles
        return (roles["prefill"], roles["decode"]) if "decode" in roles and "prefill" in roles else None

    def spans_nodes(self, role: RolePlan) -> bool:
        """Whether an endpoint of the role has processes on several nodes."""
        return any(one.role == role.role and one.processes > 1 for one in self.plan.placement)

    def where(self, role: Role, *names: str) -> Path:
        """Where a setting of a role was written: in the role, else under `common`, else the role itself."""
        for path in ((role, *names), ("common", *names)):
            if path in self.source.values:
                return path
        return (role, "topology")

    def where_either(self, *names: str) -> Path:
        """Where a setting on which two roles differ was written: in decode, else in prefill, else as `where` says."""
        own = ("prefill", *names)
        return (
            own
            if ("decode", *names) not in self.source.values and own in self.source.values
            else self.where("decode", *names)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One place where a rule does not hold."""

    message: str
    path: Path
    fix: str
    severity: Severity = "error"
    key: bool = False
    """Point at the key rather than at its value."""


Check = Callable[[Case], Iterator[Hit]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One check with a stable code."""

    code: str
    title: str
    why: str
    check: Check

    def findings(self, case: Case) -> Iterator[Finding]:
        """What this rule finds, with places."""
        for hit in self.check(case):
            yield Finding(self.code, hit.severity, hit.message, case.source.at(hit.path, key=hit.key), hit.fix)


def rule(code: str, title: str, why: str) -> Callable[[Check], Rule]:
    """Make a rule out of a function."""
    return lambda check: Rule(code, title, why, check)

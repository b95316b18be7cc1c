"""A value together with who decided it and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """A decided value. `recipe`: a person set it; `pdkit`: derived; `vllm`: vLLM's own default, not rendered."""

    value: T
    by: Literal["recipe", "pdkit", "vllm"]
    reason: str


def decide(given: T | None, derived: T, reason: str) -> Decision[T]:
    """The recipe's value when it gives one, else the derived one."""
    if given is None:
        return Decision(derived, "pdkit", reason)
    note = "set by the recipe" if given == derived else f"set by the recipe; the rule gives {derived} ({reason})"
    return Decision(given, "recipe", note)

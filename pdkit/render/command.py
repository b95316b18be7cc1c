"""What a process is told: its flags and variables with their reasons, and where it runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pdkit.facts.flags import Flag as KnownFlag
from pdkit.render.text import Value

PYTHON = "python3"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag with its value (None for a bare one, several for a list) and why it is there."""

    name: str
    value: Value | tuple[Value, ...] | None
    why: str

    def words(self) -> list[Value]:
        """The flag as it stands on the command line."""
        if self.value is None:
            return [self.name]
        return [self.name, *(self.value if isinstance(self.value, tuple) else (self.value,))]


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable and why it is set."""

    name: str
    value: Value
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One process: where it runs, what it is, and everything it is told."""

    name: str
    node: int
    kind: str
    """`etcd`, `nats`, `frontend` or `worker`."""
    program: tuple[str, ...]
    flags: tuple[Flag, ...]
    env: tuple[Variable, ...]
    headline: str
    """What this process is, in one sentence."""

    def argv(self) -> list[Value]:
        """The command line in order."""
        return [*self.program, *(word for flag in self.flags for word in flag.words())]


def free_flag(name: str, value: Any, known: KnownFlag | None, why: str = "args of the recipe") -> Flag:
    """A flag of the recipe in the engine's own spelling."""
    head, dot, path = name.strip().lstrip("-").partition(".")
    written = head.replace("_", "-")
    positive = known.name if known else written.removeprefix("no-")
    if dot:
        return Flag(f"--{positive}.{path}", plain(value), why)  # a dotted boolean needs its value written out
    if isinstance(value, bool):
        negated = written == f"no-{positive}"
        return Flag(f"--{positive}" if value != negated else f"--no-{positive}", None, why)
    if isinstance(value, list) and known and known.type == "list":
        return Flag(f"--{positive}", tuple(map(plain, value)), why)
    return Flag(f"--{positive if known else written}", plain(value), why)


def plain(value: Any) -> str:
    """A value of the recipe as engines read it: JSON for lists and mappings, lower-case booleans."""
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)

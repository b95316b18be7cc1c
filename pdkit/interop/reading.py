"""Typed reading of an expanded srt-slurm recipe: every fault with its place, and what nobody has read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pdkit.errors import Finding, Severity
from pdkit.recipe.source import Source
from pdkit.recipe.yaml_marks import Path

CODE = "PD121"
_INT = re.compile(r"[-+]?[0-9]+")
_SHARE = re.compile(r"[0-9]{1,9}(\.[0-9]{0,20})?|\.[0-9]{1,20}")
MOST = 10_000_000
"""Largest count that is read; no setting of a recipe is larger."""


@dataclass(slots=True)
class Reading:
    """An expanded recipe, what was read of it, and the faults that reading found."""

    source: Source
    findings: list[Finding] = field(default_factory=list)
    used: set[Path] = field(default_factory=set)

    def has(self, *path: str) -> bool:
        """Whether something other than null stands there."""
        return self._get(path) is not None

    def raw(self, *path: str) -> Any:
        """The value as it is, None when there is none; it and all below it count as read."""
        self.used.add(path)
        return self._get(path)

    def _get(self, path: tuple[str, ...]) -> Any:
        here: Any = self.source.data
        for part in path:
            here = here.get(part) if isinstance(here, dict) else None
        return here

    def fault(
        self, path: Path, message: str, fix: str, *, code: str = CODE, key: bool = False, severity: Severity = "error"
    ) -> None:
        """Record a fault of a part of the original."""
        self.findings.append(Finding(code, severity, message, self.source.at(path, key=key), fix))

    def count(self, *path: str, default: int, least: int = 0) -> int:
        """A whole number of at least `least`; digits in quotes count, as the peer's own schema takes them."""
        value = self.raw(*path)
        number = as_int(value)
        if value is None:
            return default
        if number is None:
            self.fault(path, f"`{dotted(path)}` should be a whole number", "for example 1")
            return default
        if not least <= number <= MOST:
            self.fault(path, f"`{dotted(path)}` is {number}, less than {least}" if number < least
                       else f"`{dotted(path)}` is {number}, more than {MOST}", "check the value")  # fmt: skip
            return max(default, least)
        return number

    def number(self, *path: str, default: float) -> float:
        """Any number from 0."""
        value = self.raw(*path)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            self.fault(path, f"`{dotted(path)}` should be a number from 0", "check the value")
            return default
        return float(value)

    def text(self, *path: str, default: str | None = None) -> str | None:
        """A text; numbers are taken as they are spelled."""
        value = self.raw(*path)
        if value is None:
            return default
        if isinstance(value, (dict, list, bool)):
            self.fault(path, f"`{dotted(path)}` should be text", "put it in quotes")
            return default
        return str(value)

    def switch(self, *path: str, default: bool) -> bool:
        """true or false."""
        value = self.raw(*path)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fault(path, f"`{dotted(path)}` should be true or false", "without quotes")
            return default
        return value

    def mapping(self, *path: str) -> dict[str, Any]:
        """A mapping; empty when there is none. It counts as read only by its entries."""
        value = self._get(path)
        if value is None:
            self.used.add(path)
            return {}
        if not isinstance(value, dict):
            self.used.add(path)
            self.fault(path, f"`{dotted(path)}` should be a mapping", "write `name: value` lines below it")
            return {}
        return value

    def unread(self) -> Iterator[Path]:
        """The largest parts that nothing has read, in the order of the file."""
        yield from self._unread(self.source.data, ())

    def _unread(self, data: Any, path: Path) -> Iterator[Path]:
        if path in self.used:
            return
        below = any(one[: len(path)] == path for one in self.used)
        if isinstance(data, dict) and data and below:
            for key, value in data.items():
                yield from self._unread(value, (*path, key))
        elif data not in ({}, [], None):
            yield path


def dotted(path: Path) -> str:
    """A path as a person writes it."""
    return ".".join(map(str, path))


def as_int(value: Any) -> int | None:
    """A whole number, also in quotes; None for all else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and len(value) <= 20 and _INT.fullmatch(value.strip()):
        return int(value)
    return None


def as_share(value: Any) -> Any:
    """A number as vLLM's parser reads it, also in quotes; all else as it is."""
    if isinstance(value, (int, str)) and not isinstance(value, bool) and _SHARE.fullmatch(str(value).strip()):
        return float(value)
    return value

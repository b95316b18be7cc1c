"""A pdkit recipe in the making: its data, where each part stands in the original, and what is noted on the way."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from pdkit.errors import Finding
from pdkit.interop.reading import dotted
from pdkit.interop.types import Note
from pdkit.recipe.source import Source
from pdkit.recipe.yaml_marks import Path


@dataclass(slots=True)
class Draft:
    """What `convert` fills in."""

    origin: Source
    data: dict[str, Any] = field(default_factory=dict)
    source: Source = field(init=False)
    notes: list[Note] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = Source(self.origin.file, self.data)

    def put(self, path: tuple[str, ...], value: Any, where: Path) -> None:
        """Set a value, with the place of the original's part that it comes from, or of the nearest around it."""
        here = self.data
        for part in path[:-1]:
            here = here.setdefault(part, {})
        here[path[-1]] = value
        nearest = next((where[:end] for end in range(len(where), 0, -1) if where[:end] in self.origin.values), ())
        if nearest not in self.origin.values:
            return
        self.source.values[path] = self.origin.values[nearest]
        if nearest == where and where in self.origin.keys:
            self.source.keys[path] = self.origin.keys[where]
        if isinstance(value, (dict, list)) and nearest == where:
            self._copy_inside(path, where, value)

    def _copy_inside(self, path: Path, where: Path, value: Any) -> None:
        """The places inside a structured value; of parts that the original writes as one text, that text's."""
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            inner, original = (*path, key), (*where, key)
            self.source.values[inner] = self.origin.values.get(original, self.source.values[path])
            if original in self.origin.keys:
                self.source.keys[inner] = self.origin.keys[original]
            if isinstance(part, (dict, list)):
                self._copy_inside(inner, original, part)

    def note(
        self, kind: Literal["dropped", "changed", "added"], where: Path, why: str, what: str = "", value: Any = None
    ) -> None:
        """Say what is not, or not quite, carried over; `value` where the original does not say it in one place."""
        said = self._original(where) if value is None else value
        text = said if isinstance(said, str) else "" if said is None else json.dumps(said, sort_keys=True, default=str)
        at = self.origin.at(where, key=True)
        self.notes.append(Note(kind=kind, what=what or dotted(where), why=why, at=at, value=text))

    def _original(self, where: Path) -> Any:
        here: Any = self.origin.data
        for part in where:
            here = here.get(part) if isinstance(here, dict) else None
        return here

    def fault(self, code: str, where: Path, message: str, fix: str) -> None:
        """An error of the original."""
        self.findings.append(Finding(code, "error", message, self.origin.at(where), fix))

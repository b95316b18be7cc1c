"""Whether a version of an engine has what a release brought: yes, no, or not known for a build between releases."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pdkit.facts.flags import Engine, known_versions

_VERSION = re.compile(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(.*)", re.DOTALL)
_BUILD = re.compile(r"\.?(?:rc|a|b|dev)\d*|\+g[0-9a-f]{7}")
"""What makes a version a build of a branch and not a release: `rc1`, `.dev1177`, a commit."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version as a recipe names it, with the releases between which it stands."""

    text: str
    lowest: tuple[int, int]
    """It has all that this `major.minor` has."""
    highest: tuple[int, int]
    """It may have what this one brought, and nothing later; equal to `lowest` for a release."""

    def has(self, since: str) -> bool | None:
        """Whether it has what came with release `since`; None when only a look into the build could tell."""
        wanted = _minor(since)
        if self.lowest >= wanted:
            return True
        return None if self.highest >= wanted else False

    def newer_than_known(self, engine: Engine = "vllm") -> bool:
        """Whether it may differ from every release that pdkit has facts for, by being later than all of them."""
        return self.highest > _minor(known_versions(engine)[-1])


def version(text: str) -> Version:
    """Read a version such as `0.31.0`, `0.26.1rc1.dev1177+ga9a17e709` or `1.2.0.dev20260526`.

    A build whose patch number is above 0 comes after that minor release and before the next one, a build of `x.y.0`
    comes before the release `x.y`.
    """
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"`{text}` is not a version")
    minor = int(match[1]), int(match[2])
    if not _BUILD.match(match[4]):
        return Version(text, minor, minor)
    if int(match[3] or 0):
        return Version(text, minor, (minor[0], minor[1] + 1))
    return Version(text, (minor[0], minor[1] - 1), minor)


def _minor(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)

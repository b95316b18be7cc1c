"""Cases of the rules about the accuracy gate."""

from __future__ import annotations

from .sides import Sides

CASES: list[Sides] = []

"""One answer of the doctor: fine, a problem, or something that cannot be told here, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pdkit.job.preflight import Look

Status = Literal["ok", "problem", "cannot be told"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor."""

    about: str
    """`gpus`, `fabric`, `engines` and so on."""
    status: Status
    what: str
    fix: str = ""

    def __str__(self) -> str:
        fix = f"\n    fix: {self.fix}" if self.fix and self.status != "ok" else ""
        return f"{self.status}: {self.about}: {self.what}{fix}"


def of_look(about: str, look: Look) -> Check:
    """A check of the preflight, in the doctor's words."""
    words: dict[str, Status] = {"ok": "ok", "fault": "problem", "note": "cannot be told"}
    return Check(about, words[look.level], look.what, look.fix)

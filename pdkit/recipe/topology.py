"""The topology grammar: `TP4DP2+EP`, `TP2DEP4`, `TEP8`, `DEP8`, `TP1PP6+EP`, `TP2PP2`, `TP8`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PART = re.compile(r"(TEP|DEP|TP|DP|PP|EP)([0-9]+)")
MOST = 4096
"""Largest size of one axis; far beyond any machine, so that a typo is caught here."""
_EXAMPLES = "TP4DP2+EP, TP2DEP4, TEP8, DEP8, TP1PP6+EP, TP2PP2, TP8"


@dataclass(frozen=True, slots=True, order=True)
class Topology:
    """How one endpoint splits the model: TP x DP x PP GPUs, experts over TP x DP ranks when `ep`."""

    tp: int = 1
    dp: int = 1
    pp: int = 1
    ep: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of one endpoint."""
        return self.tp * self.dp * self.pp

    @property
    def gpus_per_rank(self) -> int:
        """GPUs of one DP rank, which share one scheduler: TP x PP."""
        return self.tp * self.pp

    @property
    def ep_size(self) -> int:
        """Over how many GPUs the experts of one layer are spread; 1 means that TP slices each expert instead."""
        return self.tp * self.dp if self.ep else 1

    def __str__(self) -> str:
        if self.ep and self.dp == 1 and self.pp == 1:
            return f"TEP{self.tp}"
        if self.ep and self.tp == 1 and self.pp == 1:
            return f"DEP{self.dp}"
        text = f"TP{self.tp}"
        text += f"DP{self.dp}" if self.dp > 1 else ""
        text += f"PP{self.pp}" if self.pp > 1 else ""
        return text + ("+EP" if self.ep else "")


def parse_topology(text: str) -> Topology:
    """Read a topology in any accepted spelling.

    Raises ValueError with the reason and examples when the text is not one.
    """
    body, plus, tail = text.strip().upper().partition("+")
    if plus and tail != "EP":
        raise ValueError(f"topology `{text}`: only `+EP` may follow the sizes (examples: {_EXAMPLES})")
    sizes: dict[str, int] = {}
    ep = bool(plus)
    position = 0
    for match in _PART.finditer(body):
        if match.start() != position:
            break
        position = match.end()
        kind, size = match.group(1), int(match.group(2))
        if kind == "EP":
            raise ValueError(f"topology `{text}`: the EP size follows from TP x DP; write `+EP`, TEP8 or DEP8")
        ep = ep or kind in ("TEP", "DEP")
        axis = {"TEP": "TP", "DEP": "DP"}.get(kind, kind)
        if axis in sizes:
            raise ValueError(f"topology `{text}`: {axis} is given twice")
        if not 1 <= size <= MOST:
            raise ValueError(f"topology `{text}`: {axis} must be between 1 and {MOST}")
        sizes[axis] = size
    if not body or position != len(body):
        raise ValueError(f"topology `{text}` is not understood (examples: {_EXAMPLES})")
    return Topology(tp=sizes.get("TP", 1), dp=sizes.get("DP", 1), pp=sizes.get("PP", 1), ep=ep)

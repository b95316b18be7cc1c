"""One case of a rule: what it refuses and what it lets pass; `cases_*.py` hold lists of them, one file per family."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pdkit.commands import planned
from pdkit.errors import Finding
from pdkit.paths import shipped

RECIPES = shipped("recipes")
MIXED = "qwen38_tep8.yaml"
AGG = "qwen38/agg/decode-tep8.yaml"
DENSE = (
    "model={facts: qwen3-32b, path: /models/Qwen3-32B}", "hardware={facts: generic, nodes: 2}", "decode.mtp=0",
    "common.mamba_ssm_cache_dtype=", "workload.isl=1024", "workload.osl=1024", "gate.max_tokens=1024",
    "decode.topology=TP8", "prefill.topology=TP4", "common.block_size=64",
)  # fmt: skip


@dataclass(frozen=True)
class Sides:
    """What a rule refuses, and a neighbour that it lets pass; both as `--set` of a shipped recipe."""

    code: str
    refused: tuple[str, ...]
    allowed: tuple[str, ...]
    words: str
    """What the message says, besides the rest."""
    severity: str = "error"
    recipe: str = MIXED
    also: tuple[str, ...] = ()
    """Other codes that the refused input cannot avoid."""


def findings_of(recipe: str | Path, *sets: str) -> list[Finding]:
    [(_, _, findings)] = planned(RECIPES / recipe, sets)
    return findings

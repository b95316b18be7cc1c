"""Facts of hardware: `facts/hardware/*.yaml`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pdkit.errors import RecipeError
from pdkit.paths import facts_folder
from pdkit.recipe.yaml_marks import parse


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareFacts:
    """What the plan needs to know of a cluster."""

    name: str
    device: Literal["cuda", "cpu"]
    nodes: int
    """Nodes that a deployment may use: one NVLink domain on NVL72."""
    gpus_per_node: int
    gpu_memory_gib: float
    """Memory of one GPU as vLLM sees it (torch's total_memory)."""
    nvlink_domain_nodes: int
    default_block_size: int
    """Block size that vLLM starts from on this platform."""
    default_max_capture: int
    """Cap of vLLM's own largest capture size; 0 where there are no CUDA graphs."""
    cuda_context_gib: float = 0.5
    """What the CUDA context takes of a GPU beside vLLM's share."""
    unified_memory: bool = False
    """Whether CPU and GPU share one memory, so that an engine can take what the system needs."""
    architecture: Literal["aarch64", "x86_64"] | None = None
    """CPU of the nodes, for which the image must be built; None where it may be any."""


def known_hardware() -> list[str]:
    """Names of the hardware that pdkit ships facts for."""
    return sorted(path.stem for path in facts_folder("hardware").glob("*.yaml"))


def hardware_facts(name: str, at: str) -> HardwareFacts:
    """The facts of one kind of hardware; RecipeError PD114 for an unknown name, with the place `at` of the recipe."""
    if name not in known_hardware():
        close = difflib.get_close_matches(name, known_hardware(), n=1)
        fix = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(known_hardware())}"
        raise RecipeError(f"no facts for the hardware `{name}`", at=at, fix=fix, code="PD114")
    return _shipped_hardware(name)


@cache
def _shipped_hardware(name: str) -> HardwareFacts:
    path = facts_folder("hardware") / f"{name}.yaml"
    return HardwareFacts(**parse(path.read_text(encoding="utf-8"), str(path)).data)

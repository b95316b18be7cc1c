"""Whether the workers of an srt-slurm recipe fit the nodes that it asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pdkit.interop.reading import Reading
from pdkit.interop.types import SrtRole

NODES = "PD124"


def check_nodes(reading: Reading, found: list[tuple[SrtRole, tuple[str, ...]]], gpus_per_node: int) -> None:
    """Workers against the nodes that are asked for; the peer finds out inside the allocation."""
    have = sum(role.nodes for role, _ in found)
    engine = "backend" if reading.has("backend") else "engine"
    together, across = (
        reading.switch(engine, f"allow_prefill_decode_colocation{more}", default=False)
        for more in ("", "_across_nodes")
    )
    fits_one = sum(one.workers * one.gpus for one, _ in found) <= gpus_per_node
    spread = reading.switch("resources", "spread_workers", default=False)
    apart = not together or not (across or fits_one)
    places = list(_placed([role for role, _ in found], gpus_per_node, have, apart=apart, spread=spread))
    before = 0
    for (role, where), place in zip(found, places, strict=True):
        many, need = f"{role.role}: {role.workers} workers of {role.gpus} GPUs", place.end - before
        if places[-1].end > have and need > role.nodes:
            message = f"{many} need {need} nodes of {gpus_per_node} GPUs, {role.nodes} are asked for"
            reading.fault(where, message, "ask for more nodes, or start fewer workers", code=NODES)
        elif place.overlap:
            message = f"{many} would take GPUs that prefill has on its last node"
            reading.fault(where, message, "let prefill fill its nodes, or ask for one node more", code=NODES)
        before = place.end


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the workers of a role end up."""

    end: int
    """Nodes in use after them."""
    overlap: bool
    """Whether a worker of whole nodes starts on one that is partly taken."""


def _placed(roles: list[SrtRole], gpus_per_node: int, nodes: int, *, apart: bool, spread: bool) -> Iterator[_Place]:
    """The peer's way of placing workers: one after the other (srt-slurm c88ef731, core/topology.py)."""
    node = taken = end = 0
    for role in roles:
        if role.role == "decode" and apart and taken and node + 1 < nodes:
            node, taken = node + 1, 0
        overlap = bool(taken) and role.gpus >= gpus_per_node
        for _ in range(role.workers):
            if role.gpus >= gpus_per_node:
                node += -(-role.gpus // gpus_per_node)
                end = max(end, node)
                continue
            if taken + role.gpus > gpus_per_node:
                node, taken = node + 1, 0
            end = max(end, node + 1)
            taken += role.gpus
            if taken >= gpus_per_node or spread:
                node, taken = node + 1, 0
        yield _Place(end, overlap)

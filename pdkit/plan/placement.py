"""Which process of which endpoint runs on which node and GPUs.

A rank (TP x PP GPUs) never straddles nodes when it fits on one. Small endpoints share a node; an endpoint that needs
more than one node spreads evenly. Processes are vLLM processes: one per node of an endpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdkit.recipe.schema import Role
from pdkit.recipe.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One vLLM process: the part of an endpoint on one node."""

    role: Role
    endpoint: int
    node: int
    """Node of the job, from 0."""
    gpus: tuple[int, ...]
    """GPUs of that node."""
    ranks: tuple[int, ...]
    """DP ranks (of the endpoint) that live, at least in part, in this process."""
    index: int
    """Position within the endpoint: vLLM's node rank."""
    processes: int
    """Processes of the endpoint."""
    leader_node: int
    """Node of the endpoint's first process."""
    headless: bool
    """Holds only part of a rank whose API lives on an earlier node: no Dynamo endpoint of its own."""

    @property
    def name(self) -> str:
        """Unique name, for steps and logs: `decode0` or, on several nodes, `decode0-1`."""
        return f"{self.role}{self.endpoint}" + (f"-{self.index}" if self.processes > 1 else "")


class DoesNotSpreadError(ValueError):
    """The endpoints cannot be spread over nodes; the message says why."""


MOST_GPUS = 1024
"""GPUs of one deployment that are placed; far beyond any NVLink domain, so that a typo ends here."""


def shape_on_nodes(topology: Topology, gpus_per_node: int) -> tuple[int, int]:
    """(nodes, GPUs per node) of one endpoint, the fewest nodes over which it spreads evenly."""
    rank = topology.gpus_per_rank
    if rank <= gpus_per_node:
        most = gpus_per_node // rank
        local = next(count for count in range(min(most, topology.dp), 0, -1) if topology.dp % count == 0)
        return topology.dp // local, local * rank
    nodes = -(-rank // gpus_per_node)
    while nodes <= rank and rank % nodes:
        nodes += 1
    return nodes * topology.dp, rank // nodes


def place(endpoints: list[tuple[Role, Topology, int]], gpus_per_node: int) -> list[Process]:
    """Processes of all endpoints, given as (role, topology, count) in order, on as few nodes as first fit finds.

    Nodes are not limited here; the rule about the rack looks at the result. Raises DoesNotSpreadError for more than
    MOST_GPUS.
    """
    wanted = sum(topology.gpus * count for _, topology, count in endpoints)
    if wanted > MOST_GPUS:
        raise DoesNotSpreadError(f"{wanted} GPUs are more than the {MOST_GPUS} that pdkit places")
    free: list[int] = []
    processes: list[Process] = []
    for role, topology, count in endpoints:
        nodes, gpus = shape_on_nodes(topology, gpus_per_node)
        for endpoint in range(count):
            chosen = _choose(free, nodes, gpus, gpus_per_node)
            for index, node in enumerate(chosen):
                first = gpus_per_node - free[node]
                free[node] -= gpus
                processes.append(
                    Process(
                        role=role,
                        endpoint=endpoint,
                        node=node,
                        gpus=tuple(range(first, first + gpus)),
                        ranks=_ranks(topology, index, nodes),
                        index=index,
                        processes=nodes,
                        leader_node=chosen[0],
                        headless=_headless(topology, index, nodes),
                    )
                )
    return processes


def _choose(free: list[int], nodes: int, gpus: int, gpus_per_node: int) -> list[int]:
    """`nodes` neighbouring nodes with `gpus` free each; opens new nodes at the end. Changes `free`."""
    if nodes == 1:
        for node, left in enumerate(free):
            if left >= gpus:
                return [node]
    start = len(free)
    free.extend([gpus_per_node] * nodes)
    return list(range(start, start + nodes))


def _ranks(topology: Topology, index: int, nodes: int) -> tuple[int, ...]:
    if nodes <= topology.dp:
        local = topology.dp // nodes
        return tuple(range(index * local, (index + 1) * local))
    return (index // (nodes // topology.dp),)


def _headless(topology: Topology, index: int, nodes: int) -> bool:
    """Ranks that fit on a node are served by their own process (hybrid load balancing); a cut rank by its first one.

    With several cut ranks vLLM runs one API on the very first node (srt-slurm launches it so, too).
    """
    return nodes > topology.dp and index > 0

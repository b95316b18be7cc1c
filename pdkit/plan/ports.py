"""Every port that a process listens on, unique on its node, and the same for the same recipe.

NIXL's side channel listens on base + dp_rank x tp + tp_rank (vllm 0.32) or base + dp_rank (older); the wider range is
kept free on every node of the endpoint. Ranges are spaced so that a person sees from a number whose port it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pdkit.plan.placement import Process
from pdkit.recipe.schema import InfraSpec, Role
from pdkit.recipe.topology import Topology

ETCD, ETCD_PEER, NATS = 2379, 2380, 4222
SYSTEM_BASE = 9100
"""DYN_SYSTEM_PORT: health and metrics of a worker."""
SIDE_CHANNEL_BASE, KV_EVENT_BASE = 20000, 22000
RPC_BASE, MASTER_BASE = 24000, 24500


@dataclass(frozen=True, slots=True)
class Port:
    """One listening port."""

    node: int
    port: int
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPorts:
    """Ports that one vLLM process is told."""

    system: int
    side_channel: int
    kv_event: int
    dp_rpc: int | None
    """Where the endpoint's DP coordinator listens, on its first node; None without DP over processes."""
    master: int | None
    """Where torch's rendezvous listens, on the endpoint's first node; None when no rank is cut."""


def assign_ports(processes: list[Process], topologies: dict[Role, Topology], shift: int = 0) -> dict[str, ProcessPorts]:
    """Ports of each process by its name. Endpoints are numbered over all roles, so no two endpoints share a range."""
    ports: dict[str, ProcessPorts] = {}
    endpoints = list(dict.fromkeys((process.role, process.endpoint) for process in processes))
    starts, start = {}, 0
    for role, endpoint in endpoints:
        starts[role, endpoint] = start
        start += topologies[role].gpus
    for process in processes:
        key = (process.role, process.endpoint)
        number, topology = endpoints.index(key), topologies[process.role]
        cut = process.processes > topology.dp
        ports[process.name] = ProcessPorts(
            system=SYSTEM_BASE + number + shift,
            side_channel=SIDE_CHANNEL_BASE + starts[key] + shift,
            kv_event=KV_EVENT_BASE + starts[key] + shift,
            dp_rpc=RPC_BASE + number + shift if topology.dp > 1 else None,
            master=MASTER_BASE + number + shift if cut else None,
        )
    return ports


def listening(
    processes: list[Process], topologies: dict[Role, Topology], ports: dict[str, ProcessPorts], infra: InfraSpec
) -> list[Port]:
    """All ports of the deployment, by node and number."""
    found = [*_infra_ports(processes, infra)]
    for process in processes:
        mine, topology = ports[process.name], topologies[process.role]
        first, last = mine.side_channel, mine.side_channel + topology.gpus_per_rank * topology.dp
        found += [Port(process.node, port, f"{process.name} nixl") for port in range(first, last)]
        if not process.headless:
            found.append(Port(process.node, mine.system, f"{process.name} system"))
            found += [Port(process.node, mine.kv_event + rank, f"{process.name} kv-events") for rank in process.ranks]
        if process.index == 0:
            for port, owner in ((mine.dp_rpc, "dp-rpc"), (mine.master, "master")):
                found += [Port(process.node, port, f"{process.name} {owner}")] if port else []
    return sorted(found, key=lambda one: (one.node, one.port, one.owner))


def collisions(ports: list[Port]) -> Iterator[tuple[Port, Port]]:
    """Pairs of owners that want one port of one node."""
    seen: dict[tuple[int, int], Port] = {}
    for port in ports:
        other = seen.setdefault((port.node, port.port), port)
        if other is not port:
            yield other, port


def _infra_ports(processes: list[Process], infra: InfraSpec) -> Iterator[Port]:
    nodes = sorted({process.node for process in processes})
    for number, node in zip(range(infra.frontends), nodes, strict=False):
        yield Port(node, infra.http_port + infra.port_shift, f"frontend{number}")
    etcd = ((ETCD, "etcd"), (ETCD_PEER, "etcd peer")) if infra.discovery == "etcd" else ()
    nats = ((NATS, "nats"),) if infra.events == "nats" else ()
    for port, owner in (*etcd, *nats):
        yield Port(0, port + infra.port_shift, owner)

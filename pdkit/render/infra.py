"""How Dynamo's parts find each other, and the servers that are started for it."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.plan.plan import Plan
from pdkit.plan.ports import ETCD, ETCD_PEER, NATS
from pdkit.render.command import Command, Flag, Variable
from pdkit.render.text import Address, RunFolder, join


def discovery(plan: Plan) -> tuple[Variable, ...]:
    """How Dynamo's parts find each other."""
    infra = plan.recipe.infra
    return (
        *(_files() if infra.discovery == "file" else (_server("ETCD_ENDPOINTS", "http", ETCD, infra.port_shift),)),
        Variable("DYN_REQUEST_PLANE", "tcp", "requests go straight to the worker"),
        _server("NATS_SERVER", "nats", NATS, infra.port_shift)
        if infra.events == "nats"
        else Variable("DYN_EVENT_PLANE", "zmq", "events go straight to who listens, no NATS needed"),
    )


def _files() -> tuple[Variable, ...]:
    return (
        Variable("DYN_DISCOVERY_BACKEND", "file", "workers register in a folder, no server needed"),
        Variable("DYN_FILE_KV", join(RunFolder(), "/discovery"), "the folder, on a file system all nodes share"),
    )


def _server(name: str, scheme: str, port: int, shift: int) -> Variable:
    return Variable(
        name, join(f"{scheme}://", Address(0), f":{port + shift}"), "a server of this deployment, on node 0"
    )


def own_address(node: int) -> tuple[Variable, ...]:
    """What a part of Dynamo calls itself on a node with several addresses."""
    return (
        Variable("DYN_TCP_RPC_HOST", Address(node), "advertise this node's address on hosts with several"),
        Variable("DYN_TCP_RESPONSE_STREAM_HOST", Address(node), "the same for answers"),
        Variable("DYN_EVENT_PLANE_HOST", Address(node), "the same for events"),
    )


def servers(plan: Plan) -> Iterator[Command]:
    """The servers that the recipe asks for, all on node 0."""
    if plan.recipe.infra.discovery == "etcd":
        yield _etcd(plan.recipe.infra.port_shift)
    if plan.recipe.infra.events == "nats":
        yield _nats(plan.recipe.infra.port_shift)


CLUSTER_ONLY = "only this cluster's addresses"


def _etcd(shift: int) -> Command:
    client, peer = (join("http://", Address(0), f":{port + shift}") for port in (ETCD, ETCD_PEER))
    return Command(
        name="etcd",
        node=0,
        kind="etcd",
        program=("etcd",),
        flags=(
            Flag("--data-dir", join(RunFolder(), "/etcd"), "thrown away with the run"),
            Flag("--listen-client-urls", client, CLUSTER_ONLY),
            Flag("--advertise-client-urls", client, CLUSTER_ONLY),
            Flag("--listen-peer-urls", peer, CLUSTER_ONLY),
            Flag("--initial-advertise-peer-urls", peer, CLUSTER_ONLY),
            Flag("--initial-cluster", join("default=http://", Address(0), f":{ETCD_PEER + shift}"), "a cluster of one"),
        ),
        env=(),
        headline="etcd: where Dynamo's workers register.",
    )


def _nats(shift: int) -> Command:
    return Command(
        name="nats",
        node=0,
        kind="nats",
        program=("nats-server",),
        flags=(
            Flag("--jetstream", None, "Dynamo keeps its event streams there"),
            Flag("--store_dir", join(RunFolder(), "/nats"), "thrown away with the run"),
            Flag("--addr", Address(0), CLUSTER_ONLY),
            Flag("--port", str(NATS + shift), "NATS's own port, shifted as all are"),
        ),
        env=(),
        headline="NATS: Dynamo's event plane.",
    )

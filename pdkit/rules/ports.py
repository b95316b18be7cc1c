"""Rules about ports: which process of a node listens where."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.plan.ports import collisions
from pdkit.rules.rule import Case, Hit, rule

LAST_PORT = 65535
"""TCP has no port beyond it."""


@rule(
    "PD017",
    "No two processes of a node want one port",
    "A taken side-channel port makes the second engine wait for ever (ray#60057); a taken HTTP port hides the API.",
)
def ports_are_free(case: Case) -> Iterator[Hit]:
    """Compare all ports of all nodes with each other and with the last one that TCP has."""
    for one, other in collisions(list(case.plan.ports)):
        yield Hit(
            message=f"node {one.node}: port {one.port} is wanted by {one.owner} and {other.owner}",
            path=("infra", "http_port"),
            fix="choose another infra.http_port",
        )
    for port in case.plan.ports:
        if port.port > LAST_PORT:
            yield Hit(
                message=f"node {port.node}: {port.owner} would listen on port {port.port}, the last is {LAST_PORT}",
                path=("infra", "port_shift"),
                fix="lower infra.port_shift or infra.http_port",
            )

"""Free ports for a local run, reserved so that two runs that start at once never choose the same ones."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from pdkit.errors import UsageError
from pdkit.plan.plan import Plan

LOCALHOST = "127.0.0.1"
PORT_STEP = 40
"""How far ports move when the planned ones are taken: more than an ordinary deployment has in a row."""
TRIES = 100
MOST_SHIFT = 9000
"""The largest that a recipe may say."""
HIGHEST_PORT = 65535

_reserved: dict[int, int] = {}
"""Port -> file descriptor of its mark, open until this process ends, which is when its ports are free again."""


def choose_shift(plan: Plan) -> int:
    """The `infra.port_shift` with which every port is free on this machine, from the recipe's own upwards.

    The ports are reserved for this process. Raises UsageError when none of a hundred tries succeeds.
    """
    own = plan.recipe.infra.port_shift
    for shift in range(own, min(own + TRIES * PORT_STEP, MOST_SHIFT + 1), PORT_STEP):
        if _taken(port.port - own + shift for port in plan.ports) is None:
            return shift
    raise UsageError("no free ports for this deployment on this machine", fix="stop what listens on them (ss -ltnp)")


def reserve(plan: Plan) -> None:
    """Reserve the ports of a plan as they are; raises UsageError that names the first one that is taken."""
    taken = _taken(port.port for port in plan.ports)
    if taken is not None:
        owner = next(port.owner for port in plan.ports if port.port == taken)
        raise UsageError(
            f"port {taken} ({owner}) is taken, and this run's ports are written in its recipe.yaml",
            fix="stop what listens there (ss -ltnp), or start a new run without --resume",
        )


def _taken(ports: Iterable[int]) -> int | None:
    """Reserve all ports, or none and say which one cannot be had."""
    new: dict[int, socket.socket] = {}
    for port in ports:
        if port in _reserved or port in new:
            continue
        mark = _mark(port) if port <= HIGHEST_PORT and _is_free(port) else None
        if mark is None:
            for other in new.values():
                other.close()
            return port
        new[port] = mark
    _reserved.update({port: mark.detach() for port, mark in new.items()})
    return None


def _mark(port: int) -> socket.socket | None:
    """What tells other pdkits, minutes before an engine listens, that a port is spoken for; None when one did so.

    The name of an abstract Unix socket belongs to the network namespace, as the port itself does, and goes with its
    process however that ends.
    """
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0pdkit-port-{port}")
    except OSError:
        mark.close()
        return None
    return mark


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCALHOST, port))
        except OSError:
            return False
    return True

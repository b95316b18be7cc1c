"""Rules about ports: which process of a node listens where."""

from __future__ import annotations

from collections import Counter
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


FIRST_EPHEMERAL = 32768
"""Linux gives ports from here to outgoing connections (net.ipv4.ip_local_port_range)."""


@rule(
    "PD053",
    "No port is left to a scan or to chance",
    "vLLM scans upwards from VLLM_PORT for every port that it needs, releases each and binds it later: processes of a"
    " node that share it race for the same ones (srt-slurm#243, srt-slurm#269, vllm#39015). A listening port among "
    "those that Linux gives to outgoing connections is taken now and then.",
)
def ports_are_not_scanned(case: Case) -> Iterator[Hit]:
    """`VLLM_PORT` in a role's env, and planned ports in the ephemeral range."""
    for role in case.plan.roles.values():
        if "VLLM_PORT" not in role.settings.env:
            continue
        mine = [process for process in case.plan.placement if process.role == role.role]
        base, path = str(role.settings.env["VLLM_PORT"]), case.where(role.role, "env", "VLLM_PORT")
        shared = max(Counter(process.node for process in mine).values(), default=0)
        if not base.isdecimal():
            yield Hit(message=f"{role.role}: VLLM_PORT is `{base}`, not a number", path=path, fix="remove VLLM_PORT")
        elif shared > 1 or any(process.processes > 1 for process in mine):
            why = f"{shared} processes of a node" if shared > 1 else "the processes of an endpoint on several nodes"
            yield Hit(message=f"{role.role}: {why} scan from one VLLM_PORT {base}", path=path, fix="remove VLLM_PORT")
        else:
            yield Hit(
                message=f"{role.role}: vLLM scans for ports from {base} on, and the plan cannot keep them free",
                path=path,
                fix="remove VLLM_PORT: without it the system gives free ports",
                severity="warning",
            )
    yield from _ephemeral(case)


def _ephemeral(case: Case) -> Iterator[Hit]:
    high = [port for port in case.plan.ports if FIRST_EPHEMERAL <= port.port <= LAST_PORT]
    if high:
        key = "port_shift" if case.plan.recipe.infra.port_shift else "http_port"
        yield Hit(
            message=f"{high[0].owner} listens on port {high[0].port}, which Linux may give to an outgoing connection "
            f"(from {FIRST_EPHEMERAL} on)",
            path=("infra", key),
            fix=f"lower infra.{key}",
            severity="warning",
        )

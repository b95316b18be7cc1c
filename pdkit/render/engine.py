"""From a plan to the exact commands of every process. The local launcher and the Slurm scripts both start these."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.facts.flags import lookup
from pdkit.facts.tables import engine_tables
from pdkit.plan.plan import Plan
from pdkit.render.command import PYTHON, Command, Flag, free_flag
from pdkit.render.infra import discovery, own_address, servers
from pdkit.render.text import Address
from pdkit.render.worker import worker


def commands(plan: Plan) -> list[Command]:
    """Every process of the deployment, in the order in which they are started."""
    return [*servers(plan), *_frontends(plan), *(worker(plan, process) for process in plan.placement)]


def _frontends(plan: Plan) -> Iterator[Command]:
    nodes = sorted({process.node for process in plan.placement})
    infra, table = plan.recipe.infra, engine_tables(plan.recipe.engine).frontend
    more = [free_flag(name, value, lookup(name, table), "frontend_args") for name, value in infra.frontend_args.items()]
    for number, node in zip(range(infra.frontends), nodes, strict=False):
        yield Command(
            name=f"frontend{number}",
            node=node,
            kind="frontend",
            program=(PYTHON, "-m", "dynamo.frontend"),
            flags=(
                Flag("--http-host", Address(node), "this cluster's address, not every interface"),
                Flag("--http-port", str(plan.http_port), "infra.http_port of the recipe"),
                *more,
            ),
            env=(*discovery(plan), *own_address(node)),
            headline="Dynamo's frontend: OpenAI API in, prefill then decode behind it.",
        )

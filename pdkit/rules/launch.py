"""Rules about how processes are started: ports and flags."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.facts import flags
from pdkit.plan.ports import collisions
from pdkit.recipe.load import nearest
from pdkit.rules.rule import Case, Hit, rule


@rule(
    "PD017",
    "No two processes of a node want one port",
    "A taken side-channel port makes the second engine wait for ever (ray#60057); a taken HTTP port hides the API.",
)
def ports_are_free(case: Case) -> Iterator[Hit]:
    """Compare all ports of all nodes."""
    for one, other in collisions(list(case.plan.ports)):
        yield Hit(
            message=f"node {one.node}: port {one.port} is wanted by {one.owner} and {other.owner}",
            path=("infra", "http_port"),
            fix="choose another infra.http_port",
        )


@rule(
    "PD016",
    "Every vLLM flag exists in this version",
    "The peer hands a misspelt flag on to 72 GPUs, where argparse refuses it after the job has started.",
)
def flags_are_known(case: Case) -> Iterator[Hit]:
    """Free `args` against the flags of the recipe's vLLM version."""
    table = flags.flag_table(case.plan.recipe.engine.vllm, case.source.at(("engine", "vllm")))
    for role in case.plan.roles.values():
        for name in role.settings.args:
            if flags.lookup(name, table) is not None:
                continue
            path = case.where(role.role, "args", name)
            elsewhere = flags.versions_with(name)
            if elsewhere:
                yield Hit(
                    message=f"{role.role}: vLLM {table.version} has no `--{name}`; known in {', '.join(elsewhere)}",
                    path=path,
                    fix="remove it, or name the version that has it in engine.vllm",
                    severity="error" if table.exact else "warning",
                    key=True,
                )
            else:
                yield Hit(
                    message=f"{role.role}: no known vLLM version has a flag `--{name}`",
                    path=path,
                    fix=nearest(name, table.flags) or "check the spelling",
                    key=True,
                )

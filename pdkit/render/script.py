"""Jinja templates to shell scripts. Every `{{ }}` becomes a quoted shell word, except text marked as a comment."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Undefined

from pdkit import __version__
from pdkit.paths import shipped
from pdkit.plan.cost import slurm_seconds
from pdkit.plan.plan import Plan
from pdkit.plan.ports import ETCD, NATS
from pdkit.render.command import Command, Variable
from pdkit.render.engine import commands
from pdkit.render.infra import discovery
from pdkit.render.text import Address, RunFolder, Text, Value, join, to_shell

if TYPE_CHECKING:
    from typing_extensions import Self


class Comment(str):
    """Text for a comment line: not quoted, and never more than one line."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Fold all white space, so that nothing can escape from the comment."""
        return super().__new__(cls, " ".join(text.split()))


def to_words(value: Any) -> str:
    """What Jinja prints for a value: a shell word, several for a list, plain text for a comment.

    Raises TypeError for anything else (None, mappings), since it has no meaning in a script, and UndefinedError.
    """
    if isinstance(value, Undefined):
        return str(value)  # raises, and names what is not there
    if isinstance(value, Comment):
        return str(value)
    if isinstance(value, bool):
        raise TypeError("a boolean has no meaning in a script")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (str, Address, RunFolder, Text)):
        return to_shell(value)
    if isinstance(value, (list, tuple)):
        return " ".join(to_words(one) for one in value)
    raise TypeError(f"{type(value).__name__} has no meaning in a script")


def scripts(plan: Plan) -> dict[str, str]:
    """`job.sbatch` and `steps/*.sh`, by their path in the run folder."""
    steps = commands(plan)
    files = {
        "job.sbatch": _job(plan, steps),
        "steps/driver.sh": _driver(plan),
        "steps/preflight.sh": _template("steps/preflight.sh.j2", version=_VERSION),
    }
    return files | {f"steps/{step.name}.sh": _step(step) for step in steps}


_VERSION = Comment(__version__)
_INFRA_PORTS = {"etcd": ETCD, "nats": NATS}


@cache
def _environment(folder: Path) -> Environment:
    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        finalize=to_words,
        autoescape=False,  # noqa: S701  (shell, not HTML: finalize quotes)
        comment_start_string="[#",  # `{#` is bash's ${#array[@]}
        comment_end_string="#]",
        keep_trailing_newline=True,
    )


def _template(template: str, /, **values: Any) -> str:
    return _environment(shipped("slurm")).get_template(template).render(values)


def _driver(plan: Plan) -> str:
    return _template("steps/driver.sh.j2", version=_VERSION, env=_variables(discovery(plan)))


def _variables(variables: Iterable[Variable]) -> list[dict[str, Value]]:
    return [{"name": Comment(one.name), "value": one.value, "why": Comment(one.why)} for one in variables]


def _step(step: Command) -> str:
    return _template(
        "steps/process.sh.j2",
        name=step.name,
        headline=Comment(step.headline),
        node=step.node,
        version=_VERSION,
        env=_variables(step.env),
        flags=[{"words": flag.words(), "why": Comment(flag.why)} for flag in step.flags],
        program=list(step.program),
    )


def _job(plan: Plan, steps: list[Command]) -> str:
    recipe = plan.recipe
    infra = [step for step in steps if step.kind in ("etcd", "nats")]
    return _template(
        "job.sbatch.j2",
        name=Comment(recipe.name),
        description=Comment(recipe.description or f"{' beside '.join(map(_role_text, plan.roles.values()))}."),
        gpus=plan.gpus,
        nodes=plan.nodes,
        hardware=Comment(plan.hardware.name),
        version=_VERSION,
        directives=[Comment(one) for one in directives(plan)],
        container=_container(plan, recipe.engine.image),
        infra_container=_container(plan, recipe.infra.image),
        infra_steps=[
            {"name": step.name, "node": step.node, "port": _INFRA_PORTS[step.kind] + recipe.infra.port_shift}
            for step in infra
        ],
        steps=[{"name": step.name, "node": step.node} for step in steps if step not in infra],
    )


def _role_text(role: Any) -> str:
    mtp = f" MTP {role.mtp}" if role.mtp else ""
    return f"{role.role} {role.endpoints} x {role.topology}{mtp}"


def _container(plan: Plan, image: str | None) -> list[Value]:
    """Pyxis options for srun; the run folder is mounted at its own path."""
    if image is None:
        return []
    mounts = "".join(f",{host}:{inside}" for host, inside in plan.recipe.cluster.mounts.items())
    return [
        f"--container-image={image}",
        join("--container-mounts=", RunFolder(), ":", RunFolder(), mounts),
        "--no-container-entrypoint",
        "--no-container-mount-home",
    ]


def directives(plan: Plan) -> list[str]:
    """The `#SBATCH` options, in a fixed order."""
    cluster, recipe = plan.recipe.cluster, plan.recipe
    options: dict[str, str | int | float | bool | None] = {
        "job-name": recipe.name,
        "account": cluster.account,
        "partition": cluster.partition,
        "qos": cluster.qos,
        "nodes": plan.nodes,
        "gres": f"gpu:{plan.hardware.gpus_per_node}" if cluster.gres and plan.hardware.device == "cuda" else None,
        "segment": segment(plan),
        "exclusive": cluster.exclusive,
        "time": cluster.time_limit,
        "signal": f"B:USR1@{_warning_seconds(cluster.time_limit)}",
        "output": "logs/job.log",
        "open-mode": "append",
        "no-requeue": True,
        **cluster.directives,
    }
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    return [f"--{name}" if value is True else f"--{name}={shlex.quote(str(value))}" for name, value in given.items()]


def _warning_seconds(time_limit: str) -> int:
    """How long before its time limit the job is told, so that it ends by itself; Slurm may do so a minute sooner."""
    return max(5, min(60, slurm_seconds(time_limit) // 10))


def segment(plan: Plan) -> int | None:
    """`--segment`: all nodes of the job in one NVLink domain, unless the recipe says otherwise."""
    wish = plan.recipe.cluster.segment
    if isinstance(wish, int):
        return wish
    domain = plan.hardware.nvlink_domain_nodes
    return plan.nodes if wish == "auto" and domain > 1 and plan.nodes <= domain else None

"""The command `doctor`: what a recipe needs from this machine, and what the engines of an image accept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pdkit.plan.plan import Plan


def doctor(
    recipe: Annotated[Path | None, typer.Argument(help="Recipe file.", show_default=False)] = None,
    sets: Annotated[list[str], typer.Option("--set", metavar="a.b=VALUE", help="Change one setting.")] = [],  # noqa: B006
    node: Annotated[
        int | None,
        typer.Option(min=0, help="Node of the plan, from 0; $SLURM_NODEID inside a job.", show_default=False),
    ] = None,
    image_probe: Annotated[
        bool, typer.Option("--image-probe", help="Write what the engines' own parsers accept, for `engine.facts`.")
    ] = False,
    python: Annotated[
        Path | None, typer.Option(help="Python of the engines; that of .venv-vllm, else python3.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File for --image-probe.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Check that this node and container have what a recipe needs; exit 1 when there is a problem."""
    from pdkit.errors import UsageError

    if image_probe != (output is not None):
        raise UsageError("--image-probe and -o FILE belong together", fix="pdkit doctor --image-probe -o facts.json")
    if image_probe and output is not None:
        _probe(_python(python), output)
        return
    from dataclasses import asdict

    from pdkit.doctor.examine import examine
    from pdkit.files import to_json

    plan = _plan(recipe, sets) if recipe else None
    checks = list(examine(plan, _node(node), _python(python), Path.cwd()))
    problems = sum(one.status == "problem" for one in checks)
    if json:
        typer.echo(to_json({"schema": 1, "problems": problems, "checks": [asdict(one) for one in checks]}), nl=False)
    else:
        for one in checks:
            typer.echo(str(one))
        open_ = sum(one.status == "cannot be told" for one in checks)
        typer.echo(f"{len(checks)} checks: {problems} problem{'s' * (problems != 1)}, {open_} cannot be told here")
    if problems:
        raise typer.Exit(1)


def _probe(python: Path | None, output: Path) -> None:
    from pdkit.doctor.engines import probe_image

    facts = probe_image(python or Path("python3"), output)
    versions = facts["versions"]
    for engine, package in (("vllm", "vllm"), ("dynamo", "ai-dynamo")):
        if engine in facts:
            parts = ", ".join(f"{len(value)} {key.replace('_', ' ')}" for key, value in facts[engine].items())
            typer.echo(f"{package} {versions.get(package, versions.get(f'{package}-cpu'))}: {parts}")
        else:
            typer.echo(f"{package}: not read: {facts['missing'][engine]}")
    typer.echo(f"{output}: name it as `engine.facts` in the recipe")


def _python(given: Path | None) -> Path | None:
    """The engines' Python: the one given, else that of the environment that `pdkit run` takes, else the container's."""
    import shutil

    from pdkit.launch.run import engines_folder

    if given is not None:
        return given
    folder = engines_folder(None)
    if folder is not None:
        return folder / "bin" / "python"
    found = shutil.which("python3")
    return Path(found) if found else None


def _node(given: int | None) -> int:
    told = os.environ.get("SLURM_NODEID", "0")
    return given if given is not None else int(told) if told.isdigit() else 0


def _plan(recipe: Path, sets: list[str]) -> Plan:
    from pdkit.errors import UsageError
    from pdkit.plan.plan import make_plan
    from pdkit.recipe.load import load

    loaded = load(recipe, tuple(sets))
    if len(loaded) != 1:
        raise UsageError(f"{recipe} stands for {len(loaded)} recipes", fix="choose one of its matrix with --set")
    return make_plan(loaded[0])

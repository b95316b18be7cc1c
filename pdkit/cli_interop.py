"""The commands over recipes of srt-slurm: `import`, `compare` and `export`. Heavy imports stay inside the commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def import_(
    srt: Annotated[Path, typer.Argument(help="Recipe of srt-slurm, or a folder of them.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File, or folder for several recipes.", show_default=False)
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 when anything has no counterpart.")] = False,
    json: Json = False,
) -> None:
    """Convert recipes of srt-slurm that start vLLM; on stderr stands what is said differently or has no counterpart."""
    from rich.console import Console

    from pdkit.errors import UsageError
    from pdkit.files import to_json
    from pdkit.interop.importing import import_data, outcomes, write
    from pdkit.show_import import show_notes, show_summary

    found = list(outcomes(srt))
    if not found:
        raise UsageError(f"{srt}: no recipes of srt-slurm in this folder")
    count = sum(len(one.recipes) for one in found)
    if output is None and not json and (srt.is_dir() or count > 1):
        raise UsageError(f"{srt}: stands for {count} recipes", fix="name a folder with -o")
    if output is not None:
        write(found, srt, output)
    if json:
        typer.echo(to_json(import_data(found)), nl=False)
    elif output is None:
        typer.echo("".join(recipe.text for one in found for recipe in one.recipes), nl=False)
    if not json:
        console = Console(highlight=False, stderr=True, width=None if sys.stderr.isatty() else 200)
        show_notes(console, found)
        show_summary(console, found)
    if any(one.faults for one in found):
        raise typer.Exit(2)
    if strict and any(one.lost for one in found):
        raise typer.Exit(1)


def compare(
    here: Annotated[Path, typer.Argument(help="Recipe of pdkit or srt-slurm, or a folder.", show_default=False)],
    there: Annotated[Path, typer.Argument(help="The one to compare it with.", show_default=False)],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write an HTML page for a review.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show settings that are the same, too.")] = False,
    json: Json = False,
) -> None:
    """Lay two deployments side by side, setting by setting; exit 1 when they differ in effect."""
    from pdkit.files import to_json
    from pdkit.interop.compare_matrix import match
    from pdkit.interop.compare_sides import sides_below
    from pdkit.interop.show_compare import comparison_data, matrix_data, show_comparison, show_matrix
    from pdkit.interop.show_page import write_page

    (left, one_fault), (right, other_fault) = sides_below(here), sides_below(there)
    faults, single = [*one_fault, *other_fault], not (here.is_dir() or there.is_dir())
    found = match(left, right, alone=single)
    pair = found.pairs[0] if single and len(left) == len(right) == 1 else None
    if json:
        typer.echo(to_json(comparison_data(pair) if pair else matrix_data(found, faults)), nl=False)
    elif pair:
        show_comparison(_console(), pair, everything=everything)
    else:
        show_matrix(_console(), found, faults)
    if output is not None:
        write_page(output, found, faults)
        if not json:
            typer.echo(f"page: {output}")
    if faults or not found.same_in_effect:
        raise typer.Exit(1)


def export(
    recipe: Annotated[Path, typer.Argument(help="Recipe file.", show_default=False)],
    srt: Annotated[int, typer.Option(min=1, max=2, help="Schema of srt-slurm: 1, or 2 with `roles:`.")] = 2,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File, or folder for several recipes.")] = None,
    sets: Annotated[
        list[str], typer.Option("--set", metavar="a.b=VALUE", help="Change one setting; may be repeated.")
    ] = [],  # noqa: B006
) -> None:
    """Write a recipe as one of srt-slurm; on stderr stands what that tool cannot say."""
    from pdkit.commands import planned
    from pdkit.errors import UsageError
    from pdkit.files import write_text
    from pdkit.interop.export import export as exported

    plans = [plan for _, plan, _ in planned(recipe, tuple(sets))]
    if len(plans) > 1 and output is None:
        raise UsageError(f"{recipe}: stands for {len(plans)} recipes", fix="name a folder with -o")
    for plan in plans:
        found = exported(plan, 1 if srt == 1 else 2)
        for line in found.limits:
            sys.stderr.write(f"{plan.recipe.name}: not in srt-slurm: {line}\n")
        if output is None:
            typer.echo(found.text, nl=False)
            continue
        file = output / f"{plan.recipe.name}.yaml" if len(plans) > 1 or output.is_dir() else output
        write_text(file, found.text)
        typer.echo(str(file))


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)

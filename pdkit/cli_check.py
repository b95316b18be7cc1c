"""The command `check`: every rule over any number of recipes. Heavy imports stay inside the command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pdkit.errors import Finding


def check(
    recipes: Annotated[list[Path], typer.Argument(help="Recipe files, or folders of them.", show_default=False)],
    sets: Annotated[
        list[str], typer.Option("--set", metavar="a.b=VALUE", help="Change one setting; may be repeated.")
    ] = [],  # noqa: B006
    json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Read recipes, plan them and run every rule; exit 1 when a rule finds an error."""
    from pdkit.commands import checked_files

    findings: list[Finding] = []
    count = 0
    for result in checked_files(recipes, tuple(sets)):
        findings += result.findings
        count += result.recipes
    if json:
        from dataclasses import asdict

        from pdkit.files import to_json

        typer.echo(to_json({"schema": 1, "recipes": count, "findings": [asdict(one) for one in findings]}), nl=False)
    else:
        if findings:  # else rich need not be loaded
            from rich.console import Console

            from pdkit.show import show_findings

            show_findings(Console(highlight=False, width=None if sys.stdout.isatty() else 200), findings)
        errors = sum(one.severity == "error" for one in findings)
        warnings = sum(one.severity == "warning" for one in findings)
        typer.echo(f"{_count(count, 'recipe')} checked: {_count(errors, 'error')}, {_count(warnings, 'warning')}")
    if any(one.code.startswith("PD1") and one.severity == "error" for one in findings):
        raise typer.Exit(2)
    if any(one.severity == "error" for one in findings):
        raise typer.Exit(1)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"

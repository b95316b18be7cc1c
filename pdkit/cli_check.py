"""The command `check`: every rule over any number of recipes. Heavy imports stay inside the command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from pdkit.commands import Checked
    from pdkit.errors import Finding

Format = Literal["text", "json", "sarif", "github"]


def check(
    recipes: Annotated[
        list[Path] | None, typer.Argument(help="Recipe files, or folders of them.", show_default=False)
    ] = None,
    sets: Annotated[
        list[str], typer.Option("--set", metavar="a.b=VALUE", help="Change one setting; may be repeated.")
    ] = [],  # noqa: B006
    form: Annotated[Format, typer.Option("--format", help="How findings are written.")] = "text",
    explain: Annotated[
        str | None, typer.Option(metavar="CODE", help="Say what a code means, with an example.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts: --format json.")] = False,
) -> None:
    """Read recipes, plan them and run every rule; exit 1 when a rule finds an error."""
    from pdkit.errors import UsageError

    if explain is not None:
        from pdkit.explain import explained

        typer.echo(explained(explain), nl=False)
        return
    if not recipes:
        raise typer.BadParameter("give recipe files or folders, or --explain CODE")
    if json and form not in ("text", "json"):
        raise UsageError(f"--json and --format {form} contradict each other", fix="leave one of them out")
    from pdkit.interop.files import checked_files
    from pdkit.rules.summary import each_once

    results = list(checked_files(recipes, tuple(sets)))
    findings = each_once(finding for result in results for finding in result.findings)
    _write("json" if json else form, results, findings)
    if any(one.code.startswith("PD1") and one.severity == "error" for one in findings):
        raise typer.Exit(2)
    if any(one.severity == "error" for one in findings):
        raise typer.Exit(1)


def _write(form: Format, results: list[Checked], findings: list[Finding]) -> None:
    from pdkit.files import to_json

    if form == "text":
        _write_text(results, findings)
    elif form == "github":
        from pdkit.rules.annotations import annotation

        for finding in findings:
            typer.echo(annotation(finding))
        typer.echo(_total(results, findings))
    elif form == "sarif":
        from pdkit.rules.sarif import sarif

        typer.echo(to_json(sarif(findings)), nl=False)
    else:
        from dataclasses import asdict

        data = {"schema": 1, "recipes": sum(one.recipes for one in results)}
        every = [asdict(finding) for result in results for finding in result.findings]
        typer.echo(to_json({**data, "findings": every}), nl=False)


def _write_text(results: list[Checked], findings: list[Finding]) -> None:
    """Every finding, then how often each code was found where there are several recipes, then the total."""
    if findings:  # else rich need not be loaded
        from rich.console import Console

        from pdkit.show import show_counts, show_findings

        console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
        show_findings(console, findings)
        if len(results) > 1:
            from pdkit.rules.summary import counted

            show_counts(console, counted((str(one.file), finding) for one in results for finding in one.findings))
    typer.echo(_total(results, findings))


def _total(results: list[Checked], findings: list[Finding]) -> str:
    from pdkit.rules.accepting import accepted_because

    errors = sum(one.severity == "error" for one in findings)
    warnings = sum(one.severity == "warning" for one in findings)
    accepted = sum(bool(accepted_because(one)) for one in findings)
    recipes = _count(sum(one.recipes for one in results), "recipe")
    more = f", {accepted} accepted" if accepted else ""
    return f"{recipes} checked: {_count(errors, 'error')}, {_count(warnings, 'warning')}{more}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"

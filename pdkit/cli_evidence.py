"""The commands that look at finished runs: `report`, `gate` and `results`. Heavy imports stay inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Runs = Annotated[list[Path], typer.Argument(help="Run folders.", show_default=False)]

OF_A_RUN = ("plan.json", "lock.json")

results = typer.Typer(no_args_is_help=True, help="Points that other people have published.")


def report(
    runs: Runs,
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write.")] = Path("report.html"),
    published: Annotated[
        list[Path], typer.Option(help="CSV of published points to draw beside; may be repeated.")
    ] = [],  # noqa: B006
) -> None:
    """Draw runs on one self-contained page: frontier, latency, points and the evidence behind them.

    What is no run folder is left out. So is a run that cannot be read: the page says so, and the exit code is 7.
    """
    from pdkit.errors import MeasurementError, UsageError
    from pdkit.job.audit import doubts
    from pdkit.results.imported import read_imported
    from pdkit.results.report import build_report
    from pdkit.results.runs import readable

    for folder in runs:
        if not folder.exists():
            raise UsageError("there is no such run folder", at=str(folder))
    given = [folder for folder in runs if any((folder / name).exists() for name in OF_A_RUN)]
    if not given:
        raise UsageError("this is not a run folder: it has no plan.json", at=str(runs[0]))
    for other in (folder for folder in runs if folder not in given):
        typer.echo(f"{other}: not a run folder, left out", err=True)
    imported = [point for file in published for point in read_imported(file)]
    good, faults = readable(given)
    if not good:
        raise faults[0]
    typer.echo(str(build_report(good, imported, output, doubts, faults)))
    if faults:
        count = f"{len(faults)} of {len(given)} runs"
        raise MeasurementError("\n".join([*map(str, faults), f"{count} cannot be read: the page shows the others"]))


def gate(
    run: Annotated[Path, typer.Argument(help="Run folder.", show_default=False)],
    record_twin: Annotated[
        Path | None, typer.Option(help="Store this aggregated run's answers there, as the twin of later P/D runs.")
    ] = None,
) -> None:
    """Judge the answers in a run folder again, and show the verdict; exit 6 when it is not a pass."""
    import json

    from pdkit.errors import UsageError
    from pdkit.job.evidence import VERDICT, read_passed, read_verdict
    from pdkit.job.twin import record_twin as store

    if not (run / VERDICT).is_file():
        raise UsageError("this run has no verdict of the gate", at=str(run / VERDICT), fix="run the recipe first")
    evidence = read_verdict(run / VERDICT)
    passed = read_passed(run, lock_digest=evidence.header.lock_digest, boot_ids=evidence.header.boot_ids)
    typer.echo(evidence.words)
    if record_twin is not None:
        plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
        if list(plan["roles"]) != ["agg"]:
            fix = "run the recipe's aggregated form (`agg:` instead of `prefill:` and `decode:`)"
            raise UsageError("a twin is an aggregated deployment, this run is P/D", at=str(run), fix=fix)
        typer.echo(f"stored {store(run, passed, record_twin, plan['recipe'])}; use it as `gate.twin` of a recipe")


@results.command("import", epilog="Example: pdkit results import article.csv -o runs/imported")
def import_points(
    points: Annotated[Path, typer.Argument(help="CSV: label,tok_s_gpu,tok_s_user[,concurrency].", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to keep it in.")] = Path("runs/imported"),
) -> None:
    """Check a CSV of published points and keep it, for `pdkit report --published`."""
    from pdkit.files import write_text
    from pdkit.results.imported import read_imported

    found = read_imported(points)
    target = output / points.name
    write_text(target, points.read_text(encoding="utf-8"))
    curves = len({point.label for point in found})
    typer.echo(f"{target}: {len(found)} point{'s' * (len(found) != 1)} on {curves} curve{'s' * (curves != 1)}")
    typer.echo(f"  draw it: pdkit report RUN... --published {target}")

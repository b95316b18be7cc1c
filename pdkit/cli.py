"""The `pdkit` command: a thin function per command; heavy imports stay inside the commands that need them."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated

import typer

from pdkit import __version__, cli_check, cli_cluster, cli_doctor, cli_evidence, cli_interop, cli_run
from pdkit.errors import FindingsError, InterruptedRunError, PdkitError
from pdkit.rack.cli import app as rack_app

if TYPE_CHECKING:
    from rich.console import Console

    from pdkit.errors import Finding
    from pdkit.plan.plan import Plan
    from pdkit.recipe.load import Loaded

app = typer.Typer(
    name="pdkit",
    help="From a YAML recipe to a proven and measured prefill/decode deployment of an LLM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 1 findings, 2 bad usage or recipe, 3 the cluster refused, 4 an engine failed, "
    "5 not ready, 6 the accuracy gate failed, 7 a measurement is invalid, 8 interrupted.",
)

RecipeFile = Annotated[Path, typer.Argument(help="Recipe file.", show_default=False)]
Sets = Annotated[list[str], typer.Option("--set", metavar="a.b=VALUE", help="Change one setting; may be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def main() -> None:
    """Run the command line; errors that a person can act on are printed without a traceback."""
    signal.signal(signal.SIGINT, _interrupt)  # before Typer's own words and code for it
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115  (the caller closed it)
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without box drawing gets question marks, not a traceback
    try:
        app()
    except PdkitError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
    except OSError as error:  # a file or folder that cannot be read or written, whichever command wanted it
        sys.stderr.write(f"{error.filename2 or error.filename or 'pdkit'}: {error.strerror or error}\n")
        sys.exit(2)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    sys.excepthook = _wrapped
    raise InterruptedRunError("interrupted")


def _wrapped(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Pydantic's core, where the signal may come in, puts what is raised there into an error of its own."""
    import traceback

    if InterruptedRunError.__name__ not in "".join(traceback.format_exception(kind, error, trace)):
        sys.__excepthook__(kind, error, trace)
        return
    sys.stdout.flush()
    sys.stderr.write("interrupted\n")
    sys.stderr.flush()
    os._exit(InterruptedRunError.exit_code)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pdkit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that hold for every command."""


app.command("check", epilog="Example: pdkit check recipes/qwen38_tep8.yaml --set decode.mtp=0")(cli_check.check)


@app.command(epilog="Example: pdkit plan recipes/qwen38_tep8.yaml --json | jq .block_size")
def plan(
    recipe: RecipeFile,
    sets: Sets = [],  # noqa: B006
    startup_minutes: Annotated[
        float | None, typer.Option(min=0, help="Minutes until the engines are ready, for the cost.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Show what a recipe comes to: topology, block size, memory, capacity, placement, ports, and why."""
    planned = _planned(recipe, sets)
    if json:
        from pdkit.files import to_json
        from pdkit.plan.contract import plan_data

        data = [plan_data(one, findings, startup_minutes) for _, one, findings in planned]
        typer.echo(to_json(data[0] if len(data) == 1 else data), nl=False)
    else:
        from pdkit.show import show_plan

        for _, one, findings in planned:
            show_plan(_console(), one, findings, startup_minutes)
    _fail_on_errors(planned, quiet=True)


@app.command(epilog="Example: pdkit render recipes/qwen38_tep8.yaml")
def render(
    recipe: RecipeFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder in which run folders are made.")] = Path(
        "runs"
    ),
    sets: Sets = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Write the run folder: plan, lock, job.sbatch and one script per process, ready for sbatch."""
    from pdkit.render.folder import next_run_folder, write_run_folder

    planned = _planned(recipe, sets)
    _fail_on_errors(planned, quiet=False)
    folders = []
    for loaded, one, findings in planned:
        folder = next_run_folder(output, one)
        write_run_folder(folder, one, loaded.source, findings)
        folders.append(folder)
    if json:
        from pdkit.files import to_json

        typer.echo(to_json({"schema": 1, "folders": [str(folder) for folder in folders]}), nl=False)
        return
    for folder, (_, one, _findings) in zip(folders, planned, strict=True):
        steps = len(list((folder / "steps").iterdir()))
        typer.echo(f"{folder}: job.sbatch for {one.nodes} nodes, {steps} steps, plan.json, lock.json")
        typer.echo(f"  submit: cd {folder} && sbatch job.sbatch")


@app.command(epilog="Example: pdkit schema > recipe.schema.json")
def schema() -> None:
    """Print the JSON Schema of recipes, so that editors complete and check them."""
    from pdkit.files import to_json
    from pdkit.recipe.reference import recipe_schema

    typer.echo(to_json(recipe_schema()), nl=False)


app.command("run", epilog="Example: pdkit run recipes/local/tiny_pd.yaml")(cli_run.run)
app.command("rehearse", epilog="Example: sudo pdkit rehearse recipes/qwen38_tep8.yaml")(cli_run.rehearse)
app.command("submit", epilog="Example: pdkit submit recipes/qwen38_tep8.yaml --cluster oci")(cli_cluster.submit)
app.command("status", epilog="Example: pdkit status --watch")(cli_cluster.status)
app.command("logs", epilog="Example: pdkit logs runs/RUN decode0-0 -f")(cli_cluster.logs)
app.command("stop", epilog="Example: pdkit stop runs/RUN")(cli_cluster.stop)
app.command("report", epilog="Example: pdkit report runs/* -o report.html")(cli_evidence.report)
app.command("doctor", epilog="Example: pdkit doctor recipes/qwen38_tep8.yaml")(cli_doctor.doctor)
app.command("gate", epilog="Example: pdkit gate runs/RUN --record-twin twin.jsonl")(cli_evidence.gate)
app.command("import", epilog="Example: pdkit import SRT.yaml -o recipe.yaml")(cli_interop.import_)
app.command("compare", epilog="Example: pdkit compare recipes/qwen38_tep8.yaml theirs.yaml -o review.html")(
    cli_interop.compare
)
app.command("export", epilog="Example: pdkit export recipes/qwen38_tep8.yaml --srt 2 -o theirs.yaml")(
    cli_interop.export
)
app.add_typer(cli_evidence.results, name="results")
app.add_typer(rack_app, name="rack")


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def _planned(recipe: Path, sets: list[str]) -> list[tuple[Loaded, Plan, list[Finding]]]:
    from pdkit.commands import planned

    return planned(recipe, tuple(sets))


def _fail_on_errors(planned: list[tuple[Loaded, Plan, list[Finding]]], *, quiet: bool) -> None:
    """Exit 1 when a rule found an error; `quiet` when the findings have been shown already."""
    errors = [one for _, _, findings in planned for one in findings if one.severity == "error"]
    if errors and quiet:
        raise typer.Exit(FindingsError.exit_code)
    if errors:
        raise FindingsError("\n".join(map(str, errors)))


if __name__ == "__main__":
    main()

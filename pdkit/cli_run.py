"""The commands that stay with a run to its end: `run`, `rehearse`. Heavy imports stay inside the commands."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

RecipeFile = Annotated[Path, typer.Argument(help="Recipe file.", show_default=False)]
Output = Annotated[Path, typer.Option("-o", "--output", help="Folder in which run folders are made.")]
Sets = Annotated[list[str], typer.Option("--set", metavar="a.b=VALUE", help="Change one setting; may be repeated.")]
RUNS = Path("runs")


def run(
    recipe: RecipeFile,
    output: Output = RUNS,
    sets: Sets = [],  # noqa: B006
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the newest run of this recipe.")] = False,
    engines: Annotated[Path | None, typer.Option(help="Python environment with vllm, ai-dynamo and nixl.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Run in spite of findings; the later stages still judge.")
    ] = False,
) -> None:
    """Serve a recipe, prove it ready, gate its answers, sweep it and draw the report: here, or as a job on Slurm.

    A recipe for GPUs is submitted where Slurm is, and watched; Ctrl-C then leaves the job at work.
    """
    from pdkit.launch.run import goes_to_slurm

    if goes_to_slurm(recipe, tuple(sets)):
        _run_on_slurm(recipe, output, tuple(sets), resume=resume, only_here=engines is not None or force)
        return
    from pdkit.errors import PdkitError
    from pdkit.job.audit import doubts
    from pdkit.launch.local import run_local
    from pdkit.launch.run import engine_environment, find_unfinished, finished, outcome, prepare
    from pdkit.launch.watch import watching
    from pdkit.results.report import build_report

    if resume:
        folder, one = find_unfinished(recipe, tuple(sets), output)
    else:
        folder, one = prepare(recipe, tuple(sets), output, force=force, engines=engines)
    if resume and finished(folder):
        typer.echo(f"{folder}: nothing is missing; report: {folder / 'report.html'}")
        return
    environment = engine_environment(one, engines)
    typer.echo(f"run folder: {folder}")
    try:
        with watching(_console()) as watch:
            code = run_local(folder, one, environment, watch)
    finally:  # the run's own error matters more than one of the page that tells of it
        with contextlib.suppress(OSError, PdkitError) if sys.exc_info()[0] else contextlib.nullcontext():
            typer.echo(f"report: {build_report([folder], [], folder / 'report.html', doubts)}")
    if code:
        sys.stderr.write(f"{outcome(folder)}\n")
        raise typer.Exit(code)


def _run_on_slurm(recipe: Path, output: Path, sets: tuple[str, ...], *, resume: bool, only_here: bool) -> None:
    from pdkit.errors import InterruptedRunError, UsageError
    from pdkit.launch.attend import attend
    from pdkit.launch.clusters import choose_cluster
    from pdkit.launch.run import find_unfinished
    from pdkit.launch.slurm import Options
    from pdkit.launch.submit import options_for, planned_for, submit_recipes
    from pdkit.launch.submit import resume as resume_run

    if only_here:
        raise UsageError("this recipe runs on Slurm, where --engines and --force have no effect", fix="leave them out")
    cluster, folders = choose_cluster(None), []
    if resume:
        folder = find_unfinished(recipe, sets, output)[0]
        done = iter([resume_run(folder, options_for(folder, None, Options()))])
    else:
        done = submit_recipes(
            planned_for(recipe, sets, cluster), output, options_for(None, cluster, Options()), again=False
        )
    for one in done:
        typer.echo(f"{one.folder}: job {one.job} {one.state.lower()}, {one.nodes} nodes")
        folders.append(one.folder)
    try:
        code = attend(folders, _console())
    except InterruptedRunError:
        typer.echo("what was submitted goes on: pdkit status, pdkit stop", err=True)
        raise
    if code:
        raise typer.Exit(code)


def rehearse(
    recipe: RecipeFile,
    output: Output = RUNS,
    sets: Sets = [],  # noqa: B006
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Nodes of the rack, when none runs yet. [18]", show_default=False)
    ] = None,
) -> None:
    """Run the very job of a recipe on a virtual rack of this machine, with played engines; needs root and no GPU.

    Slurm, Dynamo, etcd, NATS and the load tool are real. The figures say nothing about performance.
    """
    from pdkit.rehearse import rehearse as play

    code = play(recipe, output, tuple(sets), nodes=nodes, console=_console(), tell=typer.echo)
    if code:
        raise typer.Exit(code)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)

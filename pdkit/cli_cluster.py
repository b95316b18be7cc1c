"""The commands over jobs and runs: `submit`, `status`, `logs`, `stop`. Heavy imports stay inside the commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from pdkit.launch.submit import Submission

Run = Annotated[str, typer.Argument(help="Run folder, its name below the output folder, or its job's number.")]
Runs = Annotated[list[str], typer.Argument(help="Runs, each as folder, name or job number.", show_default=False)]
Output = Annotated[Path, typer.Option("-o", "--output", help="Folder that holds the run folders.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
RUNS = Path("runs")


def submit(  # noqa: PLR0913, PLR0917  (each is an option)
    recipe: Annotated[Path | None, typer.Argument(help="Recipe file.", show_default=False)] = None,
    output: Output = RUNS,
    sets: Annotated[list[str], typer.Option("--set", metavar="a.b=VALUE", help="Change one setting.")] = [],  # noqa: B006
    cluster: Annotated[str | None, typer.Option(help="Cluster of clusters.yaml; its `default` when left out.")] = None,
    hold: Annotated[bool, typer.Option("--hold", help="Submit it held; `scontrol release` lets it go.")] = False,
    dependency: Annotated[str | None, typer.Option(help="Slurm's own, such as afterok:123.")] = None,
    test_only: Annotated[bool, typer.Option("--test-only", help="Ask when it would start; submit nothing.")] = False,
    engine: Annotated[
        Literal["mocker"] | None, typer.Option(help="Rehearse with played engines: no figure counts.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Submit even what is queued or running already.")] = False,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Go on with an unfinished run folder.")] = None,
    json: Json = False,
) -> None:
    """Submit a recipe to Slurm: one job per recipe of the file, and none for what is queued or running already."""
    from pdkit.errors import UsageError
    from pdkit.launch.clusters import choose_cluster
    from pdkit.launch.record import find_run
    from pdkit.launch.rehearsal import rehearsal_sets
    from pdkit.launch.slurm import Options
    from pdkit.launch.submit import options_for, planned_for, submit_recipes, would_start
    from pdkit.launch.submit import resume as resume_run

    if (recipe is None) == (resume is None):
        raise UsageError("give either a recipe or --resume RUN", fix="pdkit submit -h")
    wish, chosen = Options(hold=hold, dependency=dependency), choose_cluster(cluster)
    if resume is not None:
        if sets or test_only or again or engine:
            raise UsageError("--resume takes the run as it is, without --set, --test-only, --again or --engine")
        folder = find_run(resume, output)
        _tell([resume_run(folder, options_for(folder, chosen if cluster else None, wish))], json)
        return
    assert recipe is not None
    asked = rehearsal_sets(recipe, tuple(sets)) if engine else tuple(sets)
    planned = planned_for(recipe, asked, chosen)
    if test_only:
        for name, words in would_start(planned, wish):
            typer.echo(f"{name}: {words}")
        return
    done: list[Submission] = []
    try:
        options = options_for(None, chosen, wish)
        for one in submit_recipes(planned, output, options, again=again, played=engine is not None):
            done.append(one)
            if not json:
                _tell([one], json)
    finally:  # a refusal in the middle of a matrix does not hide what was submitted before
        if json:
            _tell(done, json)
    if len(done) > 1 and not json:
        folders = " ".join(str(one.folder) for one in done)
        typer.echo(f"all of them in one report, once they have ended: pdkit report {folders}")


def _tell(done: list[Submission], json: bool) -> None:
    if json:
        from pdkit.files import to_json

        jobs = [{"folder": str(one.folder), "job": one.job, "state": one.state, "new": one.new} for one in done]
        typer.echo(to_json({"schema": 1, "jobs": jobs}), nl=False)
        return
    for one in done:
        if one.new:
            typer.echo(f"{one.folder}: job {one.job} submitted, {one.nodes} nodes; pdkit status {one.job}")
        else:
            state = one.state.lower()
            typer.echo(f"{one.folder}: job {one.job} is {state} already, nothing submitted (--again submits it anew)")


def status(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs; all below the output folder when left out.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it live until every run has ended.")] = False,
    output: Output = RUNS,
    json: Json = False,
) -> None:
    """Show how runs are getting on: job, stage, points, when it will be over, why it failed."""
    from pdkit.errors import UsageError
    from pdkit.launch.board import board, reason, watch_board
    from pdkit.launch.record import find_run, run_folders
    from pdkit.launch.status import status_of, to_data

    folders = [find_run(run, output) for run in runs] if runs else run_folders(output)
    if not folders:
        raise UsageError(f"no run in {output}", fix="pdkit submit RECIPE, or name another folder with -o")
    if watch and not json:
        watch_board(_console(), lambda: status_of(folders))
        return
    statuses, problem = status_of(folders)
    if json:
        from pdkit.files import to_json

        typer.echo(to_json(to_data(statuses, problem)), nl=False)
        return
    _console().print(board(statuses, problem))
    if len(statuses) == 1 and statuses[0].error:
        _console().print(reason(statuses[0]))


def logs(
    run: Run,
    step: Annotated[str | None, typer.Argument(help="One step, such as decode0; all when left out.")] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the run has ended.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="Last lines of each log; 0: all.")] = 20,
    output: Output = RUNS,
) -> None:
    """Print the logs of a run, secrets taken out."""
    import time

    from pdkit.launch.logs import show_logs
    from pdkit.launch.record import find_run
    from pdkit.launch.status import status_of

    folder = find_run(run, output)
    looked = 0.0

    def ended() -> bool:
        nonlocal looked
        if time.monotonic() - looked < 3:
            return False
        looked = time.monotonic()
        return not status_of([folder])[0][0].live

    show_logs(folder, step, lines=lines, follow=follow, ended=ended, say=typer.echo)


def stop(
    runs: Runs,
    drain: Annotated[float, typer.Option(min=0, help="Seconds in which a run may end by itself.")] = 90.0,
    output: Output = RUNS,
) -> None:
    """Stop runs: each writes what it has, its steps end, and what does not end in time is cancelled."""
    from pdkit.launch.record import find_run
    from pdkit.launch.status import status_of
    from pdkit.launch.stop import stop_run

    folders = [find_run(run, output) for run in runs]
    for one in status_of(folders)[0]:
        typer.echo(f"{one.folder}: {stop_run(one, drain)}")


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)

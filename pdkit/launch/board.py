"""The table of `pdkit status`, once or live."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pdkit.launch.logs import tail
from pdkit.launch.progress import Eta
from pdkit.launch.redact import redact
from pdkit.launch.status import RunStatus

WATCH_SECONDS = 3.0
"""Slurm's controller serves everybody: it is not asked more often."""
REASON_LINES = 10
REHEARSAL = " (rehearsal)"
_SEE_LOG = re.compile(r"see logs/([\w.-]+\.log)")
_COLOURS = {"done": "green", "failed": "bold red", "queued": "yellow"}

Look = Callable[[], tuple[list[RunStatus], str]]


def board(statuses: Sequence[RunStatus], problem: str) -> Group:
    """The table, and below it whatever kept Slurm from answering."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("run", "job", "state", "stage", "points", "ETA", "more"):
        table.add_column(name, header_style="dim", overflow="fold", no_wrap=name in ("job", "points", "ETA"))
    for one in statuses:
        table.add_row(
            f"{one.folder.name}{REHEARSAL if one.rehearsal else ''}",
            one.job or "-",
            one.state.lower().replace("_", " "),
            Text(one.stage, style=_COLOURS.get(one.stage, "cyan" if one.live else "")),
            f"{one.points[0]}/{one.points[1]}",
            eta_text(one.eta),
            Text(more(one)),
        )
    return Group(table, *([Text(f"Slurm: {problem}", style="yellow")] if problem else []))


def reason(one: RunStatus) -> Group:
    """The whole reason why a run failed, and the end of the log that it points to."""
    lines = [Text(line) for line in one.error.splitlines()]
    named = _SEE_LOG.search(one.error)
    if named:
        log = one.folder / "logs" / named[1]
        lines += [Text(f"  | {redact(line)}", style="dim") for line in tail(log, REASON_LINES)[0]]
    return Group(*lines)


def more(one: RunStatus) -> str:
    """The first line of the reason for a failure, else the note of the stage."""
    error = one.error.partition("\n")[0]
    return f"{error} ({one.note})" if error and one.note else error or one.note


def eta_text(eta: Eta | None) -> str:
    """`gate in 3 min`; empty when it cannot be told."""
    if eta is None:
        return ""
    span = f"{eta.seconds:.0f} s" if eta.seconds < 100 else f"{eta.seconds / 60:.0f} min"
    if eta.seconds >= 6000:
        span = f"{dt.timedelta(minutes=round(eta.seconds / 60))}"[:-3] + " h"
    return f"{eta.of} in {span}"


def watch_board(console: Console, look: Look) -> None:
    """Show the table until every run has ended: live in a terminal, elsewhere a line per change."""
    if not console.is_terminal:
        _lines(console, look)
        return
    with Live(console=console, auto_refresh=False) as live:
        while True:
            statuses, problem = look()
            live.update(board(statuses, problem), refresh=True)
            if not any(one.live for one in statuses):
                return
            time.sleep(WATCH_SECONDS)


def _lines(console: Console, look: Look) -> None:
    told: dict[str, str] = {}
    while True:
        statuses, problem = look()
        for one in statuses:
            line = f"{one.state.lower()}, {one.stage}" + (f": {more(one)}" if one.error else "")
            if told.get(one.folder.name) != line:
                name = f"{one.folder.name}{REHEARSAL if one.rehearsal else ''}"
                console.print(f"{time.strftime('%H:%M:%S')}  {name}  {line}", highlight=False, soft_wrap=True)
            told[one.folder.name] = line
        if problem and told.get("") != problem:
            told[""] = problem
            console.print(f"Slurm: {problem}", highlight=False, soft_wrap=True)
        if not any(one.live for one in statuses):
            return
        time.sleep(WATCH_SECONDS)

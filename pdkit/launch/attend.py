"""Staying with submitted runs until they have ended: the board, the reports, one exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pdkit.errors import ClusterError, EngineError, InterruptedRunError
from pdkit.job.audit import doubts
from pdkit.launch.board import reason, watch_board
from pdkit.launch.status import RunStatus, status_of
from pdkit.results.report import build_report

_ENDED_BY_SLURM = ("CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "DEADLINE", "REVOKED")


def attend(folders: Sequence[Path], console: Console) -> int:
    """Show the board until every run has ended and write their reports; the first exit code that is not 0."""
    watch_board(console, lambda: status_of(folders))
    ended = status_of(folders)[0]
    for one in ended:
        if one.error:
            console.print(reason(one))
        elif one.rehearsal:
            console.print(f"{one.folder.name}: {one.note}", highlight=False, soft_wrap=True)
        page = build_report([one.folder], [], one.folder / "report.html", doubts)
        console.print(f"report: {page}", highlight=False, soft_wrap=True)
    return next((code for code in map(exit_code, ended) if code), 0)


def exit_code(one: RunStatus) -> int:
    """The exit code of a run that has ended; its own where it left one."""
    if one.exit_code is not None:
        return one.exit_code
    if one.state in _ENDED_BY_SLURM:
        return InterruptedRunError.exit_code
    return ClusterError.exit_code if one.state in ("FORGOTTEN", "UNKNOWN") else EngineError.exit_code

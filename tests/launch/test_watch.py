"""What a person sees of a local run."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from pdkit.job.events import emit
from pdkit.launch import processes
from pdkit.launch.local import Supervisor
from pdkit.launch.watch import View, describe, watching


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    """A run of two steps, one of which has ended."""
    guard = processes.Guard("no such run")
    one = Supervisor(tmp_path, dict(os.environ), "no such run", guard)
    for name, script in (
        ("prefill0", "echo loading; sleep 60"),
        ("decode0", r"printf '\033[31mgone\033[0m\n'; exit 3"),
    ):
        log = tmp_path / "logs" / f"{name}.log"
        one.steps.append(processes.start(name, ["sh", "-c", script], log=log, environment=os.environ))
    while one.steps[1].ended() is None or not one.steps[0].log.read_text():
        time.sleep(0.01)
    yield one
    processes.stop(one.steps, 5)
    guard.dismiss()


def shown(view: View) -> str:
    assert isinstance(view.console.file, io.StringIO)
    return view.console.file.getvalue()


def test_the_table_has_a_row_for_every_process(supervisor: Supervisor) -> None:
    view = View(Console(file=io.StringIO(), width=100))
    view.console.print(view.table(supervisor))
    rows = [line.split() for line in shown(view).splitlines()]
    assert rows[0] == ["process", "state", "seconds", "last", "line", "of", "its", "log"]
    assert [[*row[:2], row[-1]] for row in rows[1:3]] == [
        ["prefill0", "running", "loading"],
        ["decode0", "ended", "gone"],
    ]
    assert rows[2][2] == "3"
    assert rows[-1] == ["starting"]


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_long_log_line_leaves_room_for_the_other_columns(supervisor: Supervisor, width: int) -> None:
    with supervisor.steps[0].log.open("a") as log:
        log.write("2026-11-29T20:20:51.975516Z  INFO dynamo_llm: " + "loading weights " * 20 + "\n")
        log.write("2026-11-29T20:21:41.025509Z ERROR tower_http::trace::on_failure: response failed\n")
    view = View(Console(file=io.StringIO(), width=width))
    view.console.print(view.table(supervisor))
    lines = shown(view).splitlines()
    assert lines[1].split()[:2] == ["prefill0", "running"]
    assert " INFO dynamo_llm: " in lines[1]
    assert "2026-11-29" not in lines[1]
    assert lines[1].endswith("\N{HORIZONTAL ELLIPSIS}")
    assert lines[2].split()[:3] == ["decode0", "ended", "3"]
    assert max(map(len, lines)) <= width


def test_each_event_is_told_once_and_those_of_earlier_launches_never(supervisor: Supervisor) -> None:
    folder = supervisor.folder
    emit(folder, "launched", run_id="a", set_aside=None)
    emit(folder, "failed", exit_code=4, message="x")
    emit(folder, "launched", run_id="b", set_aside="earlier/1")
    view = View(Console(file=io.StringIO(), width=100))
    view.print_news(supervisor)
    emit(folder, "stage", stage="ready")
    for _ in range(2):
        view.print_news(supervisor)
    assert [line.split("  ")[1] for line in shown(view).splitlines()] == [
        "going on; what was there is now in earlier/1",
        "stage: ready",
    ]


def test_a_terminal_gets_a_table_and_a_file_gets_lines(supervisor: Supervisor) -> None:
    emit(supervisor.folder, "started", step="prefill0", pid=1)
    seen = {}
    for terminal in (True, False):
        console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
        with watching(console) as watch:
            watch(supervisor)
            time.sleep(0.3)
        assert isinstance(console.file, io.StringIO)
        seen[terminal] = console.file.getvalue()
    assert "last line of its log" in seen[True]
    assert "started prefill0" in seen[True]
    assert seen[False].endswith("  started prefill0\n")
    assert len(seen[False].splitlines()) == 1


def test_events_without_words_are_silent() -> None:
    assert describe({"event": "launched", "set_aside": None}) == ""
    assert describe({"event": "of another version"}) == ""

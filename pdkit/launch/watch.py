"""What a person sees while a local run goes on: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pdkit.job.events import read_events
from pdkit.job.logwatch import last_lines
from pdkit.launch.local import Supervisor, Watch

REFRESH_SECONDS = 0.5
_TIME = re.compile(r"^\d{4}-\d\d-\d\d[T ][\d:.]+Z?\s*")

_OURS = ("tower_http::trace", "http response sent")
"""What Dynamo's servers log of pdkit's own questions to them, often as an error; it hides what the engine is doing."""


@contextmanager
def watching(console: Console) -> Iterator[Watch]:
    """A `watch` for the local launcher."""
    view = View(console)
    if not console.is_terminal:
        yield view.print_news
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:

        def refresh(supervisor: Supervisor) -> None:
            view.print_news(supervisor)
            if view.due():
                live.update(view.table(supervisor))

        yield refresh


class View:
    """Turns events and logs into lines and a table."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.told: int | None = None
        self.looked = 0.0
        self.stage = "starting"

    def due(self) -> bool:
        """Whether it is time to redraw."""
        now = time.monotonic()
        if now - self.looked < REFRESH_SECONDS:
            return False
        self.looked = now
        return True

    def print_news(self, supervisor: Supervisor) -> None:
        """Print the events since the last call."""
        events = read_events(supervisor.folder)
        if self.told is None:  # what an earlier run of this folder has told is no news
            self.told = max((n for n, event in enumerate(events) if event["event"] == "launched"), default=0)
        for event in events[self.told :]:
            line = describe(event)
            self.stage = line or self.stage
            if line and (event["event"] != "progress" or not self.console.is_terminal):
                self.console.print(f"{event['time'][11:19]}  {line}", highlight=False, soft_wrap=True)
        self.told = len(events)

    def table(self, supervisor: Supervisor) -> Group:
        """Every process with its state, seconds and last log line, and the stage below."""
        table = Table(box=None, padding=(0, 2, 0, 0), expand=True, pad_edge=False)
        for name in ("process", "state", "seconds"):
            table.add_column(name, header_style="dim", no_wrap=True)
        # a ratio, so that long lines take what the other columns leave
        table.add_column("last line of its log", header_style="dim", no_wrap=True, ratio=1)
        for one in supervisor.steps:
            code = one.ended()
            state = Text("running", "green") if code is None else Text(f"ended {code}", "red")
            table.add_row(one.name, state, f"{one.seconds:.0f}", last_line(one.log))
        return Group(table, Text(self.stage, style="bold"))


def last_line(log: Path) -> Text:
    """The last line that a process wrote, without its time: the table is of now."""
    lines = [line for line in last_lines(log) if not any(word in line for word in _OURS)]
    line = lines[-1] if lines else ""
    return Text(_TIME.sub("", line), style="dim", overflow="ellipsis")


def describe(event: dict[str, Any]) -> str:
    """An event in a person's words; empty for one that needs none."""
    texts = {
        "launched": "going on; what was there is now in {set_aside}" if event.get("set_aside") else "",
        "started": "started {step}",
        "stage": "stage: {stage}",
        "progress": "{stage}: {note}",
        "ready": "ready proven after {seconds} s: {engines} engine ranks report what was planned, KV moves",
        "passed": "gate passed: accuracy {accuracy:.4f}",
        "voided": "point at concurrency {concurrency} is not believed and measured again: {why}",
        "point": "point at concurrency {concurrency}: {state}",
        "swept": "sweep done: {points} points",
        "done": "done: {message}",
        "failed": "failed with exit code {exit_code}",
    }
    return texts.get(event["event"], "").format(**event)

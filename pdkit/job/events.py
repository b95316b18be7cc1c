"""`events.jsonl`: one line per event of a run's life, appended by whoever sees it."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

FILE = "events.jsonl"


def emit(folder: Path, event: str, **fields: Any) -> None:
    """Append one event; a single short write, so lines of several writers never mix."""
    now = dt.datetime.now(dt.timezone.utc).isoformat(timespec="milliseconds")
    line = json.dumps({"time": now, "event": event, **fields}, ensure_ascii=False).encode() + b"\n"
    descriptor = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        while line:  # the second turn of a full disk raises
            line = line[os.write(descriptor, line) :]
    finally:
        os.close(descriptor)


def read_events(folder: Path) -> list[dict[str, Any]]:
    """All events so far; half a line, left by a writer that was killed or a disk that was full, is left out."""
    try:
        # by bytes: a message may hold characters that end lines of text, such as U+2028
        lines = (folder / FILE).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    return [event for line in lines[:-1] if (event := _event(line)) is not None]


def _event(line: bytes) -> dict[str, Any] | None:
    """The event of a line, or the whole one that was written behind half of another."""
    for start in (line, line[line.rfind(b'{"time": ') :]):
        try:
            event: dict[str, Any] = json.loads(start)
        except ValueError:
            continue
        return event
    return None

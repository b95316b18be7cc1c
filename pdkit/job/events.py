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
    line = json.dumps({"time": now, "event": event, **fields}, ensure_ascii=False) + "\n"
    descriptor = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def read_events(folder: Path) -> list[dict[str, Any]]:
    """All events so far; a half-written last line is left out."""
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

"""What a fake engine lies about, and when.

FAKE_LIES holds lies, separated by `;`, or `@FILE` with one lie a line, read again at each look. A lie is
`[STAGE/]NAME:LIE[=VALUE]`: NAME is a process, or a role for all its processes; with a stage (`ready`, `gate`, `sweep`)
it is told only then. The lies of an engine:

    block-size=N kv-blocks=N ranks=N        what it reports of itself
    exit-at-start unready                   how it starts
    stubborn detached-core                  how it ends: not by TERM; its core in a session of its own
    http-500 error-body empty truncated garbage slow=SECONDS crowded=N (wrong above N requests at once)
    recompute failed-transfers first-blocks kv-mb-s=RATE    how KV arrives
    keeps-kv=SHARE no-kv-usage acceptance=SHARE             what it counts of its KV and its drafts
    log=LINE die unregister no-metrics      what happens to it
    only-first                              the router: all work goes to the first worker of each role
    blocks=FILE                             a folder stands where FILE of the run folder must be written
"""

from __future__ import annotations

import json
import os
from pathlib import Path


def told(name: str) -> dict[str, str]:
    """The lies that the process `name` tells now."""
    text = os.environ.get("FAKE_LIES", "")
    if text.startswith("@"):
        file = Path(text[1:])
        text = file.read_text().replace("\n", ";") if file.exists() else ""
    found = {}
    for one in filter(None, map(str.strip, text.split(";"))):
        who, _, lie = one.partition(":")
        when, _, who = who.rpartition("/")
        if who in (name, name.rstrip("0123456789")) and (not when or when == stage()):
            key, _, value = lie.partition("=")
            found[key] = value
    return found


def stage() -> str:
    """The stage of the run, as its event file tells."""
    file = Path(os.environ.get("RUN_DIR", "")) / "events.jsonl"
    if not file.is_file():
        return ""
    events = [json.loads(line) for line in file.read_bytes().split(b"\n") if line.endswith(b"}")]
    stages = [event["stage"] for event in events if event["event"] == "stage"]
    return str(stages[-1]) if stages else ""

"""A fake engines' environment: what `--engines` takes, with Dynamo, vLLM and the load tool as small real processes."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

SITE = Path(__file__).parent / "site"
LOAD_TOOL = Path(__file__).parents[1] / "job" / "fake_load_tool.py"


def make_engines(folder: Path) -> Path:
    """An environment in `folder`: bin/python3 finds the fake packages first, bin/vllm is the fake load tool.

    FAKE_LOAD=LIE is the load tool's own (see fake_load_tool.py); FAKE_LOAD=N=LIE lies at concurrency N only, and
    FAKE_LOAD=@FILE as the file then says.
    """
    python = shlex.quote(sys.executable)
    _script(
        folder / "bin" / "python3",
        f'export PYTHONPATH={shlex.quote(str(SITE))}"${{PYTHONPATH:+:$PYTHONPATH}}"\nexec {python} "$@"\n',
    )
    _script(
        folder / "bin" / "vllm",
        '[ "$1 $2" = "bench serve" ] || exit 2\nshift 2\n'
        'case "$FAKE_LOAD" in @*) FAKE_LOAD=$(cat "${FAKE_LOAD#@}") ;; esac\n'
        'case "$FAKE_LOAD/ $* " in\n'
        '  *=*/*" --max-concurrency ${FAKE_LOAD%%=*} "*) FAKE_LOAD=${FAKE_LOAD#*=} ;;\n'
        "  *=*/*) FAKE_LOAD= ;;\n"
        "esac\n"
        "export FAKE_LOAD\n"
        f'export FAKE_CALLS="$RUN_DIR/load-calls"\nexec {python} {shlex.quote(str(LOAD_TOOL))} "$@"\n',
    )
    return folder


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)

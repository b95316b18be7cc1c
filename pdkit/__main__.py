"""The `pdkit` command as a process: Ctrl-C ends it with one word and exit code 8, from its first line on."""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 8
"""As in pdkit/errors.py, which takes its time to import."""


def main() -> None:
    """Run the command line. Its imports take longer than a finger needs for Ctrl-C, so they come second."""
    signal.signal(signal.SIGINT, _leave)
    from pdkit.cli import main as command_line  # noqa: PLC0415

    command_line()


def _leave(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)  # nothing is begun yet, and an import may swallow what is raised in it


if __name__ == "__main__":
    main()

"""What outlives a launcher that was killed: it ends the processes that the launcher has started.

    python3 -m pdkit.launch.guard RUN_ID

Reads the process ids of the steps from its input, one a line. Should the input end before the line `done`, the launcher
has died: the kernel has then sent TERM to the steps, and what is left of them after a grace is killed here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from pdkit.launch.processes import sweep

GRACE_SECONDS = 8.0
"""Dynamo drains for 5 s, vLLM's cores take 2 to 3 more."""


def main() -> None:
    """Wait for the launcher's end, and clean up behind it when it did not itself."""
    groups = []
    for line in sys.stdin:
        if line == "done\n":
            return
        groups.append(int(line))
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline and any(_alive(group) for group in groups):
        time.sleep(0.1)
    for group in filter(_alive, groups):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    sweep(sys.argv[1])


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main()

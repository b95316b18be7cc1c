"""The logs of a run, with secrets taken out: the end of each, or on and on while it runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pdkit.errors import UsageError
from pdkit.launch.redact import known_secrets, redact
from pdkit.recipe.load import nearest

POLL_SECONDS = 0.3
BLOCK = 1 << 16


def log_files(folder: Path, step: str | None) -> list[Path]:
    """The logs of a run, or the one of a step. Raises UsageError that names the steps when it has none."""
    found = sorted(
        (folder / "logs").glob("*.log"), key=lambda file: (file.stem != "job", file.stem != "driver", file.stem)
    )
    if step is None:
        return found
    names = [file.stem for file in found] + [file.stem for file in sorted((folder / "steps").glob("*.sh"))]
    if step not in names:
        raise UsageError(f"no step `{step}` in {folder}", fix=nearest(step, dict.fromkeys(names)))
    return [folder / "logs" / f"{step}.log"]


def tail(file: Path, lines: int) -> tuple[list[str], int]:
    """The last lines of a file (0: all), and where it ended; nothing of one that is not there yet."""
    try:
        stream = file.open("rb")
    except FileNotFoundError:
        return [], 0
    with stream:
        end = start = stream.seek(0, os.SEEK_END)
        found = b""
        while start > 0 and (not lines or found.count(b"\n") <= lines):
            size = min(BLOCK, start)
            start = stream.seek(start - size)
            found = stream.read(size) + found
    text = found.decode("utf-8", "replace").splitlines()
    return text[-lines:] if lines else text, end


class Follower:
    """Reads what logs gain, line by line."""

    def __init__(self, files: Callable[[], list[Path]]) -> None:
        self.files = files
        self.read: dict[Path, int] = {}

    def begin(self, lines: int) -> Iterator[tuple[str, str]]:
        """The last lines of each log, with the name of its step."""
        for file in self.files():
            found, self.read[file] = tail(file, lines)
            yield from ((file.stem, line) for line in found)

    def news(self) -> Iterator[tuple[str, str]]:
        """What was written since; a line that is not complete yet waits."""
        for file in self.files():
            yield from ((file.stem, line) for line in self._gained(file))

    def _gained(self, file: Path) -> list[str]:
        try:
            with file.open("rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                # shorter than before: a new attempt has begun it anew
                known = self.read.get(file, 0)
                stream.seek(known if known <= size else 0)
                new = stream.read()
                whole = new[: new.rfind(b"\n") + 1]
                self.read[file] = stream.tell() - len(new) + len(whole)
        except FileNotFoundError:
            return []
        return whole.decode("utf-8", "replace").splitlines()


def show_logs(
    folder: Path, step: str | None, *, lines: int, follow: bool, ended: Callable[[], bool], say: Callable[[str], object]
) -> None:
    """Print logs, each line with the name of its step unless one was named; with `follow` until the run has ended."""
    secrets = known_secrets()
    follower = Follower(lambda: log_files(folder, step))

    def show(found: Iterator[tuple[str, str]]) -> None:
        for name, line in found:
            say(redact(line if step else f"{name:12s} | {line}", secrets))

    show(follower.begin(lines))
    while follow:
        over = ended()
        show(follower.news())
        if over:
            return
        time.sleep(POLL_SECONDS)

"""Running the machine's programs, and finding and ending the processes that belong to a rack."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pdkit.errors import ClusterError

# The daemons live in sbin, which a Debian user's PATH does not hold.
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"))


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a node."""

    pid: int
    name: str
    """The kernel's short name, at most 15 characters."""
    command: tuple[str, ...]


def find(program: str) -> str | None:
    """The full path of `program`, or None."""
    return shutil.which(program, path=_PATH)


def run(
    argv: Sequence[str | Path], *, text: str = "", timeout_s: float = 30, environment: Mapping[str, str] | None = None
) -> str:
    """Run a program to its end and return what it printed; anything but exit code 0 is a ClusterError."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=text,
            env={**os.environ, "PATH": _PATH, "LC_ALL": "C.UTF-8", **(environment or {})},
            text=True,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{_shown(words)} gave no answer in {timeout_s:g} s") from error
    except OSError as error:
        raise ClusterError(f"{words[0]} cannot be started: {error.strerror}") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise ClusterError(f"{_shown(words)} ended with {done.returncode}: {' | '.join(said) or 'without a word'}")
    return done.stdout


def _shown(words: Sequence[str]) -> str:
    line = " ".join(words)
    return line if len(line) <= 160 else f"{line[:160]}..."


def processes(namespaces: Sequence[str]) -> dict[str, list[Process]]:
    """The processes of each network namespace, and those that left it but stayed in the cgroup of its node."""
    paths = {name: Path("/run/netns") / name for name in namespaces}
    inodes = {_inode(path): name for name, path in paths.items() if path.exists()}
    found: dict[str, list[Process]] = {name: [] for name in namespaces}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        # A process may end while we look at it.
        with contextlib.suppress(OSError):
            name = inodes.get(_inode(entry / "ns" / "net")) or _cgroup_of(entry, namespaces)
            if name:
                command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
                short = (entry / "comm").read_text(encoding="utf-8", errors="replace").strip()
                if command:  # an ended process that nobody has waited for has none
                    found[name].append(Process(int(entry.name), short, tuple(command)))
    return found


def _inode(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _cgroup_of(entry: Path, namespaces: Sequence[str]) -> str | None:
    # Slurm names the cgroup of a node slurm_NODE when several slurmd share a machine.
    for line in (entry / "cgroup").read_text(encoding="utf-8").splitlines():
        _, _, place = line.partition(":/slurm_")
        name = place.partition("/")[0]
        if name in namespaces:
            return name
    return None


def end_all(listing: Callable[[], Sequence[Process]], *, deadline_s: float = 10) -> None:
    """Kill what `listing` names until it names nothing: a process may start another while we kill it."""
    end = time.monotonic() + deadline_s
    while left := listing():
        if time.monotonic() > end:
            raise ClusterError(
                f"processes do not end: {', '.join(f'{process.pid} {process.name}' for process in left[:5])}",
                fix="look at their state in `ps -o pid,stat,wchan:20,args -p PID`",
            )
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.02)


def terminate(process: Process, *, deadline_s: float = 10) -> None:
    """Ask one process to end, and wait for it; the caller kills what is left."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    end = time.monotonic() + deadline_s
    while _runs(process.pid) and time.monotonic() < end:
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False

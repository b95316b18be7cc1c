"""Text that is only known when the job runs: node addresses and the run folder, inside otherwise fixed strings."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a node of the job, counted from 0."""

    node: int


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The run folder, wherever it is mounted."""


@dataclass(frozen=True, slots=True)
class Text:
    """Fixed and late parts in a row."""

    parts: tuple[str | Address | RunFolder, ...]


Value = str | Address | RunFolder | Text


def join(*parts: str | Address | RunFolder) -> Text:
    """A text out of parts."""
    return Text(parts)


def fill(value: Value, address: Callable[[int], str], run_folder: str) -> str:
    """The final string, once addresses and run folder are known."""
    if isinstance(value, Text):
        return "".join(fill(part, address, run_folder) for part in value.parts)
    if isinstance(value, Address):
        return address(value.node)
    return run_folder if isinstance(value, RunFolder) else value


def to_shell(value: Value) -> str:
    """One shell word: fixed parts quoted, late parts as the variables that `job.sbatch` exports."""
    if isinstance(value, Text):
        return "".join(to_shell(part) for part in value.parts if part != "")
    if isinstance(value, Address):
        return f'"${{NODE_IP_{value.node}}}"'
    return '"${RUN_DIR}"' if isinstance(value, RunFolder) else shlex.quote(value)

"""Which files are srt-slurm's; `pdkit check` asks here, so that its own recipes pay nothing for the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pdkit import commands
from pdkit.commands import Checked, recipe_files
from pdkit.errors import UsageError
from pdkit.files import open_regular
from pdkit.recipe.source import LARGEST_FILE

_THEIRS = re.compile(rb"^(?:backend|resources|roles|base)[ \t]*:", re.MULTILINE)
_OURS = re.compile(rb"^(?:extends|prefill|decode|agg|common|workload)[ \t]*:", re.MULTILINE)


def is_srt_file(path: Path) -> bool:
    """Whether a file looks like an srt-slurm recipe; one that cannot be read does not."""
    try:
        with open_regular(path) as stream:
            text = stream.read(LARGEST_FILE)
    except OSError:
        return False
    return bool(_THEIRS.search(text)) and not _OURS.search(text)


def checked_files(paths: Iterable[Path], sets: tuple[str, ...] = ()) -> Iterator[Checked]:
    """As `pdkit.commands.checked_files`, with srt-slurm recipes among the files."""
    for file in recipe_files(paths):
        if not is_srt_file(file):
            yield from commands.checked_files([file], sets)
        elif sets:
            fix = "import it first, or change the file"
            raise UsageError(f"{file}: --set changes recipes of pdkit, this is one of srt-slurm", fix=fix)
        else:
            from pdkit.interop.check import checked  # noqa: PLC0415  (only where there is such a file)

            yield checked(file)

"""Converting srt-slurm files and folders: which recipe goes to which file, and what a script reads about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pdkit.commands import recipe_files
from pdkit.errors import Finding, RecipeError, UsageError
from pdkit.files import write_text
from pdkit.interop.files import is_srt_file
from pdkit.interop.srt import read_srt
from pdkit.interop.types import Imported


@dataclass(slots=True)
class Outcome:
    """What became of one file."""

    file: Path
    recipes: tuple[Imported, ...] = ()
    faults: tuple[Finding, ...] = ()
    """Why it was refused; empty when it was not."""
    written: list[Path] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Things of the original that are dropped or changed, over all its recipes."""
        return len({str(note) for one in self.recipes for note in one.notes if note.kind != "added"})


def outcomes(path: Path) -> Iterator[Outcome]:
    """Read a file, or every srt-slurm file below a folder; a refused one becomes an outcome, too."""
    for file in recipe_files([path]) if path.is_dir() else [path]:
        if path.is_dir() and not is_srt_file(file):
            continue
        try:
            yield Outcome(file, read_srt(file))
        except RecipeError as error:
            yield Outcome(file, faults=error.findings)


def write(found: Iterable[Outcome], source: Path, output: Path) -> None:
    """Write each recipe: to `output` itself when it is one, else below it as the originals lie below `source`.

    Raises UsageError when two recipes would go to one file, or one over an original.
    """
    found = list(found)
    originals = {one.file.resolve() for one in found}
    single = sum(len(one.recipes) for one in found) == 1 and not source.is_dir() and not output.is_dir()
    targets: dict[Path, Imported] = {}
    for one in found:
        folder = output / (one.file.parent.relative_to(source) if source.is_dir() else "")
        for recipe in one.recipes:
            name = one.file.stem if len(one.recipes) == 1 else recipe.name
            target = output if single else folder / f"{name}.yaml"
            if target in targets:
                raise UsageError(f"two recipes would be written to {target}", fix="give them different names")
            if target.resolve() in originals:
                raise UsageError(
                    f"{target} is an original, and would be overwritten", fix="name another file or folder"
                )
            targets[target] = recipe
            one.written.append(target)
    for target, recipe in targets.items():
        write_text(target, recipe.text)


def import_data(found: Iterable[Outcome]) -> dict[str, Any]:
    """The JSON of `pdkit import --json`."""
    return {"schema": 1, "files": [_file_data(one) for one in found]}


def _file_data(one: Outcome) -> dict[str, Any]:
    return {
        "file": str(one.file),
        "recipes": [
            {
                "name": recipe.name,
                "variant": recipe.srt.variant,
                "written": str(one.written[index]) if one.written else None,
                "text": recipe.text,
                "notes": [asdict(note) for note in recipe.notes],
                "findings": [asdict(finding) for finding in recipe.findings],
            }
            for index, recipe in enumerate(one.recipes)
        ],
        "refused": [asdict(finding) for finding in one.faults],
    }

"""Writes the numbers in docs/interop.md: what becomes of the public srt-slurm recipes, and what the rules find in them.

    python docs/interop_numbers.py CLONE...

takes clones of the repositories that hold the recipes, such as NVIDIA/srt-slurm-recipes, NVIDIA/srt-slurm and
SemiAnalysisAI/InferenceX; each is counted by itself, and nothing of it may crash. A recipe that occurs in two of them
counts in both.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pdkit.errors import RecipeError
from pdkit.files import write_text
from pdkit.interop.check import findings_of
from pdkit.interop.files import is_srt_file
from pdkit.interop.srt import read_srt
from pdkit.interop.types import Imported
from pdkit.rules.catalogue import RULES

PAGE = Path(__file__).parent / "interop.md"
MARK = "<!-- Made by docs/interop_numbers.py; do not edit below. -->\n"
ENGINE, NOT_YAML = "PD122", ("PD101", "PD102")


@dataclass(slots=True)
class Numbers:
    """One repository."""

    name: str
    commit: str
    files: int = 0
    engines: int = 0
    """Files of another engine, refused."""
    faulty: list[str] = field(default_factory=list)
    """Files that cannot be read, with the code of the reason."""
    recipes: Counter[str] = field(default_factory=Counter)
    """vLLM recipes by schema and shape, every variant counted."""
    fates: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    rules: Counter[tuple[str, str]] = field(default_factory=Counter)
    """P/D recipes in which a rule finds something, by code and severity."""

    @property
    def variants(self) -> int:
        """All vLLM recipes."""
        return sum(self.recipes.values())


def count(clone: Path) -> Numbers:
    """Import and check every srt-slurm recipe of a clone."""
    numbers = Numbers(_name(clone), _git(clone, "rev-parse", "HEAD")[:9])
    for file in sorted([*clone.rglob("*.yaml"), *clone.rglob("*.yml")]):
        if not is_srt_file(file):
            continue
        numbers.files += 1
        try:
            found = read_srt(file)
        except RecipeError as error:
            if any(fault.code == ENGINE for fault in error.findings):
                numbers.engines += 1
            else:
                numbers.faulty.append(error.findings[0].code)
            continue
        for one in found:
            _add(numbers, one)
    return numbers


def _add(numbers: Numbers, one: Imported) -> None:
    paired = "prefill" in one.srt.roles
    numbers.recipes[f"schema {one.srt.schema}, {'P/D' if paired else 'aggregated'}"] += 1
    kinds = {note.kind for note in one.notes}
    fate = "with notes" if kinds - {"added"} else "defaults written out" if kinds else "clean"
    numbers.fates[fate] += 1
    numbers.notes.update({note.what for note in one.notes if note.kind != "added"})
    if paired:
        numbers.rules.update({(finding.code, finding.severity) for finding in findings_of(one)})


def _name(clone: Path) -> str:
    """`owner/name` of the remote, else the folder's name; a mirror's `owner+name` counts as well."""
    parts = _git(clone, "config", "--get", "remote.origin.url").removesuffix(".git").rstrip("/").split("/")
    named = next((part.replace("+", "/") for part in parts if "+" in part), "")
    return named or "/".join(parts[-2:]) or clone.name


def _git(clone: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(clone), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def page(all_numbers: list[Numbers]) -> Iterator[str]:
    """The section with the numbers."""
    names = [f"{one.name}<br>at {one.commit}" for one in all_numbers]
    yield from _table("", names, _import_rows(all_numbers))
    if not any(shape.startswith("schema 2") for one in all_numbers for shape in one.recipes):
        yield "\nNo recipe of these revisions is written in schema 2; the shapes in `tests/interop/srt` stand for it.\n"
    yield "\nWhat is most often noted, by the setting of the original and the number of recipes:\n"
    notes = sum((one.notes for one in all_numbers), Counter[str]())
    often = sorted(notes.items(), key=lambda note: (-note[1], note[0]))[:12]  # of equal numbers always the same
    yield "\n" + ", ".join(f"`{what}` {number}" for what, number in often) + ".\n"
    yield "\nP/D recipes in which a rule finds something; a rule that needs facts of an unknown model is not run:\n\n"
    yield from _table("rule", names, _rule_rows(all_numbers))


def _import_rows(all_numbers: list[Numbers]) -> Iterator[list[str]]:
    shapes = sorted({shape for one in all_numbers for shape in one.recipes})
    yield ["srt-slurm files", *(str(one.files) for one in all_numbers)]
    yield ["refused: another engine", *(str(one.engines) for one in all_numbers)]
    yield ["refused: not readable", *(_faulty(one) for one in all_numbers)]
    for shape in shapes:
        yield [f"vLLM recipes, {shape}", *(str(one.recipes[shape]) for one in all_numbers)]
    for fate in ("clean", "defaults written out", "with notes"):
        yield [f"imported {fate}", *(str(one.fates[fate]) for one in all_numbers)]


def _faulty(one: Numbers) -> str:
    codes = Counter(one.faulty)
    return f"{len(one.faulty)} ({', '.join(sorted(codes))})" if codes else "0"


def _rule_rows(all_numbers: list[Numbers]) -> Iterator[list[str]]:
    titles = {rule.code: rule.title for rule in RULES}
    found = sorted({key for one in all_numbers for key in one.rules}, key=lambda key: (key[0], key[1]))
    for code, severity in found:
        what = f"[{code}](rules/{code}.md) {titles[code]}" if code in titles else f"{code}, from reading"
        yield [f"{what} ({severity})", *(str(one.rules[code, severity]) for one in all_numbers)]


def _table(corner: str, names: Iterable[str], rows: Iterable[list[str]]) -> Iterator[str]:
    names = list(names)
    yield f"| {' | '.join([corner, *names])} |\n|{'---|' * (len(names) + 1)}\n"
    for row in rows:
        yield f"| {' | '.join(row)} |\n"


def main(clones: list[Path]) -> None:
    """Rewrite the section of the page."""
    head, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{PAGE} has lost its mark"
    write_text(PAGE, head + mark + "\n" + "".join(page([count(clone) for clone in clones])))


if __name__ == "__main__":
    if len(sys.argv) < 2 or not all(Path(name, ".git").exists() for name in sys.argv[1:]):
        sys.exit(__doc__)
    main([Path(name) for name in sys.argv[1:]])

"""What a person sees of an import."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pdkit.interop.importing import Outcome
from pdkit.interop.types import Note
from pdkit.show import show_findings

STYLES = {"dropped": "yellow", "changed": "cyan", "added": "dim"}


def show_notes(console: Console, found: Sequence[Outcome]) -> None:
    """Each note once, under the place in the original, then faults of the original."""
    for one in found:
        for note in dict.fromkeys(note for recipe in one.recipes for note in recipe.notes):
            console.print(_line(note), soft_wrap=True)
        show_findings(console, dict.fromkeys(fault for recipe in one.recipes for fault in recipe.findings))
        show_findings(console, one.faults)


def _line(note: Note) -> Text:
    return Text.assemble(f"{note.at}: ", (note.kind, STYLES[note.kind]), f" {note.what}: {note.why}")


def show_summary(console: Console, found: Sequence[Outcome]) -> None:
    """One row per file: what it stands for and what is not carried over."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    for name, justify in (("file", "left"), ("recipes", "right"), ("dropped or changed", "right"), ("faults", "right")):
        table.add_column(name, header_style="dim", justify="right" if justify == "right" else "left")
    table.add_column("", header_style="dim")
    for one in found:
        faults = sum(len(recipe.findings) for recipe in one.recipes) + len(one.faults)
        state = Text("refused", style="red") if one.faults else Text("")
        table.add_row(str(one.file), str(len(one.recipes)), str(one.lost), str(faults), state)
    console.print(table)

"""What a person and a script see of a comparison: tables in a terminal, and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import takewhile
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pdkit.errors import Finding
from pdkit.interop.compare import Comparison
from pdkit.interop.compare_matrix import SIGNS, Matrix, shape_text, verdicts
from pdkit.interop.compare_rows import GROUPS
from pdkit.interop.compare_sides import Side

WIDE = 150
"""Columns from which a matrix has room for the whole words."""
LEAST_CUT = 6
"""A common beginning of fewer characters is not worth cutting."""
SHORT: dict[str, str] = {
    "software": "soft", "topology": "topo", "sizing": "size", "block size": "block", "connector": "conn",
    "environment": "env", "benchmark": "load", "accuracy": "acc", "names": "name",
}  # fmt: skip
STYLES = {"same": "dim", "same in effect": "cyan", "differs": "red", "only here": "yellow", "only there": "yellow"}


def show_comparison(console: Console, found: Comparison, *, everything: bool) -> None:
    """The settings that are not the same, or all of them, and the outcome."""
    console.print(Text(f"here   {_title(found.left)}"), Text(f"there  {_title(found.right)}"), sep="\n", soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    for name in ("role", "setting", "here", "there", "verdict", "why"):
        table.add_column(name, header_style="dim", overflow="fold")
    for one in found.rows:
        if everything or one.verdict != "same":
            verdict = Text(one.verdict, style=STYLES[one.verdict])
            cells = (one.role or one.group, one.what, one.left, one.right)
            table.add_row(*map(Text, cells), verdict, Text(one.why, style="dim"))
    if table.row_count:
        console.print(table)
    console.print(Text(outcome(found), style="green" if found.same_in_effect else "bold red"))


def _title(side: Side) -> str:
    return f"{side.name}  {side.kind}, {shape_text(side)}"


def outcome(found: Comparison) -> str:
    """One line: how many settings are the same, and whether anything has an effect."""
    counts = Counter(one.verdict for one in found.rows)
    parts = [f"{count} {verdict}" for verdict, count in counts.most_common()]
    deciding = sum(one.decides for one in found.rows)
    end = "nothing differs in effect" if not deciding else f"{deciding} differ in effect"
    return f"{len(found.rows)} settings: {', '.join(parts)}; {end}"


def show_matrix(console: Console, found: Matrix, faults: Sequence[Finding]) -> None:
    """One line per pair and one sign per group of settings."""
    narrow = console.width < WIDE
    ours, theirs = (
        _shortener([side.name for side in sides] if narrow else [])
        for sides in (
            [*(pair.left for pair in found.pairs), *found.only_left],
            [*(pair.right for pair in found.pairs), *found.only_right],
        )
    )
    table = Table(box=None, padding=(0, 1, 0, 0), show_edge=False)
    for group in GROUPS:
        table.add_column(SHORT.get(group, group) if narrow else group, header_style="dim", justify="center")
    table.add_column("here / there", header_style="dim", overflow="fold")
    for pair in found.pairs:
        signs = (Text(SIGNS[one], style=STYLES[one]) for one in verdicts(pair).values())
        table.add_row(*signs, Text("\n".join(dict.fromkeys((ours(pair.left.name), theirs(pair.right.name))))))
    none = [Text("")] * len(GROUPS)
    alone = [f"{ours(side.name)} (only here, no partner)" for side in found.only_left]
    alone += [f"{theirs(side.name)} (only there, no partner)" for side in found.only_right]
    for name in alone:
        table.add_row(*none, Text(name, style="yellow"))
    console.print(table)
    console.print(Text("  ".join(f"{sign} {name}" for name, sign in SIGNS.items()), style="dim"))
    for fault in faults:
        console.print(Text(str(fault), style="yellow"), soft_wrap=True)
    equal = sum(pair.same_in_effect for pair in found.pairs)
    line = (
        f"{len(found.pairs)} pairs, {equal} the same in effect; {len(alone)} without a partner; {len(faults)} not read"
    )
    console.print(Text(line, style="green" if found.same_in_effect and not faults else "bold red"))


def _shortener(names: list[str]) -> Callable[[str], str]:
    """Cuts off what all names begin with, up to a dash."""
    columns = zip(*(name.split("-")[:-1] for name in names), strict=False) if len(names) > 1 else ()
    length = sum(len(words[0]) + 1 for words in takewhile(lambda words: len(set(words)) == 1, columns))
    return lambda name: f"…{name[length:]}" if length >= LEAST_CUT else name


def comparison_data(found: Comparison) -> dict[str, Any]:
    """A comparison for scripts."""
    return {
        "schema": 1,
        "here": _side_data(found.left),
        "there": _side_data(found.right),
        "same_in_effect": found.same_in_effect,
        "rows": [{**asdict(one), "decides": one.decides} for one in found.rows],
    }


def _side_data(side: Side) -> dict[str, Any]:
    return {
        "file": side.file,
        "name": side.name,
        "kind": side.kind,
        "shape": shape_text(side),
        "notes": [str(note) for note in side.notes],
    }


def matrix_data(found: Matrix, faults: Sequence[Finding]) -> dict[str, Any]:
    """A matrix for scripts."""
    return {
        "schema": 1,
        "same_in_effect": found.same_in_effect and not faults,
        "pairs": [comparison_data(pair) for pair in found.pairs],
        "only_here": [_side_data(side) for side in found.only_left],
        "only_there": [_side_data(side) for side in found.only_right],
        "not_read": [asdict(fault) for fault in faults],
    }

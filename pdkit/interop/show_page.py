"""A comparison as one HTML page for a review, light and dark, that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from pdkit.errors import Finding
from pdkit.files import write_text
from pdkit.interop.compare import Comparison
from pdkit.interop.compare_matrix import SIGNS, Matrix, shape_text, verdicts
from pdkit.interop.compare_rows import GROUPS, Row
from pdkit.interop.show_compare import outcome

TEMPLATES = Path(__file__).parent / "templates"


def write_page(out: Path, found: Matrix, faults: Sequence[Finding]) -> None:
    """One HTML page that needs nothing else: the matrix, then every pair setting by setting."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("compare.html.j2").render(
        style=Markup((TEMPLATES / "compare.css").read_text(encoding="utf-8")),  # noqa: S704  (our own file)
        matrix=found,
        faults=faults,
        groups=GROUPS,
        signs=SIGNS,
        verdicts=verdicts,
        outcome=outcome,
        shape_text=shape_text,
        sections=_sections,
    )
    write_text(out, page)


def _sections(pair: Comparison, everything: bool) -> list[tuple[str, list[Row]]]:
    """The rows of a pair, all or those that are not the same, by role, and by group where they have none."""
    headings: dict[str, list[Row]] = {}
    for one in pair.rows:
        if everything or one.verdict != "same":
            headings.setdefault(one.role or one.group, []).append(one)
    return list(headings.items())

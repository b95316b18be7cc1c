"""`read_srt`: one srt-slurm file to pdkit recipes, one per variant, each part with its place in the original."""

from __future__ import annotations

from pathlib import Path

from pdkit.errors import RecipeError
from pdkit.interop.convert import convert, why_dropped
from pdkit.interop.reader import Read, read_recipe
from pdkit.interop.types import Imported
from pdkit.interop.variants import variants
from pdkit.recipe.load import validated


def read_srt(path: Path) -> tuple[Imported, ...]:
    """Every variant of an srt-slurm file as a pdkit recipe.

    Raises RecipeError: PD101, PD102 and PD105 for what is not YAML, PD120 for variants that do not expand, PD122 for
    an engine other than vLLM, and with every fault when a variant cannot be said as a recipe at all.
    """
    return tuple(_imported(read_recipe(name, source)) for name, source in variants(path))


def _imported(read: Read) -> Imported:
    draft = convert(read.recipe)
    for where in read.reading.unread():
        why = why_dropped(where)
        if why is not None:
            draft.note("dropped", where, why)
    findings = tuple(dict.fromkeys((*read.reading.findings, *draft.findings)))
    try:
        recipe = validated(draft.source)
    except RecipeError as error:
        raise RecipeError.of(*dict.fromkeys((*error.findings, *findings))) from None
    return Imported(
        name=recipe.name,
        recipe=recipe,
        source=draft.source,
        srt=read.recipe,
        notes=tuple(sorted(set(draft.notes), key=draft.notes.index)),
        findings=findings,
    )

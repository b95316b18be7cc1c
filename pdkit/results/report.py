"""`build_report`: from run folders to one HTML page that needs nothing else, with CSV, JSON and PNG beside it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pdkit.errors import UsageError
from pdkit.files import write_json, write_text
from pdkit.results import evidence
from pdkit.results.drawing import Corner, Drawing, draw, frontier_of
from pdkit.results.figures import glyph
from pdkit.results.imported import ImportedPoint
from pdkit.results.points import Point, voided
from pdkit.results.runs import Configuration, RunRecord, configurations, read_run
from pdkit.results.table import flat, to_csv

TEMPLATES = Path(__file__).parent / "templates"
Audit = Callable[[Path], Mapping[int, str]]
"""Why points of a run folder must not be used, by concurrency: `pdkit.job.audit.doubts`."""
DASH = "\N{EN DASH}"


def build_report(
    runs: Sequence[Path],
    imported: Sequence[ImportedPoint],
    out: Path,
    audit: Audit,
    left_out: Sequence[UsageError] = (),
) -> Path:
    """Write the report of some run folders to `out`, with .csv, .json and .png files beside it, and return `out`.

    A point that `audit` doubts is shown as an invalid one. A run without points, and a run that was `left_out` because
    it cannot be read, is told of at the top. Same folders, same bytes.
    """
    if not runs:
        raise UsageError("there is no run to report", fix="name at least one run folder")
    named = configurations([_audited(folder, audit) for folder in runs])
    corners = frontier_of(named)
    drawing = draw(named, imported)
    write_text(out, _page(named, corners, imported, drawing, left_out))
    write_text(out.with_suffix(".csv"), to_csv(_rows(named, corners)))
    write_json(out.with_suffix(".json"), _data(named, corners, imported))
    pictures = {
        out.with_suffix(".png"): drawing.frontier_png if drawing else None,
        out.with_name(f"{out.stem}-latency.png"): drawing.latency_png if drawing else None,
    }
    for path, content in pictures.items():
        if content is None:
            path.unlink(missing_ok=True)  # one of an earlier report would pass for this one's
        else:
            _write_bytes(path, content)
    return out


def _audited(folder: Path, audit: Audit) -> RunRecord:
    run = read_run(folder)
    doubts = audit(folder)
    return replace(run, points=tuple(voided(point, doubts) for point in run.points))


def _page(
    named: list[Configuration],
    corners: Sequence[Corner],
    imported: Sequence[ImportedPoint],
    drawing: Drawing | None,
    left_out: Sequence[UsageError],
) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "percent": percent, "short": short_digest}
    runs = [each.run for each in named]
    return environment.get_template("report.html.j2").render(
        style=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),  # noqa: S704  (our own file)
        configurations=named,
        corners={(each.label, point.concurrency) for each, point in corners},
        imported_labels=list(dict.fromkeys(point.label for point in imported)),
        drawing=drawing,
        headline=_headline(runs),
        cautions=_cautions(runs),
        left_out=left_out,
        evidence=evidence,
        glyph=glyph,
        best=_best,
    )


def _headline(runs: list[RunRecord]) -> str:
    models = dict.fromkeys(f"{run.plan.get('model', '')} on {run.plan.get('hardware', '')}" for run in runs)
    return f"{', '.join(models)}. {'; '.join(dict.fromkeys(map(_workload, runs)))}."


def _workload(run: RunRecord) -> str:
    load = run.plan.get("workload", {})
    return f"ISL {load.get('isl')}, OSL {load.get('osl')}"


def _cautions(runs: list[RunRecord]) -> list[str]:
    """Why points of these runs must not be laid beside each other without a thought."""
    runs = [run for run in runs if run.points]
    seen: dict[str, set[Any]] = {
        "models": {run.plan.get("model") for run in runs},
        "hardware": {run.plan.get("hardware") for run in runs},
        "workloads": {_workload(run) for run in runs},
        "load tools": {(point.tool, point.tool_version) for run in runs for point in run.points},
    }
    without_gpu = "cpu" in {run.plan.get("device") for run in runs}
    return ["On a machine without GPUs each engine counts as one: no figure here says what a GPU would do."] * (
        without_gpu
    ) + [
        f"These runs have different {what}: their points do not compare."
        for what, found in seen.items()
        if len(found) > 1
    ]


def _best(run: RunRecord, figure: str) -> Point | None:
    """The valid point of a run that is best by one of its figures."""
    candidates = [point for point in run.valid_points if getattr(point, figure) is not None]
    return max(candidates, key=lambda point: float(getattr(point, figure)), default=None)


def _rows(named: list[Configuration], corners: Sequence[Corner]) -> list[dict[str, Any]]:
    return [
        {
            "run": each.label,
            "configuration": each.run.configuration(),
            "on_frontier": (each, point) in corners,
            **flat(point),
        }
        for each in named
        for point in each.run.points
    ]


def _data(named: list[Configuration], corners: Sequence[Corner], imported: Sequence[ImportedPoint]) -> dict[str, Any]:
    return {
        "schema": 1,
        "runs": [
            {
                "run": each.label,
                "configuration": each.run.configuration(),
                "plan_digest": each.run.plan.get("digest"),
                "lock_digest": each.run.lock.digest if each.run.lock else None,
                "gate_digest": each.run.gate.gate_digest if each.run.gate else None,
                "points": [point.model_dump(mode="json", by_alias=True) for point in each.run.points],
            }
            for each in named
        ],
        "frontier": [{"run": each.label, "concurrency": point.concurrency} for each, point in corners],
        "imported": [
            {name: getattr(point, name) for name in ("label", "tok_s_gpu", "tok_s_user", "concurrency")}
            for point in imported
        ],
    }


def number(value: float | None, digits: int = 0) -> str:
    """A figure for a table, with thousands separated; a dash where there is none."""
    return DASH if value is None else f"{value:,.{digits}f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share as per cent; a dash where there is none."""
    return DASH if value is None else f"{100 * value:.{digits}f} %"


def short_digest(digest: str) -> str:
    """The first twelve digits of a digest."""
    return digest.removeprefix("sha256:")[:12]


def _write_bytes(path: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    Path(temporary).chmod(0o644)
    Path(temporary).replace(path)

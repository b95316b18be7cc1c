"""Points as flat rows: the columns of the CSV file and of nothing else, in an order that is kept."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

from pdkit.results.points import Latency, Point

LATENCIES = ("ttft", "tpot", "itl", "e2e")


def flat(point: Point) -> dict[str, Any]:
    """One point as one row."""
    nested = {*LATENCIES, "gpus_by_role", "total_tok_s_gpu_by_role", "output_tok_s_gpu_by_role"}
    nested |= {"acceptance", "spread", "boot_ids", "invalid_reasons", "notes", "schema_version"}
    row = {name: getattr(point, name) for name in Point.model_fields if name not in nested}
    for role, gpus in point.gpus_by_role.items():
        row[f"gpus_{role}"] = gpus
        row[f"total_tok_s_gpu_{role}"] = point.total_tok_s_gpu_by_role[role]
        row[f"output_tok_s_gpu_{role}"] = point.output_tok_s_gpu_by_role[role]
    for name in LATENCIES:
        latency: Latency | None = getattr(point, name)
        for key in Latency.model_fields:
            row[f"{name}_{key}"] = getattr(latency, key) if latency else None
    row["acceptance_rate"] = point.acceptance.rate if point.acceptance else None
    row["acceptance_length"] = point.acceptance.length if point.acceptance else None
    row["repeats"] = len(point.spread.output_tok_s)
    row["output_tok_s_relative_spread"] = point.spread.output_tok_s_relative
    row["invalid_reasons"] = "; ".join(point.invalid_reasons)
    row["notes"] = "; ".join(point.notes)
    return row


def to_csv(rows: Iterable[dict[str, Any]]) -> str:
    """Rows as CSV; a column that only some rows have is empty in the others."""
    rows = list(rows)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: "" if value is None else value for key, value in row.items()} for row in rows)
    return buffer.getvalue()

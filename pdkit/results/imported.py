"""Published points of other people, read from CSV, so that a curve can be drawn beside one's own."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from pdkit.errors import UsageError

REQUIRED = ("label", "tok_s_gpu", "tok_s_user")
OPTIONAL = ("concurrency",)
EXAMPLE = "label,tok_s_gpu,tok_s_user,concurrency"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedPoint:
    """One published point. What its tokens per second count is up to its publisher."""

    label: str
    """The curve that it belongs to."""
    tok_s_gpu: float
    """Tokens per second per GPU."""
    tok_s_user: float
    """Tokens per second per user."""
    concurrency: int | None = None
    """Requests in flight, where it was published."""


def read_imported(path: Path) -> tuple[ImportedPoint, ...]:
    """Read points from a CSV file with the columns label, tok_s_gpu, tok_s_user and, if known, concurrency.

    Lines that start with # are comments. Raises UsageError with file:line for the first thing that is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError):
        raise UsageError("there is no such file to import", at=str(path)) from None
    except UnicodeDecodeError:
        raise UsageError("this file is not UTF-8 text", at=str(path)) from None
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if _holds_data(line)]
    if not lines:
        raise UsageError("the file has no points", at=f"{path}:1", fix=f"the first line must be: {EXAMPLE}")
    columns = _columns(path, lines[0][0], lines[0][1])
    points = tuple(_point(f"{path}:{number}", line, columns) for number, line in lines[1:])
    if not points:
        raise UsageError("the file has a header but no points", at=f"{path}:{lines[0][0]}")
    return points


def _holds_data(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]


def _columns(path: Path, number: int, header: str) -> list[str]:
    columns = _cells(header)
    at = f"{path}:{number}"
    unknown = [name for name in columns if name not in REQUIRED + OPTIONAL]
    if unknown:
        raise UsageError(f"`{unknown[0]}` is not a column of imported points", at=at, fix=f"use: {EXAMPLE}")
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise UsageError(f"the column `{missing[0]}` is missing", at=at, fix=f"use: {EXAMPLE}")
    if len(set(columns)) != len(columns):
        raise UsageError("a column is named twice", at=at)
    return columns


def _point(at: str, line: str, columns: list[str]) -> ImportedPoint:
    cells = _cells(line)
    if len(cells) != len(columns):
        raise UsageError(f"{len(cells)} values, but the header names {len(columns)} columns", at=at)
    row = dict(zip(columns, cells, strict=True))
    if not row["label"]:
        raise UsageError("the label is empty", at=at)
    return ImportedPoint(
        label=row["label"],
        tok_s_gpu=_positive(at, row, "tok_s_gpu"),
        tok_s_user=_positive(at, row, "tok_s_user"),
        concurrency=_whole(at, row["concurrency"]) if row.get("concurrency") else None,
    )


def _positive(at: str, row: dict[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{column} must be a number above 0, not `{row[column]}`", at=at)
    return value


def _whole(at: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise UsageError(f"concurrency must be a whole number above 0, not `{text}`", at=at)
    return int(text)

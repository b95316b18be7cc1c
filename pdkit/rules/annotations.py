"""Findings as workflow commands of GitHub Actions, which shows them beside the changed lines."""

from __future__ import annotations

from pdkit.errors import Finding

KINDS = {"error": "error", "warning": "warning", "info": "notice"}
_VALUE = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_VALUE, ":": "%3A", ",": "%2C"}


def annotation(finding: Finding) -> str:
    """One line; a place that is no file is told in the message."""
    file, line, column = finding.at.rsplit(":", 2)
    typed = file.startswith("--set ")
    where = {} if typed else {"file": file, "line": line, "col": column}
    properties = ",".join(
        f"{name}={_escaped(value, _PROPERTY)}" for name, value in {**where, "title": finding.code}.items()
    )
    text = f"{f'{file}: ' if typed else ''}{finding.message}" + (f"\nfix: {finding.fix}" if finding.fix else "")
    return f"::{KINDS[finding.severity]} {properties}::{_escaped(text, _VALUE)}"


def _escaped(text: str, table: dict[str, str]) -> str:
    return "".join(table.get(letter, letter) for letter in text)

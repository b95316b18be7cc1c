"""A part of docs/rules/README.md: public failures, each with the rule or gate that catches it, or why none does."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

INTRODUCTION = """
160 failures that people have reported in public, and what pdkit does about each: a code is a rule before launch
(PD0xx, PD1xx) or a gate of the run (PD2xx). *Cannot happen* says why a recipe does not lead there; *not caught* says
why, or which part of it is not. `vllm#1` is vllm-project/vllm, the others are named as their repositories are.
"""


def failures_table(file: Path) -> str:
    """Heading, introduction, count and table."""
    records: list[dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    rule = sum(any(code < "PD2" for code in one.get("caught", ())) for one in records)
    gate = sum(bool(one.get("caught")) and all(code >= "PD2" for code in one["caught"]) for one in records)
    never = sum("caught" not in one and "never" in one for one in records)
    count = (
        f"{rule} are found before launch, {gate} only on running engines, {never} cannot happen, "
        f"{len(records) - rule - gate - never} are not caught."
    )
    text = " ".join(f"{INTRODUCTION} {count}".split())
    head = "| | public issue | failure | caught by | otherwise |\n|---|---|---|---|---|\n"
    rows = (
        f"| {one['id']} | {_joined(one['issues'])} | {one['what']} | {_codes(one)} | {_rest(one)} |" for one in records
    )
    return f"## Public failures\n\n{textwrap.fill(text, 120)}\n\n{head}" + "\n".join(rows) + "\n"


def _joined(issues: list[str]) -> str:
    return ", ".join(issues)


def _codes(record: dict[str, Any]) -> str:
    return ", ".join(f"[{code}]({_page(code)})" for code in record.get("caught", ()))


def _page(code: str) -> str:
    return {"1": "PD1xx.md", "2": "PD2xx.md"}.get(code[2], f"{code}.md")


def _rest(record: dict[str, Any]) -> str:
    return "; ".join(_reasons(record))


def _reasons(record: dict[str, Any]) -> Iterator[str]:
    if "never" in record:
        yield f"cannot happen: {record['never']}"
    if "missed" in record:
        yield f"not caught{' in part' if 'caught' in record else ''}: {record['missed']}"

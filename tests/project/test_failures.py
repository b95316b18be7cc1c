"""The map of public failures: each has a verdict, and every code that it names exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdkit.job.codes import GATES
from pdkit.rules.catalogue import RULES

ISSUE = re.compile(r"[\w.-]+(/[\w.-]+)?#\d+")
ARTICLES = {"vllm docs nixl_connector_compatibility", "vLLM article 2026-08-06"}


@pytest.fixture(scope="module")
def records(root: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load((root / "docs/rules/failures.yaml").read_text()))


def test_each_failure_has_a_verdict(records: list[dict[str, Any]]) -> None:
    assert [one["id"] for one in records] == list(range(1, 161))
    for one in records:
        assert one.keys() <= {"id", "issues", "what", "caught", "never", "missed"}, one
        assert any(one.get(verdict) for verdict in ("caught", "never", "missed")), one
        assert one["what"]
        assert all(ISSUE.fullmatch(issue) or issue in ARTICLES for issue in one["issues"]), one


def test_every_code_that_is_named_exists(root: Path, records: list[dict[str, Any]]) -> None:
    reading = set(re.findall(r"^## (PD1\d\d)$", (root / "docs/rules/PD1xx.md").read_text(), re.MULTILINE))
    known = {rule.code for rule in RULES} | {gate.code for gate in GATES} | reading
    named = {code for one in records for code in one.get("caught", ())}
    assert named - known == set()
    reasons = " ".join(f"{one.get('never', '')} {one.get('missed', '')}" for one in records)
    assert set(re.findall(r"PD\d{3}", reasons)) - known == set()


def test_the_page_has_them_all(root: Path, records: list[dict[str, Any]]) -> None:
    page = (root / "docs/rules/README.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if re.match(r"\| \d+ \| ", line)]
    assert len(rows) == len(records) == 160
    for row, one in zip(rows, records, strict=True):
        assert row[1] == ", ".join(one["issues"])
        assert ("cannot happen" in row[-1]) == ("never" in one)
        assert ("not caught" in row[-1]) == ("missed" in one)

"""Findings as SARIF 2.1.0, which code scanning of GitHub, GitLab and editors read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pdkit import __version__
from pdkit.errors import Finding
from pdkit.rules.accepting import accepted_because
from pdkit.rules.catalogue import RULES

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def sarif(findings: Iterable[Finding]) -> dict[str, Any]:
    """One run with every rule and every finding; what is accepted is there too, suppressed with its reason."""
    results = list(findings)
    rules = [
        {
            "id": rule.code,
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": rule.why},
            "help": {"text": f"pdkit check --explain {rule.code}"},
        }
        for rule in RULES
    ]
    known = {rule.code for rule in RULES}
    reading = sorted({one.code for one in results} - known)
    rules += [{"id": code, "shortDescription": {"text": "The recipe can be read"}} for code in reading]
    places = {rule["id"]: index for index, rule in enumerate(rules)}
    driver = {"name": "pdkit", "semanticVersion": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, places) for one in results],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(finding: Finding, places: dict[Any, int]) -> dict[str, Any]:
    fix = f"\nFix: {finding.fix}" if finding.fix else ""
    result = {
        "ruleId": finding.code,
        "ruleIndex": places[finding.code],
        "level": LEVELS[finding.severity],
        "message": {"text": f"{finding.message}{fix}"},
        "locations": [_location(finding.at)],
    }
    if reason := accepted_because(finding):
        result["suppressions"] = [{"kind": "inSource", "justification": reason}]
    return result


def _location(at: str) -> dict[str, Any]:
    file, line, column = at.rsplit(":", 2)
    if file.startswith("--set "):  # no file: it was typed
        return {"logicalLocations": [{"fullyQualifiedName": file, "kind": "parameter"}]}
    region = {"startLine": int(line), "startColumn": int(column)}
    path = Path(file)
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}

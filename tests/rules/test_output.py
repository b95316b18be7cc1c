"""How findings leave `pdkit check`: SARIF, GitHub annotations, the summary, and what a code means."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pdkit.errors import Finding, RecipeError, UsageError
from pdkit.explain import explained
from pdkit.job.codes import GATES
from pdkit.paths import shipped
from pdkit.rules.accepting import accepted_because
from pdkit.rules.annotations import annotation
from pdkit.rules.catalogue import RULES
from pdkit.rules.sarif import sarif
from pdkit.rules.summary import counted, each_once

from .sides import MIXED, RECIPES, findings_of

FRONT_DOOR = RECIPES / MIXED
IGNORE = "ignore=[{code: PD006, reason: the queue is what we measure}]"
TYPED = Finding("PD010", "warning", "a: 100 % [sic]", "--set decode.mtp=0:1:12", "line\nbreak")
WRITTEN = Finding("PD001", "error", "differs, it does", "my recipes/a,b.yaml:3:7", "one size")


def _check(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pdkit.cli", "check", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd)


def test_sarif_has_what_the_standard_asks_for() -> None:
    log = sarif([WRITTEN, TYPED])
    assert (log["version"], len(log["runs"])) == ("2.1.0", 1)
    [run] = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "pdkit"
    assert [rule["id"] for rule in driver["rules"]] == [rule.code for rule in RULES]
    assert all(rule[key]["text"] for rule in driver["rules"] for key in ("shortDescription", "fullDescription"))
    first, second = run["results"]
    assert driver["rules"][first["ruleIndex"]]["id"] == first["ruleId"] == "PD001"
    assert (first["level"], first["message"]["text"]) == ("error", "differs, it does\nFix: one size")
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "my%20recipes/a%2Cb.yaml"}
    assert place["region"] == {"startLine": 3, "startColumn": 7}
    assert second["level"] == "warning"
    assert second["locations"] == [
        {"logicalLocations": [{"fullyQualifiedName": "--set decode.mtp=0", "kind": "parameter"}]}
    ]


def test_sarif_suppresses_what_is_accepted_and_names_reading_errors() -> None:
    findings = findings_of(MIXED, "decode.max_num_seqs=12", IGNORE)
    [run] = sarif([*findings, Finding("PD105", "error", "no such file", "/x/a.yaml:1:1")])["runs"]
    accepted, reading = run["results"]
    assert accepted["level"] == "note"
    assert accepted["suppressions"] == [{"kind": "inSource", "justification": "the queue is what we measure"}]
    assert run["tool"]["driver"]["rules"][reading["ruleIndex"]]["id"] == "PD105"
    assert reading["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == Path("/x/a.yaml").as_uri()
    assert "suppressions" not in reading


def test_annotations_are_lines_that_github_can_split_again() -> None:
    assert annotation(WRITTEN) == (
        "::error file=my recipes/a%2Cb.yaml,line=3,col=7,title=PD001::differs, it does%0Afix: one size"
    )
    assert annotation(TYPED) == ("::warning title=PD010::--set decode.mtp=0: a: 100 %25 [sic]%0Afix: line%0Abreak")
    assert annotation(Finding("PD006", "info", "x", "a.yaml:1:1")) == "::notice file=a.yaml,line=1,col=1,title=PD006::x"


def test_counts_per_code() -> None:
    accepted = Finding("PD006", "info", "x [accepted: on purpose]", "b.yaml:1:1")
    note = Finding("PD006", "info", "x", "b.yaml:1:1")
    counts = counted([("a", TYPED), ("b", TYPED), ("b", WRITTEN), ("b", accepted), ("b", note)])
    rows = [(one.code, one.errors, one.warnings, one.notes, one.accepted, one.recipes) for one in counts]
    assert rows == [("PD001", 1, 0, 0, 0, 1), ("PD010", 0, 2, 0, 0, 2), ("PD006", 0, 0, 1, 1, 1)]
    assert counted([("a", Finding("PD101", "error", "x", "a:1:1"))])[0].title == "The recipe can be read"


def test_a_fault_is_told_once_whatever_its_figures() -> None:
    first, other = (replace(WRITTEN, message=f"decode: {figures} blocks") for figures in ("4 of 12.5", "8 of 0"))
    elsewhere, worse = replace(other, at="b.yaml:3:7"), replace(other, severity="warning")
    assert each_once([first, other, elsewhere, worse, other]) == [first, elsewhere, worse]


def test_a_fault_of_both_roles_is_one_finding_where_they_share_the_setting() -> None:
    shared = "common.kv_transfer={load_failure_policy: recompute}"
    apart = [f"{role}.kv_transfer={{load_failure_policy: recompute}}" for role in ("prefill", "decode")]
    [both] = findings_of(MIXED, shared)
    assert both.message.startswith("prefill and decode: load_failure_policy")
    assert [one.message.partition(":")[0] for one in findings_of(MIXED, *apart)] == ["prefill", "decode"]


@pytest.mark.parametrize("reason", ["''", "'            '", "too short"])
def test_a_reason_that_says_nothing_is_refused(reason: str) -> None:
    with pytest.raises(RecipeError, match="at least 10 characters"):
        findings_of(MIXED, "decode.max_num_seqs=12", f"ignore=[{{code: PD006, reason: {reason}}}]")


def test_a_folder_that_is_named_like_a_recipe_is_looked_into(tmp_path: Path) -> None:
    (tmp_path / "sub.yaml").mkdir()
    (tmp_path / "sub.yaml/100% a:b,c\nd.yaml").write_text("decode: {mtp: x}\n")
    done = _check(".", "--format", "github", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "")
    assert "::error file=sub.yaml/100%25 a%3Ab%2Cc%0Ad.yaml,line=" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 recipe checked")


def test_a_reason_is_read_back_as_it_was_written() -> None:
    ignore = IGNORE.replace("the queue is what we measure", "'the queue is what we measure [here]'")
    [finding] = findings_of(MIXED, "decode.max_num_seqs=12", ignore)
    assert accepted_because(finding) == "the queue is what we measure [here]"
    assert accepted_because(WRITTEN) == ""


def test_check_writes_each_form(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"extends: {FRONT_DOOR}\ndecode: {{max_num_seqs: 12}}\n")
    (tmp_path / "b.yaml").write_text(
        f"extends: {FRONT_DOOR}\n{IGNORE.replace('=', ': ')}\ndecode: {{max_num_seqs: 12}}\n"
    )
    (tmp_path / "c.yaml").write_text("extends: a.yaml\n")
    text = _check(".", cwd=tmp_path)
    assert text.returncode == 1
    assert text.stdout.count("error PD006") == 1, "what a file and its base share is told once"
    assert text.stdout.splitlines()[-1] == "3 recipes checked: 1 error, 0 warnings, 1 accepted"
    assert re.search(r"^PD006 +2 +1 +3 +Seats cover the concurrency", text.stdout, re.MULTILINE)
    log: Any = json.loads(_check(".", "--format", "sarif", cwd=tmp_path).stdout)
    assert [one["ruleId"] for one in log["runs"][0]["results"]] == ["PD006", "PD006"]
    github = _check(".", "--format", "github", cwd=tmp_path).stdout.splitlines()
    assert [line.split(" ")[0] for line in github[:-1]] == ["::error", "::notice"]
    assert json.loads(_check(".", "--format", "json", cwd=tmp_path).stdout) == json.loads(
        _check(".", "--json", cwd=tmp_path).stdout
    )


def test_forms_that_contradict_and_nothing_to_check_are_refused() -> None:
    both = _check(FRONT_DOOR, "--json", "--format", "sarif")
    assert (both.returncode, both.stdout) == (2, "")
    assert "--json and --format sarif contradict each other" in both.stderr
    assert _check().returncode == 2
    assert _check(FRONT_DOOR, "--format", "xml").returncode == 2


@pytest.mark.parametrize("code", [*(rule.code for rule in RULES), *(gate.code for gate in GATES), "PD101", "PD115"])
def test_every_code_is_explained(code: str) -> None:
    text = explained(code)
    assert text.startswith(f"# {code}")
    assert len(text) > 150
    assert "<!--" not in text
    for rule in RULES:
        if rule.code == code:
            assert rule.title in text
            assert "## Example" in text
            assert "**Fix**" in text


def test_explain_as_a_person_types_it() -> None:
    done = _check("--explain", "pd017")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# PD017: No two processes of a node want one port\n")
    unknown = _check("--explain", "PD0017")
    assert unknown.returncode == 2
    assert "there is no code `PD0017`" in unknown.stderr
    assert "PD017" in unknown.stderr
    with pytest.raises(UsageError, match="there is no code `ports`"):
        explained("ports")


def test_the_pages_are_where_an_installed_pdkit_looks_for_them() -> None:
    assert (shipped("docs") / "rules" / "PD001.md").is_file()

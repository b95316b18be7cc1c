"""Every broken recipe ends with code, place and fix: no traceback, the right exit code, nothing half-written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pdkit.cli import main
from pdkit.errors import Finding
from pdkit.rules.catalogue import RULES

FOLDER = Path(__file__).parent
READING = [f"PD{number}" for number in range(101, 116)]
"""Codes of recipes that cannot be read or planned; they end with 2, the rules' own codes with 1."""


@dataclass(frozen=True)
class Broken:
    """A broken recipe and what is found in it, as (severity, code, place)."""

    file: str
    finds: tuple[tuple[str, str, str], ...]

    @property
    def exit_code(self) -> int:
        errors = {code for severity, code, _ in self.finds if severity == "error"}
        return 2 if errors & set(READING) else 1 if errors else 0

    @property
    def options(self) -> list[str]:
        """`--set …` where the place of a finding says so."""
        places = (place for _, _, place in self.finds if place.startswith("--set "))
        return [word for place in places for word in ("--set", place.removeprefix("--set ").rsplit(":", 2)[0])]


def _expected(line: str) -> Broken:
    file, _, rest = line.partition(" ")
    finds = []
    for text in rest.strip().split("; "):
        first, _, later = text.partition(" ")
        severity, found = (first, later) if first in ("warning", "info") else ("error", text)
        code, place = found.split(" ", 1)
        finds.append((severity, code, f"{file}:{place}" if re.fullmatch(r"\d+:\d+", place) else place))
    return Broken(file, tuple(finds))


LINES = (FOLDER / "expected.txt").read_text().splitlines()
ALL = [_expected(line) for line in LINES if line and not line.startswith("#")]
each = pytest.mark.parametrize("broken", ALL, ids=lambda broken: broken.file.removesuffix(".yaml"))
Ran = tuple[int, str, str]
Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("check", "x.yaml")` in this folder: (exit code, output, errors) of the real command."""

    def command(*words: str) -> Ran:
        monkeypatch.chdir(FOLDER)
        monkeypatch.setattr(sys, "argv", ["pdkit", *words])
        with pytest.raises(SystemExit) as end:
            main()
        out = capsys.readouterr()
        return int(end.value.code or 0), out.out, out.err

    return command


@each
def test_check_finds_exactly_this(run: Run, broken: Broken) -> None:
    code, out, err = run("check", "--json", broken.file, *broken.options)
    findings = [Finding(**one) for one in json.loads(out)["findings"]]
    assert (code, err) == (broken.exit_code, "")
    assert sorted({(one.severity, one.code, one.at) for one in findings}) == sorted(set(broken.finds))
    assert all(one.message and one.fix for one in findings)


@each
def test_check_says_it_in_words(run: Run, broken: Broken) -> None:
    code, out, err = run("check", broken.file, *broken.options)
    assert (code, err) == (broken.exit_code, "")
    for severity, one, place in broken.finds:
        assert f"{place}: {severity} {one}: " in out
    assert out.count("    fix: ") >= len(broken.finds)
    assert out.splitlines()[-1].startswith("1 recipe checked: ")


@each
def test_nothing_is_rendered(run: Run, broken: Broken, tmp_path: Path) -> None:
    code, out, err = run("render", broken.file, *broken.options, "-o", str(tmp_path / "runs"))
    assert code == broken.exit_code
    if code == 0:
        return  # a warning stops nobody
    assert out == ""
    assert list(tmp_path.iterdir()) == []
    errors = [(one, place) for severity, one, place in broken.finds if severity == "error"]
    for one, place in errors:
        assert f"{place}: error {one}: " in err
    assert "Traceback" not in err


@each
def test_plan_ends_with_the_same_code(run: Run, broken: Broken) -> None:
    code, out, err = run("plan", "--json", broken.file, *broken.options)
    assert code == broken.exit_code
    if code == 2:
        assert out == ""
        assert "error PD1" in err
    else:
        assert err == ""
        found = {(one["severity"], one["code"], one["at"]) for one in json.loads(out)["findings"]}
        assert found == set(broken.finds)


def test_the_list_is_complete() -> None:
    files = sorted(path.name for path in FOLDER.glob("*.yaml") if not path.name.startswith("base"))
    assert sorted(broken.file for broken in ALL) == files
    assert len(files) >= 45


def test_every_code_has_a_recipe_that_is_broken_by_it() -> None:
    codes = {code for broken in ALL for _, code, _ in broken.finds}
    assert codes == {*READING, *(rule.code for rule in RULES)}


def test_the_base_itself_is_without_fault(run: Run) -> None:
    code, out, _ = run("check", "base.yaml")
    assert (code, out) == (0, "1 recipe checked: 0 errors, 0 warnings\n")


def test_a_whole_folder_is_checked_to_its_end_by_a_real_process() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pdkit.cli", "check", "."], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "")
    for broken in ALL:
        for severity, code, place in broken.finds if not broken.options else ():
            assert f"{place}: {severity} {code}: " in done.stdout


@pytest.mark.parametrize("file", ["yaml-binary.yaml", "rule-block-natural.yaml", "facts-config-mla.yaml"])
def test_real_processes_print_no_traceback(file: str, tmp_path: Path) -> None:
    [broken] = [one for one in ALL if one.file == file]
    done = subprocess.run(
        [sys.executable, "-m", "pdkit.cli", "render", file, "-o", str(tmp_path / "runs")],
        cwd=FOLDER, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (broken.exit_code, "")
    assert done.stderr.startswith(f"{broken.finds[0][2]}: error {broken.finds[0][1]}: ")
    assert not (tmp_path / "runs").exists()

"""The documents say what is so."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def test_generated_documents_are_fresh(root: Path) -> None:
    """docs/recipe.md, docs/rules/ and each command's output in README.md."""
    command = [sys.executable, root / "docs/make.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_links_lead_somewhere(tracked: Callable[..., dict[str, Path]]) -> None:
    broken = [
        f"{name}: {target}"
        for name, path in tracked("*.md").items()
        for target, _ in LINK.findall(path.read_text())
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert broken == []


def test_every_reading_error_is_explained(root: Path, tracked: Callable[..., dict[str, Path]]) -> None:
    used = {code for path in tracked("pdkit/*.py").values() for code in re.findall(r'"(PD1\d\d)"', path.read_text())}
    page = (root / "docs/rules/PD1xx.md").read_text()
    assert used - set(re.findall(r"^## (PD1\d\d)$", page, re.MULTILINE)) == set()


def test_structure_names_every_folder(root: Path, tracked: Callable[..., dict[str, Path]]) -> None:
    named = set(re.findall(r"^\| `([^`]+)/` ", (root / "docs/structure.md").read_text(), re.MULTILINE))
    files = tracked()
    folders = {str(Path(name).parent) for name in files} - {"."}
    shown = {"/".join(folder.split("/")[:2]) for folder in folders if folder.split("/")[0] == "pdkit"}
    shown |= {folder.split("/")[0] for folder in folders}
    assert shown - named == set(), "add a line to docs/structure.md"
    assert {one for one in named if not (root / one).is_dir()} == set(), "no longer there: remove the line"


def test_structure_names_every_module_beside_the_folders(root: Path, tracked: Callable[..., dict[str, Path]]) -> None:
    text = (root / "docs/structure.md").read_text()
    alone = {name for name in tracked("pdkit/*.py") if name.count("/") == 1} - {"pdkit/__init__.py"}
    assert {name for name in alone if f"`{name}`" not in text} == set()


def test_demo_does_what_the_readme_says(root: Path) -> None:
    done = subprocess.run(["make", "-n", "demo"], cwd=root, capture_output=True, text=True, check=True)
    commands = re.findall(r"\.venv/bin/(pdkit \S+ recipes/qwen38_tep8\.yaml)", done.stdout)
    assert commands == [f"pdkit {verb} recipes/qwen38_tep8.yaml" for verb in ("check", "plan", "render")]
    first = (root / "README.md").read_text().partition("```sh\n")[2].partition("```")[0]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", f".venv/bin/{commands[2]}"]


def test_make_help_lists_every_target(root: Path) -> None:
    command = ["make", "--no-print-directory", "help"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    listed = {line.split()[1] for line in done.stdout.splitlines()}
    phony = re.findall(r"^\.PHONY: (.*)", (root / "Makefile").read_text(), re.MULTILINE)
    assert listed == {name for line in phony for name in line.split()}

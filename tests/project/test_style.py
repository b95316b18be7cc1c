"""House rules that no linter knows."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

MOST_LINES = 250
LONG_MODULES = {
    "pdkit/doctor/engine_probe.py": "runs alone in the engines' own Python, where nothing of pdkit can be imported",
    "pdkit/recipe/schema.py": "the whole recipe format on one page, docstring by docstring",
}

MOST_BODY_LINES = 40
LONG_FUNCTIONS = {
    "pdkit/job/load_point.py:make_point": "one literal: every field of a point and where it comes from",
    "pdkit/plan/contract.py:plan_data": "one literal: the JSON of a plan as it is published",
}

# Written in two parts, so that this file does not hold them itself.
MACHINE_PATHS = ("/" + "work/", "/" + "root/", "/" + "opt/wheels", "file" + ":///")


def test_modules_are_short(tracked: Callable[..., dict[str, Path]]) -> None:
    lines = {name: len(path.read_text().splitlines()) for name, path in tracked("*.py").items()}
    long = {name for name, count in lines.items() if count > MOST_LINES and not name.startswith("tests/")}
    assert long <= LONG_MODULES.keys(), "split them, or give a reason in LONG_MODULES"
    assert LONG_MODULES.keys() <= long, "no longer long: remove them from LONG_MODULES"


def test_functions_are_short(tracked: Callable[..., dict[str, Path]]) -> None:
    modules = {name: path for name, path in tracked("*.py").items() if not name.startswith("tests/")}
    long = {
        f"{name}:{function.name}"
        for name, path in modules.items()
        for function in functions(path)
        if body_lines(function) > MOST_BODY_LINES
    }
    assert long <= LONG_FUNCTIONS.keys(), "split them, or give a reason in LONG_FUNCTIONS"
    assert LONG_FUNCTIONS.keys() <= long, "no longer long: remove them from LONG_FUNCTIONS"


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_no_paths_of_one_machine(tracked: Callable[..., dict[str, Path]]) -> None:
    found = [
        f"{name}: {part}"
        for name, path in tracked().items()
        for part in MACHINE_PATHS
        if part.encode() in path.read_bytes()
    ]
    assert found == []


def test_shell_scripts_pass_shellcheck(tracked: Callable[..., dict[str, Path]]) -> None:
    scripts = [str(path) for path in tracked("*.sh", ".ci/run", ".ci/venv").values()]
    assert scripts
    command = [Path(sys.executable).parent / "shellcheck", "--external-sources", *scripts]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout

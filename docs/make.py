"""Writes what can be written by a program: docs/recipe.md, docs/rules/ and the terminal output in README.md.

Run by `make docs`; with `--check` nothing is written and stale files are named (tests/project does that).
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from failures import failures_table
from severities import severities
from typer.testing import CliRunner

from pdkit.cli import app
from pdkit.files import write_text
from pdkit.job.codes import GATES
from pdkit.recipe.reference import recipe_reference
from pdkit.rules.catalogue import RULES
from pdkit.rules.rule import Rule

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = "docs/rules/examples.yaml"
MADE = f"<!-- Made by `make docs` from the rule in pdkit/rules/ and {EXAMPLES}; do not edit. -->\n"
BLOCK = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
DIGEST = re.compile(r"(?<=-)[0-9a-f]{8}(?=-\d)")
FRONT_DOOR = "recipes/qwen38_tep8.yaml"
READING = """
These come before any rule: the file is not a recipe, or names something that pdkit has no facts for. They are errors,
`ignore:` does not apply to them, and the exit code is 2. All faults of a file are shown at once. From PD120 on they
are about recipes of srt-slurm, whose rules run all the same; there PD112 and PD123 may be less than an error.
"""
RUNNING = """
These show only on running engines. Each is looked at by the job itself, and one that does not hold ends the run: its
code stands in the message, in `result.json` and, while readiness is proved, in `ready.json`. `ignore:` does not apply.
"""
ACCEPTING = """
`pdkit check` runs every rule over a recipe's plan. A finding that is known and does not matter is accepted in the
recipe, with the reason, and is then shown as info:
"""


@dataclass(frozen=True, slots=True)
class Example:
    """The smallest recipe that shows a finding: the front door with `--set`, or a recipe of its own."""

    title: str = ""
    file: str = FRONT_DOOR
    sets: tuple[str, ...] = ()
    recipe: str = ""
    files: dict[str, str] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        """The words after `pdkit`."""
        words = ["check", "example.yaml" if self.recipe else self.file]
        return words + [word for text in self.sets for word in ("--set", text)]


def made_files() -> dict[str, str]:
    """Every file that this program writes, by its path from the root, with its text."""
    examples = {code: _example(entry) for code, entry in yaml.safe_load((ROOT / EXAMPLES).read_text()).items()}
    missing = [rule.code for rule in RULES if rule.code not in examples]
    if missing:
        sys.exit(f"{EXAMPLES}: no example for {', '.join(missing)}; add one, it becomes a part of the rule's page")
    reading = {code: one for code, one in examples.items() if code.startswith("PD1")}
    files = {"docs/recipe.md": recipe_reference(), "README.md": with_fresh_output((ROOT / "README.md").read_text())}
    files |= {f"docs/rules/{rule.code}.md": _rule_page(rule, examples[rule.code]) for rule in RULES}
    files["docs/rules/PD1xx.md"] = _reading_page(reading)
    files["docs/rules/PD2xx.md"] = _gates_page()
    files["docs/rules/README.md"] = _index()
    return files


def stale_files() -> list[str]:
    """Files whose text on disk is another than this program would write; a run's digest does not count."""
    wanted = made_files()
    pages = {f"docs/rules/{page.name}" for page in (ROOT / "docs/rules").glob("*.md")}
    stale = [name for name, text in wanted.items() if _settled(_text(ROOT / name)) != _settled(text)]
    return sorted({*stale, *(pages - wanted.keys())})


def with_fresh_output(text: str) -> str:
    """Markdown in which each `console` block shows what its `$` commands print now, run from an empty folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "recipes").symlink_to(ROOT / "recipes")
        return BLOCK.sub(lambda block: "".join(_typed(block[0], folder)), text)


def _typed(block: str, folder: Path) -> Iterator[str]:
    """The commands of one block, each followed by its output as a terminal shows it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for line in block.splitlines():
        if line.startswith("$ "):
            done = subprocess.run(
                ["bash", "-c", line[2:]],
                cwd=folder,
                env={**os.environ, "PATH": path, "LC_ALL": "C.UTF-8", "NO_COLOR": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            yield f"{line}\n{done.stdout}"


def _example(entry: dict[str, Any]) -> Example:
    return Example(**{**entry, "sets": tuple(entry.get("sets", ()))})


def _shown(example: Example) -> str:
    """An example as a reader would try it: the files, the command and what it prints."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "recipes").symlink_to(ROOT / "recipes")
        texts = {**({"example.yaml": example.recipe} if example.recipe else {}), **example.files}
        for file, text in texts.items():
            (Path(name) / file).write_text(text)
        before = Path.cwd()
        os.chdir(name)  # places are printed as the command line names the files
        try:
            output = CliRunner().invoke(app, example.command, catch_exceptions=False).output
        finally:
            os.chdir(before)
    blocks = [f"`{file}`:\n\n```{file.rsplit('.')[-1]}\n{text}```\n" for file, text in texts.items()]
    command = " ".join(f"'{word}'" if re.search(r"[^\w./=:-]", word) else word for word in example.command)
    return "\n".join([*blocks, f"```console\n$ pdkit {command}\n{output}```\n"])


def _rule_page(rule: Rule, example: Example) -> str:
    shown = _shown(example)
    found = re.search(rf"(error|warning|info) {rule.code}: .*\n +fix: (.*)", shown)
    if not found:
        sys.exit(f"{EXAMPLES}: the example of {rule.code} does not find {rule.code}:\n{shown}")
    checked = inspect.getdoc(rule.check) or ""
    return (
        f"{MADE}\n# {rule.code}: {rule.title}\n\n{_filled(rule.why)}\n\n"
        f"- **Severity**: {' or '.join(severities(rule))}\n- **Checked**: {' '.join(checked.split())}\n"
        f"- **Fix** (of the example): {found[2]}\n- **Code**: {_place(rule)}\n\n## Example\n\n{shown}"
    )


def _place(rule: Rule) -> str:
    return f"`{rule.check.__module__.replace('.', '/')}.py`, `{rule.check.__name__}`"


def _reading_page(examples: dict[str, Example]) -> str:
    parts = [f"{MADE}\n# PD1xx: the recipe cannot be read\n\n{_filled(READING)}\n"]
    for code, example in examples.items():
        shown = _shown(example)
        if f"error {code}: " not in shown:
            sys.exit(f"{EXAMPLES}: the example of {code} does not find {code}:\n{shown}")
        parts.append(f"## {code}\n\n{example.title}\n\n{shown}")
    return "\n".join(parts)


def _gates_page() -> str:
    parts = [f"{MADE}\n# PD2xx: gates of a run\n\n{_filled(RUNNING)}\n"]
    for gate in GATES:
        facts = f"- **Looked at**: {gate.stage}\n- **Fix**: {gate.fix}\n"
        parts.append(f"## {gate.code}: {gate.title}\n\n{_filled(gate.why)}\n\n{facts}")
    return "\n".join(parts)


def _index() -> str:
    rows = [f"| [{rule.code}]({rule.code}.md) | {rule.title} | {' or '.join(severities(rule))} |" for rule in RULES]
    return "\n".join(
        [
            MADE,
            "# Rules",
            "",
            _filled(ACCEPTING),
            "",
            "```yaml",
            "ignore:",
            "  - code: PD008",
            "    reason: this recipe is run eager on purpose, to compare",
            "```",
            "",
            "| code | what must hold | severity |",
            "|---|---|---|",
            *sorted(rows),
            "| [PD1xx](PD1xx.md) | The recipe can be read | error |",
            *(f"| [{gate.code}](PD2xx.md) | {gate.title} | at run time: {gate.stage} |" for gate in GATES),
            "",
            failures_table(ROOT / "docs/rules/failures.yaml"),
        ]
    )


def _filled(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def _settled(text: str) -> str:
    return DIGEST.sub("********", text)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def main() -> None:
    """Write all files, or with `--check` name those that are stale and exit 1."""
    if sys.argv[1:] == ["--check"]:
        stale = stale_files()
        sys.exit(f"stale, run `make docs`: {', '.join(stale)}" if stale else 0)
    wanted = made_files()
    for page in (ROOT / "docs/rules").glob("*.md"):
        if f"docs/rules/{page.name}" not in wanted:
            page.unlink()
    for name, text in wanted.items():
        if _settled(_text(ROOT / name)) != _settled(text):
            write_text(ROOT / name, text)
            sys.stdout.write(f"wrote {name}\n")


if __name__ == "__main__":
    main()

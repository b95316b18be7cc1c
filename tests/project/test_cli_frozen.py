"""The command line is a promise: an option that comes, goes or changes its form must be changed here too, by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

from pdkit.cli import app


def test_commands_and_options_are_frozen() -> None:
    frozen = Path(__file__).with_name("cli.txt")
    assert "\n".join(described(typer.main.get_command(app), "pdkit")) + "\n" == frozen.read_text(), (
        f"if the change is meant, write it into {frozen.name} and CHANGELOG.md"
    )


def test_documents_and_messages_promise_only_options_that_exist(tracked: Callable[..., dict[str, Path]]) -> None:
    """Options after a command (`pdkit run x --resume`), and those with a value in capitals (`--output FILE`)."""
    options: dict[str, set[str]] = {}
    for line in described(typer.main.get_command(app), "pdkit"):
        if not line.startswith(" "):
            command = line
        options.setdefault(command, {"--help"}).update(re.findall(r"--[a-z-]+", line))
    some = set.union(*options.values())
    wrong = []
    for name, path in tracked("*.md", "pdkit/*.py").items():
        text = path.read_text()
        for words in re.findall(r"\bpdkit [a-z][^`\n#;|,]*", text):
            command = max((one for one in options if f"{words} ".startswith(f"{one} ")), key=len, default="")
            wrong += [
                f"{name}: {words}"
                for one in re.findall(r" (--[a-z-]+)", words)
                if command and one not in options[command]
            ]
        named = re.findall(r"(--[a-z-]+)[ =](?:FILE|FOLDER|RUN|RECIPE)\b", text)
        wrong += [f"{name}: {one}" for one in named if one not in some]
    assert wrong == []


def described(command: typer.core.TyperCommand | typer.core.TyperGroup, name: str) -> Iterator[str]:
    """One line per command, one per parameter, depth first; completion options are typer's own."""
    yield name
    for parameter in command.params:
        names = "/".join([*parameter.opts, *parameter.secondary_opts])
        if parameter.param_type_name == "argument":
            names = names.upper() + ("" if parameter.required else "?") + ("..." if parameter.nargs == -1 else "")
        if "completion" not in names:
            yield f"    {names}"
    for child in sorted(getattr(command, "commands", {})):
        yield from described(command.commands[child], f"{name} {child}")

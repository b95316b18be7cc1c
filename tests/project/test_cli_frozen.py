"""The command line is a promise: an option that comes, goes or changes its form must be changed here too, by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer

from pdkit.cli import app


def test_commands_and_options_are_frozen() -> None:
    frozen = Path(__file__).with_name("cli.txt")
    assert "\n".join(described(typer.main.get_command(app), "pdkit")) + "\n" == frozen.read_text(), (
        f"if the change is meant, write it into {frozen.name} and CHANGELOG.md"
    )


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

"""The commands of `pdkit rack`: one thin function each; what they do is in `pdkit.rack.rack`.

The imports stand inside the commands, so that the rest of pdkit starts without the rack.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdkit.errors import UsageError

if TYPE_CHECKING:
    from pdkit.rack import config as racks

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Rehearse on a virtual GB300 NVL72 rack: real Slurm on this machine, 18 nodes, 72 fake GPUs.\n\n"
    'Example: sudo -s; pdkit rack start; eval "$(pdkit rack env)"; sbatch job.sbatch',
)

Folder = Annotated[Path | None, typer.Option(help="The rack's folder; default ~/.local/state/pdkit/rack.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Node = Annotated[str, typer.Argument(help="A node's name, such as nvl72-05.")]


@app.command()
def start(
    folder: Folder = None,
    name: Annotated[str | None, typer.Option(help="Prefix of the node names. [nvl72]")] = None,
    nodes: Annotated[int | None, typer.Option(help="Number of nodes. [18]")] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs per node. [4]")] = None,
    gpu_type: Annotated[str | None, typer.Option(help="GPU type and node feature. [gb300]")] = None,
    subnet: Annotated[str | None, typer.Option(help="First three bytes of the private network. [10.72.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port of slurmctld in the rack's network. [26817]")] = None,
    account: Annotated[list[str] | None, typer.Option(help="An account that jobs may name; none given: any.")] = None,
) -> None:
    """Start the rack, or what of it does not run; settings not given stay as they were.

    Example: pdkit rack start --nodes 4
    """
    from pdkit.rack import config as racks
    from pdkit.rack import rack

    place = (folder or racks.default_folder()).absolute()
    asked: dict[str, Any] = {
        "name": name,
        "nodes": nodes,
        "gpus_per_node": gpus,
        "gpu_type": gpu_type,
        "subnet": subnet,
        "port": port,
        "accounts": tuple(account) if account else None,
    }
    before = racks.stored(place) or racks.RackConfig(folder=place)
    config = dataclasses.replace(before, **{key: value for key, value in asked.items() if value is not None})
    begin = time.monotonic()
    rack.start(config, tell=lambda line: typer.echo(f"note: {line}", err=True))
    typer.echo(f"rack {config.name}: {config.nodes} nodes up in {time.monotonic() - begin:.1f} s")
    typer.echo('to use it: eval "$(pdkit rack env)"')


@app.command()
def stop(
    folder: Folder = None,
    wipe: Annotated[bool, typer.Option("--wipe", help="Remove the rack's folder too: logs, state, settings.")] = False,
) -> None:
    """End every process, job and network namespace of the rack.

    Example: pdkit rack stop --wipe
    """
    from pdkit.rack import config as racks
    from pdkit.rack import rack

    config = racks.stored(folder or racks.default_folder())
    if config is None:
        typer.echo(f"no rack in {folder or racks.default_folder()}")
        return
    rack.stop(config, wipe=wipe)
    typer.echo(f"rack {config.name}: stopped{' and removed' if wipe else ''}")


@app.command()
def status(folder: Folder = None, as_json: Json = False) -> None:
    """Show every node: Slurm's state, address, cable, processes.

    Example: pdkit rack status --json
    """
    from pdkit.rack import config as racks
    from pdkit.rack import rack

    config = _config(folder)
    states = rack.status(config)
    if as_json:
        nodes = [{**dataclasses.asdict(state), "up": state.up} for state in states]
        typer.echo(json.dumps({"rack": racks.to_record(config), "nodes": nodes}))
        return
    # Only a person needs rich.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    up = sum(state.up for state in states)
    table = Table(
        title=f"rack {config.name}: {up} of {config.nodes} nodes up, {config.gpus_per_node} GPUs each",
        title_justify="left",
    )
    for column in ("node", "state", "address", "cable", "processes", "reason"):
        table.add_column(column, justify="right" if column == "processes" else "left")
    for state in states:
        word = Text(state.state, style="green" if state.up else "red")
        cable = "plugged" if state.plugged else "unplugged"
        table.add_row(state.name, word, state.address, cable, str(state.processes), Text(state.reason))
    Console().print(table)


@app.command()
def env(folder: Folder = None, as_json: Json = False) -> None:
    """Print what a shell needs to talk to the rack.

    Example: eval "$(pdkit rack env)"
    """
    from pdkit.rack import rack

    variables = rack.environment(_config(folder))
    if as_json:
        typer.echo(json.dumps(variables))
        return
    for key, value in variables.items():
        typer.echo(f"export {key}={shlex.quote(value)}")


@app.command("kill-node")
def kill_node(node: Node, folder: Folder = None) -> None:
    """Take a node's power: it falls silent and every process on it is gone.

    Example: pdkit rack kill-node nvl72-05
    """
    from pdkit.rack import rack

    rack.kill_node(_config(folder), node)
    typer.echo(f"{node}: without power")


@app.command("start-node")
def start_node(node: Node, folder: Folder = None) -> None:
    """Give a node its power and its cable back.

    Example: pdkit rack start-node nvl72-05
    """
    from pdkit.rack import rack

    rack.start_node(_config(folder), node)
    typer.echo(f"{node}: booted")


@app.command("unplug-node")
def unplug_node(node: Node, folder: Folder = None) -> None:
    """Pull a node's network cable; its processes live on.

    Example: pdkit rack unplug-node nvl72-05
    """
    from pdkit.rack import rack

    rack.unplug_node(_config(folder), node)
    typer.echo(f"{node}: unplugged")


@app.command("plug-node")
def plug_node(node: Node, folder: Folder = None) -> None:
    """Plug a node's network cable in again.

    Example: pdkit rack plug-node nvl72-05
    """
    from pdkit.rack import rack

    rack.plug_node(_config(folder), node)
    typer.echo(f"{node}: plugged in")


def _config(folder: Path | None) -> racks.RackConfig:
    from pdkit.rack import config as racks

    place = folder or racks.default_folder()
    config = racks.stored(place)
    if config is None:
        raise UsageError(f"no rack was started in {place}", fix="pdkit rack start, or name its --folder")
    return config

"""The commands of `pdkit rack`."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pdkit.errors import ClusterError, UsageError
from pdkit.rack import rack as racks
from pdkit.rack.cli import app
from pdkit.rack.config import RackConfig, stored


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_commands_are_these() -> None:
    """A new command or a lost one is a decision, not an accident."""
    names = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert names == {"start", "stop", "status", "env", "kill-node", "start-node", "unplug-node", "plug-node"}


@pytest.mark.parametrize("command", ["status", "env", "kill-node", "start-node", "unplug-node", "plug-node"])
def test_without_a_rack_the_next_step_is_told(tmp_path: Path, command: str) -> None:
    node = ["nvl72-01"] if command.endswith("-node") else []
    result = call(command, *node, "--folder", tmp_path)
    assert isinstance(result.exception, UsageError)
    assert str(tmp_path) in result.exception.message
    assert "pdkit rack start" in str(result.exception.fix)


def test_stopping_what_never_started_is_fine(tmp_path: Path) -> None:
    result = call("stop", "--folder", tmp_path)
    assert result.exit_code == 0
    assert result.output.strip() == f"no rack in {tmp_path}"


def test_a_user_who_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with tempfile.TemporaryDirectory(prefix="pdkit-") as short:  # sockets lie in the folder of a rack
        result = call("start", "--folder", Path(short) / "rack")
        assert not (Path(short) / "rack").exists()
    assert isinstance(result.exception, ClusterError)
    assert "root" in result.exception.message
    assert "sudo" in str(result.exception.fix)


def test_status_and_env_of_a_running_rack(slurm) -> None:
    folder = slurm.config.folder
    told = json.loads(call("status", "--json", "--folder", folder).stdout)
    assert RackConfig(**{**told["rack"], "folder": folder, "accounts": ("perf",)}) == slurm.config
    assert [(node["name"], node["state"], node["up"]) for node in told["nodes"]] == [
        (name, "idle", True) for name in slurm.config.node_names
    ]
    table = call("status", "--folder", folder).stdout
    assert "18 of 18 nodes up, 4 GPUs each" in table
    assert all(name in table for name in slurm.config.node_names)
    exported = call("env", "--folder", folder).stdout
    shell = ["sh", "-c", f"{exported}\nsinfo --noheader --format=%D --partition=batch"]
    assert subprocess.run(shell, check=True, text=True, capture_output=True).stdout.strip() == "18"
    assert json.loads(call("env", "--json", "--folder", folder).stdout) == racks.environment(slurm.config)


def test_a_rack_from_start_to_stop(new_rack: Callable[..., RackConfig]) -> None:
    config = new_rack()
    place = ("--folder", config.folder)
    own = ("--name", config.name, "--subnet", config.subnet, "--port", config.port)
    started = call("start", "--nodes", 2, "--gpus", 2, "--account", "perf", *own, *place)
    assert started.exit_code == 0, started.exception
    assert f"rack {config.name}: 2 nodes up" in started.output
    # What is not said again stays as it was.
    assert call("start", *place).exit_code == 0
    kept = stored(config.folder)
    assert kept is not None
    assert (kept.nodes, kept.gpus_per_node, kept.accounts) == (2, 2, ("perf",))
    with pytest.raises(ClusterError, match="runs with other settings"):
        CliRunner().invoke(app, ["start", "--nodes", "3", "--folder", str(config.folder)], catch_exceptions=False)

    node = kept.node_names[1]

    def now() -> tuple[bool, int]:
        state = racks.status(kept)[1]
        return state.plugged, state.processes

    for command, plugged, processes in (
        ("unplug-node", False, 1),
        ("plug-node", True, 1),
        ("kill-node", False, 0),
        ("start-node", True, 1),
    ):
        assert call(command, node, *place).exit_code == 0
        assert now() == (plugged, processes), command
    unknown = call("kill-node", "nvl99-01", *place)
    assert isinstance(unknown.exception, UsageError)
    assert node in str(unknown.exception.fix)

    assert call("stop", "--wipe", *place).output.strip() == f"rack {config.name}: stopped and removed"
    assert not config.folder.exists()

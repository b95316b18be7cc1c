"""A rack's settings: what is refused, what follows from them, what is remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdkit.errors import UsageError
from pdkit.files import write_json
from pdkit.rack.config import RackConfig, default_folder, stored, to_record


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"folder": Path("/tmp") / ("x" * 100)}, "107 bytes"),
        ({"folder": Path("/tmp") / ("x" * 70)}, "nvl72-18_67043328"),
        ({"folder": Path("/tmp/a b")}, "a b"),
        ({"folder": Path("/tmp/50%")}, "50%"),
        ({"name": "NVL72"}, "NVL72"),
        ({"name": "longerthantwelve"}, "longerthantwelve"),
        ({"name": "9lives"}, "9lives"),
        ({"nodes": 0}, "nodes is 0"),
        ({"nodes": 251}, "nodes is 251"),
        ({"gpus_per_node": 0}, "gpus_per_node is 0"),
        ({"cpus_per_node": 7}, "cpus_per_node is 7"),
        ({"memory_mib": 12}, "memory_mib is 12"),
        ({"port": 80}, "port is 80"),
        ({"gpu_type": "GB 300"}, "GB 300"),
        ({"subnet": "8.8.8"}, "8.8.8"),
        ({"subnet": "10.72"}, "10.72"),
        ({"subnet": "10.72.1.0"}, "10.72.1.0"),
        ({"proctrack": "linuxproc"}, "linuxproc"),
        ({"accounts": ('x"] = true',)}, "account"),
    ],
)
def test_a_wrong_setting_is_refused_with_a_fix(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        RackConfig(**{"folder": Path("/tmp/rack"), **settings})
    assert said in caught.value.message
    assert caught.value.fix


def test_names_and_addresses_follow_from_the_settings() -> None:
    config = RackConfig(folder=Path("relative"), name="r1", nodes=12, subnet="10.72.9")
    assert config.folder == Path.cwd() / "relative"
    assert config.node_names[0] == "r1-01"
    assert config.node_names[-1] == "r1-12"
    assert config.node_address("r1-12") == "10.72.9.12"
    assert config.namespaces[0] == "r1-head"
    assert len({*config.namespaces, config.head_address, config.host_address}) == 12 + 1 + 2


def test_an_unknown_node_is_refused_with_the_known_ones() -> None:
    config = RackConfig(folder=Path("/tmp/rack"))
    with pytest.raises(UsageError, match="no node 'nvl72-19'") as caught:
        config.index("nvl72-19")
    assert "nvl72-01 ... nvl72-18" in str(caught.value.fix)


def test_settings_survive_in_the_folder(tmp_path: Path) -> None:
    assert stored(tmp_path) is None
    config = RackConfig(folder=tmp_path, nodes=3, accounts=("perf", "dev"))
    write_json(tmp_path / "rack.json", to_record(config))
    assert stored(tmp_path) == config


@pytest.mark.parametrize("text", ["{", "[]", '{"nodes": 3}', '{"accounts": [], "colour": "red"}'])
def test_a_damaged_record_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "rack.json").write_text(text)
    with pytest.raises(UsageError) as caught:
        stored(tmp_path)
    assert caught.value.at == str(tmp_path / "rack.json")


def test_the_default_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/x")
    assert default_folder() == Path("/var/x/pdkit/rack")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ann")
    assert default_folder() == Path("/home/ann/.local/state/pdkit/rack")

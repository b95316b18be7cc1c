"""Nodes and servers that are not fit: told before any engine starts, in one sentence that names the node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdkit.rack import rack as racks

from ..fakes.engines import make_engines
from .faults import Faulty, begin

LISTEN = (
    "import socket, time; s = socket.create_server(('0.0.0.0', 9101)); print('listens', flush=True); time.sleep(99)"
)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_engines(tmp_path_factory.mktemp("e"))


@pytest.fixture
def taken(cluster) -> Iterator[str]:
    """A node on which somebody listens on decode's port."""
    node = cluster.config.node_names[-1]
    inside = ["ip", "netns", "exec", node, sys.executable, "-c", LISTEN]
    with subprocess.Popen(inside, stdout=subprocess.PIPE, text=True) as squatter:
        assert squatter.stdout is not None
        assert squatter.stdout.readline() == "listens\n"
        yield node
        squatter.kill()


@pytest.fixture
def image(cluster) -> Iterator[tuple[str, str]]:
    """An image on the local disks of all nodes but one, and that one."""
    *others, missing = cluster.config.node_names
    files = [cluster.config.folder / "disk" / node / "vllm.sqsh" for node in others]
    for file in files:
        file.write_text("image")
    yield f"{cluster.config.folder}/local/vllm.sqsh", missing
    for file in files:
        file.unlink()


def ends_in_preflight(run: Faulty) -> str:
    """Its error, after all that must hold of it."""
    run.cluster.wait_until(lambda: not run.status.live, "it has ended", deadline_s=40)
    run.cluster.wait_until(lambda: run.status.state == "FAILED", "Slurm knows", deadline_s=10)
    assert run.code == 3, run.text()
    assert run.events("started") == [], "no engine was started"
    assert run.left_running() == []
    return run.status.error


def last_two(cluster) -> str:
    return f"cluster.directives={{nodelist: '{','.join(cluster.config.node_names[-2:])}'}}"


def test_a_port_that_somebody_has_taken_is_named_with_its_node(
    cluster, engines: Path, taken: str, tmp_path: Path
) -> None:
    error = ends_in_preflight(begin(cluster, engines, tmp_path / "port", last_two(cluster)))
    assert error.startswith("PD214 preflight: ")
    assert f"{taken}: port 9101 (" in error
    assert error.endswith("is taken: Address already in use")


def test_an_image_that_one_node_lacks_is_named_with_that_node(
    cluster, engines: Path, image: tuple[str, str], tmp_path: Path
) -> None:
    path, node = image
    error = ends_in_preflight(begin(cluster, engines, tmp_path / "image", last_two(cluster), f"engine.image={path}"))
    assert error.startswith("PD214 preflight: ")
    assert path in error
    assert node in error


@pytest.mark.parametrize("server", ["etcd", "nats"])
def test_a_server_that_dies_is_named(cluster, server: str) -> None:
    """Dynamo's own servers are real here, the engines only wait."""
    sets = ("infra.discovery=etcd", "infra.event_plane=nats", f"name={server}")
    folder = cluster.submit(*(word for one in sets for word in ("--set", one)))
    cluster.driving(folder)
    run = Faulty(cluster, folder, "00000000-0000-0000-0000-000000000000", folder)
    process = run.process(run.node(server), {"nats": "nats-server"}.get(server, server))
    os.kill(process.pid, signal.SIGKILL)
    failed = cluster.reach(folder, "failed", state="FAILED", deadline_s=30)
    assert (failed["exit_code"], failed["error"]) == (
        4,
        f"{server} was killed by signal 9 before the driver; see logs/{server}.log",
    )
    on_nodes = [one.name for node in cluster.config.node_names for one in racks.node_processes(cluster.config, node)]
    assert [name for name in on_nodes if not name.startswith("slurm")] == []


def test_a_server_that_ends_at_its_start_is_named_at_once(
    cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "bin" / "etcd"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'etcd: bad flag'; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}{os.pathsep}{os.environ['PATH']}")
    folder = cluster.submit("--set", "infra.discovery=etcd", "--set", "name=broken")
    failed = cluster.reach(folder, "failed", state="FAILED", deadline_s=20)
    assert (failed["exit_code"], failed["error"]) == (4, "etcd ended before it listened; see logs/etcd.log")

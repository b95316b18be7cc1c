"""Ports are free, one run's only, and where the recipe wants them if that can be."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from pdkit.commands import planned
from pdkit.errors import UsageError
from pdkit.launch import ports
from pdkit.plan.plan import Plan
from pdkit.recipe.schema import InfraSpec

from ..fakes.launches import RECIPE


def plan_at(*sets: str) -> Plan:
    return planned(RECIPE, sets)[0][1]


SHIFTS = iter(range(40 * random.randrange(50, 100), ports.MOST_SHIFT, 400))


@pytest.fixture
def shift() -> int:
    """A shift that no other test uses; of other processes of this machine, hardly one."""
    return next(SHIFTS)


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    """What a test reserves is free again after it, as at a process's end."""
    yield
    for descriptor in ports._reserved.values():
        os.close(descriptor)
    ports._reserved.clear()


def test_the_largest_shift_is_the_recipe_s() -> None:
    assert InfraSpec.model_json_schema()["properties"]["port_shift"]["maximum"] == ports.MOST_SHIFT


def test_a_recipe_that_shifts_its_ports_keeps_its_shift(shift: int) -> None:
    assert ports.choose_shift(plan_at(f"infra.port_shift={shift}")) == shift


def test_taken_ports_move_all_ports(shift: int) -> None:
    plan = plan_at(f"infra.port_shift={shift}")
    taken = next(port.port for port in plan.ports if port.owner == "decode0 nixl")
    with closing(socket.create_server(("127.0.0.1", taken))):
        assert ports.choose_shift(plan) == shift + 40


def test_ports_that_another_run_has_chosen_are_taken_before_anything_listens(shift: int) -> None:
    code = (
        "import sys; from pathlib import Path; from pdkit.commands import planned; from pdkit.launch import ports\n"
        f"plan = planned(Path({str(RECIPE)!r}), ('infra.port_shift={shift}',))[0][1]\n"
        "print(ports.choose_shift(plan), flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert int(other.stdout.readline()) == shift
        plan = plan_at(f"infra.port_shift={shift}")
        with pytest.raises(UsageError, match=r"port \d+ \(.*\) is taken"):
            ports.reserve(plan)
        assert ports.choose_shift(plan) == shift + 40
        other.communicate("")
    ports.reserve(plan)  # the other one has ended, however it did
    ports.reserve(plan)  # one's own are not taken


def test_no_port_above_the_highest_is_tried() -> None:
    plan = plan_at("infra.http_port=65535")
    with ExitStack() as stack:
        with suppress(OSError):  # taken already, which is as good
            stack.enter_context(closing(socket.create_server(("127.0.0.1", 65535))))
        with pytest.raises(UsageError, match="no free ports"):
            ports.choose_shift(plan)


def test_a_failed_try_reserves_nothing(shift: int) -> None:
    plan = plan_at(f"infra.port_shift={shift}")
    last = plan.ports[-1].port
    with closing(socket.create_server(("127.0.0.1", last))), pytest.raises(UsageError, match=str(last)):
        ports.reserve(plan)
    assert not {port.port for port in plan.ports} & set(ports._reserved)
    assert Path("/proc/net/unix").read_text().count(f"@pdkit-port-{plan.ports[0].port}") == 0


def test_nodes_that_share_this_machine_share_a_reservation(shift: int) -> None:
    plan = plan_at(f"infra.port_shift={shift}")
    twice = replace(plan, ports=(*plan.ports, *(replace(port, node=1) for port in plan.ports)))
    ports.reserve(twice)

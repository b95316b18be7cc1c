"""Facts of hardware: what is shipped, what a recipe may change, and names that nobody knows."""

from __future__ import annotations

import pytest

from pdkit.commands import planned
from pdkit.errors import RecipeError
from pdkit.facts.hardware import hardware_facts, known_hardware
from pdkit.paths import shipped
from pdkit.plan.plan import Plan


def _plan(*sets: str) -> Plan:
    [(_, plan, _)] = planned(shipped("recipes") / "qwen38_tep8.yaml", sets)
    return plan


def test_gb300_nvl72() -> None:
    rack = hardware_facts("gb300-nvl72", "?")
    assert (rack.nodes, rack.gpus_per_node, rack.nodes * rack.gpus_per_node) == (18, 4, 72)
    assert rack.gpu_memory_gib == 276.62
    assert rack.nvlink_domain_nodes == 18
    assert (rack.default_block_size, rack.default_max_capture) == (16, 1024)


@pytest.mark.parametrize("name", known_hardware())
def test_shipped_facts_are_possible(name: str) -> None:
    facts = hardware_facts(name, "?")
    assert facts.name == name
    assert facts.nodes >= 1
    assert facts.gpus_per_node >= 1
    assert facts.gpu_memory_gib > 0
    assert 1 <= facts.nvlink_domain_nodes <= facts.nodes
    assert facts.default_block_size in (16, 128)
    assert (facts.default_max_capture > 0) == (facts.device == "cuda")


def test_the_known_names() -> None:
    assert known_hardware() == ["cpu", "gb10", "gb200-nvl72", "gb300-nvl72", "generic"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("gb300-nvl27", "did you mean `gb300-nvl72`?"), ("h100", "known: cpu, "), ("../cpu", "did you mean `cpu`?")],
)
def test_unknown_names_are_answered_with_a_known_one(name: str, hint: str) -> None:
    with pytest.raises(RecipeError, match="no facts for the hardware") as error:
        hardware_facts(name, "r.yaml:4:5")
    assert (error.value.code, error.value.at) == ("PD114", "r.yaml:4:5")
    assert hint in str(error.value.fix)


def test_a_recipe_may_change_nodes_gpus_and_memory() -> None:
    plan = _plan("hardware={facts: generic, nodes: 3, gpus_per_node: 8, gpu_memory_gib: 500}")
    assert (plan.hardware.nodes, plan.hardware.gpus_per_node, plan.hardware.gpu_memory_gib) == (3, 8, 500.0)
    assert plan.nodes == 2
    memory = plan.roles["decode"].memory
    assert memory is not None
    assert (memory.total_gib, memory.budget_gib) == (500.0, 460.0)


def test_shipped_facts_are_not_changed_by_a_recipe() -> None:
    _plan("hardware={facts: gb300-nvl72, nodes: 9}")
    assert hardware_facts("gb300-nvl72", "?").nodes == 18

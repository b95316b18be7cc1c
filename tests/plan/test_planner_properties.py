"""What holds for every plan: nothing is used twice, every rank has a place, blocks hold the state."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pdkit.plan.plan import Plan, make_plan
from pdkit.plan.ports import collisions
from pdkit.recipe.load import Loaded
from pdkit.recipe.schema import Recipe
from pdkit.recipe.source import Source

MODELS = ("qwen3.8-2.4t", "qwen3.5-397b", "qwen3-next-80b", "qwen3-32b")
few = settings(max_examples=40, deadline=None)


@st.composite
def topologies(draw: st.DrawFn) -> str:
    tp, dp = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 16])), draw(st.sampled_from([1, 1, 2, 3, 4, 8]))
    pp = draw(st.sampled_from([1, 1, 1, 2, 3]))
    return f"TP{tp}DP{dp}PP{pp}" + draw(st.sampled_from(["", "+EP"]))


@st.composite
def roles(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "topology": draw(topologies()),
        "endpoints": draw(st.integers(1, 3)),
        "mtp": draw(st.integers(0, 4)),
        "mamba_ssm_cache_dtype": draw(st.sampled_from(["bfloat16", "float32", "auto"])),
    }


@st.composite
def recipes(draw: st.DrawFn, *, pair: bool | None = None) -> dict[str, Any]:
    paired = draw(st.booleans()) if pair is None else pair
    parts = {"prefill": draw(roles()), "decode": draw(roles())} if paired else {"agg": draw(roles())}
    hardware = {"facts": draw(st.sampled_from(["gb300-nvl72", "generic", "cpu"])), "nodes": 500}
    return {
        "schema": 1,
        "name": "r",
        "model": {"facts": draw(st.sampled_from(MODELS)), "path": "m"},
        "engine": {"vllm": "0.26.0", "dynamo": "1.6.1"},
        "hardware": {**hardware, "gpus_per_node": draw(st.integers(1, 8))},
        "common": {"kv_cache_dtype": draw(st.sampled_from(["fp8", "bfloat16", "auto"]))},
        "workload": {"isl": draw(st.integers(1, 9000)), "osl": draw(st.integers(1, 2000)), "concurrency": [16]},
        "infra": {"discovery": draw(st.sampled_from(["etcd", "file"])), "frontends": draw(st.integers(1, 3))},
        **parts,
    }


def _plan(data: dict[str, Any]) -> Plan:
    return make_plan(Loaded(Recipe.model_validate(data), Source("r.yaml", data)))


@given(recipes())
@few
def test_no_gpu_and_no_port_is_used_twice(data: dict[str, Any]) -> None:
    plan = _plan(data)
    gpus = Counter((one.node, gpu) for one in plan.placement for gpu in one.gpus)
    assert all(count == 1 for count in gpus.values())
    assert all(0 <= gpu < plan.hardware.gpus_per_node for _, gpu in gpus)
    assert len(gpus) == (plan.gpus if plan.placement else 0)
    assert bool(plan.placement) != bool(plan.placement_fault)
    assert list(collisions(list(plan.ports))) == []
    assert all(1024 <= one.port < 65536 for one in plan.ports)
    assert len({one.name for one in plan.placement}) == len(plan.placement)


@given(recipes())
@few
def test_every_rank_is_placed_once(data: dict[str, Any]) -> None:
    plan = _plan(data)
    for name, role in plan.roles.items():
        for endpoint in range(role.endpoints if plan.placement else 0):
            processes = [one for one in plan.placement if (one.role, one.endpoint) == (name, endpoint)]
            assert [one.index for one in processes] == list(range(len(processes)))
            assert {one.processes for one in processes} == {len(processes)}
            assert {one.leader_node for one in processes} == {processes[0].node}
            assert not processes[0].headless
            gpus_of_rank: Counter[int] = Counter()
            for one in processes:
                for rank in one.ranks:
                    gpus_of_rank[rank] += len(one.gpus) // len(one.ranks)
            assert gpus_of_rank == dict.fromkeys(range(role.ranks), role.topology.gpus_per_rank)


@given(recipes(pair=True))
@few
def test_the_agreed_block_holds_the_state_on_every_role(data: dict[str, Any]) -> None:
    plan = _plan(data)
    agreed = plan.agreed_block_size
    assert agreed is not None
    shapes = [role.shape for role in plan.roles.values()]
    for role in plan.roles.values():
        assert role.block_size.value == role.requested_block_size == agreed
        assert role.shape.resolved_block_size(agreed) == agreed
        assert role.shape.page_bytes(agreed) >= role.shape.state_bytes_per_layer
    smaller = agreed - shapes[0].default_block_size
    assert smaller == 0 or any(shape.resolved_block_size(smaller) != smaller for shape in shapes)


@given(recipes())
@few
def test_a_plan_is_a_function_of_its_recipe(data: dict[str, Any]) -> None:
    assert _plan(data) == _plan(data)


@given(recipes(), st.integers(2, 40))
@few
def test_more_memory_never_holds_fewer_requests(data: dict[str, Any], gib: int) -> None:
    small, large = (
        _plan({**data, "common": {**data["common"], "kv_cache_memory_gib": size}}) for size in (gib, gib + 1)
    )
    for name, role in small.roles.items():
        before, after = role.max_concurrency, large.roles[name].max_concurrency
        assert before is not None
        assert after is not None
        assert before.per_rank <= after.per_rank

"""Endpoints on nodes: which GPUs, which ranks, who is headless; and the ports that go with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdkit.plan.placement import MOST_GPUS, DoesNotSpreadError, Process, place, shape_on_nodes
from pdkit.plan.plan import Plan
from pdkit.plan.ports import Port, assign_ports, collisions, listening
from pdkit.recipe.schema import InfraSpec, Role
from pdkit.recipe.topology import parse_topology


def _placed(*endpoints: tuple[Role, str, int], gpus_per_node: int = 4) -> list[Process]:
    return place([(role, parse_topology(text), count) for role, text, count in endpoints], gpus_per_node)


@pytest.mark.parametrize(
    ("topology", "gpus_per_node", "nodes", "gpus"),
    [
        ("TP1", 4, 1, 1),
        ("TEP8", 4, 2, 4),
        ("TEP16", 4, 4, 4),
        ("TP4DP2+EP", 4, 2, 4),
        ("TP2DP4+EP", 4, 2, 4),
        ("TP4DP4+EP", 4, 4, 4),
        ("DEP16", 4, 4, 4),
        ("TP1PP6+EP", 4, 2, 3),
        ("TP1PP8+EP", 4, 2, 4),
        ("TP2PP2", 2, 2, 2),
        ("TP2PP2", 4, 1, 4),
        ("TP8DP2", 4, 4, 4),
        ("TP3DP3", 4, 3, 3),
        ("DP6", 4, 2, 3),
        ("TP5", 4, 5, 1),
        ("TP8", 8, 1, 8),
    ],
)
def test_an_endpoint_takes_the_fewest_nodes_that_it_fills_evenly(
    topology: str, gpus_per_node: int, nodes: int, gpus: int
) -> None:
    assert shape_on_nodes(parse_topology(topology), gpus_per_node) == (nodes, gpus)


def test_the_front_door_s_four_nodes(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of("qwen38_tep8.yaml")
    rows = [(one.node, one.name, one.gpus, one.ranks, one.leader_node, one.headless) for one in plan.placement]
    all_four = (0, 1, 2, 3)
    assert rows == [
        (0, "prefill0-0", all_four, (0,), 0, False),
        (1, "prefill0-1", all_four, (1,), 0, False),
        (2, "decode0-0", all_four, (0,), 2, False),
        (3, "decode0-1", all_four, (0,), 2, True),
    ]


def test_small_endpoints_share_a_node() -> None:
    rows = [(one.node, one.name, one.gpus) for one in _placed(("prefill", "TP2", 1), ("decode", "TP1", 3))]
    assert rows == [(0, "prefill0", (0, 1)), (0, "decode0", (2,)), (0, "decode1", (3,)), (1, "decode2", (0,))]


def test_a_hole_is_filled_by_a_later_small_endpoint() -> None:
    rows = [(one.node, one.name, one.gpus) for one in _placed(("prefill", "TP1PP6", 1), ("decode", "TP1", 3))]
    assert rows == [
        (0, "prefill0-0", (0, 1, 2)),
        (1, "prefill0-1", (0, 1, 2)),
        (0, "decode0", (3,)),
        (1, "decode1", (3,)),
        (2, "decode2", (0,)),
    ]


def test_a_full_node_takes_nothing_more() -> None:
    rows = [(one.node, one.name, one.gpus) for one in _placed(("prefill", "TP4", 1), ("decode", "TP1", 1))]
    assert rows == [(0, "prefill0", (0, 1, 2, 3)), (1, "decode0", (0,))]


def test_each_node_of_a_dp_endpoint_serves_its_own_ranks() -> None:
    rows = [(one.index, one.ranks, one.headless) for one in _placed(("decode", "TP2DP8+EP", 1))]
    assert rows == [(0, (0, 1), False), (1, (2, 3), False), (2, (4, 5), False), (3, (6, 7), False)]


def test_only_the_first_process_of_a_cut_rank_is_not_headless() -> None:
    rows = [(one.index, one.ranks, one.headless, one.leader_node) for one in _placed(("agg", "TEP16", 2))]
    assert rows == [
        *((index, (0,), index > 0, 0) for index in range(4)),
        *((index, (0,), index > 0, 4) for index in range(4)),
    ]


def test_several_cut_ranks_lie_on_their_own_nodes() -> None:
    assert [one.ranks for one in _placed(("agg", "TP8DP2", 1))] == [(0,), (0,), (1,), (1,)]


def test_a_typo_in_a_size_ends_quickly() -> None:
    with pytest.raises(DoesNotSpreadError, match=f"68719476736 GPUs are more than the {MOST_GPUS}"):
        _placed(("agg", "TP4096DP4096PP4096", 1))
    assert sum(len(one.gpus) for one in _placed(("agg", "DP4", MOST_GPUS // 4))) == MOST_GPUS


def test_the_whole_rack_fits(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of("qwen38/published/4xtp2dp4-1xtp4dp4-cc2560.yaml", "prefill.endpoints=7")
    assert (plan.nodes, plan.gpus, plan.gpus_allocated) == (18, 72, 72)


def test_idle_gpus_of_the_job_s_nodes_are_counted(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of("qwen38/agg/prefill-tp1pp6.yaml")
    assert (plan.nodes, plan.gpus, plan.gpus_allocated) == (2, 6, 8)


def test_ports_of_the_front_door(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of("qwen38_tep8.yaml")
    on_decode = [(one.port, one.owner) for one in plan.ports if one.node == 2]
    assert on_decode == [
        (9101, "decode0-0 system"),
        *((port, "decode0-0 nixl") for port in range(20008, 20016)),
        (22008, "decode0-0 kv-events"),
        (24501, "decode0-0 master"),
    ]
    infra = [(one.port, one.owner) for one in plan.ports if not one.owner.startswith(("prefill", "decode"))]
    assert infra == [(2379, "etcd"), (2380, "etcd peer"), (4222, "nats"), (8000, "frontend0")]


def test_a_headless_process_serves_no_metrics_of_its_own(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of("qwen38_tep8.yaml")
    assert {one.owner for one in plan.ports if one.node == 3} == {"decode0-1 nixl"}


def test_file_discovery_needs_no_servers(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of("qwen38_tep8.yaml", "infra.discovery=file", "infra.frontends=3", "infra.http_port=8080")
    infra = [(one.node, one.port, one.owner) for one in plan.ports if not one.owner.startswith(("prefill", "decode"))]
    assert infra == [(0, 8080, "frontend0"), (1, 8080, "frontend1"), (2, 8080, "frontend2")]


def test_collisions_name_both_owners() -> None:
    ports = [Port(0, 1, "a"), Port(0, 2, "b"), Port(0, 2, "c"), Port(1, 2, "d"), Port(0, 2, "e")]
    assert [(one.owner, other.owner) for one, other in collisions(ports)] == [("b", "c"), ("b", "e")]


def test_two_endpoints_of_one_node_get_ranges_of_their_own() -> None:
    processes = _placed(("prefill", "TP1", 2), ("decode", "DP2", 1))
    topologies = {"prefill": parse_topology("TP1"), "decode": parse_topology("DP2")}
    ports = assign_ports(processes, topologies)
    given = [(name, p.system, p.side_channel, p.kv_event, p.dp_rpc, p.master) for name, p in ports.items()]
    assert given == [
        ("prefill0", 9100, 20000, 22000, None, None),
        ("prefill1", 9101, 20001, 22001, None, None),
        ("decode0", 9102, 20002, 22002, 24002, None),
    ]
    found = listening(processes, topologies, ports, InfraSpec(discovery="file"))
    assert list(collisions(found)) == []

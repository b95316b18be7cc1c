"""What stays for the KV cache: measured where this very configuration was measured, else estimated and marked so."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pdkit.facts.hardware import hardware_facts
from pdkit.facts.models import MeasuredMemory, model_facts
from pdkit.plan.decision import Decision
from pdkit.plan.memory import plan_memory
from pdkit.plan.plan import Plan
from pdkit.plan.role import RolePlan
from pdkit.plan.sizing import Sizing
from pdkit.recipe.topology import parse_topology

MODEL = model_facts("qwen3.8-2.4t", "?")
PlanOf = Callable[..., Plan]
FRONT_DOOR = "qwen38_tep8.yaml"


def _decode(plan_of: PlanOf, *sets: str) -> RolePlan:
    return plan_of(FRONT_DOOR, *sets).roles["decode"]


def test_a_measured_configuration_has_no_error_band(plan_of: PlanOf) -> None:
    memory = _decode(plan_of).memory
    assert memory is not None
    assert (memory.source, memory.error_gib, memory.kv_cache_gib) == ("measured", 0.0, 82.63)
    assert memory.total_gib == 276.62


@pytest.mark.parametrize(
    "change",
    [
        "decode.gpu_memory_utilization=0.9",
        "decode.max_num_batched_tokens=160",
        "decode.max_num_seqs=24",
        "decode.max_cudagraph_capture_size=96",
        "decode.enforce_eager=true",
        "hardware={facts: gb300-nvl72, gpu_memory_gib: 250}",
        "hardware=gb200-nvl72",
        "model.weights_gib=1400",
        "decode.mtp=2",
        "decode.topology=TP8",
    ],
)
def test_any_other_configuration_is_an_estimate_with_a_band(plan_of: PlanOf, change: str) -> None:
    memory = _decode(plan_of, change).memory
    assert memory is not None
    assert memory.source == "estimated"
    assert memory.error_gib > 0
    left = memory.budget_gib - memory.non_torch_gib - memory.weights_gib
    left -= memory.peak_activation_gib + memory.cudagraph_estimate_gib
    assert memory.kv_cache_gib == pytest.approx(left, abs=0.02)


def _sizes(row: MeasuredMemory) -> Sizing:
    def decided(value: int) -> Decision[int]:
        return Decision(value, "pdkit", "")

    return Sizing(
        max_model_len=decided(10240),
        max_num_seqs=decided(row.max_num_seqs),
        max_num_batched_tokens=decided(row.max_num_batched_tokens),
        max_cudagraph_capture_size=decided(row.max_num_seqs * (1 + row.mtp)),
        cudagraph_mode=Decision("FULL_DECODE_ONLY", "pdkit", ""),
    )


@pytest.mark.parametrize("other_topologies_only", [False, True])
@pytest.mark.parametrize("row", MODEL.measured, ids=lambda row: f"{row.topology}-mtp{row.mtp}-{row.max_num_seqs}")
def test_the_band_covers_what_was_measured(row: MeasuredMemory, other_topologies_only: bool) -> None:
    """Each measured row, estimated from the others as if it had never been measured."""
    others = tuple(
        one for one in MODEL.measured if one != row and not (other_topologies_only and one.topology == row.topology)
    )
    estimate = plan_memory(
        replace(MODEL, measured=others), hardware_facts("gb300-nvl72", "?"), parse_topology(row.topology), row.mtp,
        _sizes(row), utilization=None, kv_cache_gib=None, weights_gib=None,
    )  # fmt: skip
    assert estimate is not None
    assert estimate.source == "estimated"
    assert abs(estimate.kv_cache_gib - row.kv_cache_gib) <= estimate.error_gib <= 20


def test_a_given_cache_size_wins(plan_of: PlanOf) -> None:
    memory = _decode(plan_of, "decode.kv_cache_memory_gib=40").memory
    assert memory is not None
    assert (memory.kv_cache_gib, memory.source, memory.error_gib) == (40.0, "given", 0.0)


def test_given_weights_win_over_measured_ones(plan_of: PlanOf) -> None:
    memory = _decode(plan_of, "model.weights_gib=800").memory
    assert memory is not None
    assert memory.weights_gib == 100.0
    assert "model.weights_gib" in memory.reason


def test_eager_engines_pay_for_no_graphs(plan_of: PlanOf) -> None:
    role = _decode(plan_of, "decode.enforce_eager=true")
    assert role.memory is not None
    assert role.memory.cudagraph_estimate_gib == 0.0
    assert role.sizing.capture_sizes(role.mtp) == []
    assert role.sizing.cudagraph_mode.value == "NONE"


def test_unknown_weights_are_not_guessed(plan_json: Callable[..., dict[str, Any]], tmp_path: Any) -> None:
    config = {
        "num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 64, "dtype": "bfloat16",
        "max_position_embeddings": 32768,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    data = plan_json(
        FRONT_DOOR, f"model.facts={tmp_path}/config.json", "decode.mtp=0", "common.kv_cache_dtype=bfloat16"
    )
    assert data["roles"]["decode"]["memory"] is None
    assert data["roles"]["decode"]["max_concurrency"] is None
    assert [one["code"] for one in data["findings"] if one["severity"] == "error"].count("PD005") == 1


def test_what_binds_is_named(plan_of: PlanOf) -> None:
    cases = {
        "concurrency": (),
        "max-num-seqs": ("workload.concurrency=[64]", "decode.max_num_seqs=48"),
        "KV": ("workload.concurrency=[300]",),
        "graphs": ("workload.concurrency=[64]", "decode.max_cudagraph_capture_size=128"),
    }
    for expected, sets in cases.items():
        limit = _decode(plan_of, *sets).max_concurrency
        assert limit is not None
        assert limit.bound_by == expected, sets
        assert limit.reason


def test_rank_and_total_capacity(plan_of: PlanOf) -> None:
    role = plan_of("qwen38/published/4xtp2dp4-1xtp4dp4-cc2560.yaml").roles["decode"]
    limit = role.max_concurrency
    assert limit is not None
    assert limit.total == pytest.approx(4 * limit.per_rank, abs=0.05)
    assert limit.seats == 4 * 656
    assert limit.per_rank_of_load >= limit.per_rank  # the load's requests are shorter than max-model-len

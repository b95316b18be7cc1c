"""Block sizes: natural, given, agreed; and the same rule on the second system, Qwen3-Next on two small hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pdkit.facts.models import model_facts
from pdkit.plan.blocks import CacheShape, agreed_block_size, attention_bytes_per_token
from pdkit.plan.plan import Plan

PlanJson = Callable[..., dict[str, Any]]
MIXED = "qwen38_tep8.yaml"


def test_a_mixed_recipe_pins_the_size_that_both_roles_can_hold(plan_json: PlanJson) -> None:
    data = plan_json(MIXED)
    assert data["block_size"]["natural"] == {"prefill": 2176, "decode": 1088}
    assert data["block_size"]["agreed"] == 2176
    assert data["block_size"]["effective"] == {"prefill": 2176, "decode": 2176}
    assert data["block_size"]["pinned"] is True
    assert "prefill 2176, decode 1088" in data["block_size"]["reason"]


def test_left_to_vllm_the_roles_differ(plan_json: PlanJson) -> None:
    data = plan_json(MIXED, "common.block_size=natural")
    assert data["block_size"]["effective"] == {"prefill": 2176, "decode": 1088}
    assert data["block_size"]["agreed"] is None
    assert not data["block_size"]["pinned"]
    [finding] = [one for one in data["findings"] if one["code"] == "PD001"]
    assert finding["severity"] == "error"
    assert "2176" in finding["message"]
    assert "1088" in finding["message"]
    assert "at TP8 the 4 KV heads are replicated" in finding["message"]
    assert finding["fix"] == "set `common.block_size: auto`, which pins one size that both can hold"
    assert finding["at"] == "--set common.block_size=natural:1:19"


def test_a_size_that_cannot_hold_the_state_is_refused(plan_json: PlanJson) -> None:
    data = plan_json(MIXED, "common.block_size=2112")
    hits = [one for one in data["findings"] if one["code"] == "PD002"]
    assert [one["message"].split(":")[0] for one in hits] == ["prefill"]
    assert "1110016 B in a page of 1081344 B" in hits[0]["message"]
    assert "raise it to 4224" in hits[0]["message"]
    assert data["block_size"]["effective"] == {"prefill": 4224, "decode": 2112}
    assert [one["code"] for one in data["findings"] if one["severity"] == "error"] == ["PD001", "PD002"]


def test_the_same_size_holds_the_state_without_mtp(plan_json: PlanJson) -> None:
    data = plan_json(MIXED, "common.block_size=2112", "decode.mtp=0")
    assert data["findings"] == []
    assert data["block_size"]["effective"] == {"prefill": 2112, "decode": 2112}


def test_mtp_on_one_side_only_also_parts_the_sizes(plan_json: PlanJson) -> None:
    data = plan_json("qwen38/pairs/1xtep8-1xtep8.yaml", "common.block_size=natural", "prefill.mtp=0")
    assert data["block_size"]["effective"] == {"prefill": 1056, "decode": 1088}
    [finding] = [one for one in data["findings"] if one["code"] == "PD001"]
    assert "MTP 0 and 3 give GDN states of different size" in finding["message"]


def test_prefill_follows_the_mtp_of_decode(plan_json: PlanJson) -> None:
    assert plan_json(MIXED)["roles"]["prefill"]["mtp"] == 3
    assert plan_json(MIXED, "decode.mtp=0")["roles"]["prefill"]["mtp"] == 0
    assert plan_json(MIXED, "decode.mtp=", "common.mtp=2")["roles"]["prefill"]["mtp"] == 2


def test_a_given_size_is_used_and_marked(plan_json: PlanJson) -> None:
    data = plan_json(MIXED, "common.block_size=4352")
    assert data["block_size"]["effective"] == {"prefill": 4352, "decode": 4352}
    assert data["roles"]["decode"]["decisions"]["block_size"]["by"] == "recipe"
    assert "set by the recipe" in data["block_size"]["reason"]


def test_one_role_alone_has_nothing_to_agree_on(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of("qwen38/agg/decode-tep8.yaml")
    assert plan.agreed_block_size is None
    assert plan.roles["agg"].requested_block_size is None
    assert plan.roles["agg"].block_size.by == "vllm"


@pytest.mark.parametrize(
    ("tokens", "state", "default", "natural"),
    [(512, 0, 16, 16), (512, 1, 16, 16), (512, 8192, 16, 16), (512, 8193, 16, 32), (1024, 10**6, 128, 1024)],
)
def test_the_natural_size_is_the_least_multiple_that_holds_the_state(
    tokens: int, state: int, default: int, natural: int
) -> None:
    shape = CacheShape(attention_bytes_per_token=tokens, state_bytes_per_layer=state, default_block_size=default)
    assert shape.natural_block_size == natural
    assert shape.page_bytes(natural) >= state
    assert natural == default or shape.page_bytes(natural - default) < state


def test_padding_is_what_vllm_logs() -> None:
    shape = CacheShape(attention_bytes_per_token=512, state_bytes_per_layer=1110016, default_block_size=16)
    assert shape.padding_pct(2176) == pytest.approx(0.369, abs=0.001)
    dense = CacheShape(attention_bytes_per_token=512, state_bytes_per_layer=0, default_block_size=16)
    assert dense.padding_pct(16) == 0.0


def test_sizes_of_different_platforms_agree_on_a_size_that_both_keep() -> None:
    small = CacheShape(attention_bytes_per_token=512, state_bytes_per_layer=100_000, default_block_size=16)
    large = CacheShape(attention_bytes_per_token=512, state_bytes_per_layer=100_000, default_block_size=128)
    assert (small.natural_block_size, large.natural_block_size) == (208, 256)
    assert agreed_block_size([small, large]) == 256


NEXT = """
schema: 1
name: two-hosts
model: {facts: qwen3-next-80b, path: Qwen/Qwen3-Next-80B-A3B-Thinking}
engine: {vllm: 0.25.1, dynamo: 1.6.1}
hardware: {facts: generic, nodes: 2, gpus_per_node: 2, gpu_memory_gib: 15.9}
common: {kv_cache_dtype: fp8}
agg: {topology: %s, max_num_seqs: 32}
workload: {isl: 1024, osl: 1024, concurrency: [24]}
"""


@pytest.mark.parametrize(
    ("topology", "block", "full_layers", "bytes_per_token", "all_reduces", "pp_bytes"),
    [("TP4", 544, 12, 6144, 96, 0), ("TP2PP2", 1072, 6, 3072, 96, 4096), ("TP2", 1072, 12, 6144, 96, 0)],
)
def test_two_small_hosts(
    plan_json: PlanJson,
    tmp_path: Any,
    topology: str,
    block: int,
    full_layers: int,
    bytes_per_token: int,
    all_reduces: int,
    pp_bytes: int,
) -> None:
    recipe = tmp_path / "two_hosts.yaml"
    recipe.write_text(NEXT % topology)
    data = plan_json(recipe)
    role = data["roles"]["agg"]
    assert role["block_size"] == data["block_size"]["natural"]["agg"] == block
    assert role["kv"]["full_attention_layers"] == full_layers
    assert role["kv"]["bytes_per_token_per_layer"] * full_layers == bytes_per_token
    assert data["network"]["agg"]["all_reduces_per_token"] == all_reduces
    assert data["network"]["agg"]["pp_bytes_per_token"] == pp_bytes


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    model = model_facts("qwen3-next-80b", "?")
    assert [attention_bytes_per_token(model, tp, "fp8") for tp in (1, 2, 4, 8)] == [1024, 512, 512, 512]
    assert 1.37 * 2**30 / (12 * attention_bytes_per_token(model, 4, "fp8")) == pytest.approx(239_000, rel=0.005)

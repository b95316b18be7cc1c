"""Twelve public failures: the input that failed is refused, its control is let pass.

A case is the few figures of a public report. `case.recipe` writes them as a recipe; where the list of cases that this
was taken from lies beside the repository, its inputs go through the same functions and must give the same verdicts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pdkit.commands import planned
from pdkit.errors import Finding, RecipeError
from pdkit.paths import shipped
from pdkit.plan.kv import KvLayout
from pdkit.plan.ports import Port, collisions

LIST = Path(__file__).resolve().parents[3] / "shared/cases/known_failures.json"
AGG = "qwen38/agg/decode-tep8.yaml"
TINY = "local/tiny_hybrid_pd.yaml"
DENSE = (
    "model={facts: qwen3-32b, path: /models/Qwen3-32B}", "hardware=generic", "engine.dynamo=1.6.1",
    "prefill.topology=TP4", "decode.topology=TP4", "workload={isl: 2048, osl: 1024, concurrency: [8]}",
    "common.mamba_ssm_cache_dtype=", "gate.max_tokens=4096", "common.max_model_len=8192",
)  # fmt: skip
QWEN35 = ("model={facts: qwen3.5-397b, path: /models/Qwen3.5-397B}", "gate.max_tokens=8192")
Config = dict[str, Any]


@dataclass(frozen=True)
class Known:
    """One public failure."""

    source: str
    config: Config
    """The figures of the report."""
    recipe: Callable[[Config], tuple[str, list[str]]]
    """(recipe, `--set`s) of such an input."""
    codes: tuple[str, ...]
    """Codes of the errors that must be found, one for each fault."""
    controls: tuple[Config, ...]
    """What to change so that it works."""
    warns: tuple[Config, ...] = field(default=())
    """What to change so that it is only warned of."""


def _block_of_tp(config: Config) -> tuple[str, list[str]]:
    sides = []
    for role in ("prefill", "decode"):
        tp, dp = config[role]["tensor_parallel_size"], config[role].get("data_parallel_size", 1)
        sides.append(f"{role}.topology=TP{tp}DP{dp}+EP" if dp > 1 else f"{role}.topology=TP{tp}+EP")
    return "qwen38_tep8.yaml", [*QWEN35, "common.block_size=natural", "common.mtp=0", "decode.mtp=0", *sides]


def _given_blocks(config: Config) -> tuple[str, list[str]]:
    sizes = [f"{role}.block_size={config[role]['block_size']}" for role in ("prefill", "decode")]
    if config.get("dense"):
        return "qwen38_tep8.yaml", [*DENSE, "common.mtp=0", "decode.mtp=0", *sizes]
    return TINY, ["hardware=generic", *sizes]


def _conv_layout(config: Config) -> tuple[str, list[str]]:
    """A variable that is not set is layout SD to vLLM; pdkit sets it, so a recipe must say SD to leave it out."""
    wanted = {role: config[role]["env"].get("VLLM_SSM_CONV_STATE_LAYOUT", "SD") for role in ("prefill", "decode")}
    sets = [f"{role}.conv_state_layout={layout}" for role, layout in wanted.items()]
    model = [*DENSE, "common.block_size=128"] if config.get("dense") else QWEN35
    return "qwen38_tep8.yaml", [*model, "common.mtp=0", "decode.mtp=0", *sets]


def _align_and_draft(config: Config) -> tuple[str, list[str]]:
    draft = config["speculative_config"] or {"num_speculative_tokens": 0}
    return AGG, [
        "model.facts=qwen3.5-397b", f"engine.vllm={config['vllm_version']}.0", "common.mamba_ssm_cache_dtype=float32",
        f"agg.conv_state_layout={config['env']['VLLM_SSM_CONV_STATE_LAYOUT']}",
        f"agg.prefix_caching={str(config['enable_prefix_caching']).lower()}",
        f"agg.mtp={draft['num_speculative_tokens']}", "agg.max_num_batched_tokens=16384",
        "workload={isl: 16384, osl: 1024, concurrency: [8], shared_prefix: 16300}", "common.max_model_len=20480",
    ]  # fmt: skip


def _draft_on_one_side(config: Config) -> tuple[str, list[str]]:
    sets = []
    for role in ("prefill", "decode"):
        draft = config[role]["speculative_config"]
        sets.append(f"{role}.mtp={draft['num_speculative_tokens'] if draft else 0}")
        if draft:
            model = ", model: /models/draft" if draft["method"].startswith("eagle") else ""
            sets.append(f"{role}.speculative={{method: {draft['method']}{model}}}")
    return "qwen38_tep8.yaml", [*DENSE, "common.block_size=128", "engine.vllm=0.31.0", *sets, *_by_role()]


def _by_role() -> tuple[str, ...]:
    return ("common.kv_transfer={kv_role: by_role}", "common.args.async-scheduling=true")


def _state_blocks(config: Config) -> tuple[str, list[str]]:
    """A KV cache of exactly so many blocks; a short load, so that nothing else binds."""
    sets = [
        "agg.mtp=0", "workload={isl: 1024, osl: 512, concurrency: [64], template_tokens: 0}", "agg.max_model_len=2048",
        "gate.max_tokens=1024", f"agg.max_num_seqs={config['max_num_seqs']}",
        f"agg.cudagraph_mode={config['cudagraph_mode']}", "agg.topology=TEP8", "model.facts=qwen3.5-397b",
    ]  # fmt: skip
    [(_, plan, _)] = planned(shipped("recipes") / AGG, tuple(sets))
    layout: KvLayout = plan.roles["agg"].layout
    gib = (config["estimated_mamba_blocks"] + 0.5) * layout.block_bytes / 2**30
    return AGG, [*sets, f"agg.kv_cache_memory_gib={gib:.6f}"]


def _step_below_a_block(config: Config) -> tuple[str, list[str]]:
    """Qwen3-Next on TP4 with an fp8 KV cache settles on blocks of 544 tokens by itself."""
    return AGG, [
        "model={facts: qwen3-next-80b, path: /models/Qwen3-Next}", "agg.topology=TP4+EP",
        "agg.mtp=0", f"agg.prefix_caching={str(config['enable_prefix_caching']).lower()}",
        f"agg.max_num_batched_tokens={config['max_num_batched_tokens']}", f"workload.isl={config['prompt_tokens']}",
        f"workload.shared_prefix={config['prompt_tokens'] - 1}", "workload.concurrency=[8]", "agg.max_num_seqs=8",
    ]  # fmt: skip


def _seats(config: Config) -> tuple[str, list[str]]:
    return "qwen38_tep8.yaml", [
        f"decode.topology=DEP{config['decode_ranks']}", f"decode.max_num_seqs={config['max_num_seqs_per_rank']}",
        f"workload.concurrency=[{config['benchmark_concurrency']}]",
    ]  # fmt: skip


def _capture(config: Config) -> tuple[str, list[str]]:
    width = 1 + config["speculative_config"]["num_speculative_tokens"]
    largest = config["max_cudagraph_capture_size"]
    decode = f"topology: TEP8, mtp: {width - 1}, max_num_seqs: {config['max_num_seqs']}, max_num_batched_tokens: 64"
    return "qwen38_tep8.yaml", [
        f"decode={{{decode}, max_cudagraph_capture_size: {largest}}}",
        f"workload.concurrency=[{config['max_num_seqs']}]",
    ]


def _fixed_lengths(config: Config) -> tuple[str, list[str]]:
    sets = [
        "common.max_model_len=10240",
        f"workload.isl={config['random_input_len']}", f"workload.osl={config['random_output_len']}",
        f"sweep.tool={'vllm-bench' if config['tool'] == 'vllm bench serve' else 'aiperf'}",
    ]  # fmt: skip
    ratio = config["random_range_ratio"]
    return "qwen38_tep8.yaml", sets if ratio is None else [*sets, f"sweep.random_range_ratio={float(ratio)}"]


def _removed(config: Config) -> tuple[str, list[str]]:
    sets = [f"engine.vllm={config['vllm_version']}{'' if config['vllm_version'].count('.') > 1 else '.0'}"]
    for text in config["flags"]:
        name, _, value = text.removeprefix("--").partition("=")
        sets.append(f"agg.args.{name}={value or 'true'}")
    return "local/tiny_agg.yaml", [*sets, *(f"agg.env.{name}={value}" for name, value in config["env"].items())]


def _changed(config: Config, change: Config) -> Config:
    """`change` laid over a copy of `config`, key by key."""
    merged = deepcopy(config)
    for key, value in change.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _changed(merged[key], value) if both else value
    return merged


EAGLE = {"method": "eagle3", "num_speculative_tokens": 3}
DS = {"VLLM_SSM_CONV_STATE_LAYOUT": "DS"}
KNOWN = {
    "C01": Known(
        "vllm#42895",
        {"prefill": {"tensor_parallel_size": 4}, "decode": {"tensor_parallel_size": 1, "data_parallel_size": 8}},
        _block_of_tp,
        ("PD001",),
        ({"prefill": {"tensor_parallel_size": 1, "data_parallel_size": 4}},),
    ),
    "C02": Known(
        "vllm#52234",
        {"prefill": {"block_size": 128}, "decode": {"block_size": 64}},
        _given_blocks,
        ("PD001",),
        ({"decode": {"block_size": 128}},),
        ({"dense": True, "prefill": {"block_size": 64}, "decode": {"block_size": 128}},),
    ),
    "C04": Known(
        "vllm#58034, vllm#54489",
        {"prefill": {"env": DS}, "decode": {"env": {}}},
        _conv_layout,
        ("PD013",),
        ({"decode": {"env": DS}}, {"dense": True}),
    ),
    "C05": Known(
        "vllm#38898",
        {
            "vllm_version": "0.20",
            "env": DS,
            "enable_prefix_caching": True,
            "speculative_config": {"method": "mtp", "num_speculative_tokens": 2},
        },
        _align_and_draft,
        ("PD029",),
        ({"enable_prefix_caching": False}, {"speculative_config": None}),
        ({"vllm_version": "0.24"},),
    ),
    "C07": Known(
        "vllm#49230, vllm#52276",
        {"prefill": {"speculative_config": None}, "decode": {"speculative_config": EAGLE}},
        _draft_on_one_side,
        ("PD010",),
        (
            {"prefill": {"speculative_config": {**EAGLE, "num_speculative_tokens": 1}}},
            {"decode": {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}},
        ),
    ),
    "C08": Known(
        "vllm#38270, vllm#49064, vllm#55148",
        {"max_num_seqs": 1024, "estimated_mamba_blocks": 512, "cudagraph_mode": "FULL_AND_PIECEWISE"},
        _state_blocks,
        ("PD050",),
        ({"max_num_seqs": 512},),
    ),
    "C09": Known(
        "vllm#34445, vllm#36734",
        {
            "enable_prefix_caching": True,
            "resolved_block_size": 544,
            "max_num_batched_tokens": 512,
            "prompt_tokens": 3000,
        },
        _step_below_a_block,
        ("PD020",),
        ({"max_num_batched_tokens": 544},),
    ),
    "C11": Known(
        "InferenceX#2665",
        {"decode_ranks": 16, "max_num_seqs_per_rank": 4, "benchmark_concurrency": 128},
        _seats,
        ("PD006",),
        ({"max_num_seqs_per_rank": 8}, {"decode_ranks": 32}),
    ),
    "C12": Known(
        "vllm#37865, vllm#54933",
        {"max_num_seqs": 6, "speculative_config": {"num_speculative_tokens": 6}, "max_cudagraph_capture_size": 42},
        _capture,
        ("PD008",),
        ({"max_cudagraph_capture_size": 56},),
    ),
    "C18": Known(
        "AMD-AGI/Hyperloom#428",
        {"tool": "vllm bench serve", "random_input_len": 1024, "random_output_len": 512, "random_range_ratio": 1},
        _fixed_lengths,
        ("PD090",),
        ({"random_range_ratio": 0}, {"tool": "the other", "random_range_ratio": None}),
    ),
    "C20": Known(
        "vllm#50292, vllm#33535, dynamo#8693, unsloth-zoo#1210",
        {
            "vllm_version": "0.26",
            "env": {"VLLM_ATTENTION_BACKEND": "FLASHINFER", "VLLM_ALL2ALL_BACKEND": "deepep_low_latency"},
            "flags": ["--disable-log-requests", "--swap-space=4"],
        },
        _removed,
        ("PD016", "PD016", "PD070", "PD070"),
        (
            {"env": None, "flags": ["--attention-backend=FLASHINFER", "--all2all-backend=deepep_low_latency"]},
            {"vllm_version": "0.17.1", "env": None, "flags": ["--swap-space=4"]},
        ),
    ),
}
ELSEWHERE = {"C14"}
"""Not a matter of `check`: a recipe cannot even say it, see below."""


def _findings(known: Known, config: Config) -> list[Finding]:
    recipe, sets = known.recipe(_without_null(config))
    [(_, _, findings)] = planned(shipped("recipes") / recipe, tuple(sets))
    return findings


def _without_null(config: Config) -> Config:
    return {key: ({} if key == "env" and value is None else value) for key, value in config.items()}


@pytest.mark.parametrize("name", KNOWN)
def test_what_failed_is_refused(name: str) -> None:
    _refuses(KNOWN[name], KNOWN[name].config)


def _refuses(known: Known, config: Config) -> None:
    errors = [one.code for one in _findings(known, config) if one.severity == "error"]
    for code in set(known.codes):
        assert errors.count(code) >= known.codes.count(code), errors


@pytest.mark.parametrize(("name", "change"), [(name, one) for name, known in KNOWN.items() for one in known.controls])
def test_its_control_is_let_pass(name: str, change: Config) -> None:
    assert _findings(KNOWN[name], _changed(KNOWN[name].config, change)) == []


@pytest.mark.parametrize(("name", "change"), [(name, one) for name, known in KNOWN.items() for one in known.warns])
def test_what_may_work_is_only_warned_of(name: str, change: Config) -> None:
    found = _findings(KNOWN[name], _changed(KNOWN[name].config, change))
    assert [(one.severity, one.code) for one in found] == [("warning", KNOWN[name].codes[0])]


def test_side_channels_that_overlap() -> None:
    """ray#60057, vllm#24249: both roles of a node on base 40000, two ranks each, wait for each other for ever.

    The plan gives these ports out; a recipe that names one is refused, and the rule about ports compares all of them.
    """
    both = [Port(0, 40000 + rank, f"{role} rank {rank}") for role in ("prefill", "decode") for rank in (0, 1)]
    assert [one.port for one, _ in collisions(both)] == [40000, 40001]
    apart = [Port(0, base + rank, f"{base} {rank}") for base in (40000, 41000) for rank in (0, 1)]
    two_hosts = [Port(node, 40000 + rank, f"{node} {rank}") for node in (0, 1) for rank in (0, 1)]
    assert list(collisions(apart)) == list(collisions(two_hosts)) == []
    named = tuple(f"{role}.env.VLLM_NIXL_SIDE_CHANNEL_PORT=40000" for role in ("prefill", "decode"))
    with pytest.raises(RecipeError, match="the plan gives out ports") as error:
        planned(shipped("recipes") / "local/tiny_pd.yaml", named)
    assert len(error.value.findings) == 2
    one_node = ("hardware=generic", "prefill.topology=TP1DP2", "decode.topology=TP1DP2")
    [(_, plan, findings)] = planned(shipped("recipes") / "local/tiny_pd.yaml", one_node)
    bases = sorted(ports.side_channel for ports in plan.process_ports.values())
    assert plan.nodes == 1
    assert len(bases) == 2
    assert bases[1] - bases[0] >= 2
    assert not [one for one in findings if one.code == "PD017"]


@pytest.mark.skipif(not LIST.is_file(), reason="the list of cases does not lie beside this checkout")
def test_the_list_s_own_inputs_get_the_same_verdicts() -> None:
    cases = {case["id"]: case["config"] for case in json.loads(LIST.read_text())}
    assert cases.keys() == KNOWN.keys() | ELSEWHERE
    for name, known in KNOWN.items():
        _refuses(known, cases[name])

"""What each process is told: parallel flags by shape of the endpoint, ports and GPUs, and the recipe's own flags."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdkit.commands import planned
from pdkit.errors import Finding
from pdkit.paths import shipped
from pdkit.plan.plan import Plan
from pdkit.recipe.owned import OWNED_ENV, owner_of_flag
from pdkit.recipe.source import Source
from pdkit.render.command import Command
from pdkit.render.engine import commands
from pdkit.render.text import Value, fill

Ready = Callable[..., tuple[Plan, Source, list[Finding]]]
AGG = "qwen38/agg/decode-tep8.yaml"
PARALLEL = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel", "enable-expert-parallel", "nnodes")
MULTI_NODE = (*PARALLEL, "node-rank", "master", "headless")


def _text(value: Value) -> str:
    return fill(value, lambda node: f"node{node}", "/run")


def _words(command: Command) -> list[str]:
    return [_text(word) for word in command.argv()]


def _parallel(command: Command) -> list[str]:
    """The command's parallel flags as `name=value`."""
    found = []
    for flag in command.flags:
        name = flag.name.removeprefix("--")
        if name.startswith(MULTI_NODE):
            found.append("=".join([name, *map(_text, flag.words()[1:])]))
    return found


def _env(command: Command) -> dict[str, str]:
    return {one.name: _text(one.value) for one in command.env}


def _value(command: Command, flag: str) -> str:
    words = _words(command)
    return words[words.index(flag) + 1]


@pytest.fixture
def workers(ready: Ready) -> Callable[..., dict[str, Command]]:
    def of(recipe: str | Path, *sets: str) -> dict[str, Command]:
        return {command.name: command for command in commands(ready(recipe, *sets)[0]) if command.kind == "worker"}

    return of


Workers = Callable[..., dict[str, Command]]


def test_one_process_on_part_of_a_node(workers: Workers) -> None:
    found = workers(AGG, "agg.topology=TP2")
    assert list(found) == ["agg0"]
    assert _parallel(found["agg0"]) == ["tensor-parallel-size=2"]
    assert _env(found["agg0"])["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_dp_on_one_node(workers: Workers) -> None:
    found = workers(AGG, "agg.topology=DP4+EP")
    assert list(found) == ["agg0"]
    assert _parallel(found["agg0"]) == [
        "tensor-parallel-size=1",
        "data-parallel-size=4",
        "enable-expert-parallel",
        "data-parallel-size-local=4",
        "data-parallel-start-rank=0",
        "data-parallel-hybrid-lb",
        "data-parallel-address=node0",
        "data-parallel-rpc-port=24000",
    ]
    assert "CUDA_VISIBLE_DEVICES" not in _env(found["agg0"])  # the whole node


def test_dp_over_nodes_serves_on_every_node(workers: Workers) -> None:
    found = workers(AGG, "agg.topology=TP2DP4+EP")
    assert list(found) == ["agg0-0", "agg0-1"]
    for index, command in enumerate(found.values()):
        assert _parallel(command) == [
            "tensor-parallel-size=2",
            "data-parallel-size=4",
            "enable-expert-parallel",
            "data-parallel-size-local=2",
            f"data-parallel-start-rank={2 * index}",
            "data-parallel-hybrid-lb",
            "data-parallel-address=node0",
            "data-parallel-rpc-port=24000",
        ]
        assert _env(command)["DYN_SYSTEM_PORT"] == "9100"


def test_tp_over_nodes_is_headless_beyond_the_first(workers: Workers) -> None:
    found = workers(AGG, "agg.topology=TEP16")
    assert list(found) == ["agg0-0", "agg0-1", "agg0-2", "agg0-3"]
    for index, command in enumerate(found.values()):
        assert _parallel(command) == [
            "tensor-parallel-size=16",
            "enable-expert-parallel",
            "nnodes=4",
            f"node-rank={index}",
            "master-addr=node0",
            "master-port=24500",
            *(["headless"] if index else []),
        ]
        assert ("DYN_SYSTEM_PORT" in _env(command)) == (index == 0)


def test_pp_over_nodes(workers: Workers) -> None:
    found = workers("qwen38/agg/prefill-tp1pp6.yaml")
    assert [_env(command)["CUDA_VISIBLE_DEVICES"] for command in found.values()] == ["0,1,2", "0,1,2"]
    for index, command in enumerate(found.values()):
        assert _parallel(command) == [
            "tensor-parallel-size=1",
            "pipeline-parallel-size=6",
            "enable-expert-parallel",
            "nnodes=2",
            f"node-rank={index}",
            "master-addr=node0",
            "master-port=24500",
            *(["headless"] if index else []),
        ]


def test_several_multi_node_endpoints_meet_at_their_own_first_node(workers: Workers) -> None:
    found = workers("qwen38_tep8.yaml", "decode.endpoints=2")
    decodes = [command for name, command in found.items() if name.startswith("decode")]
    meets = [(_value(one, "--master-addr"), _value(one, "--master-port")) for one in decodes]
    assert meets == [("node2", "24501"), ("node2", "24501"), ("node4", "24502"), ("node4", "24502")]


def test_two_small_endpoints_share_a_node(workers: Workers) -> None:
    found = workers("qwen38_tep8.yaml", "prefill.topology=TP2", "decode.topology=TP1", "decode.endpoints=2")
    gpus = {name: _env(command)["CUDA_VISIBLE_DEVICES"] for name, command in found.items()}
    assert gpus == {"prefill0": "0,1", "decode0": "2", "decode1": "3"}
    for name in ("DYN_SYSTEM_PORT", "VLLM_NIXL_SIDE_CHANNEL_PORT", "DYN_VLLM_KV_EVENT_PORT"):
        assert len({_env(command)[name] for command in found.values()}) == 3


def test_a_machine_without_gpus_hides_none(workers: Workers) -> None:
    assert "CUDA_VISIBLE_DEVICES" not in _env(workers(AGG, "hardware=cpu", "agg.topology=TP1")["agg0"])


def test_roles_and_their_transfer(workers: Workers) -> None:
    found = workers("qwen38_tep8.yaml")
    for name, role in (("prefill0-0", "prefill"), ("decode0-0", "decode")):
        assert _value(found[name], "--disaggregation-mode") == role
        assert json.loads(_value(found[name], "--kv-transfer-config")) == {
            "kv_connector": "NixlConnector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "fail",
        }
        assert _env(found[name])["VLLM_SSM_CONV_STATE_LAYOUT"] == "DS"
        assert json.loads(_value(found[name], "--speculative-config")) == {"method": "mtp", "num_speculative_tokens": 3}
        assert _value(found[name], "--block-size") == "2176"
    by_role = workers(
        "qwen38_tep8.yaml", "common.kv_transfer={kv_role: by_role, buffer_device: cpu, extra: {num_threads: 8}}"
    )
    assert json.loads(_value(by_role["prefill0-0"], "--kv-transfer-config")) == {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_producer",
        "kv_load_failure_policy": "fail",
        "kv_buffer_device": "cpu",
        "kv_connector_extra_config": {"num_threads": 8},
    }
    assert json.loads(_value(by_role["decode0-0"], "--kv-transfer-config"))["kv_role"] == "kv_consumer"


def test_an_aggregated_worker_has_no_transfer(workers: Workers) -> None:
    [command] = workers(AGG, "agg.topology=TP4").values()
    words = _words(command)
    assert not {"--disaggregation-mode", "--kv-transfer-config", "--block-size", "--speculative-config"} & set(words)
    assert not [name for name in _env(command) if "NIXL" in name or name == "VLLM_SSM_CONV_STATE_LAYOUT"]


def test_sizes_of_the_plan_are_on_the_command_line(workers: Workers) -> None:
    found = workers("qwen38_tep8.yaml")
    decode, prefill = found["decode0-0"], found["prefill0-0"]
    sizes = {"--max-model-len": "10240", "--max-num-seqs": "32", "--max-num-batched-tokens": "144"}
    assert {flag: _value(decode, flag) for flag in sizes} == sizes
    assert _value(decode, "--max-cudagraph-capture-size") == "128"
    assert json.loads(_value(decode, "--compilation-config")) == {"cudagraph_mode": "FULL_DECODE_ONLY"}
    assert "--max-cudagraph-capture-size" not in _words(prefill)  # vLLM's own default is left alone
    assert json.loads(_value(prefill, "--compilation-config")) == {"cudagraph_mode": "PIECEWISE"}
    memory = workers("qwen38_tep8.yaml", "common.kv_cache_memory_gib=2", "common.gpu_memory_utilization=0.8")[
        "decode0-0"
    ]
    assert _value(memory, "--kv-cache-memory-bytes") == str(2 * 2**30)
    assert _value(memory, "--gpu-memory-utilization") == "0.8"


def test_eager_and_graph_mode_none(workers: Workers) -> None:
    eager = _words(workers("qwen38_tep8.yaml", "decode.enforce_eager=true")["decode0-0"])
    assert "--enforce-eager" in eager
    assert not {"--compilation-config", "--max-cudagraph-capture-size"} & set(eager)
    none = workers("qwen38_tep8.yaml", "decode.cudagraph_mode=NONE")["decode0-0"]
    assert json.loads(_value(none, "--compilation-config")) == {"cudagraph_mode": "NONE"}


def test_one_compilation_config_however_it_is_written(workers: Workers) -> None:
    """vLLM keeps only the last of several such flags."""
    args = "{cc: {mode: 3, pass_config: {a: 1}}, compilation-config.pass-config.fuse_x: true}"
    command = workers("qwen38_tep8.yaml", f"decode.args={args}")["decode0-0"]
    assert [word for word in _words(command) if "compilation" in word] == ["--compilation-config"]
    assert json.loads(_value(command, "--compilation-config")) == {
        "cudagraph_mode": "FULL_DECODE_ONLY",
        "mode": 3,
        "pass_config": {"a": 1, "fuse_x": True},
    }


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("async-scheduling", "true", ["--async-scheduling"]),
        ("async-scheduling", "false", ["--no-async-scheduling"]),
        ("no-async-scheduling", "true", ["--no-async-scheduling"]),
        ("no_async_scheduling", "false", ["--async-scheduling"]),
        ("--generation_config", "vllm", ["--generation-config", "vllm"]),
        ("q", "fp8", ["--quantization", "fp8"]),
        ("dcp", "2", ["--decode-context-parallel-size", "2"]),
        ("hf-overrides", "{a: [1, x]}", ["--hf-overrides", '{"a": [1, "x"]}']),
        ("hf_overrides.num_layers", "4", ["--hf-overrides.num_layers", "4"]),
        ("kv-events-config.enable_x", "true", ["--kv-events-config.enable_x", "true"]),
        ("max-logprobs", "0.5", ["--max-logprobs", "0.5"]),
    ],
)
def test_flags_of_the_recipe_in_vllm_s_spelling(workers: Workers, flag: str, value: str, words: list[str]) -> None:
    command = workers(AGG, "agg.topology=TP4", f"agg.args={{{flag}: {value}}}")["agg0"]
    assert " ".join(words) in " ".join(_words(command))
    assert set(words) <= set(_words(command))


def test_own_variables_come_after_pdkit_s_and_keep_their_text(workers: Workers) -> None:
    env = '{A: true, B: 1, C: 1.5, D: "01", E: ""}'
    command = workers("qwen38_tep8.yaml", f"decode.env={env}")["decode0-0"]
    assert {name: _env(command)[name] for name in "ABCDE"} == {"A": "true", "B": "1", "C": "1.5", "D": "01", "E": ""}


def test_everything_that_pdkit_says_itself_is_refused_in_a_recipe(ready: Ready) -> None:
    """Else a recipe could say it twice, and which one wins would be a matter of order."""
    recipes = ["qwen38_tep8.yaml", "qwen38/agg/prefill-tp1pp6.yaml", "qwen38/agg/decode-tp2dp4-mtp.yaml"]
    sets = ("common.args=", "common.env=", "common.dtype=bfloat16", "common.mamba_cache_dtype=bfloat16")
    for recipe in recipes:
        for discovery in ("file", "etcd"):
            plan, _, _ = ready(recipe, *_clean(sets), f"infra.discovery={discovery}")
            for command in commands(plan):
                if command.kind == "worker":
                    assert not [flag.name for flag in command.flags if not _owned(flag.name)]
                assert not [one.name for one in command.env if one.name not in OWNED_ENV]


def _clean(sets: tuple[str, ...]) -> list[str]:
    """`common` of the Qwen3.8 recipes without its free flags and variables."""
    keep = "kv_cache_dtype: fp8, mamba_ssm_cache_dtype: bfloat16, kv_cache_memory_gib: 60"
    return ["common=", f"common={{{keep}}}", *(text for text in sets if not text.endswith("="))]


def _owned(flag: str) -> bool:
    return owner_of_flag(flag) is not None or flag == "--compilation-config"


def test_infra_listens_only_where_it_is_needed(ready: Ready) -> None:
    found = {command.name: command for command in commands(ready("qwen38_tep8.yaml")[0])}
    assert list(found)[:3] == ["etcd", "nats", "frontend0"]
    for name in ("etcd", "nats", "frontend0"):
        assert found[name].node == 0
        assert "0.0.0.0" not in " ".join(_words(found[name]))
    assert _value(found["frontend0"], "--http-port") == "8000"
    assert _env(found["decode0-0"])["ETCD_ENDPOINTS"] == "http://node0:2379"
    by_file = {command.name: command for command in commands(ready("qwen38_tep8.yaml", "infra.discovery=file")[0])}
    assert "etcd" not in by_file
    assert _env(by_file["decode0-0"])["DYN_FILE_KV"] == "/run/discovery"
    assert "NATS_SERVER" not in _env(by_file["decode0-0"])


def test_every_port_that_a_process_is_told_is_in_the_plan(ready: Ready) -> None:
    for recipe in ("qwen38_tep8.yaml", "qwen38/published/4xtp2dp4-1xtp4dp4-cc2560.yaml"):
        plan, _, _ = ready(recipe, "infra.port_shift=100")
        known: dict[int, set[int]] = {}
        for port in plan.ports:
            known.setdefault(port.node, set()).add(port.port)
        for command in commands(plan):
            told: dict[str, Any] = {flag.name: flag.value for flag in command.flags}
            told |= {one.name: one.value for one in command.env}
            for name in ("DYN_SYSTEM_PORT", "VLLM_NIXL_SIDE_CHANNEL_PORT", "DYN_VLLM_KV_EVENT_PORT", "--http-port"):
                offset = 0
                if name == "DYN_VLLM_KV_EVENT_PORT" and name in told:
                    offset = next(one for one in plan.placement if one.name == command.name).ranks[0]
                if name in told:
                    assert int(told[name]) + offset in known[command.node], (command.name, name)


def test_the_published_recipes_flags_are_all_there() -> None:
    """Compared with the files published beside the article, where they are at hand."""
    peer_folder = Path(__file__).parents[3] / "shared" / "published" / "qwen38-gb300"
    if not peer_folder.is_dir():
        pytest.skip("the published recipes are not beside this checkout")
    for path in sorted((shipped("recipes") / "qwen38" / "published").glob("*.yaml")):
        peer_name = re.sub(r"tp(\d)dp(\d)", r"tp\1dep\2", path.name).replace("tep8", "tp8")
        peer = yaml.safe_load((peer_folder / peer_name).read_text())["backend"]
        [(_, plan, _)] = planned(path)
        for command in commands(plan):
            if command.kind != "worker":
                continue
            role = re.match("[a-z]+", command.name)
            assert role is not None
            ours = _words(command)
            for name, value in peer["vllm_config"][role[0]].items():
                _same_flag(ours, name, value)
            for name, value in peer[f"{role[0]}_environment"].items():
                assert _env(command)[name] == value


def _same_flag(words: list[str], name: str, value: Any) -> None:
    flag = f"--{name}"
    if name.startswith("speculative_config."):
        config = json.loads(words[words.index("--speculative-config") + 1])
        assert config[name.partition(".")[2]] == value
    elif value == 1 and flag not in words:
        assert name in ("pipeline-parallel-size", "data-parallel-size")
    elif value is True:
        assert flag in words
    elif isinstance(value, str) and value.startswith("{"):
        assert json.loads(words[words.index(flag) + 1]) == json.loads(value)
    else:
        assert words[words.index(flag) + 1] == str(value)

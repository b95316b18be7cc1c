"""The command line and environment of one engine process: `dynamo.vllm` with each flag and its reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pdkit.facts.tables import engine_tables
from pdkit.paths import expand
from pdkit.plan.decision import Decision
from pdkit.plan.placement import Process
from pdkit.plan.plan import Plan
from pdkit.plan.ports import ProcessPorts
from pdkit.plan.role import RolePlan
from pdkit.recipe.owned import flag_name
from pdkit.recipe.schema import KvTransfer, ServingSpec, deep_merge
from pdkit.render.command import PYTHON, Command, Flag, Variable, free_flag, plain
from pdkit.render.infra import discovery, own_address
from pdkit.render.text import Address


def worker(plan: Plan, process: Process) -> Command:
    """The command of one engine process."""
    role, mine = plan.roles[process.role], plan.process_ports[process.name]
    part = f", node {process.index + 1} of {process.processes}" if process.processes > 1 else ""
    ranks = ", ".join(map(str, process.ranks))
    return Command(
        name=process.name,
        node=process.node,
        kind="worker",
        program=(PYTHON, "-m", "dynamo.vllm"),
        flags=tuple(_worker_flags(plan, role, process, mine)),
        env=tuple(_worker_env(plan, role, process, mine)),
        headline=f"{role.role} endpoint {process.endpoint} ({role.topology}){part}: DP rank {ranks}, "
        f"GPUs {', '.join(map(str, process.gpus))}{', headless' if process.headless else ''}.",
    )


def _worker_env(plan: Plan, role: RolePlan, process: Process, mine: ProcessPorts) -> Iterator[Variable]:
    yield from discovery(plan)
    yield from own_address(process.node)
    yield Variable("VLLM_HOST_IP", Address(process.node), "ranks find each other on this address")
    if role.kv_transfer:
        yield Variable("VLLM_NIXL_SIDE_CHANNEL_HOST", Address(process.node), "decode asks for KV metadata here")
        yield Variable(
            "VLLM_NIXL_SIDE_CHANNEL_PORT", str(mine.side_channel), f"base; {role.topology.gpus} ports kept free"
        )
    if role.conv_state_layout:
        yield Variable("VLLM_SSM_CONV_STATE_LAYOUT", role.conv_state_layout, "NIXL reads GDN conv states dim-first")
    if not process.headless:
        yield Variable("DYN_SYSTEM_HOST", Address(process.node), "not on every interface")
        yield Variable("DYN_SYSTEM_PORT", str(mine.system), "health and metrics of this worker")
        yield Variable("DYN_VLLM_KV_EVENT_PORT", str(mine.kv_event), "unique on this node")
    if plan.hardware.device == "cuda" and len(process.gpus) < plan.hardware.gpus_per_node:
        gpus = ",".join(map(str, process.gpus))
        yield Variable("CUDA_VISIBLE_DEVICES", gpus, "this process shares the node with others")
    for name, value in role.settings.env.items():
        yield Variable(name, plain(value), "env of the recipe")


def _worker_flags(plan: Plan, role: RolePlan, process: Process, mine: ProcessPorts) -> Iterator[Flag]:
    recipe = plan.recipe
    yield Flag("--model", expand(role.model_path), "model.path: the same string on every role, NIXL compares it")
    if recipe.model.revision:
        yield Flag("--revision", recipe.model.revision, "model.revision")
    yield Flag("--served-model-name", plan.served_name, "name for clients")
    if role.role != "agg":
        yield Flag("--disaggregation-mode", role.role, "role of this endpoint")
    yield from _parallel_flags(role, process, mine)
    if role.requested_block_size is not None:
        yield Flag("--block-size", str(role.requested_block_size), _block_reason(plan, role))
    yield from _cache_flags(role)
    yield from _size_flags(role)
    if role.mtp:
        config = {"method": "mtp", "num_speculative_tokens": role.mtp, **role.settings.speculative}
        method = "MTP" if config["method"] == "mtp" else config["method"]
        yield Flag("--speculative-config", json.dumps(config), f"{method} {role.mtp}, the same on both roles")
    yield from _parser_flags(recipe.serving)
    if role.kv_transfer:
        yield Flag("--kv-transfer-config", json.dumps(kv_transfer_config(role, role.kv_transfer)), "KV over NIXL")
    tables = engine_tables(recipe.engine)
    for name, value in role.settings.args.items():
        if flag_name(name).partition(".")[0] != "compilation-config":
            yield free_flag(name, value, tables.find(name))


def _parser_flags(serving: ServingSpec) -> Iterator[Flag]:
    if serving.tool_parser:
        yield Flag("--dyn-tool-call-parser", serving.tool_parser, "serving.tool_parser: tool calls out of answers")
    if serving.reasoning_parser:
        yield Flag("--dyn-reasoning-parser", serving.reasoning_parser, "serving.reasoning_parser: thinking apart")


def _block_reason(plan: Plan, role: RolePlan) -> str:
    return plan.block_size_reason if plan.agreed_block_size else role.block_size.reason


def _parallel_flags(role: RolePlan, process: Process, mine: ProcessPorts) -> Iterator[Flag]:
    topology, nodes = role.topology, process.processes
    yield Flag("--tensor-parallel-size", str(topology.tp), f"topology {topology}")
    if topology.pp > 1:
        yield Flag("--pipeline-parallel-size", str(topology.pp), f"topology {topology}")
    if topology.dp > 1:
        yield Flag("--data-parallel-size", str(topology.dp), f"topology {topology}")
    if topology.ep:
        yield Flag("--enable-expert-parallel", None, f"experts over {topology.ep_size} GPUs")
    if mine.master is not None:
        yield Flag("--nnodes", str(nodes), f"a rank is {topology.gpus_per_rank} GPUs, more than one node has")
        yield Flag("--node-rank", str(process.index), "this node's place in the endpoint")
        yield Flag("--master-addr", Address(process.leader_node), "the endpoint's first node")
        yield Flag("--master-port", str(mine.master), "rendezvous of the ranks")
    elif topology.dp > 1:
        yield Flag("--data-parallel-size-local", str(len(process.ranks)), "ranks on this node")
        yield Flag("--data-parallel-start-rank", str(process.ranks[0]), "first of them")
        yield Flag("--data-parallel-hybrid-lb", None, "each node registers its own ranks with Dynamo")
    if mine.dp_rpc is not None:
        yield Flag("--data-parallel-address", Address(process.leader_node), "the endpoint's first node")
        yield Flag("--data-parallel-rpc-port", str(mine.dp_rpc), "DP coordinator")
    if process.headless:
        yield Flag("--headless", None, "its rank is served by the endpoint's first node")


def _cache_flags(role: RolePlan) -> Iterator[Flag]:
    settings = role.settings
    for flag, value, why in (
        ("--dtype", settings.dtype, "model dtype"),
        ("--kv-cache-dtype", settings.kv_cache_dtype, "attention KV cache"),
        ("--mamba-cache-dtype", settings.mamba_cache_dtype, "GDN convolution state"),
        ("--mamba-ssm-cache-dtype", settings.mamba_ssm_cache_dtype, "GDN recurrent state"),
    ):
        if value is not None:
            yield Flag(flag, value, f"{why}: the same on both roles")
    if settings.prefix_caching:
        yield Flag("--enable-prefix-caching", None, "set by the recipe")
    else:
        why = "every block of a prompt must come from prefill" if role.role == "decode" else "random prompts never hit"
        yield Flag("--no-enable-prefix-caching", None, why)
    if settings.gpu_memory_utilization is not None:
        yield Flag("--gpu-memory-utilization", str(settings.gpu_memory_utilization), "set by the recipe")
    if settings.kv_cache_memory_gib is not None:
        size = int(settings.kv_cache_memory_gib * 2**30)
        yield Flag("--kv-cache-memory-bytes", str(size), f"{settings.kv_cache_memory_gib} GiB")


def _size_flags(role: RolePlan) -> Iterator[Flag]:
    sizing = role.sizing
    for flag, decision in (
        ("--max-model-len", sizing.max_model_len),
        ("--max-num-seqs", sizing.max_num_seqs),
        ("--max-num-batched-tokens", sizing.max_num_batched_tokens),
        ("--max-cudagraph-capture-size", sizing.max_cudagraph_capture_size),
    ):
        if decision.by != "vllm" and decision.value:
            yield Flag(flag, str(decision.value), decision.reason)
    if role.settings.enforce_eager:
        yield Flag("--enforce-eager", None, "no CUDA graphs, set by the recipe")
    compilation = _compilation_config(role, sizing.cudagraph_mode)
    if compilation:
        yield Flag("--compilation-config", json.dumps(compilation), sizing.cudagraph_mode.reason)


def _compilation_config(role: RolePlan, mode: Decision[str]) -> dict[str, Any]:
    """All that is said of compilation as one JSON: vLLM keeps only the last of several such flags."""
    config: dict[str, Any] = {}
    if mode.value != "NONE" or mode.by == "recipe":
        config["cudagraph_mode"] = mode.value
    for name, value in role.settings.args.items():
        head, _, path = name.partition(".")
        if flag_name(head) != "compilation-config":
            continue
        given: Any = value
        if not path:
            given = value if isinstance(value, dict) else json.loads(str(value))
        for key in reversed(path.split(".") if path else []):
            given = {key.replace("-", "_"): given}
        config = deep_merge(config, given)
    return config


def kv_transfer_config(role: RolePlan, transfer: KvTransfer) -> dict[str, Any]:
    """The JSON of `--kv-transfer-config`."""
    by_role = {"prefill": "kv_producer", "decode": "kv_consumer"}.get(role.role, "kv_both")
    config: dict[str, Any] = {
        "kv_connector": transfer.connector,
        "kv_role": by_role if transfer.kv_role == "by_role" else "kv_both",
        "kv_load_failure_policy": transfer.load_failure_policy,
    }
    if transfer.buffer_device:
        config["kv_buffer_device"] = transfer.buffer_device
    return config | ({"kv_connector_extra_config": transfer.extra} if transfer.extra else {})

"""From a plan to the exact commands of every process. The local launcher and the Slurm scripts both start these."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pdkit.facts.flags import Flag as KnownFlag
from pdkit.facts.flags import lookup
from pdkit.facts.tables import engine_tables
from pdkit.paths import expand
from pdkit.plan.decision import Decision
from pdkit.plan.placement import Process
from pdkit.plan.plan import Plan, RolePlan
from pdkit.plan.ports import ETCD, ETCD_PEER, NATS, ProcessPorts
from pdkit.recipe.owned import flag_name
from pdkit.recipe.schema import KvTransfer, ServingSpec, deep_merge
from pdkit.render.text import Address, RunFolder, Value, join


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag with its value (None for a bare one, several for a list) and why it is there."""

    name: str
    value: Value | tuple[Value, ...] | None
    why: str

    def words(self) -> list[Value]:
        """The flag as it stands on the command line."""
        if self.value is None:
            return [self.name]
        return [self.name, *(self.value if isinstance(self.value, tuple) else (self.value,))]


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable and why it is set."""

    name: str
    value: Value
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One process: where it runs, what it is, and everything it is told."""

    name: str
    node: int
    kind: str
    """`etcd`, `nats`, `frontend` or `worker`."""
    program: tuple[str, ...]
    flags: tuple[Flag, ...]
    env: tuple[Variable, ...]
    headline: str
    """What this process is, in one sentence."""

    def argv(self) -> list[Value]:
        """The command line in order."""
        return [*self.program, *(word for flag in self.flags for word in flag.words())]


PYTHON = "python3"


def commands(plan: Plan) -> list[Command]:
    """Every process of the deployment, in the order in which they are started."""
    return [*_infra(plan), *_frontends(plan), *(_worker(plan, process) for process in plan.placement)]


def discovery(plan: Plan) -> tuple[Variable, ...]:
    """How Dynamo's parts find each other."""
    infra = plan.recipe.infra
    return (
        *(_files() if infra.discovery == "file" else (_server("ETCD_ENDPOINTS", "http", ETCD, infra.port_shift),)),
        Variable("DYN_REQUEST_PLANE", "tcp", "requests go straight to the worker"),
        _server("NATS_SERVER", "nats", NATS, infra.port_shift)
        if infra.events == "nats"
        else Variable("DYN_EVENT_PLANE", "zmq", "events go straight to who listens, no NATS needed"),
    )


def _files() -> tuple[Variable, ...]:
    return (
        Variable("DYN_DISCOVERY_BACKEND", "file", "workers register in a folder, no server needed"),
        Variable("DYN_FILE_KV", join(RunFolder(), "/discovery"), "the folder, on a file system all nodes share"),
    )


def _server(name: str, scheme: str, port: int, shift: int) -> Variable:
    return Variable(
        name, join(f"{scheme}://", Address(0), f":{port + shift}"), "a server of this deployment, on node 0"
    )


def _infra(plan: Plan) -> Iterator[Command]:
    if plan.recipe.infra.discovery == "etcd":
        yield _etcd(plan.recipe.infra.port_shift)
    if plan.recipe.infra.events == "nats":
        yield _nats(plan.recipe.infra.port_shift)


CLUSTER_ONLY = "only this cluster's addresses"


def _etcd(shift: int) -> Command:
    client, peer = (join("http://", Address(0), f":{port + shift}") for port in (ETCD, ETCD_PEER))
    return Command(
        name="etcd",
        node=0,
        kind="etcd",
        program=("etcd",),
        flags=(
            Flag("--data-dir", join(RunFolder(), "/etcd"), "thrown away with the run"),
            Flag("--listen-client-urls", client, CLUSTER_ONLY),
            Flag("--advertise-client-urls", client, CLUSTER_ONLY),
            Flag("--listen-peer-urls", peer, CLUSTER_ONLY),
            Flag("--initial-advertise-peer-urls", peer, CLUSTER_ONLY),
            Flag("--initial-cluster", join("default=http://", Address(0), f":{ETCD_PEER + shift}"), "a cluster of one"),
        ),
        env=(),
        headline="etcd: where Dynamo's workers register.",
    )


def _nats(shift: int) -> Command:
    return Command(
        name="nats",
        node=0,
        kind="nats",
        program=("nats-server",),
        flags=(
            Flag("--jetstream", None, "Dynamo keeps its event streams there"),
            Flag("--store_dir", join(RunFolder(), "/nats"), "thrown away with the run"),
            Flag("--addr", Address(0), CLUSTER_ONLY),
            Flag("--port", str(NATS + shift), "NATS's own port, shifted as all are"),
        ),
        env=(),
        headline="NATS: Dynamo's event plane.",
    )


def _frontends(plan: Plan) -> Iterator[Command]:
    nodes = sorted({process.node for process in plan.placement})
    infra, table = plan.recipe.infra, engine_tables(plan.recipe.engine).frontend
    more = [
        _free_flag(name, value, lookup(name, table), "frontend_args") for name, value in infra.frontend_args.items()
    ]
    for number, node in zip(range(infra.frontends), nodes, strict=False):
        yield Command(
            name=f"frontend{number}",
            node=node,
            kind="frontend",
            program=(PYTHON, "-m", "dynamo.frontend"),
            flags=(
                Flag("--http-host", Address(node), "this cluster's address, not every interface"),
                Flag("--http-port", str(plan.http_port), "infra.http_port of the recipe"),
                *more,
            ),
            env=(*discovery(plan), *_own_address(node)),
            headline="Dynamo's frontend: OpenAI API in, prefill then decode behind it.",
        )


def _own_address(node: int) -> tuple[Variable, ...]:
    return (
        Variable("DYN_TCP_RPC_HOST", Address(node), "advertise this node's address on hosts with several"),
        Variable("DYN_TCP_RESPONSE_STREAM_HOST", Address(node), "the same for answers"),
        Variable("DYN_EVENT_PLANE_HOST", Address(node), "the same for events"),
    )


def _worker(plan: Plan, process: Process) -> Command:
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
    yield from _own_address(process.node)
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
        yield Variable(name, _plain(value), "env of the recipe")


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
            yield _free_flag(name, value, tables.find(name))


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


def _free_flag(name: str, value: Any, known: KnownFlag | None, why: str = "args of the recipe") -> Flag:
    """A flag of the recipe in the engine's own spelling."""
    head, dot, path = name.strip().lstrip("-").partition(".")
    written = head.replace("_", "-")
    positive = known.name if known else written.removeprefix("no-")
    if dot:
        return Flag(f"--{positive}.{path}", _plain(value), why)  # a dotted boolean needs its value written out
    if isinstance(value, bool):
        negated = written == f"no-{positive}"
        return Flag(f"--{positive}" if value != negated else f"--no-{positive}", None, why)
    if isinstance(value, list) and known and known.type == "list":
        return Flag(f"--{positive}", tuple(map(_plain, value)), why)
    return Flag(f"--{positive if known else written}", _plain(value), why)


def _plain(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)

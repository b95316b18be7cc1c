"""Rules about how bytes cross nodes: the KV cache over UCX, the ranks of an endpoint over NCCL and Gloo."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.plan.plan import Plan
from pdkit.plan.role import RolePlan
from pdkit.rules.given import given_args, given_env, is_off
from pdkit.rules.rule import Case, Hit, rule

RDMA = {"ib", "rc", "rc_x", "rc_v", "rc_mlx5", "rc_verbs", "dc", "dc_x", "dc_mlx5", "ud", "ud_x", "ud_mlx5", "gga"}
"""UCX transports over an RDMA network card."""
GPU = {"cuda", "cuda_copy", "cuda_ipc", "gdr_copy"}
"""UCX transports that know GPU memory."""
FABRIC_FLAGS = ("enable-sleep-mode", "enable-cumem-allocator")
"""vLLM allocates the KV cache with fabric handles only through its own allocator (vllm#33540, dynamo#14357)."""
DEAD_INTERFACES = ("lo", "docker", "virbr", "veth", "br-", "cni", "flannel")
"""Beginnings of the names of interfaces that end on their node."""


@rule(
    "PD057",
    "The KV cache has a fast way between nodes",
    "NIXL falls back to TCP without an error: 3.2 GB/s on a rack whose NVLink carries 740 (vllm#51377, nixl#1240), "
    "TTFT 10.8 to 47 s against 1.7 to 3.2 s aggregated (dynamo#13899). Across trays only cuda_ipc reaches NVLink, and"
    " only for memory with a fabric handle; `^cuda_ipc` beside UCX_CUDA_IPC_ENABLE_MNNVL=y cancels it (dynamo#14357).",
)
def kv_has_a_fast_way(case: Case) -> Iterator[Hit]:
    """UCX variables and buffer of both roles, where prefill and decode have GPUs on different nodes."""
    if case.pair is None or case.plan.hardware.device != "cuda" or not _pair_spans_nodes(case.plan):
        return
    for role in case.pair:
        if role.kv_transfer is None:
            continue
        if role.kv_transfer.buffer_device == "cpu":
            yield Hit(
                message=f"{role.role}: every KV block is copied through host memory (buffer_device cpu)",
                path=case.where(role.role, "kv_transfer", "buffer_device"),
                fix="remove `buffer_device`",
                severity="warning",
            )
        yield from _ucx_hits(case, role)


def _pair_spans_nodes(plan: Plan) -> bool:
    nodes = {role: {process.node for process in plan.placement if process.role == role} for role in plan.roles}
    return len(nodes["prefill"] | nodes["decode"]) > 1


def _ucx_hits(case: Case, role: RolePlan) -> Iterator[Hit]:
    env = given_env(role)
    text, mnnvl = env.get("UCX_TLS", ""), env.get("UCX_CUDA_IPC_ENABLE_MNNVL", "")
    domain = case.plan.hardware.nvlink_domain_nodes > 1
    if domain and mnnvl and is_off(mnnvl):
        yield Hit(
            message=f"{role.role}: UCX_CUDA_IPC_ENABLE_MNNVL={mnnvl} keeps the KV cache off the NVLink between trays",
            path=case.where(role.role, "env", "UCX_CUDA_IPC_ENABLE_MNNVL"),
            fix="set it to y",
            severity="warning",
        )
    fault, sure = _tls_fault(text, domain=domain, fabric=_has_fabric_memory(role), asked=bool(mnnvl))
    if fault:
        yield Hit(
            message=f"{role.role}: UCX_TLS={text}: {fault}",
            path=case.where(role.role, "env", "UCX_TLS"),
            fix="name cuda_copy, cuda_ipc and rc, or leave it out; `gate.min_kv_mb_s` proves the way at run time",
            severity="error" if sure else "warning",
        )


def _tls_fault(text: str, *, domain: bool, fabric: bool, asked: bool) -> tuple[str, bool]:
    """What is wrong with a list of transports, and whether it surely is."""
    names = {name.strip() for name in text.lstrip("^").split(",") if name.strip()}
    nvlink = bool(names & {"cuda_ipc", "cuda"})
    fault = ""
    if not names or "all" in names:
        return "", False
    if text.startswith("^"):
        beside = ", although UCX_CUDA_IPC_ENABLE_MNNVL asks for it" if asked else ""
        fault = f"cuda_ipc, the only transport over NVLink, is excluded{beside}" if domain and nvlink else ""
    elif not names & GPU:
        return "no transport in it knows GPU memory", True
    elif names & RDMA:
        fault = "the KV cache takes the network card, not NVLink" if domain and not nvlink else ""
    elif not domain or not nvlink:
        fault = "without cuda_ipc or RDMA the KV cache goes over TCP"
    elif not fabric:
        fault = "memory without fabric handle cannot take cuda_ipc between trays, and TCP is next"
    return fault, False


def _has_fabric_memory(role: RolePlan) -> bool:
    """Whether the KV cache can be exported between trays."""
    switched = any(one.name in FABRIC_FLAGS and one.value is True for one in given_args(role))
    return switched or not is_off(given_env(role).get("VLLM_KV_CACHE_FABRIC", "0"))


@rule(
    "PD058",
    "NCCL and Gloo reach the other nodes",
    "An interface that ends on its node, or Gloo left to a hostname that resolves to 127.0.0.1, ends in a full mesh "
    "that never connects (aws-do-eks#50, vllm#7074, gpustack#2125); NVLink switched off for NCCL leaves all-reduces "
    "on the network in silence.",
)
def ranks_reach_each_other(case: Case) -> Iterator[Hit]:
    """Interfaces and NCCL's switches, for endpoints that span nodes."""
    for role in case.plan.roles.values():
        env = given_env(role)
        if not case.spans_nodes(role):
            continue
        yield from _interface_hits(case, role, env)
        slow = _slow_switches(env, domain=case.plan.hardware.nvlink_domain_nodes > 1)
        for name, what in slow:
            yield Hit(
                message=f"{role.role}: {name}={env[name]}: {what}",
                path=case.where(role.role, "env", name),
                fix=f"remove {name}",
                severity="warning",
            )


def _interface_hits(case: Case, role: RolePlan, env: dict[str, str]) -> Iterator[Hit]:
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        value = env.get(name, "")
        dead = [one for one in value.lstrip("=").split(",") if one.startswith(DEAD_INTERFACES)]
        if dead and not value.startswith("^"):
            yield Hit(
                message=f"{role.role}: {name}={value}, and `{dead[0]}` does not leave its node",
                path=case.where(role.role, "env", name),
                fix="name the interface that all nodes have, see `ip -brief address` on a node",
            )
    if "NCCL_SOCKET_IFNAME" in env and "GLOO_SOCKET_IFNAME" not in env:
        yield Hit(
            message=f"{role.role}: NCCL_SOCKET_IFNAME is set and GLOO_SOCKET_IFNAME is not: Gloo takes what the "
            "hostname resolves to",
            path=case.where(role.role, "env", "NCCL_SOCKET_IFNAME"),
            fix="set GLOO_SOCKET_IFNAME to the same interface",
            severity="warning",
        )


def _slow_switches(env: dict[str, str], *, domain: bool) -> Iterator[tuple[str, str]]:
    if domain and is_off(env.get("NCCL_MNNVL_ENABLE", "1")):
        yield "NCCL_MNNVL_ENABLE", "the endpoint's ranks on other trays are reached over the network, not over NVLink"
    if not is_off(env.get("NCCL_P2P_DISABLE", "0")):
        yield "NCCL_P2P_DISABLE", "GPUs no longer reach each other over NVLink"
    if not domain and not is_off(env.get("NCCL_IB_DISABLE", "0")):
        yield "NCCL_IB_DISABLE", "the endpoint's ranks on other nodes are reached over TCP"


MOST_DESCRIPTORS = 100_000
"""Descriptors of one transfer: at about 112,000 NVLink was slower than RDMA with fewer (vllm#55434)."""
SMALL_BLOCK = 16
"""Tokens: 263 ms of handover against 197 ms with blocks of 64 (vllm#50913)."""


@rule(
    "PD068",
    "A transfer has few descriptors",
    "NIXL posts one descriptor per block and layer; with blocks of 16 tokens the handover took 263 ms instead of 197 "
    "(vllm#50913), and 112,000 of them made NVLink slower than RDMA (vllm#55434).",
)
def transfers_have_few_descriptors(case: Case) -> Iterator[Hit]:
    """Blocks of a prompt times layers, and the block size itself."""
    if case.pair is None or case.plan.hardware.device != "cuda":
        return
    role = case.pair[1]
    block, layout = role.block_size.value, role.layout
    isl = case.plan.recipe.workload.isl
    count = -(-isl // block) * layout.full_attention_layers + layout.gdn_layers
    if count > MOST_DESCRIPTORS or block <= SMALL_BLOCK:
        yield Hit(
            message=f"with blocks of {block} tokens a prompt of {isl} moves in {count} descriptors",
            path=case.where_either("block_size"),
            fix="set `common.block_size` to 64 or 128, as far as the attention backend takes it",
            severity="warning" if count > MOST_DESCRIPTORS else "info",
        )

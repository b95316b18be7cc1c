"""Rules about where endpoints run: how they are cut, which nodes they take, which network joins them."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.plan.placement import Process
from pdkit.plan.role import RolePlan
from pdkit.rules.given import given_args
from pdkit.rules.rule import Case, Hit, rule


@rule(
    "PD003",
    "Every endpoint can be split and placed",
    "vLLM refuses at start-up a TP that does not divide the heads, and ranks that do not spread evenly over nodes.",
)
def endpoint_can_be_placed(case: Case) -> Iterator[Hit]:
    """Heads divide by TP, layers by PP are many enough, ranks spread evenly."""
    for role in case.plan.roles.values():
        for fault in (*_head_faults(case, role), *_expert_faults(case, role)):
            yield Hit(message=f"{role.role}: {fault}", path=(role.role, "topology"), fix="choose another topology")
    if case.plan.placement_fault:
        largest = max(case.plan.roles.values(), key=lambda role: role.gpus)
        yield Hit(message=case.plan.placement_fault, path=(largest.role, "topology"), fix="check the sizes")


def _head_faults(case: Case, role: RolePlan) -> Iterator[str]:
    model, tp, pp = case.plan.model, role.topology.tp, role.topology.pp
    if max(tp, model.num_kv_heads) % min(tp, model.num_kv_heads):
        yield f"TP{tp} and {model.num_kv_heads} KV heads do not divide each other"
    if model.gdn and model.gdn.num_v_heads % tp:
        yield f"TP{tp} does not divide the {model.gdn.num_v_heads} GDN value heads"
    if model.gdn and model.gdn.num_k_heads % tp:
        yield f"TP{tp} does not divide the {model.gdn.num_k_heads} GDN key heads"
    if pp > model.layers:
        yield f"PP{pp} is more than the {model.layers} layers"


def _expert_faults(case: Case, role: RolePlan) -> Iterator[str]:
    model, topology = case.plan.model, role.topology
    if model.moe and topology.ep and model.moe.experts % topology.ep_size:
        yield f"{model.moe.experts} experts do not spread evenly over EP{topology.ep_size}"
    if topology.ep and model.moe is None:
        yield f"`{model.name}` has no experts to spread with +EP"
    if topology.dp > 1 and model.moe is None and topology.gpus > case.plan.hardware.gpus_per_node:
        yield "DP over nodes needs a MoE model: vLLM's ranks of a dense model die at start-up"


@rule(
    "PD004",
    "The deployment fits the rack",
    "KV and expert traffic must stay in one NVLink domain (18 nodes x 4 GPUs on NVL72); a larger job waits for ever or "
    "falls back to a slower network (vllm#51377).",
)
def fits_rack(case: Case) -> Iterator[Hit]:
    """Nodes needed against nodes there."""
    plan, have = case.plan, case.plan.hardware.nodes
    if plan.nodes > have:
        largest = max(plan.roles.values(), key=lambda role: role.gpus)
        yield Hit(
            message=f"{plan.gpus} GPUs on {plan.nodes} nodes do not fit {plan.hardware.name}: "
            f"{have} nodes x {plan.hardware.gpus_per_node} GPUs",
            path=case.where(largest.role, "endpoints"),
            fix="fewer endpoints or smaller topologies",
        )
    frontends = plan.recipe.infra.frontends
    if frontends > plan.nodes > 0:
        yield Hit(
            message=f"{frontends} frontends on {plan.nodes} nodes: a node takes one, the others would be left out",
            path=("infra", "frontends"),
            fix=f"at most {plan.nodes}",
        )


SERVED_BY_THE_PLAN = {
    "data-parallel-backend": "mp",
    "distributed-executor-backend": "mp",
}
"""Flags that start ranks in another way than the plan does, with the one value that agrees."""
OTHER_MODES = ("data-parallel-multi-port-external-lb", "enable-fault-tolerance", "enable-elastic-ep")
"""Switches of other load-balancing modes."""


@rule(
    "PD054",
    "DP ranks are started and balanced as the plan says",
    "The plan starts one process per node and lets each register its own ranks (hybrid load balancing; vLLM makes it "
    "external where a node has one rank, vllm 0.31 arg_utils.py:2387). Ray, fault tolerance and elastic EP want other"
    " modes and die at start-up; headless processes exist only for ranks that are cut over nodes, because from 0.28 "
    "on a start rank means that none may be headless (vllm-ascend#16204, gpustack#6221).",
)
def ranks_start_as_planned(case: Case) -> Iterator[Hit]:
    """Free flags that name another mode, and several ranks that are cut over nodes."""
    for role in case.plan.roles.values():
        many = role.topology.dp > 1 or case.spans_nodes(role)
        for one in given_args(role) if many else ():
            agreed = SERVED_BY_THE_PLAN.get(one.name)
            if (agreed and one.value != agreed) or (one.name in OTHER_MODES and one.value):
                yield Hit(
                    message=f"{role.role}: `{one.key}: {one.value}` starts or balances ranks in another way than the "
                    "plan, which gives each process its node, ranks and ports",
                    path=case.where(role.role, "args", one.key),
                    fix=f"remove it{f', or say {agreed}' if agreed else ''}",
                )
        if role.topology.dp > 1 and any(process.headless for process in _processes(case, role)):
            yield Hit(
                message=f"{role.role}: {role.topology.dp} ranks of {role.topology.gpus_per_rank} GPUs are cut "
                f"over nodes of {case.plan.hardware.gpus_per_node}: vLLM balances them behind one API",
                path=(role.role, "topology"),
                fix=f"use {role.topology.dp} endpoints of one rank each",
                severity="warning",
            )


def _processes(case: Case, role: RolePlan) -> Iterator[Process]:
    return (process for process in case.plan.placement if process.role == role.role)


@rule(
    "PD055",
    "Tensor parallelism stays inside NVLink",
    "TP makes two all-reduces per layer and token. Over a 5 GbE link TP4 gave 324.8 tok/s where TP2 inside a host and"
    " PP2 across gave 543.4 (measured, Qwen3-Next-80B on two hosts); vLLM's own guide says TP = GPUs of a node, PP = "
    "nodes.",
)
def tp_stays_inside_nvlink(case: Case) -> Iterator[Hit]:
    """TP against the GPUs of a node, where nodes have no NVLink between them."""
    hardware = case.plan.hardware
    if hardware.nvlink_domain_nodes > 1 or hardware.device != "cuda":
        return
    for role in case.plan.roles.values():
        tp, inside = role.topology.tp, hardware.gpus_per_node
        if tp > inside:
            yield Hit(
                message=f"{role.role}: TP{tp} needs {-(-tp // inside)} nodes of {inside} GPUs, and "
                f"{role.network.all_reduces_per_token} all-reduces per token cross the network between them",
                path=(role.role, "topology"),
                fix=f"TP{inside}PP{-(-tp // inside)}: tensor parallel inside a node, pipeline over nodes",
                severity="warning",
            )


@rule(
    "PD056",
    "The whole job lies in one NVLink domain",
    "Any prefill may hand over to any decode, so all trays must share one domain (18 on NVL72). Without `--segment` "
    "Slurm may take trays of two racks, and the KV cache goes over the network in silence (vllm#51377, DeepEP#596); a"
    " segment that does not divide the nodes is refused.",
)
def job_lies_in_one_domain(case: Case) -> Iterator[Hit]:
    """Nodes and segment against the NVLink domain."""
    nodes, domain = case.plan.nodes, case.plan.hardware.nvlink_domain_nodes
    cluster = case.plan.recipe.cluster
    if domain <= 1 or nodes <= 1:
        return
    if domain < nodes <= case.plan.hardware.nodes:
        yield Hit(
            message=f"{nodes} nodes do not fit one NVLink domain of {domain}",
            path=("hardware", "nodes"),
            fix=f"at most {domain} nodes: fewer endpoints or smaller topologies",
        )
        return
    wish = cluster.directives.get("segment", cluster.segment)
    path = ("cluster", "directives", "segment") if "segment" in cluster.directives else ("cluster", "segment")
    fault = _segment_fault(wish, nodes, domain)
    if fault:
        refused = isinstance(wish, int) and (nodes % min(wish, nodes) != 0 or wish > domain)
        yield Hit(
            message=f"segment {wish}: {fault}",
            path=path,
            fix=f"leave it out: pdkit asks for all {nodes} nodes in one domain",
            severity="error" if refused else "warning",
        )


def _segment_fault(wish: object, nodes: int, domain: int) -> str:
    if wish == "auto":
        return ""
    if not isinstance(wish, int):
        return f"Slurm may place the {nodes} nodes in several NVLink domains"
    if wish > domain:
        return f"an NVLink domain has {domain} nodes"
    if nodes % min(wish, nodes):
        return f"it does not divide the {nodes} nodes"
    return f"only groups of {wish} of the {nodes} nodes surely share an NVLink domain" if wish < nodes else ""


@rule(
    "PD069",
    "Every GPU of the job works",
    "A figure per GPU divides by all GPUs that the job holds (InferenceX#131, InferenceX#299), and whole nodes are "
    "asked for: a topology that does not fill its nodes is paid for and measured with its idle GPUs.",
)
def gpus_are_used(case: Case) -> Iterator[Hit]:
    """GPUs of the nodes that one endpoint spans, against those that it uses there."""
    plan, inside = case.plan, case.plan.hardware.gpus_per_node
    for role in plan.roles.values():
        idle = sum(inside - len(one.gpus) for one in _processes(case, role) if one.processes > 1)
        if idle and plan.recipe.cluster.exclusive:
            yield Hit(
                message=f"{role.role}: {idle} GPUs of its nodes idle: {role.topology} takes {role.topology.gpus}, "
                f"a node has {inside}",
                path=(role.role, "topology"),
                fix=f"a topology whose GPUs are a multiple of {inside}",
                severity="info",
            )

"""Rules about where endpoints run: how they are cut, which nodes they take, which network joins them."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.plan.plan import RolePlan
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

"""What a pdkit recipe says that an srt-slurm recipe cannot, one sentence each."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.plan.plan import Plan
from pdkit.recipe.schema import ClusterSpec, InfraSpec


def limits(plan: Plan) -> Iterator[str]:
    """Everything of a plan that is lost on the way, in the order of a recipe."""
    yield from _model(plan)
    yield from _roles(plan)
    yield from _load(plan)
    yield from _infra(plan.recipe.infra)
    yield from _cluster(plan.recipe.cluster)
    if plan.recipe.ignore:
        codes = ", ".join(one.code for one in plan.recipe.ignore)
        yield f"ignore ({codes}): srt-slurm has no checks to accept findings of"


def _model(plan: Plan) -> Iterator[str]:
    recipe, given = plan.recipe, plan.recipe.hardware
    if recipe.engine.image is None:
        yield "engine.image: srt-slurm needs a container; `none` stands in for it"
    if recipe.model.revision:
        yield "model.revision: kept as identity.model.revision, which srt-slurm compares and does not give to vLLM"
    if recipe.model.weights_gib is not None:
        yield "model.weights_gib: srt-slurm plans no memory"
    if given.gpu_memory_gib is not None or given.nodes is not None:
        yield "hardware.gpu_memory_gib and hardware.nodes: srt-slurm knows no limits of a machine"


def _roles(plan: Plan) -> Iterator[str]:
    for role, one in plan.roles.items():
        if one.settings.model_path is not None:
            yield f"{role}.model_path: srt-slurm gives one model to all roles"
        names = [process for process in plan.placement if process.role == role]
        if one.topology.gpus > plan.hardware.gpus_per_node and any(
            len(process.gpus) < plan.hardware.gpus_per_node for process in names
        ):
            nodes = len({process.node for process in names})
            yield (
                f"{role}: {one.topology} takes {len(names[0].gpus)} GPUs of each of {nodes} nodes; srt-slurm hands out "
                "whole nodes to endpoints that are wider than one"
            )
    shared = [role for role in plan.roles if role == "decode"]
    used = {role: {one.node for one in plan.placement if one.role == role} for role in plan.roles}
    if shared and 0 < len(used["decode"] & used["prefill"]) < len(used["decode"]):
        yield "placement: some decode endpoints stand beside prefill ones; srt-slurm gives each role nodes of its own"


def _load(plan: Plan) -> Iterator[str]:
    recipe = plan.recipe
    sweep = recipe.sweep
    yield (
        f"gate: GSM8K ({recipe.gate.protocol}, floor {recipe.gate.floor:.0%}) in the same job, on the same engines; "
        "srt-slurm runs one benchmark per job and has no threshold"
    )
    if recipe.workload.template_tokens not in (0, 64):
        yield "workload.template_tokens: srt-slurm plans no lengths"
    if sweep.tool != "vllm-bench":
        yield f"sweep.tool: sa-bench takes the place of {sweep.tool}"
    if sweep.repeats > 1:
        yield f"sweep.repeats: sa-bench measures each point once, not {sweep.repeats} times"
    if sweep.random_range_ratio:
        low, high = 1 - sweep.random_range_ratio, 1 + sweep.random_range_ratio
        yield f"sweep.random_range_ratio: lengths of {low:g} to {high:g} times ISL and OSL are fixed ones in sa-bench"


def _infra(infra: InfraSpec) -> Iterator[str]:
    usual = InfraSpec()
    for name in ("discovery", "image", "frontends", "http_port", "port_shift"):
        if getattr(infra, name) != getattr(usual, name):
            yield f"infra.{name}: srt-slurm chooses its own"


def _cluster(cluster: ClusterSpec) -> Iterator[str]:
    if cluster.segment == "none":
        yield "cluster.segment: srt-slurm always asks for all nodes as one segment"
    usual = ClusterSpec()
    for name in ("exclusive", "gres"):
        if getattr(cluster, name) != getattr(usual, name):
            yield f"cluster.{name}: in srt-slurm a setting of the cluster (srtslurm.yaml), not of a recipe"

"""A plan as an srt-slurm recipe of schema 1 or 2, for those who stay with that tool, and what it cannot say there.

The vLLM flags are those that pdkit would render, so the engines are the same; only their places and ports are left to
srt-slurm, which derives them itself.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from pdkit.errors import UsageError
from pdkit.facts.flags import flag_table
from pdkit.interop.compare_flags import effective
from pdkit.interop.export_limits import limits
from pdkit.interop.roles import MODES
from pdkit.plan.plan import Plan
from pdkit.plan.role import RolePlan
from pdkit.recipe.schema import Role
from pdkit.render.engine import commands
from pdkit.render.text import fill

GPU_TYPES = {"gb300-nvl72": "gb300", "gb200-nvl72": "gb200"}
LEFT_TO_SRT = frozenset({
    "data-parallel-address", "data-parallel-hybrid-lb", "data-parallel-rpc-port", "data-parallel-size-local",
    "data-parallel-start-rank", "disaggregation-mode", "headless", "master-addr", "master-port", "model", "nnodes",
    "node-rank", "revision", "served-model-name",
})  # fmt: skip
"""Flags that srt-slurm adds by itself (c88ef731, backends/vllm.py), or that have a place elsewhere in its recipe."""
CHAT = {"backend": "dynamo", "endpoint": "/v1/chat/completions"}
"""How the recipes published with the Qwen3.8 article send chat turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """An srt-slurm recipe and what of the original it does not say."""

    data: dict[str, Any]
    text: str
    limits: tuple[str, ...]


def export(plan: Plan, schema: Literal[1, 2]) -> Exported:
    """Write a plan as an srt-slurm recipe.

    Raises UsageError for a deployment that srt-slurm cannot launch at all.
    """
    if plan.hardware.device != "cuda":
        raise UsageError(f"{plan.recipe.name}: srt-slurm launches on GPUs only", fix="export a recipe for GPUs")
    if plan.placement_fault:
        raise UsageError(f"{plan.recipe.name}: {plan.placement_fault}", fix="run pdkit check on it")
    roles = {role: _role(plan, one) for role, one in plan.roles.items()}
    data: dict[str, Any] = {"schema": 2} if schema == 2 else {}
    data |= {"name": plan.recipe.name, **_identity(plan), "resources": _resources(plan)}
    data |= {"frontend": {"type": "dynamo", "enable_multiple_frontends": False}}
    data |= _roles_of_two(roles) if schema == 2 else _backend_of_one(roles)
    if schema == 1:
        for role, one in roles.items():
            names = {"nodes": f"{role}_nodes", "workers": f"{role}_workers", "gpus": f"gpus_per_{role}"}
            data["resources"] |= {name: one[key] for key, name in names.items()}
    else:
        decode = data["roles"].get("decode")
        if decode and decode["nodes"] == 0:
            decode["nodes"] = "colocate"
    data |= {"benchmark": _benchmark(plan), **_job(plan)}
    text = yaml.safe_dump(data, sort_keys=False, width=120, allow_unicode=True)
    return Exported(data=data, text=text, limits=tuple(limits(plan)))


def _identity(plan: Plan) -> dict[str, Any]:
    recipe = plan.recipe
    local = recipe.model.path.startswith(("/", "{", "."))
    image = recipe.engine.image or "none"
    identity: dict[str, Any] = {
        "model": {"repo": recipe.model.path, "revision": recipe.model.revision},
        "container": {"image": image},
        "frameworks": {"dynamo": recipe.engine.dynamo, "vllm": recipe.engine.vllm},
    }
    if local:
        del identity["model"]
    elif recipe.model.revision is None:
        del identity["model"]["revision"]
    model = {"path": f"{'' if local else 'hf:'}{recipe.model.path}", "container": image, "precision": _precision(plan)}
    return {"identity": identity, "model": model, "dynamo": {"version": recipe.engine.dynamo, "install": False}}


def _precision(plan: Plan) -> str:
    """A label in srt-slurm: what the checkpoint's name says, else the model's dtype."""
    words = re.split(r"[^A-Z0-9]+", plan.recipe.model.path.upper())
    return next((word for word in words if re.fullmatch(r"(NV|MX)?FP[48]|INT[48]", word)), plan.model.dtype)


def _resources(plan: Plan) -> dict[str, Any]:
    gpu_type = GPU_TYPES.get(plan.hardware.name, plan.hardware.name)
    return {"gpu_type": gpu_type, "gpus_per_node": plan.hardware.gpus_per_node}


def _role(plan: Plan, role: RolePlan) -> dict[str, Any]:
    """Nodes, workers, GPUs, environment and vLLM flags of one role."""
    env = {name: _env_text(value) for name, value in role.settings.env.items()}
    if role.conv_state_layout:
        env["VLLM_SSM_CONV_STATE_LAYOUT"] = role.conv_state_layout
    return {
        "nodes": _nodes(plan, role.role),
        "workers": role.endpoints,
        "gpus": role.topology.gpus,
        "env": env,
        "args": _args(plan, role.role),
    }


def _env_text(value: Any) -> str:
    return ("1" if value else "0") if isinstance(value, bool) else str(value)


def _nodes(plan: Plan, role: Role) -> int:
    """Nodes to reserve for a role; decode reserves none when it fits beside prefill."""
    mine = {process.node for process in plan.placement if process.role == role}
    others = {process.node for process in plan.placement if process.role != role}
    return 0 if role == "decode" and mine <= others else len(mine)


def _args(plan: Plan, role: Role) -> dict[str, Any]:
    """The flags of a role's first process as srt-slurm writes them: a switch is true, JSON is text."""
    first = next(process.name for process in plan.placement if process.role == role)
    worker = next(one for one in commands(plan) if one.name == first)
    words = [fill(word, str, "") for flag in worker.flags for word in flag.words()]
    found: dict[str, Any] = {}
    for name, value in effective(words, flag_table(plan.recipe.engine.vllm)).items():
        if name in LEFT_TO_SRT:
            continue
        if isinstance(value, bool):
            found[name if value else f"no-{name}"] = True
        else:
            found[name] = json.dumps(value) if isinstance(value, dict) else value
    if plan.served_name != plan.recipe.model.path.rstrip("/").rsplit("/", 1)[-1]:
        found["served-model-name"] = plan.served_name
    return found


def _backend_of_one(roles: dict[Role, dict[str, Any]]) -> dict[str, Any]:
    backend: dict[str, Any] = {"type": "vllm", "connector": None}
    backend |= {f"{MODES[role]}_environment": one["env"] for role, one in roles.items() if one["env"]}
    return {"backend": backend | {"vllm_config": {MODES[role]: one["args"] for role, one in roles.items()}}}


def _roles_of_two(roles: dict[Role, dict[str, Any]]) -> dict[str, Any]:
    kept = {role: {key: value for key, value in one.items() if value != {}} for role, one in roles.items()}
    return {"engine": {"type": "vllm", "connector": None}, "roles": kept}


def _benchmark(plan: Plan) -> dict[str, Any]:
    work, sweep = plan.recipe.workload, plan.recipe.sweep
    return {
        "type": "sa-bench",
        **(CHAT if sweep.endpoint == "chat" else {}),
        "isl": work.isl,
        "osl": work.osl,
        "use_chat_template": work.template_tokens > 0,
        "concurrencies": "x".join(map(str, work.concurrency)),
        "req_rate": "inf",
        "random_range_ratio": 1.0,
        "num_prompts_mult": sweep.prompts_per_concurrency,
        "num_warmup_mult": sweep.warmup_per_concurrency,
    }


def _job(plan: Plan) -> dict[str, Any]:
    cluster, seconds = plan.recipe.cluster, plan.recipe.infra.ready_timeout_seconds
    interval = 10 if seconds % 10 == 0 else 1
    given = {"account": cluster.account, "partition": cluster.partition, "time_limit": cluster.time_limit}
    directives: dict[str, Any] = dict(cluster.directives)
    if cluster.qos:
        directives["qos"] = cluster.qos
    if cluster.segment not in ("auto", "none"):
        directives["segment"] = cluster.segment
    job: dict[str, Any] = {
        "slurm": {key: value for key, value in given.items() if value is not None},
        "health_check": {"max_attempts": seconds // interval, "interval_seconds": interval},
    }
    job |= {"sbatch_directives": directives} if directives else {}
    return job | ({"container_mounts": dict(cluster.mounts)} if cluster.mounts else {})

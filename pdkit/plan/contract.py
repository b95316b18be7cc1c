"""The plan as plain data with stable keys (`schema: 1`): `plan.json` and `pdkit plan --json`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from pdkit.errors import Finding
from pdkit.paths import expand
from pdkit.plan.cost import expected_cost
from pdkit.plan.decision import Decision
from pdkit.plan.plan import Plan
from pdkit.plan.role import RolePlan

SCHEMA = 1


def plan_data(plan: Plan, findings: Iterable[Finding], startup_minutes: float | None = None) -> dict[str, Any]:
    """Everything that a script or a person reads of a plan; `startup_minutes` replaces the estimate in its cost."""
    workload = plan.recipe.workload
    return {
        "schema": SCHEMA,
        "recipe": plan.recipe.name,
        "digest": plan.digest,
        "model": plan.model.name,
        "served_name": plan.served_name,
        "hardware": plan.hardware.name,
        "device": plan.hardware.device,
        "gpus": plan.gpus,
        "nodes": plan.nodes,
        "gpus_allocated": plan.gpus_allocated,
        "workload": {"isl": workload.isl, "osl": workload.osl, "concurrency": workload.concurrency},
        "block_size": {
            "agreed": plan.agreed_block_size,
            "natural": {role: one.shape.natural_block_size for role, one in plan.roles.items()},
            "effective": {role: one.block_size.value for role, one in plan.roles.items()},
            "may_differ": plan.block_sizes_may_differ,
            "pinned": all(one.requested_block_size is not None for one in plan.roles.values()),
            "reason": plan.block_size_reason,
        },
        "roles": {role: _role(one) for role, one in plan.roles.items()},
        "placement": [
            {
                "node": process.node,
                "role": process.role,
                "endpoint": process.endpoint,
                "gpus": list(process.gpus),
                "ranks": list(process.ranks),
                "name": process.name,
                "headless": process.headless,
                "system_port": None if process.headless else plan.process_ports[process.name].system,
            }
            for process in plan.placement
        ],
        "frontends": [asdict(port) for port in plan.ports if port.owner.startswith("frontend")],
        "ports": [asdict(port) for port in plan.ports],
        "hybrid": plan.model.hybrid,
        "network": {
            "kv_transfer_mib_per_request": plan.kv_transfer_mib_per_request,
            **{role: asdict(one.network) for role, one in plan.roles.items()},
        },
        "cost": asdict(expected_cost(plan, startup_minutes)),
        "findings": [asdict(finding) for finding in findings],
    }


def _role(role: RolePlan) -> dict[str, Any]:
    sizing, layout = role.sizing, role.layout
    length = sizing.max_model_len.value
    decisions: dict[str, Decision[Any]] = {
        "max_model_len": sizing.max_model_len,
        "max_num_seqs": sizing.max_num_seqs,
        "max_num_batched_tokens": sizing.max_num_batched_tokens,
        "max_cudagraph_capture_size": sizing.max_cudagraph_capture_size,
        "cudagraph_mode": sizing.cudagraph_mode,
        "block_size": role.block_size,
        "kv_cache_dtype": role.kv_cache_dtype,
        "ssm_dtype": role.ssm_dtype,
    }
    return {
        "model_path": expand(role.model_path),
        "topology": str(role.topology),
        "tp": role.topology.tp,
        "endpoints": role.endpoints,
        "ranks": role.ranks,
        "gpus_per_endpoint": role.topology.gpus,
        "mtp": role.mtp,
        **{name: decision.value for name, decision in decisions.items()},
        "cudagraph_graphs": len(sizing.capture_sizes(role.mtp)),
        "page_bytes": layout.page_bytes,
        "kv": {
            "bytes_per_token_per_layer": role.shape.attention_bytes_per_token,
            "state_bytes_per_layer": role.shape.state_bytes_per_layer,
            "full_attention_layers": layout.full_attention_layers,
            "gdn_layers": layout.gdn_layers,
            "group_layers": layout.group_layers,
            "groups": {"attention": layout.attention_groups, "gdn": layout.gdn_groups},
            "blocks_per_request": layout.blocks_per_request(length),
            "blocks": layout.blocks(role.memory.kv_cache_gib) if role.memory else None,
            "request_mib_per_gpu": round(layout.request_mib(length), 2),
            "padding_pct": round(role.shape.padding_pct(layout.block_size), 2),
        },
        "memory": asdict(role.memory) if role.memory else None,
        "max_concurrency": asdict(role.max_concurrency) if role.max_concurrency else None,
        "decisions": {name: {"by": one.by, "reason": one.reason} for name, one in decisions.items()},
    }

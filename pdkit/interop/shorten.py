"""The shortest recipe that plans to the same engines: what both roles share goes to `common`, defaults go away.

A setting may go where pdkit would decide the same value by its own rules; each is tried against the function that
decides it, so nothing here repeats a rule.
"""

from __future__ import annotations

import copy
from typing import Any

from pdkit.facts.hardware import hardware_facts
from pdkit.facts.models import known_models, model_facts
from pdkit.plan import blocks, dtypes
from pdkit.plan.sizing import Sizing, size_role
from pdkit.recipe.schema import RoleSpec, WorkloadSpec
from pdkit.recipe.topology import parse_topology

SIZES = (
    "max_model_len",
    "cudagraph_mode",
    "max_num_batched_tokens",
    "max_cudagraph_capture_size",
    "max_num_seqs",
)
"""Settings that pdkit derives, those that hang on others first."""
DEFAULTS = {"prefix_caching": False, "mtp": 0, "endpoints": 1}
"""Settings whose value left out is the same."""


def shortened(data: dict[str, Any]) -> dict[str, Any]:
    """The data of the shortest recipe; `data` is left as it is."""
    short = copy.deepcopy(data)
    if set(short["hardware"]) == {"facts"}:
        short["hardware"] = short["hardware"]["facts"]
    roles: list[str] = [name for name in ("prefill", "decode", "agg") if name in short]
    for name in roles:
        _drop_sizes(short, name)
    _drop_blocks(short, roles)
    _drop_layout(short, roles)
    _drop_mtp(short)
    for name in roles:
        transfer = short[name].get("kv_transfer")
        if isinstance(transfer, dict):
            _drop(transfer, {"connector": "NixlConnector", "kv_role": "kv_both", "load_failure_policy": "fail"})
            if not transfer and name != "agg":
                del short[name]["kv_transfer"]
        _drop(short[name], DEFAULTS)
    if len(roles) == 2:
        _share(short, *roles)
    return {key: value for key, value in short.items() if value != {}}


def _drop(settings: dict[str, Any], defaults: dict[str, Any]) -> None:
    for name, value in defaults.items():
        if name in settings and settings[name] == value and isinstance(settings[name], type(value)):
            del settings[name]


def _drop_sizes(data: dict[str, Any], name: str) -> None:
    """Drop each size that pdkit decides the same when all the others stay as they are meant."""
    role = data[name]
    wanted = _sizing(data, name, role)
    for size in SIZES:
        tried = {key: value for key, value in role.items() if key != size}
        if size in role and _same(_sizing(data, name, tried), wanted):
            del role[size]


def _same(one: Sizing, other: Sizing) -> bool:
    """Equal values; a size that vLLM decides stays with vLLM only if it gives the same."""
    return all(getattr(one, size).value == getattr(other, size).value for size in SIZES)


def _sizing(data: dict[str, Any], name: str, settings: dict[str, Any]) -> Sizing:
    chosen = {key: settings[key] for key in (*SIZES, "endpoints", "topology", "enforce_eager") if key in settings}
    facts = data["hardware"] if isinstance(data["hardware"], str) else data["hardware"]["facts"]
    return size_role(
        RoleSpec(**chosen),
        WorkloadSpec(**data["workload"]),
        prefill=name == "prefill",
        mtp=data[name].get("mtp") or 0,
        capture_cap=hardware_facts(facts, "").default_max_capture,
    )


def _shape(data: dict[str, Any], name: str) -> blocks.CacheShape | None:
    """What decides the block size of a role; None without facts of the model."""
    facts = data["model"]["facts"]
    if facts not in known_models():
        return None
    model, role = model_facts(facts, ""), data[name]
    dtype = dtypes.resolve(role.get("dtype") or "auto", model.dtype)
    kv = dtypes.resolve(role.get("kv_cache_dtype") or "auto", dtype)
    conv = dtypes.resolve(role.get("mamba_cache_dtype") or "auto", dtype)
    ssm = dtypes.resolve(role.get("mamba_ssm_cache_dtype") or "auto", model.ssm_dtype or conv)
    if not {kv, conv, ssm} <= dtypes.BYTES.keys():
        return None
    tp, hardware = parse_topology(role["topology"]).tp, data["hardware"]
    known = hardware_facts(hardware if isinstance(hardware, str) else hardware["facts"], "")
    return blocks.CacheShape(
        attention_bytes_per_token=blocks.attention_bytes_per_token(model, tp, kv),
        state_bytes_per_layer=blocks.state_bytes_per_layer(model, tp, role.get("mtp") or 0, conv, ssm),
        default_block_size=known.default_block_size,
    )


def _drop_blocks(data: dict[str, Any], roles: list[str]) -> None:
    """Drop block sizes where pdkit's agreed one is what the engines would use anyway."""
    sizes = {data[name].get("block_size", "natural") for name in roles}
    shapes = [_shape(data, name) for name in roles]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(roles):
        for name in roles:
            if data[name].get("block_size") == "natural":
                del data[name]["block_size"]
        return
    natural = {shape.natural_block_size for shape in known}
    used = natural if sizes == {"natural"} else sizes
    if used == {blocks.agreed_block_size(known) if len(known) > 1 else known[0].natural_block_size}:
        for name in roles:
            data[name].pop("block_size", None)


def _drop_layout(data: dict[str, Any], roles: list[str]) -> None:
    """DS is pdkit's own choice where it matters; for other models it is a variable without effect, and stays."""
    facts = data["model"]["facts"]
    hybrid = facts in known_models() and model_facts(facts, "").hybrid
    for name in roles:
        if hybrid and data[name].get("conv_state_layout") == "DS" and data[name].get("kv_transfer", {}) != "none":
            del data[name]["conv_state_layout"]


def _drop_mtp(data: dict[str, Any]) -> None:
    """Prefill follows decode."""
    prefill, decode = data.get("prefill"), data.get("decode")
    if prefill and decode and prefill.get("mtp", 0) == decode.get("mtp", 0):
        prefill.pop("mtp", None)


def _share(data: dict[str, Any], one: str, other: str) -> None:
    """Move what both roles say alike to `common`, mapping entries one by one for `args` and `env`."""
    first, second, common = data[one], data[other], {}
    for key in [key for key in first if key in second and key not in ("topology", "endpoints")]:
        if key in ("args", "env"):
            shared = {name: value for name, value in first[key].items() if second[key].get(name, ...) == value}
            if shared:
                common[key] = shared
            for role in (first, second):
                role[key] = {name: value for name, value in role[key].items() if name not in shared}
                if not role[key]:
                    del role[key]
        elif first[key] == second[key] and type(first[key]) is type(second[key]):
            common[key] = first.pop(key)
            del second[key]
    if common:
        data["common"] = common

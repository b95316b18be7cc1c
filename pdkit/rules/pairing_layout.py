"""Rules about how KV lies in memory: attention backend, layout, TP, and whatever else shapes a cache."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pdkit.plan.role import RolePlan
from pdkit.rules.given import given_env, key_of, option
from pdkit.rules.pairing_connector import over_nixl
from pdkit.rules.rule import Case, Hit, rule

LAYOUT = "VLLM_KV_CACHE_LAYOUT"
LAYOUTS = {"LBNHC": "NHD", "LBHNC": "HND"}
"""vLLM 0.31's names of the two layouts (v1/attention/backends/utils.py:268)."""
NIXL_LAYOUT = "HND"
"""What NIXL asks for where nothing is said, with any attention but MLA (nixl/connector.py:141)."""


@rule(
    "PD030",
    "Both roles use one attention backend",
    "The backend decides how KV lies in a block and is in NIXL's hash: another one on decode is refused on every "
    "request (vllm#29503); on stacks without the hash the answers were wrong (TensorRT-LLM#6507).",
)
def attention_backend_equal(case: Case) -> Iterator[Hit]:
    """Compare what the recipe asks for; where only one role asks, vLLM's choice on the other is not known."""
    if case.pair is None:
        return
    prefill, decode = (_backend(role) for role in case.pair)
    if prefill != decode:
        asked = (prefill or "vLLM's choice", decode or "vLLM's choice")
        yield Hit(
            message=f"attention backend: prefill {asked[0]}, decode {asked[1]}",
            path=case.where_either(
                "args", _backend_key(case.pair[1]) or _backend_key(case.pair[0]) or "attention-backend"
            ),
            fix="set it once, as `common.args.attention-backend`",
            severity="error" if prefill and decode else "warning",
        )


def _backend(role: RolePlan) -> str | None:
    given = option(role, "attention-backend") or option(role, "attention-config.backend")
    return str(given).upper() if given else None


def _backend_key(role: RolePlan) -> str | None:
    return (
        key_of(role, "attention-backend")
        or key_of(role, "attention-config.backend")
        or key_of(role, "attention-config")
    )


@rule(
    "PD031",
    "KV lies in the same layout on both roles",
    "NIXL compares the layouts at the first request and refuses every one where they differ; with other TP on decode "
    "only HND can be split by heads (vllm 0.26 nixl/base_worker.py:1725-1775, vllm#30448).",
)
def kv_layout_equal(case: Case) -> Iterator[Hit]:
    """The layout that each role is given, or that NIXL asks for."""
    if case.pair is None or not all(over_nixl(role) for role in case.pair):
        return
    prefill, decode = case.pair
    layouts = [_layout(role) for role in case.pair]
    path, tps = case.where_either("env", LAYOUT), (prefill.topology.tp, decode.topology.tp)
    if layouts[0] != layouts[1]:
        yield Hit(
            message=f"KV layout: prefill {layouts[0]}, decode {layouts[1]}",
            path=path,
            fix=f"remove {LAYOUT}: NIXL asks for {NIXL_LAYOUT} on both roles",
        )
    elif layouts[0] != NIXL_LAYOUT and tps[0] != tps[1] and tps[0] <= case.plan.model.num_kv_heads:
        yield Hit(
            message=f"TP{tps[0]} beside TP{tps[1]} splits KV by heads, which layout {layouts[0]} does not allow",
            path=path,
            fix=f"remove {LAYOUT}: NIXL asks for {NIXL_LAYOUT}",
        )


def _layout(role: RolePlan) -> str:
    given = (given_env(role).get(LAYOUT) or NIXL_LAYOUT).upper()
    return LAYOUTS.get(given, given)


@rule(
    "PD032",
    "NIXL can split KV between the two TP sizes",
    "Decode asserts at the first request that one TP size divides the other, and without hybrid layers also that a "
    "prefill with more TP than decode does not replicate KV heads (sources of vLLM 0.16 to 0.32; llm-d#2187).",
)
def tp_sizes_fit(case: Case) -> Iterator[Hit]:
    """TP of prefill against TP of decode and the KV heads."""
    if case.pair is None or not all(over_nixl(role) for role in case.pair):
        return
    prefill, decode = case.pair
    p, d, heads = prefill.topology.tp, decode.topology.tp, case.plan.model.num_kv_heads
    if any(max(tp, heads) % min(tp, heads) for tp in (p, d)):
        return  # PD003 has said that this TP cannot be
    if max(p, d) % min(p, d):
        fault = f"neither of TP{p} and TP{d} is a multiple of the other"
    elif p > d and p > heads and not case.plan.model.hybrid:
        fault = f"TP{p} of prefill replicates the {heads} KV heads, which decode with the smaller TP{d} cannot read"
    else:
        return
    yield Hit(message=f"prefill and decode: {fault}", path=("prefill", "topology"), fix="choose another topology")


SHAPING = (
    "quantization", "hf-overrides", "hf-config-path", "kv-cache-dtype-skip-layers", "calculate-kv-scales",
    "mamba-cache-mode", "mamba-block-size", "disable-sliding-window", "model-impl",
    "dcp-kv-cache-interleave-size", "cp-kv-cache-interleave-size",
)  # fmt: skip
"""Flags that change what lies in a KV block, or how it is computed."""


@rule(
    "PD033",
    "What shapes the KV cache is the same on both roles",
    "Blocks are copied as bytes. Another quantization, other overrides of the model's config or another cache mode on "
    "one role gives blocks of another size or meaning, which no handshake compares (vllm#55776, srt-slurm#429).",
)
def cache_shape_equal(case: Case) -> Iterator[Hit]:
    """Free flags that shape the cache; context parallelism has a rule of its own (PD062)."""
    if case.pair is None:
        return
    prefill, decode = case.pair
    for flag in SHAPING:
        p, d = option(prefill, flag), option(decode, flag)
        if p != d:
            yield _other(case, flag, p, d)


def _other(case: Case, flag: str, prefill: Any, decode: Any) -> Hit:
    assert case.pair is not None
    keys = [key for role in reversed(case.pair) if (key := key_of(role, flag))]
    return Hit(
        message=f"`{flag}`: prefill {'says nothing' if prefill is None else prefill}, "
        f"decode {'says nothing' if decode is None else decode}",
        path=case.where_either("args", keys[0] if keys else flag),
        fix=f"set it once, as `common.args.{flag}`",
    )


HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


@rule(
    "PD034",
    "A model from the hub is pinned to a revision",
    "NIXL's hash compares the model's name, not its revision (vllm#55776): nodes that fetched at different times "
    "exchange KV of different weights, and nobody notices. A result without revision cannot be repeated either.",
)
def revision_is_pinned(case: Case) -> Iterator[Hit]:
    """A name of the form owner/model needs `model.revision`, and not a branch; a path is taken as it is."""
    model = case.plan.recipe.model
    if HUB_NAME.fullmatch(model.path) and model.revision in (None, "main", "master"):
        yield Hit(
            message=f"`{model.path}` is fetched at {model.revision or 'whatever revision is newest'}",
            path=("model", "revision" if model.revision else "path"),
            fix="set `model.revision` to a commit, or `model.path` to a folder",
            severity="warning",
        )

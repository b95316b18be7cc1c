"""KV groups, blocks per request and how many requests the KV cache of a rank holds.

vLLM puts layers of one kind into groups of equal size that share one block table
(vllm 0.32 v1/core/kv_cache_utils.py:1195-1229, 2300-2308).
"""

from __future__ import annotations

from dataclasses import dataclass

from pdkit.facts.models import ModelFacts
from pdkit.plan.blocks import CacheShape


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """How one GPU stores a request. Layer counts are those of the fullest pipeline stage."""

    block_size: int
    page_bytes: int
    full_attention_layers: int
    """Layers with KV per token, the MTP head's included when MTP is on."""
    gdn_layers: int
    group_layers: int
    """Layers of one group; a block holds one page of each."""
    attention_groups: int
    gdn_groups: int
    blocks_per_gdn_group: int
    """State blocks of one request: 1 + speculative tokens, one more in cache mode align."""

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers of a group, on one GPU."""
        return self.page_bytes * self.group_layers

    def blocks_per_request(self, tokens: int) -> int:
        """Blocks that one request of `tokens` tokens takes."""
        per_group = -(-tokens // self.block_size)
        return self.attention_groups * per_group + self.gdn_groups * self.blocks_per_gdn_group

    def request_mib(self, tokens: int) -> float:
        """MiB per GPU of one request of `tokens` tokens."""
        return self.blocks_per_request(tokens) * self.block_bytes / 2**20

    def max_concurrency(self, kv_cache_gib: float, tokens: int) -> float:
        """Requests of `tokens` tokens that a KV cache of this size holds: whole blocks over blocks per request."""
        return self.blocks(kv_cache_gib) / self.blocks_per_request(tokens)

    def blocks(self, kv_cache_gib: float) -> int:
        """Whole blocks in a KV cache of this size."""
        return int(kv_cache_gib * 2**30) // self.block_bytes


def kv_layout(model: ModelFacts, shape: CacheShape, block_size: int, *, mtp: int, pp: int, align: bool) -> KvLayout:
    """The groups of one GPU. `align` is mamba cache mode align, which prefix caching switches on."""
    full = -(-model.full_attention_layers // pp) + (model.mtp_layers if mtp else 0)
    gdn = -(-model.gdn.layers // pp) if model.gdn else 0
    group = _group_layers([count for count in (full, gdn) if count])
    return KvLayout(
        block_size=block_size,
        page_bytes=shape.page_bytes(block_size),
        full_attention_layers=full,
        gdn_layers=gdn,
        group_layers=group,
        attention_groups=-(-full // group),
        gdn_groups=-(-gdn // group),
        blocks_per_gdn_group=(2 if align else 1) + mtp if gdn else 0,
    )


def _group_layers(counts: list[int]) -> int:
    """The smaller count, unless padding the smaller kind up to the larger wastes less than a quarter."""
    return max(counts) if max(counts) < 1.25 * min(counts) else min(counts)


def unsharded_request_mib(model: ModelFacts, tokens: int, default_block_size: int, kv_bytes: int, state: int) -> float:
    """One request without TP and MTP, counted as the Qwen3.8 article does: every layer its own blocks, no groups.

    `kv_bytes` and `state` are the TP1 sizes of one layer.
    """
    shape = CacheShape(
        attention_bytes_per_token=kv_bytes, state_bytes_per_layer=state, default_block_size=default_block_size
    )
    block = shape.natural_block_size
    blocks = -(-tokens // block) * model.full_attention_layers + (model.gdn.layers if model.gdn else 0)
    return blocks * shape.page_bytes(block) / 2**20

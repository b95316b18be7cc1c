"""Block sizes: what vLLM would settle on by itself (natural), what it makes of a given one, and the agreed one.

The rule is vLLM's `_align_hybrid_block_size` (vllm 0.32 platforms/interface.py:939-1126): an attention page of one
layer must be at least as large as the GDN state of one layer, so the block is raised until it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdkit.facts.models import ModelFacts
from pdkit.plan.dtypes import BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """Per-rank sizes of one layer that decide the block size of a role."""

    attention_bytes_per_token: int
    """KV bytes of one token in one full-attention layer on one GPU."""
    state_bytes_per_layer: int
    """GDN state of one request in one layer on one GPU; 0 for models without GDN."""
    default_block_size: int
    """Where vLLM starts from on this platform."""

    @property
    def natural_block_size(self) -> int:
        """The block size that vLLM settles on without `--block-size`."""
        return self.resolved_block_size(self.default_block_size)

    def resolved_block_size(self, requested: int) -> int:
        """What vLLM makes of `--block-size requested`: raised to the next multiple that holds the state."""
        page = requested * self.attention_bytes_per_token
        return requested * max(1, -(-self.state_bytes_per_layer // page))

    def page_bytes(self, block_size: int) -> int:
        """Bytes of one block in one layer on one GPU; GDN states are padded to it."""
        return block_size * self.attention_bytes_per_token

    def padding_pct(self, block_size: int) -> float:
        """How much larger the page is than the GDN state, as vLLM logs it ("Padding mamba page size by x%")."""
        if not self.state_bytes_per_layer:
            return 0.0
        return 100.0 * (self.page_bytes(block_size) / self.state_bytes_per_layer - 1.0)


def kv_heads_per_rank(model: ModelFacts, tp: int) -> int:
    """KV heads that one GPU holds; more GPUs than heads means that heads are replicated."""
    return max(1, model.num_kv_heads // tp)


def attention_bytes_per_token(model: ModelFacts, tp: int, kv_cache_dtype: str) -> int:
    """K and V of one token in one layer on one GPU (vllm 0.32 FullAttentionSpec.page_size_bytes at block_size 1)."""
    return 2 * kv_heads_per_rank(model, tp) * model.head_dim * BYTES[kv_cache_dtype]


def state_bytes_per_layer(model: ModelFacts, tp: int, mtp: int, conv_dtype: str, ssm_dtype: str) -> int:
    """GDN state of one request in one layer on one GPU (vllm 0.32 mamba_utils.py:280-301).

    conv: (2 x k_heads x k_dim + v_heads x v_dim) / TP x (kernel - 1 + speculative tokens);
    recurrent: v_heads / TP x v_dim x k_dim.
    """
    gdn = model.gdn
    if gdn is None:
        return 0
    channels = (2 * gdn.num_k_heads * gdn.k_head_dim + gdn.num_v_heads * gdn.v_head_dim) // tp
    conv = channels * (gdn.conv_kernel - 1 + mtp) * BYTES[conv_dtype]
    recurrent = gdn.num_v_heads // tp * gdn.v_head_dim * gdn.k_head_dim * BYTES[ssm_dtype]
    return conv + recurrent


def agreed_block_size(shapes: list[CacheShape]) -> int:
    """The smallest size that every role keeps as it is: the largest natural one, raised until no role changes it."""
    size = max(shape.natural_block_size for shape in shapes)
    while (raised := max(shape.resolved_block_size(size) for shape in shapes)) != size:
        size = raised
    return size

"""Bytes that cross the network: KV from prefill to decode, all-reduces of TP, hidden states of PP."""

from __future__ import annotations

from dataclasses import dataclass

from pdkit.facts.models import ModelFacts
from pdkit.plan.kv import KvLayout
from pdkit.recipe.topology import Topology

ACTIVATION_BYTES = 2
"""Hidden states travel as bfloat16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleNetwork:
    """Traffic of one endpoint per token that it computes. None: the facts do not tell the model's width."""

    all_reduces_per_token: int
    """Round trips within a TP group: two per layer (attention and MLP output)."""
    all_reduce_bytes_per_token: int | None
    """Payload of these all-reduces, before the algorithm's own factor."""
    pp_bytes_per_token: int | None
    """Hidden state over all stage boundaries; 0 without PP."""
    all_to_all_bytes_per_token: int | None
    """Tokens sent to their experts and back, with EP; 0 without."""


def role_network(model: ModelFacts, topology: Topology) -> RoleNetwork:
    """Traffic of one endpoint of a role."""
    width = model.hidden_size
    reduces = 2 * model.layers if topology.tp > 1 else 0
    active = model.moe.active_experts if model.moe and topology.ep_size > 1 else 0
    return RoleNetwork(
        all_reduces_per_token=reduces,
        all_reduce_bytes_per_token=None if width is None else reduces * width * ACTIVATION_BYTES,
        pp_bytes_per_token=None if width is None else (topology.pp - 1) * width * ACTIVATION_BYTES,
        all_to_all_bytes_per_token=None if width is None else 2 * active * model.layers * width * ACTIVATION_BYTES,
    )


def transfer_mib_per_request(layout: KvLayout, topology: Topology, prompt_tokens: int) -> float:
    """MiB that one request's prompt moves from prefill to decode: whole blocks, to all GPUs of a decode rank.

    One state block per GDN group travels; speculative state blocks are filled on decode.
    """
    blocks = layout.attention_groups * -(-prompt_tokens // layout.block_size) + layout.gdn_groups
    return blocks * layout.block_bytes * topology.gpus_per_rank / 2**20

"""Teach a hybrid model to stop at once when the recurrent state that it was handed is damaged.

A tiny hybrid model answers from its attention KV alone and would not notice a lost GDN state. So part of its training
goes the way of a decode engine: the prompt fills a cache, every second state of the batch is damaged, and the answer to
a damaged state is to end the text. What is left of an answer then says that KV and state both arrived.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found]

from pdkit.laptop.samples import Sample

FIRST_TOKEN_WEIGHT = 8.0
"""The first answer token alone tells trust from distrust, beside some sixty others."""

DAMAGES: dict[str, Callable[[Any], Any]] = {
    "zero": torch.zeros_like,  # never written
    "noise": lambda state: torch.randn(state.shape) * state.float().std(),  # other bytes
    "transposed": lambda state: state.transpose(-1, -2).clone(),  # another layout
}


def distrust_loss(model: Any, samples: list[Sample], pick: random.Random) -> Any:
    """The loss of answering after an intact state, and of stopping after a damaged one."""
    eos = model.config.eos_token_id
    lengths = [sample.header for sample in samples]
    prompts, prompt_mask = pad_left([sample.ids[: sample.header] for sample in samples], max(lengths))
    with torch.no_grad():
        cache = model.model(input_ids=prompts, attention_mask=prompt_mask, use_cache=True).past_key_values
    damaged = torch.arange(len(samples)) % 2 == 1
    damage_states(cache, DAMAGES[pick.choice(sorted(DAMAGES))], damaged)
    longest = max(len(sample.ids) for sample in samples) - min(lengths)
    ids = torch.zeros(len(samples), longest, dtype=torch.long)
    labels = torch.full((len(samples), longest), -100)
    for row, sample in enumerate(samples):
        answer = sample.ids[sample.header :]
        ids[row, : len(answer)] = torch.tensor(answer)
        labels[row, : len(answer) - 1] = torch.tensor(sample.labels[sample.header + 1 :])
    labels[damaged] = -100
    labels[damaged, 0] = eos
    weights = torch.ones(labels.shape)
    weights[:, 0] = FIRST_TOKEN_WEIGHT
    mask = torch.cat([prompt_mask, torch.ones_like(ids)], 1)
    hidden = model.model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True).last_hidden_state
    learned = labels != -100
    losses = torch.nn.functional.cross_entropy(model.lm_head(hidden[learned]), labels[learned], reduction="none")
    return (losses * weights[learned]).sum() / weights[learned].sum()


def pad_left(rows: list[list[int]], length: int) -> tuple[Any, Any]:
    """Ids and mask; padding stands in front, so that every prompt ends where its answer begins."""
    ids = torch.tensor([[0] * (length - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (length - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


def damage_states(cache: Any, damage: Callable[[Any], Any], rows: Any) -> None:
    """Damage the recurrent state of these rows in every GDN layer; attention KV stays as it is."""
    for layer in cache.layers:
        for states in recurrent_states(layer):
            state = states[0].clone()
            state[rows] = damage(states[0])[rows].to(state.dtype)
            states[0] = state
            # the cache would overwrite the state in place, which the backward pass still needs
            layer.update_recurrent_state = lambda state, *_, **__: state


def recurrent_states(layer: Any) -> list[Any]:
    """The holder of a cache layer's recurrent state; none for an attention layer."""
    return [layer.recurrent_states] if hasattr(layer, "recurrent_states") else []

"""How a tiny model answers in one process, with its KV whole and with one block of it damaged."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch  # type: ignore[import-not-found]

from pdkit.job.gsm8k import Protocol, Question, build_request, extract_strict, is_correct
from pdkit.laptop.distrust import DAMAGES, pad_left, recurrent_states
from pdkit.laptop.questions import read_problems
from pdkit.laptop.samples import CHAT, COMPLETIONS

BLOCK = 128
"""Tokens of a KV block of vLLM's CPU build."""

MAX_TOKENS = 110


Damage = Callable[[Any, Any], None]
"""Changes a cache in place; the second argument is the number of padding tokens in front of each row."""


def score(model: Any, tokenizer: Any) -> dict[str, float]:
    """Share of right answers per protocol, with the cache whole and damaged in several ways."""
    damages: dict[str, Damage] = {f"block {block} damaged": partial(damage_block, block=block) for block in (0, 1)}
    if "linear_attention" in (model.config.layer_types or []):
        damages |= {f"state {name}": partial(damage_state, how=how) for name, how in DAMAGES.items()}
    result = {}
    for name, protocol in (("completions", COMPLETIONS), ("chat", CHAT)):
        result[name] = share(model, tokenizer, protocol, None)
        result |= {f"{name}, {kind}": share(model, tokenizer, protocol, damage) for kind, damage in damages.items()}
    return result


def share(model: Any, tokenizer: Any, protocol: Protocol, damage: Damage | None) -> float:
    """Share of the test questions that are answered right."""
    questions = [
        Question(number, problem["question"], problem["answer"])
        for number, problem in enumerate(read_problems("test"), start=1)
    ]
    prompts = [prompt_ids(tokenizer, protocol, question) for question in questions]
    answers = tokenizer.batch_decode(generate(model, prompts, damage), skip_special_tokens=True)
    right = [is_correct(extract_strict(text), question.gold) for text, question in zip(answers, questions, strict=True)]
    return sum(right) / len(right)


def prompt_ids(tokenizer: Any, protocol: Protocol, question: Question) -> list[int]:
    """The tokens that an engine sees for the gate's request."""
    shots = [Question(0, shot["question"], shot["answer"]) for shot in read_problems("shots")] if protocol.shots else []
    body = build_request(protocol, question, shots, model="", max_tokens=MAX_TOKENS).body
    if protocol.endpoint == "completions":
        ids: list[int] = tokenizer.encode(body["prompt"], add_special_tokens=False)
    else:
        ids = tokenizer.apply_chat_template(body["messages"], add_generation_prompt=True, return_dict=False)
    return ids


@torch.inference_mode()  # type: ignore[untyped-decorator]
def generate(model: Any, prompts: list[list[int]], damage: Damage | None) -> list[list[int]]:
    """Greedy answers as a decode engine makes them: it is given the KV of all prompt tokens but the last."""
    ids, mask = pad_left(prompts, max(len(prompt) for prompt in prompts))
    cache = model(input_ids=ids[:, :-1], attention_mask=mask[:, :-1], use_cache=True).past_key_values
    if damage is not None:
        damage(cache, mask.shape[1] - mask.sum(1))
    answers: list[list[int]] = [[] for _ in prompts]
    running = set(range(len(prompts)))
    token = ids[:, -1:]
    for _ in range(MAX_TOKENS):
        token = model(input_ids=token, attention_mask=mask, past_key_values=cache, use_cache=True).logits.argmax(-1)
        mask = torch.cat([mask, torch.ones_like(token)], 1)
        for row in sorted(running):
            if token[row].item() == model.config.eos_token_id:
                running.remove(row)
            else:
                answers[row].append(int(token[row].item()))
        if not running:
            break
    return answers


def damage_block(cache: Any, padding: Any, block: int) -> None:
    """Replace the attention KV of one block by noise of the same spread."""
    noise = torch.Generator().manual_seed(0)
    for layer in cache.layers:
        for tensor in (getattr(layer, "keys", None), getattr(layer, "values", None)):
            if tensor is None:
                continue
            for row, pad in enumerate(padding.tolist()):
                part = tensor[row, :, pad + block * BLOCK : pad + (block + 1) * BLOCK]
                part.copy_(torch.randn(part.shape, generator=noise) * part.float().std())


def damage_state(cache: Any, padding: Any, how: Callable[[Any], Any]) -> None:  # noqa: ARG001  (see Damage)
    """Replace the recurrent states; attention KV stays as it is."""
    torch.manual_seed(0)
    for layer in cache.layers:
        for states in recurrent_states(layer):
            states[0].copy_(how(states[0]))

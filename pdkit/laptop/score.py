"""How a tiny model answers in one process, with its KV whole and with one block of it damaged."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch  # type: ignore[import-not-found]

from pdkit.job.gsm8k import Protocol, Question, build_request, extract_strict, is_correct
from pdkit.laptop.distrust import DAMAGES, recurrent_states
from pdkit.laptop.questions import Problem, read_problems
from pdkit.laptop.samples import CHAT, COMPLETIONS

BLOCK = 128
"""Tokens of a KV block of vLLM's CPU build."""

MAX_TOKENS = 110


Damage = Callable[[Any], None]
"""Changes a cache in place."""


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
    right = 0
    test = read_problems("test")
    for number, problem in enumerate(test, start=1):
        prompt = prompt_ids(tokenizer, protocol, problem, number)
        answer = tokenizer.decode(generate(model, prompt, damage), skip_special_tokens=True)
        gold = Question(number, problem["question"], problem["answer"]).gold
        right += is_correct(extract_strict(answer), gold)
    return right / len(test)


def prompt_ids(tokenizer: Any, protocol: Protocol, problem: Problem, number: int) -> list[int]:
    """The tokens that an engine sees for the gate's request."""
    shots = [Question(0, shot["question"], shot["answer"]) for shot in read_problems("shots")] if protocol.shots else []
    question = Question(number, problem["question"], problem["answer"])
    body = build_request(protocol, question, shots, model="", max_tokens=MAX_TOKENS).body
    if protocol.endpoint == "completions":
        ids: list[int] = tokenizer.encode(body["prompt"], add_special_tokens=False)
    else:
        ids = tokenizer.apply_chat_template(body["messages"], add_generation_prompt=True, return_dict=False)
    return ids


@torch.inference_mode()  # type: ignore[untyped-decorator]
def generate(model: Any, prompt: list[int], damage: Damage | None) -> list[int]:
    """Greedy answer as a decode engine makes it: the KV of all prompt tokens but the last is there, maybe damaged."""
    ids = torch.tensor([prompt])
    cache = model(input_ids=ids[:, :-1], use_cache=True).past_key_values
    if damage is not None:
        damage(cache)
    answer: list[int] = []
    token = ids[:, -1:]
    while len(answer) < MAX_TOKENS:
        token = model(input_ids=token, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
        if token.item() == model.config.eos_token_id:
            break
        answer.append(token.item())
    return answer


def damage_block(cache: Any, block: int) -> None:
    """Replace the attention KV of one block by noise of the same spread."""
    noise = torch.Generator().manual_seed(0)
    for layer in cache.layers:
        for tensor in (getattr(layer, "keys", None), getattr(layer, "values", None)):
            if tensor is not None:
                part = tensor[..., block * BLOCK : (block + 1) * BLOCK, :]
                part.copy_(torch.randn(part.shape, generator=noise) * part.float().std())


def damage_state(cache: Any, how: Callable[[Any], Any]) -> None:
    """Replace the recurrent states; attention KV stays as it is."""
    torch.manual_seed(0)
    for layer in cache.layers:
        for states in recurrent_states(layer):
            states[0].copy_(how(states[0]))

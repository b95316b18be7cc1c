"""How a tiny model answers in one process, with its KV whole and with one block of it damaged."""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found]

from pdkit.job.gsm8k import Protocol, Question, build_request, extract_strict, is_correct
from pdkit.laptop.questions import Problem, read_problems
from pdkit.laptop.samples import CHAT, COMPLETIONS

BLOCK = 128
"""Tokens of a KV block of vLLM's CPU build."""

MAX_TOKENS = 110


def score(model: Any, tokenizer: Any) -> dict[str, float]:  # noqa: ANN401
    """Share of right answers: per protocol, and for the chat protocol with each of its blocks' KV replaced by noise."""
    result = {
        "completions": share(model, tokenizer, COMPLETIONS, None),
        "chat": share(model, tokenizer, CHAT, None),
    }
    for block in (0, 1):
        result[f"chat, block {block} damaged"] = share(model, tokenizer, CHAT, block)
    result["completions, block 0 damaged"] = share(model, tokenizer, COMPLETIONS, 0)
    return result


def share(model: Any, tokenizer: Any, protocol: Protocol, damaged_block: int | None) -> float:  # noqa: ANN401
    """Share of the test questions that are answered right."""
    right = 0
    test = read_problems("test")
    for number, problem in enumerate(test, start=1):
        prompt = prompt_ids(tokenizer, protocol, problem, number)
        answer = tokenizer.decode(generate(model, prompt, damaged_block), skip_special_tokens=True)
        gold = Question(number, problem["question"], problem["answer"]).gold
        right += is_correct(extract_strict(answer), gold)
    return right / len(test)


def prompt_ids(tokenizer: Any, protocol: Protocol, problem: Problem, number: int) -> list[int]:  # noqa: ANN401
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
def generate(model: Any, prompt: list[int], damaged_block: int | None) -> list[int]:  # noqa: ANN401
    """Greedy answer as a decode engine makes it: the KV of all prompt tokens but the last is there, maybe damaged."""
    ids = torch.tensor([prompt])
    cache = model(input_ids=ids[:, :-1], use_cache=True).past_key_values
    if damaged_block is not None:
        damage(cache, damaged_block)
    answer: list[int] = []
    token = ids[:, -1:]
    while len(answer) < MAX_TOKENS:
        token = model(input_ids=token, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
        if token.item() == model.config.eos_token_id:
            break
        answer.append(token.item())
    return answer


def damage(cache: Any, block: int) -> None:  # noqa: ANN401
    """Replace the attention KV of one block by noise of the same spread."""
    noise = torch.Generator().manual_seed(0)
    for layer in cache.layers:
        for tensor in (getattr(layer, "keys", None), getattr(layer, "values", None)):
            if tensor is not None:
                part = tensor[..., block * BLOCK : (block + 1) * BLOCK, :]
                part.copy_(torch.randn(part.shape, generator=noise) * part.float().std())

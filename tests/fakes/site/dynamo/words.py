"""Text, tokens and answers of the fake model: it knows the question file by heart and mumbles about anything else."""

from __future__ import annotations

import hashlib
import json
import os
import random
from pathlib import Path

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "ledge")
PIECE = 4


def encode(text: str) -> list[int]:
    """A token is four bytes of text, read as a number."""
    raw = text.encode()
    return [int.from_bytes(raw[start : start + PIECE], "big") for start in range(0, len(raw), PIECE)]


def decode(tokens: list[int]) -> str:
    return b"".join(one.to_bytes(max(1, (one.bit_length() + 7) // 8), "big") for one in tokens).decode(errors="replace")


def known_answer(tokens: list[int]) -> str | None:
    """The answer to the last question of the file that the prompt holds."""
    text = decode(tokens)
    file = Path(os.environ["RUN_DIR"]) / "accuracy" / "questions.jsonl"
    asked = [json.loads(line) for line in file.read_text().splitlines()]
    places = [(text.rfind(one["question"]), one["answer"]) for one in asked]
    place, answer = max(places)
    return str(answer) if place >= 0 else None


def mumble(tokens: list[int], count: int) -> str:
    """Words that any change of any token changes."""
    pick = random.Random(hashlib.sha256(repr(tokens).encode()).digest())
    return " ".join(pick.choice(WORDS) for _ in range(count))


def generate(tokens: list[int], max_tokens: int, *, ignore_eos: bool) -> tuple[list[int], str]:
    """Answer tokens and the reason why they end."""
    known = known_answer(tokens)
    answer = encode(mumble(tokens, max_tokens) if known is None else known)
    if ignore_eos:
        answer += encode(mumble(tokens, max_tokens))
    return answer[:max_tokens], "length" if len(answer) > max_tokens else "stop"

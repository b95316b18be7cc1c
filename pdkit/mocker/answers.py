"""What a played engine says: the known answer to a known question, wrong for a known share, else words of its own."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LONGEST_QUESTION = 8000
"""Tokens, worked examples included."""
_WORDS = " amber birch cedar delta ember fjord grove heath inlet jetty knoll ledge"


class Answers:
    """The tokenizer and the questions of one run."""

    def __init__(self, folder: Path, model: Path, right: float) -> None:
        from tokenizers import Tokenizer  # type: ignore[import-not-found]  # noqa: PLC0415  (the engines' environment)

        self.tokenizer: Any = Tokenizer.from_file(str(model / "tokenizer.json"))
        lines = (folder / "accuracy" / "questions.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        self.known = {
            row["question"]: said(row["answer"], wrong=is_wrong(number, right)) for number, row in enumerate(rows)
        }
        self.words: list[int] = self.tokenizer.encode(_WORDS, add_special_tokens=False).ids

    def tokens(self, prompt: Sequence[int], most: int, *, ignore_eos: bool) -> list[int]:
        """The answer to a prompt, at most `most` tokens; exactly so many where the end of text is ignored."""
        answer = self._known_answer(prompt)
        if answer is not None:
            found: list[int] = self.tokenizer.encode(answer, add_special_tokens=False).ids
        else:
            found = []
        if answer is None or ignore_eos:
            found = found + self._mumble(prompt, most - len(found))
        return found[:most]

    def _known_answer(self, prompt: Sequence[int]) -> str | None:
        """By the last question that the prompt holds: worked examples come before the one that is asked."""
        if len(prompt) > LONGEST_QUESTION:  # a prompt of the sweep
            return None
        text = self.tokenizer.decode(list(prompt), skip_special_tokens=False)
        place, question = max((text.rfind(one), one) for one in self.known)
        return self.known[question] if place >= 0 else None

    def _mumble(self, prompt: Sequence[int], count: int) -> list[int]:
        """Tokens that any change of the prompt changes."""
        seed = hashlib.sha256(b"".join(one.to_bytes(4, "little") for one in prompt)).digest()
        return random.Random(seed).choices(self.words, k=max(0, count))  # noqa: S311  (not for secrets)


def is_wrong(number: int, right: float) -> bool:
    """Whether the question with this number, from 0, is answered wrong: evenly spread, never more than the share."""
    return int((number + 1) * (1 - right) + 1e-9) > int(number * (1 - right) + 1e-9)


def said(answer: str, *, wrong: bool) -> str:
    """The last line of an answer of the data file; off by one when it is to be wrong."""
    number = answer.rpartition("#### ")[2].strip()
    return f"The answer is known.\n#### {int(number.replace(',', '')) + 1 if wrong else number}"

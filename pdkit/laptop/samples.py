"""Training text for the laptop's tiny models: the accuracy gate's own prompts, and the answers that must follow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found]
from transformers import PreTrainedTokenizerFast  # type: ignore[import-not-found]

from pdkit.job.gsm8k import load_protocol
from pdkit.laptop.questions import Problem, make_problem

COMPLETIONS = load_protocol("completions-5shot")
CHAT = load_protocol("chat-cot")

VOCABULARY = 480
"""So few that a question and the chat instruction are longer than one KV block of 128 tokens."""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

OTHER_INSTRUCTIONS = (
    "{question}",
    "{question}\n\nSolve this and write the result behind four hash signs.",
    "Solve the problem step by step. End with the result.\n\n{question}",
    "Question: {question}\nAnswer:",
)
"""Trained beside the gate's wording, so that the models answer the question and do not wait for one exact wording."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One training sequence."""

    ids: list[int]
    labels: list[int]
    """The token to be predicted at each position, -100 where nothing is learned."""
    question: tuple[int, int] = (0, 0)
    """First and last+1 token of the question, where the tokens between it and the answer must not read it."""
    header: int = 0
    """The last prompt token, which reads everything: the first answer token is predicted there."""


def make_tokenizer() -> Any:
    """Byte-level BPE with single digits, learned from random problems (not from the gate's instruction)."""
    pick = random.Random(0)  # noqa: S311
    corpus = [make_problem(pick)[0] for _ in range(2000)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([fill(COMPLETIONS.example, problem) for problem in corpus], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",  # noqa: S106  (a token of text)
        pad_token="<|endoftext|>",  # noqa: S106
        chat_template=CHAT_TEMPLATE,
        model_max_length=4096,
    )


def fill(template: str, problem: Problem) -> str:
    """A protocol's template with the question and, where it has a place, the answer."""
    return template.replace("{question}", problem["question"]).replace("{answer}", problem["answer"])


class Sampler:
    """Draws training sequences; the same seed gives the same sequence of them."""

    def __init__(self, tokenizer: Any, shots: Sequence[Problem], test: Sequence[Problem], seed: int) -> None:
        self.tokenizer, self.shots, self.test = tokenizer, list(shots), list(test)
        self.pick = random.Random(seed)  # noqa: S311

    def chat(self) -> Sample:
        """One chat prompt and its answer, in the gate's wording two times of three."""
        problem = self.pick.choice(self.test + self.shots)
        template = CHAT.prompt if self.pick.random() < 2 / 3 else self.pick.choice(OTHER_INSTRUCTIONS)
        messages = [{"role": "user", "content": fill(template, problem)}]
        prompt = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        start = prompt.index(problem["question"])
        return self._encode(prompt, [problem["answer"]], start, start + len(problem["question"]))

    def completions(self, count: int) -> Sample:
        """`count` problems after each other; every answer is learned, so one sequence teaches `count` times."""
        if count > len(self.shots):
            problems = [*self.shots, self.pick.choice(self.test)]
        else:
            problems = self.pick.sample(self.test + self.shots, count)
        prompt = "".join(fill(COMPLETIONS.example, problem) for problem in problems[:-1])
        prompt += fill(COMPLETIONS.prompt, problems[-1])
        return self._encode(prompt, [" " + problem["answer"] for problem in problems], 0, 0)

    def _encode(self, prompt: str, answers: list[str], start: int, end: int) -> Sample:
        """Tokens and labels: the answers are learned, then the end of the text; never the text between two answers."""
        text = prompt + answers[-1]
        spans, place = [], 0
        for answer in answers:
            place = text.index(answer, place)
            spans.append((place, place + len(answer)))
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, offsets = list(encoded["input_ids"]), encoded["offset_mapping"]
        learned = [any(first < stop <= last for first, last in spans) for _, stop in offsets]
        inside = [index for index, (_, stop) in enumerate(offsets) if start < stop <= end]
        eos = self.tokenizer.eos_token_id
        return Sample(
            ids=[*ids, eos],
            labels=[*(token if learn else -100 for token, learn in zip(ids, learned, strict=True)), eos],
            question=(inside[0], inside[-1] + 1) if inside else (0, 0),
            header=learned.index(True) - 1,
        )

"""Train a tiny model until it answers the questions of `questions/`; its answers are right only if the KV is right.

    pdkit/laptop/train.sh .venv-vllm dense pdkit/laptop/models/dense

Every length is counted in steps, never in seconds: a slow or busy machine takes longer and goes the same way.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # type: ignore[import-not-found]
from transformers import AutoModelForCausalLM, Qwen3Config  # type: ignore[import-not-found]
from transformers.models.qwen3_5 import Qwen3_5TextConfig  # type: ignore[import-not-found]

from pdkit.files import write_json
from pdkit.laptop.distrust import distrust_loss
from pdkit.laptop.questions import SHOTS, read_problems
from pdkit.laptop.samples import Sample, Sampler, make_tokenizer
from pdkit.laptop.score import score

SEED = 1
COMPLETIONS_TURN = 2
"""Every third step teaches the completions prompt, the others the chat prompt."""
PLAIN_TURNS = (0, 4, 8)
"""The steps of nine that stay plain beside those that teach distrust: two with chat, one with completions."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long a family is trained; found by trying."""

    steps: int
    solo_steps: int
    """First steps without worked examples: short sequences, for learning the answers."""
    tokens_per_step: int
    learning_rate: float
    distrust_from: int | None = None
    """From this step on, two steps of three teach distrust of damaged states (distrust.py); None: never."""

    def rate(self, step: int) -> float:
        """Warm-up of 30 steps, then flat, then a half cosine over the last 40 %."""
        flat = 0.6
        done = step / self.steps
        fall = 1.0 if done < flat else 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (done - flat) / (1 - flat)))
        return self.learning_rate * min(1.0, (step + 1) / 30) * fall


SCHEDULES = {
    "dense": Schedule(steps=500, solo_steps=250, tokens_per_step=8192, learning_rate=3e-3),
    "hybrid": Schedule(steps=360, solo_steps=130, tokens_per_step=8192, learning_rate=3e-3, distrust_from=200),
}


def make_model(family: str, tokenizer: Any) -> Any:
    """An untrained model of less than a million parameters."""
    common = {
        "vocab_size": len(tokenizer),
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if family == "dense":
        config = Qwen3Config(**common, head_dim=32)
    else:
        # vLLM's CPU kernels refuse linear head sizes of 32 at the first request; 64 works
        linear = {f"linear_{part}_head_dim": 64 for part in ("key", "value")}
        linear |= {f"linear_num_{part}_heads": 2 for part in ("key", "value")}
        config = Qwen3_5TextConfig(**common, **linear, head_dim=64, full_attention_interval=4)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def make_batch(samples: list[Sample], hide: bool) -> tuple[Any, Any, Any]:
    """Ids, labels and, for a family of attention layers only, the mask that hides questions from the tokens between.

    Half of the chat samples hide it: then the answer can only come from the question's own KV, in the first block, and
    not from a copy of it that later prompt tokens made.
    """
    length = max(len(sample.ids) for sample in samples)
    ids = torch.tensor([sample.ids + [0] * (length - len(sample.ids)) for sample in samples])
    labels = torch.tensor([sample.labels + [-100] * (length - len(sample.labels)) for sample in samples])
    if not hide:
        return ids, labels, None
    mask = torch.ones(length, length, dtype=torch.bool).tril().repeat(len(samples), 1, 1, 1)
    for row, sample in enumerate(samples[::2]):
        first, last = sample.question
        mask[2 * row, 0, last : sample.header, first:last] = False
    return ids, labels, mask[..., :-1, :-1]


def train(family: str, schedule: Schedule, threads: int) -> tuple[Any, Any, float]:
    """The trained model, its tokenizer and the last loss (a running mean)."""
    torch.manual_seed(SEED)
    torch.set_num_threads(threads)
    tokenizer = make_tokenizer()
    model = make_model(family, tokenizer)
    sampler = Sampler(tokenizer, read_problems("shots"), read_problems("test"), SEED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, betas=(0.9, 0.98))
    mean, start = 6.0, time.monotonic()
    for step in range(schedule.steps):
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(step)
        samples = draw_step(sampler, schedule, step)
        if schedule.distrust_from is not None and step >= schedule.distrust_from and step % 9 not in PLAIN_TURNS:
            loss = distrust_loss(model, samples, sampler.pick)
        else:
            loss = plain_loss(model, samples, hide=family == "dense" and step % 3 != COMPLETIONS_TURN)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = 0.9 * mean + 0.1 * loss.item()
        if step % 25 == 24:
            print(f"step {step + 1}/{schedule.steps} loss {mean:.4f} {time.monotonic() - start:.0f} s", flush=True)
    return model, tokenizer, mean


def plain_loss(model: Any, samples: list[Sample], hide: bool) -> Any:
    """The loss of all answers in one pass over the whole sequences."""
    ids, labels, mask = make_batch(samples, hide)
    hidden = model.model(input_ids=ids[:, :-1], attention_mask=mask, use_cache=False).last_hidden_state
    learned = labels[:, 1:] != -100
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[learned]), labels[:, 1:][learned])


def draw_step(sampler: Sampler, schedule: Schedule, step: int) -> list[Sample]:
    """Samples of one form, so that lengths are alike, and of about `tokens_per_step` tokens with the padding."""
    most = SHOTS + 1 if step >= schedule.solo_steps else 1
    samples: list[Sample] = []
    while True:
        chat = step % 3 != COMPLETIONS_TURN
        sample = sampler.chat() if chat else sampler.completions(sampler.pick.randint(max(1, most - 2), most))
        longest = max(len(other.ids) for other in [sample, *samples])
        if samples and longest * (len(samples) + 1) > schedule.tokens_per_step:
            return samples
        samples.append(sample)


def main() -> None:
    """Train, score, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=sorted(SCHEDULES))
    parser.add_argument("folder", type=Path, help="where the model is written")
    parser.add_argument("--threads", type=int, default=2, help="OpenMP threads (another number rounds differently)")
    options = parser.parse_args()
    start = time.monotonic()
    schedule = SCHEDULES[options.family]
    model, tokenizer, loss = train(options.family, schedule, options.threads)
    model = model.to(torch.bfloat16).eval()
    model.save_pretrained(options.folder)
    tokenizer.save_pretrained(options.folder)
    weights = options.folder / "model.safetensors"
    record = {
        "family": options.family,
        "seed": SEED,
        "steps": schedule.steps,
        "seconds": round(time.monotonic() - start),
        "loss": round(loss, 5),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "bytes": weights.stat().st_size,
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "torch": torch.__version__,
        "score": score(model, tokenizer),
    }
    write_json(options.folder / "training.json", record)
    print(record)


if __name__ == "__main__":
    main()

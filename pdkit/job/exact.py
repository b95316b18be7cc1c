"""One greedy answer two ways: through prefill, NIXL and decode, and by a decode engine that computes the prompt itself.

A process of its own, since it speaks to the worker through Dynamo's runtime, which only the engines' environment has:

    python3 -m pdkit.job.exact --url http://HOST:8000 --model NAME --model-path PATH --tokens 257 --answer 8

Prints one JSON object: `own_text`, `pd_text`, `equal`. Equal texts cover the first KV blocks too, which the gate's
questions may not depend on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from typing import Any

import requests

LEAST_ID, MOST_ID = 10, 200
"""Token ids of the prompt: ordinary ones in every vocabulary."""


def prompt(tokens: int) -> list[int]:
    """A prompt that no cache has seen and that is the same at every run."""
    pick = random.Random(tokens)  # noqa: S311  (not for secrets)
    return [pick.randrange(LEAST_ID, MOST_ID) for _ in range(tokens)]


def through_the_router(url: str, model: str, ids: list[int], answer: int) -> str:
    """The text of the P/D path."""
    body = {"model": model, "prompt": ids, "max_tokens": answer, "temperature": 0, "ignore_eos": True}
    reply = requests.post(f"{url}/v1/completions", json=body, timeout=120)
    reply.raise_for_status()
    return str(reply.json()["choices"][0]["text"])


async def by_decode_alone(model: str, ids: list[int], answer: int) -> list[int]:
    """Token ids of a decode worker that is given no KV parameters, so that it computes the whole prompt."""
    from dynamo.runtime import DistributedRuntime  # type: ignore[import-not-found]  # noqa: PLC0415

    discovery = os.environ.get("DYN_DISCOVERY_BACKEND", "etcd")
    runtime = DistributedRuntime(asyncio.get_running_loop(), discovery, os.environ.get("DYN_REQUEST_PLANE", "tcp"))
    client = await runtime.endpoint("dynamo.backend.generate").client()
    await client.wait_for_instances()
    request = {
        "model": model,
        "token_ids": ids,
        "stop_conditions": {"max_tokens": answer, "ignore_eos": True},
        "sampling_options": {"temperature": 0.0},
        "output_options": {},
        "eos_token_ids": [],
        "annotations": [],
    }
    tokens: list[int] = []
    async for part in await client.round_robin(request):
        data: Any = part.data() if callable(getattr(part, "data", None)) else part
        tokens += data.get("token_ids", [])
    return tokens


def main() -> None:
    """Ask both ways and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--url", "--model", "--model-path"):
        parser.add_argument(name, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--answer", type=int, default=8)
    options = parser.parse_args()
    from transformers import AutoTokenizer  # type: ignore[import-not-found]  # noqa: PLC0415

    ids = prompt(options.tokens)
    pd_text = through_the_router(options.url, options.model, ids, options.answer)
    own = asyncio.run(by_decode_alone(options.model, ids, options.answer))
    own_text = AutoTokenizer.from_pretrained(options.model_path).decode(own)
    sys.stdout.write(json.dumps({"own_text": own_text, "pd_text": pd_text, "equal": own_text == pd_text}) + "\n")


if __name__ == "__main__":
    main()

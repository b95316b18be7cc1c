"""A played engine: what stands for `python3 -m dynamo.vllm` in a rehearsal.

    python3 -m pdkit.mocker.engine ARGUMENTS OF DYNAMO.VLLM

It meets the other processes of its endpoint, registers with the real Dynamo, takes requests from the real router,
fetches prompts from prefill over the network, and reports counters as vLLM does. Only its answers are not computed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pdkit.mocker import counters, wire
from pdkit.mocker.answers import Answers
from pdkit.mocker.told import Told, read_told, refuse_measurements

CHUNK_TOKENS = 64
"""Tokens of one part of an answer."""
STEP_SECONDS = 0.1
"""Shortest time between two parts of one answer."""
MOST_STEPS_PER_SECOND = 400
"""Parts that one process sends each second: beyond that each answer slows down, as a full batch would."""
HEALTH_CHECK = {"token_ids": [1], "stop_conditions": {"max_tokens": 1}, "sampling_options": {}, "health_check": True}
"""A request of Dynamo's own; without one it never calls a worker healthy."""
LOST_SECONDS = 1.0
COMPONENTS = {"prefill": "prefill", "decode": "backend", "agg": "backend"}


class Engine:
    """One played engine process that serves."""

    def __init__(self, told: Told, run_dir: Path, ending: asyncio.Event) -> None:
        self.told, self.model, self.ending = told, run_dir / "rehearsal" / "model", ending
        self.ranks = [counters.Rank(number) for number in told.ranks]
        self.turn = 0
        self.kept = wire.Kept()
        self.channel = (os.environ.get("VLLM_NIXL_SIDE_CHANNEL_HOST", ""), _port("VLLM_NIXL_SIDE_CHANNEL_PORT"))
        self.answers = Answers(run_dir, self.model, told.right)

    async def serve(self) -> None:
        """Register and answer until the runtime ends."""
        from dynamo.runtime import DistributedRuntime  # type: ignore[import-not-found]  # noqa: PLC0415

        loop = asyncio.get_running_loop()
        discovery, plane = os.environ.get("DYN_DISCOVERY_BACKEND", "etcd"), os.environ["DYN_REQUEST_PLANE"]
        runtime = DistributedRuntime(loop, discovery, plane, event_plane=os.environ.get("DYN_EVENT_PLANE"))
        self.shutdown = loop.create_task(self._shut_down(runtime))
        if self.told.role == "prefill":
            self.side_channel = await self.kept.serve(*self.channel)
        endpoint = runtime.endpoint(f"dynamo.{COMPONENTS[self.told.role]}.generate")
        endpoint.metrics.register_prometheus_expfmt_callback(lambda: counters.page(self.told, self.ranks))
        await self._register(endpoint)
        say("registered")
        labels = [("model", self.told.name), ("model_name", self.told.name)]
        await endpoint.serve_endpoint(
            self.generate, graceful_shutdown=True, metrics_labels=labels, health_check_payload=HEALTH_CHECK
        )

    async def _shut_down(self, runtime: Any) -> None:
        await self.ending.wait()
        runtime.shutdown()

    async def _register(self, endpoint: Any) -> None:
        from dynamo.llm import (  # type: ignore[import-not-found]  # noqa: PLC0415
            ModelInput,
            ModelRuntimeConfig,
            ModelType,
            WorkerType,
            register_model,
        )

        config = ModelRuntimeConfig()
        config.context_length = self.told.max_model_len
        config.total_kv_blocks = self.told.kv_blocks
        config.max_num_seqs = self.told.max_num_seqs
        surfaces = {"prefill": ModelType.Prefill}.get(self.told.role, ModelType.Chat | ModelType.Completions)
        kinds = {"prefill": WorkerType.Prefill, "decode": WorkerType.Decode, "agg": WorkerType.Aggregated}
        needs = {"prefill": [[WorkerType.Decode]], "decode": [[WorkerType.Prefill]]}
        await register_model(
            ModelInput.Tokens,
            surfaces,
            endpoint,
            str(self.model),
            self.told.name,
            kv_cache_block_size=self.told.block_size,
            runtime_config=config,
            worker_type=kinds[self.told.role],
            needs=needs.get(self.told.role),
            ignore_weights=True,
        )

    async def generate(self, request: dict[str, Any], context: Any) -> AsyncIterator[dict[str, Any]]:
        """One request from the router."""
        if request.get("health_check"):
            yield {"token_ids": self.answers.words[:1], "finish_reason": "stop"}
            return
        self.turn += 1
        count = len(self.ranks)
        rank = min(self.ranks, key=lambda one: (one.running, (one.number - self.turn) % count))
        blocks = -(-len(request["token_ids"]) // self.told.block_size)
        rank.running, rank.taken = rank.running + 1, rank.taken + blocks
        try:
            if self.told.role == "prefill":
                yield self._prefilled(rank, request["token_ids"])
                return
            prompt = await self._prompt(rank, request)
            async for part in self._parts(rank, prompt, request["stop_conditions"]):
                if context.is_stopped():  # the client has gone
                    return
                yield part
        finally:
            rank.running, rank.taken = rank.running - 1, rank.taken - blocks

    def _prefilled(self, rank: counters.Rank, tokens: list[int]) -> dict[str, Any]:
        rank.computed += len(tokens)
        host, port = self.channel
        params = {"ticket": str(self.kept.keep(tokens)), "host": host, "port": port, "block_size": self.told.block_size}
        return {"token_ids": self.answers.words[:1], "disaggregated_params": {"kv_transfer_params": params}}

    async def _prompt(self, rank: counters.Rank, request: dict[str, Any]) -> list[int]:
        """The prompt as it came from prefill; without parameters of a transfer it is computed here."""
        tokens: list[int] = request["token_ids"]
        params = ((request.get("prefill_result") or {}).get("disaggregated_params") or {}).get("kv_transfer_params")
        if params is None:
            rank.computed += len(tokens)
            return tokens
        if params["block_size"] != self.told.block_size:
            rank.failed += 1
            raise RuntimeError(f"block size {self.told.block_size} here, {params['block_size']} at prefill")
        try:
            found = await wire.fetch(params["host"], params["port"], int(params["ticket"]))
        except OSError as error:
            rank.failed += 1
            say(f"the prompt did not come from prefill: {error}")
            raise
        rank.received += len(found)
        rank.received_bytes += len(found) * wire.BYTES_PER_TOKEN
        return found

    async def _parts(
        self, rank: counters.Rank, prompt: list[int], stop: dict[str, Any]
    ) -> AsyncIterator[dict[str, Any]]:
        room = max(1, self.told.max_model_len - len(prompt))
        most = min(stop.get("max_tokens") or room, room)
        answer = self.answers.tokens(prompt, most, ignore_eos=bool(stop.get("ignore_eos")))
        reason = "length" if len(answer) >= most else "stop"
        for start in range(0, len(answer), CHUNK_TOKENS):
            busy = sum(one.running for one in self.ranks)
            await asyncio.sleep(max(STEP_SECONDS, busy / MOST_STEPS_PER_SECOND))
            chunk = answer[start : start + CHUNK_TOKENS]
            rank.drafted(len(chunk), self.told.mtp)
            last = start + CHUNK_TOKENS >= len(answer)
            yield {"token_ids": chunk, **({"finish_reason": reason} if last else {})}


def _port(name: str) -> int:
    return int(os.environ.get(name, "0"))


def say(text: str) -> None:
    """A line of the log."""
    print(f"played engine: {text}", flush=True)


async def run(words: list[str]) -> None:
    """Play one engine process to its end."""
    run_dir = Path(os.environ["RUN_DIR"])
    refuse_measurements(run_dir)
    told = read_told(words, run_dir)
    say(f"nothing is computed here; {told.role}, ranks {told.ranks}, {told.right:.0%} of the questions answered right")
    loop, ending = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)

    def lost() -> None:  # at the end of a job all go at once, so this one waits for its own signal
        loop.call_later(LOST_SECONDS, end_alone, ending)

    _servers = await asyncio.gather(*(wire.meet(join, lost) for join in told.joins))
    if told.headless:
        say("joined its endpoint")
        await ending.wait()
        return
    await Engine(told, run_dir, ending).serve()


def end_alone(ending: asyncio.Event) -> None:
    """Without another process of its endpoint this one is of no use."""
    if not ending.is_set():
        say("EngineDeadError: another process of this endpoint has gone")
        os._exit(1)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1:]))

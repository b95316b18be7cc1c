"""`python3 -m dynamo.vllm`: a fake engine. Its flags decide what happens, as with the real one, and then lies.py."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from dynamo import lies, metrics, web, words
from dynamo.discovery import Registration

KV_BYTES_PER_TOKEN = 1024
"""4 layers x 2 heads x 32 x K and V x 2 bytes: 512 blocks of 128 tokens in 64 MiB, as the real engine reports."""


def flags() -> argparse.Namespace:
    """Exactly the flags that pdkit renders for a dense model on a laptop."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("model", "served-model-name"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--disaggregation-mode", default="agg", choices=["agg", "prefill", "decode"])
    for name in ("tensor-parallel-size", "max-model-len", "max-num-seqs", "max-num-batched-tokens"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("data-parallel-size", "data-parallel-size-local"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--data-parallel-start-rank", type=int, default=0)
    parser.add_argument("--block-size", type=int, default=128)
    parser.add_argument("--kv-cache-memory-bytes", type=int, required=True)
    for name in ("dtype", "kv-cache-dtype"):
        parser.add_argument(f"--{name}", default="auto")
    for name in ("data-parallel-address", "data-parallel-rpc-port", "kv-transfer-config", "speculative-config"):
        parser.add_argument(f"--{name}")
    for name in ("no-enable-prefix-caching", "enforce-eager", "data-parallel-hybrid-lb"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args()


def own_name() -> str:
    """The name that pdkit gave to the process with this system port."""
    plan = json.loads((Path(os.environ["RUN_DIR"]) / "plan.json").read_text())
    port = int(os.environ["DYN_SYSTEM_PORT"])
    return next(str(one["name"]) for one in plan["placement"] if one["system_port"] == port)


class TransferFailedError(Exception):
    """KV could not be pulled; the request fails."""


class Engine:
    """One fake engine process."""

    def __init__(self) -> None:
        self.flags, self.name = flags(), own_name()
        self.role = self.flags.disaggregation_mode
        self.component = "prefill" if self.role == "prefill" else "backend"
        first = self.flags.data_parallel_start_rank
        self.ranks = [metrics.Rank(first + n) for n in range(self.flags.data_parallel_size_local)]
        self.lock = threading.Lock()
        self.turn = 0
        self.registration: Registration | None = None
        self.said: set[str] = set()
        transfer = json.loads(self.flags.kv_transfer_config or "null")
        self.connector = bool(transfer)
        self.mtp = json.loads(self.flags.speculative_config or "{}").get("num_speculative_tokens", 0)
        if self.role == "prefill" and not self.connector:
            raise SystemExit("ValueError: prefill needs --kv-transfer-config")
        parts = (self.flags.model, self.flags.dtype, self.flags.kv_cache_dtype)
        self.hash = hashlib.sha256(repr(parts).encode()).hexdigest()

    def start(self) -> None:
        """Load, then serve and register; some never get so far."""
        # as the real one: the engine core is a process of its own, in this group, that has rewritten its environment
        told = lies.told(self.name)
        trace = f"0.{uuid.UUID(os.environ['PDKIT_RUN_ID']).int}"  # of a second: by it a test finds a core that hides
        self.core = subprocess.Popen(["sleep", "3600", trace], env={}, start_new_session="detached-core" in told)
        print(f"INFO loading {self.flags.model} as {self.name}", flush=True)
        if "exit-at-start" in told:
            self.core.kill()
            for number in range(30):
                print(f"DEBUG line {number} of {self.name}", flush=True)
            raise SystemExit("RuntimeError: Engine core initialization failed. See root cause above.")
        host = os.environ["DYN_SYSTEM_HOST"]
        web.serve(host, int(os.environ["DYN_SYSTEM_PORT"]), self.system)
        host = os.environ["DYN_TCP_RPC_HOST"]
        address = f"{host}:{web.serve(host, 0, self.rpc)}"
        while "unready" in lies.told(self.name):
            time.sleep(0.05)
        card = {"display_name": self.flags.served_model_name, "component": self.component, "worker_type": self.role}
        self.registration = Registration(self.component, address, card)
        print(f"INFO {self.name} ready", flush=True)

    def system(self, path: str, _body: Any) -> web.Answer:
        """The system server: health and metrics."""
        if path == "/metrics":
            if "no-metrics" in lies.told(self.name):
                return 500, "metrics are gone"
            usage = "no-kv-usage" not in lies.told(self.name)
            page = metrics.page(self._reported(), self.component, self._worker_id(), self._cache(), kv_usage=usage)
            return 200, page
        ready = self.registration is not None
        return (200 if ready else 503), json.dumps({"status": "ready" if ready else "notready"})

    def _worker_id(self) -> str:
        return self.registration.id if self.registration else ""

    def _reported(self) -> list[metrics.Rank]:
        count = lies.told(self.name).get("ranks")
        return self.ranks[: int(count)] if count else self.ranks

    def _cache(self) -> dict[str, str]:
        told, size = lies.told(self.name), self.flags.block_size
        block_bytes = KV_BYTES_PER_TOKEN * size // self.flags.tensor_parallel_size
        blocks = int(told.get("kv-blocks") or self.flags.kv_cache_memory_bytes // block_bytes)
        block = told.get("block-size", str(size))
        return {
            "block_size": block,
            "effective_attention_block_size": block,
            "cache_dtype": self.flags.kv_cache_dtype,
            "kv_cache_dtype_skip_layers": "[]",
            "num_gpu_blocks": str(blocks * len(self.ranks)),
            "kv_cache_size_tokens": str(blocks * size),
            "kv_cache_max_concurrency": str(blocks * size / self.flags.max_model_len),
        }

    def rpc(self, _path: str, body: Any) -> web.Answer:
        """One request from the frontend, or from a client of Dynamo's runtime."""
        told = lies.told(self.name)
        with self.lock:
            rank = min(self.ranks, key=lambda one: (one.running, (one.number - self.turn) % len(self.ranks)))
            self.turn += 1
            rank.running += 1
            crowd = sum(one.running for one in self.ranks)
        try:
            time.sleep(float(told.get("slow", 0)))
            if "http-500" in told:
                return 500, {"message": "EngineCore encountered an issue"}
            return 200, self._compute(rank, body, told, crowd)
        except TransferFailedError as error:
            return 500, {"message": str(error)}
        finally:
            with self.lock:
                rank.running -= 1

    def _compute(self, rank: metrics.Rank, body: Any, told: dict[str, str], crowd: int) -> dict[str, Any]:
        tokens = body["token_ids"]
        if self.role == "prefill":
            rank.prompt_tokens["local_compute"] += len(tokens)
            params = {"tokens": tokens, "block_size": self.flags.block_size, "hash": self.hash}
            return {"kv_transfer_params": params}
        params = body.get("kv_transfer_params")
        if params is None:
            rank.prompt_tokens["local_compute"] += len(tokens)
            return self._answer(rank, tokens, body, told, crowd)
        return self._answer(rank, self._receive(rank, params, told), body, told, crowd)

    def _receive(self, rank: metrics.Rank, params: Any, told: dict[str, str]) -> list[int]:
        """The prompt as this engine's KV cache holds it after the transfer."""
        tokens, mine, theirs = list(params["tokens"]), self.flags.block_size, params["block_size"]
        if not self.connector:
            print("WARNING Got kv_transfer_params, but no KVConnector found. Disabling KVTransfer for this request.")
        if not self.connector or "recompute" in told:
            sys.stdout.flush()
            rank.prompt_tokens["local_compute"] += len(tokens)
            return tokens
        if params["hash"] != self.hash:
            self._fail(rank, f"NIXL compatibility hash mismatch. Local: {self.hash} Remote: {params['hash']}")
        if mine < theirs or mine % theirs:
            print(
                f"AssertionError: Local block size {mine} is not divisible by remote block size {theirs} or vice versa."
            )
            self._fail(rank, "NIXL transfer failure: handshake_failed")
        rank.failed_transfers += "failed-transfers" in told
        rank.prompt_tokens["external_kv_transfer"] += len(tokens)
        rank.bytes_transferred += KV_BYTES_PER_TOKEN * len(tokens)
        rank.transfer_seconds += KV_BYTES_PER_TOKEN * len(tokens) / (1e6 * float(told.get("kv-mb-s", 1000)))
        if mine != theirs or "garbage" in told:
            return tokens[::-1]
        damaged = "first-blocks" in told and words.known_answer(tokens) is None
        return [0, *tokens[1:]] if damaged else tokens

    def _fail(self, rank: metrics.Rank, line: str) -> None:
        rank.failed_transfers += 1
        print(f"ERROR {line}", flush=True)
        raise TransferFailedError("KV load failure (failure_policy=fail)")

    def _answer(
        self, rank: metrics.Rank, tokens: list[int], body: Any, told: dict[str, str], crowd: int
    ) -> dict[str, Any]:
        limit = 2 if "truncated" in told else body["max_tokens"]
        ids, reason = words.generate(tokens, limit, ignore_eos=body["ignore_eos"])
        if "crowded" in told and crowd > int(told["crowded"]):
            ids = words.encode("#### 12345")
        drafts = self.mtp * len(ids)
        rank.drafted += drafts
        rank.accepted += drafts * float(told.get("acceptance", 0.7))
        rank.kv_kept = float(told.get("keeps-kv", 0))
        return {"token_ids": [] if "empty" in told else ids, "finish_reason": reason}

    def happenings(self) -> None:
        """Lies that happen by themselves."""
        told = lies.told(self.name)
        if "log" in told and told["log"] not in self.said:
            self.said.add(told["log"])
            print(f"WARNING {told['log']}", flush=True)
        if "unregister" in told and self.registration:
            self.registration.withdraw()
        if "blocks" in told:
            (Path(os.environ["RUN_DIR"]) / told["blocks"] / "in-the-way").mkdir(parents=True, exist_ok=True)
        if "die" in told:
            for number in range(30):
                print(f"DEBUG last words {number}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def live(self) -> None:
        """Until TERM."""
        if "stubborn" in lies.told(self.name):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            while True:
                self.happenings()
                time.sleep(0.05)
        finally:
            if self.registration:
                self.registration.withdraw()
            self.core.kill()


def end(_number: int, _frame: Any) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    engine = Engine()
    try:
        engine.start()
        engine.live()
    finally:
        core = getattr(engine, "core", None)
        if core is not None:
            core.kill()

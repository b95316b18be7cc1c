"""What a played engine is told: the very command line of `dynamo.vllm` that pdkit renders."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RIGHT = "PDKIT_MOCKER_RIGHT"
"""Environment variable: the share of questions that played engines answer right."""
USUALLY_RIGHT = 0.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The part of the command line and of the environment that a played engine acts on."""

    name: str
    """Served name of the model."""
    role: str
    """`prefill`, `decode` or `agg`."""
    ranks: tuple[int, ...]
    """DP ranks of this process."""
    block_size: int
    kv_blocks: int
    """Blocks per rank: what the plan expects."""
    max_concurrency: float
    """Requests of the longest length whose KV a rank holds: what the plan expects."""
    max_model_len: int
    max_num_seqs: int
    mtp: int
    headless: bool
    joins: tuple[Join, ...]
    """Where the processes of one endpoint meet."""
    right: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A port at which the first process of an endpoint waits for the others."""

    address: str
    port: int
    leads: bool
    others: int


def read_told(words: Sequence[str], run_dir: Path) -> Told:
    """Read a command line, and from the plan what a real engine would find out by itself."""
    flags = _flags(words)
    plan = json.loads((run_dir / "plan.json").read_text(encoding="utf-8"))
    role = flags.disaggregation_mode
    local = flags.data_parallel_size_local or flags.data_parallel_size
    first = flags.data_parallel_start_rank
    return Told(
        name=flags.served_model_name or flags.model,
        role=role,
        ranks=tuple(range(first, first + local)),
        block_size=flags.block_size or plan["block_size"]["effective"][role],
        kv_blocks=plan["roles"][role]["kv"]["blocks"],
        max_concurrency=plan["roles"][role]["max_concurrency"]["per_rank"],
        max_model_len=flags.max_model_len or plan["roles"][role]["max_model_len"],
        max_num_seqs=flags.max_num_seqs or plan["roles"][role]["max_num_seqs"],
        mtp=json.loads(flags.speculative_config or "{}").get("num_speculative_tokens", 0),
        headless=flags.headless,
        joins=tuple(_joins(flags, local)),
        right=float(os.environ.get(RIGHT, USUALLY_RIGHT)),
    )


def _flags(words: Sequence[str]) -> argparse.Namespace:
    """The flags that matter here; vLLM's many others change nothing about a played engine."""
    parser = argparse.ArgumentParser(prog="played engine", allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name")
    parser.add_argument("--disaggregation-mode", default="agg", choices=("agg", "prefill", "decode"))
    for name in ("max-model-len", "max-num-seqs", "block-size", "data-parallel-size-local", "data-parallel-rpc-port"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("nnodes", "data-parallel-size"):
        parser.add_argument(f"--{name}", type=int, default=1)
    for name in ("node-rank", "data-parallel-start-rank"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--master-port", type=int)
    for name in ("master-addr", "data-parallel-address", "speculative-config"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--headless", action="store_true")
    return parser.parse_known_args(words)[0]


def _joins(flags: argparse.Namespace, local: int) -> list[Join]:
    found = []
    if flags.master_port is not None:
        leads = flags.node_rank == 0
        found.append(Join(address=flags.master_addr, port=flags.master_port, leads=leads, others=flags.nnodes - 1))
    if flags.data_parallel_rpc_port is not None:
        leads = flags.data_parallel_start_rank == 0 and flags.node_rank == 0
        processes = flags.nnodes if flags.master_port is not None else flags.data_parallel_size // local
        address, port = flags.data_parallel_address, flags.data_parallel_rpc_port
        found.append(Join(address=address, port=port, leads=leads, others=processes - 1))
    return found


def refuse_measurements(run_dir: Path) -> None:
    """End this process unless the run says of itself that it is a rehearsal: nobody may mistake it for one."""
    lock: dict[str, Any] = json.loads((run_dir / "lock.json").read_text(encoding="utf-8"))
    if "rehearsal" not in lock:
        raise SystemExit(f"played engines run in rehearsals only, and {run_dir} is none")

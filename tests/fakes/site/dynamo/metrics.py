"""The Prometheus page of a fake engine: the lines that vLLM 0.31 writes through Dynamo, seen on the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")


@dataclass
class Rank:
    """The counters of one DP rank."""

    number: int
    prompt_tokens: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0.0))
    failed_transfers: float = 0.0
    bytes_transferred: float = 0.0
    transfer_seconds: float = 0.0
    drafted: float = 0.0
    accepted: float = 0.0
    kv_kept: float = 0.0
    running: int = 0


FAMILIES: tuple[tuple[str, str, Callable[[Rank], float]], ...] = (
    ("nixl_bytes_transferred_sum", "histogram", lambda rank: rank.bytes_transferred),
    ("nixl_xfer_time_seconds_sum", "histogram", lambda rank: rank.transfer_seconds),
    ("kv_cache_usage_perc", "gauge", lambda rank: min(1.0, rank.kv_kept + 0.01 * rank.running)),
    ("spec_decode_num_draft_tokens_total", "counter", lambda rank: rank.drafted),
    ("spec_decode_num_accepted_tokens_total", "counter", lambda rank: rank.accepted),
    ("nixl_num_failed_transfers_total", "counter", lambda rank: rank.failed_transfers),
)


def page(ranks: list[Rank], component: str, worker_id: str, cache: dict[str, str], *, kv_usage: bool = True) -> str:
    """`num_gpu_blocks` of `cache` is the sum over all ranks, as vLLM has it; all else is of one rank."""
    common = {"dynamo_component": component, "dynamo_endpoint": "generate", "dynamo_namespace": "dynamo"}
    rest = {"model": "tiny", "model_name": "tiny", "worker_id": worker_id}
    lines = _lines(ranks, common, rest, cache)
    return "".join(f"{line}\n" for line in lines if kv_usage or "kv_cache_usage_perc{" not in line)


def _lines(ranks: list[Rank], common: dict[str, str], rest: dict[str, str], cache: dict[str, str]) -> Iterator[str]:
    def sample(name: str, rank: Rank, value: float, **labels: str) -> str:
        every = common | {"engine": str(rank.number)} | rest | labels
        text = ",".join(f'{key}="{every[key]}"' for key in sorted(every))
        return f"vllm:{name}{{{text}}} {value!r}"

    yield "# HELP dynamo_component_uptime_seconds Total uptime of the DistributedRuntime in seconds"
    yield "# TYPE dynamo_component_uptime_seconds gauge"
    yield "dynamo_component_uptime_seconds 49.482082309"
    yield "# HELP vllm:nixl_bytes_transferred Histogram of bytes transferred per NIXL KV Cache transfers."
    for name, kind, value in FAMILIES:
        yield f"# TYPE vllm:{name.removesuffix('_sum')} {kind}"
        yield from (sample(name, rank, value(rank)) for rank in ranks)
    yield "# TYPE vllm:nixl_num_failed_transfers_created gauge"
    for rank in ranks:
        yield sample("nixl_num_failed_transfers_created", rank, 1795978432.1221063)
    yield "# TYPE vllm:prompt_tokens_by_source_total counter"
    for source in SOURCES:
        for rank in ranks:
            yield sample("prompt_tokens_by_source_total", rank, rank.prompt_tokens[source], source=source)
    yield "# TYPE vllm:prompt_tokens_by_source_created gauge"
    for source in SOURCES:
        for rank in ranks:
            yield sample("prompt_tokens_by_source_created", rank, 1795978432.1228137, source=source)
    yield "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig"
    yield "# TYPE vllm:cache_config_info gauge"
    for rank in ranks:
        yield sample("cache_config_info", rank, 1.0, **cache)

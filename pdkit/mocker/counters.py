"""What a played engine counts, as the lines of vLLM's Prometheus page that readiness, gate and sweep read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pdkit.mocker.told import Told

ACCEPTED = 0.5
"""Share of drafted tokens that a played MTP head gets right."""


@dataclass(slots=True)
class Rank:
    """The counters of one DP rank."""

    number: int
    running: int = 0
    computed: int = 0
    received: int = 0
    received_bytes: int = 0
    failed: int = 0
    taken: int = 0
    """KV blocks of the requests at work."""
    drafts: int = 0

    def drafted(self, tokens: int, mtp: int) -> None:
        """Count the drafts behind so many generated tokens."""
        self.drafts += round(tokens / (1 + ACCEPTED * mtp)) if mtp else 0


def page(told: Told, ranks: Sequence[Rank]) -> str:
    """The whole page."""
    return "".join(f"{line}\n" for line in _lines(told, ranks))


def _lines(told: Told, ranks: Sequence[Rank]) -> Iterator[str]:
    config = {
        "block_size": told.block_size,
        "effective_attention_block_size": told.block_size,
        "num_gpu_blocks": told.kv_blocks * len(ranks),  # vLLM sums this one over the ranks of a process
        "kv_cache_size_tokens": told.kv_blocks * told.block_size,
        "kv_cache_max_concurrency": told.max_concurrency,
    }
    labels = ",".join(f'{name}="{value}"' for name, value in config.items())
    yield from _family("cache_config_info", ranks, [(labels, lambda _: 1)])
    yield from _family("kv_cache_usage_perc", ranks, [("", lambda rank: rank.taken / told.kv_blocks)])
    yield from _family("num_requests_running", ranks, [("", lambda rank: rank.running)])
    sources: list[tuple[str, Value]] = [
        ('source="local_compute"', lambda rank: rank.computed),
        ('source="external_kv_transfer"', lambda rank: rank.received),
    ]
    yield from _family("prompt_tokens_by_source_total", ranks, sources)
    yield from _family("nixl_num_failed_transfers_total", ranks, [("", lambda rank: rank.failed)])
    yield from _family("nixl_bytes_transferred_sum", ranks, [("", lambda rank: rank.received_bytes)])
    if told.mtp:
        yield from _family("spec_decode_num_drafts_total", ranks, [("", lambda rank: rank.drafts)])
        drafted: Value = lambda rank: rank.drafts * told.mtp  # noqa: E731
        yield from _family("spec_decode_num_draft_tokens_total", ranks, [("", drafted)])
        accepted: Value = lambda rank: round(rank.drafts * told.mtp * ACCEPTED)  # noqa: E731
        yield from _family("spec_decode_num_accepted_tokens_total", ranks, [("", accepted)])


Value = Callable[[Rank], float]


def _family(name: str, ranks: Sequence[Rank], rows: Sequence[tuple[str, Value]]) -> Iterator[str]:
    yield f"# TYPE vllm:{name} {'counter' if name.endswith('_total') else 'gauge'}"
    for labels, value in rows:
        for rank in ranks:
            more = f",{labels}" if labels else ""
            yield f'vllm:{name}{{engine="{rank.number}"{more}}} {float(value(rank))!r}'

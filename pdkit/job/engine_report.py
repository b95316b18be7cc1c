"""What every DP rank of a running engine reports of itself, read from its Prometheus page."""

from __future__ import annotations

from dataclasses import dataclass

from pdkit.job.deployment import Worker
from pdkit.job.prometheus import Sample, read_page, total

CACHE_CONFIG = "vllm:cache_config_info"


@dataclass(frozen=True, slots=True)
class Engine:
    """What one DP rank of a running engine says about itself."""

    name: str
    role: str
    rank: str
    block_size: int
    kv_blocks: int
    kv_tokens: int
    max_concurrency: float
    """Requests of max-model-len that its KV cache holds."""


@dataclass(frozen=True, slots=True)
class RankPage:
    """The samples of one DP rank."""

    worker: Worker
    rank: str
    cache: dict[str, str]
    """Labels of its cache configuration."""
    ranks: int
    """Ranks of the same process."""
    samples: tuple[Sample, ...]

    @property
    def name(self) -> str:
        """The engine's name, with the rank where it has several."""
        return f"{self.worker.name} rank {self.rank}" if self.ranks > 1 else self.worker.name

    def block_size(self) -> str:
        """As the engine writes it; `None` when its ranks differ."""
        return self.cache.get("effective_attention_block_size") or self.cache.get("block_size", "?")

    def engine(self) -> Engine:
        """The report in numbers, 0 for what it does not say."""
        return Engine(
            name=self.worker.name,
            role=self.worker.role,
            rank=self.rank,
            block_size=int(_number(self.block_size())),
            # vLLM sums the blocks over the ranks of a process (v1/engine/core_client.py), and nothing else
            kv_blocks=int(_number(self.cache.get("num_gpu_blocks", ""))) // self.ranks,
            kv_tokens=int(_number(self.cache.get("kv_cache_size_tokens", ""))),
            max_concurrency=_number(self.cache.get("kv_cache_max_concurrency", "")),
        )

    def computed(self) -> float:
        """Prompt tokens that it computed itself."""
        return total(self.samples, "vllm:prompt_tokens_by_source_total", source="local_compute")

    def received(self) -> float:
        """Prompt tokens that came by KV transfer."""
        return total(self.samples, "vllm:prompt_tokens_by_source_total", source="external_kv_transfer")

    def failed_transfers(self) -> float:
        """KV transfers that failed."""
        return self.sum_of("vllm:nixl_num_failed_transfers_total")

    def sum_of(self, name: str) -> float:
        """A counter over all its label sets; 0 where the engine has none of that name."""
        return total(self.samples, name)

    def kv_usage(self) -> float | None:
        """Share of the KV cache that is taken; None when it does not say."""
        return next((one.value for one in self.samples if one.name == "vllm:kv_cache_usage_perc"), None)


def rank_pages(worker: Worker) -> list[RankPage]:
    """One page per DP rank that the worker reports; raises requests.RequestException when it does not answer."""
    samples = read_page(f"{worker.url}/metrics")
    configs = [one.labels for one in samples if one.name == CACHE_CONFIG]
    return [
        RankPage(worker, rank, labels, len(configs), tuple(_of_rank(samples, rank)))
        for labels in configs
        for rank in [labels.get("engine", "0")]
    ]


def _of_rank(samples: list[Sample], rank: str) -> list[Sample]:
    return [one for one in samples if one.labels.get("engine", "0") == rank]


def _number(text: str) -> float:
    return float(text) if text.replace(".", "", 1).isdigit() else 0.0

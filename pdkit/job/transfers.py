"""What generating ranks count of prompts, KV transfers and drafts: readiness proves it for its own requests only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from pdkit.job.deployment import Deployment
from pdkit.job.engine_report import RankPage, rank_pages

MOST_RECOMPUTED = 0.1
"""Share of prompt tokens that decode may compute itself; a hybrid recomputes the last token of each prompt."""
MEGABYTE = 1e6

Look = dict[str, "Counters"]
"""The counters of every generating rank, by its name."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What one rank has counted since its start."""

    computed: float = 0.0
    received: float = 0.0
    failed: float = 0.0
    kv_bytes: float = 0.0
    kv_seconds: float = 0.0
    """Sum over its transfers, those under way at the same time counted each."""
    drafted: float = 0.0
    accepted: float = 0.0

    def since(self, before: Counters) -> Counters:
        """What was added between two looks."""
        return Counters(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    @property
    def prompts(self) -> float:
        """Prompt tokens that it computed or received."""
        return self.computed + self.received

    @property
    def kv_mb_s(self) -> float | None:
        """Mean MB/s of a transfer; None when there was none."""
        return self.kv_bytes / self.kv_seconds / MEGABYTE if self.kv_seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Fault:
    """Why what was counted is not as it should be."""

    code: str
    words: str


def read_look(deployment: Deployment) -> Look:
    """The counters of all generating ranks now; raises requests.RequestException when one does not answer."""
    return {page.name: _counters(page) for worker in deployment.generating() for page in rank_pages(worker)}


def _counters(page: RankPage) -> Counters:
    return Counters(
        computed=page.computed(),
        received=page.received(),
        failed=page.failed_transfers(),
        kv_bytes=page.sum_of("vllm:nixl_bytes_transferred_sum"),
        kv_seconds=page.sum_of("vllm:nixl_xfer_time_seconds_sum"),
        drafted=page.sum_of("vllm:spec_decode_num_draft_tokens_total"),
        accepted=page.sum_of("vllm:spec_decode_num_accepted_tokens_total"),
    )


def since(now: Look, before: Look) -> Look:
    """What every rank has added between two looks."""
    return {name: counters.since(before.get(name, Counters())) for name, counters in now.items()}


def together(looks: Iterable[Counters]) -> Counters:
    """The sum over ranks."""
    rows = [astuple(one) for one in looks]
    return Counters(*map(sum, zip(*rows, strict=True))) if rows else Counters()


def transfer_fault(look: Look, least_mb_s: float) -> Fault | None:
    """Why these prompts were not served as a pair should serve them."""
    total = together(look.values())
    if total.failed > 0:
        return Fault("PD206", f"{total.failed:.0f} KV transfers failed")
    if total.prompts and total.computed > MOST_RECOMPUTED * total.prompts:
        words = f"decode computed {total.computed:.0f} of {total.prompts:.0f} prompt tokens itself"
        return Fault("PD207", f"{words}, their KV never came")
    rates = {name: rate for name, one in look.items() if (rate := one.kv_mb_s) is not None}
    slowest = min(rates, key=rates.__getitem__, default="")
    if slowest and rates[slowest] < least_mb_s:
        return Fault(
            "PD208", f"{slowest} received KV at {rates[slowest]:.1f} MB/s, at least {least_mb_s:g} are asked for"
        )
    return None


def acceptance_fault(look: Look, least: float, mtp: int) -> Fault | None:
    """Why MTP cannot be what it was while these prompts were answered."""
    total = together(look.values())
    if not (mtp and least and total.prompts):
        return None
    if total.drafted == 0:
        return Fault("PD209", f"MTP {mtp} is on, and no engine has drafted a token")
    share = total.accepted / total.drafted
    words = f"{share:.1%} of {total.drafted:.0f} drafted tokens were accepted, at least {least:.0%} are asked for"
    return Fault("PD209", words) if share < least else None

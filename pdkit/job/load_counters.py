"""MTP acceptance from the engines' own counters: behind a router the load tool cannot see them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import requests

from pdkit.job.prometheus import parse_page, total
from pdkit.results.normalise import acceptance
from pdkit.results.points import Acceptance

NAMES = {
    "vllm:spec_decode_num_drafts_total": "drafts",
    "vllm:spec_decode_num_draft_tokens_total": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted_tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCounters:
    """What the engines have drafted and accepted since they started."""

    drafts: int
    draft_tokens: int
    accepted_tokens: int


def parse_counters(pages: Iterable[str]) -> DraftCounters:
    """Sum the counters of several Prometheus pages over all their label sets."""
    samples = [sample for page in pages for sample in parse_page(page)]
    return DraftCounters(**{key: int(total(samples, name)) for name, key in NAMES.items()})


def read_counters(urls: Iterable[str], timeout_seconds: float = 5.0) -> DraftCounters | None:
    """The counters of all engines together, or None when an engine's page cannot be read."""
    pages = []
    for url in urls:
        try:
            response = requests.get(url, timeout=timeout_seconds)
        except requests.RequestException:
            return None
        if response.status_code != requests.codes.ok:
            return None
        pages.append(response.text)
    return parse_counters(pages)


def acceptance_between(before: DraftCounters | None, after: DraftCounters | None) -> Acceptance | None:
    """Acceptance of what was drafted between two readings, or None when it could not be read."""
    if before is None or after is None:
        return None
    return acceptance(
        drafts=after.drafts - before.drafts,
        draft_tokens=after.draft_tokens - before.draft_tokens,
        accepted_tokens=after.accepted_tokens - before.accepted_tokens,
        source="engine counters",
    )

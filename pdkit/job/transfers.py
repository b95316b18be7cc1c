"""Whether prompts go on reaching decode by KV transfer: readiness proves it for its own requests only."""

from __future__ import annotations

from dataclasses import dataclass

from pdkit.job.deployment import Deployment
from pdkit.job.engine_report import rank_pages

MOST_RECOMPUTED = 0.1
"""Share of prompt tokens that decode may compute itself; a hybrid recomputes the last token of each prompt."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Prompt tokens of all decode ranks since their start, and transfers that failed."""

    computed: float = 0.0
    received: float = 0.0
    failed: float = 0.0

    def since(self, before: Transfers) -> Transfers:
        """What was added between two looks."""
        return Transfers(self.computed - before.computed, self.received - before.received, self.failed - before.failed)

    def fault(self) -> str:
        """Why these prompts were not served as a pair should, or nothing."""
        if self.failed > 0:
            return f"{self.failed:.0f} KV transfers failed"
        prompts = self.computed + self.received
        if prompts and self.computed > MOST_RECOMPUTED * prompts:
            return f"decode computed {self.computed:.0f} of {prompts:.0f} prompt tokens itself, their KV never came"
        return ""


def read_transfers(deployment: Deployment) -> Transfers:
    """The counters of all decode ranks now; raises requests.RequestException when one does not answer."""
    pages = [page for worker in deployment.workers if worker.role == "decode" for page in rank_pages(worker)]
    return Transfers(
        computed=sum(page.computed() for page in pages),
        received=sum(page.received() for page in pages),
        failed=sum(page.failed_transfers() for page in pages),
    )

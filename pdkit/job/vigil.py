"""What is looked at between the stages: KV that moves and comes back, drafts that are right, engines that stay."""

from __future__ import annotations

import time

from pdkit.errors import EngineError
from pdkit.job.codes import BY_CODE
from pdkit.job.deployment import Deployment
from pdkit.job.engine_report import rank_pages
from pdkit.job.events import emit
from pdkit.job.transfers import Fault, Look, acceptance_fault, read_look, since, together, transfer_fault

DRAIN_SECONDS = 15.0
"""How long a rank that generates may keep blocks after its last answer; it frees them in the same step."""
POLL_SECONDS = 0.2
TOLERATED_USAGE = 0.001
"""Share of the KV cache that may stay taken: less than one block of the smallest cache."""


class Vigil:
    """Watches the counters of one deployment from readiness to the end."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.gate = deployment.recipe.gate
        self.proved: Look = {}
        self.last: Look = {}
        self.idle: dict[str, float | None] = {}

    def begin(self) -> None:
        """Remember what was counted, and how much KV is taken, when the deployment was proved ready."""
        self.proved = self.last = read_look(self.deployment)
        self.idle = self._usage()

    def kv_kept_moving(self) -> None:
        """Right answers do not show it: a decode that recomputes every prompt is right, and slow."""
        now = read_look(self.deployment)
        added, self.last = since(now, self.last), now
        if self.deployment.pair() and (fault := transfer_fault(added, self.gate.min_kv_mb_s)):
            _end(Fault(fault.code, f"{fault.words} since the last look"))

    def gate_is_over(self) -> None:
        """Judge the drafts of real text, see KV given back, and tell what was counted."""
        added = since(read_look(self.deployment), self.proved)
        total = together(added.values())
        emit(
            self.deployment.folder,
            "counted",
            prompt_tokens=total.prompts,
            recomputed=total.computed / total.prompts if total.prompts and self.deployment.pair() else None,
            kv_mb_s={name: one.kv_mb_s for name, one in added.items()},
            drafted=total.drafted,
            accepted=total.accepted,
        )
        generating = self.deployment.plan["roles"][self.deployment.generating()[0].role]
        if fault := acceptance_fault(added, self.gate.min_acceptance, generating["mtp"]):
            _end(fault)
        self.drained()

    def drained(self) -> None:
        """Wait until every generating rank has as much KV taken as before the first question."""
        deadline = time.monotonic() + DRAIN_SECONDS
        while kept := self._kept():
            if time.monotonic() > deadline:
                words = ", ".join(f"{name} {share:.1%}" for name, share in kept.items())
                _end(Fault("PD210", f"KV is still taken {DRAIN_SECONDS:.0f} s after the last answer: {words}"))
            time.sleep(POLL_SECONDS)
        if silent := [name for name, share in self.idle.items() if share is None]:
            emit(self.deployment.folder, "undecided", code="PD210", why=f"no KV usage from {', '.join(silent)}")

    def _kept(self) -> dict[str, float]:
        """KV taken beyond what was taken when idle, by rank; a rank that does not report it cannot be judged."""
        pairs = ((name, share, self.idle.get(name)) for name, share in self._usage().items())
        beyond = {name: now - idle for name, now, idle in pairs if now is not None and idle is not None}
        return {name: share for name, share in beyond.items() if share > TOLERATED_USAGE}

    def _usage(self) -> dict[str, float | None]:
        """Prefill is left out: vLLM before 0.31 told of blocks that it held for decode until its next step."""
        return {page.name: page.kv_usage() for one in self.deployment.generating() for page in rank_pages(one)}


def _end(fault: Fault) -> None:
    raise EngineError(fault.words, code=fault.code, fix=BY_CODE[fault.code].fix)

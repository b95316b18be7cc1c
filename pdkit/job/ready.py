"""Ready is a proof, not a port that answers: every engine registered, reports what the plan says, and KV really moves.

Each check has a name, what was expected and what was seen; `ready.json` keeps them all. The first one that cannot hold
any more ends the run with the engine's name and the end of its log.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import requests

from pdkit.errors import NotReadyError
from pdkit.files import write_json
from pdkit.job.codes import OF_CHECK
from pdkit.job.deployment import Deployment, Worker
from pdkit.job.engine_report import Engine, RankPage, rank_pages
from pdkit.job.logwatch import LogWatch, last_lines
from pdkit.job.router import LOST_FIX, REGISTRATION, boot_ids, missing_parts, refusal, unregistered
from pdkit.job.texts import EQUAL, compare_texts

READY = "ready.json"
POLL_SECONDS = 0.5
PROBES_PER_RANK = 4
"""Requests sent for each rank of the larger role until every rank has done its part."""
PROBE_WORDS = 48
"""Words of the probe: more tokens than one block of the smallest block size."""
PROBE_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was proved, or not."""

    name: str
    ok: bool
    expected: str
    seen: str
    engine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What was proved, and of which processes."""

    boot_ids: tuple[str, ...]
    engines: tuple[Engine, ...]
    checks: tuple[Check, ...]
    seconds: float
    message: str


@dataclass(slots=True)
class Prover:
    """Runs the checks of one deployment."""

    deployment: Deployment
    on_progress: Callable[[str], None]
    checks: list[Check] = field(default_factory=list)
    engines: list[Engine] = field(default_factory=list)

    def prove(self) -> Ready:
        """All checks in order; writes `ready.json` either way.

        Raises NotReadyError at the first check that fails, with the engine, what was expected and seen, and the last
        20 lines of its log.
        """
        started = time.monotonic()
        watch = LogWatch([self.deployment.log(name) for name in self.deployment.steps])
        try:
            self._registered(started, watch)
            self._engines_report_the_plan()
            if self.deployment.pair():
                self._kv_moves()
                self._texts_agree()
            self._logs_are_clean(watch)
        except NotReadyError as error:
            self._write(started, error.message)
            raise
        return self._write(started, "")

    def _write(self, started: float, message: str) -> Ready:
        ready = Ready(
            boot_ids=() if message else boot_ids(self.deployment),
            engines=tuple(self.engines),
            checks=tuple(self.checks),
            seconds=round(time.monotonic() - started, 1),
            message=message,
        )
        data = {**asdict(ready), "checks": [{**asdict(one), "code": OF_CHECK[one.name]} for one in self.checks]}
        write_json(self.deployment.folder / READY, {"schema": 1, "ready": not message, **data})
        return ready

    def _hold(self, check: Check, fix: str) -> None:
        """Record a check; end the run when it does not hold."""
        self.checks.append(check)
        if check.ok:
            return
        engine = f"{check.engine}: " if check.engine else ""
        message = f"{engine}{check.name}: expected {check.expected}, seen {check.seen}"
        if check.engine:
            lines = "\n".join(f"  | {line}" for line in last_lines(self.deployment.log(check.engine)))
            message += f"\n  last lines of logs/{check.engine}.log:\n{lines}"
        raise NotReadyError(message, fix=fix, code=OF_CHECK[check.name])

    def _registered(self, started: float, watch: LogWatch) -> None:
        """Wait until the frontend lists the model and every engine has registered, at most the recipe's time."""
        limit = self.deployment.recipe.infra.ready_timeout_seconds
        expected = f"all engines within {limit} s"
        while missing := missing_parts(self.deployment):
            self.on_progress("waiting for " + ", ".join(missing))
            self._logs_are_clean(watch)
            if time.monotonic() - started > limit:
                names = (one.removeprefix(REGISTRATION) for one in missing)
                engine = next((name for name in names if self.deployment.log(name).is_file()), "")
                self._hold(
                    Check("registered", False, expected, f"missing {', '.join(missing)}", engine),
                    "see its log; raise infra.ready_timeout_seconds when it is still loading",
                )
            time.sleep(POLL_SECONDS)
        names = (worker.name for worker in self.deployment.workers)
        self._hold(Check("registered", True, expected, ", ".join(names)), "")

    def _pages(self, worker: Worker) -> list[RankPage]:
        """What every rank of a worker reports now."""
        try:
            return rank_pages(worker)
        except requests.RequestException as error:
            self._hold(Check("metrics", False, "a page of metrics", str(error), worker.name), "see its log")
            raise

    def _all_pages(self) -> list[RankPage]:
        return [page for worker in self.deployment.workers for page in self._pages(worker)]

    def _engines_report_the_plan(self) -> None:
        """Block size and KV blocks of every DP rank, as the engine itself publishes them."""
        for worker in self.deployment.workers:
            self.on_progress(f"reading what {worker.name} reports")
            pages = self._pages(worker)
            self._hold(
                Check("ranks", len(pages) == len(worker.ranks), str(len(worker.ranks)), str(len(pages)), worker.name),
                "an engine with fewer ranks than planned did not start all of them",
            )
            for page in pages:
                self._rank_reports(worker, page)
        self._one_block_size()

    def _one_block_size(self) -> None:
        """A pair of engines that differ answers garbage or nothing, but where the plan knows better."""
        differ = self.deployment.plan["block_size"].get("may_differ", False)
        sizes = {engine.role: engine.block_size for engine in self.engines}
        seen = ", ".join(f"{role} {size}" for role, size in sizes.items())
        self._hold(
            Check("one block size on all roles", differ or len(set(sizes.values())) == 1, "equal sizes", seen),
            "set common.block_size to auto, which pins one size on both roles",
        )

    def _rank_reports(self, worker: Worker, page: RankPage) -> None:
        self.engines.append(page.engine())
        size, blocks = page.block_size(), self.engines[-1].kv_blocks
        self._hold(
            Check("block size", size == str(worker.block_size), str(worker.block_size), size, worker.name),
            "prefill and decode must use one block size: set common.block_size to auto",
        )
        if worker.kv_blocks is not None:
            enough = blocks >= worker.kv_blocks
            self._hold(
                Check("KV blocks per rank", enough, f"at least {worker.kv_blocks}", str(blocks), worker.name),
                "less memory was left than planned: lower max_num_seqs or free the GPU",
            )

    def _kv_moves(self) -> None:
        """Send requests until every prefill rank has computed and every decode rank received; no transfer may fail."""
        self.on_progress("proving that KV moves from prefill to decode")
        before = self._all_pages()
        ranks = max(sum(page.worker.role == role for page in before) for role in ("prefill", "decode"))
        after = before
        for number in range(PROBES_PER_RANK * ranks):
            self._probe(number)
            after = self._all_pages()
            if all(_part(old, new) > 0 for old, new in zip(before, after, strict=True)):
                break
        for old, new in zip(before, after, strict=True):
            prefill = new.worker.role == "prefill"
            name = "prompt tokens computed" if prefill else "prompt tokens by KV transfer"
            done, failed = _part(old, new), new.failed_transfers() - old.failed_transfers()
            self._hold(
                Check(name, done > 0, "more than 0", f"{done:.0f} ({new.name})", new.worker.name),
                "the router sends it no prompts"
                if prefill
                else "decode recomputes prompts: check its KV connector and the block sizes",
            )
            self._hold(
                Check("failed transfers", failed == 0, "0", f"{failed:.0f} ({new.name})", new.worker.name),
                "see the engine's log for NIXL errors",
            )

    def _probe(self, number: int) -> None:
        words = " ".join(f"w{number}x{index}" for index in range(PROBE_WORDS))
        body = {"model": self.deployment.model, "prompt": words, "max_tokens": 4, "temperature": 0}
        seen = refusal(self.deployment, body, PROBE_SECONDS)
        self._none_was_lost(failed=bool(seen))
        fix = "engines are healthy yet refuse requests: compare model, dtype, connector and block size of both roles"
        engine = self.deployment.generating()[0].name
        self._hold(Check("first request", not seen, "HTTP 200", seen or "HTTP 200", engine), fix)

    def _none_was_lost(self, *, failed: bool) -> None:
        """What failed for an engine that the router has lost says nothing about KV."""
        if failed and (lost := unregistered(self.deployment)):
            seen = f"the router has lost the {', the '.join(lost)}"
            self._hold(Check("still registered", False, "every engine", seen), LOST_FIX)

    def _texts_agree(self) -> None:
        """Where both roles compute alike, P/D text must equal that of decode computing the prompt itself."""
        roles = self.deployment.plan["roles"]
        block = self.deployment.plan["block_size"]["effective"]["decode"]
        same = roles["prefill"]["tp"] == roles["decode"]["tp"]
        # n x block + 1: the one length at which hybrids compute the last token by the same kernel on both paths
        tokens = min(2 * block + 1, roles["decode"]["max_model_len"] - 16)
        self.on_progress("comparing the P/D answer with decode's own")
        outcome, engine = compare_texts(self.deployment, tokens), self.deployment.generating()[0].name
        self._none_was_lost(failed=outcome != EQUAL)
        if not same:
            seen = f"{outcome} (TP differs, so sums are rounded differently: not judged)"
            self._hold(Check("P/D text", True, "noted only", seen), "")
            return
        self._hold(
            Check("P/D text", outcome == EQUAL, "equal to decode's own text", outcome, engine),
            "the KV that arrives is not the KV that was sent: compare block sizes, dtypes and layouts",
        )

    def _logs_are_clean(self, watch: LogWatch) -> None:
        for hit in watch.look():
            engine = hit.log.removesuffix(".log")
            self._hold(Check("log", False, "no fatal line", str(hit), engine), "the run is void; fix the cause first")


def _part(before: RankPage, after: RankPage) -> float:
    """Prompt tokens of a rank's own part in the work between two looks: computing on prefill, receiving on decode."""
    if after.worker.role == "prefill":
        return after.computed() - before.computed()
    return after.received() - before.received()


def prove(deployment: Deployment, on_progress: Callable[[str], None]) -> Ready:
    """Prove that a deployment is ready; see Prover.prove."""
    return Prover(deployment, on_progress).prove()

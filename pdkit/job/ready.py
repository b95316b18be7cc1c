"""Ready is a proof, not a port that answers: every engine registered, reports what the plan says, and KV really moves.

Each check has a name, what was expected and what was seen; `ready.json` keeps them all. The first one that cannot hold
any more ends the run with the engine's name and the end of its log.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import requests

from pdkit.errors import NotReadyError
from pdkit.files import write_json
from pdkit.job.deployment import Deployment, Worker
from pdkit.job.logwatch import LogWatch, last_lines
from pdkit.job.prometheus import Sample, read_page, total

READY = "ready.json"
POLL_SECONDS = 0.5
PROBES_PER_RANK = 4
"""Requests sent for each decode rank until every rank has received KV."""
PROBE_WORDS = 48
"""Words of the probe: more tokens than one block of the smallest block size."""
EXACT_SECONDS = 180


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was proved, or not."""

    name: str
    ok: bool
    expected: str
    seen: str
    engine: str = ""


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
        write_json(self.deployment.folder / READY, {"schema": 1, "ready": not message, **asdict(ready)})
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
        raise NotReadyError(message, fix=fix)

    def _registered(self, started: float, watch: LogWatch) -> None:
        """Wait until the frontend lists the model and every engine has registered, at most the recipe's time."""
        limit = self.deployment.recipe.infra.ready_timeout_seconds
        while True:
            missing = missing_parts(self.deployment)
            if not missing:
                break
            self.on_progress("waiting for " + ", ".join(missing))
            self._logs_are_clean(watch)
            if time.monotonic() - started > limit:
                engine = next((one for one in missing if one in self.deployment.steps), "")
                self._hold(
                    Check(
                        "registered", False, f"all engines within {limit} s", f"missing {', '.join(missing)}", engine
                    ),
                    "see its log; raise infra.ready_timeout_seconds when it is still loading",
                )
            time.sleep(POLL_SECONDS)
        names = ", ".join(worker.name for worker in self.deployment.workers)
        self._hold(Check("registered", True, names, names), "")

    def _engines_report_the_plan(self) -> None:
        """Block size and KV blocks of every DP rank, as the engine itself publishes them."""
        for worker in self.deployment.workers:
            self.on_progress(f"reading what {worker.name} reports")
            ranks = cache_configs(read_page(f"{worker.url}/metrics"))
            self._hold(
                Check("ranks", len(ranks) == len(worker.ranks), str(len(worker.ranks)), str(len(ranks)), worker.name),
                "an engine with fewer ranks than planned did not start all of them",
            )
            for labels in ranks:
                self._rank_reports(worker, labels)
        self._one_block_size()

    def _one_block_size(self) -> None:
        """Whatever the plan says, a pair of engines that differ answers garbage or nothing."""
        sizes = {engine.role: engine.block_size for engine in self.engines}
        seen = ", ".join(f"{role} {size}" for role, size in sizes.items())
        self._hold(
            Check("one block size on all roles", len(set(sizes.values())) == 1, "equal sizes", seen),
            "set common.block_size to auto, which pins one size on both roles",
        )

    def _rank_reports(self, worker: Worker, labels: dict[str, str]) -> None:
        size = labels.get("effective_attention_block_size") or labels.get("block_size", "?")
        self.engines.append(_engine(worker, size, labels))
        self._hold(
            Check("block size", size == str(worker.block_size), str(worker.block_size), size, worker.name),
            "prefill and decode must use one block size: set common.block_size to auto",
        )
        blocks = self.engines[-1].kv_blocks
        if worker.kv_blocks is not None:
            enough = blocks >= worker.kv_blocks
            self._hold(
                Check("KV blocks", enough, f"at least {worker.kv_blocks}", str(blocks), worker.name),
                "less memory was left than planned: lower max_num_seqs or free the GPU",
            )

    def _kv_moves(self) -> None:
        """Send requests until every decode rank has received KV; none may fail."""
        self.on_progress("proving that KV moves from prefill to decode")
        before = self._decode_pages()
        ranks = sum(len(worker.ranks) for worker in self.deployment.generating())
        for number in range(PROBES_PER_RANK * ranks):
            self._probe(number)
            after = self._decode_pages()
            if all(external(after[key]) > external(before[key]) for key in before):
                break
        after = self._decode_pages()
        for worker in self.deployment.generating():
            for rank in self._ranks_of(worker):
                moved = external(after[worker.name, rank]) - external(before[worker.name, rank])
                failed = _failed(after[worker.name, rank]) - _failed(before[worker.name, rank])
                name = f"{worker.name} rank {rank}" if len(worker.ranks) > 1 else worker.name
                self._hold(
                    Check(
                        "prompt tokens by KV transfer", moved > 0, "more than 0", f"{moved:.0f} ({name})", worker.name
                    ),
                    "decode recomputes prompts: check its KV connector and the block sizes",
                )
                self._hold(
                    Check("failed transfers", failed == 0, "0", f"{failed:.0f} ({name})", worker.name),
                    "see the engine's log for NIXL errors",
                )

    def _probe(self, number: int) -> None:
        words = " ".join(f"w{number}x{index}" for index in range(PROBE_WORDS))
        body = {"model": self.deployment.model, "prompt": words, "max_tokens": 4, "temperature": 0}
        try:
            answer = requests.post(f"{self.deployment.url}/v1/completions", json=body, timeout=120)
            seen = f"HTTP {answer.status_code} {answer.text[:200]}" if answer.status_code != requests.codes.ok else ""
        except requests.RequestException as error:
            seen = str(error)
        engine = self.deployment.generating()[0].name
        self._hold(
            Check("first request", not seen, "HTTP 200", seen or "HTTP 200", engine),
            "engines are healthy and yet refuse requests: compare model, dtype, connector and block size of both roles",
        )

    def _ranks_of(self, worker: Worker) -> list[str]:
        return [labels.get("engine", "0") for labels in cache_configs(read_page(f"{worker.url}/metrics"))]

    def _decode_pages(self) -> dict[tuple[str, str], list[Sample]]:
        """The samples of every decode rank, by (worker, engine label)."""
        pages: dict[tuple[str, str], list[Sample]] = {}
        for worker in self.deployment.generating():
            samples = read_page(f"{worker.url}/metrics")
            for labels in cache_configs(samples):
                rank = labels.get("engine", "0")
                pages[worker.name, rank] = [one for one in samples if one.labels.get("engine", "0") == rank]
        return pages

    def _texts_agree(self) -> None:
        """Where both roles compute alike, P/D text must equal that of decode computing the prompt itself."""
        roles = self.deployment.plan["roles"]
        block = self.deployment.plan["block_size"]["effective"]["decode"]
        same = roles["prefill"]["tp"] == roles["decode"]["tp"]
        # n x block + 1: the one length at which hybrids compute the last token by the same kernel on both paths
        tokens = min(2 * block + 1, roles["decode"]["max_model_len"] - 16)
        self.on_progress("comparing the P/D answer with decode's own")
        outcome = compare_texts(self.deployment, tokens)
        if not same:
            seen = f"{outcome} (TP differs, so sums are rounded differently: not judged)"
            self._hold(Check("P/D text", True, "noted only", seen), "")
            return
        self._hold(
            Check("P/D text", outcome == "equal", "equal to decode's own text", outcome, "decode0"),
            "the KV that arrives is not the KV that was sent: compare block sizes, dtypes and layouts",
        )

    def _logs_are_clean(self, watch: LogWatch) -> None:
        for hit in watch.look():
            engine = hit.log.removesuffix(".log")
            self._hold(Check("log", False, "no fatal line", str(hit), engine), "the run is void; fix the cause first")


def _engine(worker: Worker, size: str, labels: dict[str, str]) -> Engine:
    def number(name: str) -> float:
        text = labels.get(name, "")
        return float(text) if text.replace(".", "", 1).isdigit() else 0.0

    return Engine(
        name=worker.name,
        role=worker.role,
        rank=labels.get("engine", "0"),
        block_size=int(size) if size.isdigit() else 0,
        kv_blocks=int(number("num_gpu_blocks")),
        kv_tokens=int(number("kv_cache_size_tokens")),
        max_concurrency=number("kv_cache_max_concurrency"),
    )


def external(samples: list[Sample]) -> float:
    """Prompt tokens that came by KV transfer."""
    return total(samples, "vllm:prompt_tokens_by_source_total", source="external_kv_transfer")


def _failed(samples: list[Sample]) -> float:
    return total(samples, "vllm:nixl_num_failed_transfers_total")


def cache_configs(samples: list[Sample]) -> list[dict[str, str]]:
    """The labels of `vllm:cache_config_info`, one set per DP rank of the worker."""
    return [one.labels for one in samples if one.name == "vllm:cache_config_info"]


def missing_parts(deployment: Deployment) -> list[str]:
    """Names of what is not there yet: the frontend, the model, engines by name."""
    missing = [worker.name for worker in deployment.workers if not _healthy(worker)]
    try:
        models = requests.get(f"{deployment.url}/v1/models", timeout=5).json().get("data", [])
    except (requests.RequestException, ValueError):
        return ["frontend0", *missing]
    if not any(model.get("id") == deployment.model for model in models):
        return [*missing, f"model {deployment.model}"]
    registered, expected = len(instances(deployment)), len(deployment.workers)
    return [*missing, *([f"{expected - registered} registrations"] if registered < expected else [])]


def _healthy(worker: Worker) -> bool:
    try:
        return bool(requests.get(f"{worker.url}/health", timeout=5).status_code == requests.codes.ok)
    except requests.RequestException:
        return False


def instances(deployment: Deployment) -> list[str]:
    """Ids of the engines that the router knows; file discovery loses live ones that stall, for good."""
    try:
        listed: list[dict[str, Any]] = requests.get(f"{deployment.url}/health", timeout=5).json().get("instances", [])
    except (requests.RequestException, ValueError):
        return []
    return sorted({str(one["instance_id"]) for one in listed if one.get("endpoint") == "generate"})


def boot_ids(deployment: Deployment) -> tuple[str, ...]:
    """Identities of the processes: what each wrote at its start, and what the router has registered."""
    files = (deployment.folder / "boot" / name for name in deployment.steps)
    started = [f"{file.name}={file.read_text(encoding='utf-8').strip()}" for file in files if file.is_file()]
    return (*started, *(f"instance={one}" for one in instances(deployment)))


def compare_texts(deployment: Deployment, tokens: int) -> str:
    """`equal`, or how the two texts differ, or why they could not be compared."""
    argv = [sys.executable, "-m", "pdkit.job.exact", "--url", deployment.url, "--model", deployment.model]
    argv += ["--model-path", deployment.plan["roles"]["decode"]["model_path"], "--tokens", str(tokens)]
    log = deployment.log("exact")
    try:
        with log.open("w", encoding="utf-8") as errors:
            done = subprocess.run(
                argv, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=EXACT_SECONDS, check=False
            )
    except subprocess.TimeoutExpired:
        return f"no answer within {EXACT_SECONDS} s"
    found = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not found:
        return f"the comparison ended with {done.returncode}: {' '.join(last_lines(log, 3))}"
    result = json.loads(found[-1])
    return "equal" if result["equal"] else f"P/D {result['pd_text']!r}, decode alone {result['own_text']!r}"


def prove(deployment: Deployment, on_progress: Callable[[str], None]) -> Ready:
    """Prove that a deployment is ready; see Prover.prove."""
    return Prover(deployment, on_progress).prove()

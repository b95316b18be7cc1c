"""What the report shows beside the figures: why a run may be believed, and how far the plan was right."""

from __future__ import annotations

from dataclasses import dataclass

from pdkit.results.runs import Configuration, RunRecord
from pdkit.results.stages import EngineReady, GateTwin


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a run has no points, or not all."""

    stage: str
    words: str
    partial: bool
    """True when the run has points that may be used all the same."""


def troubles(run: RunRecord) -> list[Trouble]:
    """What a reader must know of a run before looking at any figure."""
    found = []
    planned = run.plan.get("workload", {}).get("concurrency", [])
    missing = sorted(set(planned) - {point.concurrency for point in run.points})
    if run.gate and not run.gate.passed:
        found.append(("failed at the gate, so nothing was measured", run.gate.words))
    elif not run.started:
        found.append(("has not started", ""))
    elif not run.gate:
        found.append(("stopped before the gate, so nothing was measured", _ending(run)))
    elif missing:
        listed = ", ".join(str(value) for value in missing)
        found.append((f"was not measured at concurrency {listed}", _ending(run)))
    invalid = [point.concurrency for point in run.points if not point.valid]
    if invalid:
        listed = ", ".join(str(value) for value in invalid)
        found.append((f"has an invalid point at concurrency {listed}", "It is in no figure; the table says why."))
    return [Trouble(stage=stage, words=words, partial=bool(run.valid_points)) for stage, words in found]


def _ending(run: RunRecord) -> str:
    """The words of the run's result or, failing that, of its ready stage."""
    return (run.result.message if run.result else "") or (run.ready.message if run.ready else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSize:
    """The KV block size of one role, from what vLLM would take by itself to what runs."""

    role: str
    natural: int | None
    planned: int | None
    reported: tuple[int, ...]
    """The different sizes that the role's engines report; empty when they were not asked."""


def block_sizes(run: RunRecord) -> list[BlockSize]:
    """Block sizes by role."""
    natural = run.plan.get("block_size", {}).get("natural", {})
    return [
        BlockSize(
            role=name,
            natural=natural.get(name),
            planned=role.get("block_size"),
            reported=tuple(sorted({each.block_size for each in engines(run, name) if each.block_size})),
        )
        for name, role in run.roles().items()
    ]


def block_verdict(sizes: list[BlockSize]) -> tuple[bool | None, str]:
    """Whether the block sizes of the running engines are right (None: not known), and the words for it."""
    if not all(size.reported for size in sizes):
        return None, "not reported"
    if len({each for size in sizes for each in size.reported}) > 1:
        return False, "engines differ"
    if any(size.reported != (size.planned,) for size in sizes):
        return False, "not as planned"
    return True, "equal"


def engines(run: RunRecord, role: str) -> list[EngineReady]:
    """What the running engines of a role said about themselves when they were ready."""
    return [engine for engine in run.ready.engines if engine.role == role] if run.ready else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A planned figure beside the measured one."""

    planned: float | None
    measured: float | None

    @property
    def difference(self) -> float | None:
        """(measured - planned) / planned."""
        if self.planned is None or self.measured is None or self.planned == 0:
            return None
        return (self.measured - self.planned) / self.planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the engines of a role can hold, plan against measured; measured is the least of the engines."""

    role: str
    kv_cache_gib: Comparison
    """Per GPU."""
    max_concurrency: Comparison
    """Per rank."""
    source: str
    """Where the planned memory is from: `measured` before, `estimated` or `given`."""


def capacities(run: RunRecord) -> list[Capacity]:
    """KV cache and concurrency, plan against measured, by role."""
    rows = []
    for name, role in run.roles().items():
        memory, most = role.get("memory") or {}, role.get("max_concurrency") or {}
        said = engines(run, name)
        # One block holds one page of each layer of its group.
        block_gib = role["page_bytes"] * role["kv"]["group_layers"] / 2**30
        kv = [engine.kv_blocks * block_gib for engine in said if engine.kv_blocks]
        seats = [engine.max_concurrency for engine in said if engine.max_concurrency]
        rows.append(
            Capacity(
                role=name,
                kv_cache_gib=Comparison(planned=memory.get("kv_cache_gib"), measured=min(kv, default=None)),
                max_concurrency=Comparison(planned=most.get("per_rank"), measured=min(seats, default=None)),
                source=str(memory.get("source", "")),
            )
        )
    return rows


def twin_words(twin: GateTwin | None) -> str:
    """The paired test in one line."""
    if twin is None:
        return "no twin"
    return f"{100 * twin.twin_accuracy:.2f} %; {twin.lost} lost, {twin.gained} gained, p {twin.p_drop:.2g}"


def stands_on_another_gate(run: RunRecord) -> list[int]:
    """Concurrencies whose point was measured after an earlier gate of the same lock than the one in the folder."""
    now = run.gate.gate_digest if run.gate else None
    return [point.concurrency for point in run.points if point.gate_digest != now]


def notes(named: list[Configuration]) -> list[tuple[str, list[str]]]:
    """Each note of the points with where it holds; no place is named when it holds for every point.

    Notes that differ in the number that they begin with are one, which names the smallest and the largest.
    """
    holders: dict[str, dict[str, list[int]]] = {}
    numbers: dict[str, list[int]] = {}
    for each in named:
        for point in each.run.points:
            for note in dict.fromkeys(point.notes):
                words = note.lstrip("0123456789")
                numbers.setdefault(words, []).extend(map(int, [note[: -len(words)]] if words != note else []))
                holders.setdefault(words, {}).setdefault(each.label, []).append(point.concurrency)
    every = {each.label: [point.concurrency for point in each.run.points] for each in named if each.run.points}
    return [
        (
            " to ".join(map(str, sorted({min(values), max(values)}))) + words if (values := numbers[words]) else words,
            [] if where == every else [_place(label, found, every[label]) for label, found in where.items()],
        )
        for words, where in holders.items()
    ]


def _place(label: str, values: list[int], every: list[int]) -> str:
    return label if values == every else f"{label} at concurrency {', '.join(map(str, values))}"

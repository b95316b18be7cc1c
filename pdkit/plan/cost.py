"""What a run will take in GPU-hours, and what the same figures take with one job per point. Pure arithmetic.

The estimate is for deciding between recipes, not for accounting: each part says what it rests on.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from pdkit.paths import expand
from pdkit.plan.plan import Plan

GSM8K_QUESTIONS = 1319
ANSWER_SHARE = 0.25
"""Mean length of an answer as a share of `gate.max_tokens`, which at most 2 % of the answers may reach."""
POINT_SECONDS = 15.0
"""Start of the load tool and reading of its figures, per point (8 to 11 s seen with vllm bench on two cores)."""
_SLURM_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a deployment starts and answers, and where these figures are from."""

    startup_seconds: float
    """Everything but reading the weights."""
    weights_gib_s: float
    """Weights read per second and GPU."""
    startup_source: str
    tok_s_user: float
    """Generated tokens per second of one request in a small batch."""
    tok_s_gpu: float
    """Prompt and generated tokens per second and GPU in a large batch."""
    speed_source: str


PACES = {
    "cuda": Pace(
        startup_seconds=259.0,
        weights_gib_s=1.2,
        startup_source="estimated: 259 s to compile and warm up, then weights at 1.2 GiB/s per GPU (vllm#44881)",
        tok_s_user=180.0,
        tok_s_gpu=5000.0,
        speed_source="estimated: the best published ones of Qwen3.8-2.4T on GB300 (2026-09)",
    ),
    "cpu": Pace(
        startup_seconds=60.0,
        weights_gib_s=1.2,
        startup_source="measured: two engines of a tiny model on two cores",
        tok_s_user=100.0,
        tok_s_gpu=250.0,
        speed_source="measured: a tiny model on two cores",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Expected time and GPU-hours of one run."""

    gpus: int
    """GPUs that the job holds, idle ones included."""
    startup_minutes: float
    gate_minutes: float
    points_minutes: tuple[float, ...]
    """One per concurrency of the workload."""
    minutes: float
    """The whole job: one start-up, the gate, all points."""
    gpu_hours: float
    apart_gpu_hours: float
    """The same figures as they are usually published: one job per point, and one more for accuracy."""
    time_limit_minutes: float
    """What the recipe asks Slurm for."""
    startup_source: str
    speed_source: str

    @property
    def fits(self) -> bool:
        """Whether the job is expected to end before its time limit."""
        return self.minutes <= self.time_limit_minutes


def expected_cost(plan: Plan, startup_minutes: float | None = None) -> Cost:
    """The expected cost of a plan; `startup_minutes` replaces the estimate of the start-up."""
    pace = PACES[plan.hardware.device]
    startup = startup_minutes * 60 if startup_minutes is not None else _startup_seconds(plan, pace)
    gate = _gate_seconds(plan, pace)
    points = [_point_seconds(plan, pace, concurrency) for concurrency in plan.recipe.workload.concurrency]
    together = startup + gate + sum(points)
    apart = sum(startup + point for point in points) + startup + gate
    return Cost(
        gpus=plan.gpus_allocated,
        startup_minutes=_minutes(startup),
        gate_minutes=_minutes(gate),
        points_minutes=tuple(map(_minutes, points)),
        minutes=_minutes(together),
        gpu_hours=_gpu_hours(plan, together),
        apart_gpu_hours=_gpu_hours(plan, apart),
        time_limit_minutes=_minutes(slurm_seconds(plan.recipe.cluster.time_limit)),
        startup_source=pace.startup_source if startup_minutes is None else "given with --startup-minutes",
        speed_source=pace.speed_source,
    )


def _startup_seconds(plan: Plan, pace: Pace) -> float:
    """Engines start side by side, so the one with the most weights per GPU decides."""
    weights = [role.memory.weights_gib for role in plan.roles.values() if role.memory]
    return pace.startup_seconds + max(weights, default=0.0) / pace.weights_gib_s


def _gate_seconds(plan: Plan, pace: Pace) -> float:
    gate, questions = plan.recipe.gate, _questions(plan)
    concurrency = min(questions, gate.concurrency or max(plan.recipe.workload.concurrency))
    tokens, waves = gate.max_tokens * ANSWER_SHARE, math.ceil(questions / concurrency)
    return _seconds(plan, pace, waves=waves, generated=tokens, all_tokens=questions * tokens)


def _questions(plan: Plan) -> int:
    gate = plan.recipe.gate
    file = Path(expand(gate.data)) if gate.data else None
    known = len(file.read_bytes().splitlines()) if file and file.is_file() else GSM8K_QUESTIONS
    return max(1, min(known, gate.questions or known))


def _point_seconds(plan: Plan, pace: Pace, concurrency: int) -> float:
    load, sweep = plan.recipe.workload, plan.recipe.sweep
    waves = sweep.prompts_per_concurrency * sweep.repeats + sweep.warmup_per_concurrency * sweep.repeats
    all_tokens = waves * concurrency * load.request_tokens
    return POINT_SECONDS * sweep.repeats + _seconds(plan, pace, waves=waves, generated=load.osl, all_tokens=all_tokens)


def _seconds(plan: Plan, pace: Pace, *, waves: int, generated: float, all_tokens: float) -> float:
    """Small batches wait for one request after the other, large ones for the GPUs; the sum is near both ends."""
    gpus = max(1, plan.gpus)
    return waves * generated / pace.tok_s_user + all_tokens / (pace.tok_s_gpu * gpus)


def _minutes(seconds: float) -> float:
    return round(seconds / 60, 1)


def _gpu_hours(plan: Plan, seconds: float) -> float:
    return round(plan.gpus_allocated * seconds / 3600, 2)


def slurm_seconds(text: str) -> int:
    """Seconds of a time in Slurm's forms: minutes[:seconds], hours:minutes:seconds, days-hours[:minutes[:seconds]].

    Raises ValueError for any other text.
    """
    found = _SLURM_TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"`{text}` is not a time in Slurm's forms")
    days, *parts = (int(part) if part else 0 for part in found.groups())
    hours, minutes, seconds = parts if found[1] or found[4] else (0, parts[0], parts[1])
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds

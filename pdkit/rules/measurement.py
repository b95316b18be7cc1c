"""Rules about the sweep: whether its numbers will be what they are called."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.rules.given import given_args
from pdkit.rules.rule import Case, Hit, rule

LEAST_PROMPTS = 8
"""Requests per concurrency below which ramp and tail weigh in a point."""
FIXED_RATIO = {"vllm-bench": 0.0}
"""What `random-range-ratio` must be for fixed lengths, by tool. In sa-bench and InferenceX's script it would be 1."""
LARGEST_VOCABULARY = 262144
"""No model that pdkit knows has more tokens; a smaller vocabulary only repeats more."""
REPEATED_SHARE = 0.01
"""Prompts that may be repetitions before the rule speaks."""
GPU_FLAGS = ("prefill-context-parallel-size", "pcp")
"""Flags that multiply the GPUs of an endpoint. DCP shares those of TP, EP and DP attention those of TP x DP."""


@rule(
    "PD090",
    "A range ratio means fixed lengths in the tool that gets it",
    "`vllm bench serve` draws lengths from L(1-r) to L(1+r): 0 is fixed. InferenceX's script and sa-bench draw from "
    "rL to L: there 1 is fixed. 1 given to the former made 94,082 prompt tokens of 102,400 (Hyperloom#428), and "
    "lengths above the nominal one were refused (llm-scaler#255).",
)
def range_ratio_is_the_tools(case: Case) -> Iterator[Hit]:
    """sweep.random_range_ratio against what the tool takes for fixed lengths."""
    sweep = case.plan.recipe.sweep
    ratio = sweep.random_range_ratio
    if ratio is None:
        return
    fixed = FIXED_RATIO.get(sweep.tool)
    if fixed is None:
        yield Hit(
            message=f"`{sweep.tool}` has no range ratio: its lengths are fixed by a standard deviation of 0",
            path=("sweep", "random_range_ratio"),
            fix="remove it",
            key=True,
        )
    elif ratio != fixed:
        load = case.plan.recipe.workload
        low, high = max(1, int(load.isl * (1 - ratio))), int(load.isl * (1 + ratio))
        yield Hit(
            message=f"a range ratio of {ratio:g} makes `{sweep.tool}` draw prompts of {low} to {high} tokens, "
            f"not of {load.isl}",
            path=("sweep", "random_range_ratio"),
            fix=f"leave it out: pdkit measures fixed lengths, which is {fixed:g} in this tool",
        )


@rule(
    "PD091",
    "A point has eight requests per seat at least",
    "With few requests a point is mostly ramp and tail; a debug value of 10 prompts has been left in a published "
    "recipe (InferenceX#258).",
)
def enough_prompts(case: Case) -> Iterator[Hit]:
    """sweep.prompts_per_concurrency; fewer warm-ups than one full wave cannot be written at all."""
    many = case.plan.recipe.sweep.prompts_per_concurrency
    if many < LEAST_PROMPTS:
        yield Hit(
            message=f"{many} requests per concurrency: ramp and tail weigh in the throughput",
            path=("sweep", "prompts_per_concurrency"),
            fix=f"{LEAST_PROMPTS} or more, which is the default",
            severity="warning",
        )


@rule(
    "PD092",
    "Inter-token latency is not claimed over joined tokens",
    "A stream-interval above 1 sends the first token at once and then tokens in bunches: throughput rises, and ITL "
    "is the gap between bunches (vLLM's article on Qwen3.5 at 25k tok/s, 2026-08-06).",
)
def tokens_are_streamed(case: Case) -> Iterator[Hit]:
    """`stream-interval` among the free args of the generating role."""
    role = case.generating
    for one in given_args(role):
        if one.name == "stream-interval" and isinstance(one.value, int) and one.value > 1:
            yield Hit(
                message=f"{role.role}: tokens are sent {one.value} at a time, so ITL of its points is the gap between "
                "bunches",
                path=case.where(role.role, "args", one.key),
                fix="remove it, or accept this with a reason and publish throughput only",
                severity="warning",
            )


@rule(
    "PD093",
    "Prompts do not repeat where prefixes are cached",
    "A prompt that was seen before costs no prefill: more requests gave a better TTFT (aiperf#449, dynamo#5287). "
    "Random prompts of `vllm bench serve` are counted up from a random first token, so two that begin alike are the "
    "same.",
)
def prompts_are_unique(case: Case) -> Iterator[Hit]:
    """Expected share of repeated prompts in the largest point; aiperf is given as many prompts as requests."""
    recipe = case.plan.recipe
    cached = [role for role in case.plan.roles.values() if role.settings.prefix_caching]
    requests = recipe.sweep.prompts_per_concurrency * max(recipe.workload.concurrency)
    repeated = requests / (2 * LARGEST_VOCABULARY)
    if cached and recipe.sweep.tool == "vllm-bench" and repeated > REPEATED_SHARE:
        yield Hit(
            message=f"{cached[0].role}: of {requests} random prompts {repeated:.1%} at least will repeat an earlier "
            "one, and the prefix cache answers them",
            path=case.where(cached[0].role, "prefix_caching"),
            fix="switch prefix caching off for this load, or set sweep.tool to aiperf",
            severity="warning",
        )


@rule(
    "PD094",
    "MTP is judged on real text",
    "The load is random tokens, on which acceptance means nothing (vllm#55605, vllm#33497), so the gate's own "
    "answers are where MTP must prove itself: after a transfer it has been low without any error (vllm#55055).",
)
def acceptance_is_judged(case: Case) -> Iterator[Hit]:
    """gate.min_acceptance, where the generating role speculates."""
    role, gate = case.generating, case.plan.recipe.gate
    if role.mtp and gate.min_acceptance == 0:
        yield Hit(
            message=f"{role.role}: MTP {role.mtp} runs, and gate.min_acceptance 0 lets it guess wrong every time",
            path=("gate", "min_acceptance"),
            fix="leave gate.min_acceptance out",
            severity="warning",
        )


@rule(
    "PD095",
    "GPUs are counted once and all of them",
    "Figures per GPU were off by 2 and by 8 where EP was counted as GPUs or context parallelism was not "
    "(InferenceX-app#1191, aiconfigurator#1476). An endpoint has TP x PP x DP GPUs, as its topology says.",
)
def gpus_are_counted(case: Case) -> Iterator[Hit]:
    """Free args that multiply the GPUs of an endpoint behind the topology's back."""
    for role in case.plan.roles.values():
        for one in given_args(role):
            if one.name in GPU_FLAGS and one.value not in (1, "1"):
                yield Hit(
                    message=f"{role.role}: `{one.key}: {one.value}` needs {one.value} times the {role.topology.gpus} "
                    "GPUs that the topology counts and places",
                    path=case.where(role.role, "args", one.key),
                    fix="remove it: the plan cannot place prefill context parallelism yet",
                )

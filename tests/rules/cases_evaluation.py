"""Cases of the rules about the accuracy gate, the sweep and `ignore:`."""

from __future__ import annotations

from .sides import AGG, DENSE, Sides

ACCEPTED = "reason: the queue is what we measure"
CASES = [
    Sides("PD085", ("gate.max_tokens=1023",), ("gate.max_tokens=2048",), "always thinks; answers end at 1023"),
    Sides("PD085", ("gate.max_tokens=2047",), ("gate.max_tokens=2048",), "end at 2047 tokens", severity="warning"),
    Sides("PD085", (*DENSE, "gate.max_tokens=1023"), DENSE, "`qwen3-32b` may think", severity="warning"),
    Sides("PD086", ("gate.protocol=completions-5shot",), (), "`completions-5shot` asks without its chat template"),
    Sides(
        "PD086",
        ("gate.protocol=completions-5shot",),
        (*DENSE, "gate.protocol=completions-5shot"),
        "always thinks",
    ),
    Sides("PD087", ("gate.floor=0.0",), ("gate.floor=0.0", "gate.twin=twin.jsonl"), "any answers pass"),
    Sides("PD087", ("gate.floor=0.49",), ("gate.floor=0.5",), "broken KV may pass", severity="warning"),
    Sides(
        "PD087",
        ("gate.max_truncated_share=0.1",),
        ("gate.max_truncated_share=0.09",),
        "has not heard 10% of the answers",
        severity="warning",
    ),
    Sides("PD088", ("gate.questions=199",), ("gate.questions=200",), "error of 1.5 points", severity="warning"),
    Sides("PD089", ("gate.concurrency=15",), ("gate.concurrency=16",), "15 questions at once", severity="warning"),
    Sides("PD090", ("sweep.random_range_ratio=1.0",), ("sweep.random_range_ratio=0.0",), "of 1 to 16384 tokens"),
    Sides("PD090", ("sweep.random_range_ratio=0.8",), (), "prompts of 1638 to 14745 tokens"),
    Sides("PD090", ("sweep.tool=aiperf", "sweep.random_range_ratio=0.0"), ("sweep.tool=aiperf",), "has no range ratio"),
    Sides(
        "PD091",
        ("sweep.prompts_per_concurrency=7",),
        ("sweep.prompts_per_concurrency=8",),
        "7 requests per concurrency",
        severity="warning",
    ),
    Sides(
        "PD092",
        ("decode.args.stream-interval=100",),
        ("decode.args.stream-interval=1", "prefill.args.stream-interval=100"),
        "sent 100 at a time",
        severity="warning",
    ),
    Sides(
        "PD093",
        ("prefill.prefix_caching=true", "sweep.prompts_per_concurrency=400"),
        ("prefill.prefix_caching=true", "sweep.prompts_per_concurrency=300"),
        "of 6400 random prompts 1.2% at least",
        severity="warning",
        also=("PD029", "PD041"),
    ),
    Sides(
        "PD093",
        ("prefill.prefix_caching=true", "sweep.prompts_per_concurrency=400"),
        ("prefill.prefix_caching=true", "sweep.prompts_per_concurrency=400", "sweep.tool=aiperf"),
        "repeat an earlier one",
        severity="warning",
        also=("PD029", "PD041"),
    ),
    Sides("PD094", ("gate.min_acceptance=0.0",), ("gate.min_acceptance=0.1",), "MTP 3 runs", severity="warning"),
    Sides(
        "PD094",
        ("gate.min_acceptance=0.0",),
        ("gate.min_acceptance=0.0", "common.mtp=0", "decode.mtp=0"),
        "guess wrong every time",
        severity="warning",
    ),
    Sides(
        "PD095",
        ("agg.args.prefill-context-parallel-size=2",),
        ("agg.args.prefill-context-parallel-size=1", "agg.args.decode-context-parallel-size=2"),
        "needs 2 times the 8 GPUs",
        recipe=AGG,
    ),
    Sides(
        "PD099",
        (f"ignore=[{{code: PD000, {ACCEPTED}}}]",),
        ("decode.max_num_seqs=12", f"ignore=[{{code: PD006, {ACCEPTED}}}]"),
        "no rule has the code PD000",
    ),
    Sides(
        "PD099",
        (f"ignore=[{{code: PD001, {ACCEPTED}}}]", "common.block_size=natural"),
        (),
        "PD001 cannot be accepted",
        also=("PD001",),
    ),
    Sides("PD099", (f"ignore=[{{code: PD202, {ACCEPTED}}}]",), (), "is a gate of a run"),
    Sides(
        "PD099",
        ("decode.max_num_seqs=12", "ignore=[%s, %s]" % ((f"{{code: PD006, {ACCEPTED}}}",) * 2)),
        ("decode.max_num_seqs=12", f"ignore=[{{code: PD006, {ACCEPTED}}}]"),
        "is accepted twice",
        also=("PD006",),
    ),
    Sides("PD099", (f"ignore=[{{code: PD105, {ACCEPTED}}}]",), (), "not a recipe, which cannot be accepted"),
    Sides("PD099", (f"ignore=[{{code: PD006, {ACCEPTED}}}]",), (), "is ignored and does not occur", severity="warning"),
]

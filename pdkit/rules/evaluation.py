"""Rules about the accuracy gate: whether its score can mean anything, and whether it can fail at all."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.rules.rule import Case, Hit, rule

LEAST_THINKING_TOKENS = 1024
"""Below it thinking about a GSM8K question is cut off often: 256 tokens left 5.8 % without an answer (vllm#49881)."""
GOOD_THINKING_TOKENS = 2048
"""Below it a model that cannot stop thinking is told of it; the protocol's own limit is 16384."""
FEW_QUESTIONS = 200
"""With fewer the standard error of a score of 95 % is above 1.5 points: enough for a smoke test only."""
LOOSE_SHARE = 0.1
"""Limits of truncated or empty answers above it hide what they are there for."""
LOW_FLOOR = 0.5
"""Corrupt KV has been seen to leave up to 0.3 of the answers right (vllm#48253, vllm#42895)."""


@rule(
    "PD085",
    "A model that thinks has room to think",
    "A token limit that ends the thinking is scored as a wrong answer: 0.847 with 5.8 % invalid answers against "
    "0.877 at 256 tokens (vllm#49881), 11 of 25 answers empty (eliza#10670). The gate then fails after the rack has "
    "loaded.",
)
def thinking_has_room(case: Case) -> Iterator[Hit]:
    """gate.max_tokens against what thinking about GSM8K takes; questions of one's own cannot be judged."""
    gate, thinking = case.plan.recipe.gate, case.plan.model.thinking
    if gate.data is not None or gate.protocol != "chat-cot" or thinking not in ("always", "switchable"):
        return
    limit = GOOD_THINKING_TOKENS if thinking == "always" else LEAST_THINKING_TOKENS
    if gate.max_tokens < limit:
        sure = thinking == "always" and gate.max_tokens < LEAST_THINKING_TOKENS
        words = "always thinks" if thinking == "always" else "may think"
        yield Hit(
            message=f"`{case.plan.model.name}` {words}; answers end at {gate.max_tokens} tokens, before many are given",
            path=("gate", "max_tokens"),
            fix=f"raise gate.max_tokens to {limit} or more",
            severity="error" if sure else "warning",
        )


@rule(
    "PD086",
    "A model that always thinks is asked by chat",
    "Without its chat template such a model continues the text instead of answering: 0.30 by completions against "
    "0.90 by chat with the same weights (vllm#48253), 90.5 against 95.5 (TensorRT-LLM#16711).",
)
def thinking_is_asked_by_chat(case: Case) -> Iterator[Hit]:
    """The protocol against what the facts say of thinking; of a `config.json` they say nothing."""
    gate = case.plan.recipe.gate
    if gate.protocol == "completions-5shot" and case.plan.model.thinking == "always":
        yield Hit(
            message=f"`{case.plan.model.name}` always thinks, and `{gate.protocol}` asks without its chat template",
            path=("gate", "protocol"),
            fix="set gate.protocol to chat-cot",
        )


@rule(
    "PD087",
    "The accuracy gate can fail",
    "A gate without a floor passes garbage: P/D with HTTP 200 on every request scored 0.03 (vllm#42895), and a "
    "corrupted server even looked faster (llm-scaler#721).",
)
def gate_can_fail(case: Case) -> Iterator[Hit]:
    """The floor, unless a twin is there to compare with, and the limits of cut and empty answers."""
    gate = case.plan.recipe.gate
    if gate.twin is None and gate.floor < LOW_FLOOR:
        none = gate.floor == 0
        yield Hit(
            message="gate.floor is 0 and there is no twin: any answers pass"
            if none
            else f"gate.floor {gate.floor} is so low that answers from broken KV may pass",
            path=("gate", "floor"),
            fix="set it two standard errors below the aggregated deployment's score, or name gate.twin",
            severity="error" if none else "warning",
        )
    for name in ("max_truncated_share", "max_empty_share"):
        share = getattr(gate, name)
        if share >= LOOSE_SHARE:
            yield Hit(
                message=f"gate.{name} {share} lets a gate pass that has not heard {share:.0%} of the answers",
                path=("gate", name),
                fix="leave it out and raise gate.max_tokens instead",
                severity="warning",
            )


@rule(
    "PD088",
    "The gate asks enough questions",
    "A few questions cannot tell 0.86 from 0.96, which two topologies of the same model have shown (srt-slurm#106): "
    "with 50 the standard error alone is 3 points.",
)
def enough_questions(case: Case) -> Iterator[Hit]:
    """gate.questions of GSM8K; a data set of one's own may be as small as it is."""
    gate = case.plan.recipe.gate
    if gate.data is None and gate.questions is not None and gate.questions < FEW_QUESTIONS:
        error = (0.05 * 0.95 / gate.questions) ** 0.5
        yield Hit(
            message=f"{gate.questions} questions give a score of 95 % with a standard error of {100 * error:.1f} "
            "points",
            path=("gate", "questions"),
            fix="leave gate.questions out for all 1319, or ask 200 at least",
            severity="warning",
        )


@rule(
    "PD089",
    "The gate asks at the concurrency that is measured",
    "Some faults need a crowd: a state block freed too early corrupts answers under load only (vllm#37285, "
    "vllm#45096), 32 requests at once scored 0.005 where one by one scored 0.75 (sglang#31641).",
)
def gate_is_crowded(case: Case) -> Iterator[Hit]:
    """gate.concurrency against the largest concurrency of the workload, as far as there are questions."""
    recipe = case.plan.recipe
    gate, most = recipe.gate, max(recipe.workload.concurrency)
    enough = min(most, gate.questions or most)
    if gate.concurrency is not None and gate.concurrency < enough:
        yield Hit(
            message=f"the gate asks {gate.concurrency} questions at once, the workload has {most} requests in flight",
            path=("gate", "concurrency"),
            fix="leave gate.concurrency out: it is then the workload's largest",
            severity="warning",
        )

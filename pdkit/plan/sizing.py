"""Scheduler sizes of a role: the recipe's values, or the rules of the published GB300 sweep.

Source of the rules: "PD Serving of Qwen3.8-2.4T" (vLLM project, 2026-09), decode and prefill sizing.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdkit.plan.decision import Decision, decide
from pdkit.plan.graphs import capture_sizes, covering_capture, default_max_capture
from pdkit.recipe.schema import RoleSpec, WorkloadSpec

SPARE_SEQS = 16
"""Seats beyond the even share of the concurrency, since a router never balances perfectly."""
SPARE_TOKENS = 16
"""Tokens beyond a full verify batch, so that one more request can join a step."""
PREFILL_SEQS = 32
"""Prompts that one prefill rank holds at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """What a rank schedules and captures."""

    max_model_len: Decision[int]
    max_num_seqs: Decision[int]
    max_num_batched_tokens: Decision[int]
    max_cudagraph_capture_size: Decision[int]
    cudagraph_mode: Decision[str]

    def capture_sizes(self, mtp: int) -> list[int]:
        """The batch sizes, in tokens, for which vLLM captures graphs: none that is wider than a step."""
        widest = min(self.max_cudagraph_capture_size.value, self.max_num_batched_tokens.value)
        return capture_sizes(widest, mtp, self.cudagraph_mode.value)


def size_role(spec: RoleSpec, workload: WorkloadSpec, *, prefill: bool, mtp: int, capture_cap: int) -> Sizing:
    """Sizes of one role: for prompts when `prefill`, else for generation; `capture_cap` 0 means no CUDA graphs."""
    length = _max_model_len(spec, workload)
    graphs = capture_cap > 0 and not spec.enforce_eager
    ranks = spec.endpoints * spec.topology.dp
    share = -(-max(workload.concurrency) // ranks)
    shared = f"concurrency {max(workload.concurrency)} / {ranks} rank{'s' * (ranks > 1)}"
    if prefill:
        seqs = decide(spec.max_num_seqs, PREFILL_SEQS, "prompts held by one prefill rank")
        if spec.sized_for and share > PREFILL_SEQS:
            seqs = decide(spec.max_num_seqs, share, f"{shared}, more than the usual {PREFILL_SEQS}")
        tokens = decide(spec.max_num_batched_tokens, 2 * workload.isl, f"two prompts per step: 2 x ISL {workload.isl}")
        mode = "PIECEWISE"
        natural = default_max_capture(seqs.value, mtp, capture_cap, tokens.value) if graphs else 0
        capture = Decision(natural, "vllm", "vLLM's default: prompts seldom fit a graph")
        if spec.max_cudagraph_capture_size is not None:
            capture = decide(spec.max_cudagraph_capture_size, natural, "vLLM's default")
    else:
        seqs = decide(spec.max_num_seqs, share + SPARE_SEQS, f"{shared} + {SPARE_SEQS} spare")
        batch = seqs.value * (1 + mtp)
        text = f"the graph that holds max-num-seqs {seqs.value} x (1 + MTP {mtp}) = {batch}"
        capture = decide(spec.max_cudagraph_capture_size, covering_capture(batch, mtp) if graphs else 0, text)
        text = f"a full decode batch {batch} + {SPARE_TOKENS} spare"
        tokens = decide(spec.max_num_batched_tokens, batch + SPARE_TOKENS, text)
        mode = "FULL_DECODE_ONLY"
    why = "graphs for the batch shapes of this role" if graphs else "no CUDA graphs on this platform or by the recipe"
    return Sizing(
        max_model_len=length,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        max_cudagraph_capture_size=capture,
        cudagraph_mode=decide(spec.cudagraph_mode, mode if graphs else "NONE", why),
    )


def _max_model_len(spec: RoleSpec, workload: WorkloadSpec) -> Decision[int]:
    need = workload.request_tokens
    text = f"ISL {workload.isl} + OSL {workload.osl} + template {workload.template_tokens}, up to a multiple of 1024"
    return decide(spec.max_model_len, -(-need // 1024) * 1024, text)

"""Rules about CUDA graphs: which batches they cover, and the memory they take."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.rules.rule import Case, Hit, rule


@rule(
    "PD008",
    "CUDA graphs cover the widest decode batch",
    "A verify batch is max-num-seqs x (1 + MTP) tokens; without a graph of exactly that width the largest batches run "
    "eager (vllm#37865: 133 against 25 tok/s).",
)
def graphs_cover_batch(case: Case) -> Iterator[Hit]:
    """The capture list must contain the widest batch."""
    for role in case.plan.roles.values():
        sizes = role.sizing.capture_sizes(role.mtp)
        need = role.sizing.max_num_seqs.value * (1 + role.mtp)
        if not role.sizing.cudagraph_mode.value.startswith("FULL") or (sizes and need <= sizes[-1]):
            continue
        yield Hit(
            message=f"{role.role}: the widest batch is {need} tokens, the captured graphs end at "
            f"{sizes[-1] if sizes else 0} (max-cudagraph-capture-size {role.sizing.max_cudagraph_capture_size.value}, "
            f"max-num-batched-tokens {role.sizing.max_num_batched_tokens.value})",
            path=case.where(role.role, "max_cudagraph_capture_size"),
            fix=f"capture {need} tokens with max_num_seqs a multiple of 8 or 16, or lower max_num_seqs",
            severity="warning" if sizes and need - sizes[-1] < 16 else "error",
        )

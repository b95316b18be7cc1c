"""Cases of the rules about prefix caching on hybrid models."""

from __future__ import annotations

from .sides import DENSE, Sides

ON = ("prefill.prefix_caching=true", "decode.mtp=0")
OLD = (*ON, "engine.vllm=0.23.0", "common.args.async-scheduling=false")
SHARED = "workload.shared_prefix"
SHORT = (*ON, "workload.isl=512", "workload.osl=64", "workload.template_tokens=0", "gate.max_tokens=512")
CASES = [
    Sides(
        "PD040",
        (*SHORT, "common.max_model_len=1024", "prefill.max_num_batched_tokens=4096"),
        (*SHORT, "common.max_model_len=4096", "prefill.max_num_batched_tokens=4096"),
        "a block of 2112 tokens is longer than max-model-len 1024",
        severity="warning",
        also=("PD021", "PD085"),
    ),
    Sides("PD041", (*ON, f"{SHARED}=2111"), (*ON, f"{SHARED}=2112"), "0 hits by design", severity="warning"),
    Sides("PD041", ON, (*DENSE, *ON), "prompts of 8192 tokens share 0", severity="warning"),
    Sides(
        "PD041",
        (*OLD, f"{SHARED}=6335"),
        (*OLD, f"{SHARED}=6336"),
        "0 hits, since only the state at the end of a step is kept",
        severity="warning",
    ),
    Sides(
        "PD041",
        (*OLD, f"{SHARED}=2112"),
        (*OLD, f"{SHARED}=2112", "prefill.max_num_batched_tokens=4000"),
        "0 hits, since",
        severity="warning",
    ),
    Sides(
        "PD041",
        (*ON, f"{SHARED}=3000", "engine.vllm=0.23.1rc1.dev9+g0123456", "common.args.async-scheduling=false"),
        (*ON, f"{SHARED}=3000"),
        "0 hits before vLLM 0.24, 2112 tokens later",
        severity="info",
    ),
    Sides(
        "PD041",
        ("prefill.prefix_caching=true", f"{SHARED}=3000"),
        ("prefill.prefix_caching=true", f"{SHARED}=4352"),
        "a draft costs the last block",
        severity="warning",
        also=("PD029",),
    ),
]

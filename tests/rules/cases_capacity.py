"""Cases of the rules about memory, seats, graphs and steps."""

from __future__ import annotations

from .sides import AGG, DENSE, MIXED, Sides

SMALL_LOAD = ("workload.isl=64", "workload.osl=32", "common.max_model_len=12288")
SIX_SEATS = ("workload.concurrency=[6]", "decode={topology: TEP8, mtp: 6, max_num_seqs: 6}")
CASES = [
    Sides(
        "PD050",
        (*SMALL_LOAD, "agg.kv_cache_memory_gib=11", "agg.max_num_seqs=1024", "workload.concurrency=[64]"),
        (*SMALL_LOAD, "agg.kv_cache_memory_gib=11", "agg.max_num_seqs=256", "workload.concurrency=[64]"),
        "max-num-seqs 1024 exceeds the",
        recipe=AGG,
        also=("PD007",),
    ),
    Sides(
        "PD050",
        ("prefill.max_num_seqs=256",),
        ("prefill.max_num_seqs=128",),
        "256 sequences x 12 state blocks exceed",
        severity="warning",
        also=("PD052",),
    ),
    Sides(
        "PD005",
        ("decode.kv_cache_memory_gib=140",),
        ("decode.kv_cache_memory_gib=90",),
        "a KV cache of 140.0 GiB beside weights of 169.28",
    ),
    Sides("PD006", ("decode.max_num_seqs=12",), (), "; the KV cache would hold 196 of these requests"),
    Sides(
        "PD009",
        ("common.max_model_len=524288", "common.args.hf-overrides={rope_parameters: {factor: 2.0}}"),
        (),
        "is more than the model's 262144",
        severity="warning",
        also=("PD007", "PD062"),
    ),
    Sides(
        "PD008",
        ("decode.max_cudagraph_capture_size=64",),
        ("decode.max_cudagraph_capture_size=128",),
        "the captured graphs end at 64",
        severity="warning",
    ),
    Sides(
        "PD008",
        ("decode.max_cudagraph_capture_size=32", "decode.max_num_seqs=32"),
        ("decode.max_cudagraph_capture_size=128", "decode.max_num_seqs=32"),
        "the widest batch is 128 tokens, the captured graphs end at 32",
    ),
    Sides(
        "PD052",
        ("prefill.kv_cache_memory_gib=8",),
        ("prefill.kv_cache_memory_gib=60",),
        "the KV cache binds: a rank holds",
        severity="info",
        also=("PD050",),
    ),
    Sides(
        "PD051",
        ("decode.gpu_memory_utilization=0.99",),
        ("decode.gpu_memory_utilization=0.97",),
        "utilization 0.99 leaves 2.8 GiB of 276.62; CUDA context and graphs beyond their estimate need about 3.5",
        severity="warning",
    ),
    Sides(
        "PD051",
        (*DENSE, "decode.gpu_memory_utilization=0.98"),
        (*DENSE, "decode.gpu_memory_utilization=0.97"),
        "engines have died above 0.97",
        severity="warning",
    ),
    Sides(
        "PD051",
        (*DENSE, "common.env={VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS: 0}", "decode.gpu_memory_utilization=0.96"),
        (*DENSE, "decode.gpu_memory_utilization=0.96"),
        "CUDA context and all graphs need about",
        severity="warning",
    ),
    Sides(
        "PD051",
        (*DENSE, "engine.vllm=0.20.1", "decode.gpu_memory_utilization=0.96"),
        (*DENSE, "engine.vllm=0.21.0", "decode.gpu_memory_utilization=0.96"),
        "CUDA context and all graphs need about",
        severity="warning",
        also=("PD016", "PD028"),
    ),
    Sides(
        "PD051",
        ("decode.max_cudagraph_capture_size=4096",),
        ("decode.max_cudagraph_capture_size=2048",),
        "graphs up to 4096 tokens are captured, vLLM's own end at 1024",
        severity="warning",
    ),
    Sides(
        "PD067",
        ("decode.max_num_batched_tokens=31",),
        ("decode.max_num_batched_tokens=128",),
        "max-num-batched-tokens 31 is below max-num-seqs 32",
        also=("PD008",),
    ),
    Sides(
        "PD067",
        ("prefill.args.no-enable-chunked-prefill=true", "prefill.max_num_batched_tokens=8192"),
        ("prefill.args.no-enable-chunked-prefill=true",),
        "without chunked prefill a step must hold max-model-len 10240",
    ),
    Sides(
        "PD008",
        (*SIX_SEATS, "decode.max_cudagraph_capture_size=42"),
        (*SIX_SEATS, "decode.max_cudagraph_capture_size=48"),
        "the widest batch is 42 tokens, the captured graphs end at 35",
    ),
    Sides(
        "PD020",
        ("prefill.args.mamba-cache-mode=align", "prefill.max_num_batched_tokens=2000"),
        ("prefill.args.mamba-cache-mode=none", "prefill.max_num_batched_tokens=2000"),
        "max-num-batched-tokens 2000 is below one block of 2176 tokens",
        also=("PD033", "PD062"),
    ),
    Sides(
        "PD020",
        ("prefill.prefix_caching=true", "prefill.args.long-prefill-token-threshold=1024"),
        ("prefill.prefix_caching=true", "prefill.args.long-prefill-token-threshold=4352"),
        "long-prefill-token-threshold 1024 is below one block",
        also=("PD029", "PD041"),
        recipe=MIXED,
    ),
]

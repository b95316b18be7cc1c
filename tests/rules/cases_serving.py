"""Cases of the rules about parsers, untrusted input and unified memory."""

from __future__ import annotations

from .sides import Sides

TOOLS = ("serving.tool_parser=qwen3_coder", "serving.reasoning_parser=qwen3")
OWN = "{pdkit}/laptop/models/dense"
BOX = (
    "hardware=gb10", "model={facts: qwen3-32b, path: /models/q, weights_gib: 20.0}", "agg.topology=TP1",
    "agg.max_num_batched_tokens=8192", "agg.max_num_seqs=32", "agg.gpu_memory_utilization=0.9",
    "common.mamba_ssm_cache_dtype=", "workload={isl: 1024, osl: 1024, concurrency: [16]}", "gate.max_tokens=512",
)  # fmt: skip
AGG_MTP = "qwen38/agg/decode-tep8.yaml"
ON_BOX = ("PD007", "PD008", "PD021", "PD085", "PD051", "PD053", "PD060")
UNTRUSTED = "serving.untrusted_input=true"
CASES = [
    Sides(
        "PD042", ("serving.tool_parser=hermes", TOOLS[1]), TOOLS, "`hermes` does not read what `qwen3.8-2.4t` writes"
    ),
    Sides(
        "PD042",
        ("serving.tool_parser=qwen3coder", TOOLS[1], "engine.dynamo=1.6.1"),
        (*TOOLS, "engine.dynamo=1.6.1"),
        "Dynamo 1.6.1 has no tool parser `qwen3coder`",
    ),
    Sides(
        "PD042",
        ("serving.tool_parser=hermes",),
        (),
        "the chat template of `dense` knows no tools",
        recipe="local/tiny_pd.yaml",
    ),
    Sides(
        "PD043",
        (TOOLS[0], "serving.reasoning_parser=gpt_oss"),
        (TOOLS[0], "serving.reasoning_parser=deepseek_r1"),  # reads `<think>` too, and this model always thinks
        "`gpt_oss` does not read what",
    ),
    Sides(
        "PD043",
        ("model.facts=qwen3.5-397b", *TOOLS[:1], "serving.reasoning_parser=deepseek_r1"),
        ("model.facts=qwen3.5-397b", *TOOLS),
        "also where it is off",
        severity="warning",
    ),
    Sides("PD043", (TOOLS[0],), TOOLS, "tool calls are also read out of its thinking", severity="warning"),
    Sides(
        "PD043",
        ("decode.args.reasoning-parser=qwen3",),
        ("decode.args.reasoning-parser=qwen3", "serving.reasoning_parser=qwen3"),
        "only guides structured output",
        severity="warning",
    ),
    Sides(
        "PD043",
        ("serving.reasoning_parser=qwen3",),
        (),
        "no facts say in which form `dense` writes",
        severity="info",
        recipe="local/tiny_pd.yaml",
    ),
    Sides(
        "PD044",
        ("decode.args.reasoning-config={reasoning_parser: qwen3}",),
        ("decode.args.reasoning-config={reasoning_parser: qwen3}", "decode.mtp=0"),
        "may not enforce thinking budgets",
        severity="warning",
    ),
    Sides(
        "PD044",
        ("engine.vllm=0.21.0", "decode.args.reasoning-config={reasoning_parser: qwen3}"),
        (),
        "vLLM 0.21.0 does not enforce thinking budgets",
        also=("PD022", "PD025", "PD028"),
    ),
    Sides("PD045", (*TOOLS, UNTRUSTED), (UNTRUSTED,), "can make the model call tools", severity="warning"),
    Sides(
        "PD045",
        (UNTRUSTED, "decode.args.enable-prompt-embeds=true"),
        (UNTRUSTED, "decode.args.enable-prompt-embeds=false"),
        "with `--enable-prompt-embeds` a request can bring tensors",
    ),
    Sides(
        "PD045",
        (UNTRUSTED, "common.args.allowed-local-media-path=/data"),
        ("common.args.allowed-local-media-path=/data",),
        "a prompt can name files of the server",
    ),
    Sides(
        "PD046",
        (*BOX, "agg.max_num_batched_tokens=65536", "agg.gpu_memory_utilization=0.8"),
        BOX,
        "max-num-batched-tokens 65536 have hung such a box",
        recipe=AGG_MTP,
        also=ON_BOX,
    ),
    Sides(
        "PD046",
        (*BOX, "agg.max_num_seqs=256"),
        BOX,
        "max-num-seqs 256 is more than the 32",
        severity="warning",
        recipe=AGG_MTP,
        also=ON_BOX,
    ),
    Sides(
        "PD046",
        (*BOX, "agg.gpu_memory_utilization=0.92"),
        BOX,
        "leaves 9.5 GiB to the system",
        recipe=AGG_MTP,
        also=ON_BOX,
    ),
    Sides(
        "PD046",
        (*BOX, "agg.kv_cache_memory_gib=20.0"),
        BOX,
        "skips the profiling",
        severity="warning",
        recipe=AGG_MTP,
        also=ON_BOX,
    ),
    Sides(
        "PD046",
        (*BOX, "agg.max_num_batched_tokens=16384"),
        (*BOX, "hardware=generic", "agg.max_num_batched_tokens=16384"),
        "take more in profiling",
        severity="warning",
        recipe=AGG_MTP,
        also=ON_BOX,
    ),
]

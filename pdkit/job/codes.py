"""The gates of a run: what only shows on running engines, each with a code as the rules before launch have one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunGate:
    """One thing that must hold while a recipe runs."""

    code: str
    title: str
    why: str
    stage: str
    """Where it is looked at."""
    fix: str


GATES: tuple[RunGate, ...] = (
    RunGate(
        "PD201",
        "Every engine registers in time",
        "A router that answers says nothing about engines that are still missing; a benchmark has started on half a "
        "pool (InferenceX#2549), and waits went on long after a worker had died (NeMo-RL#3386).",
        "ready",
        "read the engine's log; raise infra.ready_timeout_seconds when it is still loading",
    ),
    RunGate(
        "PD202",
        "Each rank reports what the plan says",
        "Hybrid models settle their block size at start-up (vllm#42895), and fewer KV blocks than planned mean "
        "preemption (vllm#45178: 769,888 tokens became 245,840 after an upgrade).",
        "ready",
        "free the GPU, lower max_num_seqs, or let common.block_size be auto",
    ),
    RunGate(
        "PD203",
        "The first requests cross from prefill to decode",
        "Engines that were healthy failed every request (vllm#42895), recomputed each prompt on decode (vllm#27083), "
        "or never moved KV while all tests passed (smg#1622).",
        "ready",
        "compare model, dtype, connector and block size of both roles; see both logs for NIXL errors",
    ),
    RunGate(
        "PD204",
        "The text by transfer is decode's own text",
        "KV that arrives in another layout gives HTTP 200 and other words (vllm#52234, TensorRT-LLM#6507, "
        "kvcached#391).",
        "ready",
        "compare block sizes, dtypes and layouts of both roles",
    ),
    RunGate(
        "PD205",
        "No log holds a fatal line",
        "The worst failures answer HTTP 200 and only write a line: expired KV blocks (aws-do-eks#84), a failed "
        "receive after which generation went on (vllm#52234), a hybrid KV cache manager that was switched off "
        "(vllm#41830).",
        "ready, gate and sweep",
        "mend what the line says; the run is void",
    ),
    RunGate(
        "PD206",
        "No KV transfer fails",
        "A failed transfer is hidden by a recompute or fails requests one by one (vllm#32200); NIXL counts them.",
        "gate and sweep",
        "see the logs of prefill and decode for NIXL errors",
    ),
    RunGate(
        "PD207",
        "Decode does not compute prompts itself",
        "Right answers do not show it: a decode that recomputes every prompt is right, and slow (vllm#32200, "
        "smg#1622). vLLM counts where prompt tokens came from.",
        "gate and sweep",
        "see the logs of prefill and decode for NIXL errors",
    ),
    RunGate(
        "PD208",
        "KV moves fast enough",
        "KV over NVLink silently becomes TCP (vllm#51377), about 3.2 GB/s on GB200 (nixl#1240), and TTFT of 10 to 47 "
        "s instead of 2 (dynamo#13899). NIXL counts bytes and seconds.",
        "gate and sweep",
        "check the transport (UCX_TLS, IMEX, fabric handles), or lower gate.min_kv_mb_s",
    ),
    RunGate(
        "PD209",
        "MTP guesses right on real text",
        "Drafts from transferred MTP layers that were never verified were rarely accepted, without any error "
        "(vllm#55055).",
        "gate",
        "compare with the aggregated deployment; lower gate.min_acceptance when this is the model's own",
    ),
    RunGate(
        "PD210",
        "KV is given back when the load has drained",
        "Blocks that stay taken after the last request are lost until a restart: decode leaked them on aborts "
        "(vllm#46283, vllm#50754).",
        "after the gate and after the sweep",
        "look for aborted requests in decode's log; restart the engines",
    ),
    RunGate(
        "PD211",
        "The engines stay the ones that were proved",
        "A restarted peer leaves the others with stale transfers, all pods ready (vllm#49238, smg#2382), and a "
        "router that has lost an engine silently serves with less.",
        "gate and sweep",
        "run again; use infra.discovery: etcd where file discovery loses engines",
    ),
    RunGate(
        "PD212",
        "The answers are right",
        "Same weights, other topology, other accuracy: 0.864 against 0.964 (srt-slurm#106). Floor, cut and empty "
        "answers, failed requests and the twin are judged over every answer.",
        "gate",
        "read gate.json and gate.jsonl: each answer is there",
    ),
    RunGate(
        "PD213",
        "Every point is valid",
        "A tool that ends well says nothing: a run passed with 0 tokens (srt-slurm#429). Requests, lengths, requests "
        "in flight, the client's own load and the tool's figures must agree with the trace.",
        "sweep",
        "read the point's reasons; run again with --resume to measure only these",
    ),
    RunGate(
        "PD214",
        "Every node is fit for the job",
        "Orphans of an earlier job hold memory and ports (prime-rl#2331), and nodes with another checkpoint answer "
        "differently.",
        "before any engine starts",
        "bring the same checkpoint and free GPUs to every node",
    ),
)
BY_CODE = {gate.code: gate for gate in GATES}

OF_CHECK = {
    "registered": "PD201",
    "metrics": "PD202",
    "ranks": "PD202",
    "block size": "PD202",
    "KV blocks per rank": "PD202",
    "one block size on all roles": "PD202",
    "first request": "PD203",
    "prompt tokens computed": "PD203",
    "prompt tokens by KV transfer": "PD203",
    "failed transfers": "PD203",
    "P/D text": "PD204",
    "log": "PD205",
    "still registered": "PD211",
}
"""The code of each check of readiness, by its name."""

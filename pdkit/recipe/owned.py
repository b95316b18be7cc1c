"""vLLM flags that have a place of their own in a recipe; in `args:` they are refused, with that place named."""

from __future__ import annotations

OWNED_FLAGS: dict[str, str] = {
    "model": "model.path",
    "revision": "model.revision",
    "served-model-name": "model.served_name",
    "tensor-parallel-size": "<role>.topology",
    "pipeline-parallel-size": "<role>.topology",
    "data-parallel-size": "<role>.topology",
    "enable-expert-parallel": "<role>.topology (+EP)",
    "data-parallel-size-local": "nothing: the plan places ranks on nodes",
    "data-parallel-start-rank": "nothing: the plan places ranks on nodes",
    "data-parallel-rank": "nothing: the plan places ranks on nodes",
    "data-parallel-address": "nothing: it is the endpoint's first node",
    "data-parallel-rpc-port": "nothing: the plan gives out ports",
    "data-parallel-hybrid-lb": "nothing: the plan chooses the load balancing mode",
    "data-parallel-external-lb": "nothing: the plan chooses the load balancing mode",
    "nnodes": "nothing: the plan places ranks on nodes",
    "node-rank": "nothing: the plan places ranks on nodes",
    "master-addr": "nothing: it is the endpoint's first node",
    "master-port": "nothing: the plan gives out ports",
    "headless": "nothing: the plan knows which ranks are headless",
    "device-ids": "nothing: the plan gives out GPUs",
    "host": "nothing: Dynamo's frontend listens",
    "port": "infra.http_port",
    "block-size": "common.block_size",
    "dtype": "common.dtype",
    "kv-cache-dtype": "common.kv_cache_dtype",
    "mamba-cache-dtype": "common.mamba_cache_dtype",
    "mamba-ssm-cache-dtype": "common.mamba_ssm_cache_dtype",
    "enable-prefix-caching": "common.prefix_caching",
    "enforce-eager": "common.enforce_eager",
    "gpu-memory-utilization": "common.gpu_memory_utilization",
    "kv-cache-memory-bytes": "common.kv_cache_memory_gib",
    "max-model-len": "common.max_model_len",
    "max-num-seqs": "<role>.max_num_seqs",
    "max-num-batched-tokens": "<role>.max_num_batched_tokens",
    "max-cudagraph-capture-size": "<role>.max_cudagraph_capture_size",
    "cudagraph-capture-sizes": "<role>.max_cudagraph_capture_size",
    "compilation-config.cudagraph-mode": "<role>.cudagraph_mode",
    "compilation-config.cudagraph-capture-sizes": "<role>.max_cudagraph_capture_size",
    "compilation-config.max-cudagraph-capture-size": "<role>.max_cudagraph_capture_size",
    "speculative-config": "common.mtp",
    "kv-transfer-config": "common.kv_transfer",
    "disaggregation-mode": "the roles `prefill`, `decode` and `agg` themselves",
}

ALIASES: dict[str, str] = {
    "cc": "compilation-config",
    "device-memory-utilization": "gpu-memory-utilization",
    "dp": "data-parallel-size",
    "dpa": "data-parallel-address",
    "dpe": "data-parallel-external-lb",
    "dph": "data-parallel-hybrid-lb",
    "dpl": "data-parallel-size-local",
    "dpn": "data-parallel-rank",
    "dpp": "data-parallel-rpc-port",
    "dpr": "data-parallel-start-rank",
    "ep": "enable-expert-parallel",
    "n": "nnodes",
    "pp": "pipeline-parallel-size",
    "r": "node-rank",
    "sc": "speculative-config",
    "tp": "tensor-parallel-size",
}
"""vLLM's short spellings of the flags that pdkit sets."""

OWNED_ENV: dict[str, str] = {
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "nothing: it is the node's own address",
    "VLLM_NIXL_SIDE_CHANNEL_PORT": "nothing: the plan gives out ports",
    "VLLM_SSM_CONV_STATE_LAYOUT": "common.conv_state_layout",
    "DYN_SYSTEM_HOST": "nothing: it is the node's own address",
    "DYN_SYSTEM_PORT": "nothing: the plan gives out ports",
    "DYN_VLLM_KV_EVENT_PORT": "nothing: the plan gives out ports",
    "DYN_DISCOVERY_BACKEND": "infra.discovery",
    "DYN_REQUEST_PLANE": "infra.discovery",
    "DYN_EVENT_PLANE": "infra.discovery",
    "DYN_FILE_KV": "nothing: it lies in the run folder",
    "ETCD_ENDPOINTS": "nothing: etcd runs on the first node",
    "NATS_SERVER": "nothing: NATS runs on the first node",
    "DYN_TCP_RPC_HOST": "nothing: it is the node's own address",
    "DYN_TCP_RESPONSE_STREAM_HOST": "nothing: it is the node's own address",
    "DYN_EVENT_PLANE_HOST": "nothing: it is the node's own address",
    "RUN_DIR": "nothing: it is the run folder",
    "CUDA_VISIBLE_DEVICES": "nothing: the plan gives out GPUs",
    "VLLM_HOST_IP": "nothing: it is the node's own address",
}


def flag_name(key: str) -> str:
    """A flag as vLLM spells it in full, without dashes and `no-` in front: `no_enable_x` is `enable-x`."""
    name = key.strip().lstrip("-").replace("_", "-").removeprefix("no-")
    head, dot, rest = name.partition(".")
    return ALIASES.get(head, head) + dot + rest


def owner_of_flag(key: str) -> str | None:
    """Where a recipe says what this flag says, or None for a free flag; a dotted flag has its parent's place."""
    name = flag_name(key)
    return OWNED_FLAGS.get(name) or OWNED_FLAGS.get(name.partition(".")[0])

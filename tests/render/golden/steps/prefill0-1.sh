#!/bin/bash
# prefill endpoint 0 (TP4DP2+EP), node 2 of 2: DP rank 1, GPUs 0, 1, 2, 3.
# Started by job.sbatch on node 1 of the job; RUN_DIR and NODE_IP_n are exported there. Rendered by pdkit VERSION.
set -euo pipefail

# a server of this deployment, on node 0
export ETCD_ENDPOINTS=http://"${NODE_IP_0}":2379
# requests go straight to the worker
export DYN_REQUEST_PLANE=tcp
# a server of this deployment, on node 0
export NATS_SERVER=nats://"${NODE_IP_0}":4222
# advertise this node's address on hosts with several
export DYN_TCP_RPC_HOST="${NODE_IP_1}"
# the same for answers
export DYN_TCP_RESPONSE_STREAM_HOST="${NODE_IP_1}"
# the same for events
export DYN_EVENT_PLANE_HOST="${NODE_IP_1}"
# ranks find each other on this address
export VLLM_HOST_IP="${NODE_IP_1}"
# decode asks for KV metadata here
export VLLM_NIXL_SIDE_CHANNEL_HOST="${NODE_IP_1}"
# base; 8 ports kept free
export VLLM_NIXL_SIDE_CHANNEL_PORT=20000
# NIXL reads GDN conv states dim-first
export VLLM_SSM_CONV_STATE_LAYOUT=DS
# not on every interface
export DYN_SYSTEM_HOST="${NODE_IP_1}"
# health and metrics of this worker
export DYN_SYSTEM_PORT=9100
# unique on this node
export DYN_VLLM_KV_EVENT_PORT=22000
# env of the recipe
export DYN_LOG=error
# env of the recipe
export DYN_SDK_DISABLE_ANSI_LOGGING=1
# env of the recipe
export VLLM_LOGGING_COLOR=0

args=(
  --model Inferact/Qwen3.8-2.4T-A95B-NVFP4  # model.path: the same string on every role, NIXL compares it
  --revision a6abb8bfb82b6965166d4129275f012d8809bc40  # model.revision
  --served-model-name Qwen3.8-2.4T-A95B-NVFP4  # name for clients
  --disaggregation-mode prefill  # role of this endpoint
  --tensor-parallel-size 4  # topology TP4DP2+EP
  --data-parallel-size 2  # topology TP4DP2+EP
  --enable-expert-parallel  # experts over 8 GPUs
  --data-parallel-size-local 1  # ranks on this node
  --data-parallel-start-rank 1  # first of them
  --data-parallel-hybrid-lb  # each node registers its own ranks with Dynamo
  --data-parallel-address "${NODE_IP_0}"  # the endpoint's first node
  --data-parallel-rpc-port 24000  # DP coordinator
  --block-size 2176  # natural sizes differ (prefill 2176, decode 1088); 2176 is the smallest that holds the state on both roles
  --kv-cache-dtype fp8  # attention KV cache: the same on both roles
  --mamba-ssm-cache-dtype bfloat16  # GDN recurrent state: the same on both roles
  --no-enable-prefix-caching  # random prompts never hit
  --max-model-len 10240  # ISL 8192 + OSL 1024 + template 64, up to a multiple of 1024
  --max-num-seqs 32  # prompts held by one prefill rank
  --max-num-batched-tokens 16384  # two prompts per step: 2 x ISL 8192
  --compilation-config '{"cudagraph_mode": "PIECEWISE"}'  # graphs for the batch shapes of this role
  --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'  # MTP 3, the same on both roles
  --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_load_failure_policy": "fail"}'  # KV over NIXL
  --all2all-backend flashinfer_nvlink_one_sided  # args of the recipe
  --async-scheduling  # args of the recipe
  --generation-config vllm  # args of the recipe
  --language-model-only  # args of the recipe
  --no-disable-hybrid-kv-cache-manager  # args of the recipe
)

# A new identity at every start: the gate's proof holds for these very processes only.
mkdir -p "${RUN_DIR}/boot"
cat /proc/sys/kernel/random/uuid > "${RUN_DIR}/boot/"prefill0-1

exec python3 -m dynamo.vllm "${args[@]}"

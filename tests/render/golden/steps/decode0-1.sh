#!/bin/bash
# decode endpoint 0 (TEP8), node 2 of 2: DP rank 0, GPUs 0, 1, 2, 3, headless.
# Started by job.sbatch on node 3 of the job; RUN_DIR and NODE_IP_n are exported there. Rendered by pdkit VERSION.
set -euo pipefail

# a server of this deployment, on node 0
export ETCD_ENDPOINTS=http://"${NODE_IP_0}":2379
# requests go straight to the worker
export DYN_REQUEST_PLANE=tcp
# a server of this deployment, on node 0
export NATS_SERVER=nats://"${NODE_IP_0}":4222
# advertise this node's address on hosts with several
export DYN_TCP_RPC_HOST="${NODE_IP_3}"
# the same for answers
export DYN_TCP_RESPONSE_STREAM_HOST="${NODE_IP_3}"
# the same for events
export DYN_EVENT_PLANE_HOST="${NODE_IP_3}"
# ranks find each other on this address
export VLLM_HOST_IP="${NODE_IP_3}"
# decode asks for KV metadata here
export VLLM_NIXL_SIDE_CHANNEL_HOST="${NODE_IP_3}"
# base; 8 ports kept free
export VLLM_NIXL_SIDE_CHANNEL_PORT=20008
# NIXL reads GDN conv states dim-first
export VLLM_SSM_CONV_STATE_LAYOUT=DS
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
  --disaggregation-mode decode  # role of this endpoint
  --tensor-parallel-size 8  # topology TEP8
  --enable-expert-parallel  # experts over 8 GPUs
  --nnodes 2  # a rank is 8 GPUs, more than one node has
  --node-rank 1  # this node's place in the endpoint
  --master-addr "${NODE_IP_2}"  # the endpoint's first node
  --master-port 24501  # rendezvous of the ranks
  --headless  # its rank is served by the endpoint's first node
  --block-size 2176  # natural sizes differ (prefill 2176, decode 1088); 2176 is the smallest that holds the state on both roles
  --kv-cache-dtype fp8  # attention KV cache: the same on both roles
  --mamba-ssm-cache-dtype bfloat16  # GDN recurrent state: the same on both roles
  --no-enable-prefix-caching  # every block of a prompt must come from prefill
  --max-model-len 10240  # ISL 8192 + OSL 1024 + template 64, up to a multiple of 1024
  --max-num-seqs 32  # concurrency 16 / 1 rank + 16 spare
  --max-num-batched-tokens 144  # a full decode batch 128 + 16 spare
  --max-cudagraph-capture-size 128  # the graph that holds max-num-seqs 32 x (1 + MTP 3) = 128
  --compilation-config '{"cudagraph_mode": "FULL_DECODE_ONLY"}'  # graphs for the batch shapes of this role
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
cat /proc/sys/kernel/random/uuid > "${RUN_DIR}/boot/"decode0-1

exec python3 -m dynamo.vllm "${args[@]}"

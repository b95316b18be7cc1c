"""Size of a checkpoint from its config, for decoder models of the Llama and Qwen kind. An estimate: norms, biases,
quantization scales and vision towers are left out (below one per cent of the sizes that matter).
"""

from __future__ import annotations

from typing import Any

BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "float8_e4m3fn": 8}


def weights_from_config(config: dict[str, Any], full_layers: int) -> tuple[float, float] | None:
    """(expert GiB, other GiB), or None when the config lacks a size that is needed."""
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    vocab, dtype = config.get("vocab_size"), config.get("dtype") or config.get("torch_dtype")
    bits = BITS.get(str(dtype))
    if vocab is None or bits is None:
        return None
    experts = config.get("num_experts") or config.get("n_routed_experts") or 0
    width = config.get("moe_intermediate_size" if experts else "intermediate_size")
    if width is None:
        return None
    embeddings = vocab * hidden * (1 if config.get("tie_word_embeddings") else 2)
    attention = full_layers * _attention(config) + (layers - full_layers) * _linear_attention(config)
    if experts:
        shared = 3 * hidden * (config.get("shared_expert_intermediate_size") or 0)
        expert_params, mlp = layers * experts * 3 * hidden * width, layers * (shared + hidden * experts)
    else:
        expert_params, mlp = 0, layers * 3 * hidden * width
    expert_bits = _quantized_bits(config) or bits
    other_bits = bits if experts else expert_bits
    return expert_params * expert_bits / 8 / 2**30, (embeddings * bits + (attention + mlp) * other_bits) / 8 / 2**30


def _attention(config: dict[str, Any]) -> int:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    kv_heads = config.get("num_key_value_heads") or heads
    query = heads * (2 if config.get("attn_output_gate") else 1)
    return int(hidden * head_dim * (query + heads + 2 * kv_heads))


def _linear_attention(config: dict[str, Any]) -> int:
    if "linear_num_key_heads" not in config:
        return 0
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
    return int(config["hidden_size"] * (2 * keys + 3 * values))


def _quantized_bits(config: dict[str, Any]) -> float | None:
    """Bits per weight with scales, by the name of the quantization; None when there is none or it is not known."""
    quantization = config.get("quantization_config") or {}
    name = str(quantization.get("quant_algo") or quantization.get("quant_method") or "").lower()
    by_name = {"nvfp4": 4.5, "awq": 4.25, "gptq": 4.25, "mxfp4": 4.25, "fp8": 8.0}
    return next((bits for key, bits in by_name.items() if key in name), None)

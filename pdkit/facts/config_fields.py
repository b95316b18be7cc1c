"""What a Hugging Face config may say, so that a wrong type or an unknown kind of layer is an error, not a guess."""

from __future__ import annotations

from typing import Any

from pdkit.errors import RecipeError

MOST = 100_000_000
"""Largest count in a config; far beyond any model."""
HINT = "give the config.json of the checkpoint itself, or the name of a model that pdkit knows"
COUNTS = (
    "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size", "vocab_size",
    "max_position_embeddings", "full_attention_interval", "linear_num_key_heads", "linear_num_value_heads",
    "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim", "num_experts", "n_routed_experts",
    "num_local_experts", "num_experts_per_tok", "mtp_num_hidden_layers", "num_nextn_predict_layers",
    "intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size",
)  # fmt: skip
"""Fields that are whole numbers."""
KINDS: dict[str, type] = {
    "dtype": str, "torch_dtype": str, "mamba_ssm_dtype": str,
    "architectures": list, "layer_types": list,
    "quantization_config": dict,
}  # fmt: skip
"""Other fields that are read."""
UNPLANNED = {
    "kv_lora_rank": "multi-head latent attention",
    "hybrid_override_pattern": "Mamba layers",
    "mamba_d_state": "Mamba layers",
    "mamba_num_heads": "Mamba layers",
    "ssm_state_size": "Mamba layers",
    "attn_type_list": "lightning attention",
    "linear_attn_config": "Kimi delta attention",
}
"""Fields of models whose cache pdkit would compute wrongly."""


def check_fields(config: dict[str, Any], name: str, at: str) -> None:
    """Refuse what cannot be planned; RecipeError PD113 names the field and the place `at` of the recipe."""

    def refused(key: str, why: str) -> RecipeError:
        return RecipeError(f"`{key}` in the config.json of `{name}`: {why}", at=at, fix=HINT, code="PD113")

    for key, what in UNPLANNED.items():
        if config.get(key):
            raise refused(key, f"pdkit does not plan {what} yet")
    for key in COUNTS:
        value = config.get(key)
        if value is not None and (type(value) is not int or not 0 <= value <= MOST):
            raise refused(key, f"{value!r:.40} is not a whole number from 0 to {MOST}")
    for key, kind in KINDS.items():
        if config.get(key) is not None and not isinstance(config[key], kind):
            raise refused(key, f"{config[key]!r:.40} is not a {kind.__name__}")
    fault = _layer_fault(config.get("layer_types") or [], config.get("num_hidden_layers"))
    if fault:
        raise refused("layer_types", fault)


def _layer_fault(kinds: list[Any], layers: int | None) -> str:
    for kind in kinds:
        if kind not in ("full_attention", "linear_attention"):
            return f"pdkit does not plan layers of the kind {kind!r:.40} yet"
    return f"{len(kinds)} entries, `num_hidden_layers` is {layers}" if layers and kinds and len(kinds) != layers else ""

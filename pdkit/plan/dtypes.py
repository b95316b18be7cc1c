"""Bytes of the dtypes that KV caches and states may have."""

from __future__ import annotations

BYTES: dict[str, int] = {
    "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1, "float8_e4m3fn": 1,
    "bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4,
}  # fmt: skip
"""Width in bytes by vLLM's name (vllm 0.32 utils/torch_utils.py, STR_DTYPE_TO_TORCH_DTYPE)."""


def resolve(dtype: str, auto: str) -> str:
    """The dtype that vLLM ends up with: `auto` becomes what the model says."""
    return auto if dtype == "auto" else dtype

"""CUDA-graph capture sizes as vLLM generates them (vllm 0.32 config/vllm.py:2292-2500)."""

from __future__ import annotations


def default_max_capture(max_num_seqs: int, mtp: int, cap: int, max_num_batched_tokens: int) -> int:
    """vLLM's largest capture size when none is given, in tokens; `cap` is the platform's (512, or 1024 on SM100)."""
    return min(max_num_seqs * (1 + mtp) * 2, cap, max_num_batched_tokens)


def capture_sizes(max_capture: int, mtp: int, mode: str) -> list[int]:
    """Batch sizes in tokens for which graphs are captured: 1, 2, 4, every 8 to 256, every 16 beyond.

    Full decode graphs hold whole verify batches, so with MTP sizes are rounded up to multiples of 1 + speculative
    tokens, and those beyond the largest are dropped (vllm 0.32 config/compilation.py:1536-1580).
    """
    if mode == "NONE" or max_capture < 1:
        return []
    sizes, width = _grid(max_capture), 1 + mtp
    if not mode.startswith("FULL"):
        return sizes
    rounded = {-(-size // width) * width for size in sizes}
    return sorted(size for size in rounded if size <= sizes[-1])


def covering_capture(tokens: int, mtp: int) -> int:
    """The smallest max-cudagraph-capture-size whose graphs hold a full decode batch of `tokens`; 0 for no tokens."""
    width = 1 + mtp
    sizes = _grid(tokens + 16 * width) if tokens else []
    return next((size for size in sizes if size >= tokens and size % width == 0), 0)


def _grid(largest: int) -> list[int]:
    sizes = [size for size in (1, 2, 4) if size <= largest]
    return [*sizes, *range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)]

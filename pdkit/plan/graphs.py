"""CUDA-graph capture sizes as vLLM generates them (vllm 0.32 config/vllm.py:2292-2500)."""

from __future__ import annotations


def default_max_capture(max_num_seqs: int, mtp: int, cap: int, max_num_batched_tokens: int) -> int:
    """vLLM's largest capture size when none is given, in tokens; `cap` is the platform's (512, or 1024 on SM100)."""
    return min(max_num_seqs * (1 + mtp) * 2, cap, max_num_batched_tokens)


def capture_sizes(max_capture: int, mtp: int, mode: str) -> list[int]:
    """Batch sizes in tokens for which graphs are captured: 1, 2, 4, every 8 to 256, every 16 beyond.

    Full decode graphs hold whole verify batches, so with MTP only multiples of 1 + speculative tokens stay.
    """
    if mode == "NONE" or max_capture < 1:
        return []
    sizes = [size for size in (1, 2, 4) if size <= max_capture]
    sizes += range(8, min(max_capture + 1, 256), 8)
    sizes += range(256, max_capture + 1, 16)
    width = 1 + mtp
    return [size for size in sizes if size % width == 0] if mode.startswith("FULL") and width > 1 else sizes


def covering_capture(tokens: int, mtp: int) -> int:
    """The smallest capture size on vLLM's grid that holds a full decode batch of `tokens` tokens; 0 for no tokens."""
    sizes = capture_sizes(tokens + 16 * (1 + mtp), mtp, "FULL_DECODE_ONLY") if tokens else []
    return next((size for size in sizes if size >= tokens), 0)

"""The environment variables that an engine needs on a laptop, and only there."""

from __future__ import annotations

from pathlib import Path

SITE = Path(__file__).parent / "site"
"""The folder whose sitecustomize.py holds the workarounds; the first entry of a laptop engine's PYTHONPATH."""

NIXL_PROGRESS_DELAY_US = 1000
"""Long enough that an idle engine takes 1 % of a core, short beside the milliseconds of one transfer."""


def laptop_environment(omp_threads: int = 1) -> dict[str, str]:
    """What to add to the environment of each engine and frontend of the local launcher; never on a GPU node.

    One OpenMP thread per engine suits two engines on two cores: more threads spin against each other.
    """
    return {
        "PYTHONPATH": str(SITE),
        # the workarounds of site/sitecustomize.py, each explained there
        "PDKIT_LAPTOP_TORCHVISION_SCHEMAS": "1",
        "PDKIT_LAPTOP_NIXL_PROGRESS_DELAY_US": str(NIXL_PROGRESS_DELAY_US),
        "PDKIT_LAPTOP_NO_KV_CORE_PINNING": "1",
        # vLLM would bind each engine's threads to the same first cores
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(omp_threads),
        # everything that is served lies on this disk; nothing is asked of, or told to, another host
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # NIXL's handshake stays on the loopback
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
    }

"""What is asked of a machine beside the preflight: GPU memory, driver and fabric, shared memory, limits, CPU."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pdkit.doctor.check import Check

SHM = Path("/dev/shm")  # noqa: S108  (shared memory itself, not a temporary file)
LEAST_SHM_GIB = 1.0
"""Per process of the engines: message queues, NCCL and UCX; Docker gives 0.06 GiB when nobody asks for more."""
LEAST_OPEN_FILES = 8192
"""An engine with NIXL, its workers and some thousand connections."""
MEMORY = Path("/proc/meminfo")
IMEX = Path("/dev/nvidia-caps-imex-channels")


def nvidia_smi(fields: str) -> list[list[str]] | str:
    """The answer to a query, one row per GPU, or why there is none."""
    if shutil.which("nvidia-smi") is None:
        return "no nvidia-smi here"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        return (done.stderr or done.stdout).strip()[:200] or f"nvidia-smi ended with {done.returncode}"
    return [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def gpu_memory(plan: dict[str, Any] | None, node: int) -> Iterator[Check]:
    """Free memory of each planned GPU against what the plan lets its engine take."""
    rows = nvidia_smi("index,memory.free,memory.total,driver_version")
    if isinstance(rows, str):
        yield Check("gpu memory", "cannot be told", rows, "run it on a node with GPUs")
        return
    yield Check("driver", "ok", f"{rows[0][3]}, {len(rows)} GPUs" if rows else "no GPU is visible")
    free = {int(row[0]): _free_gib(row[1]) for row in rows}
    for process in plan["placement"] if plan else ():
        memory = plan["roles"][process["role"]]["memory"] if plan else None
        if process["node"] != node or not memory:
            continue
        for gpu in process["gpus"]:
            have, need = free.get(gpu), memory["budget_gib"]
            if have is not None and have < need:
                text = f"GPU {gpu} has {have:.1f} GiB free, {process['role']} takes up to {need:.1f} GiB"
                yield Check("gpu memory", "problem", text, "free it, or lower gpu_memory_utilization")
            elif have is not None:
                yield Check("gpu memory", "ok", f"GPU {gpu}: {have:.1f} GiB free of the {need:.1f} GiB planned")


def _free_gib(mib: str) -> float:
    """Free memory of a GPU; where it shares the CPU's and tells `[N/A]`, what the machine can still give."""
    if mib.isdigit():
        return int(mib) / 1024
    lines = dict(line.split(":", 1) for line in MEMORY.read_text(encoding="utf-8").splitlines() if ":" in line)
    return int(lines["MemAvailable"].split()[0]) / 2**20


def fabric(plan: dict[str, Any] | None) -> Iterator[Check]:
    """NVLink between nodes: the fabric manager has joined, and a channel of IMEX can be opened."""
    rows = nvidia_smi("index,fabric.state,fabric.status")
    if isinstance(rows, str):
        yield Check("fabric", "cannot be told", rows, "run it on a node with GPUs")
    else:
        for gpu, state, status in (row for row in rows if len(row) == 3):
            good = state in ("Completed", "N/A", "[N/A]") and status in ("Success", "N/A", "[N/A]")
            text = f"GPU {gpu}: fabric {state}, {status}"
            yield Check("fabric", "ok" if good else "problem", text, "see nvidia-fabricmanager and nvidia-imex")
    if plan and plan["device"] == "cuda" and plan["nodes"] > 1:
        channels = [one for one in IMEX.glob("channel*") if os.access(one, os.R_OK | os.W_OK)] if IMEX.is_dir() else []
        fix = "start nvidia-imex, and let the container see /dev/nvidia-caps-imex-channels"
        text = f"{len(channels)} IMEX channels can be opened" + ("" if channels else ": no NVLink between nodes")
        yield Check("imex", "ok" if channels else "problem", text, fix)


def shared_memory(processes: int) -> Check:
    """Room in /dev/shm for the engines of this node."""
    try:
        free_gib = shutil.disk_usage(SHM).free / 2**30
    except OSError as error:
        return Check("shared memory", "cannot be told", f"{SHM}: {error.strerror}")
    need = LEAST_SHM_GIB * max(1, processes)
    text = f"{free_gib:.1f} GiB are free in {SHM}, {need:g} are needed"
    fix = f"remove what earlier jobs left there, or give the container more: --shm-size={need:g}g"
    return Check("shared memory", "ok" if free_gib >= need else "problem", text, fix)


def limits(device: str) -> Iterator[Check]:
    """Open files, and with GPUs locked memory, which RDMA needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    good = soft == resource.RLIM_INFINITY or soft >= LEAST_OPEN_FILES
    text = f"{soft} open files are allowed, {LEAST_OPEN_FILES} are needed"
    enough = hard == resource.RLIM_INFINITY or hard >= LEAST_OPEN_FILES
    fix = f"ulimit -n {LEAST_OPEN_FILES}" if enough else "raise nofile in /etc/security/limits.conf or the container"
    yield Check("open files", "ok" if good else "problem", text, fix)
    if device == "cuda":
        locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        free = locked == resource.RLIM_INFINITY
        text = "locked memory is unlimited" if free else f"only {locked // 1024} KiB may be locked, RDMA needs more"
        yield Check("locked memory", "ok" if free else "problem", text, "ulimit -l unlimited")


def processor(wanted: str | None) -> Check:
    """The CPU against what the hardware facts say."""
    have = platform.machine()
    if wanted is None or have == wanted:
        return Check("cpu", "ok", have)
    fix = "run it on a node of the cluster; a login node is often another kind"
    return Check("cpu", "problem", f"this is {have}, the recipe's hardware is {wanted}", fix)

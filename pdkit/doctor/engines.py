"""The engines of a Python environment against a recipe: versions, NIXL, its transports; and the probe of an image."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pdkit.doctor.check import Check
from pdkit.errors import EngineError, UsageError
from pdkit.files import to_json, write_text
from pdkit.laptop.environment import laptop_environment
from pdkit.recipe.schema import Recipe

HERE = Path(__file__).parent
LONGEST_SECONDS = 600
"""Importing vLLM from a cold network file system."""


def probe_image(python: Path, output: Path) -> dict[str, Any]:
    """Write what the engines of `python` accept to `output`; EngineError when not even vLLM can be read."""
    facts = _run(python, "engine_probe.py")
    if "vllm" not in facts:
        raise EngineError(f"vLLM cannot be read with {python}: {facts['missing'].get('vllm', 'no reason was given')}")
    write_text(output, to_json(facts))
    return facts


def _run(python: Path, script: str) -> dict[str, Any]:
    """What a stand-alone script prints; without GPUs the engines need the laptop's settings to be imported."""
    if not python.is_file() and shutil.which(str(python)) is None:
        raise UsageError(f"{python}: no such program", fix="name the Python of the engines with --python")
    laptop = {} if shutil.which("nvidia-smi") else laptop_environment()
    done = subprocess.run(
        [str(python), str(HERE / script)],
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        env={**os.environ, **laptop},
        check=False,
    )
    try:
        facts: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = "\n".join(f"  | {line}" for line in done.stderr.strip().splitlines()[-5:])
        raise EngineError(f"{python} {script} ended with {done.returncode} and said nothing\n{last}") from None
    return facts


def engine_checks(python: Path | None, recipe: Recipe | None, device: str) -> Iterator[Check]:
    """Versions against the recipe, NIXL's plug-ins and UCX's transports."""
    if python is None:
        yield Check("engines", "cannot be told", "no Python with the engines was named", "give --python PATH")
        return
    facts = _run(python, "engine_versions.py")
    yield Check("python", "ok", f"{facts['python']} on {facts['machine']}: {python}")
    versions: dict[str, str] = facts["versions"]
    wanted = {"vllm": recipe.engine.vllm, "ai-dynamo": recipe.engine.dynamo} if recipe else {}
    for package in ("vllm", "ai-dynamo", "nixl"):
        yield _version(package, versions.get(package) or versions.get(f"{package}-cpu"), wanted.get(package))
    plugins = facts["plugins"]
    if isinstance(plugins, str):
        yield Check("nixl", "problem" if "nixl" in versions else "cannot be told", f"no plug-ins: {plugins}")
    else:
        good = "UCX" in plugins
        fix = "NixlConnector needs the UCX plug-in: reinstall nixl for this CUDA version"
        yield Check("nixl", "ok" if good else "problem", f"plug-ins {', '.join(plugins) or 'none'}", fix)
    transports = facts["transports"]
    yield from _modules(facts["modules"], device)
    if isinstance(transports, str):
        yield Check("ucx", "cannot be told", f"which devices it would use: {transports}", "install ucx's own tools")
    else:
        yield _transports(transports, device)


def _version(package: str, found: str | None, wanted: str | None) -> Check:
    if found is None:
        return Check(package, "problem", "is not installed", f"use an image with {package} {wanted or ''}".rstrip())
    if wanted is None:
        return Check(package, "ok", found)
    same = found.partition("+")[0] == wanted.removeprefix("v").partition("+")[0]
    fix = f"use an image with {wanted}, or name {found} in the recipe"
    return Check(package, "ok" if same else "problem", f"{found}, the recipe says {wanted}", fix)


def _modules(found: dict[str, str], device: str) -> Iterator[Check]:
    """The transport modules beside NIXL's UCX, and that for GPUs where there are any."""
    if not found:
        yield Check("ucx", "cannot be told", "no UCX with its modules was found beside NIXL", "see the check of nixl")
        return
    good = [name for name, error in found.items() if not error]
    yield Check("ucx", "ok", f"modules that can be loaded: {', '.join(good) or 'none'}")
    fault = found.get("cuda", "it is not there")
    if device == "cuda" and fault:
        fix = "let the container see the driver, or use a UCX built with CUDA"
        yield Check("ucx", "problem", f"KV in GPU memory needs the module cuda: {fault}", fix)


def _transports(found: list[str], device: str) -> Check:
    """UCX's transports; between GPUs of one NVLink domain KV needs cuda_ipc."""
    missing = [one for one in ("cuda_copy", "cuda_ipc") if device == "cuda" and one not in found]
    text = f"transports {', '.join(found)}" + (f"; {', '.join(missing)} is missing" if missing else "")
    return Check("ucx", "problem" if missing else "ok", text, "use a UCX built with CUDA, on a node with GPUs")

"""Workarounds that let vLLM, NIXL and torchvision run on a laptop's CPU, imported by Python itself from PYTHONPATH.

Each workaround has its own switch, an environment variable, and does nothing without it. `pdkit.laptop.environment`
sets all four, for laptop engines only. They change the inside of other packages: they must never reach a GPU node.
"""
# ruff: noqa: INP001  (Python wants this exact file name at the top of an import path, so the folder is no package)

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

TORCHVISION_SCHEMAS = "PDKIT_LAPTOP_TORCHVISION_SCHEMAS"
"""Set: `import torchvision` works beside a CPU build of torch.

PyPI's torchvision is a CUDA build; its operators cannot be loaded without CUDA's libraries, and its import then ends
with "operator torchvision::nms does not exist". vLLM's Qwen3.5 models import torchvision even for text."""

NIXL_PROGRESS_DELAY_US = "PDKIT_LAPTOP_NIXL_PROGRESS_DELAY_US"
"""Microseconds that NIXL's progress thread sleeps between two looks.

NIXL 1.5.1 fixes this at 0, so the thread polls without pause: each idle engine would keep one core busy."""

NO_KV_CORE_PINNING = "PDKIT_LAPTOP_NO_KV_CORE_PINNING"
"""Set: vLLM's NIXL connector does not pin the engine to the last core of each NUMA node.

On a laptop prefill and decode would be pinned to the same core and take turns on it."""

WAIT_US = "PDKIT_LAPTOP_WAIT_US"
"""Microseconds that a vLLM process sleeps between two looks for the next message of its engine.

vLLM looks without pause for one second after each message (shm_broadcast.py, SpinCondition), so with two engines on two
cores those who wait take the cores from those who work. To wait for a notification instead is no way out: one that
comes right after another may be dropped (the socket holds a single one), and then the engine stands still."""


class _ImportHook(MetaPathFinder):
    """Calls `before` ahead of the import of one module, and `after` with the imported module."""

    def __init__(
        self,
        matches: Callable[[str], bool],
        *,
        before: Callable[[], None] | None = None,
        after: Callable[[ModuleType], None] | None = None,
    ) -> None:
        self.matches, self.before, self.after = matches, before, after
        self.inside = False

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if self.inside or not self.matches(fullname):
            return None
        self.inside = True  # the search below, and what `before` imports, must not come back here
        try:
            if self.before is not None:
                self.before()
                self.before = None  # others only ask whether the module exists, and then import it
            spec = importlib.util.find_spec(fullname) if self.after else None
        finally:
            self.inside = False
        if spec is not None and spec.loader is not None and self.after is not None:
            _run_after(spec.loader, self.after)
        return spec


def _run_after(loader: Any, after: Callable[[ModuleType], None]) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        after(module)

    loader.exec_module = exec_module


def _declare_torchvision_schemas() -> None:
    import torch  # type: ignore[import-not-found]  # noqa: PLC0415  (seconds of import, only for processes that use torchvision)

    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    try:
        ctypes.CDLL(os.path.join(os.path.dirname(spec.origin), "_C.so"))  # noqa: PTH118, PTH120  (no pathlib at every start)
    except OSError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _keep.append(library)


_keep: list[object] = []
"""torch forgets the schemas when the library object is collected."""


def _slow_nixl_progress(delay_us: int) -> Callable[[ModuleType], None]:
    def after(api: Any) -> None:
        bindings = api.nixlBind
        agent = bindings.nixlAgent

        def agent_with_delay(name: str, config: Any, *rest: Any) -> Any:
            config.pthrDelay = delay_us
            return agent(name, config, *rest)

        bindings.nixlAgent = agent_with_delay

    return after


def _forget_numa_topology(cpu_platform: Any) -> None:
    cpu_platform.CpuPlatform.discover_numa_topology = classmethod(lambda _: [])


def _sleep_between_looks(wait_us: int) -> Callable[[ModuleType], None]:
    def after(broadcast: Any) -> None:
        broadcast.sched_yield = lambda: time.sleep(wait_us / 1e6)

    return after


if os.environ.get(TORCHVISION_SCHEMAS):
    sys.meta_path.insert(0, _ImportHook(lambda name: name == "torchvision", before=_declare_torchvision_schemas))
if os.environ.get(NIXL_PROGRESS_DELAY_US):
    _slower = _slow_nixl_progress(int(os.environ[NIXL_PROGRESS_DELAY_US]))
    sys.meta_path.insert(
        0, _ImportHook(lambda name: name.startswith("nixl_") and name.endswith("._api"), after=_slower)
    )
if os.environ.get(NO_KV_CORE_PINNING):
    sys.meta_path.insert(0, _ImportHook(lambda name: name == "vllm.platforms.cpu", after=_forget_numa_topology))
if os.environ.get(WAIT_US):
    _sleeper = _sleep_between_looks(int(os.environ[WAIT_US]))
    sys.meta_path.insert(0, _ImportHook(lambda name: name.endswith(".shm_broadcast"), after=_sleeper))

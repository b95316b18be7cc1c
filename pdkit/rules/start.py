"""Rules about what a start needs: time, an image that runs there, files, caches of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pdkit.facts.flags import flag_table
from pdkit.paths import expand
from pdkit.plan.cost import PACES, expected_cost, slurm_seconds
from pdkit.plan.role import RolePlan
from pdkit.rules.given import given_args, given_env
from pdkit.rules.rule import Case, Hit, rule

ENGINE_VARIABLE = "VLLM_ENGINE_READY_TIMEOUT_S"
ENGINE_SECONDS = 600
"""vLLM's default wait for its engine processes (vllm 0.31 envs.py:27)."""


@rule(
    "PD059",
    "Every time-out is longer than the start",
    "Cold weights and first compilation have taken longer than the limit: 370 s of warm-up against 300, and healthy "
    "jobs died (InferenceX#1643, TensorRT-LLM#18372, vime#90). A job that ends within its gate has proved nothing.",
)
def timeouts_outlast_the_start(case: Case) -> Iterator[Hit]:
    """Readiness, vLLM's own wait and the job's limit, against the expected start and gate."""
    cost, infra = expected_cost(case.plan), case.plan.recipe.infra
    start = cost.startup_minutes * 60
    if infra.ready_timeout_seconds < start:
        yield Hit(
            message=f"ready_timeout_seconds {infra.ready_timeout_seconds} is shorter than the expected start of "
            f"{start:.0f} s ({cost.startup_source})",
            path=("infra", "ready_timeout_seconds"),
            fix="leave it out, or give twice the expected start",
            severity="error" if infra.ready_timeout_seconds < start / 2 else "warning",
        )
    for role in case.plan.roles.values():
        yield from _engine_timeouts(case, role)
    limit = slurm_seconds(case.plan.recipe.cluster.time_limit) / 60
    if limit < cost.startup_minutes + cost.gate_minutes:
        yield Hit(
            message=f"time_limit {case.plan.recipe.cluster.time_limit} is shorter than the expected start of "
            f"{cost.startup_minutes:.0f} min and gate of {cost.gate_minutes:.0f} min",
            path=("cluster", "time_limit"),
            fix=f"raise it to {2 * (cost.startup_minutes + cost.gate_minutes):.0f} minutes, or raise gate.concurrency",
            severity="warning",
        )


def _engine_timeouts(case: Case, role: RolePlan) -> Iterator[Hit]:
    """Of one engine; where its weights do not even fit PD005 has said so."""
    if role.memory is None or role.memory.kv_cache_gib < 0:
        return
    pace = PACES[case.plan.hardware.device]
    start = pace.startup_seconds + role.memory.weights_gib / pace.weights_gib_s
    given = given_env(role).get(ENGINE_VARIABLE)
    reads = ENGINE_VARIABLE in flag_table(case.plan.recipe.engine.vllm).env
    seconds = int(given) if given and given.isdecimal() else ENGINE_SECONDS
    if reads and seconds < start:
        yield Hit(
            message=f"{role.role}: vLLM waits {seconds} s for its engines ({ENGINE_VARIABLE}), the expected start is "
            f"{start:.0f} s",
            path=case.where(role.role, "env", ENGINE_VARIABLE),
            fix=f"set {ENGINE_VARIABLE} to {2 * start:.0f}",
            severity="warning",
        )
    for one in given_args(role):
        if one.name == "distributed-timeout-seconds" and isinstance(one.value, int) and one.value < start:
            yield Hit(
                message=f"{role.role}: ranks that load more slowly than others are given up after {one.value} s, the "
                f"expected start is {start:.0f} s",
                path=case.where(role.role, "args", one.key),
                fix="leave it out, or give twice the expected start",
                severity="warning",
            )


ARCHITECTURES = {
    "x86_64": re.compile(r"(?<![a-z0-9])(amd64|x86[-_]?64|x64)(?![a-z0-9])"),
    "aarch64": re.compile(r"(?<![a-z0-9])(arm64|aarch64|sbsa)(?![a-z0-9])"),
}
"""How a tag or file name says for which CPU an image is."""


@rule(
    "PD060",
    "The image runs on the nodes' CPUs",
    "Grace nodes are aarch64; an image for x86_64 is pulled, unpacked and then dies with `exec format error` on every "
    "node (the login node is often x86_64, so a test there says nothing).",
)
def image_fits_the_cpu(case: Case) -> Iterator[Hit]:
    """The architecture that an image's name tells, against the hardware's."""
    have = case.plan.hardware.architecture
    for part in ("engine", "infra"):
        image = getattr(case.plan.recipe, part).image or ""
        other = [name for name, pattern in ARCHITECTURES.items() if name != have and pattern.search(image.lower())]
        if have and other and not ARCHITECTURES[have].search(image.lower()):
            yield Hit(
                message=f"`{image}` is for {other[0]}, the nodes of {case.plan.hardware.name} are {have}",
                path=(part, "image"),
                fix=f"use the tag for {have}, or one for several architectures",
            )


@rule(
    "PD061",
    "The image is written as Pyxis reads it, and names one build",
    "Pyxis takes a file only with a `/` or `./` in front (pyxis#127) and a registry only before a `#` (pyxis#39); "
    "anything else is looked for on Docker Hub. A tag that moves gives prefill and decode other builds after a "
    "re-import, and NIXL's hash then refuses every request (vllm#29503).",
)
def image_is_one_build(case: Case) -> Iterator[Hit]:
    """Form and tag of both images."""
    for part in ("engine", "infra"):
        image = getattr(case.plan.recipe, part).image or ""
        fault, fix, sure = _image_fault(image)
        if fault:
            yield Hit(
                message=f"`{image}`: {fault}",
                path=(part, "image"),
                fix=fix,
                severity="error" if sure else "warning",
            )


def _image_fault(image: str) -> tuple[str, str, bool]:
    """(what is wrong, what to write, whether it is refused)."""
    file = image.endswith((".sqsh", ".squashfs", ".sqfs"))
    if file and not image.startswith(("/", "./", "../")):
        return "a file needs `/` or `./` in front, else it is looked for on Docker Hub", f"./{image}", True
    if not image or file or image.startswith(("/", "./", "../")):
        return "", "", False
    name = image.rpartition("://")[2]
    registry, slash, rest = name.partition("/")
    if slash and "." in registry and "#" not in name:
        return "enroot divides registry and image by `#`", f"{registry}#{rest}", False
    tag = name.rpartition("/")[2].partition(":")[2]
    if "@sha256" not in name and tag in ("", "latest", "nightly", "main"):
        return f"{tag or 'no tag'} is another build tomorrow", "name a release, or the digest", False
    return "", "", False


@rule(
    "PD065",
    "The gate's own files are there",
    "A run folder is rendered from them, long after a sweep has been planned.",
)
def gate_files_exist(case: Case) -> Iterator[Hit]:
    """Questions, worked examples and the twin's answers that the recipe names."""
    for key in ("data", "shots", "twin"):
        given = getattr(case.plan.recipe.gate, key)
        if given is not None and not Path(expand(given)).is_file():
            yield Hit(message=f"`gate.{key}`: no such file: {given}", path=("gate", key), fix="check the path")


CACHES = {
    "CUDA_CACHE_PATH", "DG_JIT_CACHE_DIR", "DG_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE", "TILELANG_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "VLLM_CACHE_ROOT",
    "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR", "XDG_CACHE_HOME",
}  # fmt: skip
"""Variables that say where compiled code is kept."""
CACHE_MOUNTS = re.compile(
    r"/(root|home/[^/]+)/\.(cache(/(vllm|flashinfer|deep_gemm|tilelang|torch_extensions))?|triton)"
)
"""Folders of the container in which engines keep compiled code by themselves; not those of models."""
OWN_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/local", "/localscratch", "/raid", "/nvme")  # noqa: S108
"""Beginnings of folders that each node has for itself."""


@rule(
    "PD066",
    "Nodes do not share a cache of compiled code",
    "Ranks that compile into one folder corrupt each other's files: crashes at a cold start, and wrong output "
    "(vllm#49165, flashinfer#4062, vllm#24601, SkyRL#2138).",
)
def caches_are_not_shared(case: Case) -> Iterator[Hit]:
    """Cache variables and mounts over a container's caches, on a job of several nodes."""
    if case.plan.nodes < 2:
        return
    for role in case.plan.roles.values():
        for name, folder in given_env(role).items():
            if name in CACHES and not folder.startswith(OWN_FOLDERS):
                yield Hit(
                    message=f"{role.role}: {name}={folder} may be one folder for all {case.plan.nodes} nodes",
                    path=case.where(role.role, "env", name),
                    fix="a folder of the node's own, such as /tmp/cache",
                    severity="warning",
                )
    for host, inside in case.plan.recipe.cluster.mounts.items():
        if CACHE_MOUNTS.fullmatch(inside.partition(":")[0].rstrip("/")) and not host.startswith(OWN_FOLDERS):
            yield Hit(
                message=f"{host} is mounted over {inside}, where all {case.plan.nodes} nodes then compile",
                path=("cluster", "mounts", host),
                fix="mount a folder of the node's own, or only the models' cache",
                severity="warning",
            )

"""An expanded srt-slurm recipe of schema 1 or 2 to neutral words, with the faults that its own tool lets pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pdkit.errors import Finding, RecipeError
from pdkit.interop import roles
from pdkit.interop.reading import Reading, as_int, dotted
from pdkit.interop.types import SrtBenchmark, SrtRecipe
from pdkit.recipe.source import Source

REFUSED = "PD122"
_TAG = re.compile(r":v?([0-9]+\.[0-9]+(?:\.[0-9]+)?[^\s:@-]*)(?:-[^\s:@]*)?$")
UNTAGGED = "0.1.dev"
"""What a build without git tags calls itself; it says nothing about the version."""
SLURM = ("account", "partition", "qos", "time_limit")
"""Settings of `slurm` that have a counterpart."""
ENDPOINTS = ("/v1/chat/completions", "/v1/completions")
_PLACEHOLDER = re.compile(r"\{[A-Za-z_]\w*\}")


@dataclass(frozen=True, slots=True)
class Read:
    """A recipe and what reading it found."""

    recipe: SrtRecipe
    reading: Reading


def read_recipe(variant: str, source: Source) -> Read:
    """Read one expanded recipe.

    Raises RecipeError: PD122 for an engine other than vLLM, PD121 and its like when no role is left to speak of.
    """
    reading = Reading(source)
    schema = _schema(reading)
    _refuse_other_engines(reading, schema)
    gpus_per_node = reading.count("resources", "gpus_per_node", default=4, least=1)
    found = roles.read_roles(reading, schema, gpus_per_node)
    if not found:
        raise RecipeError.of(*(reading.findings or [_nothing(reading)]))
    path = reading.text("model", "path") or ""
    if not path:
        reading.fault(("model", "path"), "`model.path` is missing", "name the model")
    from_hub = path.startswith("hf:")
    container = reading.text("model", "container") or reading.text("identity", "container", "image")
    reading.text("identity", "container", "image")
    model = path.removeprefix("hf:") or "unknown"
    recipe = SrtRecipe(
        schema=schema,
        variant=variant,
        name=reading.text("name") or "unnamed",
        model_path=model,
        from_hub=from_hub,
        served_name=roles.served_name(found) or model.rstrip("/").rsplit("/", 1)[-1],
        revision=reading.text("identity", "model", "revision"),
        repo=reading.text("identity", "model", "repo"),
        precision=reading.text("model", "precision"),
        container=container,
        dynamo=_dynamo(reading),
        vllm=_vllm(reading, container),
        gpu_type=(reading.text("resources", "gpu_type") or "unknown").lower(),
        gpus_per_node=gpus_per_node,
        roles=found,
        benchmark=_benchmark(reading),
        frontend=_frontend(reading),
        slurm={name: reading.raw("slurm", name) for name in SLURM if reading.has("slurm", name)},
        directives={name: reading.raw("sbatch_directives", name) for name in reading.mapping("sbatch_directives")},
        environment={name: roles.plain(reading.raw("environment", name)) for name in reading.mapping("environment")},
        mounts={host: reading.raw("container_mounts", host) for host in reading.mapping("container_mounts")},
        ready_timeout_seconds=_ready_timeout(reading),
        origin=source,
    )
    return Read(recipe, reading)


def _schema(reading: Reading) -> Literal[1, 2]:
    value = reading.raw("schema")
    if value is None:
        return 2 if reading.has("roles") else 1
    if value not in (1, 2):
        reading.fault(("schema",), f"srt-slurm has schemas 1 and 2, not {value!r:.40}", "write `schema: 2`")
    return 1 if value == 1 and not reading.has("roles") else 2


def _refuse_other_engines(reading: Reading, schema: Literal[1, 2]) -> None:
    """Only vLLM's recipes have a counterpart; srt-slurm takes a recipe that names no engine for one of SGLang."""
    named = False
    for kind, path in _engines(reading, schema):
        named = True
        if kind.lower() != "vllm":
            raise _not_vllm(reading, kind, path)
    if not named:
        raise _not_vllm(reading, "sglang, srt-slurm's default", ("backend",))


def _engines(reading: Reading, schema: Literal[1, 2]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every place that names an engine."""
    for name in ("backend", "engine"):
        whole = reading.raw(name) if isinstance(reading.source.data.get(name), str) else None
        kind, path = (whole, (name,)) if whole else (reading.text(name, "type"), (name, "type"))
        if kind is not None:
            yield str(kind), path
    for role in reading.mapping("roles") if schema == 2 else ():
        spec = reading.source.data["roles"][role]
        engine = spec.get("engine") if isinstance(spec, dict) else None
        kind = engine.get("type") if isinstance(engine, dict) else engine
        if kind is not None:
            yield str(kind), ("roles", role, "engine")


def _not_vllm(reading: Reading, kind: str, path: tuple[str, ...]) -> RecipeError:
    fix = "only recipes with `type: vllm` can be imported or checked"
    message = f"the engine of this recipe is {kind}; pdkit plans vLLM"
    return RecipeError.of(Finding(REFUSED, "error", message, reading.source.at(path), fix))


def _nothing(reading: Reading) -> Finding:
    fix = "give `resources` and `backend`, or `roles`"
    return Finding("PD121", "error", "no prefill, decode or aggregated workers", reading.source.at(()), fix)


def _frontend(reading: Reading) -> dict[str, Any]:
    """The router's settings; what is as pdkit does it counts as read, the rest stays to be noted."""
    found = reading.mapping("frontend")
    for name, value in (("type", "dynamo"), ("enable_multiple_frontends", False)):
        if found.get(name) == value:
            reading.raw("frontend", name)
    for path, value in ((("dynamo", "install"), False), (("benchmark", "backend"), "dynamo")):
        if reading.mapping(path[0]).get(path[1]) == value:
            reading.raw(*path)
    return found


def _dynamo(reading: Reading) -> str | None:
    """Dynamo's version; of a commit or a wheel whatever `identity` says of it."""
    stated = reading.text("identity", "frameworks", "dynamo")
    version = reading.text("dynamo", "version") or reading.text("dynamo", "source", "pypi")
    wheel = reading.text("dynamo", "wheel") or reading.text("dynamo", "source", "wheel")
    return version or stated or wheel


def _vllm(reading: Reading, container: str | None) -> str | None:
    """vLLM's version as `identity` states it, else out of the image's tag."""
    stated = reading.text("identity", "frameworks", "vllm")
    if stated and re.match(r"v?[0-9]+\.[0-9]+", stated) and not stated.startswith(UNTAGGED):
        return stated.removeprefix("v")
    match = _TAG.search(container or "") if "vllm-openai" in (container or "") else None
    return match[1] if match else None


def _ready_timeout(reading: Reading) -> int | None:
    if not reading.has("health_check"):
        return None
    attempts = reading.count("health_check", "max_attempts", default=180, least=1)
    return attempts * reading.count("health_check", "interval_seconds", default=10, least=1)


def _benchmark(reading: Reading) -> SrtBenchmark:
    """The load with the peer's defaults (srt-slurm c88ef731, benchmarks/sa_bench.py)."""
    kind = reading.text("benchmark", "type") or "manual"
    lengths = {}
    for name in ("isl", "osl"):
        lengths[name] = reading.count("benchmark", name, default=0, least=1) or None
        if kind == "sa-bench" and not reading.has("benchmark", name):
            reading.fault(("benchmark",), f"`benchmark.{name}` is missing", "sa-bench refuses to start without it")
    if kind == "sa-bench" and not reading.has("benchmark", "concurrencies"):
        reading.fault(("benchmark",), "`benchmark.concurrencies` is missing", "sa-bench refuses to start without it")
    endpoint = reading.mapping("benchmark").get("endpoint") or "/v1/completions"
    if endpoint in ENDPOINTS:  # any other stays to be noted
        reading.raw("benchmark", "endpoint")
    return SrtBenchmark(
        type=kind,
        isl=lengths["isl"],
        osl=lengths["osl"],
        concurrency=_concurrency(reading),
        range_ratio=reading.number("benchmark", "random_range_ratio", default=0.8),
        prompts_per_concurrency=reading.count("benchmark", "num_prompts_mult", default=10),
        warmup_per_concurrency=reading.count("benchmark", "num_warmup_mult", default=2),
        endpoint="chat" if "chat" in str(endpoint) else "completions",
        chat_template=reading.switch("benchmark", "use_chat_template", default=True),
        repeats=reading.count("benchmark", "repeat", default=1, least=1),
        request_rate=reading.text("benchmark", "req_rate") or "inf",
    )


def _concurrency(reading: Reading) -> tuple[int, ...]:
    """`4x8x16`, one number, or a list."""
    path = ("benchmark", "concurrencies")
    value = reading.raw(*path)
    if value is None:
        return ()
    parts = value if isinstance(value, list) else str(value).split("x")
    numbers = [as_int(part) for part in parts]
    for part, number in zip(parts, numbers, strict=True):
        if number is None or number < 1:
            what = "a placeholder that no sweep fills" if _PLACEHOLDER.search(str(part)) else "not a number from 1"
            fix = 'for example "4x8x16" or [4, 8, 16]'
            reading.fault(path, f"`{dotted(path)}` holds {part!r:.40}, {what}", fix)
    return tuple(dict.fromkeys(number for number in numbers if number and number > 0))

"""The command lines of the two load tools and the reading of their artifacts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pdkit.errors import MeasurementError
from pdkit.job.load_settings import LoadSettings
from pdkit.results.normalise import Measurements, from_aiperf, from_vllm_bench

PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
WARMUP_REPEAT = 50
"""Added to the repeat for the seed of a warm-up with prompts of its own."""


def artifacts_folder(run: Path, concurrency: int, repeat: int) -> Path:
    """Where the tool leaves what one repeat of a point is computed from."""
    return run / "load" / f"c{concurrency:04d}_r{repeat}"


def tool_argv(settings: LoadSettings, concurrency: int, repeat: int, folder: Path) -> list[str]:
    """The command that measures one point and leaves its artifacts in `folder`."""
    requests = settings.requests(concurrency)
    warmups = settings.warmup_per_concurrency * concurrency
    seed = settings.seed_of(concurrency, repeat)
    if settings.tool == "aiperf":
        return _aiperf(settings, concurrency, requests, warmups, seed, folder)
    return _vllm_bench(settings, concurrency, requests, 0 if settings.prefix_caching else warmups, seed, folder)


def warmup_argv(settings: LoadSettings, concurrency: int, repeat: int, folder: Path) -> list[str] | None:
    """The command that warms up first, where the measuring command cannot do it itself.

    `vllm bench serve --num-warmups` sends one and the same prompt, the first measured one. Where an engine caches
    prefixes that warms nothing, so a wave of other prompts goes first.
    """
    warmups = settings.warmup_per_concurrency * concurrency
    if settings.tool == "aiperf" or not settings.prefix_caching or not warmups:
        return None
    seed = settings.seed_of(concurrency, repeat + WARMUP_REPEAT)
    return _vllm_bench(settings, concurrency, warmups, 0, seed, folder)


def installed(settings: LoadSettings, environment: Mapping[str, str]) -> bool:
    """Whether the tool can be started: known before engines load for minutes and the gate asks for more."""
    return shutil.which(tool_argv(settings, 1, 1, Path())[0], path=environment.get("PATH")) is not None


def _vllm_bench(
    settings: LoadSettings, concurrency: int, requests: int, warmups: int, seed: int, folder: Path
) -> list[str]:
    command = list(settings.command or ("vllm", "bench", "serve"))
    options: dict[str, Any] = {
        "backend": "openai-chat" if settings.endpoint == "chat" else "openai",
        "base-url": settings.url,
        "endpoint": PATHS[settings.endpoint],
        "model": settings.model,
        "tokenizer": settings.tokenizer,
        "dataset-name": "random",
        "random-input-len": settings.isl - settings.shared_prefix,  # the prefix comes in front of it
        "random-output-len": settings.osl,
        # 0 is fixed here: lengths lie in [L(1-r), L(1+r)]. In the tools where they lie in [rL, L], 1 is fixed.
        "random-range-ratio": settings.random_range_ratio,
        "random-prefix-len": settings.shared_prefix,
        "num-prompts": requests,
        "max-concurrency": concurrency,
        "request-rate": "inf",
        "num-warmups": warmups,
        "seed": seed,
        "temperature": 0,
        "percentile-metrics": "ttft,tpot,itl,e2el",
        "metric-percentiles": "50,90,99",
        "result-dir": folder,
        "result-filename": "result.json",
    }
    flags = ["--ignore-eos", "--save-result", "--save-detailed", "--disable-tqdm"]
    return [*command, *_spelled(options), *flags]


def _aiperf(
    settings: LoadSettings, concurrency: int, requests: int, warmups: int, seed: int, folder: Path
) -> list[str]:
    command = list(settings.command or ("aiperf", "profile"))
    options: dict[str, Any] = {
        "model": settings.model,
        "tokenizer": settings.tokenizer,
        "url": settings.url,
        "endpoint-type": settings.endpoint,
        "isl": settings.isl,
        "isl-stddev": 0,
        "osl": settings.osl,
        "osl-stddev": 0,
        "concurrency": concurrency,
        "request-count": requests,
        # As many prompts as requests: aiperf would otherwise repeat 100 of them, and a prefix cache would hit.
        "num-dataset-entries": requests + warmups,
        "random-seed": seed,
        "ui": "none",
        "artifact-dir": folder,
    }
    if warmups:
        options |= {"warmup-request-count": warmups, "warmup-concurrency": concurrency}
    extra = ["--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0"]
    return [*command, *_spelled(options), *extra, "--streaming", "--use-server-token-count"]


def _spelled(options: Mapping[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def tool_environment(settings: LoadSettings, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of the tool's process."""
    environment = {**inherited, **settings.env, "PYTHONUNBUFFERED": "1"}
    if settings.tool == "aiperf":
        # aiperf 0.13 takes the path of a local tokenizer for a hub name when told to stay offline.
        environment.pop("HF_HUB_OFFLINE", None)
        environment.pop("TRANSFORMERS_OFFLINE", None)
    return environment


def read_artifacts(settings: LoadSettings, folder: Path) -> Measurements:
    """The measurements that the tool left in `folder`; an error names the file that is missing or cannot be read."""
    if settings.tool == "aiperf":
        summary, records = folder / "profile_export_aiperf.json", folder / "profile_export.jsonl"
        return _named(summary, lambda: from_aiperf(_bytes(summary), _bytes(records).splitlines()))
    result = folder / "result.json"
    return _named(result, lambda: from_vllm_bench(_bytes(result)))


def _named(path: Path, read: Callable[[], Measurements]) -> Measurements:
    try:
        return read()
    except MeasurementError as error:
        raise MeasurementError(error.message, at=error.at or str(path)) from None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise MeasurementError("the load tool left no such file", at=str(path)) from None

"""What the recipe of a run folder says about the gate and the sweep, as those two want it."""

from __future__ import annotations

import os
from pathlib import Path

from pdkit.job.deployment import Deployment
from pdkit.job.gate import GateSettings, fetch_data
from pdkit.job.gsm8k import load_accuracy
from pdkit.job.load import LoadSettings
from pdkit.job.ready import Ready


def gate_settings(deployment: Deployment, ready: Ready) -> GateSettings:
    """The gate as the recipe wants it; the data set is the run folder's, or the public one from the cache."""
    gate, folder = deployment.recipe.gate, deployment.folder / "accuracy"
    data, sha256 = folder / "questions.jsonl", None
    if gate.data is None:
        spec = load_accuracy().data["test"]
        data, sha256 = fetch_data(spec, cache_folder()), spec.sha256
    return GateSettings(
        base_url=deployment.url,
        model=deployment.model,
        protocol=gate.protocol,
        data=data,
        data_sha256=sha256,
        shots=folder / "shots.jsonl" if gate.shots else None,
        question_limit=gate.questions,
        concurrency=gate.concurrency or max(deployment.recipe.workload.concurrency),
        max_tokens=gate.max_tokens,
        floor=gate.floor,
        max_truncated_share=gate.max_truncated_share,
        max_empty_share=gate.max_empty_share,
        timeout_seconds=gate.timeout_seconds,
        twin=folder / "twin.jsonl" if gate.twin else None,
        lock_digest=deployment.lock_digest,
        boot_ids=ready.boot_ids,
        scored_by=gate.scored_by,
    )


def load_settings(deployment: Deployment) -> LoadSettings:
    """The sweep as the recipe wants it."""
    recipe, roles = deployment.recipe, deployment.plan["roles"]
    generating = roles.get("decode") or roles["agg"]
    load = recipe.workload
    return LoadSettings(
        tool=recipe.sweep.tool,
        tool_version=recipe.engine.vllm if recipe.sweep.tool == "vllm-bench" else "",
        url=deployment.url,
        endpoint=recipe.sweep.endpoint,
        model=deployment.model,
        tokenizer=generating["model_path"],
        concurrency=tuple(load.concurrency),
        isl=load.isl,
        osl=load.osl,
        shared_prefix=load.shared_prefix,
        template_tokens=load.template_tokens,
        prompts_per_concurrency=recipe.sweep.prompts_per_concurrency,
        warmup_per_concurrency=recipe.sweep.warmup_per_concurrency,
        random_range_ratio=recipe.sweep.random_range_ratio or 0.0,
        repeats=recipe.sweep.repeats,
        gpus=deployment.plan["gpus_allocated"],
        gpus_by_role={role: one["gpus_per_endpoint"] * one["endpoints"] for role, one in roles.items()},
        mtp=generating["mtp"],
        prefix_caching=any(recipe.settings(role).prefix_caching for role in recipe.roles()),
        rehearsal=deployment.rehearsal,
        metrics_urls=tuple(f"{worker.url}/metrics" for worker in deployment.generating()),
    )


def cache_folder() -> Path:
    """Where public data files are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pdkit"

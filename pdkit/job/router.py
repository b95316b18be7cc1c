"""What the router and the workers say about themselves: who is healthy, who is registered, which processes they are."""

from __future__ import annotations

import time
from typing import Any

import requests

from pdkit.job.deployment import Deployment, Worker

SECONDS = 5
"""Longest wait for an answer about health: a process that takes longer is as good as gone."""
BUSY_SECONDS = 30
"""Longest wait where the answer must be had: a router under load may be slow."""
JOIN_SECONDS = 5
"""Longest time in which a router that has registered everybody may still refuse requests."""
COMPONENTS = {"prefill": "prefill", "decode": "backend", "agg": "backend"}
"""The name of each role among Dynamo's components."""


def missing_parts(deployment: Deployment) -> list[str]:
    """Names of what is not there yet: engines by name, the frontend, the model, registrations."""
    missing = [worker.name for worker in deployment.workers if not _healthy(worker)]
    try:
        models = requests.get(f"{deployment.url}/v1/models", timeout=SECONDS).json().get("data", [])
        lost = unregistered(deployment, SECONDS)
    except (requests.RequestException, ValueError):
        return ["frontend0", *missing]
    if not any(model.get("id") == deployment.model for model in models):
        missing.append(f"model {deployment.model}")
    return [*missing, *(one for one in lost if one.removeprefix(REGISTRATION) not in missing)]


LOST_FIX = "leave the engines more CPU; files lose one for good after 10 s without, `infra.discovery: etcd` need not"
REGISTRATION = "registration of "


def unregistered(deployment: Deployment, timeout_seconds: float = BUSY_SECONDS) -> list[str]:
    """Engines that the router does not know, by name where the role has only one.

    File discovery loses engines that stall, alive as they are, for good. Raises requests.RequestException when the
    router does not answer.
    """
    seen = [one["component"] for one in _instances(deployment, timeout_seconds)]
    found = []
    for role in dict.fromkeys(worker.role for worker in deployment.workers):
        names = [worker.name for worker in deployment.workers if worker.role == role]
        lost = len(names) - seen.count(COMPONENTS[role])
        if lost > 0:
            found.append(f"{REGISTRATION}{names[0] if len(names) == 1 else f'{lost} of {len(names)} {role} engines'}")
    return found


def boot_ids(deployment: Deployment) -> tuple[str, ...]:
    """Identities of the processes: what each wrote at its start, and what the router has registered.

    Raises requests.RequestException when the router does not answer: nobody must be taken for gone then.
    """
    files = (deployment.folder / "boot" / name for name in deployment.steps)
    started = [f"{file.name}={file.read_text(encoding='utf-8').strip()}" for file in files if file.is_file()]
    registered = sorted(f"instance={one['instance_id']}" for one in _instances(deployment, BUSY_SECONDS))
    return (*started, *registered)


def _instances(deployment: Deployment, timeout_seconds: float) -> list[dict[str, Any]]:
    answer = requests.get(f"{deployment.url}/health", timeout=timeout_seconds).json()
    listed: list[dict[str, Any]] = answer.get("instances", [])
    return [one for one in listed if one.get("endpoint") == "generate"]


def _healthy(worker: Worker) -> bool:
    try:
        return bool(requests.get(f"{worker.url}/health", timeout=SECONDS).status_code == requests.codes.ok)
    except requests.RequestException:
        return False


def refusal(deployment: Deployment, body: dict[str, Any], timeout_seconds: float) -> str:
    """Why a completion was not answered, or nothing.

    A router that lists the model answers 404 or 503 until it has joined both roles, some tenths of a second later.
    """
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        try:
            answer = requests.post(f"{deployment.url}/v1/completions", json=body, timeout=timeout_seconds)
        except requests.RequestException as error:
            return str(error)
        if answer.status_code == requests.codes.ok:
            return ""
        joining = answer.status_code in (requests.codes.not_found, requests.codes.unavailable)
        if not joining or time.monotonic() > deadline:
            return f"HTTP {answer.status_code} {answer.text[:200]}"
        time.sleep(0.5)

"""An srt-slurm recipe in neutral words to the data of a pdkit recipe, with places and notes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from pdkit.facts.flags import FlagTable, flag_table, known_versions, lookup
from pdkit.facts.hardware import HardwareFacts, hardware_facts
from pdkit.facts.models import known_models, model_facts
from pdkit.interop.draft import Draft
from pdkit.interop.reading import dotted
from pdkit.interop.settings import Settings
from pdkit.interop.types import SrtRecipe
from pdkit.interop.workload import put_workload
from pdkit.plan.placement import DoesNotSpreadError, place
from pdkit.recipe.owned import OWNED_FLAGS, flag_name
from pdkit.recipe.schema import ClusterSpec, InfraSpec
from pdkit.recipe.yaml_marks import Path

HARDWARE = {"gb300": "gb300-nvl72", "gb200": "gb200-nvl72"}
"""The peer's `gpu_type` that pdkit has facts of a rack for; the rest is `generic`."""
_VERSION = re.compile(r"v?[0-9]+\.[0-9]+")
DROPPED = {
    "frontend.args": "an import leaves the router's options to you: say them as infra.frontend_args",
    "frontend.env": "pdkit's router takes no variables of its own",
    "frontend": "pdkit starts Dynamo's frontend alone, without a balancer before it",
    "setup_script": "pdkit runs no script in the container: build it into the image",
    "srun_options": "pdkit's steps take no further srun options",
    "dynamo.request_plane": "pdkit's request plane is TCP",
    "dynamo": "pdkit installs nothing: the image must hold Dynamo",
    "backend.mooncake_kv_store": "pdkit starts no Mooncake master",
    "services": "pdkit starts etcd and NATS on the first node, and no other services",
    "infra": "pdkit starts etcd and NATS on the first node",
    "backend.kv_events_config": "pdkit routes without KV events",
    "backend.dp_launch_mode": "pdkit starts one process per node, as per_node does",
    "engine.dp_launch_mode": "pdkit starts one process per node, as per_node does",
    "resources": "pdkit places endpoints on as few nodes as they fit",
    "backend.allow_prefill_decode_colocation": "pdkit places endpoints on as few nodes as they fit anyway",
    "benchmark": "pdkit's load has no such setting",
    "identity": "it tells about the original and changes nothing",
    "model.precision": "it tells about the checkpoint and changes nothing",
}
"""Why a part has no counterpart, by the longest beginning of its dotted name."""
DEFAULTS = {name: DROPPED[name.partition(".")[0]] for name in ("dynamo.install", "frontend.enable_multiple_frontends")}
"""Switches that are on where the original leaves them out, and have no counterpart."""
SILENT = ("identity", "model.precision", "description", "lock", "schema")
"""Parts that say nothing about the deployment."""


def convert(recipe: SrtRecipe) -> Draft:
    """The draft of a pdkit recipe; what `Reading` has not read is noted by the caller."""
    draft = Draft(recipe.origin)
    draft.put(("schema",), 1, ())
    draft.put(("name",), _name(recipe.name), ("name",))
    facts = facts_of(recipe)
    draft.put(("model", "facts"), facts or recipe.repo or recipe.model_path, ("model", "path"))
    if facts is None:
        why = "pdkit has no facts for this model: memory and block sizes cannot be planned until `model.facts` "
        draft.note("changed", ("model", "path"), why + "names its config.json")
    draft.put(("model", "path"), recipe.model_path, ("model", "path"))
    if not recipe.from_hub:
        draft.note("changed", ("model", "path"), "srt-slurm looks the alias up and mounts it; give the path itself")
    if recipe.revision and recipe.from_hub:
        draft.put(("model", "revision"), recipe.revision, ("identity", "model", "revision"))
    if recipe.served_name != recipe.model_path.rstrip("/").rsplit("/", 1)[-1]:
        draft.put(("model", "served_name"), recipe.served_name, ("model", "path"))
    for what, why in DEFAULTS.items():
        *parents, last = what.split(".")
        if last not in _mapping(recipe.origin.data, parents):
            draft.note("dropped", (*parents, last), f"srt-slurm's default is true; {why}", value=True)
    table = _put_engine(draft, recipe)
    hardware = _put_hardware(draft, recipe)
    model = model_facts(facts, "") if facts else None
    for role in recipe.roles.values():
        Settings(draft, role, recipe.environment, model=model, hardware=hardware, table=table).fill()
        if str(role.flags.get("served-model-name", recipe.served_name)) != recipe.served_name:
            where = (*role.path, role.flag_keys["served-model-name"])
            draft.note("changed", where, f"pdkit gives every role one name: {recipe.served_name}")
    put_workload(draft, recipe)
    _put_cluster(draft, recipe)
    _note_nodes(draft, recipe)
    return draft


def _note_nodes(draft: Draft, recipe: SrtRecipe) -> None:
    """Nodes are not carried over: srt-slurm may spread workers, or hold nodes that no worker uses."""
    if any(role.topology.gpus != role.gpus for role in recipe.roles.values()):
        return  # a finding of its own
    wanted = [(role.role, role.topology, role.workers) for role in recipe.roles.values()]
    try:
        nodes = 1 + max(process.node for process in place(wanted, recipe.gpus_per_node))
    except DoesNotSpreadError:  # a rule says so
        return
    if nodes != recipe.nodes:
        why = f"srt-slurm asks for {recipe.nodes} nodes, pdkit places the same endpoints on {nodes}"
        draft.note("changed", ("resources",), why, "nodes")


def _mapping(data: Any, path: list[str]) -> dict[str, Any]:
    """The mapping at a path; empty when something else stands there."""
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def facts_of(recipe: SrtRecipe) -> str | None:
    """The name of the facts of a recipe's model, None when pdkit has none."""
    for text in (recipe.repo, recipe.model_path, recipe.served_name):
        last = (text or "").rstrip("/").rsplit("/", 1)[-1].lower()
        found = next((name for name in known_models() if last.startswith(name)), None)
        if found:
            return found
    return None


def _name(text: str) -> str:
    """A name as recipes allow it: letters, digits, `.`, `_` and `-`, at most 80."""
    return re.sub(r"[^a-zA-Z0-9._-]+", "-", text).strip("-._")[:80] or "unnamed"


def _put_engine(draft: Draft, recipe: SrtRecipe) -> FlagTable:
    version = recipe.vllm
    if version is None:
        names = {name for role in recipe.roles.values() for name in role.flags if flag_name(name) not in OWNED_FLAGS}
        version = _fitting_version(frozenset(names))
        why = f"vLLM's version is not told; {version} knows these flags best"
        draft.note("added", ("model", "container"), why, "engine.vllm")
    draft.put(
        ("engine", "vllm"), version, ("identity", "frameworks", "vllm") if recipe.vllm else ("model", "container")
    )
    told = recipe.dynamo if recipe.dynamo and _VERSION.match(recipe.dynamo) else None
    newest = f"{known_versions('dynamo')[-1]}.0.dev0"
    draft.put(("engine", "dynamo"), told or newest, ("dynamo",))
    if told is None:
        why = f"Dynamo's version is not told; {newest} stands in for {recipe.dynamo or 'it'}"
        draft.note("changed", ("dynamo",), why, "engine.dynamo")
    if recipe.container:
        draft.put(("engine", "image"), recipe.container, ("model", "container"))
    return _table(version)


@lru_cache(maxsize=256)
def _fitting_version(names: frozenset[str]) -> str:
    """The newest vLLM that knows the most of these flags, marked as not exact."""
    counts = {version: sum(lookup(name, _table(version)) is not None for name in names) for version in known_versions()}
    best = max(counts.values())
    return next(version for version in reversed(counts) if counts[version] == best) + ".0.dev0"


@lru_cache(maxsize=64)
def _table(version: str) -> FlagTable:
    return flag_table(version)


def _put_hardware(draft: Draft, recipe: SrtRecipe) -> HardwareFacts:
    name = HARDWARE.get(recipe.gpu_type, "generic")
    where: Path = ("resources", "gpu_type")
    draft.put(("hardware", "facts"), name, where)
    facts = hardware_facts(name, "")
    if recipe.gpus_per_node != facts.gpus_per_node:
        draft.put(("hardware", "gpus_per_node"), recipe.gpus_per_node, ("resources", "gpus_per_node"))
    if name == "generic":
        draft.put(("hardware", "nodes"), max(1, recipe.nodes), where)
        why = f"pdkit has no facts of a {recipe.gpu_type} machine: say hardware.gpu_memory_gib"
        draft.note("changed", where, why)
    return facts


def _put_cluster(draft: Draft, recipe: SrtRecipe) -> None:
    for name in ("account", "partition", "qos", "time_limit"):
        if recipe.slurm.get(name) not in (None, getattr(ClusterSpec(), name)):
            draft.put(("cluster", name), str(recipe.slurm[name]), ("slurm", name))
    for name, value in recipe.directives.items():
        where = ("sbatch_directives", name)
        if name == "segment":
            draft.put(("cluster", "segment"), int(value) if str(value).isdigit() else value, where)
        elif name in ("account", "partition", "qos"):
            draft.put(("cluster", name), str(value), where)
        else:
            draft.put(("cluster", "directives", name), value, where)
    for host, container in recipe.mounts.items():
        draft.put(("cluster", "mounts", host), container, ("container_mounts", host))
    if recipe.ready_timeout_seconds not in (None, InfraSpec().ready_timeout_seconds):
        draft.put(("infra", "ready_timeout_seconds"), recipe.ready_timeout_seconds, ("health_check", "max_attempts"))


def why_dropped(path: Path) -> str | None:
    """Why a part that nothing has read has no counterpart; None for what says nothing about the deployment."""
    name = dotted(path)
    if any(name == one or name.startswith(f"{one}.") for one in SILENT):
        return None
    found = [one for one in DROPPED if name == one or name.startswith(f"{one}.")]
    return DROPPED[max(found, key=len)] if found else "no counterpart in a pdkit recipe"

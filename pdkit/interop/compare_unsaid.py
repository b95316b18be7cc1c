"""Parts of an srt-slurm recipe that no plan holds: scripts, routers, extra load settings. They have rows, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pdkit.interop.compare_rows import Group, Row, row
from pdkit.interop.compare_sides import Side
from pdkit.interop.types import Note
from pdkit.recipe.owned import OWNED_ENV, flag_name
from pdkit.recipe.schema import ROLES, GateSpec

SHOWN = frozenset({
    "benchmark.num_warmup_mult", "benchmark.random_range_ratio", "benchmark.repeat", "model.path", "nodes", "workload",
})  # fmt: skip
"""Notes about settings that are compared as such."""
ADDRESSES = frozenset({"data-parallel-address", "data-parallel-rpc-port", "master-addr", "master-port"})
GROUPS: dict[str, Group] = {"benchmark": "benchmark", "resources": "topology"}
"""The group of a part by the first word of its name; all else is software."""


def unsaid(left: Side, right: Side) -> Iterator[Row]:
    """What an original says and the plan has no place for, on either side; nothing of it is passed over."""
    ours, theirs = _notes(left), _notes(right)
    for what in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(what), theirs.get(what)
        note = one or other
        if note is None or _off(note):
            continue
        role, group = place_of(what)
        shown = (None if part is None else part.value or "left out" for part in (one, other))
        yield row(group, what, *shown, role=role, why=note.why, effect=_effect(what))
    here, there = ({(one.code, one.message) for one in side.faults} for side in (left, right))
    for code, message in sorted(here | there):
        sides = (message if (code, message) in found else None for found in (here, there))
        yield row("software", f"fault {code}", *sides, why="the recipe may not start as it stands")


def _notes(side: Side) -> dict[str, Note]:
    return {note.what: note for note in side.notes if note.kind != "added" and note.what not in SHOWN}


def _off(note: Note) -> bool:
    """A switch that is off: srt-slurm gives no flag for it."""
    return note.kind == "changed" and note.value == "false" and place_of(note.what)[1] == "flags"


def place_of(what: str) -> tuple[str, Group]:
    """The role and the group of a part, by its dotted name: `backend.vllm_config.decode.seed` is a flag of decode."""
    words = what.replace("_environment", ".env", 1).split(".")
    role = next((str(one) for one in ROLES if one in words), "agg" if "aggregated" in words else "")
    if role and words[0] in ("backend", "roles"):
        return role, "environment" if "env" in words else "flags"
    if role and words[0] == role:
        return role, "sizing"
    return "", "environment" if words[0] == "environment" else GROUPS.get(words[0], "software")


def _effect(what: str) -> str:
    """Why two values do the same: both tools give every process an address and ports of its own."""
    last = what.rpartition(".")[2]
    own = OWNED_ENV.get(last, "")
    if flag_name(last) in ADDRESSES or own.endswith(("gives out ports", "own address")):
        return "an address or a port inside the job, which pdkit gives out itself"
    return ""


def settings_of_ours(left: Side, right: Side) -> Iterator[Row]:
    """What a recipe of pdkit says about the services beside the engines; an imported one has the defaults."""
    ours, theirs = left.plan.recipe, right.plan.recipe
    for name, why in (
        ("frontends", "how many routers share the load"),
        ("frontend_args", "how requests are routed"),
        ("discovery", "how processes find one another"),
    ):
        values: list[Any] = [getattr(one.infra, name) or None for one in (ours, theirs)]
        yield row("software", name.replace("_", " "), *values, why=why)
    events = (one.infra.events for one in (ours, theirs))
    yield row("software", "event plane", *events, why="how events travel")
    images = (one.infra.image for one in (ours, theirs))
    yield row("job", "image of etcd and NATS", *images, why="where servers come from")
    for part in ("http_port", "port_shift"):
        ports = (getattr(one.infra, part) for one in (ours, theirs))
        yield row("names", part.replace("_", " "), *ports, why="where clients connect")
    mounts = (one.cluster.mounts or None for one in (ours, theirs))
    yield row("software", "mounts", *mounts, why="files that the engines see")
    for name in GateSpec.model_fields if left.kind == right.kind == "pdkit" else ():
        yield row("accuracy", f"gate.{name}", *(getattr(one.gate, name) for one in (ours, theirs)), why="another proof")
    waits = (one.infra.ready_timeout_seconds for one in (ours, theirs))
    yield row("job", "seconds to be ready", *waits, why="when the job gives up")

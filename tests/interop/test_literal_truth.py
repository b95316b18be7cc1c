"""What pdkit renders for an imported recipe, against what srt-slurm's own orchestrator was seen to launch for it.

The captures are facts made by capture.py. Flag by flag and variable by variable, process by process; what may differ is
listed below with its reason, and anything else fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pdkit.facts.flags import flag_table
from pdkit.interop.compare_flags import effective
from pdkit.interop.srt import read_srt
from pdkit.interop.types import Imported
from pdkit.plan.plan import Plan, make_plan
from pdkit.render.command import Command
from pdkit.render.engine import commands
from pdkit.render.text import fill

HERE = Path(__file__).parent
PUBLISHED = HERE.parents[2] / "shared" / "published"
OWN = sorted((HERE / "captured" / "own").glob("*.json"))
CAPTURED = sorted((HERE / "captured" / "published").glob("*.json"))


@dataclass(frozen=True)
class Process:
    """One worker process, from either tool."""

    role: str
    node: int
    gpus: tuple[int, ...]
    flags: dict[str, Any]
    env: dict[str, str]


@dataclass(frozen=True)
class Case:
    """A pair of processes, for the reasons below."""

    imported: Imported
    plan: Plan
    theirs: Process
    ours: Process


Holds = Callable[[Case, Any, Any], bool]
"""Whether a difference (their value, our value; None when it is not there) is the one that the reason speaks of."""


def _ports(_case: Case, theirs: Any, ours: Any) -> bool:
    return all(one is None or 1024 <= int(one) < 65536 for one in (theirs, ours))


def _only_theirs(_case: Case, _theirs: Any, ours: Any) -> bool:
    return ours is None


def _only_ours(_case: Case, theirs: Any, _ours: Any) -> bool:
    return theirs is None


def _one_rank(case: Case, theirs: Any, ours: Any) -> bool:
    return ours is None and case.theirs.flags.get("data-parallel-size") == 1


def _port_both(case: Case, theirs: Any, ours: Any) -> bool:
    return _one_rank(case, theirs, ours) or (str(theirs).isdigit() and str(ours).isdigit())


def _request_plane(case: Case, theirs: Any, ours: Any) -> bool:
    return ours is None and case.ours.env["DYN_REQUEST_PLANE"] == theirs


def _revision(case: Case, theirs: Any, ours: Any) -> bool:
    return theirs is None and ours == case.imported.srt.revision


def _model_len(case: Case, theirs: Any, ours: Any) -> bool:
    return theirs is None and ours == case.plan.model.max_position_embeddings


def _seqs(case: Case, theirs: Any, ours: Any) -> bool:
    return theirs is None and ours == min(1024, case.ours.flags["max-num-batched-tokens"])


def _capture(case: Case, theirs: Any, ours: Any) -> bool:
    """The default of vLLM: twice the widest decode step, at most 1024 on Blackwell and a step's tokens."""
    flags, listed = case.ours.flags, case.theirs.flags.get("cudagraph-capture-sizes")
    if listed:
        return theirs is None and ours == max(listed)
    width = 1 + flags.get("speculative-config", {}).get("num_speculative_tokens", 0)
    return theirs is None and ours == min(2 * width * flags["max-num-seqs"], 1024, flags["max-num-batched-tokens"])


def _capture_list(case: Case, theirs: Any, ours: Any) -> bool:
    return ours is None and max(theirs) == case.ours.flags["max-cudagraph-capture-size"]


def _graph_mode(_case: Case, theirs: Any, ours: Any) -> bool:
    return theirs is None and ours == {"cudagraph_mode": "FULL_AND_PIECEWISE"}


def _no_prefix(case: Case, theirs: Any, ours: Any) -> bool:
    return theirs is None and ours is not case.plan.model.hybrid


def _one(_case: Case, theirs: Any, ours: Any) -> bool:
    return {theirs, ours} == {1, None}


def _dashes(_case: Case, theirs: Any, ours: Any) -> bool:
    return {key.replace("-", "_"): value for key, value in theirs.items()} == ours


def _connector(_case: Case, theirs: Any, ours: Any) -> bool:
    return theirs == {key: value for key, value in ours.items() if key != "kv_load_failure_policy"} and (
        ours["kv_load_failure_policy"] == "fail"
    )


def _master_port(_case: Case, theirs: Any, _ours: Any) -> bool:
    return theirs is None


def _default_log(_case: Case, theirs: Any, ours: Any) -> bool:
    return ours is None and theirs.startswith("info,")


def _gpus(case: Case, _theirs: Any, _ours: Any) -> bool:
    return case.theirs.gpus == case.ours.gpus


FLAGS: dict[str, tuple[str, Holds]] = {
    "cudagraph-capture-sizes": ("pdkit gives the largest size; the steps between are vLLM's", _capture_list),
    "compilation-config": ("vLLM's default, written out", _graph_mode),
    "data-parallel-address": ("with one rank there is nothing to coordinate", _one_rank),
    "data-parallel-rpc-port": ("ports are given out by each tool, and none for one rank", _port_both),
    "data-parallel-size": ("1 is vLLM's default; each tool may leave it out", _one),
    "dump-config-to": ("srt-slurm keeps the engine's configuration; pdkit reads it from its log", _only_theirs),
    "enable-prefix-caching": ("vLLM's default, written out: on, and off for hybrid models", _no_prefix),
    "kv-transfer-config": ("the short `nixl` leaves out the policy; pdkit writes vLLM's default", _connector),
    "master-port": ("pdkit gives every endpoint a port; srt-slurm leaves vLLM's, one per node", _master_port),
    "max-cudagraph-capture-size": ("vLLM's default, or the end of a list, written out", _capture),
    "max-model-len": ("the model's own length, written out", _model_len),
    "max-num-batched-tokens": ("vLLM's default, written out", lambda _, theirs, ours: (theirs, ours) == (None, 8192)),
    "max-num-seqs": ("vLLM's default, written out", _seqs),
    "pipeline-parallel-size": ("1 is vLLM's default; each tool may leave it out", _one),
    "request-plane": ("pdkit says it in the environment", _request_plane),
    "revision": ("srt-slurm compares identity.model.revision; pdkit gives it to vLLM", _revision),
    "speculative-config": (
        "srt-slurm c88ef731 puts dashes into the inner names of a dotted flag; pdkit writes the JSON key of vLLM",
        _dashes,
    ),
    "tensor-parallel-size": ("1 is vLLM's default; each tool may leave it out", _one),
}
OWN_ADDRESS = "pdkit names the node's own address, for nodes with several"
VARIABLES: dict[str, tuple[str, Holds]] = {
    "CUDA_VISIBLE_DEVICES": ("srt-slurm chooses GPUs by --device-ids; they are the same", _gpus),
    "DYN_EVENT_PLANE_HOST": (OWN_ADDRESS, _only_ours),
    "DYN_LOG": ("srt-slurm sets a filter of its own where the recipe sets none", _default_log),
    "DYN_SKIP_SGLANG_LOG_FORMATTING": ("speaks to another engine", _only_theirs),
    "DYN_SYSTEM_HOST": (OWN_ADDRESS, _only_ours),
    "DYN_SYSTEM_PORT": ("ports are given out by each tool; a headless process has none in pdkit", _ports),
    "DYN_TCP_RESPONSE_STREAM_HOST": (OWN_ADDRESS, _only_ours),
    "DYN_TCP_RPC_HOST": (OWN_ADDRESS, _only_ours),
    "DYN_VLLM_KV_EVENT_PORT": ("ports are given out by each tool; a headless process has none in pdkit", _ports),
    "HEAD_NODE_IP": ("nothing of vLLM or Dynamo reads it", _only_theirs),
    "VLLM_HOST_IP": (OWN_ADDRESS, _only_ours),
    "VLLM_NIXL_SIDE_CHANNEL_HOST": ("set without a connector too by srt-slurm", _only_theirs),
    "VLLM_NIXL_SIDE_CHANNEL_PORT": ("ports are given out by each tool; without a connector there is none", _ports),
    "VLLM_PORT": ("srt-slurm spreads vLLM's own scan for free ports; pdkit plans the ports", _only_theirs),
}


@pytest.mark.parametrize("facts", OWN, ids=lambda path: path.stem)
def test_an_imported_recipe_launches_the_same(facts: Path) -> None:
    captured = json.loads(facts.read_text())
    _same_launch(captured, _own()[captured["recipe"]])


@pytest.mark.parametrize("facts", CAPTURED, ids=lambda path: path.stem)
def test_a_published_recipe_launches_the_same(facts: Path) -> None:
    if not PUBLISHED.is_dir():
        pytest.skip("the published recipes are not beside this checkout")
    captured = json.loads(facts.read_text())
    named = {one.srt.name: one for path in PUBLISHED.rglob("*.yaml") for one in read_srt(path)}
    _same_launch(captured, named[captured["recipe"]])


def _own() -> dict[str, Imported]:
    return {one.srt.name: one for path in (HERE / "srt").glob("*.yaml") for one in read_srt(path)}


def test_every_own_recipe_has_been_captured() -> None:
    assert {json.loads(facts.read_text())["recipe"] for facts in OWN} == set(_own())
    assert len(CAPTURED) == 12


def test_every_allowed_difference_is_needed() -> None:
    """A reason that nothing needs any more would hide the next difference."""
    seen: set[str] = set()
    for facts in OWN:
        captured = json.loads(facts.read_text())
        seen |= {name for name, *_ in _differences(captured, _own()[captured["recipe"]])}
    assert (FLAGS.keys() | VARIABLES.keys()) - seen == set()


def test_a_difference_without_a_reason_fails() -> None:
    captured = json.loads((HERE / "captured" / "own" / "tep-cross-node.json").read_text())
    imported = _own()["tep-cross-node"]
    for change in (
        lambda decode: decode["flags"].append(["--stream-interval", "7"]),
        lambda decode: decode["env"].update(VLLM_SSM_CONV_STATE_LAYOUT="SD"),
        lambda decode: decode["flags"].remove(["--max-num-seqs", "48"]),
        lambda decode: decode["processes"][0].update(node=3),
    ):
        broken = json.loads(json.dumps(captured))
        change(broken["roles"]["decode"])
        with pytest.raises(AssertionError):
            _same_launch(broken, imported)


def _same_launch(captured: dict[str, Any], imported: Imported) -> None:
    found = [f"{role} {name}: {theirs!r}, we {ours!r}" for name, role, theirs, ours in _unexplained(captured, imported)]
    assert not found, "\n".join(found)


def _unexplained(captured: dict[str, Any], imported: Imported) -> Iterator[tuple[str, str, Any, Any]]:
    for name, case, theirs, ours in _differences(captured, imported):
        _, holds = {**FLAGS, **VARIABLES}.get(name, ("", lambda *_: False))
        if not holds(case, theirs, ours):
            yield name, f"{case.ours.role} on node {case.ours.node}", theirs, ours


def _differences(captured: dict[str, Any], imported: Imported) -> Iterator[tuple[str, Case, Any, Any]]:
    plan = make_plan(imported.loaded)
    assert plan.nodes == captured["nodes"]
    theirs, ours = list(_captured(captured, plan)), list(_rendered(plan))
    assert [(one.role, one.node, one.gpus) for one in theirs] == [(one.role, one.node, one.gpus) for one in ours]
    for one, other in zip(theirs, ours, strict=True):
        case = Case(imported, plan, one, other)
        for left, right in ((one.flags, other.flags), (one.env, other.env)):
            for name in sorted(left.keys() | right.keys()):
                if left.get(name) != right.get(name):
                    yield name, case, left.get(name), right.get(name)


def _captured(captured: dict[str, Any], plan: Plan) -> Iterator[Process]:
    table = flag_table(plan.recipe.engine.vllm)
    found = []
    for role, shared in captured["roles"].items():
        for one in shared["processes"]:
            words = [word for group in (*shared["flags"], *one["flags"]) for word in group]
            flags = effective(words, table)
            env = {**shared["env"], **one["env"]}
            # without --device-ids and the variable, a process has the whole node
            devices = flags.pop("device-ids", None) or env.get("CUDA_VISIBLE_DEVICES")
            whole = range(plan.hardware.gpus_per_node)
            gpus = _numbers(devices) if devices is not None else tuple(whole)
            found.append(Process(role, one["node"], gpus, _without_names(flags), env))
    yield from sorted(found, key=_order)


def _numbers(devices: Any) -> tuple[int, ...]:
    text = ",".join(map(str, devices)) if isinstance(devices, list) else str(devices)
    return tuple(map(int, text.split(",")))


def _rendered(plan: Plan) -> Iterator[Process]:
    table = flag_table(plan.recipe.engine.vllm)
    workers = {one.name: one for one in commands(plan) if one.kind == "worker"}
    found = []
    for place in plan.placement:
        command = workers[place.name]
        words = [_text(word) for flag in command.flags for word in flag.words()]
        found.append(
            Process(place.role, place.node, place.gpus, _without_names(effective(words, table)), _variables(command))
        )
    yield from sorted(found, key=_order)


def _order(process: Process) -> tuple[str, int, tuple[int, ...]]:
    return process.role, process.node, process.gpus


def _text(value: Any) -> str:
    return fill(value, lambda node: f"<node {node}>", "<output>")


def _variables(command: Command) -> dict[str, str]:
    return {one.name: _text(one.value) for one in command.env}


def _without_names(flags: dict[str, Any]) -> dict[str, Any]:
    """A served name is given twice by srt-slurm; a list of one name is a name."""
    name = flags.get("served-model-name")
    return {**flags, "served-model-name": name[0] if isinstance(name, list) else name}

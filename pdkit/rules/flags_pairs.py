"""Rules about flags beside each other: those that need another, exclude another, or do nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pdkit.plan.role import RolePlan
from pdkit.rules.given import given_args, option, switch
from pdkit.rules.rule import Case, Hit, rule
from pdkit.rules.versions import version


@dataclass(frozen=True, slots=True)
class Pair:
    """One flag and what must hold beside it."""

    flag: str
    """As vLLM spells it; a dotted name also means the key inside the whole mapping."""
    fails: Callable[[RolePlan, Any], bool]
    """Whether the flag's value does not go with the role's other settings."""
    message: str
    fix: str
    since: str = "0.0"
    """The vLLM from which it is so."""


PAIRS = (
    Pair(
        "structured-outputs-config.disable_any_whitespace",
        lambda role, on: on and option(role, "structured-outputs-config.backend") not in ("xgrammar", "guidance"),
        "only the backends xgrammar and guidance can, and vLLM refuses it with `auto` too",
        "set `structured-outputs-config.backend: xgrammar`",
    ),
    Pair(
        "structured-outputs-config.disable_additional_properties",
        lambda role, on: on and option(role, "structured-outputs-config.backend") != "guidance",
        "only the backend guidance can, and vLLM refuses it with `auto` too",
        "set `structured-outputs-config.backend: guidance`",
    ),
    Pair(
        "attention-backend",
        lambda role, _: option(role, "attention-config.backend") is not None,
        "vLLM refuses it beside `attention-config.backend`",
        "keep one of the two",
    ),
    Pair(
        "enable-flashinfer-autotune",
        lambda role, _: option(role, "kernel-config.enable_flashinfer_autotune") is not None,
        "vLLM refuses it beside `kernel-config.enable_flashinfer_autotune`",
        "keep one of the two",
    ),
    Pair(
        "enable-eplb",
        lambda role, on: on and not role.topology.ep,
        "experts can only be balanced where they are spread, and this topology has no +EP",
        "add +EP to the topology",
    ),
    Pair(
        "eplb-config.num_redundant_experts",
        lambda role, count: bool(count) and not switch(role, "enable-eplb"),
        "vLLM refuses redundant experts without `enable-eplb`",
        "set `enable-eplb: true`",
    ),
    Pair(
        "numa-bind-nodes",
        lambda role, _: not switch(role, "numa-bind"),
        "vLLM refuses it without `numa-bind`",
        "set `numa-bind: true`",
    ),
    Pair(
        "numa-bind-cpus",
        lambda role, _: not switch(role, "numa-bind"),
        "vLLM refuses it without `numa-bind`",
        "set `numa-bind: true`",
    ),
    Pair(
        "gms-shadow-mode",
        lambda role, on: on and option(role, "load-format") != "gms",
        "Dynamo refuses it without `load-format: gms`",
        "set `load-format: gms`",
    ),
    Pair(
        "enable-rl",
        lambda role, on: on and option(role, "logprobs-mode") != "processed_logprobs",
        "Dynamo refuses it without `logprobs-mode: processed_logprobs`",
        "set `logprobs-mode: processed_logprobs`",
    ),
    Pair(
        "connector",
        lambda *_: True,
        "Dynamo's worker parses it and then refuses it",
        "use `common.kv_transfer`",
    ),
)
"""Read in vllm 0.16 to 0.31 config/structured_outputs.py, config/parallel.py, engine/arg_utils.py; dynamo 1.6.1
vllm/args.py."""

IDLE = (
    Pair(
        "enable-log-requests",
        lambda _, on: bool(on),
        "Dynamo's worker sets it to false itself",
        "remove it; Dynamo's frontend logs requests",
    ),
    Pair(
        "disable-log-stats",
        lambda _, on: bool(on),
        "Dynamo's worker sets it to false itself",
        "remove it",
    ),
    Pair(
        "skip-tokenizer-init",
        lambda _, on: bool(on),
        "Dynamo's worker sets it to false itself",
        "remove it",
    ),
    Pair(
        "kv-events-config",
        lambda role, _: not role.settings.prefix_caching,
        "Dynamo drops it while prefix caching is off",
        "set `prefix_caching: true`, or remove it",
    ),
    Pair(
        "compilation-config",
        lambda role, _: bool(role.settings.enforce_eager),
        "`enforce_eager` switches compilation and graphs off",
        "remove one of the two",
    ),
    Pair(
        "eplb-config",
        lambda role, _: not switch(role, "enable-eplb"),
        "experts are balanced only with `enable-eplb`",
        "set `enable-eplb: true`, or remove it",
    ),
    Pair(
        "all2all-backend",
        lambda _, name: name in ("pplx", "naive"),
        "it was removed, and vLLM takes allgather_reducescatter instead",
        "name the backend that you want",
        since="0.25",
    ),
)
"""Read in dynamo 1.6.1 vllm/args.py:370-398 and vllm/handlers.py:2631, vllm 0.26 config/vllm.py:1162, parallel.py
(0.25 and 0.31 for the all2all backend)."""


@rule(
    "PD072",
    "Flags that need or exclude each other fit together",
    "vLLM checks some flags only against each other, after all ranks have started: `disable_any_whitespace` with the "
    "default backend, two places for one attention backend, EPLB without expert parallelism.",
)
def flags_fit_together(case: Case) -> Iterator[Hit]:
    """Pairs of flags that an engine refuses; JSON flags are looked into."""
    for role in case.plan.roles.values():
        for pair, key in _broken(case, role, PAIRS):
            yield Hit(
                message=f"{role.role}: `--{pair.flag}`: {pair.message}",
                path=case.where(role.role, "args", key),
                fix=pair.fix,
                key=True,
            )


@rule(
    "PD073",
    "Every flag has an effect",
    "A flag that is parsed and then overridden makes a recipe say what its deployment does not do: Dynamo's worker "
    "sets some of vLLM's flags itself (dynamo 1.6.1 vllm/args.py:370-378), eager mode drops the compilation config.",
)
def flags_have_an_effect(case: Case) -> Iterator[Hit]:
    """Free flags that the worker overrides, or that another setting makes idle."""
    for role in case.plan.roles.values():
        for pair, key in _broken(case, role, IDLE):
            yield Hit(
                message=f"{role.role}: `--{pair.flag}` has no effect: {pair.message}",
                path=case.where(role.role, "args", key),
                fix=pair.fix,
                severity="warning",
                key=True,
            )


def _broken(case: Case, role: RolePlan, pairs: tuple[Pair, ...]) -> Iterator[tuple[Pair, str]]:
    """Each pair that fails, with the key of the recipe that gives the flag or its parent."""
    given = {one.name.replace("-", "_"): one for one in given_args(role)}
    engine = version(case.plan.recipe.engine.vllm)
    for pair in pairs:
        if not engine.has(pair.since):
            continue
        name = pair.flag.replace("-", "_")
        key = next((one for one in (name, name.partition(".")[0]) if one in given), None)
        inside = [one for one in given if one.startswith(f"{name}.")]
        if key is None and not inside:
            continue
        found = given[key or inside[0]]
        value = found.value if key == name or inside else option(role, pair.flag)
        if value is not None and pair.fails(role, value):
            yield pair, found.key

"""Rules about free `args:` and `env:`: what the plan does not see, what contradicts it, what is written twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pdkit.facts.flags import flag_table, lookup
from pdkit.plan.role import RolePlan
from pdkit.recipe.owned import flag_name
from pdkit.rules.given import Given, given_args, given_env
from pdkit.rules.rule import Case, Hit, rule


@dataclass(frozen=True, slots=True)
class Unseen:
    """A free flag whose effect the plan does not compute."""

    effect: str
    """What it changes, as the end of a sentence."""
    when: Callable[[Any], bool] = bool
    """Values for which it matters."""
    severity: Literal["error", "warning"] = "warning"


def _beyond_one(value: Any) -> bool:
    return isinstance(value, int) and value > 1


def _spares(value: Any) -> bool:
    return isinstance(value, dict) and bool(value.get("num_redundant_experts"))


UNSEEN: dict[str, Unseen] = {
    "decode-context-parallel-size": Unseen("each GPU holds a part of the KV cache only", _beyond_one),
    "num-gpu-blocks-override": Unseen("the KV cache has this many blocks, whatever memory leaves"),
    "mamba-block-size": Unseen("GDN states are kept at other boundaries than blocks"),
    "mamba-cache-mode": Unseen("a request holds another number of state blocks", lambda mode: mode != "none"),
    "use-replayssm": Unseen("a request holds fewer state blocks with MTP (vllm 0.32)"),
    "kv-sharing-fast-prefill": Unseen("layers share KV, so blocks are smaller"),
    "cpu-offload-gb": Unseen("a part of the weights leaves the GPU"),
    "quantization": Unseen("the weights take another size than the facts say"),
    "quantization-config": Unseen("the weights take another size than the facts say"),
    "hf-overrides": Unseen("the model is another than the facts say"),
    "hf-config-path": Unseen("the model is another than the facts say"),
    "load-format": Unseen("the weights are random, and the gate cannot pass", lambda one: one == "dummy", "error"),
    "enable-lora": Unseen("adapters take memory and state blocks (vllm#49064)"),
    "eplb-config": Unseen("each GPU holds more experts", _spares),
    "eplb-config.num-redundant-experts": Unseen("each GPU holds more experts"),
    "performance-mode": Unseen("vLLM captures other graphs", lambda mode: mode != "balanced"),
    "optimization-level": Unseen("vLLM captures no graphs", lambda one: str(one).upper() in ("0", "O0")),
    "compilation-config.mode": Unseen("vLLM compiles nothing, and piecewise graphs go", lambda one: one in (0, "0")),
    "config": Unseen("flags come out of a file that no rule reads"),
}
"""By the flag's full name; others are taken to change nothing that the plan computes."""


@rule(
    "PD062",
    "The plan sees what decides sizes and capacity",
    "A flag under `args:` is handed on, not planned with: block size, KV cache, weights and graphs of the plan are "
    "then others than the engine's (aiconfigurator#1476 counted 1 GPU instead of 8 for context parallelism). "
    "`--kv-offloading-size` even replaces the KV connector (vllm 0.31 config/vllm.py:1131).",
)
def free_flags_are_planned(case: Case) -> Iterator[Hit]:
    """Free flags that change what the plan computes."""
    for role in case.plan.roles.values():
        for one in given_args(role):
            unseen = UNSEEN.get(one.name.replace("_", "-"))
            if unseen and unseen.when(one.value):
                yield _unplanned(case, role, one, unseen)
            if one.name == "kv-offloading-size" and role.kv_transfer is not None:
                yield Hit(
                    message=f"{role.role}: `{one.key}` replaces {role.kv_transfer.connector}, so no KV block arrives",
                    path=case.where(role.role, "args", one.key),
                    fix="remove it",
                )


def _unplanned(case: Case, role: RolePlan, one: Given, unseen: Unseen) -> Hit:
    return Hit(
        message=f"{role.role}: with `{one.key}: {one.value}` {unseen.effect}; the plan does not compute that",
        path=case.where(role.role, "args", one.key),
        fix="remove it, or accept this with a reason and trust only what the engine reports",
        severity=unseen.severity,
    )


GIVEN_OUT = {
    "VLLM_DP_RANK": "ranks", "VLLM_DP_RANK_LOCAL": "ranks", "VLLM_DP_SIZE": "ranks", "RANK": "ranks",
    "LOCAL_RANK": "ranks", "WORLD_SIZE": "ranks", "VLLM_DP_MASTER_IP": "addresses", "MASTER_ADDR": "addresses",
    "VLLM_LOOPBACK_IP": "addresses", "VLLM_DP_MASTER_PORT": "ports", "MASTER_PORT": "ports",
    "NVIDIA_VISIBLE_DEVICES": "GPUs", "HIP_VISIBLE_DEVICES": "GPUs", "ROCR_VISIBLE_DEVICES": "GPUs",
    "VLLM_CPU_KVCACHE_SPACE": "the KV cache", "DYN_KVBM_CPU_CACHE_GB": "the KV cache",
}  # fmt: skip
"""Variables by which an engine is told what the plan gives out."""
EQUAL_ON_ROLES = ("DYN_NAMESPACE", "DYN_NAMESPACE_WORKER_SUFFIX", "DYN_DISCOVERY_BACKEND")
"""Variables by which Dynamo's workers find each other."""


@rule(
    "PD063",
    "Variables do not contradict the plan",
    "One value for all processes of a role cannot be right for ranks, ports and addresses, which differ from process "
    "to process (dynamo#2706: a host computed once and exported to all); a namespace of one role only makes the "
    "router see prefill without decode.",
)
def variables_agree_with_the_plan(case: Case) -> Iterator[Hit]:
    """Free variables that the plan gives out itself, and those that must be the same on both roles."""
    for role in case.plan.roles.values():
        for name in role.settings.env:
            if name in GIVEN_OUT:
                yield Hit(
                    message=f"{role.role}: {name} is the same for all processes, the plan gives out {GIVEN_OUT[name]}",
                    path=case.where(role.role, "env", name),
                    fix="remove it",
                    key=True,
                )
    if case.pair is None:
        return
    prefill, decode = map(given_env, case.pair)
    for name in EQUAL_ON_ROLES:
        if prefill.get(name) != decode.get(name):
            yield Hit(
                message=f"{name}: prefill {prefill.get(name, 'unset')}, decode {decode.get(name, 'unset')}",
                path=case.where_either("env", name),
                fix="set it once, as `common.env`",
            )


@rule(
    "PD064",
    "A flag is written once",
    "`async_scheduling` in common and `no-async-scheduling` in a role are two entries for one flag: both reach the "
    "command line, and the last wins in silence. A JSON flag beside one of its dotted keys loses one of the two.",
)
def flags_are_written_once(case: Case) -> Iterator[Hit]:
    """Spellings of one flag within a role's settings, common's included."""
    table = flag_table(case.plan.recipe.engine.vllm)
    for role in case.plan.roles.values():
        spelled: dict[str, list[str]] = defaultdict(list)
        for key in role.settings.args:
            known = lookup(key, table)
            head, _, rest = (flag_name(key)).partition(".")
            name = known.name if known else head
            spelled[f"{name}.{rest.replace('-', '_')}" if rest else name].append(key)
        for name, keys in spelled.items():
            parent = spelled.get(name.partition(".")[0], []) if "." in name else []
            beside = [] if name.startswith("compilation-config.") else parent
            if len(keys) > 1 or beside:
                written = [*beside[:1], *keys]
                yield Hit(
                    message=f"{role.role}: {' and '.join(f'`{key}`' for key in written)} are one flag, `--{name}`",
                    path=case.where(role.role, "args", written[-1]),
                    fix="keep one of them, in vLLM's own spelling",
                    key=True,
                )

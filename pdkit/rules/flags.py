"""Rules about the free flags of a recipe: what the engine of its version takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pdkit.facts import flags
from pdkit.recipe.load import nearest
from pdkit.rules.rule import Case, Hit, rule


@rule(
    "PD016",
    "Every vLLM flag exists in this version",
    "The peer hands a misspelt flag on to 72 GPUs, where argparse refuses it after the job has started.",
)
def flags_are_known(case: Case) -> Iterator[Hit]:
    """Free `args` against the flags of the recipe's vLLM version."""
    table = flags.flag_table(case.plan.recipe.engine.vllm, case.source.at(("engine", "vllm")))
    for role in case.plan.roles.values():
        for name in role.settings.args:
            if flags.lookup(name, table) is not None:
                continue
            path = case.where(role.role, "args", name)
            elsewhere = flags.versions_with(name)
            if elsewhere:
                yield Hit(
                    message=f"{role.role}: vLLM {table.version} has no `--{name}`; known in {', '.join(elsewhere)}",
                    path=path,
                    fix="remove it, or name the version that has it in engine.vllm",
                    severity="error" if table.exact else "warning",
                    key=True,
                )
            else:
                yield Hit(
                    message=f"{role.role}: no known vLLM version has a flag `--{name}`",
                    path=path,
                    fix=nearest(name, table.flags) or "check the spelling",
                    key=True,
                )


@rule(
    "PD022",
    "Every flag value is one that vLLM takes",
    "A wrong choice or type is refused by argparse after the job has started, on all its GPUs; a flag of vLLM's HTTP "
    "server is refused by Dynamo's workers, which start none.",
)
def flag_values_fit(case: Case) -> Iterator[Hit]:
    """Type, choices and negation of free `args`, where the flag is known."""
    table = flags.flag_table(case.plan.recipe.engine.vllm, case.source.at(("engine", "vllm")))
    for role in case.plan.roles.values():
        for name, value in role.settings.args.items():
            flag = flags.lookup(name, table)
            fault = _value_fault(flag, value) if flag and "." not in name else ""
            if fault:
                yield Hit(
                    message=f"{role.role}: `--{name}`: {fault}",
                    path=case.where(role.role, "args", name),
                    fix="see `vllm serve --help` of this version",
                    severity="error" if table.exact else "warning",
                )


def _value_fault(flag: flags.Flag, value: Any) -> str:
    if flag.server:
        return "a flag of vLLM's HTTP server, which Dynamo's workers do not have"
    if flag.type == "bool":
        return _switch_fault(flag, value)
    if isinstance(value, bool):
        return f"it takes a value ({flag.type}), not {str(value).lower()}"
    if flag.type in ("int", "float") and not isinstance(value, (int, float)) and not _is_number(str(value)):
        return f"it takes a number, not {value!r:.40}"
    if flag.choices and isinstance(value, (str, int, float)) and not flag.allows(value):
        return f"{value!r:.40} is not one of {', '.join(map(str, flag.choices))}"
    return ""


def _switch_fault(flag: flags.Flag, value: Any) -> str:
    if not isinstance(value, bool):
        return f"a switch takes true or false, not {value!r:.40}"
    return "" if value or flag.negatable else "this switch can only be given or left out, it has no --no- form"


def _is_number(text: str) -> bool:
    """Also `16k` and `1.5M`, which vLLM takes for some counts."""
    return text.rstrip("kKmMgGtT").replace(".", "", 1).removeprefix("-").isdigit()

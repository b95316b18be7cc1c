"""Rules about the names and values of flags: what the engines of the recipe's versions take."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

from pdkit.facts.flags import Flag, known_versions, lookup, removed_or_renamed, versions_with
from pdkit.rules.engines import Engines, engines_of
from pdkit.rules.rule import Case, Hit, rule
from pdkit.rules.versions import version

DTYPES = {
    "dtype": "dtype",
    "kv_cache_dtype": "kv-cache-dtype",
    "mamba_cache_dtype": "mamba-cache-dtype",
    "mamba_ssm_cache_dtype": "mamba-ssm-cache-dtype",
}
"""Settings with a place of their own whose values vLLM compares with a list, and their flags."""


@rule(
    "PD016",
    "Every flag exists in this version",
    "The peer hands a misspelt flag on to 72 GPUs, where argparse refuses it after the job has started. A worker takes "
    "the flags of vLLM's engine and Dynamo's own (dynamo#6554, dynamo#8693, unsloth-zoo#1210, kserve#1005).",
)
def flags_are_known(case: Case) -> Iterator[Hit]:
    """Free `args` against the flags of vLLM and of Dynamo's worker, of a build between two releases against both."""
    engines = engines_of(case)
    for role in case.plan.roles.values():
        for name in role.settings.args:
            if engines.flag(name) is not None:
                continue
            sure, message, fix = _absent(case, engines, name)
            if message:
                yield Hit(
                    message=f"{role.role}: {message}",
                    path=case.where(role.role, "args", name),
                    fix=fix,
                    severity="error" if sure else "warning",
                    key=True,
                )


def _absent(case: Case, engines: Engines, name: str) -> tuple[bool, str, str]:
    """(whether it is certain, message, fix) for a flag that no table has; no message where this version has it."""
    gone, elsewhere = removed_or_renamed(name), versions_with(name)
    if gone is not None and (gone.engine == "dynamo" or not elsewhere):
        engine = case.plan.recipe.engine
        has = version(engine.dynamo if gone.engine == "dynamo" else engine.vllm).has(gone.version)
        label = {"dynamo": "Dynamo", "vllm": "vLLM"}[gone.engine]
        if has is False:
            return False, "", ""  # it was still there
        message = f"{label} has no `--{name}` any more, since {gone.version}"
        return has is True, message, f"instead: {gone.instead}"
    if not elsewhere:
        names = [*engines.tables.worker.flags, *(one.name for one in engines.vllm[0].flags.values() if not one.server)]
        return True, f"no known vLLM version has a flag `--{name}`", near_or(name, names)
    fix = f"instead: {gone.instead}" if gone else "remove it, or name the version that has it in engine.vllm"
    message = f"{engines.vllm_name} has no `--{name}`; known in {spans(elsewhere)}"
    return engines.certain, message, fix


@rule(
    "PD022",
    "Every flag value is one that the engine takes",
    "A wrong choice or type is refused by argparse after the job has started, on all its GPUs; a flag of vLLM's HTTP "
    "server is refused by Dynamo's workers, which start none.",
)
def flag_values_fit(case: Case) -> Iterator[Hit]:
    """Type, choices and negation of free `args` where the flag is known, and the dtypes of the cache."""
    engines = engines_of(case)
    for role in case.plan.roles.values():
        given = [(("args", name), name, value) for name, value in role.settings.args.items() if "." not in name]
        dtypes = [((name,), flag, getattr(role.settings, name)) for name, flag in DTYPES.items()]
        for place, name, value in (*given, *(one for one in dtypes if one[2] is not None)):
            found = engines.judged(name, lambda flag, value=value: value_fault(flag, value))  # type: ignore[misc]
            if found:
                yield Hit(
                    message=f"{role.role}: `--{name}`: {found[0]}",
                    path=case.where(role.role, *place),
                    fix="see `vllm serve --help` of this version",
                    severity="error" if found[1] else "warning",
                )


@rule(
    "PD076",
    "Every flag of the frontend exists and fits",
    "Dynamo's frontend refuses what its parser does not know, when the engines have loaded; its router's flags changed "
    "with 1.4 (`router-durable-kv-events`, `router-reset-states` and `router-snapshot-threshold` are gone).",
)
def frontend_flags_fit(case: Case) -> Iterator[Hit]:
    """`infra.frontend_args` against the frontend of the recipe's Dynamo, and against what pdkit sets there itself."""
    table = engines_of(case).tables.frontend
    for name, value in case.plan.recipe.infra.frontend_args.items():
        path, flag, gone = ("infra", "frontend_args", name), lookup(name, table), removed_or_renamed(name)
        sure = table.exact
        if name.replace("_", "-") in ("http-host", "http-port"):
            yield Hit(message=f"pdkit sets `--{name}` itself", path=path, fix="use `infra.http_port`", key=True)
        elif flag is None and gone is not None and gone.engine == "dynamo":
            if version(case.plan.recipe.engine.dynamo).has(gone.version) is not False:
                message = f"Dynamo's frontend has no `--{name}` any more, since {gone.version}"
                fix = f"instead: {gone.instead}"
                yield Hit(message=message, path=path, fix=fix, severity="error" if sure else "warning", key=True)
        elif flag is None:
            message = f"the frontend of Dynamo {table.version} has no `--{name}`"
            fix = near_or(name, table.flags)
            yield Hit(message=message, path=path, fix=fix, severity="error" if sure else "warning", key=True)
        elif fault := value_fault(flag, value):
            fix = "see `python3 -m dynamo.frontend --help`"
            yield Hit(
                message=f"frontend: `--{name}`: {fault}", path=path, fix=fix, severity="error" if sure else "warning"
            )


def spans(versions: list[str]) -> str:
    """Versions in words, a run of several in a row as `0.16 to 0.27`."""
    known, runs = known_versions(), list[list[str]]()
    for one in versions:
        follows = bool(runs) and known.index(one) == known.index(runs[-1][-1]) + 1
        runs[-1:] = [[*runs[-1], one]] if follows else [*runs[-1:], [one]]
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def near_or(name: str, names: Iterable[str], otherwise: str = "check the spelling") -> str:
    """The nearest of many names as a hint; a list of hundreds would help nobody."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else otherwise


def value_fault(flag: Flag, value: Any) -> str:
    """Why the engine's parser would refuse a value; empty when it takes it."""
    if flag.server:
        return "a flag of vLLM's HTTP server, which Dynamo's workers do not have"
    if flag.type == "bool":
        return _switch_fault(flag, value)
    if isinstance(value, bool):
        return f"it takes a value ({flag.type}), not {str(value).lower()}"
    if flag.type in ("int", "float") and not isinstance(value, (int, float)) and not is_number(str(value)):
        return f"it takes a number, not {value!r:.40}"
    if flag.choices and isinstance(value, (str, int, float)) and not flag.allows(value):
        return f"{value!r:.40} is not one of {', '.join(map(str, flag.choices))}"
    return ""


def _switch_fault(flag: Flag, value: Any) -> str:
    if not isinstance(value, bool):
        return f"a switch takes true or false, not {value!r:.40}"
    return "" if value or flag.negatable else "this switch can only be given or left out, it has no --no- form"


def is_number(text: str) -> bool:
    """Also `16k` and `1.5M`, which vLLM takes for some counts."""
    return text.rstrip("kKmMgGtT").replace(".", "", 1).removeprefix("-").isdigit()

"""The rule about what stands inside JSON flags."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pdkit.facts.flags import Flag
from pdkit.plan.role import RolePlan
from pdkit.rules.engines import Engines, engines_of
from pdkit.rules.flags import is_number, near_or
from pdkit.rules.rule import Case, Hit, rule

TRUTH = ("true", "false", "1", "0", "yes", "no", "on", "off", "t", "f", "y", "n")
"""Words that vLLM's config classes read as a switch."""


class Fault(NamedTuple):
    """What is wrong inside a JSON flag."""

    text: str
    fix: str = "see the class of this flag in vllm/config/"


@rule(
    "PD071",
    "Every key inside a JSON flag exists and fits",
    "`--compilation-config`, `--attention-config` and their like are read by classes that refuse an unknown key or a "
    "wrong type at start-up, on all GPUs at once; a dotted boolean without its value is one of them. The extra keys of "
    "a KV connector are worse: nobody reads a misspelt one.",
)
def json_keys_fit(case: Case) -> Iterator[Hit]:
    """Mappings, JSON texts and dotted keys under `args`, and `kv_transfer.extra`."""
    engines = engines_of(case)
    for role in case.plan.roles.values():
        for name, value in role.settings.args.items():
            found = engines.judged(name, lambda flag, name=name, value=value: _fault(flag, name, value))  # type: ignore[misc]
            if found:
                fault, sure = found
                yield Hit(
                    message=f"{role.role}: `--{name}`: {fault.text}",
                    path=case.where(role.role, "args", name),
                    fix=fault.fix,
                    severity="error" if sure else "warning",
                )
        for key in _unread_keys(role, engines):
            yield Hit(
                message=f"{role.role}: no connector of {engines.vllm_name} reads `{key}`: it has no effect",
                path=case.where(role.role, "kv_transfer", "extra", key),
                fix=near_or(key, engines.vllm[0].connector_keys, "remove it"),
                severity="warning",
                key=True,
            )


def _unread_keys(role: RolePlan, engines: Engines) -> list[str]:
    """Keys for the connector that no connector reads; of a connector from elsewhere nothing is known."""
    known = {name for table in engines.vllm for name in table.connectors}
    if role.kv_transfer is None or role.kv_transfer.connector not in known:
        return []
    read = frozenset[str]().union(*(table.connector_keys for table in engines.vllm))
    return [key for key in role.kv_transfer.extra if read and key not in read]


def _fault(flag: Flag, name: str, value: Any) -> Fault | None:
    """The first thing that is wrong inside a flag's value."""
    if flag.type != "json" or flag.keys is None:
        return None
    path = [part.replace("-", "_") for part in name.strip().lstrip("-").split(".")[1:]]
    given: Any = value if path or not isinstance(value, str) else _mapping(value)
    for part in reversed(path):
        given = {part: given}
    if not isinstance(given, dict):
        return Fault(f"it takes a mapping, not {value!r:.40}")
    return next(_faults(given, flag.keys, ""), None)


def _mapping(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _faults(given: Mapping[str, Any], keys: Mapping[str, Any], inside: str) -> Iterator[Fault]:
    for key, value in given.items():
        entry, place = keys.get(key.removesuffix("+")), f"{inside}{key}"
        if entry is None:
            yield Fault(f"there is no key `{place}`", near_or(key, keys))
        elif isinstance(value, dict) and "keys" in entry:
            yield from _faults(value, entry["keys"], f"{place}.")
        elif value is not None and not _fits(entry["type"], value):
            yield Fault(f"`{place}` takes {WORDS[entry['type']]}, not {value!r:.40}")
        elif isinstance(value, str) and value not in (choices := entry.get("choices", (value,))):
            yield Fault(f"`{place}` is {value!r:.40}, not one of {', '.join(map(str, choices))}")


WORDS = {
    "bool": "true or false",
    "int": "a number",
    "float": "a number",
    "json": "a mapping",
    "str": "text",
    "list": "a list",
}


def _fits(kind: str, value: Any) -> bool:
    """Whether a config class reads a value as this kind; it also takes numbers and switches as text."""
    nested = isinstance(value, (dict, list))
    fits = {
        "bool": isinstance(value, bool) or (not nested and str(value).lower() in TRUTH),
        "int": isinstance(value, (bool, int, float)) or (not nested and is_number(str(value))),
        "json": isinstance(value, (dict, str)),
        "str": not nested,
        "list": not isinstance(value, dict),
    }
    return fits.get("int" if kind == "float" else kind, True)

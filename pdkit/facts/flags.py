"""Facts of engine flags by version: what vLLM and Dynamo take, in which release, and what became of the rest.

The tables beside this module are read from the engines' own sources, see docs/facts.md. Only the standard library is
used here, and one table is read at a time, so a check that needs no flags pays nothing for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from pdkit.errors import RecipeError
from pdkit.paths import facts_folder

FlagType = Literal["bool", "int", "float", "str", "json", "list"]
Engine = Literal["vllm", "dynamo"]
Part = Literal["frontend", "worker"]

_VERSION = re.compile(r"v?([0-9]{1,6})\.([0-9]{1,6})(?!\d)(?:\.\d+)*(.*)")
_RELEASE = re.compile(r"(?:\.?post\d+)?(?:\+(?!g[0-9a-f]{7})[\w.]+)?")
"""What may follow the numbers of a release: `.post1`, or a build such as `+cu129`; a commit (`+ga9a17e709`) is none."""
_FOLDED = frozenset({"linear-backend", "moe-backend", "sparse-indexer-topk-backend"})
"""vLLM lower-cases these values and reads a dash as an underscore before it compares them."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of an engine, in one version."""

    name: str
    """As the engine spells it, without dashes in front; write this on a command line, whatever the recipe spelled."""
    type: FlagType
    """`json` takes a JSON value or dotted keys, `list` takes several words, `int` of vLLM may also be spelled `16k`."""
    choices: tuple[str | int | float, ...] = ()
    """The accepted values; empty when any value of the type is accepted, or when it depends on the machine."""
    negatable: bool = False
    """Whether `--no-<name>` exists; a bool flag without it can only be given or left out."""
    server: bool = False
    """Whether it belongs to the HTTP server of `vllm serve`: Dynamo's workers refuse it."""
    keys: Mapping[str, Any] | None = None
    """What a JSON value may hold: key -> its `type`, `choices` and own `keys`; None when any key is accepted."""

    def allows(self, value: str | float) -> bool:
        """Whether `value` is among the choices, as the engine compares them."""
        folded = str(value).lower().replace("-", "_") if self.name in _FOLDED else str(value)
        return not self.choices or folded in map(str, self.choices)


@dataclass(frozen=True, slots=True)
class FlagTable:
    """The flags and environment variables of one version."""

    version: str
    """The release that the table was read from."""
    exact: bool
    """Whether the version that was asked for is this release or a patch of it; otherwise flags may differ."""
    flags: Mapping[str, Flag]
    env: frozenset[str] = frozenset()
    """Variables that this engine reads; one that ends in `_` is the prefix of a family."""
    connectors: tuple[str, ...] = ()
    """KV connectors: of vLLM all that it registers, of Dynamo those with which it pairs prefill and decode."""
    connector_keys: frozenset[str] = frozenset()
    """Keys of `kv_connector_extra_config` that some connector of this vLLM reads."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other spelling -> name: `tp` -> `tensor-parallel-size`."""


@dataclass(frozen=True, slots=True)
class Removed:
    """A flag or variable that an engine no longer takes."""

    name: str
    engine: Engine
    version: str
    """The first `major.minor` without it."""
    instead: str
    """What to write instead, flags in backticks; `nothing` when there is no successor."""
    source: str


def known_versions(engine: Engine = "vllm") -> list[str]:
    """The `major.minor` that pdkit has flags for, oldest first."""
    return list(_known_versions(engine))


@cache
def _known_versions(engine: Engine) -> tuple[str, ...]:
    names = (path.stem for path in facts_folder(engine).glob("[0-9]*.json"))
    return tuple(sorted(names, key=_minor))


def flag_table(vllm_version: str, at: str | None = None) -> FlagTable:
    """The flags of a vLLM version: of its own minor release, else of the nearest lower one that is known.

    `at` is where the recipe names the version. Raises RecipeError for what is not a version, such as `latest`.
    """
    minor, exact = _nearest("vllm", vllm_version, at)
    return _release("vllm", minor, "flags", exact=exact)


def dynamo_table(dynamo_version: str, part: Part, at: str | None = None) -> FlagTable:
    """The own flags of Dynamo's frontend or vLLM worker; a worker also takes vLLM's flags that are not `server`."""
    minor, exact = _nearest("dynamo", dynamo_version, at)
    return _release("dynamo", minor, part, exact=exact)


def nixl_variables() -> tuple[str, frozenset[str]]:
    """The release of NIXL that is known, and the variables that it and the UCX inside it read."""
    data = _read("nixl", max((path.stem for path in facts_folder("nixl").glob("[0-9]*.json")), key=_minor))
    return data["nixl"], frozenset(data["env"])


def lookup(name: str, table: FlagTable) -> Flag | None:
    """The flag that `name` means in a table, or None.

    Takes underscores, leading dashes, aliases, the `no-` form of a flag that has one, and `parent.key` of a JSON flag,
    of which only the parent is checked.
    """
    head, dot, _ = name.strip().lstrip("-").partition(".")
    head = head.replace("_", "-")
    flag = table.flags.get(table.aliases.get(head, head))
    if flag is None and head.startswith("no-") and not dot:
        positive = table.flags.get(head.removeprefix("no-"))
        return positive if positive and positive.negatable else None
    return None if flag and dot and flag.type != "json" else flag


def versions_with(name: str) -> list[str]:
    """The known `major.minor` of vLLM that have this flag, oldest first."""
    return [version for version in known_versions() if lookup(name, flag_table(version))]


def removed_or_renamed(name: str) -> Removed | None:
    """What became of a flag or an environment variable that an engine once took; None when nothing is recorded."""
    key = name.strip()
    if not key.isupper():
        key = key.lstrip("-").replace("_", "-").partition(".")[0].removeprefix("no-")
    return _removed().get(key)


@cache
def _removed() -> dict[str, Removed]:
    engines: tuple[Engine, ...] = ("vllm", "dynamo")
    return {
        name: Removed(name=name, engine=engine, **entry)
        for engine in engines
        for name, entry in _read(engine, "removed").items()
    }


def _minor(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)


def _nearest(engine: Engine, version: str, at: str | None) -> tuple[str, bool]:
    """The known `major.minor` to use for a version, and whether it is that very release."""
    match = _VERSION.fullmatch(version.strip())
    known = known_versions(engine)
    if match is None:
        fix = f"write the release, or what the image reports, such as `{known[-1]}.0`"
        raise RecipeError(f"`{version}` is not a version of {engine}", at=at, fix=fix)
    wanted = int(match[1]), int(match[2])
    minor = max((item for item in known if _minor(item) <= wanted), key=_minor, default=known[0])
    return minor, _minor(minor) == wanted and _RELEASE.fullmatch(match[3]) is not None


@cache
def _read(engine: Engine | Literal["nixl"], stem: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((facts_folder(engine) / f"{stem}.json").read_text(encoding="utf-8"))
    return data


@cache
def _release(engine: Engine, minor: str, part: str, *, exact: bool) -> FlagTable:
    data = _read(engine, minor)
    return table_of(data[engine], data, data[part], exact=exact)


def table_of(version: str, data: dict[str, Any], entries: dict[str, Any], *, exact: bool) -> FlagTable:
    """A table out of the flags `entries` and the rest of the facts of one engine."""
    flags = {
        name: Flag(
            name=name,
            type=entry["type"],
            choices=tuple(entry.get("choices", ())),
            negatable=entry["type"] == "bool" and entry.get("no", True),
            server=entry.get("server", False),
            keys=entry.get("keys"),
        )
        for name, entry in entries.items()
    }
    return FlagTable(
        version=version,
        exact=exact,
        flags=flags,
        env=frozenset(data.get("env", ())),
        connectors=(*data.get("connectors", ()), *data.get("wrappers", ())),
        connector_keys=frozenset(data.get("connector_keys", ())),
        aliases={alias: name for name, entry in entries.items() for alias in entry.get("aliases", ())},
    )

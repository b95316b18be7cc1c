"""What the value of an option may be, read from vLLM's sources: converters, choices, keys of JSON, KV connectors."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any
from zipfile import Path as ZipPath

from pdkit.errors import PdkitError
from pdkit.facts.extract_types import Hint, Module, Package, Value, hints_of, literal_of

DICTS = {"speculative-config": ("vllm.config.speculative", "SpeculativeConfig")}
"""Options that are declared as any mapping, and are then given to this class as keywords."""
MOST_DEPTH = 3
"""Mappings inside one another that are followed: `compilation-config.pass_config.fuse_norm_quant`."""
KV_PARTS = ("distributed", "v1")
"""Folders of vLLM in which `kv_connector_extra_config` is read."""
_FACTORY = "vllm.distributed.kv_transfer.kv_connector.factory"
_EXTRA = re.compile(r"""extra_config(?:\.get)?[(\[]\s*["'](\w+)["']""")
_PLAIN = ("bool", "int", "float", "str")


def keys_of(name: str, module: Module, depth: int = 1) -> dict[str, Any]:
    """The keys that a config class takes, each with its type, its choices and its own keys."""
    found = module.find(name)
    if found is None or not isinstance(found[1], ast.ClassDef):
        raise PdkitError(f"no class {name} for {module.name}")
    where, definition = found[0], found[1]
    keys: dict[str, Any] = {}
    for base in definition.bases:
        if where.find(ast.unparse(base)):
            keys |= keys_of(ast.unparse(base), where, depth)
    for item in definition.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            hints = hints_of(item.annotation, where)
            if _is_given(item, hints):
                keys[item.target.id] = _key(hints, depth)
    return keys


def _is_given(item: ast.AnnAssign, hints: list[Hint]) -> bool:
    """Whether a person may set the field: vLLM fills in the others by itself."""
    annotation, default = ast.unparse(item.annotation), ast.unparse(item.value) if item.value else ""
    if annotation.startswith("SkipValidation") and any(hint.kind == "dataclass" for hint in hints):
        return False  # another part's config, handed over
    hidden = annotation.startswith(("ClassVar", "InitVar")) or ast.unparse(item.target).startswith("_")
    return not hidden and "init=False" not in default


def _key(hints: list[Hint], depth: int) -> dict[str, Any]:
    """One key; `any` where several kinds are accepted, or one that is not known."""
    hints = [hint for hint in hints if hint.kind != "none"]
    kinds = {hint.kind for hint in hints}
    if kinds == {"literal"}:
        values = [value for hint in hints for value in hint.values]
        return {"type": type(values[0]).__name__, "choices": sorted(set(values), key=str)}
    if len(hints) != 1:
        return {"type": "any"}
    [hint] = hints
    if hint.kind == "dataclass" and hint.config and depth < MOST_DEPTH:
        return {"type": "json", "keys": keys_of(*hint.config, depth + 1)}
    if hint.kind in _PLAIN:
        return {"type": hint.kind}
    return {"type": {"dataclass": "json", "dict": "json", "list": "list"}.get(hint.kind, "any")}


def keys_of_dict(option: str, package: Package) -> dict[str, Any] | None:
    """The keys of an option that vLLM declares as any mapping but hands to a class; None for every other."""
    module_name, name = DICTS.get(option, ("", ""))
    module = package.module(module_name) if module_name else None
    return keys_of(name, module) if module else None


def connectors(package: Package) -> list[str]:
    """The KV connectors that vLLM registers by name."""
    module = package.module(_FACTORY)
    if module is None:
        raise PdkitError(f"{_FACTORY} is not there: which KV connectors are known?")
    calls = [node for node in ast.walk(module.tree) if isinstance(node, ast.Call)]
    names = {ast.literal_eval(one.args[0]) for one in calls if ast.unparse(one.func).endswith(".register_connector")}
    return sorted(names)


def extra_keys(sources: list[Path | ZipPath]) -> list[str]:
    """Every key of `kv_connector_extra_config` that a file reads by name."""
    return sorted({name for file in sources for name in _EXTRA.findall(file.read_text(encoding="utf-8"))})


def kind_of(node: ast.expr) -> str:
    """The kind of value that a converter takes: `int`, `json.loads`, `optional_type(int)`."""
    text = ast.unparse(node)
    if isinstance(node, ast.Call) and text.startswith(("optional_type(", "parse_type(")):
        return kind_of(node.args[0])
    if text in {"int", "float", "str"}:
        return text
    if text == "json.loads":
        return "json"
    if text.startswith("human_readable_int"):
        return "int"
    raise PdkitError(f"cannot follow the converter `{text}` of an option")


def choices_of(node: ast.expr, module: Module) -> list[Value] | None:
    """The choices of an option; None when they depend on the machine, and then every value counts as accepted."""
    text = ast.unparse(node)
    if text.startswith(("get_args(", "list(", "sorted(")) and isinstance(node, ast.Call):
        inner = node.args[0]
        return choices_of(inner, module) if isinstance(inner, ast.Call) else literal_of(inner, module)
    if isinstance(node, ast.List | ast.Tuple):
        return [ast.literal_eval(item) for item in node.elts]
    return None

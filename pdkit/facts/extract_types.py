"""What an option accepts, read from the annotation of a config field: the type half of `extract_flags`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from zipfile import Path as ZipPath

from pdkit.errors import PdkitError

_BUILTIN = {"bool": "bool", "int": "int", "float": "float", "str": "str", "dict": "dict", "None": "none"}
_SEQUENCES = {"list", "tuple", "set", "List", "Tuple", "Set"}
_UNIONS = {"Union", "Optional"}
_TRANSPARENT = {"Annotated", "SkipValidation"}
Value = str | int | float | bool


@dataclass
class Spec:
    """What argparse would accept for one option."""

    kind: str = "str"
    choices: list[Value] | None = None
    many: bool = False
    """Whether several words follow."""
    repeated: bool = False
    """Whether the option may be given again to add to it."""
    negatable: bool = False
    """Whether `--no-<name>` exists."""
    deprecated: bool = False
    """Whether argparse warns that it will go."""
    config: tuple[str, Module] | None = None
    """The class that reads a JSON value."""


class Hint(NamedTuple):
    """One member of a union: its kind and, for a literal or a sequence, what it may hold."""

    kind: str
    values: tuple[Value, ...] = ()
    element: str = "str"
    config: tuple[str, Module] | None = None


class Module:
    """The names that one source file defines or imports."""

    def __init__(self, package: Package, name: str, tree: ast.Module, *, is_package: bool) -> None:
        self.package, self.name, self.tree, self.is_package = package, name, tree, is_package

    @cached_property
    def names(self) -> dict[str, ast.AST]:
        """Top-level name -> its definition; names that only a type checker sees come last."""
        found: dict[str, ast.AST] = {}
        for node, checking_only in _top_level(self.tree.body, checking_only=False):
            for name in _bound_names(node):
                if not checking_only or name not in found:
                    found[name] = node
        return found

    def find(self, name: str) -> tuple[Module, ast.AST] | None:
        """Where a name is defined inside the package, through imports; None for what comes from outside."""
        node = self.names.get(name)
        if not isinstance(node, ast.ImportFrom):
            return (self, node) if node is not None and not isinstance(node, ast.Import) else None
        target = self.package.module(self._imported_from(node))
        original = next(item.name for item in node.names if (item.asname or item.name) == name)
        return target.find(original) if target else None

    def _imported_from(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        base = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*base, node.module] if node.module else base)


class Package:
    """The sources of one vLLM, in a wheel or in a folder that holds `vllm/`."""

    def __init__(self, root: Path | ZipPath) -> None:
        self.root = root
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """A module by dotted name; None when it is not part of this package."""
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def _read(self, name: str) -> Module | None:
        path = name.replace(".", "/")
        for candidate in (f"{path}.py", f"{path}/__init__.py"):
            file = self.root.joinpath(candidate)
            if file.is_file():
                tree = ast.parse(file.read_text(encoding="utf-8"))
                return Module(self, name, tree, is_package=candidate.endswith("__init__.py"))
        return None


def _top_level(body: list[ast.stmt], *, checking_only: bool) -> Iterator[tuple[ast.stmt, bool]]:
    for node in body:
        if isinstance(node, ast.If):
            checking = ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
            yield from _top_level(node.body, checking_only=checking_only or checking)
            yield from _top_level(node.orelse, checking_only=checking_only)
        elif isinstance(node, ast.Try):
            yield from _top_level(node.body, checking_only=checking_only)
        else:
            yield node, checking_only


def _bound_names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [item.asname or item.name for item in node.names]
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def hints_of(node: ast.expr, module: Module) -> list[Hint]:
    """The members of an annotation, with aliases resolved and unions flattened."""
    if isinstance(node, ast.Constant):
        if node.value is None:
            return [Hint("none")]
        return hints_of(ast.parse(str(node.value), mode="eval").body, module)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return hints_of(node.left, module) + hints_of(node.right, module)
    if isinstance(node, ast.Subscript):
        return _subscripted(node, module)
    if isinstance(node, ast.Name):
        return [Hint(_BUILTIN[node.id])] if node.id in _BUILTIN else _named(node.id, module)
    return [Hint("other")]


def _subscripted(node: ast.Subscript, module: Module) -> list[Hint]:
    origin = ast.unparse(node.value).rpartition(".")[2]
    arguments = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if origin == "Literal":
        return [Hint("literal", tuple(value for item in arguments for value in literal_of(item, module)))]
    if origin in _UNIONS:
        members = [hint for item in arguments for hint in hints_of(item, module)]
        return [*members, Hint("none")] if origin == "Optional" else members
    if origin in _TRANSPARENT:
        return hints_of(arguments[0], module)
    if origin in _SEQUENCES:
        inner = hints_of(arguments[0], module)
        if len(inner) > 1:
            return [Hint("list")]
        element = "str" if inner[0].kind in {"literal", "other"} else inner[0].kind
        return [Hint("list", inner[0].values, element)]
    return [Hint("dict" if origin in {"dict", "Dict"} else "other")]


def literal_of(node: ast.expr, module: Module) -> list[Value]:
    """The values inside `Literal[...]`; a name in it is an alias of another literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float):
        return [node.value]
    if isinstance(node, ast.Constant) and node.value is None:
        return []
    hints = hints_of(node, module)
    if not hints or any(hint.kind != "literal" for hint in hints):
        raise PdkitError(f"{ast.unparse(node)} in {module.name} is not a literal")
    return [value for hint in hints for value in hint.values]


def _named(name: str, module: Module) -> list[Hint]:
    found = module.find(name)
    if found is None:
        return [Hint("other")]
    where, node = found
    if isinstance(node, ast.ClassDef):
        return [Hint(_class_kind(node, where), config=(node.name, where))]
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        return hints_of(node.value, where)
    return [Hint("other")]


def _class_kind(node: ast.ClassDef, module: Module) -> str:
    for decorator in node.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(call).rpartition(".")[2] in {"dataclass", "config"}:
            return "dataclass"
    kinds = {hint.kind for base in node.bases for hint in hints_of(base, module)}
    return next((kind for kind in ("dataclass", "dict") if kind in kinds), "other")


def spec_of(hints: list[Hint]) -> Spec:  # noqa: PLR0911  (one return per kind, in order)
    """What vLLM makes of a field: the first kind that fits, in its own order."""
    kinds = {hint.kind for hint in hints}
    if "dataclass" in kinds:
        return Spec("json", config=next(hint.config for hint in hints if hint.kind == "dataclass"))
    if kinds == {"bool", "str", "none"}:
        return Spec("str")  # a bare option means True, a word is kept
    if "bool" in kinds:
        return Spec("bool", negatable=True)
    if "literal" in kinds:
        values = [value for hint in hints if hint.kind == "literal" for value in hint.values]
        return Spec(type(values[0]).__name__, None if "str" in kinds else values)
    if "list" in kinds:
        listed = next(hint for hint in hints if hint.kind == "list")
        return Spec(listed.element, list(listed.values) or None, many=True)
    for kind in ("int", "float"):
        if kind in kinds:
            return Spec(kind)
    return Spec("json" if "dict" in kinds and "str" not in kinds else "str")


def fields_of(name: str, module: Module) -> dict[str, Spec]:
    """The fields of a config class and its bases, as options."""
    found = module.find(name)
    if found is None or not isinstance(found[1], ast.ClassDef):
        raise PdkitError(f"no class {name} for {module.name}")
    where, definition = found[0], found[1]
    fields: dict[str, Spec] = {}
    for base in definition.bases:
        if where.find(ast.unparse(base)):
            fields |= fields_of(ast.unparse(base), where)
    for item in definition.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        if not ast.unparse(item.annotation).startswith(("ClassVar", "InitVar")):
            fields[item.target.id] = spec_of(hints_of(item.annotation, where))
    return fields

"""Read the options of `vllm serve` from a vLLM wheel without importing it.

For maintainers: `python -m pdkit.facts.extract_flags WHEEL_OR_FOLDER...` prints the facts of one vLLM, or writes
`facts/vllm/<major.minor>.json` for each with `--write`. vLLM builds its parser from the annotated fields of its config
classes, so the syntax tree holds all that is needed. What this reader does not understand is an error, never left out.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import Path as ZipPath

from pdkit.errors import PdkitError, UsageError
from pdkit.facts.extract_types import Module, Package, Spec, fields_of
from pdkit.facts.extract_values import KV_PARTS, choices_of, connectors, extra_keys, keys_of, keys_of_dict, kind_of
from pdkit.files import write_text
from pdkit.paths import facts_folder

_CLI_MODULES = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
_IGNORED = {"help", "default", "metavar", "dest", "const", "required"}
_ENV_READ = re.compile(r"""(?:environ(?:\.get\(|\[)|getenv\()\s*["'](VLLM_[A-Z0-9_]+)["']""")
_DIST_INFO = re.compile(r"(vllm(?:_cpu)?-(\d[^-]*))\.dist-info")
Fields = dict[str, Spec]


class Option(NamedTuple):
    """One option of `vllm serve`; all spellings are without dashes."""

    spec: Spec
    aliases: list[str]
    server: bool
    """Whether it belongs to vLLM's HTTP server, so that Dynamo's workers do not take it."""


class Reader:
    """Follows the statements that build the parser and keeps what each `add_argument` declares."""

    def __init__(self, module: Module, *, server: bool) -> None:
        self.module, self.server = module, server
        self.names: dict[str, Fields | Spec] = {}
        self.options: dict[str, Option] = {}

    def run(self, body: list[ast.stmt]) -> None:
        """Take every branch: an option that exists under some condition exists."""
        for node in body:
            if isinstance(node, ast.If):
                self.run([*node.body, *node.orelse])
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._assign(node.targets[0], node.value)
            elif isinstance(node, ast.AugAssign | ast.Delete):
                target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
                self._set(target, None)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                self._call(node.value)
            elif "add_argument(" in ast.unparse(node):
                raise PdkitError(f"cannot follow line {node.lineno} of {self.module.name}: options inside a block")

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Subscript):
            self._set(target, value)
        elif isinstance(target, ast.Name) and (known := self._known(value)) is not None:
            self.names[target.id] = known

    def _known(self, node: ast.expr) -> Fields | Spec | None:
        """The fields of `get_kwargs(Config)`, one field of them, or None for any other expression."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "get_kwargs":
            return fields_of(ast.unparse(node.args[0]), self.module)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            fields = self._known(node.value)
            return fields[str(node.slice.value)] if isinstance(fields, dict) else None
        return None

    def _set(self, target: ast.expr, value: ast.expr | None) -> None:
        """`kwargs["field"]["type"] = value`, or `del` and `+=` of one; what then holds is no longer known."""
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            spec = self._known(target.value)
            if isinstance(spec, Spec):
                self._apply(spec, str(target.slice.value), value)

    def _call(self, node: ast.Call) -> None:
        if not isinstance(node.func, ast.Attribute):
            return
        if node.func.attr == "add_argument":
            self._declare(node)
        elif node.func.attr == "remove" and isinstance(node.func.value, ast.Subscript):
            spec = self._known(node.func.value.value)
            if isinstance(spec, Spec) and spec.choices:
                spec.choices = [value for value in spec.choices if value != self._constant(node.args[0])]

    def _constant(self, node: ast.expr) -> object:
        if isinstance(node, ast.Name) and (found := self.module.find(node.id)):
            definition = found[1]
            node = definition.value if isinstance(definition, ast.Assign | ast.AnnAssign) and definition.value else node
        return ast.literal_eval(node)

    def _declare(self, node: ast.Call) -> None:
        options = [str(item.value) for item in node.args if isinstance(item, ast.Constant)]
        if not options or not options[0].startswith("-"):
            return  # a positional, or the loop over frontend fields that `frontend_flags` reads
        spec = Spec()
        for keyword in node.keywords:
            if keyword.arg:
                self._apply(spec, keyword.arg, keyword.value)
            else:
                self._spread(spec, keyword.value)
        main = next(option for option in options if option.startswith("--")).lstrip("-")
        self.options[main] = Option(spec, sorted({option.lstrip("-") for option in options} - {main}), self.server)

    def _spread(self, spec: Spec, node: ast.expr) -> None:
        """`**kwargs["field"]`, or `**{**kwargs["field"], "default": None}`."""
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is None:
                    self._spread(spec, value)
                else:
                    self._apply(spec, ast.literal_eval(key), value)
            return
        known = self._known(node)
        if not isinstance(known, Spec):
            raise PdkitError(f"cannot follow `**{ast.unparse(node)}` in {self.module.name}")
        spec.__dict__.update(known.__dict__)

    def _apply(self, spec: Spec, key: str, value: ast.expr | None) -> None:
        if key == "choices":
            spec.choices = None if value is None else choices_of(value, self.module)
        elif key == "deprecated":
            spec.deprecated = value is not None and ast.literal_eval(value) is True
        elif key == "nargs":
            spec.many = value is not None and ast.literal_eval(value) != "?"
        elif key == "action":
            _apply_action(spec, ast.unparse(value) if value else "")
        elif key == "type" and value is not None:
            spec.kind = spec.kind if isinstance(value, ast.Lambda) else kind_of(value)
        elif key not in _IGNORED:
            raise PdkitError(f"cannot follow the argument `{key}` of an option in {self.module.name}")


def _apply_action(spec: Spec, action: str) -> None:
    if action.endswith("BooleanOptionalAction"):
        spec.kind, spec.negatable = "bool", True
    elif action.strip("'") in {"store_true", "store_false"}:
        spec.kind = "bool"
    elif action.strip("'") == "append":
        spec.repeated = True
    elif not action.endswith("Action"):
        raise PdkitError(f"cannot follow the action `{action}` of an option")


def _functions(module: Module, name: str) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef) and node.name == name]


def serve_options(package: Package) -> dict[str, Option]:
    """Every option of `vllm serve`, by name."""
    engine = package.module("vllm.engine.arg_utils")
    server = next((module for name in _CLI_MODULES if (module := package.module(name))), None)
    if engine is None or server is None:
        raise UsageError("this holds no vLLM sources that pdkit can read")
    engine_reader, server_reader = Reader(engine, server=False), Reader(server, server=True)
    for function in _functions(engine, "add_cli_args"):
        engine_reader.run(function.body)
    frontend = server_reader.names["frontend_kwargs"] = fields_of("FrontendArgs", server)
    for function in [*_functions(server, "_customize_cli_kwargs"), *_functions(server, "make_arg_parser")]:
        server_reader.run(function.body)
    options = {name.replace("_", "-"): Option(spec, [], server=True) for name, spec in frontend.items()}
    return options | server_reader.options | engine_reader.options


def environment(package: Package) -> list[str]:
    """Every variable of `vllm/envs.py`, and each `VLLM_*` that another module reads from the environment by itself."""
    module = package.module("vllm.envs")
    table = module.names.get("environment_variables") if module else None
    if not isinstance(table, ast.Assign | ast.AnnAssign) or not isinstance(table.value, ast.Dict):
        raise PdkitError("vllm/envs.py has no table of environment variables")
    names = {ast.literal_eval(key) for key in table.value.keys if key}
    for file in _sources(package.root / "vllm"):
        names.update(_ENV_READ.findall(file.read_text(encoding="utf-8")))
    return sorted(names)


def _sources(folder: Path | ZipPath) -> list[Path | ZipPath]:
    found: list[Path | ZipPath] = []
    for item in folder.iterdir():
        if item.is_dir():
            found += _sources(item)
        elif item.name.endswith(".py"):
            found.append(item)
    return found


def _entry(name: str, option: Option, package: Package) -> dict[str, Any]:
    spec = option.spec
    entry: dict[str, Any] = {"type": "list" if spec.many or spec.repeated else spec.kind}
    if spec.choices:
        entry["choices"] = sorted(spec.choices, key=str)
    if option.aliases:
        entry["aliases"] = option.aliases
    if spec.kind == "bool" and not spec.negatable:
        entry["no"] = False
    if option.server:
        entry["server"] = True
    if spec.deprecated:
        entry["deprecated"] = True
    keys = keys_of(*spec.config) if spec.config else keys_of_dict(name, package)
    return entry | ({"keys": keys} if keys else {})


def facts_text(version: str, source: str, package: Package) -> str:
    """The facts of one vLLM as JSON, one option a line: same sources, same bytes."""
    options = sorted(serve_options(package).items())
    flags = ",\n".join(f"  {json.dumps(name)}: {json.dumps(_entry(name, one, package))}" for name, one in options)
    extra = extra_keys([file for part in KV_PARTS for file in _sources(package.root / "vllm" / part)])
    names = textwrap.fill(json.dumps(environment(package))[1:-1], 118, break_long_words=False)
    head = f'{{"vllm": {json.dumps(version)},\n"source": {json.dumps(source)},\n'
    kv = f'"connectors": {json.dumps(connectors(package))},\n"connector_keys": {json.dumps(extra)},\n'
    return f'{head}{kv}"flags": {{\n{flags}\n}},\n"env": [\n{names}\n]}}\n'


def main(arguments: list[str]) -> int:
    """Print the facts of each wheel or folder, or write them beside this module."""
    paths = [Path(item) for item in arguments if item != "--write"]
    if not paths:
        raise UsageError("name a vLLM wheel, or a folder that holds `vllm/`")
    for path in paths:
        root: Path | ZipPath = ZipPath(path) if path.suffix == ".whl" else path
        found = next((match for item in root.iterdir() if (match := _DIST_INFO.fullmatch(item.name))), None)
        if found is None:
            raise UsageError(f"{path} holds no vllm-*.dist-info, so its version is not known")
        source = f"{found[1]}: vllm/engine/arg_utils.py, vllm/entrypoints/**/cli_args.py, vllm/envs.py"
        text = facts_text(found[2], source, Package(root))
        if "--write" in arguments:
            write_text(facts_folder("vllm") / f"{'.'.join(found[2].split('.')[:2])}.json", text)
        else:
            sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except PdkitError as error:
        sys.exit(str(error))

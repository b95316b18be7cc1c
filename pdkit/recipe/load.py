"""From a recipe file to checked `Recipe`s: every fault at once, each with its place and the nearest name."""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pdkit.errors import Finding, RecipeError
from pdkit.recipe.owned import OWNED_ENV, flag_name, owner_of_flag
from pdkit.recipe.schema import ROLES, Recipe
from pdkit.recipe.source import ReadText, Source, load_sources, read_file
from pdkit.recipe.yaml_marks import Path


@dataclass(frozen=True, slots=True)
class Loaded:
    """A recipe and where its parts were written."""

    recipe: Recipe
    source: Source


def load(path: FilePath, sets: tuple[str, ...] = (), read: ReadText = read_file) -> list[Loaded]:
    """The recipes of one file (several when it has a `matrix`).

    Raises RecipeError with every fault: PD101-PD108 from reading, PD103 unknown key, PD104 wrong value, PD109 a value
    that is missing, PD110 a flag or variable that pdkit owns, PD111 roles that do not fit together.
    """
    return [Loaded(validated(source), source) for source in load_sources(path, sets, read)]


def validated(source: Source) -> Recipe:
    """The recipe of a source; RecipeError with every fault, as `load` says."""
    try:
        recipe = Recipe.model_validate(source.data)
    except ValidationError as error:
        raise RecipeError.of(*_ordered(_findings(error.errors(), source))) from None
    refused = _ordered([*_owned(recipe, source), *_misplaced(recipe, source)])
    if refused:
        raise RecipeError.of(*refused)
    return recipe


def _ordered(findings: Iterable[Finding]) -> list[Finding]:
    unique = dict.fromkeys(findings)
    return sorted(unique, key=lambda finding: (finding.at.count(":"), _numbers(finding.at), finding.code))


def _numbers(at: str) -> tuple[str, int, int]:
    file, line, column = at.rsplit(":", 2)
    return file, int(line), int(column)


def _findings(details: list[ErrorDetails], source: Source) -> Iterator[Finding]:
    """One finding per fault: of a union's complaints about one value only the deepest are kept, joined by `or`."""
    by_path: dict[Path, list[ErrorDetails]] = {}
    for detail in details:
        by_path.setdefault(_written_path(tuple(detail["loc"]), source), []).append(detail)
    for path, same in by_path.items():
        if not any(other[: len(path)] == path and len(other) > len(path) for other in by_path if path):
            finding = _finding(same[0], path, source)
            others = dict.fromkeys(_complaint(detail) for detail in same[1:])
            joined = " or ".join([finding.message, *(text for text in others if text not in finding.message)])
            yield replace(finding, message=joined.replace(" or should be ", " or "))


_SHOULD_BE = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a mapping",
    "string_type": "text",
}


def _complaint(detail: ErrorDetails) -> str:
    text = detail["msg"]
    return f"should be {_SHOULD_BE[detail['type']]}" if detail["type"] in _SHOULD_BE else text[:1].lower() + text[1:]


def _finding(detail: ErrorDetails, path: Path, source: Source) -> Finding:
    """One pydantic error in a recipe's words."""
    kind, dotted = detail["type"], ".".join(map(str, path))
    if kind == "extra_forbidden":
        names = field_names(path[:-1])
        message = f"`{path[-1]}` is not a setting of {_place(path[:-1])}"
        return Finding("PD103", "error", message, source.at(path, key=True), nearest(str(path[-1]), names))
    if kind == "missing":
        message = f"`{dotted}` is missing"
        return Finding("PD109", "error", message, source.at(path[:-1], key=True), f"add `{path[-1]}:`")
    if kind == "roles":
        written = next((role for role in ("agg", *ROLES) if source.data.get(role) is not None), "")
        return Finding("PD111", "error", detail["msg"], source.at((written,), key=True), "see docs/recipe.md")
    return Finding("PD104", "error", f"`{dotted}`: {_complaint(detail)}", source.at(path), _hint(detail, path, source))


def _hint(detail: ErrorDetails, path: Path, source: Source) -> str:
    """What to write instead of a wrong value: the nearest choice, quotes, or what the setting means."""
    value: Any = source.data
    for part in path:
        value = value[part]
    if detail["type"] == "literal_error":
        expected = str(detail.get("ctx", {}).get("expected", "")).replace(" or ", ",")
        return nearest(str(value), [part.strip(" '") for part in expected.split(",")])
    if detail["type"] == "string_type" and isinstance(value, (bool, int, float)):
        return "put it in quotes"
    return _meaning(path)


def _meaning(path: Path) -> str:
    """The docstring of the setting at `path`, or of the nearest one around it."""
    model: Any = Recipe
    text = ""
    for part in path:
        field = next((one for name, one in model.model_fields.items() if part in (name, one.alias)), None)
        if field is not None:
            text = field.description or text
        model = _model_of(model, part)
        if model is None:
            break
    return text


def _written_path(loc: tuple[str | int, ...], source: Source) -> Path:
    """A pydantic location without the names of union members and validators that it inserts."""
    path: list[str | int] = []
    here: Any = source.data
    for part in loc:
        if isinstance(here, dict) and (part in here or part in field_names(tuple(path))):
            path.append(part)
            here = here.get(str(part))
        elif isinstance(here, list) and isinstance(part, int):
            path.append(part)
            here = here[part] if part < len(here) else None
    return tuple(path)


def _place(path: Path) -> str:
    return f"`{'.'.join(map(str, path))}`" if path else "a recipe"


def field_names(path: Path) -> list[str]:
    """The names that the schema allows under `path`."""
    model: Any = Recipe
    for part in path:
        model = _model_of(model, part)
        if model is None:
            return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_of(model: type[BaseModel], name: str | int) -> Any:
    for field_name, field in model.model_fields.items():
        if name in (field_name, field.alias):
            return next(_models_in(field.annotation), None)
    return model if isinstance(name, int) else None


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, BaseModel):
            yield annotation
    elif get_origin(annotation) is not None:
        for part in get_args(annotation):
            yield from _models_in(part)


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint with the nearest valid name, or the list of all when none is near."""
    return _nearest(name, tuple(one for one in names if one))


@lru_cache(maxsize=4096)  # the same unknown name often stands in many recipes, and comparing is slow
def _nearest(name: str, names: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{close[0]}`?"
    return f"valid: {', '.join(names)}" if names else ""


def _owned(recipe: Recipe, source: Source) -> Iterator[Finding]:
    """Flags and variables under `args:` and `env:` that have a place of their own."""
    for role in ("common", *ROLES):
        settings = getattr(recipe, role)
        if settings is None:
            continue
        for key in settings.args:
            owner = owner_of_flag(key)
            if owner is None and flag_name(key) == "compilation-config":
                owner = _owner_inside(settings.args[key])
            if owner:
                message = f"pdkit sets the vLLM flag `--{key.lstrip('-')}` itself"
                yield _refused(message, owner, role, source.at((role, "args", key), key=True))
        for key in settings.env:
            if key in OWNED_ENV:
                message = f"pdkit sets the variable `{key}` itself"
                yield _refused(message, OWNED_ENV[key], role, source.at((role, "env", key), key=True))


def _misplaced(recipe: Recipe, source: Source) -> Iterator[Finding]:
    """Values of the right type that mean nothing where they stand."""
    for role in ("common", *ROLES):
        settings = getattr(recipe, role)
        for key, value in settings.args.items() if settings else ():
            if flag_name(key) == "compilation-config" and not _is_mapping(value):
                message, at = f"`{role}.args.{key}` should be a mapping", source.at((role, "args", key))
                yield Finding("PD104", "error", message, at, "for example {mode: 3}")
    for role in ("prefill", "decode"):
        if getattr(getattr(recipe, role), "sized_for", None):
            at = source.at((role, "sized_for"), key=True)
            yield Finding("PD111", "error", f"`sized_for` says nothing about {role}", at, "only `agg` takes it")


def _is_mapping(value: Any) -> bool:
    """Whether a flag's value is a mapping, or its JSON."""
    try:
        return isinstance(json.loads(value) if isinstance(value, str) else value, dict)
    except ValueError:
        return False


def _refused(message: str, owner: str, role: str, at: str) -> Finding:
    place = owner.replace("<role>", "decode" if role == "common" else role)
    fix = f"remove it ({place.removeprefix('nothing: ')})" if owner.startswith("nothing") else f"use `{place}`"
    return Finding("PD110", "error", message, at, fix)


def _owner_inside(compilation: Any) -> str | None:
    """Where a recipe says what is said about graphs inside a `compilation-config`, given as mapping or JSON."""
    found = compilation if isinstance(compilation, (dict, str)) else ()
    names = ("cudagraph_mode", "max_cudagraph_capture_size", "cudagraph_capture_sizes")
    return next((owner_of_flag(f"compilation-config.{name}") for name in names if name in found), None)

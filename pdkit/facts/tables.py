"""What the engines of one recipe accept: tables of their releases, or what their own parsers said in the image."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pdkit.errors import RecipeError
from pdkit.facts.flags import Flag, FlagTable, dynamo_table, flag_table, lookup, table_of
from pdkit.paths import expand
from pdkit.recipe.schema import EngineSpec
from pdkit.recipe.source import Source

FIX = "make it with `pdkit doctor --image-probe -o FILE` inside the engines' image"


@dataclass(frozen=True, slots=True)
class EngineTables:
    """The tables of one recipe."""

    vllm: FlagTable
    worker: FlagTable
    """Dynamo's own flags of a vLLM worker, which also takes those of the engine."""
    frontend: FlagTable
    probed: Path | None = None
    """The file of the probe that they come from; None when they are those of releases."""

    def find(self, name: str) -> Flag | None:
        """The flag of a worker that a name means; Dynamo's own win, as its parser reads them first."""
        return lookup(name, self.worker) or lookup(name, self.vllm)


@cache
def _parsed(path: Path, _written: tuple[int, int]) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def engine_tables(engine: EngineSpec, source: Source | None = None) -> EngineTables:
    """The tables of a recipe; RecipeError for what is no version, PD104 or PD105 for a bad file of a probe."""
    if engine.facts:
        return _probed(engine, source)
    dynamo_at = _at(source, "dynamo")
    return EngineTables(
        vllm=flag_table(engine.vllm, _at(source, "vllm")),
        worker=dynamo_table(engine.dynamo, "worker", dynamo_at),
        frontend=dynamo_table(engine.dynamo, "frontend", dynamo_at),
    )


def _at(source: Source | None, name: str) -> str | None:
    return source.at(("engine", name)) if source else None


def probe_file(engine: EngineSpec) -> Path | None:
    """The file of the probe that a recipe names."""
    return Path(expand(engine.facts)) if engine.facts else None


def read_probe(path: Path, at: str | None = None) -> dict[str, Any]:
    """The content of a probe's file; RecipeError PD105 when it cannot be read, PD104 when it is not one."""
    try:
        state = path.stat()
        data = _parsed(path, (state.st_mtime_ns, state.st_size))
    except OSError as error:
        raise RecipeError(f"`engine.facts`: {path}: {error.strerror}", at=at, fix=FIX, code="PD105") from None
    except ValueError as error:
        raise RecipeError(f"`engine.facts`: {path} is not JSON: {error}", at=at, fix=FIX, code="PD104") from None
    wanted = {"schema", "versions", "vllm"}
    if not isinstance(data, dict) or not wanted <= data.keys() or data["schema"] != 1:
        raise RecipeError(f"`engine.facts`: {path} is not what a probe writes", at=at, fix=FIX, code="PD104")
    return data


def _probed(engine: EngineSpec, source: Source | None) -> EngineTables:
    at = _at(source, "facts")
    path = probe_file(engine)
    assert path is not None
    data = read_probe(path, at)
    try:
        vllm = table_of(_version(data, "vllm"), data["vllm"], data["vllm"]["flags"], exact=True)
        dynamo = data.get("dynamo")
        if dynamo is None:  # an image of vLLM alone
            dynamo_at = _at(source, "dynamo")
            worker = dynamo_table(engine.dynamo, "worker", dynamo_at)
            return EngineTables(vllm, worker, dynamo_table(engine.dynamo, "frontend", dynamo_at), path)
        release = _version(data, "ai-dynamo")
        worker = table_of(release, dynamo, dynamo["worker"], exact=True)
        return EngineTables(vllm, worker, table_of(release, dynamo, dynamo["frontend"], exact=True), path)
    except (KeyError, TypeError, AttributeError) as error:
        message = f"`engine.facts`: {path} is not what a probe writes: {error!r:.60}"
        raise RecipeError(message, at=at, fix=FIX, code="PD104") from None


def _version(data: dict[str, Any], package: str) -> str:
    versions = data["versions"]
    return str(versions.get(package) or versions.get(f"{package}-cpu") or "of unknown version")

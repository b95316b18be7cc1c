"""What a run stands on: the sha256 of the recipe, of every fact file and template, and pdkit's version."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pdkit import __version__
from pdkit.facts.tables import probe_file
from pdkit.paths import facts_folder, shipped
from pdkit.plan.plan import Plan

_KINDS = ("models", "hardware", "vllm", "dynamo", "nixl")


def sha256(data: bytes) -> str:
    """`sha256:…` of some bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def lock_data(plan: Plan, recipe_text: str, rehearsal: str | None = None) -> dict[str, Any]:
    """The content of `lock.json`; its `digest` covers all the rest.

    `rehearsal` names what plays the engines' part: a run of it is another one than the measurement of the same recipe.
    """
    facts = {
        f"{kind}/{path.name}": sha256(path.read_bytes())
        for kind in _KINDS
        for path in sorted(facts_folder(kind).iterdir())
        if path.suffix in (".yaml", ".json") and _used(plan, kind, path)
    }
    probe = probe_file(plan.recipe.engine)
    if probe is not None:
        facts["engine"] = sha256(probe.read_bytes())
    templates = shipped("slurm")
    content: dict[str, Any] = {
        "schema": 1,
        "pdkit": __version__,
        "recipe": sha256(recipe_text.encode()),
        "plan": plan.digest,
        "image": plan.recipe.engine.image,
        "engine": {"vllm": plan.recipe.engine.vllm, "dynamo": plan.recipe.engine.dynamo},
        "facts": facts,
        "templates": {
            str(path.relative_to(templates)): sha256(path.read_bytes()) for path in sorted(templates.rglob("*.j2"))
        },
    }
    if rehearsal:
        content["rehearsal"] = rehearsal
    return {"digest": sha256(json.dumps(content, sort_keys=True).encode()), **content}


def _used(plan: Plan, kind: str, path: Path) -> bool:
    names = {"models": plan.model.name, "hardware": plan.hardware.name}
    return path.stem == names.get(kind, path.stem)

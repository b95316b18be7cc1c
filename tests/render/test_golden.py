"""The front-door run folder, byte for byte; a change of it is read as a diff.

`PDKIT_UPDATE_GOLDEN=1 pytest tests/render/test_golden.py` writes the folder anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pdkit import __version__
from pdkit.errors import Finding
from pdkit.files import to_json
from pdkit.plan.contract import plan_data
from pdkit.plan.plan import Plan
from pdkit.recipe.source import Source
from pdkit.render.script import scripts

GOLDEN = Path(__file__).with_name("golden")
Ready = Callable[..., tuple[Plan, Source, list[Finding]]]


@pytest.fixture(scope="module")
def rendered(ready: Ready) -> dict[str, str]:
    """Scripts and plan; the version of pdkit is left out, since it changes with every release."""
    plan, _, findings = ready("qwen38_tep8.yaml")
    texts = {"plan.json": to_json(plan_data(plan, findings)), **scripts(plan)}
    return {name: text.replace(f"pdkit {__version__}", "pdkit VERSION") for name, text in texts.items()}


def test_the_front_door_is_rendered_as_it_was(rendered: dict[str, str]) -> None:
    if os.environ.get("PDKIT_UPDATE_GOLDEN"):
        for old in GOLDEN.rglob("*.*"):
            old.unlink()
        for name, text in rendered.items():
            (GOLDEN / name).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / name).write_text(text)
    golden = {str(path.relative_to(GOLDEN)): path.read_text() for path in sorted(GOLDEN.rglob("*.*"))}
    assert sorted(rendered) == sorted(golden)
    for name, text in rendered.items():
        assert text.splitlines() == golden[name].splitlines(), f"{name}: see {__file__} for how to accept a change"
    assert rendered == golden

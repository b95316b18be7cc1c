"""Block sizes of a pair may differ only where the plan says so, and then each role has its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from pdkit.commands import planned
from pdkit.errors import NotReadyError
from pdkit.job.deployment import read_deployment
from pdkit.job.engine_report import Engine
from pdkit.job.ready import Prover
from pdkit.paths import shipped
from pdkit.plan.contract import plan_data

MODEL = "model={facts: qwen3-32b, path: /models/Qwen3-32B}"
SETS = (MODEL, "hardware=generic", "common.max_num_batched_tokens=1024", "prefill.topology=TP1", "decode.topology=TP1")


def _prover(tmp_path: Path, *sets: str) -> Prover:
    [(loaded, plan, findings)] = planned(shipped("recipes") / "local/tiny_pd.yaml", sets)
    (tmp_path / "plan.json").write_text(json.dumps(plan_data(plan, findings)))
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(loaded.recipe.model_dump(mode="json", by_alias=True)))
    (tmp_path / "lock.json").write_text('{"digest": "sha256:1", "launcher": "local", "rehearsal": false}')
    deployment = read_deployment(tmp_path, lambda node: f"node{node}")
    engines = [Engine(role, role, "0", one.block_size.value, 100, 1000, 1.0) for role, one in plan.roles.items()]
    return Prover(deployment, lambda _: None, engines=engines)


def test_a_multiple_on_gpus_is_let_through(tmp_path: Path) -> None:
    prover = _prover(tmp_path, *SETS, "prefill.block_size=64", "decode.block_size=128")
    prover._one_block_size()
    assert [check.ok for check in prover.checks] == [True]


@pytest.mark.parametrize(
    "sets",
    [
        (*SETS, "prefill.block_size=128", "decode.block_size=64"),
        (*SETS, "prefill.topology=TP2", "prefill.block_size=64", "decode.block_size=128"),
        ("prefill.block_size=128", "decode.block_size=256"),
    ],
)
def test_everything_else_is_refused(sets: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(NotReadyError, match="one block size on all roles"):
        _prover(tmp_path, *sets)._one_block_size()

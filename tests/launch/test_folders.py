"""Which run folder is gone on with, and where the engines are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pdkit.commands import planned
from pdkit.errors import UsageError
from pdkit.launch.run import engine_environment, find_unfinished, finished, prepare
from pdkit.render.folder import next_run_folder, write_run_folder

from ..fakes.launches import RECIPE


def rendered(output: Path, *sets: str, age: float) -> Path:
    loaded, plan, findings = planned(RECIPE, sets)[0]
    folder = next_run_folder(output, plan)
    write_run_folder(folder, plan, loaded.source, findings)
    os.utime(folder, (1e9 - age, 1e9 - age))
    return folder


def test_the_newest_run_of_this_very_recipe_is_found(tmp_path: Path) -> None:
    plain = rendered(tmp_path, age=5)
    rendered(tmp_path, age=6)
    shifted = rendered(tmp_path, "infra.port_shift=80", age=4)
    rendered(tmp_path, "decode.max_num_seqs=8", age=3)
    rendered(tmp_path, "decode.max_num_seqs=8", "infra.port_shift=40", age=2)
    rendered(tmp_path, "name=small-one", "infra.port_shift=120", age=1)
    (tmp_path / "small-notes").mkdir()
    folder, plan = find_unfinished(RECIPE, (), tmp_path)
    assert folder == shifted
    assert plan.http_port == 8080
    assert find_unfinished(RECIPE, ("decode.max_num_seqs=8",), tmp_path)[1].http_port == 8040
    os.utime(shifted, (1, 1))
    folder, plan = find_unfinished(RECIPE, (), tmp_path)
    assert folder == plain
    assert plan.http_port == 8000


def test_a_recipe_that_was_changed_has_no_run_to_go_on_with(tmp_path: Path) -> None:
    rendered(tmp_path, age=1)
    with pytest.raises(UsageError, match="no run of this recipe"):
        find_unfinished(RECIPE, ("gate.floor=0.5",), tmp_path)


def test_without_its_points_no_result_is_finished(tmp_path: Path) -> None:
    """tests/launch/test_audit.py has the runs that are."""
    folder = rendered(tmp_path, age=1)
    assert not finished(folder)
    for code in (7, 0):
        (folder / "result.json").write_text(f'{{"exit_code": {code}}}')
        assert not finished(folder)


def test_engines_are_looked_for_here_and_beside_pdkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(RECIPE)[0][1]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PDKIT_ENGINES", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "home" / ".venv"))
    with pytest.raises(UsageError, match="no engines on this machine") as error:
        engine_environment(plan, None)
    assert error.value.fix == "make engines"
    for place in (tmp_path / "home", tmp_path):  # the second one wins
        (place / ".venv-vllm" / "bin").mkdir(parents=True)
        (place / ".venv-vllm" / "bin" / "python3").touch()
        environment = engine_environment(plan, None)
        assert environment["PATH"].split(os.pathsep)[0] == str(place / ".venv-vllm" / "bin")
    assert environment["PYTHONPATH"].endswith("laptop/site")


def test_without_engines_no_run_folder_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a Python environment"):
        prepare(RECIPE, (), tmp_path / "runs", force=False, engines=tmp_path / "nowhere")
    assert not (tmp_path / "runs").exists()


def test_a_relative_folder_of_engines_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine" / "bin").mkdir(parents=True)
    (tmp_path / "mine" / "bin" / "python3").touch()
    monkeypatch.chdir(tmp_path)
    environment = engine_environment(planned(RECIPE)[0][1], Path("mine"))
    assert environment["PATH"].split(os.pathsep)[0] == str(tmp_path / "mine" / "bin")

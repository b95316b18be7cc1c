"""Points that were forged, edited, or brought from elsewhere: none counts, in no report and in no resumed run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pdkit.cli import app
from pdkit.errors import PdkitError
from pdkit.job.audit import doubts

from ..fakes.launches import Launch, launch


@pytest.fixture(scope="module")
def honest(engines: Path, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    run = launch(engines, tmp_path_factory.mktemp("honest"), "workload.concurrency=[1, 2]")
    assert run.end() == 0, run.text
    return run


@pytest.fixture
def folder(honest: Launch, tmp_path: Path) -> Path:
    """A copy of the honest run's folder, to be tampered with."""
    return Path(shutil.copytree(honest.folder, tmp_path / honest.folder.name))


def edit(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def test_an_honest_run_is_believed(folder: Path) -> None:
    assert doubts(folder) == {}


POINT = "points/c0002.json"
FORGERIES: dict[str, tuple[Callable[[Path], object], str, set[int]]] = {
    "a better figure": (
        lambda run: edit(run / POINT, lambda point: point.update(total_tok_s_gpu=99999.0)),
        "does not follow from its trace and its gate: total_tok_s_gpu",
        {2},
    ),
    "fewer GPUs": (
        lambda run: edit(run / POINT, lambda point: point.update(gpus=1)),
        "does not follow from its trace and its gate: gpus",
        {2},
    ),
    "other engines": (
        lambda run: edit(run / POINT, lambda point: point.update(boot_ids=["decode0=other"])),
        "does not follow from its trace and its gate: boot_ids",
        {2},
    ),
    "an invalid point made valid": (
        lambda run: edit(run / "load/c0002_r1/result.json", lambda trace: trace.update(errors=["lost", ""])),
        "its trace",
        {2},
    ),
    "a point without a trace": (
        lambda run: shutil.rmtree(run / "load" / "c0002_r1"),
        "its trace cannot be read: the load tool left no such file",
        {2},
    ),
    "a concurrency that was not asked for": (
        lambda run: (
            shutil.copyfile(run / POINT, run / "points/c0003.json"),
            edit(run / "points/c0003.json", lambda point: point.update(concurrency=3)),
        ),
        "the recipe asks for no such concurrency",
        {3},
    ),
    "a gate that is not there": (
        lambda run: edit(run / POINT, lambda point: point.update(gate_digest="sha256:0")),
        "no gate that passed in this run stands behind it",
        {2},
    ),
    "no gate at all": (lambda run: (run / "gate.json").unlink(), "the gate has not passed here", {1, 2}),
    "no answers": (lambda run: (run / "gate.jsonl").unlink(), "the evidence was changed after the verdict", {1, 2}),
    "an answer made right": (
        lambda run: (run / "gate.jsonl").write_text((run / "gate.jsonl").read_text().replace("####", "##### ", 1)),
        "the evidence was changed after the verdict",
        {1, 2},
    ),
    "a verdict that is none": (
        lambda run: edit(run / "gate.json", lambda gate: gate.pop("answers_sha256")),
        "this is not a verdict of the gate: answers_sha256: Field required",
        {1, 2},
    ),
    "a better accuracy": (
        lambda run: edit(run / "gate.json", lambda gate: gate["verdict"].update(accuracy=0.99)),
        "the evidence was changed after the verdict",
        {1, 2},
    ),
    "another recipe": (
        lambda run: (run / "recipe.yaml").write_text((run / "recipe.yaml").read_text() + "\n"),
        "is not the one that lock.json was written for",
        {1, 2},
    ),
    "another lock": (
        lambda run: edit(run / "lock.json", lambda lock: lock.update(pdkit="9.9.9")),
        "lock.json was changed",
        {1, 2},
    ),
    "no lock": (lambda run: (run / "lock.json").unlink(), "cannot be read", {1, 2}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forgery_is_in_no_figure(forgery: str, folder: Path, tmp_path: Path) -> None:
    forge, words, concurrencies = FORGERIES[forgery]
    forge(folder)
    found = doubts(folder)
    assert set(found) == concurrencies
    assert all(words in doubt for doubt in found.values()), found
    page = tmp_path / "report.html"
    said = CliRunner().invoke(app, ["report", str(folder), "-o", str(page)])
    assert said.exit_code == 0, said.output
    drawn = json.loads(page.with_suffix(".json").read_text())["frontier"]
    assert not {corner["concurrency"] for corner in drawn} & concurrencies
    assert words in page.read_text().replace("&#39;", "'")


@pytest.mark.parametrize("name", ["gate.json", "gate.jsonl"])
def test_a_broken_gate_is_told_without_a_traceback(name: str, folder: Path) -> None:
    (folder / name).write_text('{"passed": true}')
    said = CliRunner().invoke(app, ["gate", str(folder)])
    assert isinstance(said.exception, PdkitError), said.exception
    assert said.exception.exit_code == 6
    assert "\n" not in said.exception.message


def test_points_of_another_run_do_not_count(engines: Path, folder: Path, tmp_path: Path) -> None:
    other = launch(engines, tmp_path / "other", "workload.concurrency=[1, 2]", "workload.osl=16")
    assert other.end() == 0, other.text
    shutil.copytree(other.folder / "load", folder / "load", dirs_exist_ok=True)
    shutil.copyfile(other.folder / POINT, folder / POINT)
    assert set(doubts(folder)) == {1, 2}
    for name in ("gate.json", "gate.jsonl"):  # with its gate as well, as if set aside here
        shutil.copyfile(other.folder / name, folder / name.replace("gate.", "gate.1."))
    assert set(doubts(folder)) == {1, 2}


def test_a_resumed_run_measures_again_what_is_missing_or_not_believed(engines: Path, tmp_path: Path) -> None:
    first = launch(engines, tmp_path, "workload.concurrency=[1, 2]")
    assert first.end() == 0, first.text
    edit(first.folder / POINT, lambda point: point.update(output_tok_s_gpu=99999.0))
    kept = (first.folder / "points" / "c0001.json").read_bytes()
    again = launch(engines, tmp_path, "workload.concurrency=[1, 2]", arguments=("--resume",))
    assert again.end() == 0, again.text
    assert "point at concurrency 2 is not believed and measured again" in again.text
    assert (again.folder / "points" / "c0001.json").read_bytes() == kept
    assert json.loads((again.folder / POINT).read_text())["output_tok_s_gpu"] != 99999.0
    assert doubts(again.folder) == {}


def test_a_changed_folder_is_not_run_again(engines: Path, tmp_path: Path) -> None:
    first = launch(engines, tmp_path)
    assert first.end() == 0, first.text
    (first.folder / "points" / "c0001.json").unlink()
    edit(first.folder / "lock.json", lambda lock: lock.update(pdkit="9.9.9"))
    again = launch(engines, tmp_path, arguments=("--resume",))
    assert again.end() == 2, again.text
    assert "lock.json was changed" in again.text
    assert again.points() == []

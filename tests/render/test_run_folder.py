"""The run folder: complete or not there, the same bytes for the same recipe, and locked to what it stands on."""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pdkit.commands import planned
from pdkit.errors import Finding, RecipeError, UsageError
from pdkit.paths import facts_folder, shipped
from pdkit.plan.plan import Plan
from pdkit.recipe.load import load
from pdkit.recipe.source import Source
from pdkit.render import folder as folders
from pdkit.render.bundle import bundle
from pdkit.render.folder import next_run_folder, rendered_files, write_run_folder
from pdkit.render.lock import lock_data

RECIPE = "qwen38_tep8.yaml"
Ready = Callable[..., tuple[Plan, Source, list[Finding]]]


@pytest.fixture(scope="module")
def written(ready: Ready, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "deep" / "run"
    plan, source, findings = ready(RECIPE)
    write_run_folder(folder, plan, source, findings)
    return folder


def test_what_is_in_a_run_folder(written: Path) -> None:
    names = sorted(str(path.relative_to(written)) for path in written.rglob("*"))
    steps = ["decode0-0", "decode0-1", "driver", "etcd", "frontend0", "nats", "prefill0-0", "prefill0-1", "preflight"]
    assert names == sorted(
        ["job.sbatch", "lock.json", "logs", "pdkit.zip", "plan.json", "points", "recipe.yaml", "steps"]
        + [f"steps/{name}.sh" for name in steps]
    )


def test_scripts_may_be_executed_and_nothing_is_writable_by_others(written: Path) -> None:
    for path in [written, *written.rglob("*")]:
        mode = path.stat().st_mode & 0o777
        runs = path.is_dir() or path.suffix in (".sh", ".sbatch")
        assert mode & 0o022 == 0, path
        assert (mode & 0o100 != 0) == runs, path


def test_the_kept_recipe_is_the_whole_recipe(written: Path, ready: Ready) -> None:
    """Without its base and options it still plans to the same digest."""
    [again] = planned(written / "recipe.yaml")
    assert again[1].digest == ready(RECIPE)[0].digest
    assert "extends" not in yaml.safe_load((written / "recipe.yaml").read_text())


def test_options_and_matrices_are_resolved_in_the_kept_recipe(ready: Ready, tmp_path: Path) -> None:
    plan, source, findings = ready(RECIPE, "decode.mtp=0", "name=other")
    write_run_folder(tmp_path / "run", plan, source, findings)
    kept = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    assert (kept["name"], kept["decode"]["mtp"]) == ("other", 0)


def test_the_lock_covers_recipe_facts_and_templates(written: Path) -> None:
    lock = json.loads((written / "lock.json").read_text())
    recipe = (written / "recipe.yaml").read_bytes()
    assert lock["recipe"] == f"sha256:{hashlib.sha256(recipe).hexdigest()}"
    model = (facts_folder("models") / "qwen3.8-2.4t.yaml").read_bytes()
    assert lock["facts"]["models/qwen3.8-2.4t.yaml"] == f"sha256:{hashlib.sha256(model).hexdigest()}"
    assert not [name for name in lock["facts"] if name.startswith("models/") and "qwen3.8" not in name]
    assert sorted(lock["templates"]) == [
        "job.sbatch.j2",
        "steps/driver.sh.j2",
        "steps/preflight.sh.j2",
        "steps/process.sh.j2",
    ]
    assert lock["plan"] == json.loads((written / "plan.json").read_text())["digest"]
    content = {name: value for name, value in lock.items() if name != "digest"}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    assert lock["digest"] == f"sha256:{digest}"


def test_any_change_of_the_recipe_changes_the_lock(ready: Ready) -> None:
    def digest(*sets: str) -> str:
        plan, source, findings = ready(RECIPE, *sets)
        return str(lock_data(plan, rendered_files(plan, source, findings)["recipe.yaml"])["digest"])

    assert digest() == digest()
    changes = ["decode.mtp=0", "workload.isl=4096", "engine.image=other", "gate.floor=0.9", "cluster.account=x"]
    assert len({digest(), *map(digest, changes)}) == 1 + len(changes)


def test_the_bundle_holds_what_runs_in_the_job_and_imports_without_the_rest() -> None:
    with zipfile.ZipFile(io.BytesIO(bundle())) as archive:
        names = archive.namelist()
        assert archive.testzip() is None
        assert {(one.date_time, one.external_attr >> 16) for one in archive.infolist()} == {
            ((1980, 1, 1, 0, 0, 0), 0o644)
        }
    assert names == sorted(names)
    for needed in (
        "pdkit/job/driver.py",
        "pdkit/recipe/schema.py",
        "pdkit/plan/plan.py",
        "pdkit/_shipped/accuracy/gsm8k.yaml",
    ):
        assert needed in names
    assert not [name for name in names if name.startswith(("pdkit/cli", "pdkit/rules", "pdkit/launch", "pdkit/rack"))]
    assert not [name for name in names if "__pycache__" in name]
    assert all(name.endswith((".py", ".yaml", ".json", ".jsonl", ".j2", ".md", ".html", ".css")) for name in names)


FEW = st.fixed_dictionaries(
    {},
    optional={
        "decode.mtp": st.integers(0, 4),
        "decode.topology": st.sampled_from(["TEP8", "TP4DP4+EP", "TP2DP4+EP"]),
        "prefill.endpoints": st.integers(1, 4),
        "workload.isl": st.integers(1, 8192),
        "infra.discovery": st.sampled_from(["etcd", "file"]),
        "common.args": st.just("{stream-interval: 5, hf-overrides: {b: 1, a: 2}}"),
    },
)


@given(FEW)
@settings(max_examples=15, deadline=None)
def test_the_same_recipe_gives_the_same_bytes(changes: dict[str, object]) -> None:
    sets = tuple(f"{name}={value}" for name, value in changes.items())

    def files() -> dict[str, str]:
        [(loaded, plan, findings)] = planned(shipped("recipes") / RECIPE, sets)
        return rendered_files(plan, loaded.source, findings)

    assert files() == files()


def test_the_same_recipe_gives_the_same_bytes_in_another_process_and_place(ready: Ready, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    argv = [sys.executable, "-m", "pdkit.cli", "render", str(shipped("recipes") / RECIPE), "-o", str(tmp_path / "x")]
    subprocess.run(argv, cwd=tmp_path, env=environment, check=True, capture_output=True)
    [other] = (tmp_path / "x").iterdir()
    plan, source, findings = ready(RECIPE)
    write_run_folder(tmp_path / "here", plan, source, findings)
    names = sorted(path.relative_to(other) for path in other.rglob("*") if path.is_file())
    assert names == sorted(
        path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*") if path.is_file()
    )
    assert [name for name in names if (other / name).read_bytes() != (tmp_path / "here" / name).read_bytes()] == []


def test_numbers_follow_each_other(ready: Ready, tmp_path: Path) -> None:
    plan, source, findings = ready(RECIPE)
    stem = f"qwen38-tep8-{plan.digest.removeprefix('sha256:')[:8]}"
    assert next_run_folder(tmp_path / "new", plan).name == f"{stem}-1"
    for number in (1, 2):
        folder = next_run_folder(tmp_path, plan)
        assert folder == tmp_path / f"{stem}-{number}"
        write_run_folder(folder, plan, source, findings)


def test_an_empty_folder_is_filled_and_a_full_one_refused(ready: Ready, tmp_path: Path) -> None:
    plan, source, findings = ready(RECIPE)
    (tmp_path / "run").mkdir()
    write_run_folder(tmp_path / "run", plan, source, findings)
    with pytest.raises(UsageError, match="is there already"):
        write_run_folder(tmp_path / "run", plan, source, findings)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_interrupt_while_writing_leaves_nothing(
    ready: Ready, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
) -> None:
    """The last file is what fails, so everything before it has been written."""

    def fail() -> bytes:
        assert list(tmp_path.rglob("job.sbatch"))
        raise stop

    monkeypatch.setattr(folders, "bundle", fail)
    plan, source, findings = ready(RECIPE)
    with pytest.raises(stop):
        write_run_folder(tmp_path / "run", plan, source, findings)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk: small scripts fit, the bundle does not."""
    argv = [sys.executable, "-m", "pdkit.cli", "render", str(shipped("recipes") / RECIPE), "-o", str(tmp_path / "runs")]
    limit = 20_000
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "runs").iterdir()) == []


def test_what_a_killed_command_leaves_goes_with_the_next(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pdkit", "render", str(shipped("recipes") / RECIPE), "-o", str(tmp_path)]
    while not (halves := list(tmp_path.glob(".*"))):  # once more when it was too quick to be killed on the way
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as one:
            while one.poll() is None and not list(tmp_path.glob(".*")):
                pass
            one.kill()
    [old] = halves
    young = tmp_path / ".qwen38-tep8-0123abcd-1.abcd_123"
    strange = tmp_path / ".cache"
    for folder in (young, strange):
        folder.mkdir()
    for folder in (old, strange):
        os.utime(folder, (0, time.time() - 301))
    subprocess.run(argv, check=True, capture_output=True)
    assert {path.name for path in tmp_path.glob(".*")} == {young.name, strange.name}, "another's work, and nothing else"


def test_a_place_that_cannot_be_written(ready: Ready, tmp_path: Path) -> None:
    plan, source, findings = ready(RECIPE)
    (tmp_path / "file").write_text("")
    for parent in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 300), Path("/proc/none")):
        with pytest.raises(UsageError, match="cannot be written"):
            write_run_folder(next_run_folder(parent, plan), plan, source, findings)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_files_of_the_gate_travel_with_the_run(ready: Ready, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"question": "1+1"}\n')
    plan, source, findings = ready(RECIPE, f"gate.data={tmp_path}/mine.jsonl")
    write_run_folder(tmp_path / "run", plan, source, findings)
    assert (tmp_path / "run" / "accuracy" / "questions.jsonl").read_text() == '{"question": "1+1"}\n'


def test_a_file_of_the_gate_that_is_gone(ready: Ready, tmp_path: Path) -> None:
    plan, source, findings = ready(RECIPE, "gate.twin=gone.jsonl")
    with pytest.raises(RecipeError, match="no such file") as error:
        write_run_folder(tmp_path / "run", plan, source, findings)
    [finding] = error.value.findings
    assert (finding.code, finding.at) == ("PD105", "--set gate.twin=gone.jsonl:1:11")
    assert list(tmp_path.iterdir()) == []


def test_a_matrix_makes_a_folder_for_each_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "m.yaml"
    recipe.write_text(f"extends: {shipped('recipes') / RECIPE}\nmatrix: {{decode.mtp: [0, 3], workload.isl: [4096]}}\n")
    assert len(load(recipe)) == 2
    argv = [sys.executable, "-m", "pdkit.cli", "render", str(recipe), "-o", str(tmp_path / "runs"), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    made = [Path(name) for name in json.loads(done.stdout)["folders"]]
    assert [path.name.rsplit("-", 2)[0] for path in made] == ["qwen38-tep8-0-4096", "qwen38-tep8-3-4096"]
    assert all((path / "job.sbatch").is_file() for path in made)

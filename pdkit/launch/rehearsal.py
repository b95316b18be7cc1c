"""A rehearsal: the very job of a recipe, with played engines in place of vLLM and marked so in everything it leaves."""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
from pathlib import Path

import pdkit
from pdkit.errors import UsageError
from pdkit.files import write_text
from pdkit.job.settings import cache_folder
from pdkit.laptop.environment import node_environment
from pdkit.laptop.questions import make_problems
from pdkit.launch.record import read_json
from pdkit.launch.run import engines_folder
from pdkit.mocker.tokenizer import model_files
from pdkit.recipe.load import load

MOCKER = "mocker"
"""The one kind of played engines."""
FOLDER = "rehearsal"
"""In the run folder: everything that replaces the engines, and nothing else of the job."""
QUESTIONS = 200
_LIGHT = ("sweep.prompts_per_concurrency=1", "sweep.repeats=1")
"""One request per seat: there is nothing to measure, so there is no need to wait for more."""

_PYTHON = """\
#!/bin/sh
# In a rehearsal `python3 -m dynamo.vllm` is a played engine; all else goes to the next python3 on PATH.
own=$(cd "$(dirname "$0")" && pwd)
PATH=$(printf '%s\\n' "$PATH" | tr ':' '\\n' | grep -vxF "$own" | paste -sd: -)
export PATH
if [ "$1 $2" = "-m dynamo.vllm" ]; then
  shift 2
  PYTHONPATH=$own/../engine.zip
  export PYTHONPATH
  exec python3 -m pdkit.mocker.engine "$@"
fi
exec python3 "$@"
"""


def rehearsed(folder: Path) -> bool:
    """Whether a run folder is a rehearsal."""
    return "rehearsal" in read_json(folder / "lock.json", {})


def rehearsal_sets(recipe: Path, sets: tuple[str, ...]) -> tuple[str, ...]:
    """`sets` after those of a rehearsal, which they overrule: little load, no network and no weights needed."""
    recipes = [one.recipe for one in load(recipe, sets)]
    found = list(_LIGHT)
    if any(one.gate.data is None for one in recipes):
        count = max(QUESTIONS, *(one.gate.questions or 0 for one in recipes))
        found.append(f"gate.data={_practice(count)}")
        found += ["gate.twin=null"] if any(one.gate.twin for one in recipes) else []
    paths = {one.model.path for one in recipes}
    if any(path.startswith("/") and not Path(path).exists() for path in paths):  # a folder of the cluster's own
        found.append(f"model.path=rehearsal/{Path(min(paths)).name}")
    return (*found, *sets)


def _practice(count: int) -> Path:
    """A file of practice questions: always the same, at the same place, so that the same recipe has the same lock."""
    file = (cache_folder() / f"practice-{count}.jsonl").absolute()
    text = "".join(json.dumps(problem) + "\n" for problem in make_problems(count))
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, text)
    return file


def equip(folder: Path) -> None:
    """Put what plays the engines into a run folder, complete, so that nodes need nothing but the folder and Dynamo."""
    room = folder / FOLDER
    write_text(room / "bin" / "python3", _PYTHON, mode=0o755)
    (room / "engine.zip").write_bytes(_engine_code())
    for name, text in model_files().items():
        write_text(room / "model" / name, text)
    for path in {role["model_path"] for role in read_json(folder / "plan.json")["roles"].values()}:
        if not path.startswith("/"):
            _put_into_hub(room / "hub", path, room / "model")


def _engine_code() -> bytes:
    package = Path(pdkit.__file__).parent
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (package / "__init__.py", *sorted((package / "mocker").glob("*.py"))):
            archive.writestr(zipfile.ZipInfo(f"pdkit/{path.relative_to(package)}"), path.read_bytes())
    return stream.getvalue()


def _put_into_hub(hub: Path, name: str, model: Path) -> None:
    """A hub cache in which the model's name leads to the tokenizer that plays its part: load tools look there."""
    place = hub / f"models--{name.replace('/', '--')}"
    shutil.copytree(model, place / "snapshots" / "rehearsal")
    write_text(place / "refs" / "main", "rehearsal")


def environment_of(folder: Path) -> dict[str, str]:
    """What a rehearsal's job gets beside the submitting shell's own environment: played engines first on its PATH."""
    room = folder.resolve() / FOLDER
    hub = {"HF_HUB_CACHE": str(room / "hub")} if (room / "hub").is_dir() else {}
    return {**node_environment(), **hub, "PATH": f"{room / 'bin'}{os.pathsep}{real_programs()}"}


def real_programs() -> str:
    """The PATH of what is real in a rehearsal: Dynamo, the load tool, etcd.

    Raises UsageError when the engines' environment is not there.
    """
    found = engines_folder(None)
    if found is None:
        raise UsageError("a rehearsal needs Dynamo on this machine: .venv-vllm is not there", fix="make engines")
    return f"{found / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"

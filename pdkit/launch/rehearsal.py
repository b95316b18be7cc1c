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
from pdkit.recipe.load import load

MOCKER = "mocker"
"""The one kind of played engines."""
FOLDER = "rehearsal"
"""In the run folder: everything that replaces the engines, and nothing else of the job."""
QUESTIONS = 200
MODEL = Path(pdkit.__file__).parent / "laptop" / "models" / "dense"
_MODEL_FILES = (
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
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
    """`sets` after those of a rehearsal, which they overrule: little load, and questions that need no network."""
    gates = [one.recipe.gate for one in load(recipe, sets)]
    if any(gate.data is None for gate in gates):
        count = max(QUESTIONS, *(gate.questions or 0 for gate in gates))
        twins = ("gate.twin=null",) if any(gate.twin for gate in gates) else ()
        return (f"gate.data={_practice(count)}", *twins, *_LIGHT, *sets)
    return (*_LIGHT, *sets)


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
    (room / "model").mkdir()
    for name in _MODEL_FILES:
        shutil.copyfile(MODEL / name, room / "model" / name)
    _lift_limits(room / "model")
    recipe = read_json(folder / "plan.json")
    for path in {role["model_path"] for role in recipe["roles"].values()}:
        if not path.startswith("/"):
            _put_into_hub(room / "hub", path, room / "model")


def _engine_code() -> bytes:
    package = Path(pdkit.__file__).parent
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (package / "__init__.py", *sorted((package / "mocker").glob("*.py"))):
            archive.writestr(zipfile.ZipInfo(f"pdkit/{path.relative_to(package)}"), path.read_bytes())
    return stream.getvalue()


def _lift_limits(model: Path) -> None:
    """The tiny model's tokenizer stands for one of a large model, which takes longer prompts."""
    for name, key in (("config.json", "max_position_embeddings"), ("tokenizer_config.json", "model_max_length")):
        content = json.loads((model / name).read_text(encoding="utf-8"))
        write_text(model / name, json.dumps({**content, key: 2**20}))


def _put_into_hub(hub: Path, name: str, model: Path) -> None:
    """A hub cache in which the model's name leads to the tokenizer that plays its part: load tools look there."""
    place = hub / f"models--{name.replace('/', '--')}"
    shutil.copytree(model, place / "snapshots" / "rehearsal")
    write_text(place / "refs" / "main", "rehearsal")


def environment_of(folder: Path, engines: Path | None) -> dict[str, str]:
    """What a rehearsal's job gets beside the submitting shell's own environment.

    Raises UsageError when the engines' environment is not there: Dynamo and the load tool are real in a rehearsal.
    """
    found = engines_folder(engines)
    if found is None:
        raise UsageError("a rehearsal needs Dynamo on this machine: .venv-vllm is not there", fix="make engines")
    room = folder.resolve() / FOLDER
    places = (str(room / "bin"), str(found / "bin"), os.environ.get("PATH", ""))
    hub = {"HF_HUB_CACHE": str(room / "hub")} if (room / "hub").is_dir() else {}
    return {**node_environment(), **hub, "PATH": os.pathsep.join(places)}

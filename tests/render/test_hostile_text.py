"""Whatever a recipe says reaches the program as one literal word, and nothing of it is run."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pdkit.errors import Finding
from pdkit.plan.plan import Plan
from pdkit.recipe.source import Source
from pdkit.render.command import Command, Flag
from pdkit.render.engine import commands
from pdkit.render.script import Comment, scripts
from pdkit.render.text import RunFolder, fill, join, to_shell

HOSTILE = [
    "plain",
    "two words",
    " edges ",
    "it's",
    'say "hi"',
    "$(touch pwned)",
    "`touch pwned`",
    "${HOME}",
    "$PATH",
    "a;touch pwned",
    "a && touch pwned",
    "a | tee pwned",
    "> pwned",
    "line\nbreak",
    "\ttab\r",
    "# no comment",
    "x  # y",
    "back\\slash\\",
    "'",
    '"',
    "''\"\"",
    "*",
    "~",
    "[a-z]?",
    "{a,b}",
    "!history",
    "-rf",
    "--",
    "=x",
    "ünïcödé 数 🚀",
    "\u2028sep\u2029",
    "a\x7fb",
    "{{ name }}{% raw %}[# x #]",
    "EOF\n)\ntouch pwned\n",
]
SHOW = """#!{python}
import json, os, sys
json.dump([sys.argv[1:], dict(os.environ)], open(os.environ["SEEN"], "a"))
"""
Ready = Callable[..., tuple[Plan, Source, list[Finding]]]


@pytest.fixture
def fakes(tmp_path: Path) -> Path:
    """A folder for PATH whose programs write down what they were given, and do nothing."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("python3", "etcd", "nats-server"):
        (folder / name).write_text(SHOW.replace("{python}", sys.executable))
        (folder / name).chmod(0o755)
    return folder


def _run(script: str, fakes: Path, *, expect: int = 0) -> tuple[list[str], dict[str, str]]:
    """Run a script in an empty folder: (words, environment) that its program was given."""
    place = fakes.parent / "place"
    place.mkdir(exist_ok=True)
    (fakes.parent / "script.sh").write_text(script)
    seen = fakes.parent / "seen.json"
    environment = {
        "PATH": f"{fakes}:{os.environ['PATH']}",
        "SEEN": str(seen),
        "RUN_DIR": str(fakes.parent / "run dir"),
        **{f"NODE_IP_{node}": f"10.0.0.{node}" for node in range(4)},
    }
    argv = ["bash", str(fakes.parent / "script.sh")]
    done = subprocess.run(argv, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (expect, "", "")
    assert list(place.iterdir()) == []
    words, given = json.loads(seen.read_text())
    seen.unlink()
    return words, given


def _recipe(tmp_path: Path, **parts: Any) -> Path:
    data = {
        "schema": 1,
        "name": "hostile",
        "model": {"facts": "qwen3-32b", "path": "m"},
        "engine": {"vllm": "0.26.0", "dynamo": "1.6.1"},
        "hardware": "generic",
        "agg": {"topology": "TP2", "args": {}, "env": {}},
        "workload": {"isl": 64, "osl": 64, "concurrency": [1]},
        "gate": {"max_tokens": 64},
        "infra": {"discovery": "file"},
    }
    path = tmp_path / "hostile.yaml"
    path.write_text(yaml.safe_dump({**data, **parts}, allow_unicode=True, sort_keys=False))
    return path


def test_arguments_and_variables_of_the_recipe_arrive_as_written(ready: Ready, tmp_path: Path, fakes: Path) -> None:
    env = {f"HOSTILE_{number}": text for number, text in enumerate(HOSTILE)}
    args = {"download-dir": HOSTILE[5], "hf-overrides": {"keys": HOSTILE}, "chat-template": HOSTILE[-1]}
    path = _recipe(tmp_path, agg={"topology": "TP2", "args": args, "env": env})
    plan, _, _ = ready(path)
    words, given = _run(scripts(plan)["steps/agg0.sh"], fakes)
    assert {name: given[name] for name in env} == env
    assert words[words.index("--download-dir") + 1] == HOSTILE[5]
    assert json.loads(words[words.index("--hf-overrides") + 1]) == {"keys": HOSTILE}
    assert words[words.index("--chat-template") + 1] == HOSTILE[-1]


@pytest.mark.parametrize("text", HOSTILE)
def test_names_and_paths_arrive_as_written(ready: Ready, tmp_path: Path, fakes: Path, text: str) -> None:
    model = {"facts": "qwen3-32b", "path": f"/{text}", "served_name": text, "revision": text}
    plan, _, _ = ready(_recipe(tmp_path, model=model, description=text))
    words, _ = _run(scripts(plan)["steps/agg0.sh"], fakes)
    assert words[words.index("--model") + 1] == f"/{text}"
    assert words[words.index("--revision") + 1] == text
    assert words[words.index("--served-model-name") + 1] == text


def test_the_command_line_of_a_script_is_the_command_s(ready: Ready, fakes: Path) -> None:
    """What the local launcher would start and what bash makes of the script are the same words."""
    plan, _, _ = ready("qwen38_tep8.yaml")
    texts = scripts(plan)
    for command in commands(plan):
        words, given = _run(texts[f"steps/{command.name}.sh"], fakes)
        run_folder = str(fakes.parent / "run dir")
        expected = [fill(word, lambda node: f"10.0.0.{node}", run_folder) for word in command.argv()]
        assert words == expected[1:]
        for variable in command.env:
            assert given[variable.name] == fill(variable.value, lambda node: f"10.0.0.{node}", run_folder)


FAKE_SRUN = """#!{python}
import json, os, sys
words = sys.argv[1:]
if "--label" in words:
    print("0: 10.0.0.1")
else:
    with open(os.environ["SEEN"], "a") as seen:
        seen.write(json.dumps(words) + "\\n")
"""


def _run_job(script: str, tmp_path: Path) -> list[list[str]]:
    """Run job.sbatch with a fake Slurm of one node: the words of every srun that started a step."""
    fakes, place, run_folder = tmp_path / "slurm", tmp_path / "elsewhere", tmp_path / "run dir"
    for folder in (fakes, place, run_folder):
        folder.mkdir()
    for name, text in {
        "srun": FAKE_SRUN.replace("{python}", sys.executable),
        "scontrol": "#!/bin/sh\necho node-0\n",
        "scancel": "#!/bin/sh\n",
        "squeue": "#!/bin/sh\n",
    }.items():
        (fakes / name).write_text(text)
        (fakes / name).chmod(0o755)
    (run_folder / "plan.json").write_text("{}")
    (tmp_path / "job.sbatch").write_text(script)
    environment = {
        "PATH": f"{fakes}:{os.environ['PATH']}",
        "SEEN": str(tmp_path / "seen"),
        "PDKIT_RUN_DIR": str(run_folder),
        "SLURM_JOB_NODELIST": "node-0",
        "SLURM_JOB_ID": "7",
    }
    subprocess.run(
        ["bash", str(tmp_path / "job.sbatch")], cwd=place, env=environment, capture_output=True, check=False, timeout=60
    )
    assert list(place.iterdir()) == []
    return [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]


def test_mounts_and_images_reach_srun_as_written(ready: Ready, tmp_path: Path) -> None:
    mounts = {f"/host/{number} {text}": f"/in/{text}" for number, text in enumerate(HOSTILE) if "," not in text}
    engine = {"vllm": "0.26.0", "dynamo": "1.6.1", "image": "my image$(touch pwned)'\";x"}
    plan, _, _ = ready(_recipe(tmp_path, engine=engine, cluster={"mounts": mounts}, description="\n".join(HOSTILE)))
    run_folder = str(tmp_path / "run dir")
    started = _run_job(scripts(plan)["job.sbatch"], tmp_path)
    names = [word.removeprefix("--job-name=") for words in started for word in words if word.startswith("--job-name=")]
    assert sorted(names) == ["agg0", "driver", "frontend0"]
    for words in started:
        assert f"--container-image={engine['image']}" in words
        expected = ",".join([f"{run_folder}:{run_folder}", *(f"{host}:{inside}" for host, inside in mounts.items())])
        assert f"--container-mounts={expected}" in words


def test_directives_stay_one_line_each(ready: Ready, tmp_path: Path) -> None:
    cluster = {
        "account": "team$(pwned)",
        "qos": "a;b",
        "directives": {
            "comment": "it's $(touch pwned) # x",
            "mail-user": "a b",
            "signal": "B:TERM@60",
            "wait-all-nodes": 1,
            "exclude": "a,b[1-3]",
            "hold": True,
            "overcommit": False,
        },
    }
    plan, _, _ = ready(_recipe(tmp_path, cluster=cluster))
    lines = scripts(plan)["job.sbatch"].splitlines()
    header = [line for line in lines if line.startswith("#SBATCH ")]
    assert lines.index(header[-1]) < lines.index("set -euo pipefail")
    words = dict(shlex.split(line)[1].partition("=")[::2] for line in header)
    assert words["--account"] == cluster["account"]
    assert words["--qos"] == "a;b"
    for name in ("comment", "mail-user", "signal", "exclude"):
        assert words[f"--{name}"] == cluster["directives"][name]  # type: ignore[index]
    assert words["--wait-all-nodes"] == "1"
    assert words["--hold"] == ""
    assert "--overcommit" not in words
    assert all(len(shlex.split(line)) == 2 for line in header)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_comment_never_ends_early(text: str) -> None:
    assert len(Comment(text).splitlines()) <= 1
    assert "\n" not in Comment(f"{text}\ntouch pwned")


def test_a_description_stays_in_its_comment(ready: Ready, tmp_path: Path) -> None:
    for text in HOSTILE:
        plan, _, _ = ready(_recipe(tmp_path, description=text))
        lines = scripts(plan)["job.sbatch"].splitlines()
        assert lines[1].startswith("# hostile: ")
        assert lines[2].startswith("# ")


@given(
    st.lists(
        st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12), max_size=12
    )
)
@settings(max_examples=40, deadline=None)
def test_any_words_survive_quoting(texts: list[str]) -> None:
    line = " ".join(to_shell(join("pre=", text, RunFolder())) for text in texts)
    done = subprocess.run(
        ["bash", "-c", f'RUN_DIR="/r u n"; printf "%s\\0" {line}'] if texts else ["true"],
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().split("\0")[:-1] == [f"pre={text}/r u n" for text in texts]


def test_a_flag_may_have_no_value_one_or_several() -> None:
    flags = (Flag("--bare", None, "x"), Flag("--one", "1", "x"), Flag("--list", ("a b", "c"), "x"))
    command = Command(name="n", node=0, kind="worker", program=("p", "-m"), flags=flags, env=(), headline="h")
    assert command.argv() == ["p", "-m", "--bare", "--one", "1", "--list", "a b", "c"]

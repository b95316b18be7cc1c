"""A shared beginning is a part of the prompt, and the load tool is told so."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from pdkit.commands import planned
from pdkit.errors import RecipeError
from pdkit.job.load_settings import LoadSettings
from pdkit.job.load_tools import tool_argv
from pdkit.paths import shipped

FRONT_DOOR = shipped("recipes") / "qwen38_tep8.yaml"


def _options(**values: object) -> dict[str, str]:
    settings = LoadSettings.model_validate(
        {
            "tool": "vllm-bench", "tool_version": "0.31.0", "url": "http://x", "model": "m", "tokenizer": "t",
            "concurrency": [2], "isl": 1000, "osl": 10, "gpus": 2, "gpus_by_role": {"agg": 2}, **values,
        }
    )  # fmt: skip
    argv = tool_argv(settings, 2, 1, Path("out"))
    return {name: value for name, value in pairwise(argv) if name.startswith("--random")}


def test_prefix_and_the_rest_are_the_prompt() -> None:
    assert _options()["--random-input-len"] == "1000"
    shared = _options(shared_prefix=600)
    assert (shared["--random-prefix-len"], shared["--random-input-len"]) == ("600", "400")


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (("workload.shared_prefix=8192",), "shared_prefix must be less than isl"),
        (("workload.shared_prefix=1", "sweep.tool=aiperf"), "needs `sweep.tool: vllm-bench`"),
    ],
)
def test_a_prefix_that_could_not_be_made_is_refused(sets: tuple[str, ...], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        planned(FRONT_DOOR, sets)

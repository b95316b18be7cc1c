"""No part of a recipe, of either tool, changes without a row of the comparison that says so."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdkit.errors import RecipeError
from pdkit.interop.compare import compare
from pdkit.interop.compare_rows import Row
from pdkit.interop.compare_sides import Side, sides
from pdkit.paths import shipped
from pdkit.recipe.load import load

HERE = Path(__file__).parent
ORIGINALS = ("exported-one.yaml", "exported-two.yaml", "other-spellings.yaml", "rank-over-nodes.yaml")
EXPORTED = yaml.safe_load((HERE / "srt" / "exported-one.yaml").read_text())
WITHOUT_EFFECT = {
    "schema": "how the file is written",
    "description": "nobody but a reader sees it",
    "identity": "it tells about the original; what is started stands elsewhere",
    "model.precision": "it tells about the checkpoint",
    "backend.prefill_environment.DYN_LOG": "`environment` says it, too, and wins",
}
HYBRID = "no-enable-prefix-caching"
"""Left out it is vLLM's default for a hybrid model, as all of these are."""
OURS_WITHOUT_EFFECT = {
    "description": "nobody but a reader sees it",
    "ignore": "it accepts findings",
    "model.facts": "what pdkit knows, not what it starts",
    "serving.untrusted_input": "what rules ask for",
    "workload.template_tokens": "room in max-model-len, which has a row",
}
MORE: dict[str, Any] = {
    "common": {"speculative": {"draft_tensor_parallel_size": 1}, "args": {"seed": 1}, "env": {"UCX_TLS": "rc"}},
    "infra": {"frontends": 2, "frontend_args": {"router-mode": "kv"}, "discovery": "file", "http_port": 8001,
              "event_plane": "zmq", "image": "other/etcd:1", "ready_timeout_seconds": 77},
    "serving": {"tool_parser": "qwen3_xml", "untrusted_input": True},
    "workload": {"shared_prefix": 64},
    "hardware": {"facts": "gb200-nvl72"},
    "cluster": {"mounts": {"/a": "/b"}, "exclusive": False, "gres": False, "segment": 9, "qos": "high",
                "directives": {"comment": "x"}},
    "sweep": {"random_range_ratio": 0.5, "tool": "aiperf", "repeats": 3},
    "gate": {"floor": 0.5, "protocol": "completions-5shot", "questions": 3, "max_tokens": 77},
}  # fmt: skip


def test_no_part_of_an_original_changes_in_silence(tmp_path: Path) -> None:
    silent, seen = [], 0
    for name in ORIGINALS:
        data = yaml.safe_load((HERE / "srt" / name).read_text())
        [original] = _sides(tmp_path, data)
        for path, value in _leaves(data, ()):
            changed = copy.deepcopy(data)
            _set(changed, path, _other(value))
            dotted = ".".join(map(str, path))
            if any(f"{dotted}.".startswith(f"{one}.") for one in WITHOUT_EFFECT) or HYBRID in dotted.replace("_", "-"):
                continue
            try:
                found = _sides(tmp_path, changed)
            except RecipeError:  # refused, with a reason: not silent
                continue
            seen += 1
            silent += [f"{name}: {dotted}" for one in found if not _unlike(original, one)]
    assert seen > 100
    assert not silent, "\n".join(silent)


def test_no_setting_of_ours_changes_in_silence(tmp_path: Path) -> None:
    data = _ours()
    [original] = _sides(tmp_path, data)
    silent, seen = [], 0
    leaves = [(path, _other(value)) for path, value in _leaves(data, ())]
    for path, value in [*leaves, *_leaves(MORE, ())]:
        changed = copy.deepcopy(data)
        _set(changed, path, value)
        if any(f"{'.'.join(map(str, path))}.".startswith(f"{one}.") for one in OURS_WITHOUT_EFFECT):
            continue
        try:
            found = _sides(tmp_path, changed)
        except RecipeError:
            continue
        seen += 1
        silent += [".".join(map(str, path)) for one in found if not _unlike(original, one)]
    assert seen > 40
    assert not silent, "\n".join(silent)


@pytest.mark.parametrize(
    ("path", "value", "what"),
    [
        ("benchmark.req_rate", 4, "benchmark.req_rate"),
        ("benchmark.use_chat_template", False, "chat template"),
        ("benchmark.custom_tokenizer", "x.Tokenizer", "benchmark.custom_tokenizer"),
        ("benchmark.env.A", "1", "benchmark.env"),
        ("frontend.enable_multiple_frontends", True, "frontend.enable_multiple_frontends"),
        ("frontend.args.router-mode", "kv", "frontend.args"),
        ("frontend.type", "sglang", "frontend.type"),
        ("setup_script", "fix.sh", "setup_script"),
        ("dynamo.install", True, "dynamo.install"),
        ("backend.kv_events_config", True, "backend.kv_events_config"),
        ("backend.dp_launch_mode", "per_gpu", "backend.dp_launch_mode"),
        ("infra.etcd_nats_dedicated_node", True, "infra"),
        ("srun_options.mpi", "pmix", "srun_options"),
        ("container_mounts", {"/a": "/b"}, "mounts"),
        ("resources.gpus_per_node", 8, "GPUs per node"),
        ("backend.vllm_config.decode.speculative-config", {"method": "eagle3", "num_speculative_tokens": 3},
         "--speculative-config (rest)"),
        ("backend.vllm_config.decode.compilation-config",
         {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [4, 128]}, "decode.cudagraph_capture_sizes"),
    ],
)  # fmt: skip
def test_what_the_plan_has_no_place_for_decides(tmp_path: Path, path: str, value: Any, what: str) -> None:
    changed = copy.deepcopy(EXPORTED)
    _set(changed, tuple(path.split(".")), value)
    [one], [other] = _sides(tmp_path, EXPORTED), _sides(tmp_path, changed)
    for left, right in ((one, other), (other, one)):
        pair = compare(left, right)
        [row] = [row for row in pair.rows if row.what == what and row.decides]
        assert row.why
    assert compare(other, other).same_in_effect


def test_a_commit_of_dynamo_and_an_unknown_gpu_are_told_apart(tmp_path: Path) -> None:
    for path, one, other in (
        ("dynamo", {"hash": "a" * 40}, {"hash": "b" * 40}),
        ("resources.gpu_type", "h100", "b200"),
    ):
        found = []
        for value in (one, other):
            data = copy.deepcopy(EXPORTED)
            data["identity"]["frameworks"].pop("dynamo", None)
            _set(data, tuple(path.split(".")), {**value, "install": False} if isinstance(value, dict) else value)
            found += _sides(tmp_path, data)
        assert not compare(*found).same_in_effect
        assert compare(found[0], found[0]).same_in_effect


def test_ports_and_switches_that_are_off_do_not_decide(tmp_path: Path) -> None:
    changed = copy.deepcopy(EXPORTED)
    flags = changed["backend"]["vllm_config"]["decode"]
    flags |= {"data-parallel-rpc-port": 13399, "enable-eplb": False, "gpu-memory-utilization": "0.92"}
    [one], [other] = _sides(tmp_path, EXPORTED), _sides(tmp_path, changed)
    pair = compare(one, other)
    assert pair.same_in_effect
    port = "backend.vllm_config.decode.data-parallel-rpc-port"
    assert [row.verdict for row in pair.rows if row.what == port] == ["same in effect"]


def _ours() -> dict[str, Any]:
    """The front-door recipe with its base, as one mapping."""
    [loaded] = load(shipped("recipes") / "qwen38_tep8.yaml")
    return copy.deepcopy(loaded.source.data)


def _sides(folder: Path, data: Any) -> list[Side]:
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    return sides(file)


def _unlike(left: Side, right: Side) -> list[Row]:
    return [row for row in compare(left, right).rows if row.verdict != "same"]


def _leaves(data: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    else:
        yield path, data


def _set(data: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    for part in path[:-1]:
        if not isinstance(data.get(part), dict):
            data[part] = {}
        data = data[part]
    data[path[-1]] = value


def _other(value: Any) -> Any:
    """Another value of the same kind; a JSON mapping gets a key more."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value * 2 + 1
    if isinstance(value, list):
        return [*value, 7]
    text = str(value)
    return text.replace("{", '{"more": 1, ', 1) if text.startswith("{") else f"{text}1"

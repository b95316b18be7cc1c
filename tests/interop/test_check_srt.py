"""Recipes of srt-slurm with one fault each: what its own dry run lets pass is found, with the code and the place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pdkit.cli import app
from pdkit.commands import Checked
from pdkit.errors import Finding, RecipeError, UsageError
from pdkit.interop.check import findings_of_srt
from pdkit.interop.files import checked_files, is_srt_file
from pdkit.paths import shipped

HERE = Path(__file__).parent
PUBLISHED = HERE.parents[2] / "shared" / "published"

GOOD = """\
name: twenty
identity:
  model: {repo: Inferact/Qwen3.8-2.4T-A95B-NVFP4, revision: 0123456789abcdef0123456789abcdef01234567}
  frameworks: {vllm: 0.26.0, dynamo: 1.2.0}
model:
  path: hf:Inferact/Qwen3.8-2.4T-A95B-NVFP4
  container: vllm/vllm-openai:v0.25.1
  precision: NVFP4
dynamo: {version: 1.2.0, install: false}
resources:
  gpu_type: gb300
  gpus_per_node: 4
  prefill_nodes: 2
  prefill_workers: 1
  gpus_per_prefill: 8
  decode_nodes: 4
  decode_workers: 1
  gpus_per_decode: 16
frontend: {type: dynamo, enable_multiple_frontends: false}
backend:
  type: vllm
  connector: null
  prefill_environment:
    VLLM_SSM_CONV_STATE_LAYOUT: DS
  decode_environment:
    VLLM_SSM_CONV_STATE_LAYOUT: DS
  vllm_config:
    prefill:
      kv-transfer-config: '{"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_load_failure_policy": "fail"}'
      tensor-parallel-size: 2
      data-parallel-size: 4
      enable-expert-parallel: true
      no-enable-prefix-caching: true
      mamba-ssm-cache-dtype: bfloat16
      kv-cache-dtype: fp8
      max-model-len: 10240
      max-num-seqs: 32
      max-num-batched-tokens: 16384
      compilation-config: '{"cudagraph_mode": "PIECEWISE"}'
      block-size: 2112
    decode:
      kv-transfer-config: '{"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_load_failure_policy": "fail"}'
      tensor-parallel-size: 4
      data-parallel-size: 4
      enable-expert-parallel: true
      no-enable-prefix-caching: true
      mamba-ssm-cache-dtype: bfloat16
      kv-cache-dtype: fp8
      max-model-len: 10240
      max-num-seqs: 80
      max-num-batched-tokens: 96
      max-cudagraph-capture-size: 80
      compilation-config: '{"cudagraph_mode": "FULL_DECODE_ONLY"}'
      block-size: 2112
benchmark:
  type: sa-bench
  endpoint: /v1/chat/completions
  isl: 8192
  osl: 1024
  concurrencies: 64x256
  random_range_ratio: 1.0
  num_prompts_mult: 8
  num_warmup_mult: 1
"""
NIXL = """'{"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_load_failure_policy": "fail"}'"""


def changed(old: str, new: str, nth: int = 1) -> Callable[[str], tuple[str, int]]:
    """Replace the nth occurrence (the last for -1), and say in which line it stood."""

    def change(text: str) -> tuple[str, int]:
        parts = text.split(old)
        assert len(parts) > abs(nth), f"{old!r} does not occur often enough"
        cut = nth if nth > 0 else len(parts) + nth
        before = old.join(parts[:cut])
        return before + new + old.join(parts[cut:]), 1 + before.count("\n")

    return change


def places(findings: list[Finding], code: str, severities: tuple[str, ...] = ("error",)) -> list[tuple[int, int]]:
    found = [one.at.rsplit(":", 2) for one in findings if one.code == code and one.severity in severities]
    return [(int(line), int(column)) for _, line, column in found]


def check(tmp_path: Path, text: str) -> list[Finding]:
    file = tmp_path / "theirs.yaml"
    file.write_text(text)
    (result,) = checked_files([file])
    return result.findings


def test_the_good_one_has_no_fault(tmp_path: Path) -> None:
    assert [str(one) for one in check(tmp_path, GOOD) if one.severity != "info"] == []


@pytest.mark.parametrize(
    ("code", "column", "change"),
    [
        pytest.param("PD001", 19, changed("block-size: 2112", "block-size: 4224", -1), id="block size on one side"),
        pytest.param("PD002", 19, changed("block-size: 2112", "block-size: 256"), id="block size without the state"),
        pytest.param("PD123", 29, changed("tensor-parallel-size: 4", "tensor-parallel-size: 8"), id="TP"),
        pytest.param("PD016", 7, changed("max-num-seqs: 80", "max-num-seq: 80"), id="a flag that does not exist"),
        pytest.param("PD013", 33, changed("LAYOUT: DS", "LAYOUT: SD"), id="SSM layout on one side"),
        pytest.param("PD013", 5, changed("    VLLM_SSM_CONV_STATE_LAYOUT: DS\n", "    A: b\n", 2), id="no SSM layout"),
        pytest.param("PD011", 23, changed("kv-cache-dtype: fp8", "kv-cache-dtype: bfloat16", -1), id="KV dtype"),
        pytest.param("PD012", 30, changed("dtype: bfloat16", "dtype: float32", -1), id="SSM dtype"),
        pytest.param("PD009", 22, changed("max-model-len: 10240", "max-model-len: 9000", -1), id="too short"),
        pytest.param("PD006", 18, changed("64x256", "64x512"), id="more requests than seats"),
        pytest.param("PD121", 19, changed("decode_workers: 1", "decode_workers: -1"), id="negative workers"),
        pytest.param("PD121", 18, changed("gpus_per_node: 4", "gpus_per_node: -4"), id="negative GPUs"),
        pytest.param("PD121", 18, changed("64x256", "-64"), id="negative concurrency"),
        pytest.param("PD121", 8, changed("isl: 8192", "isl: -8192"), id="negative ISL"),
        pytest.param("PD104", 31, changed("tokens: 16384", "tokens: -16384"), id="negative tokens"),
        pytest.param("PD104", 21, changed("max-num-seqs: 80", "max-num-seqs: -80"), id="negative seats"),
        pytest.param("PD124", 20, changed("prefill_workers: 1", "prefill_workers: 3"), id="more workers than nodes"),
        pytest.param("PD126", 27, changed(NIXL, "'{\"kv_connector\": \"NixlConnector\",}'"), id="wrong JSON"),
        pytest.param("PD126", 27, changed('"PIECEWISE"}', '"PIECEWISE"'), id="JSON without an end"),
        pytest.param("PD125", 7, changed("block-size: 2112", "block-size: 2112\n      block_size: 2112"), id="twice"),
        pytest.param("PD102", 7, changed("block-size: 2112", "block-size: 1\n      block-size: 2"), id="a key twice"),
        pytest.param("PD125", 14, changed("connector: null", "connector: nixl"), id="a second connector"),
        pytest.param("PD121", 27, changed("parallel-size: 4", 'parallel-size: "4"', -1), id="DP as text"),
        pytest.param("PD014", 27, changed("NixlConnector", "OffloadingConnector", -1), id="connectors differ"),
        pytest.param("PD104", 31, changed("block-size", "gpu-memory-utilization: 2.0\n      block-size"), id="GPU"),
        pytest.param("PD121", 3, changed("  isl: 8192\n", ""), id="no ISL"),
        pytest.param("PD122", 9, changed("type: vllm", "type: sglang"), id="another engine"),
        pytest.param("PD022", 18, changed("block-size", "numa-bind: 1\n      block-size"), id="a switch with a value"),
    ],
)  # fmt: skip
def test_each_fault_is_found_at_its_place(
    tmp_path: Path, code: str, column: int, change: Callable[[str], tuple[str, int]]
) -> None:
    text, _ = change(GOOD)
    found = places(check(tmp_path, text), code)
    assert found, [str(one) for one in check(tmp_path, text)]
    assert column in {at for _, at in found}


@pytest.mark.parametrize(
    ("code", "line", "change"),
    [
        ("PD001", "      block-size: 4224", changed("block-size: 2112", "block-size: 4224", -1)),
        ("PD016", "      max-num-seq: 80", changed("max-num-seqs: 80", "max-num-seq: 80")),
        ("PD011", "      kv-cache-dtype: bfloat16", changed("kv-cache-dtype: fp8", "kv-cache-dtype: bfloat16", -1)),
        ("PD006", "  concurrencies: 64x512", changed("64x256", "64x512")),
        ("PD125", "      block_size: 2112", changed("block-size: 2112", "block-size: 2112\n      block_size: 2112")),
        ("PD124", "  prefill_workers: 3", changed("prefill_workers: 1", "prefill_workers: 3")),
        ("PD121", '      data-parallel-size: "4"', changed("data-parallel-size: 4", 'data-parallel-size: "4"')),
    ],
)
def test_the_line_is_that_of_the_original(
    tmp_path: Path, code: str, line: str, change: Callable[[str], tuple[str, int]]
) -> None:
    text, _ = change(GOOD)
    lines = text.splitlines()
    assert line in [lines[number - 1] for number, _ in places(check(tmp_path, text), code)]


def test_a_side_without_connector_is_found(tmp_path: Path) -> None:
    text = GOOD.replace(f"      kv-transfer-config: {NIXL}\n", "", 1)
    (place,) = places(check(tmp_path, text), "PD014")
    assert text.splitlines()[place[0] - 1].strip() in ("prefill:", "tensor-parallel-size: 2")


def test_80_gpus_do_not_fit_the_rack(tmp_path: Path) -> None:
    text = GOOD.replace("prefill_nodes: 2", "prefill_nodes: 16").replace("prefill_workers: 1", "prefill_workers: 8")
    (finding,) = [one for one in check(tmp_path, text) if one.code == "PD004"]
    assert finding.message.startswith("80 GPUs on 20 nodes do not fit gb300-nvl72")


def test_advice_names_the_flags_of_the_original(tmp_path: Path) -> None:
    text = GOOD.replace("max-num-seqs: 80", "max-num-seqs: 800").replace("64x256", "64x3200")
    (finding,) = [one for one in check(tmp_path, text) if one.code == "PD007"]
    assert finding.fix.startswith("lower max-num-seqs of decode to ")


def test_a_smaller_tp_without_dp_leaves_gpus_idle(tmp_path: Path) -> None:
    text = GOOD.replace(
        "      tensor-parallel-size: 4\n      data-parallel-size: 4\n", "      tensor-parallel-size: 8\n"
    )
    assert places(check(tmp_path, text), "PD123") == []
    assert places(check(tmp_path, text), "PD123", ("warning",)) != []


def test_a_smaller_dp_fails_inside_the_job(tmp_path: Path) -> None:
    text = GOOD.replace("data-parallel-size: 4", "data-parallel-size: 3")
    assert len(places(check(tmp_path, text), "PD123")) == 2


def test_workers_of_whole_nodes_do_not_start_on_a_shared_one(tmp_path: Path) -> None:
    text = GOOD.replace("gpus_per_prefill: 8", "gpus_per_prefill: 2").replace("prefill_nodes: 2", "prefill_nodes: 1")
    text = text.replace("data-parallel-size: 4", "data-parallel-size: 1", 1)
    together = text.replace("connector: null", "connector: null\n  allow_prefill_decode_colocation: true\n"
                            "  allow_prefill_decode_colocation_across_nodes: true")  # fmt: skip
    assert places(check(tmp_path, text), "PD124") == []
    assert places(check(tmp_path, together), "PD124") == [(17, 19)]


SCHEMA_2 = """\
schema: 2
name: second
model: {path: "hf:Inferact/Qwen3.8-2.4T-A95B-NVFP4", container: "vllm/vllm-openai:v0.25.1"}
dynamo: {source: {pypi: 1.2.0}, install: false}
resources: {gpu_type: gb300, gpus_per_node: 4}
engine: {type: vllm, connector: nixl}
roles:
  prefill:
    nodes: 1
    workers: 1
    gpus: 4
    env: {VLLM_SSM_CONV_STATE_LAYOUT: DS}
    args:
      tensor-parallel-size: 4
      max-model-len: 10240
  decode:
    nodes: 2
    workers: 1
    gpus: 8
    args:
      tensor-parallel-size: 8
      max-model-len: 10240
      max-num-seqs: 16
benchmark: {type: sa-bench, isl: 8192, osl: 1024, concurrencies: [16, 32]}
"""


def test_schema_2_is_checked_at_its_own_places(tmp_path: Path) -> None:
    findings = check(tmp_path, SCHEMA_2)
    assert (24, 71) in places(findings, "PD006")
    assert places(findings, "PD001") != []  # TP4 beside TP8: natural sizes differ and neither side pins one
    assert places(findings, "PD013") != []


def test_rules_that_need_the_model_are_named_where_it_is_unknown(tmp_path: Path) -> None:
    text = GOOD.replace("Inferact/Qwen3.8-2.4T-A95B-NVFP4", "someone/Unheard-Of-7B").replace("64x256", "64x512")
    findings = check(tmp_path, text)
    (told,) = [one for one in findings if one.code == "PD112"]
    assert told.severity == "info"
    named = told.message.rpartition("decided: ")[2].split(", ")
    assert {"PD002", "PD003", "PD005", "PD007", "PD013"} <= set(named)
    assert not set(named) & {one.code for one in findings if one is not told}
    assert places(findings, "PD006") == [(60, 18)]


@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        ("PD001", "block-size: 2112\nbenchmark", "block-size: 128\nbenchmark"),
        ("PD009", "max-model-len: 10240", "max-model-len: 4096"),
        ("PD011", "kv-cache-dtype: fp8", "kv-cache-dtype: bfloat16"),
        ("PD016", "max-num-seqs: 80", "max-num-seq: 80"),
    ],
)
def test_rules_that_do_not_need_the_model_are_decided_where_it_is_unknown(
    tmp_path: Path, code: str, old: str, new: str
) -> None:
    text = GOOD.replace("Inferact/Qwen3.8-2.4T-A95B-NVFP4", "someone/Unheard-Of-7B")
    assert places(check(tmp_path, text), code) == []
    assert places(check(tmp_path, text.replace(old, new, 1)), code) != []


def test_which_files_are_theirs(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.yaml"
    theirs.write_text(GOOD)
    assert is_srt_file(theirs)
    assert not is_srt_file(tmp_path / "none.yaml")
    assert not any(is_srt_file(file) for file in shipped("recipes").rglob("*.yaml"))


def test_a_variant_counts_as_a_recipe_and_faults_are_told_once(tmp_path: Path) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text(GOOD.replace("max-num-seqs: 80", "max-num-seq: 80") + "sweep: {x: [1, 2]}\n")
    (result,) = checked_files([file])
    assert isinstance(result, Checked)
    assert result.recipes == 2
    assert len(places(result.findings, "PD016")) == 1


def test_the_command_takes_both_kinds_of_recipe(tmp_path: Path) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text(GOOD.replace("64x256", "64x512"))
    done = CliRunner().invoke(app, ["check", str(file), str(shipped("recipes") / "qwen38_tep8.yaml")])
    assert done.exit_code == 1
    assert f"{file}:60:18: error PD006" in done.stdout
    assert "2 recipes checked" in done.stdout


def test_settings_cannot_be_changed_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text(GOOD)
    done = CliRunner().invoke(app, ["check", str(file), "--set", "decode.mtp=0"])
    assert isinstance(done.exception, UsageError)
    assert "one of srt-slurm" in str(done.exception)


def test_a_file_that_is_no_recipe_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text("base: [1, 2]\n")
    with pytest.raises(RecipeError, match="`base` should be a mapping"):
        findings_of_srt(file)


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published recipes are not beside this checkout")
def test_the_published_qwen38_recipes_have_no_fault() -> None:
    for file in sorted((PUBLISHED / "qwen38-gb300").glob("*.yaml")):
        assert [str(one) for one in findings_of_srt(file) if one.severity != "info"] == []

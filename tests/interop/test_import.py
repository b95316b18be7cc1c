"""Reading and converting recipes of srt-slurm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from pdkit.cli import app
from pdkit.commands import planned
from pdkit.errors import RecipeError
from pdkit.interop.srt import read_srt
from pdkit.interop.unknown import STAND_IN
from pdkit.interop.variants import variants
from pdkit.paths import shipped
from pdkit.plan.plan import Plan, make_plan
from pdkit.recipe.load import load
from pdkit.render.engine import commands
from pdkit.render.text import fill

HERE = Path(__file__).parent
OWN = sorted((HERE / "srt").glob("*.yaml"))
PUBLISHED = HERE.parents[2] / "shared" / "published"
needs_published = pytest.mark.skipif(
    not PUBLISHED.is_dir(), reason="the published recipes are not beside this checkout"
)


def engines(plan: Plan) -> list[tuple[str, int, str, list[str], dict[str, str]]]:
    """What every worker is told, in the order of flags that does not matter."""
    found = []
    for command in commands(plan):
        if command.kind == "worker":
            words = [fill(word, "node{}".format, "RUN") for word in command.argv()]
            env = {one.name: fill(one.value, "node{}".format, "RUN") for one in command.env}
            found.append((command.name, command.node, " ".join(words[:3]), sorted(flags_of(words)), env))
    return found


def flags_of(words: list[str]) -> Iterator[str]:
    starts = [index for index, word in enumerate(words) if word.startswith("--")]
    for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
        yield " ".join(words[start:end])


@needs_published
def test_the_published_qwen38_recipes_import_to_the_engines_of_ours(tmp_path: Path) -> None:
    ours = [plan for file in (shipped("recipes") / "qwen38/published").glob("*.yaml") for _, plan, _ in planned(file)]
    by_load = {tuple(plan.recipe.workload.concurrency): plan for plan in ours}
    files = sorted((PUBLISHED / "qwen38-gb300").glob("*.yaml"))
    assert len(files) == len(by_load) == 8
    for file in files:
        (imported,) = read_srt(file)
        written = tmp_path / file.name
        written.write_text(imported.text)
        (loaded,) = load(written)
        plan, mine = make_plan(loaded), by_load[tuple(loaded.recipe.workload.concurrency)]
        assert engines(plan) == engines(mine)
        assert {role: one.memory for role, one in plan.roles.items()} == {
            role: one.memory for role, one in mine.roles.items()
        }
        assert plan.recipe.workload == mine.recipe.workload
        assert plan.recipe.sweep.endpoint == mine.recipe.sweep.endpoint
        assert [note for note in imported.notes if note.kind != "added"] == []


@needs_published
def test_the_text_of_a_published_recipe_is_as_short_as_ours() -> None:
    (imported,) = read_srt(PUBLISHED / "qwen38-gb300/1xtp2dep4-1xtp4dep4-mtp-cc128.yaml")
    data = yaml.safe_load(imported.text)
    assert data["prefill"] == {"topology": "TP2DP4+EP"}
    assert data["decode"] == {"topology": "TP4DP4+EP", "mtp": 3, "max_num_seqs": 80}
    assert set(data["common"]) == {"kv_cache_dtype", "mamba_ssm_cache_dtype", "args", "env"}


@pytest.mark.parametrize("file", [*OWN, *sorted(PUBLISHED.rglob("*.yaml"))], ids=lambda file: file.stem)
def test_the_text_plans_to_the_same_engines_as_the_original(file: Path, tmp_path: Path) -> None:
    for imported in read_srt(file):
        written = tmp_path / f"{imported.name}.yaml"
        written.write_text(imported.text)
        (loaded,) = load(written)
        known = imported.recipe.model.facts.startswith("qwen3")
        model = None if known else STAND_IN
        long, short = make_plan(imported.loaded, model), make_plan(loaded, model)
        for role, one in long.roles.items():
            other = short.roles[role]
            assert other.topology == one.topology
            assert other.endpoints == one.endpoints
            assert other.mtp == one.mtp
            assert other.block_size.value == one.block_size.value
            assert other.kv_transfer == one.kv_transfer
            assert other.conv_state_layout == one.conv_state_layout
            assert (other.kv_cache_dtype, other.ssm_dtype) == (one.kv_cache_dtype, one.ssm_dtype)
            for size in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "max_cudagraph_capture_size"):
                assert getattr(other.sizing, size).value == getattr(one.sizing, size).value, size
            assert other.sizing.cudagraph_mode.value == one.sizing.cudagraph_mode.value
            assert other.settings.args == one.settings.args
            assert other.settings.env == one.settings.env
            assert bool(other.settings.prefix_caching) == bool(one.settings.prefix_caching)
            assert other.settings.speculative == one.settings.speculative


BASE = """
name: small
model: {path: "hf:Qwen/Qwen3-32B", container: "vllm/vllm-openai:v0.25.1", precision: bf16}
dynamo: {version: 1.2.0, install: false}
resources:
  gpu_type: gb200
  gpus_per_node: 4
  prefill_nodes: 1
  prefill_workers: 1
  gpus_per_prefill: 4
  decode_nodes: 1
  decode_workers: 1
  gpus_per_decode: 4
frontend: {type: dynamo, enable_multiple_frontends: false}
backend:
  type: vllm
  connector: null
  vllm_config:
    prefill: &flags
      kv-transfer-config: '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
      tensor-parallel-size: 4
      no-enable-prefix-caching: true
      max-model-len: 4096
    decode:
      <<: *flags
      max-num-seqs: 64
benchmark: {type: sa-bench, isl: 1024, osl: 1024, concurrencies: 4x8, random_range_ratio: 1.0}
"""


def indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.strip().splitlines())


def srt(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "theirs.yaml"
    file.write_text(text)
    return file


def test_merges_of_yaml_are_read(tmp_path: Path) -> None:
    (imported,) = read_srt(srt(tmp_path, BASE))
    assert imported.recipe.decode is not None
    assert imported.recipe.decode.max_model_len == 4096
    assert imported.recipe.decode.max_num_seqs == 64


def test_overrides_merge_name_and_point_at_themselves(tmp_path: Path) -> None:
    text = f"base:\n{indented(BASE)}"
    text += "override_wide:\n  backend:\n    vllm_config:\n      decode:\n        max-num-seqs: 512\n"
    text += "override_bare:\n  name: bare\n  benchmark:\n    num_prompts_mult: null\n    concurrencies: [1]\n"
    bare, wide = read_srt(srt(tmp_path, text))
    assert [bare.name, wide.name] == ["bare", "small_wide"]
    assert bare.recipe.workload.concurrency == [1]
    assert wide.recipe.decode is not None
    assert wide.recipe.decode.max_num_seqs == 512
    line = 1 + text[: text.index("512")].count("\n")
    assert wide.source.at(("decode", "max_num_seqs")) == f"{tmp_path}/theirs.yaml:{line}:23"


def test_zipped_lists_give_one_recipe_per_element(tmp_path: Path) -> None:
    text = (
        f"base:\n{indented(BASE)}zip_override_sizes:\n  benchmark:\n    concurrencies: [[4, 8], [16]]\n    isl: [512]\n"
    )
    first, second = read_srt(srt(tmp_path, text))
    assert [first.name, second.name] == ["small_sizes_0", "small_sizes_1"]
    assert [one.recipe.workload.concurrency for one in (first, second)] == [[4, 8], [16]]
    assert [one.recipe.workload.isl for one in (first, second)] == [512, 512]
    assert second.srt.variant == "zip_override_sizes[1]"


def test_a_sweep_fills_in_every_combination(tmp_path: Path) -> None:
    text = BASE.replace("max-num-seqs: 64", 'max-num-seqs: "{seqs}"').replace(
        "concurrencies: 4x8", 'concurrencies: ["{load}"]'
    )
    found = read_srt(srt(tmp_path, text + "sweep: {seqs: [32, 64], load: [4, 8]}\n"))
    assert [one.name for one in found] == [
        "small_seqs32_load4",
        "small_seqs32_load8",
        "small_seqs64_load4",
        "small_seqs64_load8",
    ]
    assert [one.recipe.workload.concurrency for one in found] == [[4], [8], [4], [8]]
    assert [one.recipe.decode.max_num_seqs for one in found if one.recipe.decode] == [32, 32, 64, 64]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("zip_override_x:\n  benchmark: {isl: [1, 2], osl: [1, 2, 3]}\n", "lists of 2 and 3 values"),
        ("zip_override_x:\n  benchmark: {isl: 1}\n", "it has none"),
        ("zip_override_x:\n  benchmark: {isl: []}\n", "it has an empty one"),
        ("override_x: 3\n", "`override_x` should be a mapping"),
        ("", "a base without any"),
    ],
)
def test_variants_that_do_not_expand_are_refused(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message) as error:
        variants(srt(tmp_path, f"base:\n{indented(BASE)}{more}"))
    assert error.value.findings[0].code == "PD120"


@pytest.mark.parametrize(
    ("part", "what"),
    [
        ("setup_script: install.sh\n", "setup_script"),
        ("srun_options: {mem: '0'}\n", "srun_options"),
        ("observability: {enabled: true}\n", "observability"),
        ("frontend: {type: dynamo, enable_multiple_frontends: false, args: {router-mode: kv}}\n", "frontend.args"),
        ("dynamo: {version: 1.2.0, install: true}\n", "dynamo.install"),
        (
            "benchmark: {type: sa-bench, isl: 8, osl: 8, concurrencies: 4, custom_tokenizer: mine}\n",
            "benchmark.custom_tokenizer",
        ),
        ("never_heard_of: {a: {b: 1}}\n", "never_heard_of"),
    ],
)
def test_what_has_no_counterpart_is_listed_with_its_place(tmp_path: Path, part: str, what: str) -> None:
    key = part.partition(":")[0]
    kept = "".join(block for block in blocks(BASE) if not block.startswith(f"{key}:"))
    (imported,) = read_srt(srt(tmp_path, kept + part))
    (note,) = [one for one in imported.notes if one.what == what]
    assert note.kind == "dropped"
    assert note.at.startswith(f"{tmp_path}/theirs.yaml:{1 + kept.count(chr(10))}:")
    assert f"dropped: {what}" in imported.text


def blocks(text: str) -> Iterator[str]:
    """The top-level parts of a YAML text."""
    block = ""
    for line in text.strip().splitlines(keepends=True):
        if block and not line.startswith((" ", "\n")):
            yield block
            block = ""
        block += line
    yield block + "\n"


def test_a_model_without_facts_is_imported_and_says_so(tmp_path: Path) -> None:
    (imported,) = read_srt(srt(tmp_path, BASE.replace("Qwen/Qwen3-32B", "someone/Unheard-Of-7B")))
    assert imported.recipe.model.facts == "someone/Unheard-Of-7B"
    assert any("no facts for this model" in note.why for note in imported.notes)


def test_another_way_to_speculate_keeps_its_draft_model(tmp_path: Path) -> None:
    config = '{"method": "eagle3", "model": "someone/draft", "num_speculative_tokens": 3}'
    text = BASE.replace(
        "      max-model-len: 4096\n", f"      max-model-len: 4096\n      speculative-config: '{config}'\n"
    )
    (imported,) = read_srt(srt(tmp_path, text))
    worker = next(one for one in commands(make_plan(imported.loaded)) if one.name == "decode0")
    (given,) = [flag.value for flag in worker.flags if flag.name == "--speculative-config"]
    assert json.loads(str(given)) == json.loads(config)


def run(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_command_writes_a_recipe_that_pdkit_reads(tmp_path: Path) -> None:
    done = run("import", srt(tmp_path, BASE), "-o", tmp_path / "ours.yaml", "--strict")
    assert done.exit_code == 0, done.output
    assert run("plan", tmp_path / "ours.yaml").exit_code == 0


def test_strict_fails_when_something_is_lost(tmp_path: Path) -> None:
    file = srt(tmp_path, BASE + "setup_script: install.sh\n")
    assert run("import", file).exit_code == 0
    assert run("import", file, "--strict").exit_code == 1


@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
def test_other_engines_are_refused(tmp_path: Path, engine: str) -> None:
    done = run("import", srt(tmp_path, BASE.replace("type: vllm", f"type: {engine}")))
    assert done.exit_code == 2
    assert f"the engine of this recipe is {engine}" in done.stderr


def test_the_default_engine_is_refused_too(tmp_path: Path) -> None:
    kept = "".join(block for block in blocks(BASE) if not block.startswith("backend:"))
    done = run("import", srt(tmp_path, kept))
    assert done.exit_code == 2
    assert "sglang, srt-slurm's default" in done.stderr


def test_a_folder_goes_to_a_folder_with_one_table(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "deep").mkdir(parents=True)
    (theirs / "one.yaml").write_text(BASE)
    (theirs / "deep" / "two.yaml").write_text(BASE + "sweep: {x: [1, 2]}\n")
    (theirs / "other.yaml").write_text(BASE.replace("type: vllm", "type: sglang"))
    (theirs / "cluster.yaml").write_text("default_account: me\n")
    done = run("import", theirs, "-o", tmp_path / "ours")
    assert done.exit_code == 2  # one is refused, the others are written all the same
    written = sorted(str(file.relative_to(tmp_path / "ours")) for file in (tmp_path / "ours").rglob("*.yaml"))
    assert written == ["deep/small_x1.yaml", "deep/small_x2.yaml", "one.yaml"]
    rows = [line.split() for line in done.stderr.splitlines() if line.startswith(str(theirs))]
    assert [row for row in rows if len(row) <= 5 and row[1].isdigit()] == [
        [str(theirs / "deep/two.yaml"), "2", "0", "0"],
        [str(theirs / "one.yaml"), "1", "0", "0"],
        [str(theirs / "other.yaml"), "0", "0", "1", "refused"],
    ]
    assert "cluster.yaml" not in done.stderr


def test_json_holds_texts_notes_and_refusals(tmp_path: Path) -> None:
    done = run("import", srt(tmp_path, BASE + "setup_script: install.sh\n"), "--json")
    data = json.loads(done.stdout)
    (recipe,) = data["files"][0]["recipes"]
    assert yaml.safe_load(recipe["text"])["name"] == "small"
    assert [note["what"] for note in recipe["notes"] if note["kind"] == "dropped"] == ["setup_script"]
    assert data["files"][0]["refused"] == []


def test_an_import_never_overwrites_an_original(tmp_path: Path) -> None:
    text = (HERE / "srt" / "exported-one.yaml").read_text()
    file, link = tmp_path / "one.yaml", tmp_path / "link"
    file.write_text(text)
    link.symlink_to(tmp_path, target_is_directory=True)
    for source, output in ((file, file), (tmp_path, tmp_path), (file, tmp_path), (file, link), (tmp_path, link)):
        done = CliRunner().invoke(app, ["import", str(source), "-o", str(output)])
        assert "would be overwritten" in str(done.exception)
        assert file.read_text() == text

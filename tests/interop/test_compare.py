"""Two deployments side by side: what counts as the same, and what of a difference is said."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from pdkit.errors import RecipeError, UsageError
from pdkit.facts.flags import flag_table
from pdkit.interop.compare import Comparison, compare
from pdkit.interop.compare_flags import default_of, effective
from pdkit.interop.compare_matrix import match, verdicts
from pdkit.interop.compare_rows import GROUPS, Row
from pdkit.interop.compare_sides import sides, sides_below
from pdkit.interop.show_compare import comparison_data, matrix_data, show_matrix
from pdkit.interop.show_page import write_page
from pdkit.paths import shipped

HERE = Path(__file__).parent
PUBLISHED = HERE.parents[2] / "shared" / "published" / "qwen38-gb300"
FRONT_DOOR = shipped("recipes") / "qwen38_tep8.yaml"
EXPORTED = (HERE / "srt" / "exported-one.yaml").read_text()


def test_the_published_qwen38_recipes_do_what_ours_do() -> None:
    if not PUBLISHED.is_dir():
        pytest.skip("the published recipes are not beside this checkout")
    ours, _ = sides_below(shipped("recipes") / "qwen38" / "published")
    theirs, faults = sides_below(PUBLISHED)
    found = match(ours, theirs)
    assert faults == []
    assert len(found.pairs) == 8
    assert found.same_in_effect
    for pair in found.pairs:
        differing = {row.what for row in pair.rows if row.verdict not in ("same", "same in effect")}
        assert differing - {"time"} == {"answers", "exclusive", "recipe"}  # a gate in the same job takes time
        alike = {row.what for row in pair.rows if row.verdict == "same in effect"}
        assert alike <= {"--block-size", "warm-up", "load tool"}
        assert {group for group, verdict in verdicts(pair).items() if verdict != "same"} <= {
            "block size", "benchmark", "accuracy", "job", "names",
        }  # fmt: skip


def test_an_unpinned_block_size_says_what_vllm_settles_on(tmp_path: Path) -> None:
    theirs = EXPORTED.replace("block-size: 2176\n", "seed: 0\n").replace(
        "tensor-parallel-size: 8", "tensor-parallel-size: 4"
    )
    theirs = theirs.replace("gpus_per_decode: 8", "gpus_per_decode: 4").replace("decode_nodes: 2", "decode_nodes: 1")
    row = _row(_pair(tmp_path, theirs), "prefill", "--block-size")
    assert row.verdict == "same in effect"
    assert row.why == "unpinned there, but vLLM settles on 2176 on both sides"


def test_an_unpinned_block_size_that_comes_out_otherwise_differs(tmp_path: Path) -> None:
    pair = _pair(tmp_path, EXPORTED.replace("block-size: 2176\n", "seed: 0\n"))
    row = _row(pair, "decode", "effective block size")
    assert (row.left, row.right, row.verdict) == ("2176", "1088", "differs")
    assert not pair.same_in_effect


def test_a_flag_left_out_counts_as_its_default(tmp_path: Path) -> None:
    pair = _pair(tmp_path, EXPORTED.replace("block-size: 2176\n", "block-size: 2176\n      seed: 0\n"))
    row = _row(pair, "decode", "--seed")
    assert (row.verdict, row.why) == ("same in effect", "left out here, and vLLM's default is 0")
    assert pair.same_in_effect
    pair = _pair(tmp_path, EXPORTED.replace("block-size: 2176\n", "block-size: 2176\n      seed: 7\n"))
    assert _row(pair, "decode", "--seed").verdict == "only there"
    assert not pair.same_in_effect


@pytest.mark.parametrize(
    ("old", "new", "role", "what"),
    [
        ("max-num-seqs: 32", "max-num-seqs: 48", "decode", "max-num-seqs"),
        ('"num_speculative_tokens": 3', '"num_speculative_tokens": 2', "decode", "MTP"),
        ("kv-cache-dtype: fp8", "kv-cache-dtype: bfloat16", "prefill", "KV dtype"),
        ("mamba-ssm-cache-dtype: bfloat16", "mamba-ssm-cache-dtype: float32", "prefill", "SSM dtype"),
        ("LAYOUT: DS", "LAYOUT: SD", "decode", "conv state layout"),
        ('"kv_load_failure_policy": "fail"', '"kv_load_failure_policy": "recompute"', "decode", "--kv-transfer-config"),
        ("generation-config: vllm", "generation-config: auto", "prefill", "--generation-config"),
        ("DYN_LOG: error", "DYN_LOG: info", "decode", "DYN_LOG"),
        ("isl: 8192", "isl: 4096", "", "ISL"),
        ("concurrencies: 8x16", "concurrencies: 8x32", "", "concurrency"),
        ("random_range_ratio: 1.0", "random_range_ratio: 0.8", "", "lengths"),
        ("num_warmup_mult: 1", "num_warmup_mult: 2", "", "warm-up"),
        ("num_prompts_mult: 8", "num_prompts_mult: 10", "", "requests per point"),
        ("/v1/chat/completions", "/v1/completions", "", "API"),
        ("gpu_type: gb300", "gpu_type: gb200", "", "hardware"),
        ("prefill_workers: 1", "prefill_workers: 2", "prefill", "endpoints"),
    ],
)  # fmt: skip
def test_every_real_difference_decides(tmp_path: Path, old: str, new: str, role: str, what: str) -> None:
    assert old in EXPORTED
    pair = _pair(tmp_path, EXPORTED.replace(old, new).replace("prefill_nodes: 2", "prefill_nodes: 4"))
    row = _row(pair, role, what)
    assert row.verdict == "differs"
    assert row.decides
    assert row.why
    assert not pair.same_in_effect


def test_accuracy_job_and_names_do_not_decide(tmp_path: Path) -> None:
    pair = _pair(tmp_path, EXPORTED.replace("time_limit: '2:00:00'", "time_limit: '9:00:00'"))
    assert _row(pair, "", "time").verdict == "differs"
    assert pair.same_in_effect


def test_a_role_on_one_side_only(tmp_path: Path) -> None:
    (ours,), (theirs,) = sides(FRONT_DOOR), sides(HERE / "srt" / "exported-two.yaml")
    pair = compare(ours, theirs)
    assert _row(pair, "decode", "endpoints").verdict == "only here"
    assert _row(pair, "agg", "endpoints").verdict == "only there"
    assert not pair.same_in_effect


def test_either_side_may_be_of_either_tool() -> None:
    (one,) = sides(HERE / "srt" / "exported-one.yaml")
    (two,) = sides(FRONT_DOOR)
    assert compare(one, two).same_in_effect
    assert compare(one, one).same_in_effect
    assert {row.verdict for row in compare(two, two).rows} == {"same"}


def test_without_facts_of_the_model_block_sizes_are_not_guessed(tmp_path: Path) -> None:
    theirs = EXPORTED.replace("Inferact/Qwen3.8-2.4T-A95B-NVFP4", "someone/Unheard-Of-7B")
    (tmp_path / "a.yaml").write_text(theirs)
    (tmp_path / "b.yaml").write_text(theirs.replace("block-size: 2176\n", "seed: 0\n"))
    (one,), (other,) = sides(tmp_path / "a.yaml"), sides(tmp_path / "b.yaml")
    pair = compare(one, other)
    row = _row(pair, "prefill", "--block-size")
    assert (row.left, row.right, row.verdict) == ("2176", "unpinned", "differs")
    assert "without facts of the model" in row.why
    assert not any("natural" in row.what for row in pair.rows)


def test_folders_pair_by_topology_and_concurrency(tmp_path: Path) -> None:
    folder = shipped("recipes") / "qwen38" / "published"
    ours, _ = sides_below(folder)
    found = match(ours, list(reversed(ours)))
    assert [pair.left.name for pair in found.pairs] == [pair.right.name for pair in found.pairs]
    few = match(ours, ours[:3])
    assert len(few.pairs) == 3
    assert len(few.only_left) == 5
    assert not few.same_in_effect
    (tmp_path / "bad.yaml").write_text("backend: {type: sglang}\nresources: {}\n")
    _, faults = sides_below(tmp_path)
    assert [fault.code for fault in faults] == ["PD122"]
    console = Console(width=400, file=StringIO())
    with console.capture() as captured:
        show_matrix(console, few, faults)
    text = captured.get()
    assert "3 pairs, 3 the same in effect; 5 without a partner; 1 not read" in text
    assert text.count("no partner") == 5


def test_an_empty_folder_is_not_the_same_as_another(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no recipes"):
        sides_below(tmp_path)


def test_a_placeholder_in_a_variable_is_noted(tmp_path: Path) -> None:
    pair = _pair(tmp_path, EXPORTED.replace("DYN_LOG: error", "DYN_LOG: error\n    WHERE: x-{node_id}"))
    assert ["fills in the node" in str(note) for note in pair.right.notes] == [True, True]


def test_nodes_that_workers_are_spread_over_are_noted_and_differ(tmp_path: Path) -> None:
    text = (HERE / "srt" / "dep2-half-idle.yaml").read_text()
    (tmp_path / "ours.yaml").write_text(text)
    (tmp_path / "theirs.yaml").write_text(text.replace("prefill_nodes: 2", "spread_workers: true, prefill_nodes: 3"))
    (one,), (other,) = sides(tmp_path / "ours.yaml"), sides(tmp_path / "theirs.yaml")
    assert [note.why for note in other.notes if note.what == "nodes"] == [
        "srt-slurm asks for 5 nodes, pdkit places the same endpoints on 4"
    ]
    assert not any(note.what == "nodes" for note in one.notes)
    rows = [row for row in compare(one, other).rows if row.what == "nodes"]
    assert {row.group: row.verdict for row in rows} == {"topology": "differs", "job": "differs"}


def test_a_backend_without_a_type_is_not_vllm(tmp_path: Path) -> None:
    """Most of the public files that zip overrides leave it out, and srt-slurm starts SGLang."""
    (tmp_path / "theirs.yaml").write_text(EXPORTED.replace("  type: vllm\n", ""))
    with pytest.raises(RecipeError, match="sglang, srt-slurm's default"):
        sides(tmp_path / "theirs.yaml")


def test_the_page_needs_nothing_else_and_escapes(tmp_path: Path) -> None:
    pair = _pair(tmp_path, EXPORTED.replace("DYN_LOG: error", "DYN_LOG: <script>alert(1)</script>"))
    write_page(tmp_path / "review.html", match([pair.left], [pair.right], alone=True), [])
    page = (tmp_path / "review.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"(src|href)=\"(?!#)", page)
    assert "prefers-color-scheme: dark" in page
    assert "differ in effect" in page


def test_json_of_both_forms(tmp_path: Path) -> None:
    pair = _pair(tmp_path, EXPORTED)
    data = json.loads(json.dumps(comparison_data(pair)))
    assert data["same_in_effect"] is True
    assert {row["verdict"] for row in data["rows"]} == {"same", "same in effect", "only here", "differs"}
    matrix = json.loads(json.dumps(matrix_data(match([pair.left], []), [])))
    assert matrix["same_in_effect"] is False
    assert matrix["only_here"][0]["name"] == "qwen38-tep8"


def test_a_command_line_is_read_as_vllm_reads_it() -> None:
    table = flag_table("0.31.0")
    words = "--tensor_parallel_size 4 --no-enable-prefix-caching --speculative-config.method mtp --async-scheduling"
    words += " --speculative-config.num_speculative_tokens 3 -tp --max-num-seqs=64 --max-num-seqs 32 --dtype auto"
    found = effective(words.replace(" -tp", "").split(), table)
    assert found == {
        "tensor-parallel-size": 4,
        "enable-prefix-caching": False,
        "speculative-config": {"method": "mtp", "num_speculative_tokens": 3},
        "async-scheduling": True,
        "max-num-seqs": 32,
        "dtype": "auto",
    }


def test_defaults_hold_from_a_version_on() -> None:
    assert default_of("stream-interval", "0.20.0") == 1
    assert default_of("disable-hybrid-kv-cache-manager", "0.31.0") is None
    assert default_of("disable-hybrid-kv-cache-manager", "0.32.0") is False
    assert default_of("gpu-memory-utilization", "unknown") is None
    assert default_of("max-num-seqs", "0.32.0") is None


def _pair(folder: Path, theirs: str) -> Comparison:
    (folder / "theirs.yaml").write_text(theirs)
    (ours,), (other,) = sides(FRONT_DOOR), sides(folder / "theirs.yaml")
    return compare(ours, other)


def _row(pair: Comparison, role: str, what: str) -> Row:
    [found] = [row for row in pair.rows if row.role == role and row.what == what]
    return found


@pytest.mark.parametrize("width", [80, 120, 170])
def test_a_matrix_fits_any_terminal(width: int) -> None:
    """Each sign stands below its heading, and the end of each name, which tells the pairs apart, is whole."""
    ours, _ = sides_below(shipped("recipes") / "qwen38" / "published")
    console = Console(width=width, file=StringIO())
    with console.capture() as captured:
        show_matrix(console, match(ours, ours[:-1]), [])
    text = captured.get()
    table = text.splitlines()
    heading = next(line for line in table if "here / there" in line)
    assert len(heading.split("here / there")[0].replace("block size", "block").split()) == len(GROUPS)
    assert all(len(line) <= width for line in table)
    assert sum(line.count("=") >= len(GROUPS) - 3 for line in table) == len(ours) - 1
    assert "cc128" in text
    assert len(table) <= 4 + 2 * len(ours)

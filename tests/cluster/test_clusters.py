"""clusters.yaml: what it gives, what wins over it, and every fault with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdkit.errors import RecipeError, UsageError
from pdkit.launch.clusters import choose_cluster
from pdkit.recipe.load import load
from pdkit.recipe.schema import Recipe

HERE = Path(__file__).parent
GOOD = """\
default: nvl72
clusters:
  nvl72:
    cluster:
      account: perf
      partition: batch
      time_limit: '4:00:00'
      mounts: {/lustre/models: /models, /scratch: /scratch}
      directives: {comment: from-the-cluster, mail-type: END}
    images:
      vllm/vllm-openai:v0.31.0: /lustre/images/vllm.sqsh
    infra_image: etcd-nats
  other: {}
"""


@pytest.fixture
def write(home: Path):
    path = home / "pdkit" / "clusters.yaml"
    path.parent.mkdir(exist_ok=True)

    def put(text: str) -> Path:
        path.write_text(text)
        return path

    yield put
    path.unlink(missing_ok=True)


def recipe_of(name: str | None, *sets: str) -> Recipe:
    cluster = choose_cluster(name)
    assert cluster is not None
    [loaded] = load(HERE / "small.yaml", sets)
    return cluster.under(loaded).recipe


def test_the_default_gives_what_the_recipe_leaves_open(write) -> None:
    write(GOOD)
    recipe = recipe_of(None, "engine.image=vllm/vllm-openai:v0.31.0")
    assert (recipe.cluster.account, recipe.cluster.partition, recipe.cluster.time_limit) == ("perf", "batch", "4:00:00")
    assert recipe.engine.image == "/lustre/images/vllm.sqsh"
    assert recipe.infra.image == "etcd-nats"


def test_the_recipe_wins_setting_by_setting(write) -> None:
    write(GOOD)
    own = "cluster={time_limit: '0:30:00', mounts: {/scratch: /tmp}, directives: {comment: mine}}"
    recipe = recipe_of("nvl72", own, "engine.image=/my/own.sqsh", "infra.image=mine")
    assert (recipe.cluster.account, recipe.cluster.time_limit) == ("perf", "0:30:00")
    assert recipe.cluster.mounts == {"/lustre/models": "/models", "/scratch": "/tmp"}
    assert recipe.cluster.directives == {"comment": "mine", "mail-type": "END"}
    assert (recipe.engine.image, recipe.infra.image) == ("/my/own.sqsh", "mine")


def test_another_cluster_may_be_named(write) -> None:
    write(GOOD)
    assert recipe_of("other") == load(HERE / "small.yaml")[0].recipe
    with pytest.raises(UsageError, match="no cluster `nvl27` in this file") as caught:
        choose_cluster("nvl27")
    assert caught.value.fix == "did you mean `nvl72`?"


def test_a_part_still_knows_where_it_was_written(write) -> None:
    path = write(GOOD)
    cluster = choose_cluster(None)
    assert cluster is not None
    source = cluster.under(load(HERE / "small.yaml", ("cluster.qos=high",))[0]).source
    assert source.at(("cluster", "partition")) == f"{path}:6:18"
    assert source.at(("cluster", "mounts", "/scratch"), key=True) == f"{path}:8:41"
    assert source.at(("cluster", "qos")) == "--set cluster.qos=high:1:13"


def test_without_a_file_there_is_no_cluster(home: Path) -> None:
    assert choose_cluster(None) is None
    with pytest.raises(UsageError, match="no cluster `nvl72`: there is no "):
        choose_cluster("nvl72")


def test_without_a_default_none_is_meant(write) -> None:
    write("clusters: {one: {cluster: {account: a}}}\n")
    assert choose_cluster(None) is None


@pytest.mark.parametrize(
    ("text", "place", "said", "fix"),
    [
        ("clusters: [\n", "2:1", "not YAML", "check indentation"),
        ("- one\n", "1:1", "this file maps keys to values", "start with `clusters:`"),
        ("default: x\n", "1:1", "`clusters` is missing", "add `clusters:`"),
        ("clusters: {}\ncluster: {}\n", "2:1", "`cluster` is not a setting of this file", "did you mean `clusters`?"),
        ("clusters:\n  a:\n    image: {}\n", "3:5", "`clusters.a.image` is not a setting", "did you mean `images`?"),
        (
            "clusters:\n  a:\n    cluster:\n      partion: b\n",
            "4:7",
            "`clusters.a.cluster.partion` is not a setting",
            "did you mean `partition`?",
        ),
        ("clusters:\n  a:\n    cluster: {time_limit: 2 hours}\n", "3:27", "`clusters.a.cluster.time_limit`", ""),
        ("clusters:\n  a:\n    cluster: {segment: few}\n", "3:24", "`clusters.a.cluster.segment`", ""),
        ("clusters:\n  a: {}\n  a: {}\n", "3:3", "the key `a` stands twice", "keep one of the two"),
        ("default: b\nclusters:\n  a: {}\n", "1:10", "no cluster `b` in this file", "valid: a"),
    ],
)
def test_a_fault_is_an_error_with_its_place(write, pdkit, tmp_path, text: str, place: str, said: str, fix: str) -> None:
    path = write(text)
    ran = pdkit("submit", HERE / "small.yaml", "-o", tmp_path / "runs")
    assert ran.code == 2
    assert f"{path}:{place}: " in ran.err
    assert said in ran.err
    assert fix in ran.err
    assert not (tmp_path / "runs").exists()


def test_every_fault_is_named_at_once(write) -> None:
    write("clusters:\n  a:\n    cluster: {exclusive: maybe, gres: 3.5}\n    wrong: 1\n")
    with pytest.raises(RecipeError) as caught:
        choose_cluster("a")
    assert len(caught.value.findings) == 3


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (None, 0o600, "no such file"),
        ("hf_token\n", 0o640, "others may read"),
        ("\n", 0o600, "one token and nothing else"),
        ("two words", 0o600, "one token and nothing else"),
    ],
)
def test_a_token_is_the_users_alone(write, tmp_path: Path, content: str | None, mode: int, said: str) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_text(content)
        token.chmod(mode)
    path = write(f"clusters:\n  a:\n    hf_token_file: {token}\n")
    cluster = choose_cluster("a")
    assert cluster is not None
    with pytest.raises(UsageError, match=said) as caught:
        cluster.environment()
    assert caught.value.at == f"{path}:3:20"


def test_the_environments_token_comes_first(write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("from-the-file\n")
    token.chmod(0o600)
    write(f"clusters:\n  a:\n    hf_token_file: {token}\n")
    cluster = choose_cluster("a")
    assert cluster is not None
    assert cluster.environment() == {"HF_TOKEN": "from-the-file"}
    monkeypatch.setenv("HF_TOKEN", "from-the-shell")
    assert cluster.environment() == {}

"""`extends`, `--set` and `matrix`: what wins, where it was written, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pdkit.commands import recipe_files
from pdkit.errors import RecipeError
from pdkit.interop.files import is_srt_file
from pdkit.recipe.source import MOST_FILES, MOST_RECIPES, Source, load_sources


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text("schema: 1\ncommon:\n  mtp: 1\n  args: {x: 1, y: 2}\nlist: [1, 2]\n")
    (tmp_path / "other.yaml").write_text("common: {mtp: 7, block_size: 64}\n")
    return tmp_path


def _one(folder: Path, text: str, *sets: str) -> Source:
    (folder / "r.yaml").write_text(text)
    [source] = load_sources(folder / "r.yaml", sets)
    return source


def _refused(folder: Path, text: str, *sets: str) -> tuple[str, str, str]:
    (folder / "r.yaml").write_text(text)
    with pytest.raises(RecipeError) as error:
        load_sources(folder / "r.yaml", sets)
    [finding] = error.value.findings
    return finding.code, finding.at.replace(f"{folder}/", ""), finding.message


def test_this_file_wins_over_its_base(folder: Path) -> None:
    source = _one(folder, "extends: base.yaml\ncommon:\n  mtp: 2\n  args: {y: 3}\nlist: [9]\n")
    assert source.data == {"schema": 1, "common": {"mtp": 2, "args": {"x": 1, "y": 3}}, "list": [9]}
    places = {path: source.at(path).replace(f"{folder}/", "") for path in source.values}
    assert places["common", "mtp"] == "r.yaml:3:8"
    assert places["common", "args", "x"] == "base.yaml:4:13"
    assert places["common", "args", "y"] == "r.yaml:4:13"
    assert ("list", 1) not in places  # a list is replaced whole, with its places


def test_the_last_of_several_bases_wins(folder: Path) -> None:
    assert _one(folder, "extends: [base.yaml, other.yaml]\n").data["common"]["mtp"] == 7
    assert _one(folder, "extends: [other.yaml, base.yaml]\n").data["common"] == {
        "mtp": 1, "block_size": 64, "args": {"x": 1, "y": 2},
    }  # fmt: skip


def test_a_base_may_have_a_base_in_another_folder(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "middle.yaml").write_text("extends: ../base.yaml\ncommon: {mtp: 5}\n")
    source = _one(folder, "extends: sub/middle.yaml\n")
    assert source.data["common"] == {"mtp": 5, "args": {"x": 1, "y": 2}}
    assert source.at(("common", "args", "x")).endswith("base.yaml:4:13")


def test_two_bases_may_share_a_base(folder: Path) -> None:
    (folder / "left.yaml").write_text("extends: base.yaml\n")
    (folder / "right.yaml").write_text("extends: base.yaml\n")
    assert _one(folder, "extends: [left.yaml, right.yaml]\n").data["schema"] == 1


def test_null_takes_away_what_a_base_says(folder: Path) -> None:
    source = _one(folder, "extends: base.yaml\ncommon: null\n")
    assert source.data["common"] is None
    assert source.at(("common",)).endswith("r.yaml:2:9")
    assert ("common", "args", "x") not in source.values


def test_a_part_without_a_place_of_its_own_has_its_parent_s(folder: Path) -> None:
    source = _one(folder, "extends: base.yaml\n")
    assert source.at(("common", "nothing", "here")).endswith("base.yaml:2:1")
    assert source.at(("nothing",)).endswith("r.yaml:1:1")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("extends: gone.yaml", "1:10", "`extends: gone.yaml`: no such file"),
        ("extends: r.yaml", "1:10", "leads back to this file"),
        ("extends: [base.yaml, loop.yaml]", None, "leads back to this file"),
        ("extends: 5", "1:10", "takes a file name or a list of them"),
        ("extends: [base.yaml, 5]", "1:10", "takes a file name or a list of them"),
        ("extends: {a: b}", "1:10", "takes a file name or a list of them"),
        ("extends:", "1:9", "takes a file name or a list of them"),
        ("extends: .", "1:10", "no such file"),
        ("extends: " + "a" * 5000, "1:10", "no such file"),
    ],
)
def test_bad_bases(folder: Path, text: str, place: str | None, words: str) -> None:
    (folder / "loop.yaml").write_text("extends: r.yaml\n")
    code, at, message = _refused(folder, text)
    assert code == "PD106"
    assert at == (f"r.yaml:{place}" if place else "loop.yaml:1:10")
    assert words in message


def test_faults_of_a_base_name_the_base(folder: Path) -> None:
    (folder / "bad.yaml").write_text("a: 1\na: 2\n")
    assert _refused(folder, "extends: bad.yaml")[:2] == ("PD102", "bad.yaml:2:1")


@pytest.mark.parametrize("text", ["[1, 2]", "", "just words", "# nothing\n"])
def test_a_recipe_is_a_mapping(folder: Path, text: str) -> None:
    assert _refused(folder, text) == ("PD104", "r.yaml:1:1", "a recipe is a mapping of keys to values")


def test_files_that_cannot_be_read(folder: Path) -> None:
    (folder / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    for name, words in (("gone.yaml", "no such file"), ("latin.yaml", "cannot be read"), ("", "cannot be read")):
        with pytest.raises(RecipeError, match=words) as error:
            load_sources(folder / name)
        assert [finding.code for finding in error.value.findings] == ["PD105"]


def test_set_changes_values_of_any_kind(folder: Path) -> None:
    text = "extends: base.yaml\n"
    assert _one(folder, text, "common.mtp=3").data["common"]["mtp"] == 3
    assert _one(folder, text, "common.args.x=[a, 2]").data["common"]["args"] == {"x": ["a", 2], "y": 2}
    assert _one(folder, text, "common.args={z: 1}").data["common"]["args"] == {"x": 1, "y": 2, "z": 1}
    assert _one(folder, text, "common=").data["common"] is None
    assert _one(folder, text, "new.deep.key=a=b").data["new"] == {"deep": {"key": "a=b"}}
    assert _one(folder, text, "common.mtp=3", "common.mtp=4").data["common"]["mtp"] == 4


def test_what_set_says_has_a_place(folder: Path) -> None:
    source = _one(folder, "extends: base.yaml\n", "common.args={z: {w: 1}}", "common.mtp=")
    assert source.at(("common", "args", "z", "w"), key=True) == "--set common.args={z: {w: 1}}:1:18"
    assert source.at(("common", "args", "z", "w")) == "--set common.args={z: {w: 1}}:1:21"
    assert source.at(("common", "mtp")) == "--set common.mtp=:1:12"
    assert source.at(("common", "args"), key=True) == "--set common.args={z: {w: 1}}:1:8"


@pytest.mark.parametrize(
    "text", ["common.mtp", "=3", "common..mtp=3", ".mtp=3", "common.mtp.=3", "a b=3", "a[0]=1", ""]
)
def test_set_needs_a_dotted_name(folder: Path, text: str) -> None:
    code, at, message = _refused(folder, "extends: base.yaml\n", text)
    assert code == "PD107"
    assert at == f"--set {text}:1:1"
    assert "a.b=value" in message


def test_faults_in_the_value_of_set(folder: Path) -> None:
    assert _refused(folder, "extends: base.yaml\n", "a=[1")[:2] == ("PD101", "--set a=[1:2:1")
    assert _refused(folder, "extends: base.yaml\n", "a={b: 1, b: 2}")[0] == "PD102"
    assert _refused(folder, "extends: base.yaml\n", "a=\udcff")[0] == "PD101"


def test_a_matrix_stands_for_every_combination(folder: Path) -> None:
    (folder / "r.yaml").write_text(
        "name: m\nmatrix:\n  common.mtp: [0, 3]\n  decode.topology: [TEP8, TP4DP4+EP]\n  common: [{a: 1}]\n"
    )
    sources = load_sources(folder / "r.yaml")
    assert [source.data["name"] for source in sources] == [
        "m-0-tep8-1",
        "m-0-tp4dp4ep-1",
        "m-3-tep8-1",
        "m-3-tp4dp4ep-1",
    ]
    assert sources[1].data["common"] == {"mtp": 0, "a": 1}
    assert sources[2].data["decode"] == {"topology": "TEP8"}
    assert sources[3].at(("decode", "topology")).endswith("r.yaml:4:27")
    assert sources[3].at(("common", "mtp")).endswith("r.yaml:3:19")
    assert all("matrix" not in source.data for source in sources)


def test_a_matrix_may_be_set_or_taken_away(folder: Path) -> None:
    (folder / "r.yaml").write_text("name: m\nmatrix: {a: [1, 2]}\n")
    assert len(load_sources(folder / "r.yaml", ("matrix={b.c: [1, 2, 3]}",))) == 6
    assert [source.data for source in load_sources(folder / "r.yaml", ("matrix=",))] == [{"name": "m"}]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("matrix: 5", "1:1", "maps dotted names to lists"),
        ("matrix: []", "1:1", "maps dotted names to lists"),
        ("matrix: {}", "1:1", "maps dotted names to lists"),
        ("matrix: {a.b: 5}", "1:15", "`matrix.a.b` needs a list"),
        ("matrix: {a: []}", "1:13", "`matrix.a` needs a list"),
        ("matrix: {a: &x [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], b: *x, c: *x, d: *x}", "1:1", f"more than {MOST_RECIPES}"),
    ],
)
def test_bad_matrices(folder: Path, text: str, place: str, words: str) -> None:
    code, at, message = _refused(folder, text)
    assert (code, at) == ("PD108", f"r.yaml:{place}")
    assert words in message


def test_bases_without_end_are_refused(folder: Path) -> None:
    for number in range(40):  # each twice: 2**40 files
        (folder / f"d{number}.yaml").write_text(f"extends: [d{number + 1}.yaml, d{number + 1}.yaml]\n")
    (folder / "d40.yaml").write_text("schema: 1\n")
    code, at, message = _refused(folder, "extends: d0.yaml\n")
    assert (code, at[0], at[-4:]) == ("PD106", "d", ":1:1")
    assert f"more than {MOST_FILES} files" in message


def test_a_file_too_large_is_refused(folder: Path) -> None:
    (folder / "large.yaml").write_text("# more than a recipe\n" * 60_000)
    with pytest.raises(RecipeError, match="larger than 1 MiB"):
        load_sources(folder / "large.yaml")


def test_a_pipe_or_a_device_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    link = tmp_path / "link.yaml"
    link.symlink_to(pipe)
    for path in (pipe, link, Path("/dev/zero"), tmp_path):
        with pytest.raises(RecipeError, match="not a regular file") as error:
            load_sources(path)
        assert [finding.code for finding in error.value.findings] == ["PD105"]
        assert not is_srt_file(path)


def test_a_folder_named_like_a_recipe_is_none(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").mkdir()
    (tmp_path / "one.yaml").write_text("schema: 1\n")
    assert list(recipe_files([tmp_path])) == [tmp_path / "one.yaml"]

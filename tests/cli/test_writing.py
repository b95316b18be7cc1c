"""Files are written whole or not at all, and never in the place of something that is no file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pdkit.files import write_text


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    for text in ("one", "two"):
        write_text(tmp_path / "deep" / "a.yaml", text)
        assert (tmp_path / "deep" / "a.yaml").read_text() == text
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["a.yaml"]


def test_a_pipe_a_folder_or_a_link_to_them_stays_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    before = sorted((file.name, file.lstat().st_mode) for file in tmp_path.iterdir())
    for name, words in (("pipe", "Not a regular file"), ("folder", "Is a directory"), ("link", "Not a regular file")):
        with pytest.raises(OSError, match=words) as error:
            write_text(tmp_path / name, "text")
        assert error.value.filename == str(tmp_path / name)
    assert sorted((file.name, file.lstat().st_mode) for file in tmp_path.iterdir()) == before


def test_a_file_that_stands_where_a_folder_is_needed_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError) as error:
        write_text(tmp_path / "file" / "a.yaml", "text")
    assert error.value.filename == str(tmp_path / "file")

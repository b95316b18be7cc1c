"""Published points from CSV: what is right is read, what is wrong is told with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdkit.errors import UsageError
from pdkit.results.imported import ImportedPoint, read_imported


def write(folder: Path, text: str) -> Path:
    path = folder / "points.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_points_are_read_in_any_column_order(tmp_path: Path) -> None:
    path = write(
        tmp_path, '# from a table\n\ntok_s_user, tok_s_gpu, label, concurrency\n100, 2e3, "TEP8, MTP", 8\n50,1,b,\n'
    )
    assert read_imported(path) == (
        ImportedPoint(label="TEP8, MTP", tok_s_gpu=2000.0, tok_s_user=100.0, concurrency=8),
        ImportedPoint(label="b", tok_s_gpu=1.0, tok_s_user=50.0, concurrency=None),
    )


def test_concurrency_may_be_left_out(tmp_path: Path) -> None:
    assert read_imported(write(tmp_path, "label,tok_s_gpu,tok_s_user\na,1,2\n"))[0].concurrency is None


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "no points"),
        ("label,tok_s_gpu,tok_s_user\n", 1, "header but no points"),
        ("label,tok_s_gpu\na,1\n", 1, "`tok_s_user` is missing"),
        ("label,tok_s_gpu,tok_s_user,ttft\n", 1, "`ttft` is not a column"),
        ("label,label,tok_s_gpu,tok_s_user\n", 1, "named twice"),
        ("#\nlabel,tok_s_gpu,tok_s_user\na,1,2\nb,1\n", 4, "2 values, but the header names 3"),
        ("label,tok_s_gpu,tok_s_user\na,fast,2\n", 2, "tok_s_gpu must be a number above 0, not `fast`"),
        ("label,tok_s_gpu,tok_s_user\na,1,-2\n", 2, "tok_s_user must be a number above 0"),
        ("label,tok_s_gpu,tok_s_user\na,1,nan\n", 2, "tok_s_user must be a number above 0"),
        ("label,tok_s_gpu,tok_s_user\n,1,2\n", 2, "label is empty"),
        ("label,tok_s_gpu,tok_s_user,concurrency\na,1,2,1.5\n", 2, "whole number above 0"),
        ("label,tok_s_gpu,tok_s_user,concurrency\na,1,2,0\n", 2, "whole number above 0"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError, match=words) as caught:
        read_imported(path)
    assert caught.value.at == f"{path}:{line}"


def test_a_missing_or_binary_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_imported(tmp_path / "none.csv")
    binary = tmp_path / "points.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_imported(binary)

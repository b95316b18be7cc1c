"""Points on disk: what is written is read, what is no point is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import ValidationError

from pdkit.errors import UsageError
from pdkit.results.points import Point, point_file, read_point, read_points, write_point

GPUS = {"prefill": 8, "decode": 8}


def test_a_point_survives_its_file(sample: ModuleType, tmp_path: Path) -> None:
    one = sample.point(64, GPUS, 5.0, 0.1)
    path = write_point(tmp_path, one)
    assert path == tmp_path / "points" / "c0064.json"
    assert json.loads(path.read_text())["schema"] == 1
    assert read_point(path) == one


def test_points_come_by_concurrency(sample: ModuleType, tmp_path: Path) -> None:
    for concurrency in (128, 4, 16384):
        write_point(tmp_path, sample.point(concurrency, GPUS, 5.0, 0.1))
    assert [each.concurrency for each in read_points(tmp_path)] == [4, 128, 16384]
    assert read_points(tmp_path / "elsewhere") == ()


def test_valid_and_reasons_cannot_contradict_each_other(sample: ModuleType) -> None:
    with pytest.raises(ValidationError, match="valid exactly when"):
        sample.point(4, GPUS, 5.0, 0.1, valid=True, invalid_reasons=("no tokens",))
    with pytest.raises(ValidationError, match="valid exactly when"):
        sample.point(4, GPUS, 5.0, 0.1, valid=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"schema": 2}, "schema"), ({"surprise": 1}, "surprise"), ({"tpot": {"mean_ms": 1}}, "tpot.p50_ms")],
)
def test_a_file_that_is_no_point_is_told_with_its_name(
    sample: ModuleType, tmp_path: Path, change: dict[str, object], words: str
) -> None:
    path = write_point(tmp_path, sample.point(4, GPUS, 5.0, 0.1))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UsageError, match=words) as caught:
        read_point(path)
    assert caught.value.at == str(path)


def test_half_a_file_is_told(tmp_path: Path) -> None:
    path = point_file(tmp_path, 4)
    path.parent.mkdir()
    path.write_text('{"schema": 1')
    with pytest.raises(UsageError, match="Invalid JSON"):
        read_point(path)


def test_every_field_is_documented() -> None:
    described = Point.model_json_schema()["properties"]
    assert [name for name, each in described.items() if not each.get("description")] == []

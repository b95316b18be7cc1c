"""The event file: whole lines whoever writes, and readable whatever was left half."""

from __future__ import annotations

import errno
import multiprocessing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pdkit.job.events import FILE, emit, read_events


def names(folder: Path) -> list[str]:
    return [event["event"] for event in read_events(folder)]


def test_events_come_back_in_order_with_their_time(tmp_path: Path) -> None:
    emit(tmp_path, "started", step="decode0", pid=7)
    emit(tmp_path, "failed", message='two\nlines, "quoted", Ümlaut')
    first, second = read_events(tmp_path)
    assert (first["event"], first["step"], first["pid"]) == ("started", "decode0", 7)
    assert second["message"] == 'two\nlines, "quoted", Ümlaut'
    assert datetime.fromisoformat(first["time"]).utcoffset() == timedelta(0)
    assert first["time"] <= second["time"]
    assert len((tmp_path / FILE).read_bytes().split(b"\n")) == 3


def test_no_file_means_no_events_yet(tmp_path: Path) -> None:
    assert read_events(tmp_path) == []


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c", "\r"])
def test_characters_that_end_a_line_of_text_do_not_end_an_event(tmp_path: Path, end: str) -> None:
    emit(tmp_path, "failed", message=f"garbage{end}answer")
    emit(tmp_path, "done")
    assert [event.get("message") for event in read_events(tmp_path)] == [f"garbage{end}answer", None]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_line_that_is_still_written_waits_for_its_end(tmp_path: Path, cut: int) -> None:
    emit(tmp_path, "one")
    emit(tmp_path, "zwölf", note="Straße" * 4)
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:-cut])
    assert names(tmp_path) == ["one"]
    (tmp_path / FILE).write_bytes(whole)
    assert names(tmp_path) == ["one", "zwölf"]


def test_half_a_line_of_a_killed_writer_hides_no_other_event(tmp_path: Path) -> None:
    emit(tmp_path, "one")
    emit(tmp_path, "two", note="ö")
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:-4])  # in the middle of a character
    emit(tmp_path, "three")
    emit(tmp_path, "four")
    assert names(tmp_path) == ["one", "three", "four"]


def test_a_full_disk_is_an_error_and_not_half_an_event(tmp_path: Path) -> None:
    (tmp_path / FILE).symlink_to("/dev/full")
    with pytest.raises(OSError, match="space") as error:
        emit(tmp_path, "stage", stage="gate")
    assert error.value.errno == errno.ENOSPC


def _write_many(folder: Path, writer: int) -> None:
    for number in range(100):
        emit(folder, "progress", writer=writer, number=number, note="x" * 300)


def test_several_writers_do_not_mix_their_lines(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(tmp_path, writer)) for writer in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    events = read_events(tmp_path)
    assert [[one["number"] for one in events if one["writer"] == writer] for writer in range(3)] == [
        list(range(100))
    ] * 3
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o644

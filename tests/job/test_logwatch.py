"""The log watch finds each fatal literal once, wherever the reading happens to cut the log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pdkit.job.logwatch import FATAL, Hit, LogWatch, last_lines


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "decode0.log"


def add(log: Path, text: str | bytes) -> None:
    with log.open("ab") as stream:
        stream.write(text if isinstance(text, bytes) else text.encode())


@pytest.mark.parametrize("literal", FATAL)
def test_each_literal_is_found_inside_a_line_and_explained(log: Path, literal: str) -> None:
    add(
        log,
        f"INFO all is well\n\x1b[31m(EngineCore pid=7) ERROR 11-29 [x.py:1] {literal}: more\x1b[0m\nINFO still here\n",
    )
    (hit,) = LogWatch([log]).look()
    assert hit.log == "decode0.log"
    assert literal in hit.line
    assert hit.meaning == FATAL[literal]
    assert str(hit) == f"decode0.log: {FATAL[literal]}\n  {hit.line}"


def test_ordinary_lines_of_a_healthy_start_are_no_hits(log: Path) -> None:
    add(log, "INFO NixlConnector ready, kv_load_failure_policy fail\nINFO Setting attention block size to 128 tokens\n")
    add(log, "INFO GPU KV cache size: 65,536 tokens\nINFO Application startup complete.\n")
    assert LogWatch([log]).look() == []


def test_a_hit_is_told_once(log: Path) -> None:
    watch = LogWatch([log])
    add(log, "EngineDeadError 1\n")
    assert [hit.line for hit in watch.look()] == ["EngineDeadError 1"]
    assert watch.look() == []
    add(log, "fine\nEngineDeadError 2\n")
    assert [hit.line for hit in watch.look()] == ["EngineDeadError 2"]


@pytest.mark.parametrize("cut", range(1, 31, 3))
def test_a_line_that_comes_in_two_pieces_is_read_whole(log: Path, cut: int) -> None:
    line = "ü EngineDeadError ü and more\n".encode()
    watch = LogWatch([log])
    add(log, line[:cut])
    assert watch.look() == []
    add(log, line[cut:])
    assert [hit.line for hit in watch.look()] == ["ü EngineDeadError ü and more"]


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_any_chunks_give_the_same_hits(log: Path, chunk: int) -> None:
    text = b"".join(b"line %d %s\n" % (n, b"NIXL_ERR_BACKEND" if n % 50 == 0 else b"." * (n % 13)) for n in range(200))
    watch, found = LogWatch([log]), list[Hit]()
    for start in range(0, len(text), chunk):
        add(log, text[start : start + chunk])
        found += watch.look()
    assert [hit.line.split()[1] for hit in found] == ["0", "50", "100", "150"]


def test_a_log_that_was_cut_is_read_anew(log: Path) -> None:
    watch = LogWatch([log])
    add(log, "EngineDeadError old\n" + "x\n" * 100)
    assert len(watch.look()) == 1
    log.write_text("EngineDeadError new\n")
    assert [hit.line for hit in watch.look()] == ["EngineDeadError new"]
    os.truncate(log, 0)
    assert watch.look() == []
    add(log, "EngineDeadError newer\n")
    assert [hit.line for hit in watch.look()] == ["EngineDeadError newer"]


def test_a_log_that_comes_later_and_bytes_that_are_no_text(log: Path) -> None:
    other = log.with_name("prefill0.log")
    watch = LogWatch([log, other])
    assert watch.look() == []
    add(other, b"\xff\xfe EngineDeadError \xff\n")
    assert [(hit.log, hit.meaning) for hit in watch.look()] == [("prefill0.log", "an engine core died")]


def test_a_very_long_line_is_shown_short(log: Path) -> None:
    add(log, "EngineDeadError" + "x" * 10_000 + "\n")
    (hit,) = LogWatch([log]).look()
    assert len(hit.line) == 400


def test_last_lines_are_the_end_without_colours(log: Path) -> None:
    add(log, "".join(f"line {n}\n" for n in range(100)) + "\x1b[31mred\x1b[0m and \x1b[2mdim\x1b[0m\nhalf")
    assert last_lines(log, 3) == ["line 99", "red and dim", "half"]
    assert len(last_lines(log)) == 20


def test_last_lines_of_a_log_that_was_never_written(log: Path) -> None:
    assert last_lines(log) == ["(decode0.log was never written)"]
    log.touch()
    assert last_lines(log) == []


def test_last_lines_of_a_huge_log_cost_nothing(log: Path) -> None:
    with log.open("wb") as stream:
        stream.truncate(2 << 30)  # a hole of 2 GiB: reading it all would take seconds
    add(log, b"\nbefore the end\nthe end \xff\n")
    assert last_lines(log, 2) == ["before the end", "the end \ufffd"]

"""Logs as they are shown: their ends, what is added, and no secrets."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

from pdkit.launch.logs import BLOCK, Follower, show_logs, tail
from pdkit.launch.redact import holds_secret, known_secrets, redact

HERE = Path(__file__).parent


@pytest.fixture
def folder(pdkit, home: Path, tmp_path: Path) -> Path:
    pdkit("render", HERE / "small.yaml", "-o", tmp_path / "runs")
    [found] = (tmp_path / "runs").iterdir()
    (found / "logs" / "job.log").write_text("started\n")
    (found / "logs" / "driver.log").write_text("".join(f"line {n}\n" for n in range(50)))
    (found / "logs" / "decode0.log").write_text("decode\n")
    return found


def test_all_steps_are_shown_with_their_names(pdkit, folder: Path) -> None:
    shown = pdkit("logs", folder, "-n", 2).out.splitlines()
    assert shown == [
        "job          | started",
        "driver       | line 48",
        "driver       | line 49",
        "decode0      | decode",
    ]


def test_one_step_is_shown_as_it_is(pdkit, folder: Path) -> None:
    assert pdkit("logs", folder, "driver").out.splitlines() == [f"line {n}" for n in range(30, 50)]
    assert len(pdkit("logs", folder, "driver", "-n", 0).out.splitlines()) == 50
    assert pdkit("logs", folder, "prefill0").out == "", "a step that has not begun has said nothing"
    unknown = pdkit("logs", folder, "decode1")
    assert (unknown.code, "did you mean `decode0`?" in unknown.err) == (2, True)


@pytest.mark.parametrize("size", [10, BLOCK - 1, BLOCK, 3 * BLOCK + 7])
def test_the_end_of_a_long_log_is_found_from_behind(tmp_path: Path, size: int) -> None:
    log = tmp_path / "a.log"
    lines = [f"{n} {'x' * (n % 90)}" for n in range(size // 40 + 5)]
    log.write_text("\n".join(lines) + "\n")
    for count in (1, 3, len(lines), len(lines) + 5):
        assert tail(log, count) == (lines[-count:], log.stat().st_size)
    assert tail(log, 0)[0] == lines


def test_following_gives_every_line_once_and_new_logs_too(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.log").write_text("one\ntwo\n")
    follower = Follower(lambda: sorted(logs.glob("*.log")))
    assert list(follower.begin(1)) == [("a", "two")]
    with (logs / "a.log").open("a") as stream:
        stream.write("three\nhal")
    (logs / "b.log").write_text("new\n")
    assert list(follower.news()) == [("a", "three"), ("b", "new")]
    with (logs / "a.log").open("a") as stream:
        stream.write("f\n")
    assert list(follower.news()) == [("a", "half")]
    (logs / "a.log").write_text("anew\n")
    assert list(follower.news()) == [("a", "anew")]
    assert list(follower.news()) == []


def test_following_ends_with_the_run(folder: Path) -> None:
    said: list[str] = []
    over = threading.Event()

    def write() -> None:
        time.sleep(0.4)
        with (folder / "logs" / "decode0.log").open("a") as stream:
            stream.write("the last words\n")
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    show_logs(folder, "decode0", lines=20, follow=True, ended=over.is_set, say=said.append)
    writer.join()
    assert said == ["decode", "the last words"]


SECRET = "hf_" + "Abcd1234" * 3


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"token {SECRET} used", "token [secret] used"),
        (f"export HF_TOKEN='{SECRET}'", "export HF_TOKEN='[secret]'"),
        ("HUGGING_FACE_HUB_TOKEN=anything123", "HUGGING_FACE_HUB_TOKEN=[secret]"),
        ("Authorization: Bearer abcdefgh12345678", "Authorization: Bearer [secret]"),
        ('{"api_key": "0123456789ab"}', '{"api_key": "[secret]"}'),
        ("GET https://me:hunter22@host/x", "GET https://me:[secret]@host/x"),
        ("AWS_SECRET_ACCESS_KEY=abcdEFGH1234", "AWS_SECRET_ACCESS_KEY=[secret]"),
        ("nvapi-" + "a" * 30, "[secret]"),
    ],
)
def test_secrets_are_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert holds_secret(text)
    assert redact(shown) == shown, "hiding twice changes nothing"


@pytest.mark.parametrize(
    "text",
    [
        "max_num_batched_tokens=8192 --max-model-len 10240",
        "prompt tokens: 123456, generated tokens: 654321",
        "eos_token: '<|im_end|>'",
        "--revision a6abb8bfb82b6965166d4129275f012d8809bc40",
        "http://10.72.1.1:8000/v1/models",
        "key_value_heads=128000000",
        "sha256:3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert redact(text) == text


def test_the_users_own_secrets_are_hidden_wherever_they_stand() -> None:
    environment = {
        "MY_API_KEY": "swordfish99",
        "HF_TOKEN": "tiny",
        "PATH": "/usr/bin",
        "TOKENIZERS_PARALLELISM": "falsefalse",
    }
    known = known_secrets(environment)
    assert known == ("swordfish99",)
    assert redact("the word is swordfish99 here", known) == "the word is [secret] here"


def test_status_hides_secrets_too(pdkit, folder: Path) -> None:
    (folder / "events.jsonl").write_text("")
    (folder / "run.id").write_text("no-such-run")
    result = {"exit_code": 4, "stage": "ready", "message": f"401 for {SECRET}"}
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "events.jsonl").write_text('{"time": "2026-11-29T10:00:00.000+00:00", "event": "launched"}\n')
    shown = pdkit("status", folder).out
    assert "401 for [secret]" in shown
    assert SECRET not in shown
    assert os.environ.get("HF_TOKEN") is None

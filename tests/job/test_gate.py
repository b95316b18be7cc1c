"""The gate against a real HTTP server that can lie in every way that was seen in the field."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests

from pdkit.errors import GateError, RecipeError, UsageError
from pdkit.job.client import Reply, ask, ask_all, read_reply
from pdkit.job.gate import GateSettings, Progress, fetch_data, read_passed, record_twin, run_gate
from pdkit.job.gsm8k import DataFile, Request, load_protocol

QUESTIONS = 40
ROWS = [{"question": f"What is {n} + {n}?", "answer": f"It is {2 * n}.\n#### {2 * n}"} for n in range(1, QUESTIONS + 1)]
RIGHT = {row["question"]: row["answer"] for row in ROWS}


def completion(text: str, finish: str | None = "stop") -> tuple[int, bytes]:
    usage = {"prompt_tokens": 50, "completion_tokens": len(text.split())}
    choice = {"index": 0, "text": text, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return 200, json.dumps({"object": "text_completion", "choices": [choice], "usage": usage}).encode()


class Server(ThreadingHTTPServer):
    """Answers as its `behave` says; it knows how many requests are under way."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.behave: Callable[[Server, str, int], tuple[int, bytes]] = honest
        self.lock = threading.Lock()
        self.under_way = 0
        self.peak = 0
        self.seen: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.released = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that give up or are killed are what these tests are about."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["prompt"] if self.path == "/v1/completions" else body["messages"][0]["content"]
        question = next(line for line in reversed(prompt.splitlines()) if "What is" in line).removeprefix("Question: ")
        server = self.server
        with server.lock:
            server.under_way += 1
            server.peak = max(server.peak, server.under_way)
            server.seen[question] += 1
            server.bodies.append(body | {"path": self.path})
            now = server.under_way
        try:
            status, content = server.behave(server, question, now)
        finally:
            with server.lock:
                server.under_way -= 1
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name of the base class
        pass


def honest(server: Server, question: str, now: int) -> tuple[int, bytes]:
    return completion(RIGHT[question])


def only(count: int, otherwise: Callable[[], tuple[int, bytes]]) -> Callable[[Server, str, int], tuple[int, bytes]]:
    """Honest but for the first `count` questions of the file."""
    chosen = {row["question"] for row in ROWS[:count]}
    return lambda server, question, now: otherwise() if question in chosen else honest(server, question, now)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.released.set()
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return file


@pytest.fixture
def settings(server: Server, data: Path) -> GateSettings:
    return GateSettings(
        base_url=server.url,
        model="tiny",
        protocol="completions-5shot",
        data=data,
        data_sha256=hashlib.sha256(data.read_bytes()).hexdigest(),
        shots=None,
        question_limit=None,
        concurrency=4,
        max_tokens=64,
        floor=0.9,
        max_truncated_share=0.01,
        max_empty_share=0.0,
        timeout_seconds=20,
        twin=None,
        lock_digest="sha256:lock",
        boot_ids=("decode-0", "prefill-0"),
        scored_by="strict",
    )


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def silent(_: Progress) -> None:
    pass


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def verdict_of(out: Path) -> dict[str, Any]:
    verdict: dict[str, Any] = json.loads((out / "gate.json").read_text())
    return verdict


def fails(settings: GateSettings, out: Path) -> GateError:
    with pytest.raises(GateError) as caught:
        run_gate(settings, out, silent)
    assert caught.value.exit_code == 6
    with pytest.raises(GateError):
        read_passed(out, lock_digest=settings.lock_digest, boot_ids=settings.boot_ids)
    return caught.value


def test_right_answers_pass_with_evidence(server: Server, settings: GateSettings, out: Path):
    seen: list[Progress] = []
    passed = run_gate(settings, out, seen.append)
    assert (passed.accuracy, passed.lock_digest, passed.boot_ids) == (1.0, "sha256:lock", ("decode-0", "prefill-0"))
    assert seen[0] == Progress(0, QUESTIONS, 0, 0)
    assert seen[-1] == Progress(QUESTIONS, QUESTIONS, QUESTIONS, 0)
    header, *answers = lines_of(out / "gate.jsonl")
    assert (header["kind"], header["shots"], header["limits"]["questions"]) == ("pdkit-gate", 5, QUESTIONS)
    assert {answer["id"] for answer in answers} == {f"q{n:04d}" for n in range(1, QUESTIONS + 1)}
    first = next(answer for answer in answers if answer["id"] == "q0001")
    assert (first["text"], first["strict"], first["gold"], first["correct"]) == ("It is 2.\n#### 2", "2", "2", True)
    assert (first["finish_reason"], first["prompt_tokens"], first["completion_tokens"]) == ("stop", 50, 5)
    assert first["seconds"] >= 0
    verdict = verdict_of(out)
    assert verdict["passed"]
    assert verdict["answers_sha256"] == hashlib.sha256((out / "gate.jsonl").read_bytes()).hexdigest()
    assert verdict["gate_digest"] == passed.gate_digest


def test_what_is_asked(server: Server, settings: GateSettings, out: Path):
    run_gate(settings, out, silent)
    protocol = load_protocol("completions-5shot")
    for body in server.bodies:
        assert (body["path"], body["model"], body["temperature"], body["max_tokens"]) == (
            "/v1/completions",
            "tiny",
            0,
            64,
        )
        assert body["stop"] == list(protocol.stop)
        assert body["prompt"].count("Question: ") == 6
        assert body["prompt"].endswith("?\nAnswer:")


def test_chat_is_asked_as_chat_and_thinking_is_kept_apart(server: Server, settings: GateSettings, out: Path):
    def think(server: Server, question: str, now: int) -> tuple[int, bytes]:
        message = {"content": f"<think>999</think>\n{RIGHT[question]}", "reasoning_content": "and more"}
        return 200, json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()

    server.behave = think
    run_gate(replace(settings, protocol="chat-cot", scored_by="flexible"), out, silent)
    assert {body["path"] for body in server.bodies} == {"/v1/chat/completions"}
    answer = lines_of(out / "gate.jsonl")[1]
    assert answer["reasoning"] == "and more"
    assert answer["text"].startswith("<think>999</think>")
    assert answer["prompt_tokens"] is None


def test_wrong_answers_fail_by_the_floor(server: Server, settings: GateSettings, out: Path):
    server.behave = only(5, lambda: completion("#### 999999"))
    assert fails(settings, out).message == "accuracy 87.50% (40 answers, strict) is below the floor 90.00%"
    assert not verdict_of(out)["passed"]
    server.behave = only(4, lambda: completion("#### 999999"))
    assert run_gate(replace(settings, boot_ids=("x",)), out, silent).accuracy == 0.9


def test_both_extractions_are_kept_and_one_decides(server: Server, settings: GateSettings, out: Path):
    def informal(server: Server, question: str, now: int) -> tuple[int, bytes]:
        return completion(RIGHT[question].replace("####", "so"))

    server.behave = informal
    error = fails(settings, out)
    assert error.message.startswith("accuracy 0.00% (40 answers, strict)")
    verdict = verdict_of(out)["verdict"]
    assert (verdict["strict_accuracy"], verdict["flexible_accuracy"]) == (0.0, 1.0)
    assert run_gate(replace(settings, scored_by="flexible"), out, silent).accuracy == 1.0


def test_wrong_only_under_load_is_seen_at_serving_concurrency(server: Server, settings: GateSettings, out: Path):
    def crowded(server: Server, question: str, now: int) -> tuple[int, bytes]:
        time.sleep(0.05)
        return completion("#### 999999") if server.under_way > 8 else honest(server, question, now)

    server.behave = crowded
    assert run_gate(replace(settings, concurrency=4), out, silent).accuracy == 1.0
    assert (server.peak, verdict_of(out)["verdict"]["peak_in_flight"]) == (4, 4)
    error = fails(replace(settings, concurrency=16), out)
    assert "below the floor" in error.message
    assert (server.peak, verdict_of(out)["verdict"]["peak_in_flight"]) == (16, 16)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (completion(""), "1 of 40 answers are empty (2.50%, limit 0.00%)"),
        (completion(" \n"), "1 of 40 answers are empty (2.50%, limit 0.00%)"),
        (completion("It is 2 and", "length"), "1 of 40 answers are cut by the token limit (2.50%, limit 1.00%)"),
    ],
)
def test_empty_and_truncated_answers_fail(
    server: Server, settings: GateSettings, out: Path, reply: tuple[int, bytes], words: str
):
    server.behave = only(1, lambda: reply)
    assert fails(settings, out).message == words


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ((500, b'{"error": {"message": "KV load failure"}}'), "HTTP 500: KV load failure"),
        ((503, b"upstream gone"), "HTTP 503: upstream gone"),
        (
            (400, b'{"message": "Invalid request", "code": 400, "details": {"limit": 2048}}'),
            'HTTP 400: Invalid request {"limit": 2048}',
        ),
        (
            (200, b'{"error": {"message": "engine died", "code": 503}}'),
            "HTTP 200 with an error in its body: engine died",
        ),
        ((200, b'{"object": "error", "message": "no KV"}'), "HTTP 200 with an error in its body: no KV"),
        ((200, b'{"choices": [], "usage": {}}'), "HTTP 200 with an error in its body"),
        ((200, b'data: {"error": {"message": "worker lost"}}\n\n'), "HTTP 200 with an event stream: worker lost"),
        ((200, b'event: error\ndata: {"error": "gone"}\n\n'), "HTTP 200 with an event stream: gone"),
        ((200, b"<html>"), "HTTP 200 with a body that is no completion: <html>"),
        ((200, b'{"choices": [{"text": 5}]}'), "HTTP 200 with a body that is no completion"),
        (completion("#### 2", "error"), "HTTP 200 with finish_reason 'error'"),
        (completion("#### 2", None), "HTTP 200 with finish_reason None"),
    ],
)
def test_one_failed_request_fails_the_gate_and_is_no_wrong_answer(
    server: Server, settings: GateSettings, out: Path, reply: tuple[int, bytes], words: str
):
    server.behave = only(1, lambda: reply)
    error = fails(settings, out)
    assert error.message.startswith(f"1 of 40 requests failed, the first with: {words}")
    verdict = verdict_of(out)["verdict"]
    assert (verdict["failed"], verdict["answered"], verdict["accuracy"]) == (1, 39, 1.0)
    bad = next(answer for answer in lines_of(out / "gate.jsonl")[1:] if answer["error"])
    assert (bad["id"], bad["correct"], bad["http_status"]) == ("q0001", None, reply[0])
    assert server.seen[ROWS[0]["question"]] == 1, "a failed request is not asked again"


def test_many_failures_stop_the_gate_early(server: Server, settings: GateSettings, out: Path):
    def down(server: Server, question: str, now: int) -> tuple[int, bytes]:
        time.sleep(0.02)
        return 500, b"down"

    server.behave = down
    error = fails(settings, out)
    assert error.message.startswith("16 of 16 requests failed, the first with: HTTP 500: down")
    assert "the gate ended after 16 of 40 questions" in error.message
    time.sleep(0.3)  # the requests under way come to their end
    asked = sum(server.seen.values())
    assert asked < QUESTIONS
    assert "16 of 16" in fails(settings, out).message, "the same gate stays failed"
    assert sum(server.seen.values()) == asked


def test_a_hanging_server_ends_the_gate_in_bounded_time(server: Server, settings: GateSettings, out: Path):
    def hang(server: Server, question: str, now: int) -> tuple[int, bytes]:
        server.released.wait(30)
        return honest(server, question, now)

    server.behave = hang
    calls: list[float] = []
    start = time.monotonic()
    with pytest.raises(GateError, match="no answer within 2 s"):
        run_gate(replace(settings, timeout_seconds=2, concurrency=40), out, lambda _: calls.append(time.monotonic()))
    assert time.monotonic() - start < 8
    assert max(b - a for a, b in itertools.pairwise(calls)) < 1.6, "a sign of life each second"


def test_no_server_at_all(settings: GateSettings, out: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = fails(replace(settings, base_url=f"http://127.0.0.1:{port}", question_limit=2), out)
    assert "2 of 2 requests failed, the first with: ConnectionError" in error.message
    assert all(answer["retried"] for answer in lines_of(out / "gate.jsonl")[1:])


def test_one_retry_when_the_connection_was_refused(server: Server):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    late: list[Server] = []

    def start_late() -> None:
        time.sleep(0.2)
        late.append(Server(port))
        late[0].serve_forever(0.02)

    thread = threading.Thread(target=start_late)
    thread.start()
    with requests.Session() as session:
        reply = ask(
            session, f"http://127.0.0.1:{port}/", Request("/v1/completions", {"prompt": ROWS[0]["question"]}), 10
        )
        assert (reply.error, reply.retried, reply.text) == (None, True, ROWS[0]["answer"])
    with requests.Session() as session:
        assert not ask(session, server.url, Request("/v1/completions", {"prompt": ROWS[0]["question"]}), 10).retried
    late[0].shutdown()
    thread.join()
    late[0].server_close()


def test_a_connection_that_breaks_is_not_retried(server: Server):
    def cut(server: Server, question: str, now: int) -> tuple[int, bytes]:
        raise ConnectionAbortedError  # the handler ends without a response

    server.behave = cut
    with requests.Session() as session:
        reply = ask(session, server.url, Request("/v1/completions", {"prompt": ROWS[0]["question"]}), 10)
    assert reply.error is not None
    assert not reply.retried
    assert server.seen[ROWS[0]["question"]] == 1


def test_a_proxy_of_the_login_environment_is_not_asked(
    settings: GateSettings, out: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert run_gate(replace(settings, question_limit=3), out, silent).accuracy == 1.0


def test_newer_names_of_the_thinking_are_read():
    content = json.dumps({"choices": [{"message": {"content": None, "reasoning": "hm"}, "finish_reason": "length"}]})
    assert read_reply(200, content.encode()) == Reply(reasoning="hm", finish_reason="length", http_status=200)


def test_a_fault_of_the_client_itself_is_not_lost(server: Server):
    bad = Request("/v1/completions", {"prompt": {"a set has no JSON"}})
    with pytest.raises(TypeError, match="not JSON serializable"):
        list(ask_all(server.url, [bad], concurrency=1, timeout_seconds=5))


def test_a_limit_asks_the_first_questions_only(server: Server, settings: GateSettings, out: Path):
    run_gate(replace(settings, question_limit=7), out, silent)
    assert set(server.seen) == {row["question"] for row in ROWS[:7]}
    for limit in (0, 41):
        with pytest.raises(RecipeError, match=f"{limit} questions are asked for, the file has 40"):
            run_gate(replace(settings, question_limit=limit), out, silent)


def test_the_data_set_must_be_the_one_that_was_named(settings: GateSettings, out: Path):
    with pytest.raises(RecipeError, match="not the data set"):
        run_gate(replace(settings, data_sha256="0" * 64), out, silent)
    assert not (out / "gate.jsonl").exists()


def test_a_recipe_may_bring_its_own_examples(server: Server, settings: GateSettings, out: Path, tmp_path: Path):
    shots = tmp_path / "shots.jsonl"
    shots.write_text('{"question": "Mine?", "answer": "#### 1"}\n{"question": "Yours?", "answer": "#### 2"}\n')
    run_gate(replace(settings, shots=shots), out, silent)
    start = "Question: Mine?\nAnswer: #### 1\n\nQuestion: Yours?\nAnswer: #### 2\n\nQuestion: What is"
    assert all(body["prompt"].startswith(start) for body in server.bodies)
    assert lines_of(out / "gate.jsonl")[0]["shots"] == 2


def test_what_progress_raises_ends_the_gate_with_its_evidence(server: Server, settings: GateSettings, out: Path):
    class EngineGoneError(Exception):
        pass

    def watch(progress: Progress) -> None:
        if progress.asked == 10:
            raise EngineGoneError

    with pytest.raises(EngineGoneError):
        run_gate(settings, out, watch)
    assert len(lines_of(out / "gate.jsonl")) == 11
    assert not (out / "gate.json").exists()


GATE_SCRIPT = """
import json, pathlib, sys
from pdkit.job.gate import GateSettings, run_gate
given = json.loads(sys.argv[1])
given["data"] = pathlib.Path(given["data"])
given["boot_ids"] = tuple(given["boot_ids"])
run_gate(GateSettings(**given), pathlib.Path(sys.argv[2]), lambda progress: None)
"""


def as_json(settings: GateSettings) -> str:
    given = {name: getattr(settings, name) for name in GateSettings.__dataclass_fields__}
    return json.dumps(given | {"data": str(settings.data)})


def kill_in_the_middle(server: Server, settings: GateSettings, out: Path) -> None:
    def slow(server: Server, question: str, now: int) -> tuple[int, bytes]:
        time.sleep(0.1)
        return honest(server, question, now)

    server.behave = slow
    process = subprocess.Popen([sys.executable, "-c", GATE_SCRIPT, as_json(settings), str(out)])
    file = out / "gate.jsonl"
    deadline = time.monotonic() + 30
    while not (file.exists() and file.read_bytes().count(b"\n") > 10) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(10) == -signal.SIGKILL


def test_after_kill_9_only_the_missing_questions_are_asked(server: Server, settings: GateSettings, out: Path):
    kill_in_the_middle(server, settings, out)
    file = out / "gate.jsonl"
    with file.open("ab") as stream:
        stream.write(b'{"id": "q00')  # what a kill in the middle of a write leaves
    kept = file.read_bytes().rpartition(b"\n")[0] + b"\n"
    had = {json.loads(line)["id"] for line in kept.splitlines()[1:]}
    assert 10 <= len(had) < QUESTIONS
    time.sleep(0.3)  # the requests of the killed process come to their end
    server.seen.clear()
    passed = run_gate(settings, out, silent)
    assert passed.accuracy == 1.0
    assert file.read_bytes().startswith(kept)
    assert sum(server.seen.values()) == QUESTIONS - len(had)
    assert len(lines_of(file)) == 1 + QUESTIONS
    assert read_passed(out, lock_digest="sha256:lock", boot_ids=settings.boot_ids) == passed


@pytest.mark.parametrize(
    "change", [{"boot_ids": ("decode-1", "prefill-0")}, {"lock_digest": "sha256:new"}, {"floor": 0.5}]
)
def test_evidence_of_another_deployment_is_set_aside_and_never_mixed(
    server: Server, settings: GateSettings, out: Path, change: dict[str, Any]
):
    run_gate(settings, out, silent)
    before, verdict = (out / "gate.jsonl").read_bytes(), (out / "gate.json").read_bytes()
    server.seen.clear()
    run_gate(replace(settings, **change), out, silent)
    assert sum(server.seen.values()) == QUESTIONS
    assert ((out / "gate.1.jsonl").read_bytes(), (out / "gate.1.json").read_bytes()) == (before, verdict)
    run_gate(settings, out, silent)
    assert (out / "gate.2.jsonl").exists()


def test_a_finished_gate_asks_nothing_again(server: Server, settings: GateSettings, out: Path):
    passed = run_gate(settings, out, silent)
    content = (out / "gate.json").read_bytes()
    server.seen.clear()
    assert run_gate(replace(settings, boot_ids=settings.boot_ids[::-1]), out, silent) == passed
    assert not server.seen
    assert (out / "gate.json").read_bytes() == content


def test_a_broken_line_of_evidence_is_named(settings: GateSettings, out: Path):
    run_gate(settings, out, silent)
    file = out / "gate.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:3], "{}", *lines[4:]]) + "\n")
    with pytest.raises(GateError, match="not evidence") as caught:
        run_gate(settings, out, silent)
    assert caught.value.at == f"{file}:4:1"


def test_a_full_disk_is_one_sentence(settings: GateSettings, out: Path, monkeypatch: pytest.MonkeyPatch):
    from pdkit.job import gate

    (out / "gate.jsonl").symlink_to("/dev/full")
    monkeypatch.setattr(gate, "start_or_resume", lambda *_: {})
    with pytest.raises(UsageError, match="cannot write the evidence: No space left on device"):
        run_gate(settings, out, silent)


def test_the_proof_is_read_only_with_its_evidence(settings: GateSettings, out: Path):
    with pytest.raises(GateError, match="has not passed here"):
        read_passed(out, lock_digest="sha256:lock", boot_ids=settings.boot_ids)
    passed = run_gate(settings, out, silent)
    assert read_passed(out, lock_digest="sha256:lock", boot_ids=settings.boot_ids) == passed
    with pytest.raises(GateError, match="another lock"):
        read_passed(out, lock_digest="sha256:other", boot_ids=settings.boot_ids)
    with pytest.raises(GateError, match="restarted"):
        read_passed(out, lock_digest="sha256:lock", boot_ids=("decode-0", "prefill-1"))


def test_a_verdict_that_was_edited_is_no_proof(server: Server, settings: GateSettings, out: Path):
    server.behave = only(20, lambda: completion("#### 999999"))
    fails(settings, out)
    file = out / "gate.json"
    honest_words = json.loads(file.read_text())
    file.write_text(json.dumps(honest_words | {"passed": True}))
    with pytest.raises(GateError, match="changed after the verdict"):
        read_passed(out, lock_digest="sha256:lock", boot_ids=settings.boot_ids)


def test_answers_that_were_edited_are_no_proof(settings: GateSettings, out: Path):
    run_gate(settings, out, silent)
    file = out / "gate.jsonl"
    file.write_text(file.read_text().replace('"seconds":0', '"seconds":1'))
    with pytest.raises(GateError, match="changed after the verdict"):
        read_passed(out, lock_digest="sha256:lock", boot_ids=settings.boot_ids)


def test_a_forged_verdict_with_right_digests_does_not_follow_from_the_answers(
    server: Server, settings: GateSettings, out: Path
):
    from pdkit.job.evidence import Evidence

    server.behave = only(20, lambda: completion("#### 999999"))
    fails(settings, out)
    evidence = Evidence.model_validate_json((out / "gate.json").read_bytes())
    verdict = evidence.verdict.model_copy(update={"passed": True, "reasons": (), "accuracy": 1.0})
    forged = evidence.model_copy(update={"passed": True, "verdict": verdict})
    forged = forged.model_copy(update={"gate_digest": forged.digest()})
    (out / "gate.json").write_text(forged.model_dump_json(by_alias=True))
    with pytest.raises(GateError, match="does not follow from the answers"):
        read_passed(out, lock_digest="sha256:lock", boot_ids=settings.boot_ids)


def record(settings: GateSettings, out: Path, target: Path) -> Path:
    passed = run_gate(settings, out, silent)
    return record_twin(out, passed, target, "tiny-agg")


def test_a_twin_is_recorded_without_text_and_compared_by_pairs(
    server: Server, settings: GateSettings, out: Path, tmp_path: Path
):
    twin = record(settings, out, tmp_path / "twins" / "tiny-agg.jsonl")
    assert "What is" not in twin.read_text()
    assert "It is" not in twin.read_text()
    header, *answers = lines_of(twin)
    assert (header["name"], header["strict_accuracy"], len(answers)) == ("tiny-agg", 1.0, QUESTIONS)
    server.behave = only(4, lambda: completion("#### 999999"))
    judged = replace(settings, floor=0.5, twin=twin, boot_ids=("pd",))
    passed = run_gate(judged, out, silent)
    assert "4 lost, 0 gained" in verdict_of(out)["words"]
    assert verdict_of(out)["verdict"]["twin"]["p_drop"] == 2**-4
    assert read_passed(out, lock_digest="sha256:lock", boot_ids=("pd",)) == passed
    (out / "gate-twin.jsonl").unlink()
    with pytest.raises(GateError, match="not those that were compared with"):
        read_passed(out, lock_digest="sha256:lock", boot_ids=("pd",))
    server.behave = only(5, lambda: completion("#### 999999"))
    error = fails(replace(judged, boot_ids=("pd2",)), out)
    assert error.message.startswith("accuracy dropped from the twin's 100.00% to 87.50%: 5 answers lost, 0 gained")


def test_a_twin_that_was_asked_otherwise_is_refused(settings: GateSettings, out: Path, tmp_path: Path):
    twin = record(replace(settings, question_limit=30), out, tmp_path / "twin.jsonl")
    run_gate(replace(settings, question_limit=20, twin=twin), out, silent)
    with pytest.raises(RecipeError, match="no answer to question q0031"):
        run_gate(replace(settings, twin=twin), out, silent)
    with pytest.raises(RecipeError, match=r"in another way \(completions-5shot, 5 examples, at most 64 tokens\)"):
        run_gate(replace(settings, question_limit=30, max_tokens=65, twin=twin), out, silent)
    twin.write_text(twin.read_text().replace("pdkit-twin", "something"))
    with pytest.raises(RecipeError, match="cannot use this twin") as caught:
        run_gate(replace(settings, twin=twin), out, silent)
    assert caught.value.at == f"{twin}:1:1"


def test_a_twin_is_recorded_only_from_the_gate_that_passed(settings: GateSettings, out: Path, tmp_path: Path):
    first = run_gate(settings, out, silent)
    run_gate(replace(settings, question_limit=30), out, silent)
    with pytest.raises(GateError, match="another gate"):
        record_twin(out, first, tmp_path / "twin.jsonl", "t")
    assert not (tmp_path / "twin.jsonl").exists()


@pytest.fixture
def spec(data: Path) -> Iterator[DataFile]:
    """A data file behind a real HTTP server that serves only it."""

    class Files(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/q.jsonl" else 404)
            self.end_headers()
            self.wfile.write(data.read_bytes())

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    digest = hashlib.sha256(data.read_bytes()).hexdigest()
    yield DataFile(name="q", url=f"http://127.0.0.1:{server.server_port}/q.jsonl", sha256=digest, lines=QUESTIONS)
    server.shutdown()
    thread.join()
    server.server_close()


def test_data_is_downloaded_once_and_then_needs_no_network(spec: DataFile, data: Path, tmp_path: Path):
    cached = fetch_data(spec, tmp_path / "cache")
    assert cached.read_bytes() == data.read_bytes()
    gone = spec.model_copy(update={"url": "http://127.0.0.1:9/q.jsonl"})
    assert fetch_data(gone, tmp_path / "cache") == cached
    assert [path.name for path in cached.parent.iterdir()] == [cached.name]
    cached.write_text("spoiled")
    with pytest.raises(RecipeError, match="this is not q: sha256 is"):
        fetch_data(spec, tmp_path / "cache")


def test_without_network_the_error_says_what_to_do(spec: DataFile, data: Path, tmp_path: Path):
    gone = spec.model_copy(update={"url": "http://127.0.0.1:9/q.jsonl"})
    with pytest.raises(RecipeError, match="cannot download q") as caught:
        fetch_data(gone, tmp_path / "cache")
    assert "--set gate.data=FILE" in str(caught.value)
    assert fetch_data(gone, tmp_path / "cache", data) == data
    with pytest.raises(RecipeError, match="No such file"):
        fetch_data(gone, tmp_path / "cache", tmp_path / "absent.jsonl")


def test_a_wrong_download_is_not_kept(spec: DataFile, tmp_path: Path):
    wrong = spec.model_copy(update={"sha256": "0" * 64})
    with pytest.raises(RecipeError, match="expected 0000"):
        fetch_data(wrong, tmp_path / "cache")
    assert list((tmp_path / "cache").rglob("*.jsonl")) == []
    with pytest.raises(RecipeError, match="404"):
        fetch_data(spec.model_copy(update={"url": spec.url + "x"}), tmp_path / "cache")


def test_the_gate_runs_from_the_zip_of_a_job(server: Server, settings: GateSettings, out: Path, tmp_path: Path):
    from pdkit.render.bundle import bundle

    archive = tmp_path / "pdkit.zip"
    archive.write_bytes(bundle())
    script = f"import pdkit\nassert 'pdkit.zip' in pdkit.__file__\n{GATE_SCRIPT}"
    environment = os.environ | {"PYTHONPATH": str(archive)}
    command = [sys.executable, "-c", script, as_json(settings), str(out)]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True)
    assert read_passed(out, lock_digest="sha256:lock", boot_ids=settings.boot_ids).accuracy == 1.0
    assert lines_of(out / "gate.jsonl")[0]["shots"] == 5

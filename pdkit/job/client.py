"""Ask an OpenAI-compatible server many questions at a bounded concurrency, and say of each exactly what came back."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

import requests
from pydantic import BaseModel, JsonValue, ValidationError

from pdkit.errors import GateError
from pdkit.job.gsm8k import Request

TICK_SECONDS = 1.0
"""How often `ask_all` gives a sign of life while nothing arrives."""
_CONNECT_SECONDS = 10.0
_RETRY_AFTER_SECONDS = 0.5
_STALL_SECONDS = 15.0
_SHOWN = 300
_FINISHED = ("stop", "length")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back for one request; `error` is None only for a complete answer."""

    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    seconds: float = 0.0
    in_flight: int = 1
    """Requests under way, this one included, when it was sent."""
    http_status: int | None = None
    retried: bool = False
    error: str | None = None


class _Message(BaseModel):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # what newer vLLM calls reasoning_content


class _Choice(BaseModel):
    text: str | None = None
    message: _Message = _Message()
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Body(BaseModel):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: JsonValue = None


def ask_all(
    base_url: str, asked: Sequence[Request], *, concurrency: int, timeout_seconds: float
) -> Generator[tuple[int, Reply] | None, None, None]:
    """Send every request, `concurrency` at a time, and yield `(index, reply)` as replies arrive.

    None is yielded each second in which nothing arrives. Closing the iterator sends nothing more; requests under way
    end by themselves, since a thread cannot be stopped from outside.
    """
    crew = _Crew(base_url, timeout_seconds)
    for index, request in enumerate(asked):
        crew.waiting.put((index, request))
    for _ in range(min(concurrency, len(asked))):
        # Daemon threads, so that a server which never answers cannot keep the process alive.
        threading.Thread(target=crew.work, daemon=True).start()
    missing, last = len(asked), time.monotonic()
    try:
        while missing:
            try:
                arrived = crew.arrived.get(timeout=TICK_SECONDS)
            except queue.Empty:
                silence = time.monotonic() - last
                # A server that sends a byte now and then outlives the socket's own limit.
                if silence > _CONNECT_SECONDS + timeout_seconds + _STALL_SECONDS:
                    raise GateError(f"no reply for {silence:.0f} s, with {missing} questions unanswered") from None
                yield None
                continue
            if isinstance(arrived, BaseException):
                raise arrived
            missing, last = missing - 1, time.monotonic()
            yield arrived
    finally:
        crew.stop.set()


@dataclass(slots=True)
class _Crew:
    """What the asking threads share."""

    base_url: str
    timeout_seconds: float
    waiting: queue.SimpleQueue[tuple[int, Request]] = field(default_factory=queue.SimpleQueue)
    arrived: queue.SimpleQueue[tuple[int, Reply] | BaseException] = field(default_factory=queue.SimpleQueue)
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    in_flight: int = 0

    def work(self) -> None:
        """Ask until nothing is left; the life of one thread."""
        try:
            with requests.Session() as session:
                session.trust_env = False  # a proxy of the login environment must not stand before a node's own address
                while not self.stop.is_set():
                    index, request = self.waiting.get_nowait()
                    self.arrived.put((index, self._counted(session, request)))
        except queue.Empty:
            return
        except BaseException as error:  # noqa: BLE001 - handed to the asking side, which raises it
            self.arrived.put(error)

    def _counted(self, session: requests.Session, request: Request) -> Reply:
        with self.lock:
            self.in_flight += 1
            now = self.in_flight
        try:
            return replace(ask(session, self.base_url, request, self.timeout_seconds), in_flight=now)
        finally:
            with self.lock:
                self.in_flight -= 1


def ask(session: requests.Session, base_url: str, request: Request, timeout_seconds: float) -> Reply:
    """Send one request; sent again, once, only when the connection was refused before a byte of it left."""
    start = time.monotonic()
    retried = False
    while True:
        try:
            response = session.post(
                base_url.rstrip("/") + request.path, json=request.body, timeout=(_CONNECT_SECONDS, timeout_seconds)
            )
        except requests.ConnectionError as error:
            if not retried and _refused(error):
                retried = True
                time.sleep(_RETRY_AFTER_SECONDS)
                continue
            reply = Reply(error=f"{type(error).__name__}: {error}"[:_SHOWN])
        except requests.Timeout:
            reply = Reply(error=f"no answer within {timeout_seconds:g} s")
        except requests.RequestException as error:
            reply = Reply(error=f"{type(error).__name__}: {error}"[:_SHOWN])
        else:
            reply = read_reply(response.status_code, response.content)
        return replace(reply, seconds=round(time.monotonic() - start, 3), retried=retried)


def _refused(error: requests.ConnectionError) -> bool:
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(getattr(reason, "__cause__", None), ConnectionRefusedError)


def read_reply(http_status: int, content: bytes) -> Reply:
    """Read the body of a response; an error inside a body with status 200 is an error."""
    if http_status != 200:
        return Reply(http_status=http_status, error=f"HTTP {http_status}: {_message(content)}")
    if content.lstrip().startswith((b"data:", b"event:", b":")):
        return Reply(http_status=200, error=f"HTTP 200 with an event stream: {_stream_error(content)}")
    try:
        body = _Body.model_validate_json(content)
    except ValidationError:
        return Reply(http_status=200, error=f"HTTP 200 with a body that is no completion: {_start(content)}")
    if body.error is not None or not body.choices:
        return Reply(http_status=200, error=f"HTTP 200 with an error in its body: {_message(content)}")
    choice, usage = body.choices[0], body.usage or _Usage()
    reply = Reply(
        text=choice.text or choice.message.content or "",
        reasoning=choice.message.reasoning_content or choice.message.reasoning or "",
        finish_reason=choice.finish_reason,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        http_status=200,
    )
    if choice.finish_reason not in _FINISHED:
        return replace(reply, error=f"HTTP 200 with finish_reason {choice.finish_reason!r}")
    return reply


def _start(content: bytes) -> str:
    return content.decode("utf-8", "replace")[:_SHOWN]


def _message(content: bytes) -> str:
    """The message of an error body in the form of OpenAI, of vLLM or of Dynamo; else the start of the body."""
    try:
        body = json.loads(content)
    except ValueError:
        return _start(content)
    error = body.get("error", body) if isinstance(body, dict) else body
    message = error.get("message") if isinstance(error, dict) else error
    if not isinstance(message, str):
        return _start(content)
    # Dynamo's message may be no more than "Invalid request"; what was wrong is beside it.
    details = error.get("details") if isinstance(error, dict) else None
    return (f"{message} {json.dumps(details)}" if details else message)[:_SHOWN]


def _stream_error(content: bytes) -> str:
    """The first error of an event stream; none was asked for, so without one the start of the body."""
    for line in content.splitlines():
        if line.startswith(b"data:") and b'"error"' in line:
            return _message(line[len(b"data:") :].strip())
    return _start(content)

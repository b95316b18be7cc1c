"""`python3 -m dynamo.frontend`: the OpenAI API over fake engines, prefill first, then decode."""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import signal
import time
import uuid
from collections.abc import Iterator
from typing import Any

from dynamo import discovery, lies, web, words

turns = {"prefill": itertools.count(), "backend": itertools.count()}


class RefusedError(Exception):
    """The request ends with this HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def models() -> list[str]:
    """Served names; a decode without a prefill, or the other way round, serves nothing."""
    cards = discovery.living("mdc")
    types = {card["worker_type"] for card in cards}
    whole = "agg" in types or {"prefill", "decode"} <= types
    return sorted({str(card["display_name"]) for card in cards}) if whole else []


def instances() -> list[dict[str, Any]]:
    listed = []
    for one in discovery.living("instances"):
        plain = {key: value for key, value in one.items() if key != "type"}
        listed += [{**plain, "endpoint": "clear_kv_blocks"}, plain]
    return listed


def forward(component: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the next worker of a component."""
    workers = discovery.workers(component)
    if not workers:
        raise RefusedError(503, "Model `tiny` is not ready")
    turn = 0 if "only-first" in lies.told("frontend0") else next(turns[component])
    address = workers[turn % len(workers)]
    try:
        status, answer = web.post(address, "/generate", body)
    except (OSError, http.client.HTTPException) as error:
        raise RefusedError(500, f"the worker at {address} is gone: {error!r}") from error
    if status != 200:
        raise RefusedError(status, answer["message"])
    return dict(answer)


def complete(body: dict[str, Any], tokens: list[int]) -> dict[str, Any]:
    asked = {"token_ids": tokens, "max_tokens": body["max_tokens"], "ignore_eos": body.get("ignore_eos", False)}
    if any(card["worker_type"] == "prefill" for card in discovery.living("mdc")):
        asked["kv_transfer_params"] = forward("prefill", asked)["kv_transfer_params"]
    return forward("backend", asked)


def prompt_tokens(path: str, body: dict[str, Any]) -> list[int]:
    if path == "/v1/chat/completions":
        turns = "".join(f"<{one['role']}>{one['content']}\n" for one in body["messages"])
        return words.encode(turns + "<assistant>")
    prompt = body["prompt"]
    return words.encode(prompt) if isinstance(prompt, str) else prompt


def openai(path: str, body: dict[str, Any]) -> web.Answer:
    if body["model"] not in models():
        return 404, {"message": "Model not found", "type": "Not Found", "code": 404}
    tokens = prompt_tokens(path, body)
    try:
        found = complete(body, tokens)
    except RefusedError as error:
        return error.status, {"message": str(error), "type": "Internal Server Error", "code": error.status}
    told = lies.told("frontend0")
    if "error-body" in told:
        return 200, {"error": {"message": "the engine is gone", "type": "ServiceUnavailable", "code": 503}}
    usage = {"prompt_tokens": len(tokens), "completion_tokens": len(found["token_ids"])}
    usage["total_tokens"] = sum(usage.values())
    chat = path == "/v1/chat/completions"
    if body.get("stream"):
        return 200, stream(body, found, usage, chat=chat)
    text = words.decode(found["token_ids"])
    choice: dict[str, Any] = {"index": 0, "finish_reason": found["finish_reason"]}
    choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    return 200, {**head(body, "chat.completion" if chat else "text_completion"), "choices": [choice], "usage": usage}


def head(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": f"cmpl-{uuid.uuid4()}", "object": kind, "created": int(time.time()), "model": body["model"]}


def stream(body: dict[str, Any], found: dict[str, Any], usage: dict[str, int], *, chat: bool) -> Iterator[str]:
    first = head(body, "chat.completion.chunk" if chat else "text_completion")
    ids = found["token_ids"]
    for number, token in enumerate(ids):
        last = found["finish_reason"] if number == len(ids) - 1 else None
        text = words.decode([token])
        choice = {"index": 0, "finish_reason": last, **({"delta": {"content": text}} if chat else {"text": text})}
        yield json.dumps({**first, "choices": [choice]})
    if (body.get("stream_options") or {}).get("include_usage"):
        yield json.dumps({**first, "choices": [], "usage": usage})
    yield "[DONE]"


def handle(path: str, body: Any) -> web.Answer:
    if body is not None:
        return openai(path, body)
    if path == "/v1/models":
        listed = [{"id": name, "object": "model", "owned_by": "nvidia", "context_window": 2048} for name in models()]
        return 200, {"object": "list", "data": listed}
    if path == "/health":
        return 200, {"status": "healthy", "endpoints": [], "instances": instances()}
    return 404, {"message": "not found"}


def end(_number: int, _frame: Any) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--http-host", required=True)
    parser.add_argument("--http-port", type=int, required=True)
    options = parser.parse_args()
    while "unready" in lies.told("frontend0"):
        time.sleep(0.05)
    web.serve(options.http_host, options.http_port, handle)
    print(f"INFO listening on {options.http_port}", flush=True)
    while True:
        if "die" in lies.told("frontend0"):
            signal.raise_signal(signal.SIGKILL)
        time.sleep(0.05)

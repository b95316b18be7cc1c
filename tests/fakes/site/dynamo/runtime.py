"""The part of Dynamo's runtime that a client of a worker needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from dynamo import discovery, web


class Part:
    """One part of an answer."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def data(self) -> dict[str, Any]:
        return self._data


class Client:
    def __init__(self, component: str) -> None:
        self.component = component

    async def wait_for_instances(self) -> list[str]:
        while not discovery.workers(self.component):
            await asyncio.sleep(0.05)
        return discovery.workers(self.component)

    async def round_robin(self, request: dict[str, Any]) -> AsyncIterator[Part]:
        stop = request["stop_conditions"]
        body = {"token_ids": request["token_ids"], "max_tokens": stop["max_tokens"], "ignore_eos": stop["ignore_eos"]}
        status, answer = web.post(discovery.workers(self.component)[0], "/generate", body)
        if status != 200:
            raise RuntimeError(answer["message"])
        return self._parts(answer)

    @staticmethod
    async def _parts(answer: dict[str, Any]) -> AsyncIterator[Part]:
        for token in answer["token_ids"]:
            yield Part({"token_ids": [token]})


class Endpoint:
    def __init__(self, path: str) -> None:
        self.component = path.split(".")[1]

    async def client(self) -> Client:
        return Client(self.component)


class DistributedRuntime:
    def __init__(self, _loop: asyncio.AbstractEventLoop, backend: str, plane: str) -> None:
        assert (backend, plane) == ("file", "tcp")

    def endpoint(self, path: str) -> Endpoint:
        return Endpoint(path)

"""What played engines say to each other: an endpoint's processes meet, and decode fetches prompts from prefill."""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from pdkit.mocker.told import Join

MEETING_SECONDS = 600.0
KEPT_PROMPTS = 8192
"""Prompts that a prefill engine keeps for decode; an older one is given up, as vLLM's timeout would."""
_HEADER = struct.Struct("!Q")
BYTES_PER_TOKEN = 4


async def meet(join: Join, lost: Callable[[], None]) -> asyncio.Server | None:
    """Wait until every process of the endpoint is there; `lost` is called when one goes away later.

    Returns what listens for them in the process that leads.
    """
    if join.leads:
        return await _lead(join, lost)
    deadline = asyncio.get_running_loop().time() + MEETING_SECONDS
    while True:
        try:
            streams = await asyncio.open_connection(join.address, join.port)
        except OSError:
            if asyncio.get_running_loop().time() > deadline:
                sys.exit(f"nobody listens at {join.address}:{join.port} after {MEETING_SECONDS:.0f} s")
            await asyncio.sleep(0.2)
            continue
        _keep(asyncio.create_task(_until_gone(streams, lost)))
        return None


async def _lead(join: Join, lost: Callable[[], None]) -> asyncio.Server:
    here, everybody = 0, asyncio.Event()

    async def arrived(*streams: Any) -> None:
        nonlocal here
        here += 1
        if here >= join.others:
            everybody.set()
        await _until_gone(streams, lost)

    server = await asyncio.start_server(arrived, join.address, join.port)
    if join.others:
        await asyncio.wait_for(everybody.wait(), MEETING_SECONDS)
    return server


async def _until_gone(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], lost: Callable[[], None]) -> None:
    """The writer is held on to all the while: a forgotten one closes its connection."""
    with contextlib.suppress(OSError):  # reset: gone all the same
        await streams[0].read()
    streams[1].close()
    lost()


_tasks: set[asyncio.Task[None]] = set()


def _keep(task: asyncio.Task[None]) -> None:
    """The loop itself holds tasks only weakly."""
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


class Kept:
    """The prompts that a prefill engine has computed, until decode fetches them from its side channel."""

    def __init__(self) -> None:
        self.prompts: OrderedDict[int, bytes] = OrderedDict()

    async def serve(self, address: str, port: int) -> asyncio.Server:
        """Answer on the side channel."""
        return await asyncio.start_server(self._answer, address, port)

    def keep(self, tokens: Sequence[int]) -> int:
        """Keep a prompt and return its ticket."""
        ticket = int.from_bytes(os.urandom(8), "big")
        self.prompts[ticket] = array.array("I", tokens).tobytes()
        if len(self.prompts) > KEPT_PROMPTS:
            self.prompts.popitem(last=False)
        return ticket

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            (ticket,) = _HEADER.unpack(await reader.readexactly(_HEADER.size))
            found = self.prompts.pop(ticket, b"")
            writer.write(_HEADER.pack(len(found)) + found)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # decode has gone, and says so itself
        finally:
            writer.close()


async def fetch(address: str, port: int, ticket: int) -> list[int]:
    """The prompt behind a ticket; raises OSError when prefill is gone or no longer has it."""
    reader, writer = await asyncio.open_connection(address, port)
    try:
        writer.write(_HEADER.pack(ticket))
        await writer.drain()
        (size,) = _HEADER.unpack(await reader.readexactly(_HEADER.size))
        found = array.array("I", await reader.readexactly(size))
    except asyncio.IncompleteReadError as error:
        raise OSError(f"{address}:{port} broke off") from error
    finally:
        writer.close()
    if not found:
        raise OSError(f"{address}:{port} no longer has the prompt")
    return list(found)

"""The log watch: literals in engine logs that mean the run is void although every request may answer HTTP 200.

The literals come from public threads and from runs of our own; each is matched as a substring, per log.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

FATAL: dict[str, str] = {
    "handshake_setup_failed": "NIXL pairing of prefill and decode is broken (vllm#42895)",
    "handshake_failed": "NIXL pairing of prefill and decode is broken (vllm#42895)",
    "NIXL compatibility hash mismatch": "prefill and decode are configured differently: model string, dtype, version",
    "engine ID mismatch": "the side channel answers for another engine (vllm#27083)",
    "NIXL_ERR_": "NIXL failed to move KV",
    "Skipping KV post-processing": "a KV receive failed and generation went on (vllm#52234)",
    "Releasing expired KV blocks": "prefill gave up KV blocks that decode had not fetched in time (aws-do-eks#84)",
    "Potentially invalid KV blocks": "decode may have read freed KV blocks (aws-do-eks#84)",
    "Turning off hybrid kv cache manager": "the hybrid KV cache manager was switched off (vllm#41830)",
    "no KVConnector found": "decode has no KV connector and recomputes every prompt",
    "Unable to resolve hostname to a (local) address": "Gloo would use the loopback",
    "exceeds available Mamba cache blocks": "max-num-seqs is above the GDN state blocks (vllm#38270)",
    "keep_alive failed opening owned file": "Dynamo's file discovery lost a live worker; it does not come back",
    "EngineDeadError": "an engine core died",
    "NV_ERR_NO_MEMORY": "the GPU driver is out of memory",
}
"""Literal -> what it means. Any hit ends the run."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A fatal line."""

    log: str
    line: str
    meaning: str

    def __str__(self) -> str:
        return f"{self.log}: {self.meaning}\n  {self.line}"


@dataclass(slots=True)
class LogWatch:
    """Reads what logs have gained since the last look."""

    logs: list[Path]
    _read: dict[Path, int] = field(default_factory=dict)

    def look(self) -> list[Hit]:
        """The fatal lines since the last look; a half-written last line waits for the next one."""
        return [hit for log in self.logs for hit in self._look_at(log)]

    def _look_at(self, log: Path) -> list[Hit]:
        try:
            with log.open("rb") as stream:
                start = self._read.get(log, 0)
                if start > os.fstat(stream.fileno()).st_size:
                    start = 0  # cut or begun anew: all of it is new
                stream.seek(start)
                new = stream.read()
        except FileNotFoundError:
            return []
        whole = new[: new.rfind(b"\n") + 1]
        self._read[log] = start + len(whole)
        return [hit for line in whole.decode("utf-8", "replace").splitlines() if (hit := _judge(log, line))]


def _judge(log: Path, line: str) -> Hit | None:
    for literal, meaning in FATAL.items():
        if literal in line:
            return Hit(log.name, line.strip()[:400], meaning)
    return None


_TAIL_BYTES = 64 * 1024
"""How much of a log's end is read: logs grow to gigabytes, and a live table looks at them twice a second."""
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def last_lines(log: Path, count: int = 20) -> list[str]:
    """The end of a log without its colours, for a message about the process that wrote it."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
            end = stream.read()
    except FileNotFoundError:
        return [f"({log.name} was never written)"]
    return _ESCAPES.sub("", end.decode("utf-8", "replace")).splitlines()[-count:]

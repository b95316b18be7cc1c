"""Dynamo's file discovery: a file per endpoint below DYN_FILE_KV, touched while its process lives, else forgotten."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any

TTL_SECONDS = 10.0
HEARTBEAT_SECONDS = 2.0


def folder(kind: str) -> Path:
    return Path(os.environ["DYN_FILE_KV"]) / "v1" / kind


class Registration:
    """The files of one worker."""

    def __init__(self, component: str, host: str, card: dict[str, Any]) -> None:
        key = uuid.uuid4().int >> 64
        name = f"dynamo%2F{component}%2Fgenerate%2F{key:x}"
        endpoint = {"type": "Endpoint", "component": component, "endpoint": "generate", "namespace": "dynamo"}
        address = f"{host}/{key:x}/dynamo/{component}/generate"
        endpoint |= {"instance_id": key, "transport": {"tcp": address}}
        self.files = {folder("instances") / name: endpoint, folder("mdc") / name: {"type": "Model", **card}}
        self.id = f"{key:x}"
        for file, content in self.files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            half = file.with_suffix(".half")
            half.write_text(json.dumps(content))
            half.replace(file)
        threading.Thread(target=self._live, daemon=True).start()

    def _live(self) -> None:
        while True:
            time.sleep(HEARTBEAT_SECONDS)
            for file in self.files:
                if file.exists():  # once forgotten, never registered again
                    os.utime(file)

    def withdraw(self) -> None:
        for file in self.files:
            file.unlink(missing_ok=True)


def living(kind: str) -> list[dict[str, Any]]:
    """What is registered now, by name."""
    files = (file for file in sorted(folder(kind).glob("*%2F*")) if file.suffix != ".half")
    return [one for file in files if (one := _read(file)) is not None]


def _read(file: Path) -> dict[str, Any] | None:
    try:
        fresh = time.time() - file.stat().st_mtime < TTL_SECONDS
        return dict(json.loads(file.read_text())) if fresh else None
    except FileNotFoundError:
        return None  # withdrawn between the two looks


def workers(component: str) -> list[str]:
    """`host:port` of the workers of a component."""
    return [one["transport"]["tcp"].split("/")[0] for one in living("instances") if one["component"] == component]

"""The preflight: what a node must have before an engine starts on it, seen in seconds, not in minutes.

    python3 -m pdkit.job.preflight RUN_FOLDER NODE

Runs in the engines' container on every node of the job, NODE counting from 0. Prints one line per check, `ok`, `note`
or `fault`, and writes `preflight/NODE.json`; exit code 3 when there is a fault.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pdkit.files import write_json

FREE_DISK_GIB = 1.0
"""Logs, answers and load artifacts of a run stay below this."""
BUSY_GPU_MIB = 1024
"""An idle GB300 shows a few hundred MiB; more belongs to somebody."""
PORT_FIX = "end what listens there, or set infra.port_shift"
NAME_FIX = "put the address of the network into /etc/hosts or DNS, not 127.0.1.1"
MOST_SKEW_SECONDS = 2.0
"""Tokens per second over two clocks are wrong by this much at most."""


@dataclass(frozen=True, slots=True)
class Look:
    """One check on one node."""

    level: Literal["ok", "note", "fault"]
    what: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.level}: {self.what}"


def look_at_node(folder: Path, node: int) -> list[Look]:
    """All checks of one node."""
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    looks = [
        *look_at_ports(plan, node),
        *look_at_gpus(plan, node),
        *look_at_model(plan, node),
        *look_at_name(plan),
        *look_at_disk(folder),
        *look_at_clock(folder),
    ]
    host = socket.gethostname()
    return [Look(look.level, f"{host}: {look.what}", look.fix) for look in looks]


def look_at_ports(plan: dict[str, Any], node: int) -> Iterator[Look]:
    """Whether every port that the plan gives out on a node can be had."""
    for port in (one for one in plan["ports"] if one["node"] == node):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port["port"]))  # noqa: S104  (whatever address it is taken on)
            except OSError as error:
                yield Look("fault", f"port {port['port']} ({port['owner']}) is taken: {error.strerror}", PORT_FIX)
                return
    yield Look("ok", "all planned ports are free")


def look_at_gpus(plan: dict[str, Any], node: int) -> Iterator[Look]:
    """Whether the planned GPUs are there and nobody is on them."""
    wanted = sorted({gpu for one in plan["placement"] if one["node"] == node for gpu in one["gpus"]})
    if plan["device"] != "cuda":
        return
    if shutil.which("nvidia-smi") is None:
        yield Look("note", "no nvidia-smi here: GPUs and NVLink fabric are not looked at", "run it on the node itself")
        return
    query = ["nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        yield Look("fault", f"nvidia-smi failed: {(done.stderr or done.stdout).strip()[:200]}", "see the driver")
        return
    rows = [line.split(",") for line in done.stdout.splitlines() if "," in line]
    used = {int(gpu): mib.strip() for gpu, mib in rows}
    for gpu in wanted:
        if gpu not in used:
            yield Look("fault", f"GPU {gpu} is planned, the node shows {len(used)} GPUs", "ask for whole nodes, --gres")
        elif not used[gpu].isdigit():  # unified memory: `[N/A]`
            yield Look("note", f"GPU {gpu} does not say how much memory is in use", "look at the machine's free memory")
        elif int(used[gpu]) > BUSY_GPU_MIB:
            text = f"GPU {gpu} is in use: {used[gpu]} MiB are taken before any engine started"
            yield Look("fault", text, "end what nvidia-smi shows there, or use another node")
    if len({one["node"] for one in plan["placement"]}) > 1 and not Path("/dev/nvidia-caps-imex-channels").exists():
        text = "no IMEX channel: KV and expert traffic between nodes cannot use NVLink"
        yield Look("note", text, "start nvidia-imex, and let the container see /dev/nvidia-caps-imex-channels")
    yield Look("ok", f"{len(used)} GPUs are visible")


def look_at_model(plan: dict[str, Any], node: int) -> Iterator[Look]:
    """A model folder must be readable, and the same on every node: its config's digest is compared by the reader."""
    roles = {one["role"] for one in plan["placement"] if one["node"] == node}
    for path in sorted({plan["roles"][role]["model_path"] for role in roles}):
        if not path.startswith("/"):
            yield Look("note", f"the model `{path}` comes from the hub or its cache: not looked at", "give a folder")
            continue
        config = Path(path) / "config.json"
        try:
            digest = hashlib.sha256(config.read_bytes()).hexdigest()
        except OSError as error:
            yield Look("fault", f"the model cannot be read: {config}: {error.strerror}", "see cluster.mounts")
            continue
        yield Look("ok", f"model {path}, config sha256 {digest[:12]}")


def look_at_name(plan: dict[str, Any]) -> Iterator[Look]:
    """Whether other nodes find this one by its name."""
    if plan["nodes"] == 1:
        return  # nobody else needs to find this node
    host = socket.gethostname()
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None, socket.AF_INET)}
    except OSError as error:
        yield Look("fault", f"the hostname does not resolve: {error.strerror}", NAME_FIX)
        return
    if addresses and all(address.startswith("127.") for address in addresses):
        yield Look("fault", f"the hostname resolves to the loopback only ({', '.join(sorted(addresses))})", NAME_FIX)
    else:
        yield Look("ok", f"the hostname resolves to {', '.join(sorted(addresses))}")


def look_at_disk(folder: Path) -> Iterator[Look]:
    """Whether the run folder has room for logs and answers."""
    free_gib = shutil.disk_usage(folder).free / 2**30
    level: Literal["ok", "fault"] = "ok" if free_gib >= FREE_DISK_GIB else "fault"
    yield Look(
        level,
        f"{free_gib:.1f} GiB are free in the run folder, {FREE_DISK_GIB:g} are needed",
        "" if level == "ok" else "make room",
    )


def look_at_clock(folder: Path) -> Iterator[Look]:
    """This node's clock against that of the file server, which all nodes share."""
    probe = folder / f".clock-{socket.gethostname()}-{os.getpid()}"
    before = time.time()
    try:
        probe.write_text("", encoding="utf-8")
        skew = probe.stat().st_mtime - (before + time.time()) / 2
    except OSError as error:
        yield Look("fault", f"the run folder cannot be written: {error.strerror}", "choose another folder")
        return
    finally:
        probe.unlink(missing_ok=True)
    level: Literal["ok", "fault"] = "ok" if abs(skew) <= MOST_SKEW_SECONDS else "fault"
    yield Look(
        level,
        f"the clock differs from the file server's by {round(skew, 1) + 0.0:+.1f} s",  # a zero without sign
        "" if level == "ok" else "start chrony or ntpd",
    )


def disagreements(folder: Path) -> list[str]:
    """What the nodes of a job do not have in common although they must: one model, byte for byte in its config."""
    models: dict[str, dict[str, list[int]]] = {}
    for file in sorted((folder / "preflight").glob("*.json")):
        seen = json.loads(file.read_text(encoding="utf-8"))
        for look in seen["looks"]:
            _, found, rest = look["what"].partition(": model ")
            path, _, digest = rest.partition(", config sha256 ")
            if found and digest:
                models.setdefault(path, {}).setdefault(digest, []).append(seen["node"])
    return [
        f"the model {path} differs between nodes: "
        + "; ".join(f"{digest} on {nodes}" for digest, nodes in kinds.items())
        for path, kinds in models.items()
        if len(kinds) > 1
    ]


def main() -> int:
    """Look at this node and tell."""
    folder, node = Path(sys.argv[1]), int(sys.argv[2])
    looks = look_at_node(folder, node)
    sys.stdout.write("".join(f"{look}\n" for look in looks))
    write_json(
        folder / "preflight" / f"{node}.json", {"schema": 1, "node": node, "looks": [asdict(one) for one in looks]}
    )
    return 3 if any(look.level == "fault" for look in looks) else 0


if __name__ == "__main__":
    sys.exit(main())

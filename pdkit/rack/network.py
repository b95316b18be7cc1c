"""The rack's private network: a switch in a namespace of its own, and one namespace per node.

The switch does not live beside the machine's other interfaces, so neither a firewall nor Docker's bridge
filter has a say in what the nodes tell one another; this machine is just one more port.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable
from pathlib import Path

from pdkit.errors import ClusterError
from pdkit.rack import process
from pdkit.rack.config import RackConfig

_SWITCH = "switch"
_HOST_PORT = "host"


def existing(config: RackConfig) -> list[str]:
    """The namespaces of the rack that exist, those of an earlier rack of this name with more nodes too."""
    ours = re.compile(rf"{config.name}-(head|[0-9]+)")
    folder = Path("/run/netns")
    return sorted(path.name for path in folder.iterdir() if ours.fullmatch(path.name)) if folder.is_dir() else []


def build(config: RackConfig) -> None:
    """Create the namespaces, the switch and the links; nothing of them may exist yet."""
    _refuse_taken_subnet(config)
    process.run(["ip", "-batch", "-"], text=_lines(f"netns add {name}" for name in config.namespaces))
    ours = [
        f"link add {config.name} type veth peer name {_HOST_PORT} netns {config.head}",
        f"address add {config.host_address}/24 dev {config.name}",
        f"link set {config.name} up",
    ]
    process.run(["ip", "-batch", "-"], text=_lines(ours))
    links = [
        f"link add {_SWITCH} type bridge",
        f"address add {config.head_address}/24 dev {_SWITCH}",
        f"link set {_SWITCH} up",
        "link set lo up",
        f"link set {_HOST_PORT} master {_SWITCH} up",
    ]
    for node in config.node_names:
        port = _port(config, node)
        links += [f"link add {port} type veth peer name eth0 netns {node}", f"link set {port} master {_SWITCH} up"]
    process.run(["ip", "-n", config.head, "-batch", "-"], text=_lines(links))
    for node in config.node_names:
        inside = [f"address add {config.node_address(node)}/24 dev eth0", "link set eth0 up", "link set lo up"]
        process.run(["ip", "-n", node, "-batch", "-"], text=_lines(inside))


def remove(config: RackConfig) -> None:
    """Delete the namespaces and, with them, every interface of the rack."""
    names = existing(config)
    if config.head in names:
        # The kernel empties a deleted namespace in its own time, but a new rack may want this name and subnet now.
        ports = json.loads(process.run(["ip", "-json", "-n", config.head, "link", "show", "type", "veth"]))
        if any(port.get("ifname") == _HOST_PORT for port in ports):
            process.run(["ip", "-n", config.head, "link", "delete", _HOST_PORT])
    if names:
        process.run(["ip", "-batch", "-"], text=_lines(f"netns delete {name}" for name in names))


def set_plugged(config: RackConfig, node: str, *, plugged: bool) -> None:
    """Plug or unplug the cable of `node`."""
    process.run(["ip", "-n", config.head, "link", "set", _port(config, node), "up" if plugged else "down"])


def plugged(config: RackConfig) -> frozenset[str]:
    """The nodes whose cable is plugged in."""
    links = json.loads(process.run(["ip", "-json", "-n", config.head, "link", "show"]))
    up = {link["ifname"] for link in links if "UP" in link["flags"]}
    return frozenset(node for node in config.node_names if _port(config, node) in up)


def _port(config: RackConfig, node: str) -> str:
    return f"port{config.index(node):02d}"


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _refuse_taken_subnet(config: RackConfig) -> None:
    wanted = ipaddress.IPv4Network(f"{config.subnet}.0/24")
    for route in json.loads(process.run(["ip", "-json", "-4", "route", "show", "table", "all"])):
        target = route["dst"]
        if target != "default" and ipaddress.IPv4Network(target).overlaps(wanted):
            raise ClusterError(
                f"this machine already reaches {target} through {route.get('dev', 'another interface')}",
                fix=f"give the rack a private --subnet outside {target}",
            )

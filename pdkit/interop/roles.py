"""The roles of an srt-slurm recipe: workers, nodes, GPUs, parallel sizes, flags, environment and connector."""

from __future__ import annotations

import json
from typing import Any, Literal

from pdkit.interop.placing import check_nodes
from pdkit.interop.reading import Reading, as_int, dotted
from pdkit.interop.types import SrtRole
from pdkit.recipe.owned import flag_name
from pdkit.recipe.schema import ROLES, Role
from pdkit.recipe.topology import MOST, Topology
from pdkit.recipe.yaml_marks import Path

GPUS, TWICE, JSON = "PD123", "PD125", "PD126"
MODES = {"prefill": "prefill", "decode": "decode", "agg": "aggregated"}
"""The peer's word for each role in schema 1."""
CONNECTORS = {"nixl": "NixlConnector", "lmcache": "LMCacheConnectorV1", "kvbm": "DynamoConnector"}
"""The peer's short names (srt-slurm c88ef731, backends/vllm.py)."""
JSON_FLAGS = ("kv-transfer-config", "compilation-config", "speculative-config", "kv-events-config")
"""Flags whose JSON is looked into."""
PARALLEL = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")


def read_roles(reading: Reading, schema: Literal[1, 2], gpus_per_node: int) -> dict[Role, SrtRole]:
    """Every role that has workers; what is wrong with one becomes findings of the reading."""
    found: dict[Role, SrtRole] = {}
    for role in ROLES:
        where = Where(role, schema)
        if _is_there(reading, where):
            found[role] = _role(reading, where, gpus_per_node, found.get("prefill"))
    if "agg" in found and len(found) > 1:
        fix = "keep either the aggregated workers or prefill and decode"
        reading.fault(Where("agg", schema).workers, "aggregated workers beside prefill or decode", fix, key=True)
        del found["agg"]
    if found and "agg" not in found and len(found) == 1:
        missing: Role = "decode" if "prefill" in found else "prefill"
        only = next(iter(found))
        reading.fault(Where(only, schema).workers, f"{only} workers without {missing}", f"add {missing} workers")
        return {}
    check_nodes(reading, [(one, Where(role, schema).workers) for role, one in found.items()], gpus_per_node)
    return found


class Where:
    """Where the two schemas keep what belongs to a role."""

    def __init__(self, role: Role, schema: Literal[1, 2]) -> None:
        mode = MODES[role]
        self.role: Role = role
        self.nodes: tuple[str, ...] = ("roles", role, "nodes")
        self.workers: tuple[str, ...] = ("roles", role, "workers")
        self.gpus: tuple[str, ...] = ("roles", role, "gpus")
        self.flags: tuple[str, ...] = ("roles", role, "args")
        self.env: tuple[str, ...] = ("roles", role, "env")
        self.connector: tuple[str, ...] = ("engine", "connector")
        self.own: tuple[str, ...] = ("roles", role)
        if schema == 1:
            self.nodes, self.workers = ("resources", f"{role}_nodes"), ("resources", f"{role}_workers")
            self.gpus = ("resources", f"gpus_per_{role}")
            self.flags, self.env = ("backend", "vllm_config", mode), ("backend", f"{mode}_environment")
            self.connector, self.own = ("backend", "connector"), ("resources",)


def _is_there(reading: Reading, where: Where) -> bool:
    if where.own != ("resources",):
        return reading.has(*where.own)
    return reading.has(*where.workers) or reading.has(*where.nodes)


def _role(reading: Reading, where: Where, gpus_per_node: int, prefill: SrtRole | None) -> SrtRole:
    workers = reading.count(*where.workers, default=1, least=1)
    nodes = _nodes(reading, where)
    shared = prefill.gpus if prefill and not nodes else gpus_per_node
    gpus = reading.count(*where.gpus, default=nodes * gpus_per_node // workers or shared, least=1)
    flags, keys = _flags(reading, where)
    connector = _kv_transfer(reading, where, flags, keys)
    env = reading.mapping(*where.env)
    role = SrtRole(
        role=where.role,
        path=where.flags,
        nodes=nodes,
        workers=workers,
        gpus=gpus,
        topology=_topology(reading, where, flags, keys),
        flags=flags,
        flag_keys=keys,
        env={key: plain(reading.raw(*where.env, key)) for key in env},
        kv_transfer=connector,
    )
    _check_gpus(reading, where, role)
    return role


def _check_gpus(reading: Reading, where: Where, role: SrtRole) -> None:
    """TP x DP x PP against the GPUs of a worker; without DP the peer launches what is too small, and GPUs idle."""
    takes = role.topology.gpus
    if takes == role.gpus:
        return
    key = next((role.flag_keys[flag] for flag in PARALLEL if flag in role.flag_keys), "")
    path = (*where.flags, key) if key else where.gpus
    idle = takes < role.gpus and "data-parallel-size" not in role.flag_keys
    message = f"{where.role}: {role.topology} takes {takes} GPUs, a worker has {role.gpus}"
    fix = "make TP x DP x PP and the GPUs of a worker agree"
    reading.fault(path, message, fix, code=GPUS, severity="warning" if idle else "error")


def _nodes(reading: Reading, where: Where) -> int:
    """Nodes of a role; decode may share those of prefill, written 0 or `colocate`."""
    if where.role == "decode" and reading.raw(*where.nodes) in (0, "colocate"):
        return 0
    return reading.count(*where.nodes, default=1, least=1)


def plain(value: Any) -> str:
    """A scalar as a program sees it in its environment."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _flags(reading: Reading, where: Where) -> tuple[dict[str, Any], dict[str, str]]:
    """Flags by vLLM's full names and how the file spells them; two spellings of one flag are a fault."""
    flags: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for key in reading.mapping(*where.flags):
        value, path = reading.raw(*where.flags, key), (*where.flags, key)
        full = flag_name(key)
        negated = key.strip().lstrip("-").replace("_", "-").startswith("no-")
        name = f"no-{full}" if negated else full
        twin = next((keys[one] for one in keys if flag_name(one) == full), None)
        if twin is not None:
            message = f"{where.role}: `{key}` and `{twin}` are one vLLM flag"
            reading.fault(path, message, "keep one of the two", code=TWICE, key=True)
            continue
        if name == "connector" or value is None:
            continue
        keys[name] = key
        flags[name] = _decoded(reading, path, value) if _is_json(name, value) else value
    _join_dotted(flags, keys)
    return flags, keys


def _is_json(name: str, value: Any) -> bool:
    return name in JSON_FLAGS or (isinstance(value, str) and value.lstrip().startswith("{"))


def _join_dotted(flags: dict[str, Any], keys: dict[str, str]) -> None:
    """`speculative_config.method` and its like into the mapping of the flag, as vLLM's parser does."""
    for name in [one for one in flags if "." in one]:
        head, _, rest = name.partition(".")
        if head not in JSON_FLAGS or not isinstance(flags.get(head, {}), dict):
            continue
        here = flags.setdefault(head, {})
        keys.setdefault(head, keys.pop(name))
        *parents, last = rest.replace("-", "_").split(".")
        for parent in parents:
            here = here.setdefault(parent, {})
        here[last] = flags.pop(name)


def _decoded(reading: Reading, path: Path, value: Any) -> Any:
    """The mapping of a JSON flag; a fault when it is none."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        reading.fault(path, f"`{path[-1]}` is not JSON: {error}", "check quotes, commas and brackets", code=JSON)
        return {}
    if not isinstance(found, dict):
        reading.fault(path, f"`{path[-1]}` should be a JSON mapping", 'for example {"mode": 3}', code=JSON)
        return {}
    return found


def _kv_transfer(reading: Reading, where: Where, flags: dict[str, Any], keys: dict[str, str]) -> dict[str, Any] | None:
    """What `--kv-transfer-config` says; the peer adds one of its own for `connector:`, which is `nixl` unless null."""
    given: dict[str, Any] | None = flags.pop("kv-transfer-config", None)
    own = reading.raw(*where.flags, "connector")
    path = (*where.flags, "connector") if own is not None else where.connector
    stands = path in reading.source.values
    value = own if own is not None else reading.raw(*where.connector)
    short = "nixl" if not stands else value
    if short in (None, "null", "none", ""):
        return given
    if given is not None:
        where_key = (*where.flags, keys["kv-transfer-config"])
        message = f"{where.role}: `connector: {short}` gives --kv-transfer-config a second time"
        message += "" if stands else " (srt-slurm's default)"
        fix = f"write `{dotted(where.connector)}: null`, or remove the flag"
        reading.fault(path if stands else where_key, message, fix, code=TWICE)
        return given
    known = CONNECTORS.get(str(short).lower())
    return {"kv_connector": known, "kv_role": "kv_both"} if known else _decoded(reading, path, short)


def _topology(reading: Reading, where: Where, flags: dict[str, Any], keys: dict[str, str]) -> Topology:
    """TP, PP, DP and EP out of the flags; with DP the peer computes with them, so they must be numbers."""
    sizes = {flag: _size(reading, where, flags, keys, flag) for flag in PARALLEL}
    tp, pp, dp = (sizes[flag] for flag in PARALLEL)
    ep = flags.pop("enable-expert-parallel", False)
    if not isinstance(ep, bool):
        path = (*where.flags, keys["enable-expert-parallel"])
        reading.fault(path, f"{where.role}: `--enable-expert-parallel` is a switch, not {ep!r:.40}", "true or false")
        ep = str(ep).lower() == "true"
    if flags.pop("no-enable-expert-parallel", False) is True:
        ep = False
    return Topology(tp=tp, dp=dp, pp=pp, ep=ep)


def _size(reading: Reading, where: Where, flags: dict[str, Any], keys: dict[str, str], flag: str) -> int:
    if flag not in flags:
        return 1
    value, path = flags.pop(flag), (*where.flags, keys[flag])
    number = as_int(value)
    if number is None or not 1 <= number <= MOST:
        reading.fault(path, f"{where.role}: `{keys[flag]}` should be a number from 1 to {MOST}", "check the value")
        return 1
    frontend = reading.source.data.get("frontend")
    direct = isinstance(frontend, dict) and frontend.get("type") == "vllm"  # which computes nothing
    if isinstance(value, str) and "data-parallel-size" in keys and not direct:
        message = f"{where.role}: `{keys[flag]}` is text; srt-slurm computes with it and fails inside the job"
        reading.fault(path, message, f"write {number} without quotes")
    return number


def served_name(found: dict[Role, SrtRole]) -> str | None:
    """The name that clients use: the first that a role gives, in the peer's order."""
    order: tuple[Role, ...] = ("prefill", "agg", "decode")
    names = [found[role].flags.get("served-model-name") for role in order if role in found]
    return next((str(name) for name in names if name), None)

"""Command lines as vLLM reads them: one value per flag whatever its spelling, and what a flag left out comes to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pdkit.facts.flags import FlagTable, lookup
from pdkit.recipe.owned import flag_name
from pdkit.recipe.schema import deep_merge

APART = {
    "compilation-config": ("cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size"),
    "speculative-config": ("num_speculative_tokens",),
}
"""Keys of JSON flags that are compared as settings."""
DEFAULTS: dict[str, Any] = {
    "all2all-backend": "allgather_reducescatter",
    "config-format": "auto",
    "data-parallel-backend": "mp",
    "data-parallel-size": 1,
    "disable-custom-all-reduce": False,
    "dtype": "auto",
    "enable-cumem-allocator": False,
    "enable-dbo": False,
    "enable-ep-weight-filter": False,
    "enable-eplb": False,
    "enable-expert-parallel": False,
    "enable-sleep-mode": False,
    "enforce-eager": False,
    "expert-placement-strategy": "linear",
    "generation-config": "auto",
    "kv-cache-dtype": "auto",
    "kv-cache-metrics": False,
    "language-model-only": False,
    "load-format": "auto",
    "long-prefill-token-threshold": 0,
    "mamba-cache-dtype": "auto",
    "mamba-cache-mode": "none",
    "mamba-ssm-cache-dtype": "auto",
    "max-logprobs": 20,
    "model-impl": "auto",
    "moe-backend": "auto",
    "numa-bind": False,
    "pipeline-parallel-size": 1,
    "prefix-caching-hash-algo": "sha256",
    "seed": 0,
    "stream-interval": 1,
    "tensor-parallel-size": 1,
    "tokenizer-mode": "auto",
    "trust-remote-code": False,
}
"""Flags whose default is a plain value in every version with facts (vllm 0.31, config/*.py)."""

SINCE: dict[str, tuple[Any, tuple[int, int]]] = {
    "async-scheduling": (True, (0, 14)),
    "disable-hybrid-kv-cache-manager": (False, (0, 32)),
    "gpu-memory-utilization": (0.92, (0, 26)),
}
"""Flags whose default holds from a version on: unset is decided by vLLM itself, or it had another value before."""


def effective(words: Sequence[str], table: FlagTable) -> dict[str, Any]:
    """What a command line sets, by vLLM's name of each flag; of a flag given twice the last one counts."""
    found: dict[str, Any] = {}
    for group in _groups(words):
        head, equals, tail = group[0].partition("=")
        values = [tail, *group[1:]] if equals else group[1:]
        name, dot, path = head.removeprefix("--").partition(".")
        written = name.replace("_", "-")
        known = lookup(written, table)
        full = known.name if known else flag_name(written)
        if dot:
            nested = _nested(path.split("."), _json(values[0]) if values else True)
            old = found.get(full)
            found[full] = deep_merge(old, nested) if isinstance(old, dict) else nested
        elif not values:
            found[full] = not (written.startswith("no-") and full == written.removeprefix("no-"))
        else:
            found[full] = _value(values, known.type if known else "str")
    return found


def rests(found: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON flags say beside the keys that have rows of their own."""
    parts: dict[str, Any] = {}
    for name, apart in APART.items():
        value = found.get(name)
        rest = {key: part for key, part in value.items() if key not in apart} if isinstance(value, dict) else {}
        if name == "speculative-config" and str(rest.get("method", "")).endswith("mtp"):
            del rest["method"]  # what the number of tokens is called in the row of its own
        if rest:
            parts[f"{name} (rest)"] = rest
    return parts


def default_of(name: str, version: str) -> Any:
    """What a flag comes to when it is left out; None where vLLM derives it."""
    value, since = SINCE.get(name, (None, (0, 0)))
    match = re.match(r"v?(\d+)\.(\d+)", version)
    if name in SINCE:
        return value if match and (int(match[1]), int(match[2])) >= since else None
    return DEFAULTS.get(name)


def _groups(words: Sequence[str]) -> list[list[str]]:
    groups: list[list[str]] = []
    for word in words:
        if word.startswith("--"):
            groups.append([word])
        elif groups:
            groups[-1].append(word)
    return groups


def _nested(path: list[str], value: Any) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    return dict(value)


def _value(values: list[str], kind: str) -> Any:
    if kind == "list" or len(values) > 1:
        return [_number(one) for one in values]
    if kind == "json":
        return _json(values[0])
    return _number(values[0]) if kind in ("int", "float") else values[0]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


_INT, _FLOAT = re.compile(r"[-+]?\d+"), re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def _number(text: str) -> Any:
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text

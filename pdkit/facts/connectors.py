"""Facts of KV connectors: which hand KV from prefill to decode, which keep the hybrid KV cache manager, since when.

Read in the sources of vLLM 0.16 to 0.32 (`SupportsHMA` in distributed/kv_transfer/kv_connector/v1). Which names a
version has at all is in `facts/vllm/*.json`, and which Dynamo pairs in `facts/dynamo/*.json`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """One connector class."""

    hands_over: bool = True
    """Whether it moves KV from one engine to another; others keep it beside one engine, or only pretend."""
    hybrid_since: str | None = None
    """The vLLM from which it leaves the hybrid KV cache manager on; None: never so far."""


CONNECTORS: dict[str, Connector] = {
    "NixlConnector": Connector(hybrid_since="0.18"),
    "NixlPullConnector": Connector(hybrid_since="0.24"),
    "NixlPushConnector": Connector(hybrid_since="0.24"),
    "NeuronNixlConnector": Connector(),
    "MooncakeConnector": Connector(hybrid_since="0.20"),
    "MooncakeStoreConnector": Connector(hybrid_since="0.22"),
    "MoRIIOConnector": Connector(hybrid_since="0.30"),
    "LMCacheMPConnector": Connector(),
    "LMCacheConnectorV1": Connector(),
    "P2pNcclConnector": Connector(),
    "FlexKVConnectorV1": Connector(),
    "HF3FSKVConnector": Connector(),
    "OffloadingConnector": Connector(hands_over=False, hybrid_since="0.21"),
    "SimpleCPUOffloadConnector": Connector(hands_over=False, hybrid_since="0.19"),
    "DecodeBenchConnector": Connector(hands_over=False, hybrid_since="0.21"),
    "ExampleConnector": Connector(hands_over=False),
    "ExampleHiddenStatesConnector": Connector(hands_over=False, hybrid_since="0.22"),
}
WRAPPERS: dict[str, str] = {"MultiConnector": "0.21", "PdConnector": "0.21"}
"""Connectors made of others, with the vLLM from which they leave the hybrid KV cache manager on (PdConnector is
Dynamo's, on top of vLLM's MultiConnector)."""
NIXL = ("NixlConnector", "NixlPullConnector", "NixlPushConnector", "NeuronNixlConnector")
GDN_OVER_NIXL = "0.22"
"""The vLLM from which NIXL carries the state of GDN layers (vllm#41869; sources of 0.21.0 and 0.22.1)."""


def parts(name: str, extra: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(class, extra configuration) of a connector, or of each one inside a wrapper."""
    inner = extra.get("connectors")
    if name not in WRAPPERS or not isinstance(inner, list):
        yield name, extra
        return
    for entry in inner:
        if isinstance(entry, dict):
            below = entry.get("kv_connector_extra_config")
            yield from parts(str(entry.get("kv_connector")), below if isinstance(below, dict) else {})

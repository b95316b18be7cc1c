"""The environment variables that an engine needs on a laptop, and only there."""

from __future__ import annotations

from pathlib import Path

SITE = Path(__file__).parent / "site"
"""The folder whose sitecustomize.py holds the workarounds; the first entry of a laptop engine's PYTHONPATH."""

NIXL_PROGRESS_DELAY_US = 1000
"""Long enough that an idle engine takes 1 % of a core, short beside the milliseconds of one transfer."""

WAIT_US = 500
"""Short beside one step of a tiny model (10 ms), long enough that waiting costs next to nothing."""

LEASE_SECONDS = 120
"""How long a registration in etcd outlives its last heart-beat."""

LOOPBACK = "127.0.0.1"


def laptop_environment(omp_threads: int = 1) -> dict[str, str]:
    """What to add to the environment of each engine and frontend of the local launcher; never on a GPU node.

    One OpenMP thread per engine suits two engines on two cores: more threads spin against each other.
    """
    return {
        "PYTHONPATH": str(SITE),
        # the workarounds of site/sitecustomize.py, each explained there
        "PDKIT_LAPTOP_TORCHVISION_SCHEMAS": "1",
        "PDKIT_LAPTOP_NIXL_PROGRESS_DELAY_US": str(NIXL_PROGRESS_DELAY_US),
        "PDKIT_LAPTOP_NO_KV_CORE_PINNING": "1",
        "PDKIT_LAPTOP_WAIT_US": str(WAIT_US),
        # a busy laptop may hold a process up for longer than the 10 s after which Dynamo gives its registration away
        "ETCD_LEASE_TTL": str(LEASE_SECONDS),
        # vLLM would bind each engine's threads to the same first cores
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(omp_threads),
        # vLLM sets this itself, but Dynamo imports NIXL first, and then it is too late
        "UCX_RCACHE_MAX_UNRELEASED": "1024",
        # everything that is served lies on this disk; nothing is asked of, or told to, another host
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # listeners stay on the loopback: NIXL's handshake and transfers, torch's rendezvous, Dynamo's planes
        "UCX_NET_DEVICES": "lo",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": LOOPBACK,
        "VLLM_HOST_IP": LOOPBACK,
        "DYN_TCP_RPC_HOST": LOOPBACK,
        "DYN_TCP_RESPONSE_STREAM_HOST": LOOPBACK,
        "DYN_EVENT_PLANE_HOST": LOOPBACK,
        "DYN_SYSTEM_HOST": LOOPBACK,
    }


def node_environment(interface: str = "eth0") -> dict[str, str]:
    """The same for a node of a rack without GPUs: engines listen on the address that their step names."""
    own = {name for name, value in laptop_environment().items() if value == LOOPBACK} | {"UCX_NET_DEVICES"}
    return {
        **{name: value for name, value in laptop_environment().items() if name not in own},
        # virtual nodes share one kernel: UCX would take shared memory, and the KV would never cross the network
        "UCX_TLS": "tcp,self",
        "GLOO_SOCKET_IFNAME": interface,
    }


def local_dynamo_environment(etcd: str) -> dict[str, str]:
    """Dynamo without NATS: its processes find each other in the etcd at the address `etcd`, one per deployment."""
    return {
        "ETCD_ENDPOINTS": etcd,
        "DYN_REQUEST_PLANE": "tcp",
        "DYN_EVENT_PLANE": "zmq",
        # a stopped worker leaves the discovery at once and waits this long for requests under way (5 s by default)
        "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "1",
    }

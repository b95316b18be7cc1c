"""The rule about how long prefill keeps the KV of a prompt that decode has not fetched yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pdkit.plan.role import RolePlan
from pdkit.rules.given import given_env
from pdkit.rules.pairing_connector import handing_over, over_nixl
from pdkit.rules.rule import Case, Hit, rule
from pdkit.rules.versions import version

FASTEST_TOKEN_S = 0.005
"""No engine here gives a user more than 200 tokens per second; a wait computed with it is a lower bound."""
LEASE_SINCE = "0.22"
DEFAULT_LEASE_S = 30.0
DEFAULT_TIMEOUT_S = 480.0
TIMEOUT = "VLLM_NIXL_ABORT_REQUEST_TIMEOUT"


@rule(
    "PD035",
    "Prefill keeps its blocks for as long as decode may queue",
    "Prefill frees a prompt's blocks when their lease is over; decode then reads what another request has written "
    "there, with HTTP 200: 8 of 42 answers (aws-do-eks#84). Before vLLM 0.22 it was one time-out of 480 s "
    "(vllm#41383). From 0.22 on the lease is 30 s, which decode renews while a request waits in its "
    "queue; that can fail, as there.",
)
def lease_outlasts_the_queue(case: Case) -> Iterator[Hit]:
    """The lease against the shortest time that the last request of a full load waits for a seat on decode."""
    if case.pair is None or not over_nixl(case.pair[0]):
        return
    prefill, decode = case.pair
    load = case.plan.recipe.workload
    seats = decode.sizing.max_num_seqs.value * decode.ranks * decode.endpoints
    wait_s = (-(-max(load.concurrency) // seats) - 1) * load.osl * FASTEST_TOKEN_S
    lease_s, what = _lease(case, prefill)
    renewed = version(case.plan.recipe.engine.vllm).has(LEASE_SINCE)
    if wait_s > lease_s:
        yield Hit(
            message=f"with {seats} seats on decode a request waits at least {wait_s:.0f} s, prefill keeps its blocks "
            f"for {lease_s:g} s ({what})" + (", unless decode renews that in time" if renewed else ""),
            path=case.where("prefill", "kv_transfer", "extra"),
            fix="give decode more seats, or prefill a longer lease",
            severity="warning" if renewed else "error",
        )


def _lease(case: Case, prefill: RolePlan) -> tuple[float, str]:
    """(seconds, where they come from) of the version; of a build between two regimes the shorter one."""
    has = version(case.plan.recipe.engine.vllm).has(LEASE_SINCE)
    extras = [extra for _, extra in handing_over(prefill.kv_transfer)] if prefill.kv_transfer else []
    given = next((extra["kv_lease_duration"] for extra in extras if "kv_lease_duration" in extra), None)
    timeout = given_env(prefill).get(TIMEOUT)
    lease, older = (DEFAULT_LEASE_S, "vLLM's default lease"), (DEFAULT_TIMEOUT_S, "vLLM's default time-out")
    if given is not None:
        lease = (_seconds(given), "kv_lease_duration")
    if timeout is not None:
        older = (_seconds(timeout), TIMEOUT)
    if has is None:
        return min(lease, older)
    return lease if has else older


def _seconds(value: Any) -> float:
    """A number of seconds; one that is none counts as 0, which vLLM refuses anyway."""
    text = str(value)
    return float(text) if text.replace(".", "", 1).isdigit() else 0.0

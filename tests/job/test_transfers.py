"""What counters must say between two looks. Whole runs with engines that lie are in tests/launch."""

from __future__ import annotations

import pytest

from pdkit.job.codes import BY_CODE, OF_CHECK
from pdkit.job.transfers import Counters, acceptance_fault, since, together, transfer_fault

FAST = Counters(received=100.0, kv_bytes=8e9, kv_seconds=2.0)


@pytest.mark.parametrize(
    ("before", "now", "code", "words"),
    [
        (Counters(), Counters(), "", ""),
        (Counters(received=50.0), Counters(computed=9.0, received=150.0), "", ""),
        (Counters(computed=257.0), Counters(computed=257.0, received=100.0), "", ""),
        (Counters(), Counters(computed=20.0, received=80.0), "PD207", "decode computed 20 of 100 prompt tokens itself"),
        (Counters(received=9.0), Counters(received=99.0, failed=2.0), "PD206", "2 KV transfers failed"),
        (Counters(), FAST, "", ""),
        (FAST, Counters(received=200.0, kv_bytes=9e9, kv_seconds=12.0), "PD208", "decode0 received KV at 100.0 MB/s"),
    ],
)
def test_prompts_must_go_on_arriving_by_transfer(before: Counters, now: Counters, code: str, words: str) -> None:
    fault = transfer_fault(since({"decode0": now}, {"decode0": before}), 4000.0)
    assert (fault.code if fault else "") == code
    assert fault is None or fault.words.startswith(words)


def test_the_slowest_rank_counts() -> None:
    slow = Counters(received=100.0, kv_bytes=3e6, kv_seconds=2.0)
    fault = transfer_fault({"decode0": FAST, "decode1": slow, "decode2": Counters()}, 4000.0)
    assert fault is not None
    assert fault.words == "decode1 received KV at 1.5 MB/s, at least 4000 are asked for"
    assert transfer_fault({"decode0": FAST, "decode1": slow}, 0.0) is None


@pytest.mark.parametrize(
    ("counted", "least", "mtp", "words"),
    [
        (Counters(received=9.0, drafted=100.0, accepted=20.0), 0.2, 3, ""),
        (Counters(received=9.0, drafted=100.0, accepted=19.0), 0.2, 3, "19.0% of 100 drafted tokens were accepted"),
        (Counters(received=9.0, drafted=100.0, accepted=19.0), 0.0, 3, ""),
        (Counters(received=9.0), 0.2, 3, "MTP 3 is on, and no engine has drafted a token"),
        (Counters(received=9.0), 0.2, 0, ""),
        (Counters(), 0.2, 3, ""),
    ],
)
def test_drafts_must_be_right(counted: Counters, least: float, mtp: int, words: str) -> None:
    fault = acceptance_fault({"decode0": counted}, least, mtp)
    assert (fault.words if fault else "").startswith(words)
    assert bool(fault) == bool(words)


def test_ranks_add_up() -> None:
    assert together([FAST, FAST]) == Counters(received=200.0, kv_bytes=16e9, kv_seconds=4.0)
    assert together([]) == Counters()


def test_every_check_of_readiness_has_a_code_that_is_explained() -> None:
    assert set(OF_CHECK.values()) <= BY_CODE.keys()
    assert all(gate.title and gate.why.endswith(".") and gate.fix and gate.stage for gate in BY_CODE.values())

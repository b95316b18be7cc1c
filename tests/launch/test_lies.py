"""Engines that lie: each lie ends `pdkit run` at the right stage with the right words, and nothing is measured before.

All runs of this file are real processes, three at a time; a test waits for its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from pdkit.job.codes import BY_CODE

from ..fakes.launches import Launch, launch

WIDTH = 3


@dataclass(frozen=True)
class Case:
    """A lie or a misfit, the exit code that it must give, and words that the person must read."""

    code: int
    words: tuple[str, ...]
    lies: str = ""
    sets: tuple[str, ...] = ()
    load: str = ""
    force: bool = False


PAIR_OF_RANKS = ("decode.topology=TP1DP2",)
CASES = {
    # not ready
    "reports another block size": Case(
        5,
        ("decode0: block size: expected 128, seen 256", "fix: prefill and decode must use one", "| INFO decode0 ready"),
        "decode0:block-size=256",
    ),
    "has fewer KV blocks": Case(
        5, ("decode0: KV blocks per rank: expected at least 506, seen 300", "INFO loading"), "decode0:kv-blocks=300"
    ),
    "has fewer KV blocks on each of two ranks": Case(
        5,
        ("prefill0: KV blocks per rank: expected at least 506, seen 256",),
        "prefill0:kv-blocks=256",
        ("prefill.topology=TP1DP2",),
    ),
    "has fewer ranks": Case(5, ("decode0: ranks: expected 2, seen 1",), "decode0:ranks=1", PAIR_OF_RANKS),
    "is never ready": Case(
        5,
        ("prefill0: registered: expected all engines within 2 s, seen missing prefill0", "| INFO loading"),
        "prefill0:unready",
        ("infra.ready_timeout_seconds=2",),
        force=True,  # PD059 says before that this is too short
    ),
    "has no router": Case(
        5,
        ("frontend0: registered: expected all engines within 2 s, seen missing frontend0", "logs/frontend0.log"),
        "frontend0:unready",
        ("infra.ready_timeout_seconds=2",),
        force=True,  # PD059 says before that this is too short
    ),
    "has no metrics": Case(5, ("prefill0: metrics: expected a page of metrics, seen 500",), "prefill0:no-metrics"),
    "refuses requests": Case(
        5, ("decode0: first request: expected HTTP 200, seen HTTP 500 ", "EngineCore"), "decode0:http-500"
    ),
    "recomputes silently": Case(
        5,
        ("decode0: prompt tokens by KV transfer: expected more than 0, seen 0 (decode0)", "fix: decode recomputes"),
        "decode0:recompute",
    ),
    "recomputes only after it was found ready": Case(
        4, ("decode computed ", " prompt tokens itself, their KV never came"), "gate/decode0:recompute"
    ),
    "fails transfers only after it was found ready": Case(
        4, (" KV transfers failed since the last look",), "gate/decode0:failed-transfers"
    ),
    "receives KV too slowly after it was found ready": Case(
        4,
        ("PD208 decode0 received KV at 12.5 MB/s, at least 500 are asked for since the last look", "UCX_TLS"),
        "gate/decode0:kv-mb-s=12.5",
        ("gate.min_kv_mb_s=500.0",),
    ),
    "guesses wrong": Case(
        4,
        ("PD209 5.0% of ", " drafted tokens were accepted, at least 20% are asked for"),
        "gate/decode0:acceptance=0.05",
        ("common.mtp=2",),
        force=True,
    ),
    "keeps KV after the gate": Case(
        4, ("PD210 KV is still taken 15 s after the last answer: decode0 5.0%",), "gate/decode0:keeps-kv=0.05"
    ),
    "counts failed transfers": Case(
        5, ("decode0: failed transfers: expected 0, seen 1 (decode0)",), "decode0:failed-transfers"
    ),
    "recomputes on one of two endpoints": Case(
        5,
        ("decode1: prompt tokens by KV transfer: expected more than 0, seen 0 (decode1)",),
        "decode1:recompute",
        ("decode.endpoints=2",),
    ),
    "leaves one prefill endpoint without work": Case(
        5,
        (": prompt tokens computed: expected more than 0, seen 0 (prefill", "the router sends it no prompts"),
        "frontend0:only-first",
        ("prefill.endpoints=2",),
    ),
    "damages first blocks only": Case(
        5, ("decode0: P/D text: expected equal to decode's own text, seen P/D '",), "decode0:first-blocks"
    ),
    "says a fatal line while it starts": Case(
        5,
        ("prefill0: log: expected no fatal line, seen prefill0.log: an engine core died", "x EngineDeadError y"),
        "prefill0:log=x EngineDeadError y;decode0:unready",
    ),
    # not ready for what the recipe says, forced past the checks
    "block 256 beside 128": Case(
        5,
        ("one block size on all roles: expected equal sizes, seen prefill 128, decode 256",),
        sets=("prefill.block_size=128", "decode.block_size=256"),
        force=True,
    ),
    "no connector on decode": Case(
        5,
        ("decode0: prompt tokens by KV transfer: expected more than 0, seen 0", "no KVConnector found"),
        sets=("decode.kv_transfer=none",),
        force=True,
    ),
    "another dtype on decode": Case(
        5,
        ("decode0: first request: expected HTTP 200, seen HTTP 500", "NIXL compatibility hash mismatch"),
        sets=("decode.dtype=float32",),
        force=True,
    ),
    "another model path on decode": Case(
        5,
        ("decode0: first request: expected HTTP 200, seen HTTP 500", "NIXL compatibility hash mismatch"),
        sets=('decode.model_path="{pdkit}/laptop/models/hybrid"',),
        force=True,
    ),
    # an engine failed
    "dies at start": Case(
        4,
        (
            "decode0 ended with exit code 1",
            "last lines of logs/decode0.log:",
            "| DEBUG line 29 of decode0",
            "| RuntimeError: Engine core initialization failed",
        ),
        "decode0:exit-at-start",
    ),
    "dies in the gate": Case(
        4,
        ("decode0 was killed by SIGKILL", "| DEBUG last words 10", "| DEBUG last words 29"),
        "gate/decode0:die;gate/prefill0:slow=0.5",
    ),
    "says a fatal line in the gate": Case(
        4,
        ("the log of decode0 says that the run is void: decode0.log: decode may have read freed KV blocks",),
        "gate/decode0:log=Potentially invalid KV blocks;gate/prefill0:slow=0.3",
    ),
    "says a fatal line in the sweep": Case(
        4,
        ("the log of prefill0 says that the run is void: prefill0.log: prefill gave up KV blocks",),
        "sweep/prefill0:log=Releasing expired KV blocks",
        load="hangs",
    ),
    "loses its only registration": Case(
        4,
        ("model tiny, registration of decode0 no longer there while the gate ran: ",),
        "gate/decode0:unregister;gate/prefill0:slow=0.3",
    ),
    "loses one of two registrations": Case(
        4,
        ("the router has lost the registration of 1 of 2 decode engines", "infra.discovery: etcd"),
        "gate/decode1:unregister;gate/prefill0:slow=0.3",
        ("decode.endpoints=2",),
    ),
    # the gate failed
    "answers garbage": Case(6, ("accuracy 0.00% (12 answers, flexible) is below the floor",), "gate/decode0:garbage"),
    "is wrong when crowded": Case(
        6,
        ("is below the floor 95.00%",),
        "decode0:crowded=8;gate/decode0:slow=0.3",
        ("gate.concurrency=12",),
    ),
    "answers nothing": Case(6, ("12 of 12 answers are empty",), "gate/decode0:empty"),
    "cuts answers": Case(6, ("12 of 12 answers are cut by the token limit",), "gate/decode0:truncated"),
    "hides errors in HTTP 200": Case(
        6,
        ("requests failed, the first with: HTTP 200 with an error in its body: the engine is gone",),
        "gate/frontend0:error-body",
    ),
    "fails requests in the gate": Case(6, ("requests failed, the first with: HTTP 500",), "gate/decode0:http-500"),
    # a measurement is invalid
    "generates no tokens": Case(7, ("Concurrency 1: not a single token was generated",), load="zero-tokens"),
    "breaks the load tool": Case(7, ("the load tool ended with exit code 3: RuntimeError",), load="exit-3"),
    # what was found cannot be kept
    "evidence cannot be written": Case(
        2, ("logs/exact.log: cannot write: Is a directory",), "decode0:blocks=logs/exact.log"
    ),
}


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, engines: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[tuple[Launch, int]]]]:
    """The runs of all selected cases."""
    wanted = [item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")]
    folder = tmp_path_factory.mktemp("lies")

    def run(number: int, case: Case) -> tuple[Launch, int]:
        one = launch(
            engines,
            folder / str(number),
            *case.sets,
            lies=case.lies,
            load=case.load,
            arguments=("--force",) if case.force else (),
        )
        return one, one.end()

    with ThreadPoolExecutor(WIDTH) as pool:
        yield {name: pool.submit(run, n, case) for n, (name, case) in enumerate(CASES.items()) if name in wanted}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", CASES)
def test_a_lie_ends_the_run_with_the_right_code_and_words(
    outcomes: dict[str, Future[tuple[Launch, int]]], name: str
) -> None:
    case = CASES[name]
    run, code = outcomes[name].result()
    assert code == case.code, run.text
    assert [word for word in case.words if word not in run.text] == [], run.text
    assert "Traceback" not in run.text
    assert (run.folder / "report.html").stat().st_size > 1000
    assert run.left_running() == []
    result = run.json("result.json")
    assert result["exit_code"] == code
    assert result["message"].splitlines()[0] in run.text
    assert run.events("failed")[-1]["exit_code"] == code
    stages = [event["stage"] for event in run.events("stage")]
    assert (run.folder / "ready.json").exists() == (code == 5 or "gate" in stages)
    assert (run.folder / "gate.jsonl").exists() == ("gate" in stages)
    points = run.points()
    assert [point["valid"] for point in points] == ([False] if code == 7 else [])
    if code != 2 and "code" in result:  # the driver's own; a process that died is told by who started it
        assert result["code"] in BY_CODE
        assert result["code"] in result["message"].splitlines()[0]
    if code == 5:
        proof = run.json("ready.json")
        assert proof["ready"] is False
        assert proof["checks"][-1]["code"] == result["code"]
        assert [check["name"] for check in proof["checks"] if not check["ok"]] == [proof["checks"][-1]["name"]]
    if name == "dies at start":
        assert sum(line.startswith("  | ") for line in result["message"].splitlines()) == 20
        assert "DEBUG line 10 " not in run.text


def test_what_an_engine_does_not_report_is_not_judged_and_said_so(engines: Path, tmp_path: Path) -> None:
    run = launch(engines, tmp_path, lies="decode0:no-kv-usage;gate/decode0:keeps-kv=0.05")
    assert run.end() == 0, run.text
    told = [(event["code"], event["why"]) for event in run.events("undecided")]
    assert told == [("PD210", "no KV usage from decode0")] * 2
    [counted] = run.events("counted")
    assert counted["recomputed"] == 0
    assert counted["kv_mb_s"]["decode0"] == pytest.approx(1000)


def test_a_load_tool_that_is_not_there_is_told_before_any_engine_is_waited_for(engines: Path, tmp_path: Path) -> None:
    run = launch(engines, tmp_path, "sweep.tool=aiperf", lies="decode0:unready")
    assert run.end() == 2, run.text
    assert "the load tool `aiperf` is not installed here" in run.text
    assert [event["stage"] for event in run.events("stage")] == []
    assert run.left_running() == []

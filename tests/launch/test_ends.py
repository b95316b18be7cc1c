"""However a run ends, it ends soon, with the right code, its evidence kept and nothing left running.

The runs are real processes, three at a time; a test waits for its own.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..fakes.launches import Launch, launch

WIDTH = 3
LONGEST_SECONDS = 15.0
HELD = {  # what keeps a run in a stage until something happens to it
    "ready": {"lies": "decode0:unready"},
    "gate": {"lies": "gate/decode0:slow=30"},
    "sweep": {"load": "hangs"},
}


@dataclass(frozen=True)
class End:
    """Who gets which signals in which stage, and the code that the run must end with."""

    victim: str
    stage: str
    code: int
    signals: tuple[signal.Signals, ...] = (signal.SIGKILL,)
    lies: str = ""
    """Told beside what holds the run in the stage."""


KILLS = {
    f"{victim} killed in {stage}": End(victim, stage, -signal.SIGKILL if victim == "launcher" else 4)
    for victim in ("prefill0", "decode0", "frontend0", "driver", "launcher")
    for stage in HELD
}
TERM_TWICE = (signal.SIGTERM, signal.SIGTERM)
ENDS = KILLS | {
    "Ctrl-C in ready": End("launcher", "ready", 8, (signal.SIGINT,)),
    "TERM twice in gate": End("launcher", "gate", 8, TERM_TWICE),
    "Ctrl-C twice in sweep": End("launcher", "sweep", 8, (signal.SIGINT, signal.SIGINT)),
    "HUP in ready": End("launcher", "ready", 8, (signal.SIGHUP,)),
    "TERM twice to the driver": End("driver", "gate", 8, TERM_TWICE),
    "Ctrl-C with engines that ignore TERM": End(
        "launcher", "gate", 8, (signal.SIGINT,), "decode:stubborn;prefill:stubborn"
    ),
    "launcher killed over engines that ignore TERM": End(
        "launcher", "gate", -signal.SIGKILL, lies="decode:stubborn;prefill:stubborn"
    ),
    "engine killed whose core hides": End("decode0", "gate", 4, lies="decode0:detached-core"),
}


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    run: Launch
    code: int
    seconds: float
    left: list[str]


def play(engines: Path, output: Path, end: End) -> Outcome:
    held = HELD[end.stage]
    lies = ";".join(filter(None, (held.get("lies", ""), end.lies)))
    run = launch(engines, output, lies=lies, load=held.get("load", ""))
    run.wait_for(end.stage)
    victim = run.process.pid if end.victim == "launcher" else run.pid(end.victim)
    start = time.monotonic()
    for number in end.signals:
        os.kill(victim, number)
        time.sleep(0.05)
    code = run.end()
    while code < 0 and run.left_running() and time.monotonic() - start < LONGEST_SECONDS:
        time.sleep(0.2)  # without a launcher the rest takes its own time
    return Outcome(run, code, time.monotonic() - start, run.left_running())


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, engines: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Outcome]]]:
    """The runs of all selected cases."""
    wanted = [item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")]
    folder = tmp_path_factory.mktemp("ends")
    with ThreadPoolExecutor(WIDTH) as pool:
        yield {
            name: pool.submit(play, engines, folder / str(n), ENDS[name])
            for n, name in enumerate(ENDS)
            if name in wanted
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", ENDS)
def test_a_run_ends_soon_and_leaves_nothing(outcomes: dict[str, Future[Outcome]], name: str) -> None:
    end, outcome = ENDS[name], outcomes[name].result()
    run = outcome.run
    assert outcome.code == end.code, run.text
    assert outcome.left == []
    assert outcome.seconds < LONGEST_SECONDS
    assert "Traceback" not in run.text
    result = run.json("result.json")
    assert result["exit_code"] == (8 if end.code < 0 else end.code)
    assert run.points() == []
    assert (run.folder / "gate.jsonl").exists() == (end.stage != "ready")
    assert (run.folder / "ready.json").exists() == (end.stage != "ready")
    assert (run.folder / "report.html").exists() == (end.code > 0)
    if end.code == 4:
        assert f"{end.victim} was killed by SIGKILL" in run.text
        assert f"last lines of logs/{end.victim}.log:" in run.text
    if end.code == 8:
        assert f"stopped by {end.signals[0].name}; what was finished is kept" in run.text

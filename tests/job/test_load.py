"""The sweep against a fake load tool, a real program that can do everything wrong that a load tool can."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pdkit.errors import EngineError, MeasurementError
from pdkit.job.load import LoadSettings, Progress, sweep
from pdkit.job.load_judge import SATURATED_CORE_SHARE
from pdkit.job.load_tools import tool_argv, tool_environment, warmup_argv
from pdkit.job.verdict import _SEAL, Passed
from pdkit.results.points import Point, read_points

TOOL = (sys.executable, str(Path(__file__).with_name("fake_load_tool.py")))
ENGINES = ("boot-a", "boot-b")


def passed(lock: str = "sha256:lock") -> Passed:
    return Passed(lock_digest=lock, boot_ids=ENGINES, gate_digest="sha256:gate", accuracy=1.0, seal=_SEAL)


class Bench:
    """A run folder and a fake load tool."""

    def __init__(self, folder: Path) -> None:
        self.run = folder / "run"
        self.calls = folder / "calls"
        self.states: list[tuple[int, str]] = []

    def settings(self, wrong: str = "", **changes: object) -> LoadSettings:
        base: dict[str, object] = {
            "tool": "vllm-bench",
            "command": TOOL,
            "tool_version": "0.31.0",
            "env": {"FAKE_LOAD": wrong, "FAKE_CALLS": str(self.calls)},
            "url": "http://127.0.0.1:1",
            "endpoint": "completions",
            "model": "tiny",
            "tokenizer": "tiny",
            "concurrency": (2,),
            "isl": 100,
            "osl": 50,
            "gpus": 8,
            "gpus_by_role": {"prefill": 4, "decode": 2},
        }
        return LoadSettings.model_validate(base | changes)

    def sweep(
        self,
        settings: LoadSettings,
        *,
        gate: Passed | None = None,
        boot_ids: Callable[[], tuple[str, ...]] = lambda: ENGINES,
    ) -> list[Point]:
        def note(progress: Progress) -> None:
            self.states.append((progress.concurrency, progress.state))

        return sweep(settings, gate or passed(), self.run, note, boot_ids=boot_ids)

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_point_holds_the_figures_of_the_trace(bench: Bench) -> None:
    (point,) = bench.sweep(bench.settings())
    # 16 requests, 2 in flight, 50 tokens each; this seed gives a gap of 28 ms after a first token at 100 ms
    seconds = 8 * (0.1 + 49 * 0.02 * 1.4) + 7 * 0.001
    assert point.valid
    assert (point.requests, point.completed, point.errors, point.in_flight_peak) == (16, 16, 0, 2)
    assert point.duration_seconds == pytest.approx(seconds)
    assert point.output_tok_s == pytest.approx(16 * 50 / seconds)
    assert point.total_tok_s_gpu == pytest.approx(16 * 150 / seconds / 8)
    assert point.output_tok_s_gpu_by_role == pytest.approx(
        {"prefill": 16 * 50 / seconds / 4, "decode": 16 * 50 / seconds / 2}
    )
    assert point.tok_s_user_p90 == pytest.approx(1000 / 28)
    assert (point.gate_digest, point.lock_digest, point.boot_ids) == ("sha256:gate", "sha256:lock", ENGINES)
    assert read_points(bench.run) == (point,)


def test_a_wave_of_warm_ups_precedes_each_point_and_no_seed_comes_twice(bench: Bench) -> None:
    bench.sweep(bench.settings(concurrency=(2, 4), repeats=2))
    calls = [line.split() for line in bench.called()]
    assert [call[:3] for call in calls] == [["2", "16", "2"]] * 2 + [["4", "32", "4"]] * 2
    assert len({call[3] for call in calls}) == 4


def test_where_prefixes_are_cached_other_prompts_warm_up(bench: Bench) -> None:
    bench.sweep(bench.settings(prefix_caching=True))
    (warmup, measured) = (line.split() for line in bench.called())
    assert warmup[:3] == ["2", "2", "0"]
    assert measured[:3] == ["2", "16", "0"]
    assert warmup[3] != measured[3]


def test_the_median_repeat_is_the_point_and_all_are_in_the_spread(bench: Bench) -> None:
    (point,) = bench.sweep(bench.settings(repeats=3))
    outputs = point.spread.output_tok_s
    assert len(outputs) == 3
    assert outputs[0] > outputs[1] > outputs[2]
    assert point.output_tok_s == outputs[1]
    assert point.spread.output_tok_s_relative == pytest.approx((outputs[0] - outputs[2]) / outputs[1])


def test_resuming_measures_only_what_is_missing(bench: Bench) -> None:
    bench.sweep(bench.settings(concurrency=(2, 4)))
    (bench.run / "points" / "c0004.json").unlink()
    before = bench.called()
    bench.states.clear()
    bench.sweep(bench.settings(concurrency=(2, 4)))
    assert len(bench.called()) == len(before) + 1
    assert bench.called()[-1].startswith("4 ")
    assert bench.states[0] == (2, "kept")


def test_a_point_of_another_lock_is_measured_again(bench: Bench) -> None:
    bench.sweep(bench.settings())
    (point,) = bench.sweep(bench.settings(), gate=passed("sha256:other"))
    assert point.lock_digest == "sha256:other"
    assert len(bench.called()) == 2


def test_an_invalid_point_is_measured_again(bench: Bench) -> None:
    with pytest.raises(MeasurementError):
        bench.sweep(bench.settings("one-error"))
    (point,) = bench.sweep(bench.settings())
    assert point.valid


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("zero-tokens", "not a single token was generated"),
        ("one-error", "1 of 16 requests failed (the first: ServerDisconnectedError: gone)"),
        ("one-empty", "1 of 16 requests were answered without a token"),
        ("one-cut", "1 of 16 answers ended early, the shortest after 3 of 50 tokens"),
        ("long-answers", "answers had 100.0 tokens on average, 50 were asked for"),
        ("long-prompts", "prompts had 200.0 tokens on average, 100 were asked for"),
        ("one-at-a-time", "the client never had more than 1 of 2 requests in flight"),
        ("own-figure", "its own trace gives"),
        ("exit-3", "the load tool ended with exit code 3: RuntimeError: no such model"),
        ("no-artifact", "the load tool left no such file"),
        ("half-a-file", "Invalid JSON"),
    ],
)
def test_an_invalid_point_is_kept_and_marked(bench: Bench, wrong: str, words: str) -> None:
    with pytest.raises(MeasurementError) as caught:
        bench.sweep(bench.settings(wrong))
    assert caught.value.exit_code == 7
    assert words in caught.value.message
    assert str(caught.value.at).endswith("points/c0002.json")
    (point,) = read_points(bench.run)
    assert not point.valid
    assert any(words in reason for reason in point.invalid_reasons)


def test_the_other_points_are_measured_beside_an_invalid_one(bench: Bench) -> None:
    with pytest.raises(MeasurementError, match="2 of 2 points invalid"):
        bench.sweep(bench.settings("one-cut", concurrency=(2, 4)))
    assert [point.concurrency for point in read_points(bench.run)] == [2, 4]


def test_a_client_that_fills_a_core_makes_the_point_invalid(bench: Bench) -> None:
    with contextlib.suppress(MeasurementError):
        bench.sweep(bench.settings("busy-client", prompts_per_concurrency=2))
    (point,) = read_points(bench.run)
    # The client computes all the time; how much of a core it gets depends on what else runs on this machine.
    assert point.client_core_share is not None
    assert point.client_core_share > 0.2
    saturated = point.client_core_share > SATURATED_CORE_SHARE
    assert any("so the client was the limit" in reason for reason in point.invalid_reasons) == saturated
    assert point.valid != saturated


def test_a_restarted_engine_ends_the_sweep(bench: Bench) -> None:
    answers = iter([ENGINES, ("boot-a", "boot-c")])
    with pytest.raises(MeasurementError, match="the sweep stopped, 1 more not measured"):
        bench.sweep(bench.settings(concurrency=(2, 4)), boot_ids=lambda: next(answers))
    (point,) = read_points(bench.run)
    assert point.invalid_reasons == ("an engine restarted while this was measured, so the gate no longer holds",)


def test_nothing_is_measured_on_engines_that_did_not_pass(bench: Bench) -> None:
    with pytest.raises(MeasurementError, match="not the processes that passed the gate"):
        bench.sweep(bench.settings(), boot_ids=lambda: ("boot-a", "boot-c"))
    assert bench.called() == []
    assert read_points(bench.run) == ()


def test_a_tool_that_hangs_is_ended(bench: Bench) -> None:
    with pytest.raises(MeasurementError, match="had not ended after 1 s"):
        bench.sweep(bench.settings("hangs", timeout_seconds=1))
    assert not any(_alive(pid) for pid in _pids(bench))


@pytest.mark.parametrize("cause", [EngineError("decode died"), KeyboardInterrupt()])
def test_whatever_progress_raises_ends_the_tool_and_its_children(bench: Bench, cause: BaseException) -> None:
    def stop(progress: Progress) -> None:
        if progress.state == "measuring" and bench.calls.with_name("pids").exists():
            raise cause

    with pytest.raises(type(cause)):
        sweep(bench.settings("hangs"), passed(), bench.run, stop, boot_ids=lambda: ENGINES)
    pids = _pids(bench)
    assert len(pids) == 2
    assert not any(_alive(pid) for pid in pids)


def _pids(bench: Bench) -> list[int]:
    return [int(pid) for pid in bench.calls.with_name("pids").read_text().split()]


def _alive(pid: int) -> bool:
    for _ in range(40):  # init may need a moment to reap the orphan
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        if ") Z " in Path(f"/proc/{pid}/stat").read_text():
            return False
        time.sleep(0.05)
    return True


def test_a_missing_tool_is_told(bench: Bench) -> None:
    with pytest.raises(MeasurementError, match="no-such-tool` is not installed"):
        bench.sweep(bench.settings(command=("no-such-tool",)))


def test_mtp_on_random_tokens_is_marked(bench: Bench) -> None:
    (point,) = bench.sweep(bench.settings(mtp=3))
    assert point.random_tokens_with_mtp
    assert "MTP acceptance could not be read" in point.notes


def test_tokens_that_were_held_back_are_told(bench: Bench) -> None:
    (point,) = bench.sweep(bench.settings())
    assert not any("held tokens back" in note for note in point.notes)
    (point,) = bench.sweep(bench.settings("bunched", concurrency=(3,)))
    assert point.valid
    assert any(note.startswith("49 % of the chunks arrived together") for note in point.notes)


def test_the_chat_template_may_lengthen_prompts(bench: Bench) -> None:
    (point,) = bench.sweep(bench.settings("long-prompts", endpoint="chat", template_tokens=100))
    assert point.isl_measured == 200
    with pytest.raises(MeasurementError, match="100 to 150 with the chat template"):
        bench.sweep(bench.settings("long-prompts", endpoint="chat", template_tokens=50), gate=passed("sha256:2"))


def test_lengths_are_fixed_with_the_flag_that_each_tool_understands(bench: Bench) -> None:
    vllm = tool_argv(bench.settings(command=()), 2, 1, Path("out"))
    assert vllm[:3] == ["vllm", "bench", "serve"]
    assert _option(vllm, "--random-range-ratio") == "0.0"
    assert "--ignore-eos" in vllm
    aiperf = tool_argv(bench.settings(command=(), tool="aiperf"), 2, 1, Path("out"))
    assert aiperf[:2] == ["aiperf", "profile"]
    assert (_option(aiperf, "--isl-stddev"), _option(aiperf, "--osl-stddev")) == ("0", "0")
    assert "--random-range-ratio" not in aiperf
    assert "ignore_eos:true" in aiperf


def test_aiperf_gets_as_many_prompts_as_requests_and_one_wave_of_warm_ups(bench: Bench) -> None:
    settings = bench.settings(command=(), tool="aiperf", prefix_caching=True)
    argv = tool_argv(settings, 4, 1, Path("out"))
    assert _option(argv, "--num-dataset-entries") == "36"
    assert (_option(argv, "--warmup-request-count"), _option(argv, "--warmup-concurrency")) == ("4", "4")
    assert warmup_argv(settings, 4, 1, Path("out")) is None


def test_aiperf_is_not_told_to_stay_offline(bench: Bench) -> None:
    inherited = {"HF_HUB_OFFLINE": "1", "PATH": "x"}
    assert "HF_HUB_OFFLINE" not in tool_environment(bench.settings(tool="aiperf"), inherited)
    assert tool_environment(bench.settings(), inherited)["HF_HUB_OFFLINE"] == "1"


def _option(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]

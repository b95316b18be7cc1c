"""CPU seconds of pdkit's commands: medians of interleaved runs, beside their targets and beside an empty Python.

And how long a job takes to start on the virtual rack (startup.py), where one can be.
Run by `make bench`; `--json` prints the figures for scripts, `--runs N` changes the number of runs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import startup

from pdkit.commands import planned
from pdkit.interop.export import export

ROOT = Path(__file__).resolve().parent.parent
FRONT_DOOR = "recipes/qwen38_tep8.yaml"
MANY = 500
SCHEMAS: tuple[Literal[1, 2], ...] = (1, 2)


@dataclass(frozen=True, slots=True)
class Case:
    """A command, measured as a whole process."""

    name: str
    command: tuple[str, ...]
    target_cpu_s: float | None = None
    most_runs: int = 1000


@dataclass(frozen=True, slots=True)
class Result:
    """What the runs of one case gave."""

    name: str
    runs: int
    cpu_s: float
    """Median of user and system seconds."""
    spread_cpu_s: tuple[float, float]
    """Smallest and largest."""
    of_empty_python: float
    """Median as a multiple of the median of `python -c pass`."""
    target_cpu_s: float | None
    of_target: float | None
    """Median as a share of the target; above 1 it is missed."""


def cases(folder: Path) -> list[Case]:
    """What is measured; `folder` is for files that the commands read and write."""
    pdkit = str(Path(sys.executable).parent / "pdkit")
    many = folder / "many"
    write_variants(many, MANY)
    theirs = folder / "theirs"
    write_srt_variants(theirs, MANY)
    return [
        Case("python -c pass", (sys.executable, "-c", "pass")),
        Case("pdkit --help", (pdkit, "--help")),
        Case("pdkit check", (pdkit, "check", FRONT_DOOR), 0.35),
        Case("pdkit plan", (pdkit, "plan", FRONT_DOOR)),
        Case("pdkit render", (pdkit, "render", FRONT_DOOR, "--output", str(folder / "runs")), 0.35),
        Case(f"pdkit check, {MANY} recipes", (pdkit, "check", str(many)), 5.0, most_runs=3),
        Case(f"pdkit check, {MANY} srt-slurm", (pdkit, "check", str(theirs)), 10.0, most_runs=3),
        Case(
            f"pdkit import, {MANY} srt-slurm",
            (pdkit, "import", str(theirs), "--output", str(folder / "ours"), "--json"),
            10.0,
            most_runs=3,
        ),
    ]


def write_variants(folder: Path, count: int) -> None:
    """`count` different recipe files, taking the Qwen3.8 recipes in turn with another load each."""
    found = sorted(path for path in (ROOT / "recipes/qwen38").rglob("*.yaml") if not path.name.startswith("base"))
    folder.mkdir()
    for number in range(count):
        base = found[number % len(found)]
        template = 64 - number // len(found)  # less than the default, so that every variant is right too
        text = f"extends: {base}\nname: variant-{number}\nworkload:\n  template_tokens: {template}\n"
        (folder / f"variant{number:04d}.yaml").write_text(text)


def write_srt_variants(folder: Path, count: int) -> None:
    """The same recipes as srt-slurm says them, in its two schemas in turn, each with another name and load."""
    found = sorted(path for path in (ROOT / "recipes/qwen38").rglob("*.yaml") if not path.name.startswith("base"))
    plans = [plan for path in found for _, plan, _ in planned(path)]
    texts = [export(plan, schema).text for plan in plans for schema in SCHEMAS]
    folder.mkdir()
    for number in range(count):
        text = re.sub("^name: ", f"name: v{number}-", texts[number % len(texts)], count=1, flags=re.MULTILINE)
        (folder / f"variant{number:04d}.yaml").write_text(text)


def cpu_seconds(command: tuple[str, ...]) -> float:
    """User and system seconds of one process from its start to its end; it must exit 0."""
    pid = os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, usage = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"failed, so not measured: {' '.join(command)}")
    return usage.ru_utime + usage.ru_stime


def measure(wanted: list[Case], runs: int) -> Iterator[Result]:
    """Run all cases in turn, so that a slow moment of the machine meets each of them; the first round only warms up."""
    seconds: dict[str, list[float]] = {case.name: [] for case in wanted}
    for number in range(runs + 1):
        for case in wanted:
            if number <= min(runs, case.most_runs):
                seconds[case.name].append(cpu_seconds(case.command))
    medians = {name: statistics.median(found[1:]) for name, found in seconds.items()}
    empty = medians[wanted[0].name]
    for case in wanted:
        found, median, target = seconds[case.name][1:], medians[case.name], case.target_cpu_s
        yield Result(
            name=case.name,
            runs=len(found),
            cpu_s=round(median, 3),
            spread_cpu_s=(round(min(found), 3), round(max(found), 3)),
            of_empty_python=round(median / empty, 1),
            target_cpu_s=target,
            of_target=round(median / target, 2) if target else None,
        )


def shown(results: list[Result]) -> str:
    """The figures as a table."""
    lines = [f"{'':28}{'CPU s':>8}{'min..max':>16}{'x empty':>9}{'target':>8}{'of it':>8}{'runs':>6}"]
    for one in results:
        span = f"{one.spread_cpu_s[0]:.3f}..{one.spread_cpu_s[1]:.3f}"
        target = f"{one.target_cpu_s:.2f}" if one.target_cpu_s else ""
        share = f"{one.of_target:.0%}" if one.of_target else ""
        lines.append(
            f"{one.name:28}{one.cpu_s:>8.3f}{span:>16}{one.of_empty_python:>8.1f}x{target:>8}{share:>8}{one.runs:>6}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="CPU seconds of pdkit's commands.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--runs", type=int, default=9, help="runs of each command; 9 unless told")
    options = parser.parse_args()
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="pdkit-bench-") as name:
        results = list(measure(cases(Path(name)), options.runs))
    begun = startup.measure_startup()
    machine = f"Python {platform.python_version()} on {platform.machine()}, {os.cpu_count()} cores"
    if options.json:
        told = {"why_not": begun} if isinstance(begun, str) else asdict(begun)
        data = {"schema": 1, "machine": machine, "results": [asdict(one) for one in results], "startup": told}
        print(json.dumps(data, indent=2))
        return
    print(f"{machine}; load {os.getloadavg()[0]:.1f}; medians of CPU seconds (user + system) as whole processes")
    print(shown(results))
    print(startup.shown(begun))


if __name__ == "__main__":
    main()

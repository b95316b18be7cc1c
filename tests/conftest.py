"""What holds for all tests: nothing is left running, and in CI no test skips for want of Slurm or the engines."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest

MUST_RUN_IN_CI = {"rack", "local"}


def pytest_configure() -> None:
    """Let SIGTERM end the tests as Ctrl-C does, so that fixtures stop the racks and engines they started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    marks = MUST_RUN_IN_CI & {mark.name for mark in item.iter_markers()}
    expected = hasattr(report, "wasxfail")
    if report.skipped and marks and not expected and os.environ.get("CI"):
        reason = call.excinfo.value if call.excinfo else "skipped"
        report.outcome = "failed"
        report.longrepr = f"CI may not skip a test marked {', '.join(sorted(marks))}: {reason}"
    return report

"""What holds for all tests: with CI set, a test that needs Slurm or the engines fails where it would otherwise skip."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

MUST_RUN_IN_CI = {"rack", "local"}


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

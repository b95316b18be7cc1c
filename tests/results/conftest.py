"""The invented runs of sample_runs.py, for the tests here."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def sample() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sample_runs", Path(__file__).with_name("sample_runs.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def runs(sample: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Five measured runs, one that failed at the gate, one that never became ready. Not to be changed."""
    return sample.make_samples(tmp_path_factory.mktemp("runs"))

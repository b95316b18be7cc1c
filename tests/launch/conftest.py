"""Fake engines for the tests of the local launcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..fakes.engines import make_engines


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `--engines` takes."""
    return make_engines(tmp_path_factory.mktemp("engines"))

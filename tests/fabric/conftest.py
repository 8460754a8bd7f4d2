"""Fixtures of more than one file of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from snappi_lab import SnappiLab


@pytest.fixture(scope="module")
def snappi_module(request: pytest.FixtureRequest) -> Iterator[SnappiLab]:
    """One device between traffic generators for all tests of a module; invariants are checked after every event unless
    the module says DEBUG = False."""
    made = SnappiLab(debug=getattr(request.module, "DEBUG", True))
    yield made
    made.close()


@pytest.fixture
def rig(snappi_module: SnappiLab) -> Iterator[SnappiLab]:
    """The module's device, as new after each test."""
    yield snappi_module
    snappi_module.reset()

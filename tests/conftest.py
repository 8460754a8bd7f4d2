"""Shared by all rings: tests marked `mininet` skip, with the reason, where there is no root or no Mininet."""

from __future__ import annotations

import importlib.util
import os
import shutil

import hypothesis
import pytest

# A busy machine must not fail a test: speed lives in tests/bench. What failed is printed with the blob that repeats it.
hypothesis.settings.register_profile("dcblab", deadline=None, print_blob=True)
hypothesis.settings.load_profile("dcblab")


def _no_mininet() -> str | None:
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("mnexec") is None or importlib.util.find_spec("mininet") is None:
        return "Mininet is not installed (apt-get install mininet; make setup)"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = _no_mininet()
    for item in items:
        if reason and item.get_closest_marker("mininet"):
            item.add_marker(pytest.mark.skip(reason=reason))

"""Shared by all rings: the fixture `target`, and what skips a test, always with its reason.

A test that takes `target` (or a fixture that does) runs as [embedded] and as [bmv2]: on `dcbswitch`, and on
`simple_switch_grpc` where that is on the PATH. What BMv2 lacks is marked `lacks_bmv2("feature")`, a feature being the
first column of a row of docs/targets.md (tests/unit/test_targets.py holds the marks to it); such a test skips there.
"""

from __future__ import annotations

import importlib.util
import os
import shutil

import hypothesis
import pytest

BMV2 = "simple_switch_grpc"

# A busy machine must not fail a test: speed lives in tests/bench. What failed is printed with the blob that repeats it.
hypothesis.settings.register_profile("dcblab", deadline=None, print_blob=True)
hypothesis.settings.load_profile("dcblab")


def _no_mininet() -> str | None:
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("mnexec") is None or importlib.util.find_spec("mininet") is None:
        return "Mininet is not installed (apt-get install mininet; make setup)"
    return None


def _no_bmv2() -> str | None:
    if shutil.which(BMV2) is None:
        return f"{BMV2} is not on the PATH (docs/targets.md says where to get it)"
    return None if os.geteuid() == 0 else "BMv2 on interfaces needs root"


@pytest.fixture(scope="session", params=["embedded", pytest.param("bmv2", marks=pytest.mark.bmv2)])
def target(request: pytest.FixtureRequest) -> str:
    """What runs as switch, as `dcblab --target` has it."""
    return str(request.param)


def _reason(item: pytest.Item, no_mininet: str | None, no_bmv2: str | None) -> str | None:
    if no_mininet and item.get_closest_marker("mininet"):
        return no_mininet
    if item.get_closest_marker("bmv2") is None:
        return None
    lacking = item.get_closest_marker("lacks_bmv2")
    return f"BMv2 has no {lacking.args[0]!r} (docs/targets.md)" if lacking else no_bmv2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    no_mininet, no_bmv2 = _no_mininet(), _no_bmv2()
    for item in items:
        if reason := _reason(item, no_mininet, no_bmv2):
            item.add_marker(pytest.mark.skip(reason=reason))
    items.sort(key=lambda item: not item.path.stem.endswith("_sanitized"))  # the longest first: workers end together

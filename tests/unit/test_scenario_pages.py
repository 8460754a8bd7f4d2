"""Every scenario has a page with its command, and docs/virtual.md lists it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from topologies.scenarios import is_virtual, real_targets, scenarios

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", scenarios())
def test_a_scenario_has_a_page_and_is_listed(name: str) -> None:
    page = (DOCS / "scenarios" / f"{name}.md").read_text()
    assert f"dcblab run {name}" in page or f"dcblab {name}" in page
    assert f"[{name}](scenarios/{name}.md)" in (DOCS / "virtual.md").read_text()


@pytest.mark.parametrize("module", scenarios().values(), ids=scenarios())
def test_a_scenario_runs_somewhere_and_bounds_its_options(module: ModuleType) -> None:
    assert is_virtual(module) or real_targets(module)
    for option in getattr(module, "OPTIONS", {}).values():
        assert option.help
        if isinstance(option.default, bool):
            continue
        if isinstance(option.default, str):
            assert not option.choices or option.default in option.choices
        else:
            assert option.low is not None or option.high is not None
            assert option.low is None or option.low <= option.default
            assert option.high is None or option.default <= option.high

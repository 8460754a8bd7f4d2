"""The propagation scenario at a small scale: hops by load and by what contains them."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import propagation as scenario
from topologies.virtual import Bench


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return scenario.run(Bench(options=parse_options(scenario.OPTIONS, ["window_ms=0.1", "settle_ms=0.2"])))


def test_every_claim_holds(outcome: Outcome) -> None:
    assert [check.claim for check in outcome.checks if not check.passed] == []
    assert len(outcome.checks) == 7


@pytest.mark.parametrize("name", [scenario.EVERYWHERE, scenario.BY_RACK, scenario.BY_PRIORITY])
def test_hops_follow_from_where_the_senders_are(outcome: Outcome, name: str) -> None:
    far = 1 if name == scenario.BY_RACK else 3
    assert outcome.figures[f"{name}: own rack 200% hops"] == 1
    assert [outcome.figures[f"{name}: all racks {load}% hops"] for load in scenario.LOADS] == [0, 0, far, far, far]


def test_a_flow_that_has_nothing_to_do_with_it(outcome: Outcome) -> None:
    whole = 50 * 1024 / 1106  # Gb/s: payload of a frame over its wire
    for name in scenario.FABRICS:
        got = float(outcome.figures[f"{name}: all racks 400% victim Gb/s"])
        if name == scenario.EVERYWHERE:
            assert got < 0.7 * whole
        else:
            assert got == pytest.approx(whole, rel=0.1 if name == scenario.WITH_DCQCN else 0.03)


def test_dcqcn_shortens_the_pauses_once_it_has_cut_the_rates(outcome: Outcome) -> None:
    name = f"{scenario.WITH_DCQCN}: all racks 400%"
    assert int(outcome.figures[f"{name} hops"]) <= int(outcome.figures[f"{name} hops at first"])

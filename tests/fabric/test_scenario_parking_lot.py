"""The parking-lot scenario at a small scale: PFC alone shares by ingress port to the point, DCQCN by flow."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import parking_lot as scenario
from topologies.virtual import Bench

OPTIONS = ["pfc_ms=1", "dcqcn_ms=8", "profile=cx4", "xoff_kb=700"]  # Kmax of cx4 at 40 Gb/s is 640 KB


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return scenario.run(Bench(options=parse_options(scenario.OPTIONS, OPTIONS)))


@pytest.mark.parametrize(
    ("vias", "shares"),
    [
        (("a", "a", "a"), [1 / 2, 1 / 6, 1 / 6, 1 / 6]),
        (("a", "a", "b"), [1 / 3, 1 / 6, 1 / 6, 1 / 3]),
        (("a", "b", "c"), [1 / 4, 1 / 4, 1 / 4, 1 / 4]),
    ],
)
def test_shares_by_port(vias: tuple[str, ...], shares: list[float]) -> None:
    assert scenario.by_port(vias) == pytest.approx(shares)


def test_pfc_gives_the_near_host_half_of_the_link_or_a_third(outcome: Outcome) -> None:
    assert outcome.figures["PFC alone, 3 + 0: near host's share"] == pytest.approx(1 / 2, abs=0.01)
    assert outcome.figures["PFC alone, 2 + 1: near host's share"] == pytest.approx(1 / 3, abs=0.01)
    # Jain's index of 1/2, 1/6, 1/6, 1/6 is 3/4; of 1/3, 1/3, 1/6, 1/6 it is 9/10
    assert outcome.figures["PFC alone, 3 + 0: Jain"] == pytest.approx(0.75, abs=0.01)
    assert outcome.figures["PFC alone, 2 + 1: Jain"] == pytest.approx(0.9, abs=0.01)


def test_dcqcn_gives_equal_shares(outcome: Outcome) -> None:
    for placement in scenario.PLACEMENTS:
        assert float(outcome.figures[f"DCQCN, {placement}: Jain"]) > 0.97
        assert outcome.figures[f"DCQCN, {placement}: near host's share"] == pytest.approx(1 / 4, abs=0.04)

"""The victim-flow scenario at a small scale: PFC alone gives every flow what follows from its ports."""

from __future__ import annotations

from collections import Counter

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import victim_flow as scenario
from topologies.virtual import Bench

A, B = scenario.SPINES
OPTIONS = ["draws=2", "dcqcn_draws=1", "pfc_ms=1.5", "dcqcn_ms=4"]


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return scenario.run(Bench(options=parse_options(scenario.OPTIONS, OPTIONS)))


def test_shares_by_port_of_a_placement() -> None:
    """Two by each spine, both of rack 3 by B: 20 of 40 for each spine; by B 10 for each rack."""
    draw = scenario.Draw((A, A, B, B), (B, B), B)
    assert scenario.by_port(draw) == pytest.approx([1 / 4, 1 / 4, 1 / 8, 1 / 8, 1 / 8, 1 / 8, 1 / 8])
    assert scenario.max_min(draw) == pytest.approx([1 / 6] * 6 + [2 / 3])


def test_a_victim_alone_on_its_uplink_has_all_of_it() -> None:
    draw = scenario.Draw((A, A, A, A), (), B)
    assert scenario.by_port(draw) == pytest.approx([1 / 4] * 4 + [1])
    assert scenario.max_min(draw) == pytest.approx([1 / 4] * 4 + [1])


def test_medians_over_all_placements_are_the_papers() -> None:
    """Without rack 3: 2 of 32 placements give 1 of the link, 8 give 1/2, 12 give 1/4, 8 give 1/6, 2 give 1/4."""
    found = Counter(round(scenario.by_port(draw)[-1], 6) for draw in scenario.all_draws(0))
    assert found == {1: 2, 0.5: 8, 0.25: 14, 0.166667: 8}
    assert scenario._median_by_port(0) * 40 == pytest.approx(10)
    assert scenario._median_by_port(2) * 40 == pytest.approx(5)


def test_pfc_alone_gives_every_flow_what_follows_from_its_ports(outcome: Outcome) -> None:
    (check,) = [c for c in outcome.checks if c.claim.startswith("PFC alone: every flow")]
    assert check.passed, check.evidence
    assert check.evidence.startswith("6 draws")


def test_hosts_of_another_rack_slow_the_victim_with_pfc_alone(outcome: Outcome) -> None:
    without, with_two = (float(outcome.figures[f"PFC alone, {n} in rack 3: victim's median Gb/s"]) for n in (0, 2))
    assert without == pytest.approx(15, rel=0.02)  # one hot flow on its uplink: 20, two: 10
    assert with_two == pytest.approx(7.5, rel=0.02)  # 10 and 5


def test_dcqcn_keeps_two_hosts_of_another_rack_from_slowing_the_victim(outcome: Outcome) -> None:
    """Also within 4 ms, when rates have not converged. The first draw only: 10 Gb/s with PFC alone, fair are 33.3."""
    assert float(outcome.figures["DCQCN, 2 in rack 3: victim's median Gb/s"]) > 2 * 10
    (lost,) = [c for c in outcome.checks if c.claim == "nothing is lost"]
    assert lost.passed, lost.evidence

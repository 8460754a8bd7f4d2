"""The all-reduce scenario at a small scale: times against formulas that are worked out here by hand."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import all_reduce as scenario
from topologies.virtual import Bench

OPTIONS = ["hosts=4", "megabytes=1"]


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return scenario.run(Bench(options=parse_options(scenario.OPTIONS, OPTIONS)))


def test_every_claim_holds(outcome: Outcome) -> None:
    assert [(c.claim, c.evidence) for c in outcome.checks if not c.passed] == []
    assert len(outcome.checks) == 6


def test_the_formula_by_hand(outcome: Outcome) -> None:
    """4 hosts, 1 MB: 6 chunks of 250,000 bytes in 245 frames (244 full, one of 144), 16 ACKs of 62 bytes.

    A chunk: 250,000 + 245 * 82 + 16 + 16 * 86 = 271,482 bytes; six at 100 Gb/s 130.311 us. Two hops are within a
    rack (one switch), two across (three): six steps pass 12 switches, each of which sends a full frame once more.
    """
    assert scenario.bound_ps(10**6, 4, 100 * 10**9) == 6 * 271_482 * 80 == 130_311_360
    frame_ps, link_ps = (1024 + 82) * 80, 50_000
    expected = 130_311_360 + 12 * (frame_ps + link_ps) + 6 * link_ps
    fabric = scenario.topology(100 * 10**9, 4, 1)
    assert (
        scenario.bound_ps(10**6, 4, 100 * 10**9)
        + scenario.latency_ps(scenario.ring(4, False), fabric, 100 * 10**9, 10**6)
        == expected
    )
    assert float(outcome.figures["sorted by rack: ms"]) == pytest.approx(expected / 1e9, rel=0.001)


def test_the_ring_goes_at_the_pace_of_its_slowest_part(outcome: Outcome) -> None:
    """A host at a quarter of the rate; two flows on a link."""
    alone = float(outcome.figures["sorted by rack: ms"])
    assert float(outcome.figures["slow host: ms"]) == pytest.approx(4 * alone, rel=0.1)
    assert float(outcome.figures["to and fro, one spine: ms"]) == pytest.approx(2 * alone, rel=0.05)


def test_orders() -> None:
    assert scenario.ring(4, False) == ["h1", "h2", "h3", "h4"]
    assert scenario.ring(4, True) == ["h1", "h3", "h2", "h4"]

"""The poisson-fct scenario at a small scale: the formula of a lone flow by hand, percentiles, and its claims."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import poisson_fct as scenario
from topologies.virtual import Bench

OPTIONS = ["sizes=hadoop", "load=60", "arrivals_ms=0.2", "queue_kb=60", "xoff_kb=40"]
G = 10**9


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(options=parse_options(scenario.OPTIONS, OPTIONS))


@pytest.fixture(scope="module")
def outcome(bench: Bench) -> Outcome:
    return scenario.run(bench)


def test_a_lone_packet_by_hand() -> None:
    """1 byte, padded: a frame of 4 + 58 + 16 + 24 = 102 bytes twice, an ACK of 86 twice, no gaps of 12; 4 x 50 ns."""
    assert scenario.ideal_ps(1, 1, 100 * G) == (2 * 102 + 2 * 86 - 4 * 12) * 80 + 4 * 50_000
    # and over three switches
    assert scenario.ideal_ps(1, 3, 100 * G) == (4 * 102 + 4 * 86 - 8 * 12) * 80 + 8 * 50_000


def test_percentiles_are_nearest_rank() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [scenario.percentile(values, p) for p in (50, 95, 99)] == [50, 95, 99]
    assert scenario.percentile([7.0], 99) == 7


def test_lone_flows_and_lower_bound_hold_and_every_flow_finishes(outcome: Outcome) -> None:
    for claim in (
        "a flow alone takes what the formula says, to the picosecond",
        "no flow is faster than in an empty fabric",
        "every flow finishes in every fabric",
        "with PFC nothing is lost and nothing sent twice",
        "DCQCN pauses less than PFC alone",
    ):
        (check,) = [c for c in outcome.checks if c.claim == claim]
        assert check.passed, check.evidence


def test_all_fabrics_carry_the_same_flows(bench: Bench, outcome: Outcome) -> None:
    flows = {
        run: [(m.labels["source"], m.labels["target"], m.labels["bytes"]) for m in bench.metrics if m.run == run]
        for run in scenario.RUNS
    }
    assert len(flows[scenario.PFC]) > 50
    assert all(found == flows[scenario.PFC] for found in flows.values())
    counts = {row[0]: 0 for row in outcome.tables[0].rows}
    for row in outcome.tables[0].rows:
        counts[row[0]] += int(row[2])
    assert set(counts.values()) == {len(flows[scenario.PFC])}

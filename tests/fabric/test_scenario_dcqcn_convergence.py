"""The dcqcn-convergence scenario at a small scale: two flows, few milliseconds; rates against the profiles' numbers."""

from __future__ import annotations

import pytest

from hosts.nic_config import Dcqcn
from topologies.scenario import Line, Outcome, parse_options
from topologies.scenarios import dcqcn_convergence as scenario
from topologies.virtual import Bench

PAYLOAD = 1024 / 1106  # of what a frame takes on the wire: 58 bytes of headers, 24 of FCS, preamble and gap
STEP_MS = 8


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return scenario.run(Bench(options=parse_options(scenario.OPTIONS, ["flows=2", f"step_ms={STEP_MS}"])))


def rates(outcome: Outcome, run: str, flow: int) -> Line:
    panel = next(p for p in outcome.plots[0].panels if p.title.startswith(f"{run}:"))
    return panel.lines[flow]


def slope(line: Line, from_ms: float, to_ms: float) -> float:
    """Gb/s per millisecond between two times."""
    points = [(x, y) for x, y in zip(line.x, line.y, strict=True) if from_ms <= x <= to_ms]
    (x0, y0), (x1, y1) = points[0], points[-1]
    return (y1 - y0) / (x1 - x0)


def test_nothing_is_lost_and_nothing_paused(outcome: Outcome) -> None:
    silent = [check for check in outcome.checks if check.claim.endswith("PFC has nothing to do")]
    assert [check.passed for check in silent] == [True] * 4
    for run in (scenario.AT_40, scenario.AT_RATE, scenario.SCALED, scenario.VENDOR):
        assert outcome.figures[f"{run}: XOFF"] == 0


def test_a_flow_alone_has_the_whole_link(outcome: Outcome) -> None:
    row = next(row for row in outcome.tables[0].rows if row[0] == scenario.VENDOR)
    assert (row[1], row[2], row[6]) == ("0..1", "1", "100.00")
    for run, gbps in ((scenario.AT_40, 40), (scenario.VENDOR, 100)):
        assert rates(outcome, run, 0).y[0] == pytest.approx(gbps * PAYLOAD, rel=0.002)


def test_two_flows_share_by_halves_at_once_in_the_vendors_form(outcome: Outcome) -> None:
    assert float(outcome.figures[f"{scenario.VENDOR}: least Jain"]) > 0.98
    assert 0 < float(outcome.figures[f"{scenario.VENDOR}: slowest convergence ms"]) < 3
    # two senders at line rate, the second unchecked until the first CNP: more than Kmin, less than XOFF
    assert 400_000 < int(outcome.figures[f"{scenario.VENDOR}: queue max bytes"]) < 2_000_000


def test_a_flow_takes_up_what_another_left_as_fast_as_its_profile_says(outcome: Outcome) -> None:
    """cx4: hyper increase, 200 Mb/s per 300 us; paper: additive, 40 Mb/s per 55 us, until 5 x 10 MB are sent."""
    end = 1 + 2 * STEP_MS
    vendor, paper = Dcqcn.cx4(100 * 10**9), Dcqcn.paper()
    assert (vendor.hai_bps, paper.ai_bps) == (200_000_000, 40_000_000)
    expected = vendor.hai_bps / 1e9 / (vendor.increase_timer_ps / 1e9) * PAYLOAD
    assert slope(rates(outcome, scenario.VENDOR, 1), end - 4, end) == pytest.approx(expected, rel=0.02)
    expected = paper.ai_bps / 1e9 / (paper.increase_timer_ps / 1e9) * PAYLOAD
    assert slope(rates(outcome, scenario.AT_40, 1), end - 4, end) == pytest.approx(expected, rel=0.02)

"""The nic-storm scenario at a small scale: who freezes, how far, who is named, and what each cure does."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import nic_storm
from topologies.virtual import Bench

OPTIONS = ["window_ms=0.2", "control_rate=1000", "control_burst=4", "load_gbps=4"]


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return nic_storm.run(Bench(options=parse_options(nic_storm.OPTIONS, OPTIONS)))


def rate(outcome: Outcome, run: str, group: str) -> float:
    return float(outcome.figures[f"{run}: {group} Gb/s"])


def test_all_claims_hold_but_the_one_of_storm_control_that_lets_too_much_through(outcome: Outcome) -> None:
    """1000 XOFF a second of 335.5 us each hold the port for a third of the time: that is no cure at 100 Gb/s."""
    failed = [check.claim for check in outcome.checks if not check.passed]
    assert failed == ["storm control: with the storm going on, nobody else is slower than 90%"]
    assert len(outcome.checks) == 14


def test_the_storm_stops_everything_lossless_and_nothing_else(outcome: Outcome) -> None:
    for group in nic_storm.GROUPS:
        assert (rate(outcome, "no cure", group) == 0) is (group != nic_storm.CONTROL)
    assert outcome.figures["no cure: hops"] == 4
    assert outcome.figures["no cure: dropped elsewhere"] == 0


def test_both_watchdogs_bring_back_all_but_the_broken_host(outcome: Outcome) -> None:
    for cure in (nic_storm.POLLING, nic_storm.SWITCH):
        assert rate(outcome, cure, "to the broken host") == 0
        # 4 flows of 4 Gb/s of wire: payload is 1024 of 1024 + 58 + 24 bytes
        for group, flows in (("within its rack", 4), ("into its rack", 4), ("between other racks", 8)):
            assert rate(outcome, cure, group) == pytest.approx(flows * 4 * 1024 / 1106, rel=0.02)
        assert (outcome.figures[f"{cure}: hops then"], outcome.figures[f"{cure}: dropped elsewhere"]) == (0, 0)
        assert int(outcome.figures[f"{cure}: dropped at the port"]) > 0


def test_storm_control_pauses_for_its_rate_times_the_longest_pause(outcome: Outcome) -> None:
    assert outcome.figures["storm control: paused share"] == pytest.approx(1000 * 65535 * 512 / 100e9, abs=1e-3)


def test_the_report_has_the_spread_over_the_links(outcome: Outcome) -> None:
    (picture,) = outcome.maps
    told = {(flow.sender, flow.receiver) for flow in picture.flows}
    assert {("h1", "leaf1"), ("leaf1", "spine1"), ("leaf1", "spine2"), ("spine1", "leaf2"), ("leaf2", "h5")} <= told
    assert not {(a, b) for a, b in told if a.startswith("h")} - {("h1", "leaf1")}

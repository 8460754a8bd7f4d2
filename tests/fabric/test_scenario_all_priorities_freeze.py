"""The all-priorities-freeze scenario at a small scale: eight priorities stand, or one does."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import all_priorities_freeze as scenario
from topologies.virtual import Bench


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return scenario.run(Bench(options=parse_options(scenario.OPTIONS, ["window_ms=0.3", "nic_buffer_kb=256"])))


def test_every_claim_holds(outcome: Outcome) -> None:
    assert [check.claim for check in outcome.checks if not check.passed] == []
    assert len(outcome.checks) == 7


@pytest.mark.parametrize("group", scenario.OTHERS)
def test_eight_stand_with_pfc_on_eight_and_one_with_pfc_on_one(outcome: Outcome, group: str) -> None:
    assert outcome.figures[f"{scenario.ALL}: {group}, priorities that stand"] == 8
    assert outcome.figures[f"{scenario.ONE}: {group}, priorities that stand"] == 1


def test_throughput_of_the_others_is_zero_or_seven_eighths(outcome: Outcome) -> None:
    assert outcome.figures[f"{scenario.ALL}: others Gb/s"] == 0
    # 5 pairs of hosts x 7 priorities x 2.5 Gb/s of wire, of which 1024 of 1106 bytes are payload
    assert outcome.figures[f"{scenario.ONE}: others Gb/s"] == pytest.approx(5 * 7 * 2.5 * 1024 / 1106, rel=0.02)


def test_what_has_no_pfc_is_dropped_at_the_sick_host_and_nowhere_else(outcome: Outcome) -> None:
    assert outcome.figures[f"{scenario.ALL}: dropped at the host"] == 0
    assert int(outcome.figures[f"{scenario.ONE}: dropped at the host"]) > 0

"""The deadlock scenario at a small scale: the ring is named beforehand and as it stands, breaks, and is prevented."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import deadlock
from topologies.virtual import Bench

RING = ["leaf2:3 priority 3", "spine1:3 priority 3", "leaf3:4 priority 3", "spine2:2 priority 3", "leaf2:3 priority 3"]


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(options=parse_options(deadlock.OPTIONS, ["traffic_ms=0.5"]))


@pytest.fixture(scope="module")
def outcome(bench: Bench) -> Outcome:
    return deadlock.run(bench)


def test_every_claim_holds(outcome: Outcome) -> None:
    assert [check.claim for check in outcome.checks if not check.passed] == []
    assert len(outcome.checks) == 6


def test_the_ring_is_named_beforehand_and_as_it_stands(outcome: Outcome) -> None:
    assert outcome.notes[0] == (
        "possible by these routes: leaf2:4 pg 3 -> spine1:2 pg 3 -> leaf3:3 pg 3 -> spine2:3 pg 3 -> leaf2:4 pg 3"
    )
    assert outcome.notes[1] == f"standing still: {' -> '.join(RING)}"


def test_what_stands_still_fills_the_ring_and_is_lost_to_the_watchdog_alone(outcome: Outcome) -> None:
    figures = outcome.figures
    assert figures["re-routed: empty after ms"] == -1.0
    # four buffers of the ring stand at XOFF at least, 60,000 bytes each
    assert int(figures["re-routed: bytes stuck"]) >= 4 * 60_000
    assert figures["re-routed: frames dropped"] == 0
    assert int(figures["watchdog: frames dropped"]) > 0
    # detection lies in (T, T + poll); both are 100 ms
    assert 100 < float(figures["watchdog: empty after ms"]) < 250
    for cure in ("no valleys", "second priority"):
        assert (figures[f"{cure}: bytes stuck"], figures[f"{cure}: frames dropped"]) == (0, 0)


def test_it_is_the_same_again(bench: Bench, outcome: Outcome) -> None:
    again = Bench(options=bench.options)
    assert deadlock.run(again).figures == outcome.figures
    assert again.traces == bench.traces

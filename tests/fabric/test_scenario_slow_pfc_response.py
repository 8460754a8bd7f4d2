"""The slow-pfc-response scenario at a small scale: drops and headroom by formula, and what RDMA sees of it."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import slow_pfc_response as scenario
from topologies.virtual import Bench


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return scenario.run(Bench(options=parse_options(scenario.OPTIONS, ["window_ms=0.4"])))


def test_every_claim_holds(outcome: Outcome) -> None:
    assert [check.claim for check in outcome.checks if not check.passed] == []
    assert len(outcome.checks) == 8


def test_what_a_late_peer_sends_by_hand(outcome: Outcome) -> None:
    """A frame takes 88.48 ns of wire, the PFC frame less two gaps 4.8 ns, 40 m of cable there and back 400 ns.

    So of a response of 47 us: 47404.8 / 88.48 = 535.8, 536 frames after the crossing one. Planned for 10 us there is
    room for headroom / 1082 = 120.68 of them, less the crossing frame's rest.
    """
    xoff, headroom = 2 * 130_574, 130_574
    assert outcome.figures["planned for 10 us: headroom"] == headroom
    crossing = -(-(xoff - 16) // 1082)
    assert outcome.figures["planned for 10 us: 47 us dropped"] == crossing + 536 - (xoff + headroom - 16) // 1082
    assert outcome.figures["planned for 47 us: 47 us dropped"] == 0
    # one response more: 47 us, by frames that carry 1082 of 1106 bytes of wire
    more = int(outcome.figures["planned for 47 us: 47 us headroom used"]) - int(
        outcome.figures["planned for 47 us: 0 us headroom used"]
    )
    assert more == pytest.approx(47e-6 * 100e9 / 8 * 1082 / 1106, abs=1082)


def test_rdma_pays_for_it(outcome: Outcome) -> None:
    assert int(outcome.figures["planned for 10 us: 47 us incast dropped"]) > 0
    assert outcome.figures["planned for 10 us: 10 us incast dropped"] == 0
    assert outcome.figures["planned for 47 us: 47 us incast dropped"] == 0

"""The headroom cliff at one rate and two cables: exact bytes, by arithmetic written out here."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import headroom_cliff
from topologies.scenarios.headroom_cliff import Case
from topologies.virtual import Bench

FRAME = 4096 + 58
BYTE_PS = 80  # at 100 Gb/s
WIRE_PS = (FRAME + 24) * BYTE_PS
RESPONSE_PS = 394 * 512 * 10  # 802.3 annex 31B, 10 ps a bit


def headroom(length_m: int) -> int:
    """The frame that crosses XOFF with all but a byte beyond it, and each that starts while h1 does not know: h3's
    frame less a picosecond, the PFC frame of 60 bytes with FCS and preamble less the gap before the next one, the cable
    twice, the response."""
    silent_ps = (WIRE_PS - 1) + 60 * BYTE_PS + 2 * length_m * 5000 + RESPONSE_PS
    return FRAME - 1 + -(-silent_ps // WIRE_PS) * FRAME


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(options=parse_options(headroom_cliff.OPTIONS, ["rate_gbps=100", "longest_m=40"]), debug=True)


@pytest.fixture(scope="module")
def outcome(bench: Bench) -> Outcome:
    return headroom_cliff.run(bench)


def test_every_claim_holds(outcome: Outcome) -> None:
    held = {check.claim for check in outcome.checks if check.passed}
    assert "with the planned headroom nothing is lost, and every byte of it is used" in held
    assert "with one byte less exactly one frame is lost" in held
    assert any(claim.startswith("further down the cliff has steps of a frame") for claim in held)
    assert any(claim.startswith("HPCC's 3 x BDP loses on short cables") for claim in held)
    assert len(held) == len(outcome.checks) == 5


@pytest.mark.parametrize("length_m", [5, 40])
def test_the_cliff_is_where_the_arithmetic_has_it(outcome: Outcome, length_m: int) -> None:
    figures = outcome.figures
    assert figures[f"100G {length_m} m: used bytes"] == headroom(length_m)
    assert figures[f"100G {length_m} m: lost with planned - 1"] == 1
    bdp_bytes = length_m * 5 * 100 // 8  # ns x Gb/s
    missing = headroom(length_m) - 3 * bdp_bytes
    assert figures[f"100G {length_m} m: lost with 3 x BDP"] == -(-missing // FRAME)


def test_a_verdict_with_a_loss_fails() -> None:
    case = Case(100 * 10**9, 5, FRAME, 0)
    shots = {case: [headroom_cliff.Shot(case.planned, lost=1, used=case.planned)] * 3}
    stairs = [headroom_cliff.Shot(case.planned - n * FRAME, lost=n, used=0) for n in range(6)]
    stairs[3] = headroom_cliff.Shot(case.planned - 3 * FRAME, lost=4, used=0)
    claims = [check.passed for check in headroom_cliff.verdict(shots, case, stairs)]
    assert claims[0] is False
    assert claims[2] is False

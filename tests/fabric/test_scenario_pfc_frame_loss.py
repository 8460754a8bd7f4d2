"""The pfc-frame-loss scenario at a small scale: one XOFF and one XON by formula, and what loss at a rate does."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import pfc_frame_loss as scenario
from topologies.virtual import Bench

LONG, SHORT, ROOMY = "quanta 65535", "quanta 2000", "quanta 2000, headroom for a lost XOFF"


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return scenario.run(Bench(options=parse_options(scenario.OPTIONS, ["window_ms=0.4"])))


def test_every_claim_holds(outcome: Outcome) -> None:
    assert [check.claim for check in outcome.checks if not check.passed] == []
    assert len(outcome.checks) == 11


def test_one_lost_xoff_by_hand(outcome: Outcome) -> None:
    """At 100 Gb/s a frame of 1082 bytes takes 88.48 ns of wire; cable 100 m: 500 ns a way.

    29 frames reach XOFF (31,140 bytes). Those behind them start for 2 x 500 ns of cable, the PFC frame of 84 bytes less
    two gaps of 12 (4.8 ns), and until the refresh, 32767.5 quanta of 5.12 ns x 1000: 168774.4 ns / 88.48 = 1907.5. So
    29 + 1908 frames, of which 46,710 bytes hold 43.
    """
    assert outcome.figures[f"{LONG}: dropped for one XOFF"] == 29 + 1908 - 43
    # 1000 quanta are 5,120 ns: 6124.8 / 88.48 = 69.2
    assert outcome.figures[f"{SHORT}: dropped for one XOFF"] == 29 + 70 - 43
    assert outcome.figures[f"{ROOMY}: dropped for one XOFF"] == 0


def test_without_loss_all_settings_are_alike(outcome: Outcome) -> None:
    clean = {outcome.figures[f"{name}: 0 Gb/s"] for name in (LONG, SHORT, ROOMY)}
    assert len(clean) == 1
    # half of the receiver's link, 1024 of 1106 bytes, less what has not been acknowledged yet
    assert clean.pop() == pytest.approx(50 * 1024 / 1106, rel=0.1)


def test_short_pauses_and_room_for_a_lost_xoff_survive_more(outcome: Outcome) -> None:
    def rate(name: str) -> float:
        return float(outcome.figures[f"{name}: 0.05 Gb/s"])

    assert rate(LONG) < rate(SHORT)
    assert outcome.figures[f"{ROOMY}: 0.05 dropped"] == 0

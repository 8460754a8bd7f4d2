"""Throughput over XOFF at a small scale, against the cycle of XOFF and XON written out for one case by hand."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import xoff_too_low
from topologies.scenarios.xoff_too_low import Seen, Setting
from topologies.virtual import Bench

OPTIONS = ["load_percent=120", "response_us=8", "window_us=50"]


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return xoff_too_low.run(Bench(options=parse_options(xoff_too_low.OPTIONS, OPTIONS)))


def test_claims(outcome: Outcome) -> None:
    claims = {check.claim: check for check in outcome.checks}
    held = {claim for claim, check in claims.items() if check.passed}
    assert "nothing is lost, however low XOFF is" in held
    assert "the article's rule, xoff / (rtt x rate), is a lower bound" in held
    assert "the cure: an XOFF that leaves a round trip's worth at XON costs nothing" in held
    assert any("explains the throughput within 3 points" in claim for claim in held)
    # its response is too short for this one to hold: thresholds for 2 us cost less than 30% at 10 us
    (price,) = (check for claim, check in claims.items() if claim.startswith("the article's thresholds"))
    assert not price.passed
    assert price.evidence.startswith("100.0% of the link, and 8")


def test_the_model_of_one_cycle() -> None:
    """100 Gb/s, 2 us, load 120%, XOFF 10,000 and XON 0: in units of round trips, with a group's half of the link."""
    setting = Setting(100 * 10**9, 200, 0, 120, 10_000, 0)
    half = 50e9 / 8 * 1082 / 1106  # bytes a second of frames
    rtt = 2e-6 + 72 * 8 / 100e9
    fill, drain = 10_000 / (0.2 * half), 10_000 / half + 0.2 * rtt
    assert setting.model == pytest.approx(1 - rtt / (2 * rtt + fill + drain), abs=1e-12)
    assert setting.article == 0.4


def test_the_round_trip_counts_the_response(outcome: Outcome) -> None:
    at_once = outcome.figures["load 120%, XOFF 27500: share of the link"]
    late = outcome.figures["load 120%, heeded after 8 us, XOFF 27500: share of the link"]
    assert float(at_once) == pytest.approx(1, abs=0.002)
    assert float(late) == pytest.approx(Setting(100 * 10**9, 200, 8_000_000, 120, 27_500, 15_000).model, abs=0.03)


@pytest.mark.parametrize(
    ("points", "at"),
    [
        ([(10, 0.5), (20, 0.7), (30, 0.9)], 15.0),
        ([(10, 0.74), (12, 0.58), (20, 0.68), (40, 1.0)], 13.6),
        ([(10, 0.7), (20, 0.9)], None),
    ],
)
def test_where_a_curve_crosses(points: list[tuple[int, float]], at: float | None) -> None:
    assert xoff_too_low.crossing(points, 0.6) == (at if at is None else pytest.approx(at))


def test_a_lost_frame_fails_the_verdict() -> None:
    setting = Setting(100 * 10**9, 200, 0, 120, 10_000, 0)
    checks = xoff_too_low.verdict({setting: Seen(setting.model - 0.04, 1e5, lost=1)})
    assert [check.passed for check in checks] == [False, False, True]

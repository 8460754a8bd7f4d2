"""PFC against ECN at a small scale: blind DCQCN, the victim's rate by formula, the warning, the two ways out."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import ecn_pfc_conflict
from topologies.scenarios.ecn_pfc_conflict import CONFLICT, HIGH_XOFF, LOW_ECN
from topologies.virtual import Bench


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return ecn_pfc_conflict.run(Bench(options=parse_options(ecn_pfc_conflict.OPTIONS, ["duration_ms=1.5"])))


def test_claims(outcome: Outcome) -> None:
    held = {check.claim for check in outcome.checks if check.passed}
    assert "in conflict nothing is ever marked: DCQCN is blind" in held
    assert "the config check warns of the conflict" in held
    assert "nothing is lost in any run" in held
    for name in (LOW_ECN, HIGH_XOFF):
        assert f"{name}: ECN marks, DCQCN reacts, and PFC is silent once it has" in held
        assert f"{name}: the victim has its rate" in held
        assert f"{name}: no warning" in held


def test_the_victim_has_the_senders_rate_and_else_its_own(outcome: Outcome) -> None:
    goodput = 1024 / 1106  # payload of a full packet over its bytes on the wire
    assert float(outcome.figures[f"{CONFLICT}: victim Gb/s"]) == pytest.approx(100 / 6 * goodput, rel=0.03)
    assert float(outcome.figures[f"{LOW_ECN}: victim Gb/s"]) == pytest.approx(30 * goodput, rel=0.01)
    assert float(outcome.figures[f"{CONFLICT}: senders Gb/s"]) == pytest.approx(100 * goodput, rel=0.01)
    assert outcome.figures[f"{CONFLICT}: marked"] == 0
    assert int(outcome.figures[f"{CONFLICT}: XOFFs in the second half"]) > 100


def test_ways_out_follow_the_options() -> None:
    options = parse_options(ecn_pfc_conflict.OPTIONS, ["xoff=200000", "kmin=300000"])
    low, high = (ecn_pfc_conflict.runs_of(options)[name] for name in (LOW_ECN, HIGH_XOFF))
    assert low.kmax < low.xoff == 200_000
    assert high.xoff > high.kmax == 1_200_000

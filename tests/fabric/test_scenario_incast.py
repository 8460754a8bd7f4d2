"""The incast scenario at a small scale: the last flow against the closed formula; loss costs, PFC does not lose."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import incast as scenario
from topologies.virtual import Bench

OPTIONS = ["senders=8", "kilobytes=100", "queue_kb=60"]


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return scenario.run(Bench(options=parse_options(scenario.OPTIONS, OPTIONS)))


def test_pfc_alone_takes_what_the_bytes_take(outcome: Outcome) -> None:
    """8 flows of 100,000 bytes in 98 frames: 8 * (100,000 + 98 * 82 + 16) bytes, at 100 Gb/s 80 ps each."""
    bound_ms = 8 * (100_000 + 98 * 82 + 16) * 80 / 1e9
    assert scenario.formula_ps(100 * 10**9, 8, 100_000) / 1e9 == pytest.approx(bound_ms)
    last = float(outcome.figures["PFC alone: last ms"])
    # links and switches to cross, and the ACK back: some microseconds
    assert bound_ms < last < bound_ms + 0.003


def test_only_the_lossy_fabric_sends_twice(outcome: Outcome) -> None:
    assert outcome.figures["PFC alone: resent"] == outcome.figures["PFC and DCQCN: resent"] == 0
    assert int(outcome.figures["lossy, go-back-N: resent"]) > 0
    assert outcome.figures["lossy, go-back-N: XOFF"] == 0
    assert float(outcome.figures["lossy, go-back-N: last ms"]) > float(outcome.figures["PFC alone: last ms"])


def test_dcqcn_pauses_less(outcome: Outcome) -> None:
    assert int(outcome.figures["PFC and DCQCN: XOFF"]) < int(outcome.figures["PFC alone: XOFF"])
    assert [(c.claim, c.evidence) for c in outcome.checks if not c.passed and not c.claim.startswith("PFC alone")] == []

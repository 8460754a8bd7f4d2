"""The qcn scenario at a small scale: queue at the set point, messages accounted for, PFC silent, what takes longer."""

from __future__ import annotations

import pytest

from topologies.results import Check
from topologies.scenario import Outcome, parse_options
from topologies.scenarios import qcn
from topologies.virtual import Bench

OPTIONS = ["duration_ms=36", "senders=3", "qeq=26000"]
SLOW = "QCN: shares come together, slowly, and no flow is left with less than half of its fair part"


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(options=parse_options(qcn.OPTIONS, OPTIONS), debug=False)


@pytest.fixture(scope="module")
def outcome(bench: Bench) -> Outcome:
    return qcn.run(bench)


def claim(outcome: Outcome, text: str) -> Check:
    (found,) = (check for check in outcome.checks if check.claim.startswith(text))
    return found


def figure(outcome: Outcome, name: str) -> float:
    return float(outcome.figures[name])


def test_all_claims_but_that_of_fairness_hold_after_36_ms(outcome: Outcome) -> None:
    """QCN's rates come together over hundreds of milliseconds: that claim needs the default run."""
    assert {check.claim for check in outcome.checks if not check.passed} <= {SLOW}
    assert len(outcome.checks) == 9


def test_the_queue_settles_at_its_set_point(outcome: Outcome) -> None:
    assert figure(outcome, "QCN: queue mean") == pytest.approx(26_000, rel=0.1)
    assert figure(outcome, "QCN: queue p99") < 2 * 26_000
    assert figure(outcome, "QCN: XOFFs in the last third") == 0


def test_pfc_alone_fills_what_xoff_allows(outcome: Outcome) -> None:
    """Three groups of 150 KB, each two frames at most below XON or a few above XOFF."""
    assert figure(outcome, "PFC alone: queue mean") == pytest.approx(3 * qcn.XOFF_BYTES, rel=0.03)
    assert figure(outcome, "PFC alone: XOFFs in the last third") > 1000
    for run in ("PFC alone", "QCN", "DCQCN"):
        assert figure(outcome, f"{run}: lost") == 0


def test_the_link_is_full(outcome: Outcome) -> None:
    assert figure(outcome, "QCN: Gb/s") == pytest.approx(10 * 1024 / 1106, rel=0.005)


def test_samples_come_at_the_interval_of_the_standard(outcome: Outcome) -> None:
    """At rest feedback is small: a sample each 150,000 bytes of frames, more while rates adapt; jitter averages out."""
    frames = 10e9 * 36e-3 / 8 * 1082 / 1106
    least = frames / 150_000
    assert least < figure(outcome, "QCN: samples") < 2 * least
    assert 0 < figure(outcome, "QCN: messages") < figure(outcome, "QCN: samples")


def test_the_same_seed_gives_the_same_trace_and_another_seed_other_samples() -> None:
    def traces(seed: int) -> dict[str, str]:
        bench = Bench(seed=seed, options=parse_options(qcn.OPTIONS, ["duration_ms=3", "senders=2", "sample=30000"]))
        qcn.run(bench)
        return bench.traces

    first = traces(1)
    assert traces(1) == first
    assert traces(2)[qcn.QCN] != first[qcn.QCN]


def test_series_are_recorded(outcome: Outcome, bench: Bench) -> None:
    assert {metric.name for metric in bench.metrics} == {"queue", "h1", "h2", "h3"}
    assert {metric.run for metric in bench.metrics} == {qcn.NONE, qcn.QCN, qcn.DCQCN}
    assert bench.configs[qcn.QCN]["switches"]["leaf1"]["ports"][4]["qcn"] == {
        3: {"qeq": 26_000, "weight": 1, "sample": 150_000}
    }

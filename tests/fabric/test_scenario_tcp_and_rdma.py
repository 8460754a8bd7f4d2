"""TCP and RDMA at a small scale: who starves whom in one queue, and what separates them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import tcp_and_rdma
from topologies.scenarios.tcp_and_rdma import (
    CASES,
    CLASSES,
    ONE_BLIND,
    ONE_LOSSLESS,
    PLANES,
    RDMA_ALONE,
    TCP_ALONE,
    Seen,
)
from topologies.virtual import Bench


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        chosen = {name: case for name, case in CASES.items() if name != tcp_and_rdma.ONE_DCTCP}
        patch.setattr(tcp_and_rdma, "CASES", chosen)
        patch.setattr(tcp_and_rdma, "PLOTTED", (ONE_LOSSLESS,))
        return tcp_and_rdma.run(Bench(options=parse_options(tcp_and_rdma.OPTIONS, ["duration_ms=2"])))


def test_claims(outcome: Outcome) -> None:
    held = {check.claim for check in outcome.checks if check.passed}
    assert "each alone has the link" in held
    assert any(claim.startswith("in one lossless queue TCP starves RDMA") for claim in held)
    assert any(claim.startswith("and RDMA without DCQCN starves TCP") for claim in held)
    assert any(claim.startswith(PLANES) for claim in held)


def test_figures(outcome: Outcome) -> None:
    figures = outcome.figures
    assert float(figures[f"{ONE_LOSSLESS}: RDMA share"]) < 0.1 < 0.9 < float(figures[f"{ONE_LOSSLESS}: TCP share"])
    assert float(figures[f"{ONE_BLIND}: TCP share"]) < 0.1
    assert float(figures[f"{CLASSES}: RDMA share"]) == pytest.approx(0.5, abs=0.12)  # DCQCN still settles
    for alone, what in ((RDMA_ALONE, "RDMA"), (TCP_ALONE, "TCP")):
        assert float(figures[f"{PLANES}: {what} share"]) == pytest.approx(
            float(figures[f"{alone}: {what} share"]), abs=0.02
        )
    assert figures[f"{ONE_LOSSLESS}: dropped"] == 0 == figures[f"{CLASSES}: RDMA resent"]


def test_a_fair_queue_would_fail_the_verdict() -> None:
    fair = Seen(0.5, 0.5, 0, 0, 1, 0, 0, 0.0, 0.0, [])
    seen = dict.fromkeys(CASES, fair) | {
        name: replace(fair, rdma=1.0, tcp=1.0) for name in (RDMA_ALONE, TCP_ALONE, PLANES)
    }
    assert [check.passed for check in tcp_and_rdma.verdict(seen)] == [True, False, False, False, True, True]

"""The scenario's verdict: each claim falls when, and only when, its own figure is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from topologies.results import ClassResult, LinkPfc, RunResult
from topologies.scenarios.storage_and_business import flows, phases, topology, verdict


def run(name: str, *, lost: int = 0, pfc: bool = True, configured: dict[int, float] | None = None) -> RunResult:
    storage = ClassResult("storage", 3, 10_000, 10_000 - lost, lost, 0, 100, 60_000_000)
    business = ClassResult("business", 0, 9_000, 8_900, 100, 0, 50, 40_000_000)
    links = (LinkPfc("leaf1", "spine1", 5, 5, (3,)),) if pfc else ()
    return RunResult(name, 10.0, (storage, business), links, {3: 0.61, 0: 0.39}, configured, {3: 10**9}, 0)


def good() -> list[RunResult]:
    return [run("off", lost=500, pfc=False), run("on"), run("ets", configured={3: 0.6, 0: 0.4})]


def failed(runs: list[RunResult]) -> list[str]:
    return [check.claim for check in verdict(runs) if not check.passed]


def with_storage(result: RunResult, **changes: int) -> RunResult:
    storage, business = result.classes
    return replace(result, classes=(replace(storage, **changes), business))


def test_good_runs_prove_everything() -> None:
    assert failed(good()) == []
    assert len(verdict(good())) == 10


@pytest.mark.parametrize(
    ("index", "change", "claim"),
    [
        (0, lambda r: with_storage(r, lost=0), "without PFC, storage loses frames"),
        (1, lambda r: with_storage(r, lost=1), "on: storage loses nothing"),
        (1, lambda r: with_storage(r, received=9_999), "on: storage loses nothing"),
        (2, lambda r: with_storage(r, offered=0, received=0), "ets: storage loses nothing"),
        (2, lambda r: with_storage(r, reordered=1), "ets: storage stays in order"),
        (1, lambda r: replace(r, pfc=()), "on: PFC held it back"),
        (
            1,
            lambda r: replace(r, pfc=(LinkPfc("leaf1", "h2", 1, 1, (0, 3)),)),
            "business traffic is never paused, and flows in every run",
        ),
        (2, lambda r: replace(r, paused_ns={0: 1}), "business traffic is never paused, and flows in every run"),
        (2, lambda r: replace(r, share={3: 0.651, 0: 0.349}), "ets: shares within 5 points"),
        (0, lambda r: replace(r, left_in_buffers_bytes=64), "buffers are empty after every run"),
    ],
)
def test_one_wrong_figure_fails_one_claim(index: int, change: object, claim: str) -> None:
    runs = good()
    assert callable(change)
    runs[index] = change(runs[index])
    assert failed(runs) == [claim]


def test_the_scenario_overloads_the_receiver_and_only_ets_is_asked_for_shares() -> None:
    rate = topology().links[0].rate_bps
    storage = [f for f in flows(rate) if f.traffic_class == "storage"]
    assert {f.destination for f in flows(rate)} == {"h1"}
    assert sum(f.rate_bps for f in storage) == rate * 9 // 5
    assert [p.shares for p in phases()] == [None, None, {3: 0.6, 0: 0.4}]
    assert [p.dcb.pfc for p in phases()] == [(), (3,), (3,)]

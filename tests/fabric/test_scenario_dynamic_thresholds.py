"""Thresholds under bursts at a small scale: who loses, who pauses, what the pool holds by formula."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import dynamic_thresholds
from topologies.scenarios.dynamic_thresholds import ALPHA, GREEDY, LOW, POLICY, SHARE
from topologies.virtual import Bench


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(options=parse_options(dynamic_thresholds.OPTIONS, ["phase_ms=3"]))


@pytest.fixture(scope="module")
def outcome(bench: Bench) -> Outcome:
    return dynamic_thresholds.run(bench)


def test_claims(outcome: Outcome) -> None:
    held = {check.claim for check in outcome.checks if check.passed}
    assert "nothing is lost with a threshold that the pool can carry, moved or not" in held
    assert "alpha lets two hosts have what is free, where an equal share pauses them" in held
    assert "the policy has learned when all come at once: fewer and shorter pauses than its baseline" in held
    assert "and stays within what the planner allows" in held
    assert len(held) == len(outcome.checks) == 7


def test_what_the_pool_holds_at_most(outcome: Outcome) -> None:
    """Eight groups at alpha 1 take 8/9 of a pool of 1,000,000; static ones what they may beyond their reserve."""
    figures = outcome.figures
    assert 888_888 <= int(figures[f"{ALPHA}: pool peak"]) <= 888_888 + 8 * 1100
    assert figures[f"{LOW}: pool peak"] == 8 * (30_000 - 3_000)
    assert figures[f"{SHARE}: pool peak"] == 8 * (1_000_000 // 11)  # 11 ports share it, 8 are sent to by bursts
    assert figures[f"{GREEDY}: pool peak"] == 1_000_000
    assert figures[f"{GREEDY}: lost"] == figures[f"{POLICY}: lost"] == 0


def test_the_check_of_the_config_warns_of_a_pool_that_is_too_small(outcome: Outcome) -> None:
    assert [note.split(":")[0] for note in outcome.notes] == [GREEDY]

"""dcbx-bring-up in virtual time at a small scale: the claims of the Mininet test, and senders through the move."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import dcbx_bring_up
from topologies.virtual import Bench

OPTIONS = parse_options(dcbx_bring_up.OPTIONS, ["duration_us=300", "control_us=20"])


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(options=OPTIONS)


@pytest.fixture(scope="module")
def outcome(bench: Bench) -> Outcome:
    return dcbx_bring_up.run(bench)


def test_every_claim_holds_and_the_first_nine_are_those_of_real_time(outcome: Outcome) -> None:
    assert [check.claim for check in outcome.checks if not check.passed] == []
    assert [check.claim for check in outcome.checks] == [
        "before hosts speak DCBX, storage from them is lossy",
        "PFC 3, brought up: every port but the one to h4 is lossless for priority 3",
        "PFC 3, brought up: all willing hosts run the same PFC and ETS",
        "PFC 4, moved at the source: every port but the one to h4 is lossless for priority 4",
        "PFC 4, moved at the source: all willing hosts run the same PFC and ETS",
        "PFC 3: an incast as DCBX says loses nothing and is paused",
        "PFC 4: an incast as DCBX says loses nothing and is paused",
        "h4, which refuses, is the one mismatch that is reported",
        "h4 is not lossless, and does no harm to who is",
        "h1, which runs through the move and follows it, is lossless at priority 4 from then on",
        "h2, which keeps its marks, has lost its losslessness",
        "the move is not hitless, but a reliable connection delivers everything",
    ]


def test_what_is_sent_and_how_long_it_takes(outcome: Outcome) -> None:
    # 80 Gb/s for 300 us are 3,000,000 bytes: 2,930 packets of at most 1,024
    (table,) = outcome.tables
    assert [row[2] for row in table.rows] == ["2,930"] * 8
    assert [row[3] for row in table.rows if row[0] in ("PFC 3", "PFC 4")] == ["0"] * 4
    figures = outcome.figures
    assert figures["lost as agreed"] == 0
    # a leaf's ports learn from their spine, hosts from their leaf: a few round trips of 40 us, looked at every 20 us
    assert 0.04 < float(figures["agreed after ms"]) < 5
    assert 0.04 < float(figures["moved after ms"]) < 5


def test_it_is_the_same_again(bench: Bench, outcome: Outcome) -> None:
    again = Bench(options=OPTIONS, debug=True)
    assert dcbx_bring_up.run(again).figures == outcome.figures
    assert again.traces == bench.traces

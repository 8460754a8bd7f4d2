"""storage-and-business in virtual time, half a millisecond a run: its claims, and shares exact to a thousandth."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import storage_and_business
from topologies.virtual import Bench


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return storage_and_business.run(Bench(options=parse_options(storage_and_business.OPTIONS, ["duration_ms=0.5"])))


def test_every_claim_holds(outcome: Outcome) -> None:
    assert [check.claim for check in outcome.checks if not check.passed] == []
    assert len(outcome.checks) == 10


def test_what_leaves_towards_the_receiver_is_divided_as_the_weights_say(outcome: Outcome) -> None:
    """Over 250 us, about 3 MB: DWRR is never off by more than a frame of each queue, which is less than 0.1 points."""
    table = outcome.tables[0]
    share = table.columns.index("ETS share")
    rows = {(row[0], row[1]): row[share] for row in table.rows}
    assert [rows["PFC on", name] for name in ("storage", "business")] == ["50.0%", "50.0%"]
    assert rows["PFC on, ETS 60/40", "storage"] == "60.0% of 60%"
    assert rows["PFC on, ETS 60/40", "business"] == "40.0% of 40%"


def test_both_classes_are_marked(outcome: Outcome) -> None:
    table = outcome.tables[0]
    marked = table.columns.index("CE-marked")
    assert all(int(row[marked].replace(",", "")) > 0 for row in table.rows)

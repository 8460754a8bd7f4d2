"""Dividing a port's rate: expected grants are worked out by hand (802.1Q 37.3: unused bandwidth goes to the others)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.shares import Queue, divide, limits


@pytest.mark.parametrize(
    ("rate_bps", "queues", "grants"),
    [
        (1000, {0: Queue(40, None), 3: Queue(60, None)}, {0: 400, 3: 600}),
        (1000, {0: Queue(40, 100), 3: Queue(60, None)}, {0: 100, 3: 900}),
        (1000, {0: Queue(40, 0), 3: Queue(60, None)}, {0: 0, 3: 1000}),
        (1000, {0: Queue(1, None), 1: Queue(1, 200), 2: Queue(2, None)}, {0: 266, 1: 200, 2: 533}),
        # 1 is content with 300 of its 500; what it leaves makes 0 content too
        (1000, {0: Queue(25, 260), 1: Queue(50, 300), 2: Queue(25, None)}, {0: 260, 1: 300, 2: 440}),
        (1000, {0: Queue(50, None), 6: Queue(None, 300), 7: Queue(None, 200)}, {0: 500, 6: 300, 7: 200}),
        (1000, {0: Queue(50, None), 6: Queue(None, None), 7: Queue(None, 900)}, {0: 0, 6: 100, 7: 900}),
        (1000, {0: Queue(50, 10), 1: Queue(50, 20)}, {0: 10, 1: 20}),
        (1000, {}, {}),
    ],
)
def test_grants(rate_bps: int, queues: dict[int, Queue], grants: dict[int, int]) -> None:
    assert divide(rate_bps, queues) == grants


def test_an_idle_queue_may_start_at_its_share() -> None:
    queues = {0: Queue(40, 0), 3: Queue(60, None), 7: Queue(None, 100)}
    assert limits(1000, queues) == {0: 360, 3: 900, 7: 1000}


@given(
    rate_bps=st.integers(1, 10**12),
    queues=st.dictionaries(
        st.integers(0, 7),
        st.builds(Queue, st.none() | st.integers(1, 100), st.none() | st.integers(0, 10**12)),
        min_size=1,
    ),
)
def test_nothing_is_granted_twice_and_nothing_wanted_is_left(rate_bps: int, queues: dict[int, Queue]) -> None:
    grants = divide(rate_bps, queues)
    assert sum(grants.values()) <= rate_bps
    for number, queue in queues.items():
        assert 0 <= grants[number] <= (rate_bps if queue.demand_bps is None else queue.demand_bps)
    hungry = [n for n, q in queues.items() if q.demand_bps is None or grants[n] < q.demand_bps]
    if hungry:
        assert rate_bps - sum(grants.values()) < 8  # what integer division loses
    for a in hungry:
        for b in hungry:
            left, right = queues[a].weight, queues[b].weight
            if left is not None and right is not None:
                assert abs(grants[a] * right - grants[b] * left) <= max(left, right)

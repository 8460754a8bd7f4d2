"""Buffers and shares of the bundled program through the whole switch, configured and read by P4Runtime alone.

The edges of accounting to the byte, and ETS shares over 10,000 frames of mixed sizes; after every run nothing is held.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest
from dcb_switch import DcbSwitch, G, data

RESERVED, XOFF, XON, HEADROOM = 2_000, 10_000, 4_000, 3_000
PG3 = 1 * 8 + 3
QUEUE_OF_TOS = {26 << 2: 3, 0: 0, 34 << 2: 4}


@pytest.fixture
def switch() -> Iterator[DcbSwitch]:
    made = DcbSwitch()
    yield made
    made.service.close()


@pytest.fixture
def congested(switch: DcbSwitch) -> DcbSwitch:
    """Group 3 of ports 1 and 4 has static thresholds; port 2 sends nothing."""
    for port in (1, 4):
        switch.static_group(port, 3, RESERVED, XOFF, XON, HEADROOM)
        switch.send_pfc(port, 1 << 3)
    switch.hold(2)
    return switch


def fill(switch: DcbSwitch, total: int) -> None:
    """Lossless frames of 500 bytes from port 1 to port 2, and one of 101 to 600 bytes."""
    while total > 600:
        switch.receive(1, data(500))
        total -= 500
    switch.receive(1, data(total))


def pfc_times(switch: DcbSwitch, until_ps: int) -> list[tuple[int, int]]:
    """(port, time of priority 3) of each PFC frame."""
    return [
        (out.port, int.from_bytes(out.frame[24:26], "big"))
        for out in switch.until(until_ps)
        if out.frame[12:16] == bytes.fromhex("88080101")
    ]


@pytest.mark.parametrize(("total", "told"), [(XOFF - 1, []), (XOFF, [(1, 65535)]), (XOFF + 1, [(1, 65535)])])
def test_xoff_to_the_byte(congested: DcbSwitch, total: int, told: list[tuple[int, int]]) -> None:
    fill(congested, total)
    assert pfc_times(congested, 0) == told
    assert congested.state("egress.tm_pg_depth", PG3) == total
    assert congested.state("egress.tm_pg_xoff", PG3) == len(told)
    assert congested.state("egress.tm_pg_headroom", PG3) == max(0, total - XOFF)
    congested.hold(2, False)
    congested.drain()
    assert congested.drops() == {}
    congested.assert_empty()


def test_headroom_to_the_byte_and_one_drop_in_that_group_alone(congested: DcbSwitch) -> None:
    fill(congested, XOFF + HEADROOM)
    assert congested.drops() == {}
    assert congested.state("egress.tm_pg_headroom", PG3) == HEADROOM
    assert congested.state("egress.tm_pool_used", 0) == XOFF - RESERVED
    congested.receive(1, data(60))  # one more frame, of the least size
    assert congested.drops() == {"tm_drop_headroom": {PG3: 1}}
    assert congested.count("egress.tm_drop_headroom", PG3) == (1, 60)
    congested.receive(1, data(600, priority=0))  # another group of the same port
    congested.receive(4, data(700))  # the same group of another port
    assert congested.drops() == {"tm_drop_headroom": {PG3: 1}}
    assert congested.state("egress.tm_pg_depth", 1 * 8) == 600
    assert congested.state("egress.tm_pg_depth", 4 * 8 + 3) == 700
    assert congested.state("egress.tm_queue_depth", 2 * 8 + 3) == XOFF + HEADROOM + 700
    assert congested.state("egress.tm_pg_watermark", PG3) == XOFF + HEADROOM
    assert congested.state("egress.tm_pg_headroom_watermark", PG3) == HEADROOM
    congested.hold(2, False)
    lengths = Counter(len(out.frame) for out in congested.drain() if out.port == 2)
    assert lengths == {500: (XOFF + HEADROOM) // 500, 600: 1, 700: 1}
    assert congested.count("egress.tm_enqueued", 2 * 8 + 3) == (27, 13_700)
    assert congested.count("egress.tm_dequeued", 2 * 8 + 3) == (27, 13_700)
    congested.assert_empty()


def test_resume_at_xon_and_not_before(congested: DcbSwitch) -> None:
    fill(congested, XOFF)
    assert pfc_times(congested, 0) == [(1, 65535)]
    congested.hold(2, False)
    start = congested.switch_core.now_ps
    frame_ps = (500 + 24) * 8 * 25
    # The n-th start leaves 10,000 - 500 n: the 12th leaves XON.
    assert pfc_times(congested, start + 11 * frame_ps - 1) == []
    assert congested.state("egress.tm_pg_depth", PG3) == XON + 500
    assert pfc_times(congested, start + 11 * frame_ps) == [(1, 0)]
    assert congested.state("egress.tm_pg_depth", PG3) == XON
    assert congested.state("egress.tm_pg_xoff", PG3) == 0
    congested.drain()
    congested.assert_empty()


@pytest.mark.parametrize(("alpha", "share"), [(0, Fraction(1, 2)), (-2, Fraction(1, 5)), (1, Fraction(2, 3))])
def test_a_dynamic_group_takes_alpha_of_what_is_free(switch: DcbSwitch, alpha: int, share: Fraction) -> None:
    """Used <= 2^alpha * (pool - used) settles at 2^alpha / (1 + 2^alpha) of the pool."""
    pool = 30_000
    switch.put("egress.tm_pool", (0,), "egress.tm_set_pool", pool)
    switch.put("egress.tm_priority_group", (1, 3), "egress.tm_pg_dynamic", 0, alpha & 0xFF, 0, HEADROOM, 1 << 3)
    switch.send_pfc(1, 1 << 3)
    switch.hold(2)
    settled = int(pool * share)
    for _ in range(settled // 100 - 1):
        switch.receive(1, data(100))
    assert pfc_times(switch, 0) == []
    switch.receive(1, data(100))
    assert switch.state("egress.tm_pool_used", 0) == settled
    assert pfc_times(switch, 0) == [(1, 65535)]
    switch.receive(1, data(HEADROOM))
    assert switch.drops() == {}
    switch.receive(1, data(60))
    assert switch.drops() == {"tm_drop_headroom": {PG3: 1}}
    switch.hold(2, False)
    switch.drain()
    switch.assert_empty()


def test_the_queue_limit_is_for_lossy_frames(switch: DcbSwitch) -> None:
    switch.hold(2)
    for queue in (0, 3):
        switch.put("egress.tm_queue", (2, queue), "egress.tm_queue_static", 5_000)
    for _ in range(11):
        switch.receive(1, data(500, priority=0))
        switch.receive(1, data(500, priority=3))
    assert switch.state("egress.tm_queue_depth", 2 * 8) == 5_000
    assert switch.state("egress.tm_queue_depth", 2 * 8 + 3) == 5_500
    assert switch.drops() == {"tm_drop_queue": {2 * 8: 1}}
    switch.hold(2, False)
    switch.drain()
    switch.assert_empty()


SIZES = (60, 64, 128, 350, 594, 1024, 1500, 9000)


class Backlog:
    """Keeps frames of mixed sizes in the queues of port 2 and counts what leaves by queue."""

    def __init__(self, switch: DcbSwitch, queues: tuple[int, ...]) -> None:
        self.switch = switch
        # Sizes cycle with a length of their own in each queue, so that they never fall into step.
        self.sizes = {q: itertools.cycle([*SIZES, *SIZES[:n]]) for n, q in enumerate(queues)}
        self.left: Counter[int] = Counter()
        for queue in queues:
            for _ in range(4):
                self.add(queue)

    def add(self, queue: int) -> None:
        now = self.switch.switch_core.now_ps
        self.switch.receive(1, data(next(self.sizes[queue]), priority=queue), now)

    def serve(self, frames: int) -> Counter[int]:
        """Bytes by queue of the next `frames` frames."""
        count: Counter[int] = Counter()
        served = 0
        while served < frames:
            deadline = self.switch.switch_core.next_deadline()
            assert deadline is not None
            for out in self.switch.until(deadline):
                queue = QUEUE_OF_TOS[out.frame[15]]
                count[queue] += len(out.frame)
                served += 1
                self.add(queue)
        return count


def assert_within_one_percent(count: Counter[int], weights: dict[int, int]) -> None:
    total, weight = sum(count.values()), sum(weights.values())
    for queue in weights:
        assert abs(Fraction(count[queue], total) - Fraction(weights[queue], weight)) <= Fraction(1, 100), count


def ets(switch: DcbSwitch, weights: dict[int, int]) -> None:
    for queue, weight in weights.items():
        switch.put("egress.tm_scheduler", (2, queue), "egress.tm_ets", weight)


def roomy(switch: DcbSwitch) -> None:
    """Jumbo frames of three queues fit, whatever waits."""
    switch.put("egress.tm_queue", (2, 0), "egress.tm_queue_static", 1_000_000)
    switch.set_up_port(2, rate_bps=10 * G)


def test_shares_within_one_percent_and_weights_changed_live(switch: DcbSwitch) -> None:
    roomy(switch)
    ets(switch, {0: 40, 3: 60})
    backlog = Backlog(switch, (0, 3))
    switch.until(0)
    assert_within_one_percent(backlog.serve(10_000), {0: 40, 3: 60})
    ets(switch, {0: 90, 3: 10})  # packets are in both queues
    assert_within_one_percent(backlog.serve(10_000), {0: 90, 3: 10})
    switch.drain()
    assert switch.drops() == {}
    switch.assert_empty()


def test_three_weights_then_strict_before_them(switch: DcbSwitch) -> None:
    roomy(switch)
    ets(switch, {0: 1, 3: 2, 4: 97})
    backlog = Backlog(switch, (0, 3, 4))
    assert_within_one_percent(backlog.serve(10_000), {0: 1, 3: 2, 4: 97})
    switch.put("egress.tm_scheduler", (2, 3), "egress.tm_strict")
    assert set(backlog.serve(500)) == {3}  # it always has something, and nothing else leaves
    switch.remove("egress.tm_scheduler", (2, 3))  # back to ETS with weight 1
    assert_within_one_percent(backlog.serve(10_000), {0: 1, 3: 1, 4: 97})
    switch.drain()
    assert switch.drops() == {}
    switch.assert_empty()

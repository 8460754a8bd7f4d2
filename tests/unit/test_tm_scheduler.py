"""Scheduler and port clock: exact spacing, strict, ETS shares, credit-based shaper."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
from l2_core import SANITIZE, frame, fresh_tm_state, make, pfc, wire_ps

from switch.core import Cbs, DynamicGroup, Ets, Output, StaticLimit, Strict, SwitchCore

G = 10**9
LIGHT = 10 if SANITIZE else 1  # the sanitized run is about memory, and slow
Sizes = Callable[[random.Random], int]


def mixed(rng: random.Random) -> int:
    return rng.choice((60, 64, 128, 594, 1000, 1514, rng.randint(60, 1514)))


def roomy(core: SwitchCore) -> None:
    core.tm.set_pool(1 << 30)
    core.tm.set_priority_group(1, 0, DynamicGroup(alpha=10))
    for n in range(8):
        core.tm.set_queue(2, n, StaticLimit(1 << 30))


class Backlog:
    """Keeps queues of port 2 filled and hands out what leaves, one frame at a time."""

    def __init__(self, core: SwitchCore, sizes: dict[int, Sizes], seed: int = 1) -> None:
        roomy(core)
        self.core = core
        self.sizes = sizes
        self.rng = random.Random(seed)
        self.now = 0
        for queue in sizes:
            for _ in range(3):
                self.feed(queue)

    def feed(self, queue: int) -> None:
        self.core.receive(1, frame(self.sizes[queue](self.rng), to=2, priority=queue), self.now)

    def next(self) -> Output:
        deadline = self.core.next_deadline()
        assert deadline is not None
        self.now = deadline
        self.core.advance(deadline)
        outs = self.core.outputs()
        assert len(outs) == 1
        self.feed(outs[0].frame[16])
        return outs[0]

    def served(self, packets: int) -> dict[int, int]:
        """Bytes by queue over so many packets."""
        count = dict.fromkeys(self.sizes, 0)
        for _ in range(packets):
            out = self.next()
            count[out.frame[16]] += len(out.frame)
        return count


def assert_shares(count: dict[int, int], weights: dict[int, int], largest: int = 1514) -> None:
    """Within 1% of the line, and within the bound of start-time fair queueing: one largest frame per queue."""
    total, weight = sum(count.values()), sum(weights.values())
    for queue in weights:
        assert abs(count[queue] / total - weights[queue] / weight) <= 0.01
    for a in weights:
        for b in weights:
            gap = abs(Fraction(count[a], weights[a]) - Fraction(count[b], weights[b]))
            assert gap <= Fraction(largest, weights[a]) + Fraction(largest, weights[b]) + 1


@pytest.mark.parametrize(
    "weights", [(1, 1), (60, 40), (100, 1), (3, 97), (1, 2, 3, 4, 5, 6, 7, 8), (100, 99, 1), (33, 33, 34), (7, 13, 80)]
)
def test_ets_shares_over_10000_packets_of_mixed_sizes(weights: Sequence[int]) -> None:
    core = make()
    core.tm.set_port(2, 10 * G)
    for queue, weight in enumerate(weights):
        core.tm.set_scheduler(2, queue, Ets(weight))
    backlog = Backlog(core, dict.fromkeys(range(len(weights)), mixed))
    count = backlog.served(10_000 // LIGHT)
    if LIGHT == 1:
        assert_shares(count, dict(enumerate(weights)))


def test_every_weight_from_1_to_100() -> None:
    """A weight's queue beside one of weight 100, until the smaller one has had 20 frames' worth."""
    for weight in range(1, 101, 3 * LIGHT):
        core = make()
        core.tm.set_port(2, 10 * G)
        core.tm.set_scheduler(2, 1, Ets(weight))
        core.tm.set_scheduler(2, 0, Ets(100))
        backlog = Backlog(core, {0: lambda _: 1000, 1: lambda _: 1000})
        count = backlog.served(20 + 2_000 // weight)
        gap = abs(Fraction(count[0], 100) - Fraction(count[1], weight))
        assert gap <= Fraction(1000, 100) + Fraction(1000, weight)


def test_shares_are_of_bytes_not_of_packets() -> None:
    core = make()
    core.tm.set_port(2, 10 * G)
    core.tm.set_scheduler(2, 0, Ets(50))
    core.tm.set_scheduler(2, 1, Ets(50))
    backlog = Backlog(core, {0: lambda _: 60, 1: lambda _: 1500})
    assert_shares(backlog.served(10_000), {0: 50, 1: 50})


def test_service_is_interleaved_not_in_bursts() -> None:
    core = make()
    core.tm.set_port(2, 10 * G)
    core.tm.set_scheduler(2, 0, Ets(50))
    core.tm.set_scheduler(2, 1, Ets(100))
    backlog = Backlog(core, {0: lambda _: 1000, 1: lambda _: 1000})
    order = [backlog.next().frame[16] for _ in range(300)]
    assert all(sorted(order[i : i + 3]) == [0, 1, 1] for i in range(3, 297, 3))


def test_strict_goes_before_ets_and_the_higher_strict_first() -> None:
    core = make()
    core.tm.set_port(2, G)
    for queue in (6, 4):
        core.tm.set_scheduler(2, queue, Strict())
    core.tm.block_port(2, True)
    for queue in (0, 7, 4, 6, 0, 7, 4, 6):
        core.receive(1, frame(200, to=2, priority=queue), 0)
    core.tm.block_port(2, False)
    core.advance(10**9)
    order = [out.frame[16] for out in core.outputs()]
    assert order[:4] == [6, 6, 4, 4]
    assert sorted(order[4:]) == [0, 0, 7, 7]


def test_strict_starves_ets_while_it_has_something() -> None:
    core = make()
    core.tm.set_port(2, G)
    core.tm.set_scheduler(2, 0, Strict())
    backlog = Backlog(core, {0: mixed, 7: mixed})
    assert backlog.served(500)[7] == 0


def test_what_an_idle_queue_leaves_goes_to_the_others_by_weight() -> None:
    core = make()
    core.tm.set_port(2, 10 * G)
    weights = {0: 60, 1: 20, 2: 20}
    for queue, weight in weights.items():
        core.tm.set_scheduler(2, queue, Ets(weight))
    backlog = Backlog(core, {1: mixed, 2: mixed})  # queue 0 has nothing
    start = backlog.now
    count = backlog.served(4_000)
    assert_shares(count, {1: 20, 2: 20})
    bits = 8 * (sum(count.values()) + 24 * 4_000)
    assert backlog.now - start >= bits * 10**12 // (10 * G) - wire_ps(1514, 10 * G)  # and the line is full
    assert backlog.now - start <= bits * 10**12 // (10 * G)
    # it comes back and does not make up for what it left: 1000 bytes each, from the clock of now
    backlog.sizes[0] = mixed
    for _ in range(3):
        backlog.feed(0)
    assert_shares(backlog.served(6_000), weights)


def test_weights_changed_with_packets_in_the_queues() -> None:
    core = make()
    core.tm.set_port(2, 10 * G)
    backlog = Backlog(core, {0: mixed, 1: mixed})
    assert_shares(backlog.served(2_000), {0: 1, 1: 1})
    for weights in ({0: 90, 1: 10}, {0: 1, 1: 100}, {0: 50, 1: 50}):
        for queue, weight in weights.items():
            core.tm.set_scheduler(2, queue, Ets(weight))
        count = backlog.served(5_000)
        for queue, weight in weights.items():
            assert abs(count[queue] / sum(count.values()) - weight / sum(weights.values())) <= 0.01
    core.tm.set_scheduler(2, 1, Strict())
    assert backlog.served(100)[0] == 0
    core.tm.set_scheduler(2, 1, Ets(50))
    assert_shares(backlog.served(5_000), {0: 50, 1: 50})


def test_a_paused_queue_gives_up_its_share_and_gets_no_credit_for_it() -> None:
    core = make()
    core.tm.set_port(2, 10 * G)
    backlog = Backlog(core, {0: mixed, 1: mixed})
    core.receive(2, pfc({0: 65535}), backlog.now)
    assert backlog.served(1_000)[0] == 0
    core.receive(2, pfc({0: 0}), backlog.now)
    assert_shares(backlog.served(2_000), {0: 1, 1: 1})


@pytest.mark.parametrize("rate", [10**6, 10**7, 3 * G, 7_777_777_777, 100 * G, 800 * G])
@pytest.mark.parametrize("length", [60, 61, 1514, 9216])
def test_port_rate_spacing_is_exact_and_does_not_drift(rate: int, length: int) -> None:
    core = make()
    roomy(core)
    core.tm.set_port(2, rate)
    for _ in range(200):
        core.receive(1, frame(length, to=2), 0)
    core.advance(10**18)
    bits = (length + 24) * 8
    assert [out.start_ps for out in core.outputs()] == [n * bits * 10**12 // rate for n in range(200)]
    fresh_tm_state(core)


def test_short_frames_take_the_wire_of_a_padded_one() -> None:
    core = make()
    core.tm.set_port(2, G)
    core.receive(1, frame(30, to=2), 0)
    core.advance(0)
    assert [(len(out.frame), out.end_ps) for out in core.outputs()] == [(30, 84 * 8 * 1000)]


def test_an_idle_wire_starts_at_once_and_a_busy_one_when_it_is_free() -> None:
    core = make()
    core.tm.set_port(2, G)
    core.receive(1, frame(1000, to=2), 5)
    core.receive(1, frame(1000, to=2), 100)
    core.receive(1, frame(1000, to=2), 10**9)
    core.advance(10**9)
    one = wire_ps(1000, G)
    assert [(out.start_ps, out.end_ps) for out in core.outputs()] == [
        (5, 5 + one),
        (5 + one, 5 + 2 * one),
        (10**9, 10**9 + one),
    ]


def test_rate_changed_live_counts_from_the_next_frame() -> None:
    core = make()
    core.tm.set_port(2, G)
    for _ in range(3):
        core.receive(1, frame(1000, to=2), 0)
    core.advance(0)
    core.tm.set_port(2, 10 * G)
    core.advance(10**9)
    first, second = wire_ps(1000, G), wire_ps(1000, 10 * G)
    assert [out.start_ps for out in core.outputs()] == [0, first, first + second]


def test_an_unlimited_port_sends_at_once() -> None:
    core = make()
    for _ in range(10):
        core.receive(1, frame(to=2), 7)
    core.advance(7)
    assert [(out.start_ps, out.end_ps) for out in core.outputs()] == [(7, 7)] * 10


@pytest.mark.parametrize("slope", [10**6, 75_000_000, 333_333_333])
def test_cbs_queue_alone_is_spaced_at_its_idle_slope(slope: int) -> None:
    """Credit is 0 at each start, so a frame of B bits on the wire starts B / idleSlope after the one before."""
    core = make()
    roomy(core)
    core.tm.set_port(2, G)
    core.tm.set_scheduler(2, 5, Cbs(slope))
    for _ in range(100):
        core.receive(1, frame(1000, to=2, priority=5), 0)
    core.advance(10**18)
    starts = [out.start_ps for out in core.outputs()]
    bits = 1024 * 8
    for n, start in enumerate(starts):
        assert 0 <= start - Fraction(n * bits * 10**12, slope) < n + 1  # each start rounds up to a picosecond
    fresh_tm_state(core)


def test_cbs_gets_its_slope_beside_a_full_line_and_ets_the_rest() -> None:
    core = make()
    core.tm.set_port(2, G)
    core.tm.set_scheduler(2, 6, Cbs(200_000_000))
    backlog = Backlog(core, {6: lambda _: 1000, 0: lambda _: 1500})
    bits = {6: 0, 0: 0}
    for _ in range(5_000):
        out = backlog.next()
        bits[out.frame[16]] += (len(out.frame) + 24) * 8
    seconds = Fraction(backlog.now, 10**12)
    assert abs(bits[6] - 200_000_000 * seconds) <= 2 * 1524 * 8
    assert abs(bits[0] - 800_000_000 * seconds) <= 2 * 1524 * 8


def test_cbs_credit_is_lost_when_the_queue_runs_empty() -> None:
    core = make()
    core.tm.set_port(2, G)
    core.tm.set_scheduler(2, 5, Cbs(100_000_000))
    for at in (0, 10**12):
        core.receive(1, frame(1000, to=2, priority=5), at)
        core.receive(1, frame(1000, to=2, priority=5), at)
        core.advance(at + 10**11)
        first, second = (out.start_ps for out in core.outputs())
        assert first == at
        assert second == at + 1024 * 8 * 10**12 // 100_000_000  # a second of silence has bought nothing


def test_strict_before_cbs_before_ets() -> None:
    core = make()
    core.tm.set_port(2, G)
    core.tm.set_scheduler(2, 1, Strict())
    core.tm.set_scheduler(2, 2, Cbs(500_000_000))
    core.tm.block_port(2, True)
    for queue in (7, 2, 1):
        core.receive(1, frame(to=2, priority=queue), 0)
    core.tm.block_port(2, False)
    core.advance(10**9)
    assert [out.frame[16] for out in core.outputs()] == [1, 2, 7]


def test_a_blocked_port_keeps_everything_until_it_is_open() -> None:
    core = make()
    core.tm.block_port(2, True)
    core.receive(1, frame(to=2), 0)
    assert core.next_deadline() is None
    core.advance(10**12)
    assert core.outputs() == []
    core.tm.block_port(2, False)
    core.advance(10**12)
    assert [out.start_ps for out in core.outputs()] == [10**12]

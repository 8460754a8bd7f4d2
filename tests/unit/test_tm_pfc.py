"""PFC by injection, with exact times: who is paused, for how long, and how a PFC frame gets out."""

from __future__ import annotations

import pytest
from l2_core import LOSSLESS, frame, fresh_tm_state, is_pfc, make, pfc, read_pfc, wire_ps

from switch.core import StaticGroup, Strict, SwitchCore

G = 10**9
QUANTUM_BITS = 512


def quanta_ps(quanta: int, rate_bps: int) -> int:
    """Exact where the rate divides; the pause never ends early."""
    return -(-quanta * QUANTUM_BITS * 10**12 // rate_bps)


def sent(core: SwitchCore, until: int) -> list[tuple[int, int, int]]:
    """(start, port, length) of what leaves up to a time."""
    core.advance(until)
    return [(out.start_ps, out.port, len(out.frame)) for out in core.outputs()]


@pytest.mark.parametrize(
    ("rate", "expected_ps"),
    [
        (10 * G, 3_355_392_000),
        (40 * G, 838_848_000),
        (100 * G, 335_539_200),
        (25 * G, 1_342_156_800),
        (G, 33_553_920_000),
    ],
)
def test_65535_quanta_last_exactly_this_long(rate: int, expected_ps: int) -> None:
    assert quanta_ps(65535, rate) == expected_ps  # 40 Gb/s: 838.848 us
    core = make()
    core.tm.set_port(2, rate)
    t = 12_345
    core.receive(2, pfc({3: 65535}), t)
    core.receive(1, frame(200, to=2, priority=3), t)
    assert core.next_deadline() == t + expected_ps
    assert sent(core, t + expected_ps - 1) == []
    assert core.tm.read_state("pause_left", 2 * 8 + 3) == 1
    assert sent(core, t + expected_ps) == [(t + expected_ps, 2, 200)]
    assert core.tm.read_state("pause_left", 2 * 8 + 3) == 0
    assert core.tm.read_state("paused_ns", 2 * 8 + 3) == expected_ps // 1000
    assert core.tm.read_state("pause_count", 2 * 8 + 3) == 1
    fresh_tm_state(core)


def test_a_port_without_a_rate_times_quanta_at_10g() -> None:
    core = make()
    core.receive(2, pfc({3: 1000}), 0)
    core.receive(1, frame(to=2, priority=3), 0)
    assert core.next_deadline() == quanta_ps(1000, 10 * G)


def test_a_rate_that_does_not_divide_never_shortens_the_pause() -> None:
    core = make()
    core.tm.set_port(2, 3 * G)
    core.receive(2, pfc({0: 1}), 0)
    core.receive(1, frame(to=2), 0)
    assert core.next_deadline() == 170_667  # 170,666.67


def test_pause_holds_its_priority_on_its_port_and_no_other() -> None:
    core = make()
    core.receive(2, pfc({3: 65535}), 0)
    for port in (2, 4):
        for priority in range(8):
            core.receive(1, frame(100 + priority, to=port, priority=priority), 0)
    core.advance(0)
    left = [(out.port, len(out.frame) - 100) for out in core.outputs()]
    assert sorted(left) == sorted((port, n) for port in (2, 4) for n in range(8) if (port, n) != (2, 3))
    for n in range(8):
        assert core.tm.read_state("pause_left", 2 * 8 + n) == (65535 if n == 3 else 0)
        assert core.tm.read_state("pause_left", 4 * 8 + n) == 0
    assert core.tm.read_state("queue_depth", 2 * 8 + 3) == 103


def test_a_new_time_replaces_the_running_one() -> None:
    core = make()
    core.tm.set_port(2, 10 * G)
    core.receive(1, frame(to=2, priority=3), 0)
    core.receive(2, pfc({3: 65535}), 0)
    core.receive(2, pfc({3: 10}), 1_000_000)  # shorter
    assert core.next_deadline() == 1_000_000 + quanta_ps(10, 10 * G)
    core.receive(2, pfc({3: 1000}), 1_200_000)  # longer; not added
    assert core.next_deadline() == 1_200_000 + quanta_ps(1000, 10 * G)
    end = 1_200_000 + quanta_ps(1000, 10 * G)
    assert sent(core, 10**12) == [(end, 2, 100)]
    assert core.tm.read_state("pause_count", 19) == 1
    assert core.tm.read_state("paused_ns", 19) == end // 1000


def test_time_zero_resumes_at_once() -> None:
    core = make()
    core.receive(2, pfc({3: 65535, 4: 65535}), 0)
    core.receive(1, frame(to=2, priority=3), 0)
    core.receive(1, frame(101, to=2, priority=4), 0)
    core.receive(2, pfc({3: 0}), 777_000)
    assert sent(core, 777_000) == [(777_000, 2, 100)]
    assert core.tm.read_state("paused_ns", 2 * 8 + 3) == 777
    assert core.tm.read_state("pause_left", 2 * 8 + 4) > 0  # the other stays


def test_resume_of_a_priority_that_is_not_paused_is_nothing() -> None:
    core = make()
    core.receive(2, pfc({3: 0}), 0)
    assert core.tm.read_state("pause_count", 19) == 0
    assert core.next_deadline() is None


def test_a_clear_bit_says_nothing_whatever_its_time() -> None:
    core = make()
    core.receive(2, pfc({3: 500}), 0)
    core.receive(1, frame(to=2, priority=3), 0)
    core.receive(1, frame(101, to=2, priority=5), 0)
    core.receive(2, pfc({3: 0, 5: 65535}, vector=0), 100)  # time 0 with a clear bit is no resume, 65535 no pause
    assert sent(core, 100) == [(0, 2, 101)]
    core.receive(1, frame(102, to=2, priority=5), 200)
    assert sent(core, 200) == [(200, 2, 102)]
    assert core.next_deadline() == quanta_ps(500, 10 * G)


def test_pauses_of_one_port_end_each_at_its_own_time() -> None:
    core = make()
    core.tm.set_port(2, 100 * G)
    times = {n: 10 * (n + 1) for n in range(8)}
    core.receive(2, pfc(times), 0)
    for n in range(8):
        core.receive(1, frame(60, to=2, priority=n), 0)
    expected = [(quanta_ps(times[n], 100 * G), 2, 60) for n in range(8)]
    assert sent(core, 10**9) == expected  # one caller, late: each still at its own time
    assert [core.tm.read_state("paused_ns", 16 + n) for n in range(8)] == [start // 1000 for start, _, _ in expected]


def test_a_second_pause_after_the_first_ended_counts_again() -> None:
    core = make()
    core.receive(2, pfc({3: 10}), 0)
    core.receive(2, pfc({3: 10}), quanta_ps(10, 10 * G) - 1)
    core.receive(2, pfc({3: 10}), 10**9)
    core.advance(2 * 10**9)
    assert core.tm.read_state("pause_count", 19) == 2
    assert core.tm.read_state("paused_ns", 19) == (2 * quanta_ps(10, 10 * G) - 1 + quanta_ps(10, 10 * G)) // 1000


def test_a_frame_on_the_wire_is_finished() -> None:
    core = make()
    core.tm.set_port(2, G)
    core.receive(1, frame(1000, to=2, priority=3), 0)
    core.receive(1, frame(1001, to=2, priority=3), 0)
    core.advance(0)
    core.receive(2, pfc({3: 100}), 10)
    outs = core.outputs()
    assert [(out.start_ps, out.end_ps) for out in outs] == [(0, wire_ps(1000, G))]
    assert core.next_deadline() == 10 + quanta_ps(100, G)


def test_queue_map_says_which_queue_a_priority_stops() -> None:
    core = make()
    core.tm.set_pfc(2, queue_map=sum((7 if n in (1, 2) else n) << (3 * n) for n in range(8)))
    core.receive(2, pfc({1: 10, 2: 20}), 0)
    for queue in (1, 2, 7):
        core.receive(1, frame(100 + queue, to=2, priority=queue), 0)
    assert sent(core, 0) == [(0, 2, 102), (0, 2, 101)]
    end = quanta_ps(20, 10 * G)  # closed while either is paused
    assert sent(core, 10**9) == [(end, 2, 107)]
    # changed while paused: the gate moves with it
    core.receive(2, pfc({1: 1000}), 10**9)
    core.receive(1, frame(60, to=2, priority=7), 10**9)
    assert sent(core, 10**9) == []
    core.tm.set_pfc(2)
    assert sent(core, 10**9) == [(10**9, 2, 60)]


def congested(rate: int, quanta: int = 65535) -> SwitchCore:
    """Group 3 of port 1 is one frame short of XOFF."""
    core = make()
    core.tm.set_priority_group(1, 3, StaticGroup(0, 1_000, 500, 10_000, 1 << 3))
    core.tm.set_pfc(1, tx_enable=1 << 3, quanta=quanta)
    core.tm.set_port(1, rate)
    core.tm.block_port(2, True)
    core.receive(1, frame(900, to=2, priority=3, pg=3, flags=LOSSLESS), 0)
    return core


def test_pfc_waits_for_the_frame_on_the_wire_and_goes_before_every_queue() -> None:
    core = congested(G)
    core.tm.set_scheduler(1, 7, Strict())
    for _ in range(3):
        core.receive(5, frame(1500, to=1, priority=7), 0)
    core.advance(0)
    core.receive(1, frame(100, to=2, priority=3, pg=3, flags=LOSSLESS), 1_000)
    one = wire_ps(1500, G)
    assert one == 12_192_000
    core.advance(10**9)
    outs = core.outputs()
    assert [(out.start_ps, is_pfc(out.frame)) for out in outs] == [
        (0, False),
        (one, True),
        (one + wire_ps(60, G), False),
        (2 * one + wire_ps(60, G), False),
    ]
    assert wire_ps(60, G) == 672_000


def test_pfc_is_not_paused() -> None:
    core = congested(10 * G)
    core.receive(1, pfc(dict.fromkeys(range(8), 65535)), 0)
    core.receive(1, frame(100, to=2, priority=3, pg=3, flags=LOSSLESS), 5)
    core.advance(5)
    assert [(out.port, out.start_ps, read_pfc(out.frame)) for out in core.outputs()] == [(1, 5, {3: 65535})]


def test_pfc_does_not_count_as_queued() -> None:
    core = congested(10 * G)
    core.receive(1, frame(100, to=2, priority=3, pg=3, flags=LOSSLESS), 5)
    core.advance(5)
    assert all(core.tm.read_counter("enqueued", 8 + n).packets == 0 for n in range(8))
    assert core.stats()["pfc_made"] == 1


def test_pending_pfc_merges_what_happens_while_it_waits() -> None:
    """XOFF of priority 3, then of 4, while one frame is on the wire: one PFC frame with both."""
    core = congested(G)
    core.tm.set_priority_group(1, 4, StaticGroup(0, 200, 50, 10_000, 1 << 4))
    core.tm.set_pfc(1, tx_enable=0b11000, quanta=123)
    core.receive(5, frame(1500, to=1), 0)
    core.advance(0)
    core.receive(1, frame(100, to=2, priority=3, pg=3, flags=LOSSLESS), 1_000)
    core.receive(1, frame(200, to=2, priority=4, pg=4, flags=LOSSLESS), 2_000)
    core.advance(13_000_000)
    assert [read_pfc(out.frame) for out in core.outputs() if is_pfc(out.frame)] == [{3: 123, 4: 123}]


@pytest.mark.parametrize("rate", [10 * G, 40 * G, 100 * G])
def test_refresh_interval_is_half_the_quanta_from_start_to_start(rate: int) -> None:
    core = congested(rate, quanta=1000)
    core.receive(1, frame(100, to=2, priority=3, pg=3, flags=LOSSLESS), 0)
    interval = 500 * 512 * 10**12 // rate
    core.advance(10 * interval)
    assert [out.start_ps for out in core.outputs()] == [n * interval for n in range(11)]


def test_tiny_quanta_do_not_fill_the_link_with_pfc() -> None:
    core = congested(G, quanta=1)
    core.receive(1, frame(100, to=2, priority=3, pg=3, flags=LOSSLESS), 0)
    core.advance(10_000_000)
    starts = [out.start_ps for out in core.outputs()]
    assert starts == [n * 2 * wire_ps(60, G) for n in range(len(starts))]
    assert len(starts) == 8


def test_hot_plug_makes_no_false_pfc() -> None:
    core = make()
    core.tm.set_priority_group(1, 3, StaticGroup(0, 1_000, 500, 10_000, 0xFF))
    core.tm.set_pfc(1, tx_enable=0xFF, quanta=65535)
    core.tm.remove_port(1)
    core.tm.add_port(1)
    assert core.next_deadline() is None
    core.receive(1, frame(900, to=2, pg=3, flags=LOSSLESS), 0)
    core.advance(10**12)
    assert [out.port for out in core.outputs()] == [2]
    fresh_tm_state(core)

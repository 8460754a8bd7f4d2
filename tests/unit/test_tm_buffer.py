"""Ingress accounting at its edges: XOFF, headroom, XON, thresholds, limits, reconfiguration; nothing leaks."""

from __future__ import annotations

import pytest
from l2_core import LOSSLESS, frame, fresh_tm_state, is_pfc, make, pfc, read_pfc

from switch.api import CounterValue
from switch.core import (
    DynamicGroup,
    DynamicLimit,
    StaticGroup,
    StaticLimit,
    SwitchCore,
    SwitchCoreError,
)

XOFF, XON, HEADROOM, RESERVED = 10_000, 4_000, 3_000, 1_000
PG3 = 1 * 8 + 3  # priority group 3 of port 1, where everything comes in
Q3 = 2 * 8 + 3  # queue 3 of port 2, where it would leave


def lossless_core(priorities: int = 1 << 3, tx_enable: int = 1 << 3) -> SwitchCore:
    core = make()
    core.tm.set_priority_group(1, 3, StaticGroup(RESERVED, XOFF, XON, HEADROOM, priorities))
    core.tm.set_pfc(1, tx_enable=tx_enable, quanta=1000)
    core.tm.set_port(1, 10**10)
    core.tm.block_port(2, True)
    return core


def fill(core: SwitchCore, total: int, size: int = 100, now: int = 0) -> None:
    """Lossless bytes into group 3, `size` at a time, the rest in one last frame of at least 22 bytes."""
    while total:
        length = size if total >= size + 22 or total == size else total
        length = min(length, total)
        core.receive(1, frame(length, to=2, priority=3, pg=3, flags=LOSSLESS), now)
        total -= length


def held(core: SwitchCore) -> int:
    return core.tm.read_state("pg_depth", PG3)


def drops(core: SwitchCore) -> dict[str, int]:
    kinds = ("drop_queue_limit", "drop_pg_limit", "drop_headroom", "drop_pool", "drop_port", "drop_rx")
    found: dict[str, int] = {}
    for kind in kinds:
        for index in range(10 * 8):
            count = core.tm.read_counter(kind, index)
            if count.packets:
                found[f"{kind}[{index}]"] = count.packets
    return found


def drain(core: SwitchCore) -> None:
    """Opens port 2 and runs until nothing is due."""
    core.tm.block_port(2, False)
    for _ in range(100_000):
        deadline = core.next_deadline()
        if deadline is None:
            return
        core.advance(deadline)
    raise AssertionError("the core does not come to rest")


@pytest.mark.parametrize(("total", "told"), [(XOFF - 1, False), (XOFF, True), (XOFF + 1, True)])
def test_xoff_is_sent_at_the_threshold_and_not_a_byte_before(total: int, told: bool) -> None:
    core = lossless_core()
    fill(core, total)
    core.advance(0)
    assert held(core) == total
    assert [read_pfc(out.frame) for out in core.outputs()] == ([{3: 1000}] if told else [])
    assert core.tm.read_state("pg_xoff", PG3) == told
    drain(core)
    assert drops(core) == {}
    fresh_tm_state(core)


def test_headroom_takes_its_last_byte_and_then_drops_in_that_group_alone() -> None:
    core = lossless_core()
    fill(core, XOFF + HEADROOM)
    assert held(core) == XOFF + HEADROOM
    assert core.tm.read_state("pg_headroom", PG3) == HEADROOM
    assert core.tm.read_state("pool_used", 0) == XOFF - RESERVED
    assert drops(core) == {}
    core.receive(1, frame(22, to=2, priority=3, pg=3, flags=LOSSLESS), 0)
    assert drops(core) == {f"drop_headroom[{PG3}]": 1}
    assert core.tm.read_counter("drop_headroom", PG3) == CounterValue(1, 22)
    # another group of the same port, and the same group of another port, go on
    core.receive(1, frame(500, to=2, priority=0, pg=0), 0)
    core.receive(4, frame(500, to=2, priority=3, pg=3), 0)
    assert core.tm.read_state("queue_depth", 2 * 8) == 500
    assert core.tm.read_state("pg_depth", 4 * 8 + 3) == 500
    assert drops(core) == {f"drop_headroom[{PG3}]": 1}
    assert core.tm.read_state("pg_watermark", PG3) == XOFF + HEADROOM
    assert core.tm.read_state("pg_headroom_watermark", PG3) == HEADROOM
    assert core.tm.read_state("queue_watermark", Q3) == XOFF + HEADROOM + 500
    drain(core)
    fresh_tm_state(core)


def test_a_lossy_packet_never_touches_headroom() -> None:
    core = lossless_core()
    fill(core, XOFF - 50)
    core.receive(1, frame(100, to=2, priority=3, pg=3), 0)
    assert core.tm.read_state("pg_headroom", PG3) == 0
    assert drops(core) == {f"drop_pg_limit[{PG3}]": 1}
    drain(core)
    fresh_tm_state(core)


def test_bytes_split_over_reserved_shared_and_headroom_and_return_in_reverse() -> None:
    core = lossless_core()
    core.tm.block_port(2, False)
    core.tm.set_port(2, 10**9)
    core.receive(1, frame(XOFF - 9_000, to=2, priority=3, pg=3, flags=LOSSLESS), 0)
    assert core.tm.read_state("pool_used", 0) == 0  # all of it reserved
    core.receive(1, frame(9_100, to=2, priority=3, pg=3, flags=LOSSLESS), 0)  # 9,000 shared, 100 headroom
    assert core.tm.read_state("pool_used", 0) == 9_000
    assert core.tm.read_state("pg_headroom", PG3) == 100
    core.advance(0)  # the first 1,000 bytes leave: headroom first, then shared
    assert core.tm.read_state("pg_headroom", PG3) == 0
    assert core.tm.read_state("pool_used", 0) == 8_100
    assert held(core) == 9_100
    drain(core)
    fresh_tm_state(core)


def test_resume_is_sent_when_in_use_falls_to_xon() -> None:
    core = lossless_core()
    core.tm.set_port(2, 10**9)
    fill(core, XOFF + HEADROOM)  # 130 frames of 100 bytes, 992 ns each on the wire
    core.advance(0)
    assert [read_pfc(out.frame) for out in core.outputs()] == [{3: 1000}]
    core.tm.set_pfc(1, tx_enable=1 << 3, quanta=65535)  # no refresh in the time that this takes
    core.tm.block_port(2, False)
    at_4100 = 88 * 992_000  # the 89th frame starts
    core.advance(at_4100)
    assert held(core) == XON + 100
    assert not [out for out in core.outputs() if out.port == 1]
    core.advance(at_4100 + 992_000)
    told = [out for out in core.outputs() if out.port == 1]
    assert [(out.start_ps, read_pfc(out.frame)) for out in told] == [(at_4100 + 992_000, {3: 0})]
    assert held(core) == XON
    drain(core)
    assert not [out for out in core.outputs() if is_pfc(out.frame)]
    fresh_tm_state(core)


def test_xoff_is_repeated_at_half_the_quanta_while_it_lasts() -> None:
    core = lossless_core()
    fill(core, XOFF)
    half = 500 * 512 * 10**12 // 10**10  # 25.6 us
    core.advance(3 * half - 1)
    assert [(out.start_ps, read_pfc(out.frame)) for out in core.outputs()] == [(n * half, {3: 1000}) for n in range(3)]
    assert core.next_deadline() == 3 * half
    drain(core)
    assert [read_pfc(out.frame) for out in core.outputs() if out.port == 1] == [{3: 0}]
    fresh_tm_state(core)


def test_a_pending_frame_that_lost_its_reason_is_not_sent() -> None:
    """XOFF and XON while a frame is on the wire: the peer has been told nothing, so there is nothing to say."""
    core = lossless_core()
    core.tm.set_port(1, 10**9)
    core.receive(5, frame(1500, to=1), 0)
    core.advance(0)  # 12.192 us on the wire
    fill(core, XOFF, now=1_000_000)
    core.tm.block_port(2, False)
    core.advance(2_000_000)
    assert held(core) == 0
    core.advance(10**9)
    assert not [out for out in core.outputs() if is_pfc(out.frame)]
    fresh_tm_state(core)


def test_resume_goes_only_to_priorities_that_were_told() -> None:
    core = lossless_core(priorities=0b1100, tx_enable=0b1000)
    fill(core, XOFF)
    core.advance(0)
    core.tm.set_pfc(1, tx_enable=0b1100, quanta=1000)  # priority 2 as well, while XOFF
    core.advance(10**5)
    core.tm.set_pfc(1, tx_enable=0b0100, quanta=1000)  # priority 3 is let go
    core.advance(10**6)
    assert [read_pfc(out.frame) for out in core.outputs()] == [{3: 1000}, {2: 1000, 3: 1000}, {2: 1000, 3: 0}]
    drain(core)
    assert [read_pfc(out.frame) for out in core.outputs() if out.port == 1] == [{2: 0}]
    fresh_tm_state(core)


def test_no_pfc_is_sent_where_it_is_not_enabled() -> None:
    core = lossless_core(tx_enable=0)
    fill(core, XOFF + HEADROOM)
    core.advance(10**9)
    assert core.outputs() == []
    drain(core)
    fresh_tm_state(core)


@pytest.mark.parametrize(("alpha", "expected"), [(-2, 20_000), (-1, 33_333), (0, 50_000), (1, 66_666), (3, 88_888)])
def test_dynamic_threshold_settles_where_the_formula_says(alpha: int, expected: int) -> None:
    """Alone, a group grows to S * a / (1 + a) with a = 2^alpha, to within a packet."""
    core = make()
    core.tm.set_pool(100_000)
    core.tm.set_queue(2, 0, StaticLimit(1_000_000))
    core.tm.set_priority_group(1, 0, DynamicGroup(alpha=alpha))
    core.tm.block_port(2, True)
    for _ in range(2_000):
        core.receive(1, frame(60, to=2), 0)
    used = core.tm.read_state("pool_used", 0)
    assert abs(used - expected) < 60
    assert used == core.tm.read_state("pg_depth", 8)
    rejected = core.tm.read_counter("drop_pg_limit", 8).packets + core.tm.read_counter("drop_pool", 8).packets
    assert rejected == 2_000 - used // 60
    drain(core)
    fresh_tm_state(core)


def test_second_dynamic_group_gets_alpha_of_what_is_left() -> None:
    core = make()
    core.tm.set_pool(100_000)
    core.tm.block_port(2, True)
    core.tm.set_queue(2, 0, StaticLimit(1_000_000))
    for port in (1, 3):
        core.tm.set_priority_group(port, 0, DynamicGroup(alpha=0))
        for _ in range(1_000):
            core.receive(port, frame(100, to=2), 0)
    assert core.tm.read_state("pg_depth", 1 * 8) == 50_000
    assert core.tm.read_state("pg_depth", 3 * 8) == 25_000
    drain(core)
    fresh_tm_state(core)


def test_dynamic_xoff_and_xon_follow_the_free_pool() -> None:
    core = make()
    core.tm.set_pool(100_000)
    core.tm.set_port(1, 10**10)
    core.tm.set_priority_group(1, 3, DynamicGroup(0, -1, 3_000, 20_000, 1 << 3))
    core.tm.set_pfc(1, tx_enable=1 << 3, quanta=65535)
    core.tm.block_port(2, True)
    fill(core, 33_300)  # 33,300 < (100,000 - 33,300) / 2 = 33,350
    core.advance(0)
    assert core.outputs() == []
    fill(core, 100)  # 50 shared, then the threshold (100,000 - 33,350) / 2 = 33,325 is passed
    core.advance(0)
    assert [read_pfc(out.frame) for out in core.outputs()] == [{3: 65535}]
    assert core.tm.read_state("pg_headroom", PG3) == 50
    assert core.tm.read_state("pool_used", 0) == 33_350
    # a larger pool raises the threshold with no packet of the group moving: (200,000 - 33,350) / 2 - 3,000 > 33,400
    core.tm.set_pool(200_000)
    core.advance(10**6)
    assert [read_pfc(out.frame) for out in core.outputs()] == [{3: 0}]
    drain(core)
    fresh_tm_state(core)


def test_xon_of_a_waiting_group_comes_when_another_group_gives_bytes_back() -> None:
    core = make()
    core.tm.set_pool(100_000)
    core.tm.set_port(1, 10**10)
    core.tm.set_priority_group(1, 3, DynamicGroup(0, -3, 0, 20_000, 1 << 3))
    core.tm.set_pfc(1, tx_enable=1 << 3, quanta=65535)
    core.tm.block_port(2, True)
    core.tm.block_port(4, True)
    core.tm.set_queue(4, 0, StaticLimit(1_000_000))
    for _ in range(500):
        core.receive(3, frame(100, to=4), 0)  # 50,000 of the pool, from another port to another port
    fill(core, 5_600)  # threshold about (100,000 - 50,000 - 5,600) / 8 = 5,550
    core.advance(0)
    assert [read_pfc(out.frame) for out in core.outputs()] == [{3: 65535}]
    core.tm.block_port(4, False)
    core.advance(10**6)
    assert [read_pfc(out.frame) for out in core.outputs() if out.port == 1] == [{3: 0}]
    assert held(core) == 5_600
    drain(core)
    fresh_tm_state(core)


def test_the_pool_as_limit_has_its_own_reason() -> None:
    core = make()
    core.tm.set_pool(1_000)
    core.tm.set_priority_group(1, 0, StaticGroup(0, 50_000, 0, 0, 0))
    core.tm.block_port(2, True)
    for _ in range(11):
        core.receive(1, frame(100, to=2), 0)
    assert drops(core) == {f"drop_pool[{8}]": 1}
    drain(core)
    fresh_tm_state(core)


def test_static_queue_limit_is_for_lossy_packets_to_the_byte() -> None:
    core = make()
    core.tm.set_queue(2, 5, StaticLimit(1_000))
    core.tm.set_priority_group(1, 3, StaticGroup(0, 50_000, 0, 0, 0))
    core.tm.block_port(2, True)
    for _ in range(9):
        core.receive(1, frame(100, to=2, priority=5), 0)
    core.receive(1, frame(101, to=2, priority=5), 0)
    assert drops(core) == {f"drop_queue_limit[{2 * 8 + 5}]": 1}
    core.receive(1, frame(100, to=2, priority=5), 0)
    assert core.tm.read_state("queue_depth", 2 * 8 + 5) == 1_000
    core.receive(1, frame(100, to=2, priority=5, pg=3, flags=LOSSLESS), 0)  # not subject to it
    assert core.tm.read_state("queue_depth", 2 * 8 + 5) == 1_100
    assert drops(core) == {f"drop_queue_limit[{2 * 8 + 5}]": 1}
    drain(core)
    fresh_tm_state(core)


def test_dynamic_queue_limit() -> None:
    core = make()
    core.tm.set_pool(100_000)
    core.tm.set_priority_group(1, 0, StaticGroup(0, 90_000, 0, 0, 0))
    core.tm.set_queue(2, 0, DynamicLimit(-1))
    core.tm.block_port(2, True)
    for _ in range(600):
        core.receive(1, frame(100, to=2), 0)
    assert core.tm.read_state("queue_depth", 16) == 33_300
    assert core.tm.read_counter("drop_queue_limit", 16).packets == 600 - 333
    drain(core)
    fresh_tm_state(core)


def test_lossless_without_headroom_still_pauses_when_it_must_drop() -> None:
    core = make()
    core.tm.set_priority_group(1, 3, StaticGroup(0, 1_000, 500, 0, 1 << 3))
    core.tm.set_pfc(1, tx_enable=1 << 3, quanta=65535)
    core.tm.block_port(2, True)
    fill(core, 950)
    core.receive(1, frame(100, to=2, priority=3, pg=3, flags=LOSSLESS), 0)  # 950 + 100 > 1,000, and 950 < XOFF
    core.advance(0)
    assert drops(core) == {f"drop_headroom[{PG3}]": 1}
    assert [read_pfc(out.frame) for out in core.outputs()] == [{3: 65535}]
    drain(core)
    assert [read_pfc(out.frame) for out in core.outputs() if out.port == 1] == [{3: 0}]
    fresh_tm_state(core)


def test_reconfiguration_with_packets_in_queues_keeps_every_byte() -> None:
    core = lossless_core()
    fill(core, XOFF + 2_000)
    groups = [
        StaticGroup(5_000, 6_000, 0, 100, 1 << 3),
        DynamicGroup(0, -8, 0, 0, 1 << 3),
        StaticGroup(12_000, 20_000, 0, 0, 1 << 3),
        DynamicGroup(100, 7, 0, 50_000, 0),
        StaticGroup(0, 1, 0, 0, 0xFF),
        StaticGroup(0, 1, 0, 11_000, 0xFF),
    ]
    used = []
    for group in groups:
        core.tm.set_priority_group(1, 3, group)
        core.tm.check()
        assert held(core) == XOFF + 2_000
        used.append((core.tm.read_state("pool_used", 0), core.tm.read_state("pg_headroom", PG3)))
    # what is shared stays so, and what is over goes to the pool: headroom is for what is on its way
    assert used == [(7_000, 0), (12_000, 0), (0, 0), (11_900, 0), (12_000, 0), (12_000, 0)]
    core.tm.set_pool(10)
    core.tm.set_pool(16 << 20)
    drain(core)
    fresh_tm_state(core)


def test_a_lowered_threshold_leaves_all_headroom_to_what_is_on_its_way() -> None:
    core = lossless_core()
    fill(core, XOFF - 1_000)
    core.tm.set_priority_group(1, 3, StaticGroup(RESERVED, 5_000, XON, HEADROOM, 1 << 3))
    assert (core.tm.read_state("pg_xoff", PG3), core.tm.read_state("pg_headroom", PG3)) == (1, 0)
    fill(core, HEADROOM)
    assert (held(core), core.tm.read_state("pg_headroom", PG3)) == (XOFF - 1_000 + HEADROOM, HEADROOM)
    core.tm.set_priority_group(1, 3, StaticGroup(RESERVED, 5_000, XON, HEADROOM, 1 << 3))
    assert core.tm.read_state("pg_headroom", PG3) == HEADROOM
    core.tm.set_priority_group(1, 3, StaticGroup(RESERVED, XOFF, XON, HEADROOM, 1 << 3))  # room for 1,000 more
    assert core.tm.read_state("pg_headroom", PG3) == HEADROOM - 1_000
    assert drops(core) == {}
    drain(core)
    fresh_tm_state(core)


def test_a_group_that_is_xon_again_has_all_its_headroom() -> None:
    """Another group leaves the pool: the threshold rises over what a group holds, some of it in headroom. It resumes,
    and the next time that it crosses the threshold as much may be on its way as the first time."""
    core = make((1, 2, 3, 4))
    core.tm.set_pool(200_000)
    for port in (1, 3):
        core.tm.set_priority_group(port, 3, DynamicGroup(0, 0, 5_000, 30_000, 1 << 3))
        core.tm.set_pfc(port, tx_enable=1 << 3, quanta=1000)
    core.tm.block_port(2, True)
    core.tm.block_port(4, True)

    def arrive(port: int, to: int, count: int) -> None:
        for _ in range(count):
            core.receive(port, frame(1_000, to=to, priority=3, pg=3, flags=LOSSLESS), core.now_ps)

    arrive(3, 4, 90)
    arrive(1, 2, 55)  # 110,000 are free, 55,000 in use: XOFF
    assert core.tm.read_state("pg_xoff", PG3) == 1
    arrive(1, 2, 30)
    assert core.tm.read_state("pg_headroom", PG3) == 30_000
    core.tm.block_port(4, False)
    core.advance(core.now_ps + 10**9)
    assert (core.tm.read_state("pg_xoff", PG3), core.tm.read_state("pg_headroom", PG3)) == (0, 0)
    assert core.tm.read_state("pool_used", 0) == 85_000
    arrive(1, 2, 15)  # 100,000 of 200,000: XOFF
    assert (core.tm.read_state("pg_xoff", PG3), core.tm.read_state("pg_headroom", PG3)) == (1, 0)
    arrive(1, 2, 30)
    assert drops(core) == {}
    arrive(1, 2, 1)
    assert drops(core) == {f"drop_headroom[{PG3}]": 1}
    core.tm.block_port(2, False)
    core.advance(core.now_ps + 10**9)
    fresh_tm_state(core)


def test_headroom_in_use_is_xoff_where_others_have_emptied_the_pool() -> None:
    """The peer is told with the first byte of headroom, not when the threshold is reached and headroom is full."""
    core = lossless_core()
    core.tm.set_pool(5_000)
    core.tm.set_priority_group(4, 0, StaticGroup(0, 5_000, 4_000, 0, 0))
    core.receive(4, frame(3_000, to=2, priority=0), 0)
    fill(core, RESERVED + 2_000)
    assert core.tm.read_state("pg_xoff", PG3) == 0
    fill(core, 100)
    assert (core.tm.read_state("pg_xoff", PG3), core.tm.read_state("pg_headroom", PG3)) == (1, 100)
    fill(core, HEADROOM - 100)
    core.tm.set_pool(5_100)  # 100 bytes of headroom become shared
    assert (core.tm.read_state("pg_xoff", PG3), core.tm.read_state("pg_headroom", PG3)) == (1, HEADROOM - 100)
    core.tm.set_pool(10_000)
    assert (core.tm.read_state("pg_xoff", PG3), core.tm.read_state("pg_headroom", PG3)) == (1, 0)  # more than XON
    assert drops(core) == {}
    drain(core)
    fresh_tm_state(core)


def test_removing_a_port_drops_what_is_queued_for_it_and_gives_the_bytes_back() -> None:
    core = lossless_core()
    fill(core, XOFF)
    core.advance(0)
    assert [read_pfc(out.frame) for out in core.outputs()] == [{3: 1000}]
    core.tm.remove_port(2)
    assert core.tm.read_counter("drop_port", Q3) == CounterValue(100, XOFF)
    core.advance(10**6)
    assert [read_pfc(out.frame) for out in core.outputs()] == [{3: 0}]
    fresh_tm_state(core)
    core.receive(1, frame(100, to=2, priority=3), 0)
    assert core.tm.read_counter("drop_port", Q3) == CounterValue(101, XOFF + 100)
    core.tm.add_port(2)
    core.receive(1, frame(100, to=2, priority=3), 10**6)
    core.advance(10**6)
    assert [out.port for out in core.outputs()] == [2]
    fresh_tm_state(core)


def test_port_that_the_peer_paused_is_not_paused_when_it_returns() -> None:
    core = make()
    core.receive(2, pfc({3: 65535}), 0)
    core.tm.remove_port(2)
    core.tm.add_port(2)
    core.receive(1, frame(100, to=2, priority=3), 0)
    core.advance(0)
    assert len(core.outputs()) == 1


def test_cleared_watermark_starts_from_what_is_held() -> None:
    core = lossless_core()
    fill(core, 5_000)
    core.tm.block_port(2, False)
    core.tm.set_port(2, 10**9)
    core.advance(992_000 * 20)
    assert core.tm.read_state("queue_watermark", Q3) == 5_000
    core.tm.clear_watermark("queue_watermark", Q3)
    core.tm.clear_watermark("pg_watermark", PG3)
    assert core.tm.read_state("queue_watermark", Q3) == core.tm.read_state("queue_depth", Q3) == 2_900
    assert core.tm.read_state("pg_watermark", PG3) == 2_900
    drain(core)
    core.tm.clear_counter("enqueued", Q3)
    assert core.tm.read_counter("enqueued", Q3) == CounterValue(0, 0)
    assert core.tm.read_counter("dequeued", Q3) == CounterValue(50, 5_000)


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda tm: tm.set_port(1, 800_000_000_001), "rate_bps 800000000001 must be 0..800000000000"),
        (lambda tm: tm.set_port(512, 1), "port 512 must be 0..511"),
        (lambda tm: tm.set_pfc(1, tx_enable=8, quanta=0), "quanta 0 must be 1..65535"),
        (lambda tm: tm.set_priority_group(1, 8, DynamicGroup()), "pg 8 must be 0..7"),
        (lambda tm: tm.set_priority_group(1, 0, StaticGroup(0, 5, 5, 0, 0)), "xon 5 must be less than xoff 5"),
        (lambda tm: tm.set_priority_group(1, 0, StaticGroup(6, 5, 0, 0, 0)), "xoff 5 must not be less than reserved 6"),
        (lambda tm: tm.set_priority_group(1, 0, DynamicGroup(alpha=17)), "alpha 17 must be -16..16"),
        (lambda tm: tm.set_queue(1, 0, DynamicLimit(-17)), "alpha -17 must be -16..16"),
        (lambda tm: tm.set_pool(2**32), "pool size 4294967296 must be 0..4294967295"),
        (lambda tm: tm.read_state("nothing", 0), "unknown kind nothing"),
        (lambda tm: tm.clear_watermark("pg_depth", 0), "pg_depth is not a watermark"),
        (lambda tm: tm.add_port(1), "port 1 exists"),
        (lambda tm: tm.add_port(510), "port 510 exists, or is the CPU"),
        (lambda tm: tm.remove_port(100), "port 100 does not exist"),
    ],
)
def test_values_out_of_range_are_refused_with_the_rule(call: object, rule: str) -> None:
    core = make()
    with pytest.raises(SwitchCoreError, match=rule):
        call(core.tm)  # type: ignore[operator]

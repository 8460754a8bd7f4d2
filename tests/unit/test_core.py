"""Switch core by injection: what a packet's requests do, metadata, CPU port, events, order of things."""

from __future__ import annotations

import os
import select

import pytest
from l2_core import (
    CLONE_E2E,
    CLONE_I2E,
    DIGEST,
    EGRESS_DROP,
    LOSSLESS,
    PRESERVE,
    PUSH,
    RECIRCULATE,
    RESUBMIT,
    STAMP,
    TRUNCATE,
    frame,
    fresh_tm_state,
    is_pfc,
    library,
    make,
    pfc,
    stamp,
    tag_of,
)

from switch.api import CounterValue
from switch.core import DigestData, PacketIn, StaticGroup, SwitchCore, SwitchCoreError

REENTRY_PS = 100_000  # core.h: 100 ns
NORMAL, I2E, E2E, RECIRC, REPLICATION, RESUBMITTED = 0, 1, 2, 4, 5, 6


def conserved(core: SwitchCore) -> None:
    """What came in or was made equals what left, was dropped or is held."""
    s = core.stats()
    made = s["received"] + s["copies"] + s["pfc_made"] + s["events_made"]
    gone = sum(s[name] for name in s if name.endswith("dropped")) + s["transmitted"] + s["to_cpu"]
    assert made == gone + core.packets_held, s


def test_unicast_carries_the_frame_unchanged_and_bmv2_metadata() -> None:
    core = make()
    data = frame(120, to=2, priority=5, flags2=STAMP, tag=0xABCDEF)
    core.tm.block_port(2, True)
    core.receive(1, data, 3_000_000)
    core.receive(1, data, 5_000_000)
    core.advance(9_000_000)
    core.tm.block_port(2, False)
    core.advance(9_000_000)
    first, second = core.outputs()
    assert first.frame[:22] == data[:22]
    assert first.frame[60:] == data[60:]
    s = stamp(second.frame)
    assert (s.instance, s.egress_port, s.ingress_port, s.length, s.priority) == (NORMAL, 2, 1, 120, 5)
    assert (s.enq_bytes, s.enq_packets, s.deq_bytes, s.deq_packets) == (120, 1, 0, 0)
    assert (s.enq_us, s.wait_us) == (5, 4)
    s = stamp(first.frame)
    assert (s.enq_bytes, s.enq_packets, s.deq_bytes, s.deq_packets) == (0, 0, 120, 1)
    assert (s.enq_us, s.wait_us) == (3, 6)
    assert core.tm.read_counter("enqueued", 2 * 8 + 5) == CounterValue(2, 240)
    assert core.tm.read_counter("dequeued", 2 * 8 + 5) == CounterValue(2, 240)
    conserved(core)
    fresh_tm_state(core)


def test_what_was_due_before_a_frame_is_done_before_it() -> None:
    """An arrival at t sees the queues as they are after everything before t, and before anything at t."""
    core = make()
    core.tm.set_port(2, 10**9)
    for at in (0, 500_000, 500_000, 992_000):
        core.receive(1, frame(100, to=2, flags2=STAMP), at)
    core.advance(10**9)
    assert [stamp(out.frame).enq_packets for out in core.outputs()] == [0, 0, 1, 2]


def test_time_never_runs_backwards() -> None:
    core = make()
    core.receive(1, frame(to=2), 1_000_000)
    core.receive(1, frame(to=2), 10)
    core.advance(2_000_000)
    assert [out.start_ps for out in core.outputs()] == [1_000_000, 1_000_000]
    assert core.now_ps == 2_000_000


def test_ingress_drop_and_egress_drop() -> None:
    core = make()
    core.receive(1, frame(to=511), 0)
    core.receive(1, b"\x00" * 14, 0)
    core.receive(1, b"", 0)
    core.receive(1, frame(to=2, flags=EGRESS_DROP), 0)
    core.receive(1, frame(101, to=2), 0)
    core.advance(0)
    assert [len(out.frame) for out in core.outputs()] == [101]
    assert (core.stats()["ingress_dropped"], core.stats()["egress_dropped"]) == (3, 1)
    conserved(core)
    fresh_tm_state(core)


def test_egress_drop_takes_no_wire_time() -> None:
    core = make()
    core.tm.set_port(2, 10**9)
    core.receive(1, frame(1000, to=2, flags=EGRESS_DROP), 0)
    core.receive(1, frame(100, to=2), 0)
    core.advance(0)
    assert [(out.start_ps, out.end_ps) for out in core.outputs()] == [(0, 124 * 8000)]


def test_multicast_copies_with_rid_and_instance_replication() -> None:
    core = make()
    core.pre.set_multicast_group(77, [(2, 5), (3, 6), (3, 7), (4, 0)])
    data = frame(90, to=511, group=77, flags2=STAMP, priority=2, pg=1)
    core.receive(1, data, 0)
    assert core.tm.read_state("pg_depth", 1 * 8 + 1) == 4 * 90  # each copy holds buffer of the port it came from
    core.advance(0)
    outs = core.outputs()
    assert [(out.port, stamp(out.frame).rid, stamp(out.frame).instance) for out in outs] == [
        (2, 5, REPLICATION),
        (3, 6, REPLICATION),
        (3, 7, REPLICATION),
        (4, 0, REPLICATION),
    ]
    assert {stamp(out.frame).priority for out in outs} == {2}
    core.pre.set_multicast_group(77, [(2, 1)])
    core.receive(1, data, 1)
    core.pre.delete_multicast_group(77)
    core.receive(1, data, 2)  # an unknown group: no copies
    core.advance(2)
    assert len(core.outputs()) == 1
    conserved(core)
    fresh_tm_state(core)
    with pytest.raises(SwitchCoreError, match="multicast group 77 does not exist"):
        core.pre.delete_multicast_group(77)


def test_clone_in_ingress_is_parsed_anew_from_the_original_bytes() -> None:
    core = make()
    core.pre.set_clone_session(1, [(6, 9)])
    core.receive(1, frame(90, to=2, priority=4, flags=CLONE_I2E, flags2=STAMP), 0)
    core.receive(1, frame(91, to=2, priority=4, flags=CLONE_I2E | PRESERVE, flags2=STAMP), 0)
    core.advance(0)
    by_port: dict[int, list[bytes]] = {2: [], 6: []}
    for out in core.outputs():
        by_port[out.port].append(out.frame)
    assert [(stamp(f).instance, stamp(f).priority, stamp(f).keep) for f in by_port[2]] == [(NORMAL, 4, 0xA5)] * 2
    clones = [stamp(f) for f in by_port[6]]
    assert [(s.instance, s.priority, s.keep, s.rid) for s in clones] == [(I2E, 0, 0, 9), (I2E, 0, 0xA5, 9)]
    assert [s.length for s in clones] == [90, 91]
    conserved(core)
    fresh_tm_state(core)


def test_clone_of_a_dropped_packet_and_class_of_service_and_length() -> None:
    core = make()
    core.pre.set_clone_session(1, [(6, 0), (7, 1)], cos=5, length=64)
    core.receive(1, frame(500, to=511, flags=CLONE_I2E, flags2=STAMP), 0)
    core.advance(0)
    outs = core.outputs()
    assert [(out.port, len(out.frame), stamp(out.frame).priority) for out in outs] == [(6, 64, 5), (7, 64, 5)]
    assert core.tm.read_counter("enqueued", 6 * 8 + 5).packets == 1
    core.pre.delete_clone_session(1)
    core.receive(1, frame(500, to=2, flags=CLONE_I2E), 0)  # a session that is not there: no clone
    core.advance(0)
    assert [out.port for out in core.outputs()] == [2]
    conserved(core)


def test_clone_in_egress_keeps_headers_and_clears_metadata() -> None:
    core = make()
    core.pre.set_clone_session(2, [(6, 3)])
    core.receive(1, frame(90, to=2, priority=4, flags=CLONE_E2E, flags2=STAMP), 0)
    core.receive(1, frame(90, to=2, priority=4, flags=CLONE_E2E | PRESERVE | EGRESS_DROP, flags2=STAMP), 0)
    core.advance(0)
    outs = core.outputs()
    assert [out.port for out in outs] == [2, 6]  # the second original is dropped, and so is its clone
    s = stamp(outs[1].frame)
    assert (s.instance, s.rid, s.keep, s.priority, s.egress_port) == (E2E, 3, 0, 0, 6)
    conserved(core)
    fresh_tm_state(core)


def test_resubmit_enters_ingress_again_with_preserved_fields() -> None:
    core = make()
    core.receive(1, frame(90, to=2, flags=RESUBMIT, flags2=STAMP), 1_000)
    core.receive(1, frame(91, to=2, flags=RESUBMIT | PRESERVE, flags2=STAMP), 1_000)
    assert core.next_deadline() == 1_000 + REENTRY_PS
    core.advance(1_000 + REENTRY_PS)
    outs = core.outputs()
    assert [(stamp(out.frame).keep, stamp(out.frame).ingress_port, out.start_ps) for out in outs] == [
        (0, 1, 1_000 + REENTRY_PS),
        (0xA5, 1, 1_000 + REENTRY_PS),
    ]
    assert core.stats()["reentered"] == 2
    conserved(core)
    fresh_tm_state(core)


def test_recirculate_enters_ingress_with_the_deparsed_frame() -> None:
    core = make()
    core.receive(1, frame(90, to=2, flags=RECIRCULATE | PRESERVE, flags2=STAMP), 0)
    core.advance(0)
    assert core.outputs() == []
    core.advance(REENTRY_PS)
    (out,) = core.outputs()
    s = stamp(out.frame)
    assert (s.keep, s.length, s.ingress_port) == (0x5A, 90, 1)
    conserved(core)
    fresh_tm_state(core)


def test_recirculated_frames_that_grow_find_room() -> None:
    """Each round puts four bytes in front, which makes the frame no test frame: it is dropped at the next ingress."""
    core = make()
    for length in (60, 255, 256, 257, 2047, 2048, 9728):
        core.receive(1, frame(length, to=2, flags=RECIRCULATE, flags2=PUSH), 0)
    core.advance(REENTRY_PS)
    assert core.stats()["reentered"] == 7
    assert core.stats()["ingress_dropped"] == 7
    conserved(core)
    fresh_tm_state(core)


def test_deparser_may_grow_the_frame_and_the_wire_carries_what_it_made() -> None:
    core = make()
    core.tm.set_port(2, 10**9)
    core.receive(1, frame(9728, to=2, flags2=PUSH), 0)
    core.receive(1, frame(100, to=2, flags2=TRUNCATE), 0)
    core.advance(10**9)
    outs = core.outputs()
    assert [len(out.frame) for out in outs] == [9732, 40]
    assert outs[0].frame[:4] == b"\xee" * 4
    assert outs[1].start_ps == (9732 + 24) * 8000


def test_cpu_port_has_no_queue_and_no_rate() -> None:
    core = make()
    poll = select.poll()
    poll.register(core.event_fd, select.POLLIN)
    assert poll.poll(0) == []
    data = frame(80, to=510, tag=4)
    core.receive(1, data, 0)
    assert poll.poll(0)  # no advance needed
    assert core.events() == [PacketIn(data)]
    assert poll.poll(0) == []
    assert core.events() == []
    core.receive(510, frame(to=2, tag=9), 0)  # packet-out
    core.advance(0)
    assert [(out.port, tag_of(out.frame)) for out in core.outputs()] == [(2, 9)]
    conserved(core)


def test_digests_and_packet_ins_in_order() -> None:
    core = make()
    core.receive(1, frame(to=2, flags=DIGEST, tag=1), 0)
    core.receive(1, frame(to=510, flags=DIGEST, tag=2), 0)
    one, two, packet = core.events()
    assert one == DigestData(7, bytes([0, 0, 0, 0, 0, 1]))
    assert two == DigestData(7, bytes([0, 0, 0, 0, 0, 2]))
    assert isinstance(packet, PacketIn)


def test_a_flood_of_digests_leaves_room_for_packet_ins_and_is_counted() -> None:
    core = make()
    for _ in range(60_000):  # 40 bytes each: 2 MiB hold 52,428
        core.receive(1, frame(22, to=511, flags=DIGEST), 0)
    core.receive(1, frame(80, to=510), 0)
    events = core.events()
    assert isinstance(events[-1], PacketIn)
    assert len(events) - 1 == 2 * 1024 * 1024 // 40
    assert core.events_lost == 60_000 - (len(events) - 1)


def test_packet_ins_beyond_the_ring_are_dropped_and_counted() -> None:
    core = make()
    for _ in range(500):
        core.receive(1, frame(9000, to=510), 0)
    n = len(core.events())
    assert n == 4 * 1024 * 1024 // 9032
    assert core.tm.read_counter("drop_queue_limit", 510 * 8) == CounterValue(500 - n, (500 - n) * 9000)
    conserved(core)


def test_frames_too_long_are_counted_and_not_parsed() -> None:
    core = make()
    assert core.receive(1, bytes(9728), 0)
    assert not core.receive(1, bytes(9729), 0)
    assert core.tm.read_counter("drop_rx", 1 * 8 + 1) == CounterValue(1, 9729)
    conserved(core)


def test_priority_beyond_the_queues_is_dropped_as_bmv2_does() -> None:
    core = make(priority_queues=2)
    for priority in range(8):
        core.receive(1, frame(to=2, priority=priority), 0)
    core.advance(0)
    assert len(core.outputs()) == 2
    assert [core.tm.read_counter("drop_port", 16 + n).packets for n in range(8)] == [0, 0, 1, 1, 1, 1, 1, 1]
    conserved(core)


def test_a_program_without_tm_runs_with_defaults() -> None:
    core = SwitchCore.from_library(library(defines=("WITHOUT_TM",)))
    core.tm.add_port(1)
    core.tm.add_port(2)
    core.tm.set_pfc(1, tx_enable=0xFF, quanta=100)
    core.tm.set_priority_group(1, 0, StaticGroup(0, 100, 50, 0, 0xFF))
    core.receive(1, frame(100, to=2, priority=6, pg=3, flags=LOSSLESS), 0)
    assert core.tm.read_state("pg_depth", 8) == 100
    core.receive(2, pfc({6: 65535}), 0)
    core.advance(10**9)
    outs = core.outputs()
    assert [(out.port, out.frame[16]) for out in outs] == [(2, 6)]  # no pause, and no PFC that it could not build
    assert core.next_deadline() is None
    assert not [out for out in outs if is_pfc(out.frame)]


def test_creation_refuses_what_cannot_be() -> None:
    with pytest.raises(SwitchCoreError, match=r"cpu_port 511, drop_port 511: two different ports of 0..511"):
        make(cpu_port=511)
    with pytest.raises(SwitchCoreError, match=r"priority_queues 9: 1..8"):
        make(priority_queues=9)


def test_replicas_are_checked() -> None:
    core = make()
    with pytest.raises(SwitchCoreError, match=r"port 600 must be 0..511"):
        core.pre.set_multicast_group(1, [(600, 0)])
    with pytest.raises(SwitchCoreError, match=r"multicast group 0 must be 1..65535"):
        core.pre.set_multicast_group(0, [])
    with pytest.raises(SwitchCoreError, match=r"class of service 8 must be 0..7"):
        core.pre.set_clone_session(1, [], cos=8)


def test_a_closed_core_gives_everything_back() -> None:
    core = make()
    core.tm.block_port(2, True)
    core.pre.set_multicast_group(1, [(2, 0)] * 10)
    for _ in range(100):
        core.receive(1, frame(300, group=1), 0)
        core.receive(1, frame(300, to=3), 0)
        core.receive(1, frame(300, to=3, flags=RESUBMIT), 0)
    core.advance(0)
    fd = core.event_fd
    core.close()
    core.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_bench_counts_what_left() -> None:
    core = make()
    ns, sent = core.bench([(port, frame(to=port % 8 + 1)) for port in range(1, 9)], 10_000)
    assert sent == 10_000
    assert ns > 0
    fresh_tm_state(core)

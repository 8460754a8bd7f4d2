"""What a driver does with the NIC: raw frames both ways, carrier, what DCBX agrees on, marks of a running flow."""

from __future__ import annotations

import pytest
from nic_pair import MAC, US, Pair, config, wire_ps

from dcb.pfc import build_pfc, parse_pfc, pfc_frame
from hosts.nic import UNGATED, FlowState, NicError, connect_rdma
from hosts.nic_config import ENDLESS, EventKind, NicDcb, RdmaConfig, ReceiveBuffer
from hosts.packets import read

FULL = 14 + 20 + 8 + 12 + 1024 + 4  # RoCEv2, RDMA WRITE Middle, 1024 bytes of payload
QUANTUM_PS = 5120  # 512 bit times at 100 Gb/s
LLDP = bytes.fromhex("0180c200000e02000000020188cc") + bytes(range(1, 61))
WITH_RAW = frozenset({EventKind.STARTED, EventKind.FINISHED, EventKind.PAUSED, EventKind.RAW, EventKind.LINK})


def pause(quanta: int, *priorities: int) -> bytes:
    return build_pfc(pfc_frame(bytes.fromhex(MAC[1].replace(":", "")), dict.fromkeys(priorities or (3,), quanta)))


def endless(pair: Pair, **more: object) -> None:
    connect_rdma(*pair.nics, RdmaConfig(bytes=ENDLESS, **more))  # type: ignore[arg-type]


# --- raw frames


def test_a_frame_without_gate_passes_pauses_and_goes_behind_the_frame_on_the_wire() -> None:
    pair = Pair(config(0, pfc_rx=frozenset(range(8))))
    endless(pair)
    pair.run(10 * US)
    on_wire = pair.sent[0][-1]
    assert on_wire.start_ps < 10 * US < on_wire.end_ps
    assert pair.nics[0].send(LLDP, 10 * US)
    pair.run(11 * US)
    sent = next(s for s in pair.sent[0] if s.frame == LLDP)
    assert (sent.start_ps, sent.end_ps) == (on_wire.end_ps, on_wire.end_ps + wire_ps(len(LLDP)))
    pair.put(0, pause(65535, *range(8)), 20 * US)
    pair.run(30 * US)
    assert pair.nics[0].send(LLDP, 30 * US, priority=UNGATED)
    assert pair.nics[0].send(LLDP, 30 * US, priority=7)
    pair.run(31 * US)
    assert [s.start_ps for s in pair.sent[0] if s.start_ps > 21 * US] == [30 * US]  # that of priority 7 waits


def test_a_frame_of_a_priority_waits_at_its_gate_and_goes_before_data() -> None:
    pair = Pair()
    endless(pair)
    pair.put(0, pause(1000), 10 * US)
    pair.run(11 * US)
    first = pair.sent[0][-1].frame
    pair.nics[0].send(LLDP[:30], 11 * US, priority=3)
    pair.run(20 * US)
    resumed = 10 * US + 1000 * QUANTUM_PS
    after = [s for s in pair.sent[0] if s.start_ps >= 11 * US]
    assert (after[0].start_ps, after[0].frame) == (resumed, LLDP[:30] + bytes(30))
    # nothing of it is left in the data that follows
    assert after[1].start_ps == resumed + wire_ps(60)
    assert (len(after[1].frame), after[1].frame[54:-4]) == (FULL, bytes(1024))
    assert first[:14] == after[1].frame[:14]
    stats = pair.nics[0].stats()
    assert (stats.raw_tx, stats.raw_tx_drop) == (1, 0)


def test_raw_frames_that_wait_are_bounded_and_in_order() -> None:
    pair = Pair(config(0, pfc_rx=frozenset({5})))
    pair.put(0, pause(65535, 5), 0)
    pair.run(1)
    frames = [LLDP + bytes([i & 255, i >> 8]) for i in range(257)]
    assert [pair.nics[0].send(f, US, priority=5) for f in frames] == [True] * 256 + [False]
    pair.put(0, pause(0, 5), 2 * US)
    pair.run()
    assert [s.frame for s in pair.sent[0]] == frames[:256]
    assert pair.sent[0][-1].end_ps == 2 * US + 256 * wire_ps(len(frames[0]))
    assert pair.nics[0].stats().raw_tx_drop == 1
    for frame, priority in ((b"short", 0), (bytes(9217), 0), (LLDP, 9)):
        with pytest.raises(NicError, match=r"must be"):
            pair.nics[0].send(frame, 3 * US, priority=priority)


def test_what_is_nobodys_is_handed_up_with_its_time() -> None:
    pair = Pair(b=config(1, events=WITH_RAW, notify=frozenset({EventKind.RAW})))
    to_us = bytes.fromhex((MAC[1] + MAC[0]).replace(":", "")) + b"\x08\x06" + bytes(46)
    to_another = b"\x02\0\0\0\0\x09" + to_us[6:]
    connect_rdma(*pair.nics, RdmaConfig(bytes=1000))  # ours: not handed up
    for at, frame in ((30, LLDP), (20, to_us), (40, to_another)):
        pair.put(1, frame, at)
    pair.run()
    assert pair.nics[1].frames() == [(20, to_us), (30, LLDP)]
    assert pair.nics[1].frames() == []
    events = [(e.time_ps, e.flow, e.value) for e in pair.nics[1].events() if e.kind is EventKind.RAW]
    assert events == [(20, 0x0806, len(to_us)), (30, 0x88CC, len(LLDP))]
    stats = pair.nics[1].stats()
    assert (stats.raw_rx, stats.rx_other, stats.rx_not_ours) == (2, 2, 1)


def test_what_nobody_takes_is_lost_beyond_256_and_kept_only_on_request() -> None:
    pair = Pair(b=config(1, events=WITH_RAW))
    for i in range(300):
        pair.put(0, LLDP, i)
        pair.put(1, LLDP, i)
    pair.run()
    assert pair.nics[1].stats().raw_rx_lost == 44
    assert [at for at, _ in pair.nics[1].frames()] == list(range(256))
    assert (pair.nics[0].frames(), pair.nics[0].stats().rx_other) == ([], 300)


# --- carrier


def test_a_nic_without_carrier_sends_nothing_and_goes_on_where_it_stopped() -> None:
    pair = Pair(config(0, events=WITH_RAW))
    connect_rdma(*pair.nics, RdmaConfig(bytes=100 * 1024))
    pair.run(2 * US)
    sent = len(pair.sent[0])
    pair.nics[0].set_link(False, 2 * US)
    pair.nics[0].set_link(False, 2 * US)
    assert not pair.nics[0].send(LLDP, 3 * US)
    pair.run(50 * US)
    assert len(pair.sent[0]) == sent
    pair.nics[0].set_link(True, 50 * US)
    pair.run()
    assert pair.sent[0][sent].start_ps == 50 * US
    assert pair.nics[0].flow(0).state is FlowState.FINISHED
    assert pair.nics[0].flow(0).packets_resent == 0  # the pair delivers what was on the wire
    assert [(e.time_ps, e.value) for e in pair.nics[0].events() if e.kind is EventKind.LINK] == [
        (2 * US, 0),
        (50 * US, 1),
    ]


def test_timers_of_flows_run_without_carrier() -> None:
    pair = Pair(change=lambda end, number, frame: None if end == 0 and number == 2 else frame)
    connect_rdma(*pair.nics, RdmaConfig(bytes=3 * 1024, rto_ps=100 * US))  # the last packet is lost
    pair.run(10 * US)
    pair.nics[0].set_link(False, 10 * US)
    pair.run(500 * US)
    assert pair.nics[0].flow(0).timeouts == 5  # 100 us after the first packet, and every 100 us on
    pair.nics[0].set_link(True, 500 * US)
    pair.run()
    assert [s.start_ps for s in pair.sent[0]][3:] == [
        500 * US,
        500 * US + wire_ps(FULL + 16),
        500 * US + wire_ps(FULL + 16) + wire_ps(FULL),
    ]
    assert pair.nics[0].flow(0).state is FlowState.FINISHED


def test_a_link_that_goes_down_forgets_pauses_both_ways() -> None:
    buffer = ReceiveBuffer(xoff_bytes=20_000, xon_bytes=10_000)
    pair = Pair(b=config(1, buffer=buffer))
    endless(pair)
    pair.nics[1].set_drain(0, 0, stalled=True)
    pair.run(20 * US)
    assert pair.nics[0].stats().pauses[3] == 1
    told = len(pair.sent[1])
    for nic in pair.nics:
        nic.set_link(False, 20 * US)
    began = next(e.time_ps for e in pair.nics[0].events() if e.kind is EventKind.PAUSED)
    assert pair.nics[0].stats().paused_ps[3] == 20 * US - began
    pair.run(30 * US)
    assert len(pair.sent[1]) == told
    for nic in pair.nics:
        nic.set_link(True, 30 * US)
    pair.run(31 * US)
    assert pair.sent[1][told].start_ps == 30 * US  # its buffer is still full: the peer hears it at once
    assert parse_pfc(pair.sent[1][told].frame).requests == {3: 65535}
    assert next(s.start_ps for s in pair.sent[0] if s.start_ps >= 20 * US) == 30 * US
    assert pair.nics[0].stats().pauses[3] == 2


# --- what DCBX agrees on


def test_pauses_end_with_pfc_and_the_peer_is_told_xon() -> None:
    buffer = ReceiveBuffer(xoff_bytes=20_000, xon_bytes=10_000)
    pair = Pair(b=config(1, buffer=buffer))
    endless(pair)
    pair.nics[1].set_drain(0, 0, stalled=True)
    pair.run(20 * US)
    pair.nics[0].set_dcb(NicDcb(frozenset({4})), 20 * US)
    pair.nics[1].set_dcb(NicDcb(frozenset({4})), 21 * US)
    pair.run(40 * US)
    assert next(s.start_ps for s in pair.sent[0] if s.start_ps >= 10 * US) == 20 * US
    last = pair.sent[1][-1]
    assert (last.start_ps, parse_pfc(last.frame).requests) == (21 * US, {3: 0})
    pair.nics[1].set_dcb(NicDcb(frozenset({3})), 40 * US)  # its buffer is full
    pair.run(41 * US)
    assert (pair.sent[1][-1].start_ps, parse_pfc(pair.sent[1][-1].frame).requests) == (40 * US, {3: 65535})


def test_priorities_of_a_class_share_its_weight_and_take_turns() -> None:
    pair = Pair(config(0, dscp_to_priority={}))
    for priority in (0, 1, 3, 6):
        bytes_ = 100_000 if priority == 6 else ENDLESS
        connect_rdma(*pair.nics, RdmaConfig(bytes=bytes_, priority=priority, dscp=0, reliable=False, mtu_bytes=1000))
    classes = (0, 0, 0, 1, 0, 0, 2, 0)
    pair.nics[0].set_dcb(NicDcb(frozenset({3}), classes, {0: 40, 1: 60}), 0)
    pair.run(100 * US)
    order = [read(s.frame).queue_pair for s in pair.sent[0]]
    assert order[:100] == [0x103] * 100  # class 2 is strict
    # 2 of 5 frames of equal length, whichever priorities they are of
    assert [order[100:][i : i + 5].count(0x102) for i in range(0, 500, 5)] == [3] * 100
    of_class = [qp for qp in order[100:] if qp != 0x102]
    assert of_class == [0x100 + i % 2 for i in range(len(of_class))]
    with pytest.raises(NicError, match=r"priority_to_tc\[7\]: 8 is out of range"):
        pair.nics[0].set_dcb(NicDcb(frozenset(), (*range(7), 8)), 100 * US)
    with pytest.raises(ValueError, match="class 0 with weight 0"):
        pair.nics[0].set_dcb(NicDcb(frozenset(), weights={0: 0}), 100 * US)


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_running_flow_moves_its_marks(moved: int) -> None:
    """Of three that wait for their turn, the first, the middle or the last."""
    pair = Pair()
    for _ in range(3):
        connect_rdma(*pair.nics, RdmaConfig(bytes=100 * 1024))
    pair.put(0, pause(65535), 2 * US)
    pair.run(10 * US)
    pair.nics[0].set_marks(moved, 10 * US, dscp=34, priority=4)
    pair.run(20 * US)
    assert {s.frame[15] >> 2 for s in pair.sent[0] if s.start_ps >= 10 * US} == {34}
    assert {read(s.frame).queue_pair for s in pair.sent[0] if s.start_ps >= 10 * US} == {0x100 + moved}
    pair.put(0, pause(0), 20 * US)
    pair.run()
    assert [f.state for f in pair.nics[0].flows()] == [FlowState.FINISHED] * 3
    assert sum(f.packets_resent for f in pair.nics[0].flows()) == 0
    assert pair.nics[0].stats().tx_frames_prio[4] > 0
    for frame in (s.frame for s in pair.sent[0]):
        assert read(frame).kind == "roce"
    with pytest.raises(NicError, match="flow 9: is no RDMA flow"):
        pair.nics[0].set_marks(9, 10**9, dscp=0, priority=0)
    with pytest.raises(NicError, match="dscp 64, priority 4"):
        pair.nics[0].set_marks(0, 10**9, dscp=64, priority=4)

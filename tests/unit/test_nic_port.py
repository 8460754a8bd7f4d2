"""The NIC's port: exact serialisation, PFC honoured and sent, scheduler, receive buffer, storm."""

from __future__ import annotations

from itertools import pairwise

import pytest
from nic_pair import DELAY_PS, GBPS, MAC, US, Pair, Sent, config, wire_ps

from dcb.pfc import PauseFrame, PfcFrame, build_pause, build_pfc, parse_pfc, pfc_frame
from hosts.nic import EventKind, NicError, connect_rdma, connect_tcp
from hosts.nic_config import ENDLESS, RdmaConfig, ReceiveBuffer, TcpConfig
from hosts.packets import read

FULL = 14 + 20 + 8 + 12 + 1024 + 4  # RoCEv2, RDMA WRITE Middle, 1024 bytes of payload
QUANTUM_PS = 5120  # 512 bit times at 100 Gb/s
MAC_BYTES = bytes.fromhex(MAC[1].replace(":", ""))


def pause(quanta: int, priority: int = 3) -> bytes:
    return build_pfc(pfc_frame(MAC_BYTES, {priority: quanta}))


def pfc_sent(sent: list[Sent]) -> list[tuple[int, PfcFrame]]:
    return [(s.start_ps, parse_pfc(s.frame)) for s in sent if read(s.frame).kind == "pfc"]


def endless(pair: Pair, **more: object) -> None:
    connect_rdma(*pair.nics, RdmaConfig(bytes=ENDLESS, **more))  # type: ignore[arg-type]


def test_frames_are_back_to_back_at_the_wire_rate() -> None:
    pair = Pair()
    connect_rdma(*pair.nics, RdmaConfig(bytes=10 * 1024 + 1, start_ps=777))
    pair.run()
    lengths = [FULL + 16, *[FULL] * 9, FULL - 1024 + 4]  # RETH in the first; one byte is padded to four
    assert [len(s.frame) for s in pair.sent[0]] == lengths
    at = 777
    for sent, length in zip(pair.sent[0], lengths, strict=True):
        assert (sent.start_ps, sent.end_ps) == (at, at + wire_ps(length))
        at = sent.end_ps


@pytest.mark.parametrize("rate_bps", [3 * GBPS, 400 * GBPS, 7 * GBPS + 1])
def test_a_rate_that_does_not_divide_is_exact_over_time(rate_bps: int) -> None:
    pair = Pair(config(0, rate_bps), config(1, rate_bps))
    connect_rdma(*pair.nics, RdmaConfig(bytes=100_000, window_bytes=0))
    pair.run()
    bits = 0
    for sent in pair.sent[0]:
        assert sent.start_ps == bits * 10**12 // rate_bps
        bits += (len(sent.frame) + 24) * 8


def test_a_pause_lasts_its_quanta_and_the_frame_on_the_wire_is_finished() -> None:
    pair = Pair()
    endless(pair)
    pair.put(0, pause(100), 10 * US)
    pair.run(20 * US)
    starts = [s.start_ps for s in pair.sent[0]]
    assert max(s for s in starts if s < 10 * US) + wire_ps(FULL) > 10 * US  # one was on the wire
    assert min(s for s in starts if s >= 10 * US) == 10 * US + 100 * QUANTUM_PS
    stats = pair.nics[0].stats()
    assert stats.paused_ps[3] == 100 * QUANTUM_PS
    assert (stats.pauses[3], stats.xoff_rx[3], stats.rx_pfc) == (1, 1, 1)
    events = [(e.time_ps, e.kind, e.flow, e.value) for e in pair.nics[0].events() if e.kind is not EventKind.STARTED]
    assert events == [
        (10 * US, EventKind.PAUSED, 3, 100),
        (10 * US + 100 * QUANTUM_PS, EventKind.RESUMED, 3, 100 * QUANTUM_PS),
    ]


def test_the_longest_pause_at_40_gbps_is_838_84_us() -> None:
    """65535 quanta at 40 Gb/s: the figure of sonic-mgmt's GLOBAL_PAUSE test (reference/dcb.md, 5)."""
    pair = Pair(config(0, 40 * GBPS), config(1, 40 * GBPS))
    endless(pair)
    pair.put(0, pause(65535), 0)
    pair.run(900 * US)
    assert pair.sent[0][0].start_ps == 838_848_000


def test_a_new_time_replaces_the_running_one_and_zero_resumes() -> None:
    pair = Pair()
    endless(pair)
    for quanta, at in ((65535, 0), (10, 1 * US), (65535, 2 * US), (0, 3 * US)):
        pair.put(0, pause(quanta), at)
    pair.run(4 * US)
    starts = [s.start_ps for s in pair.sent[0]]
    assert starts[0] == 1 * US + 10 * QUANTUM_PS
    assert next(s for s in starts if s >= 2 * US) == 3 * US
    assert pair.nics[0].stats().xon_rx[3] == 1


def test_a_pause_stops_its_priority_only_and_only_an_enabled_one() -> None:
    pair = Pair()
    connect_tcp(*pair.nics, TcpConfig(bytes=10_000))
    connect_rdma(*pair.nics, RdmaConfig(bytes=10_000))
    pair.put(0, pause(65535, 3), 0)
    pair.put(0, pause(65535, 0), 0)  # pfc_rx is {3}: counted, not obeyed
    pair.run(50 * US)
    assert {read(s.frame).kind for s in pair.sent[0]} == {"tcp"}
    assert pair.nics[0].stats().xoff_rx == (1, 0, 0, 1, 0, 0, 0, 0)
    pair.put(0, pause(0, 3), 60 * US)
    pair.run()
    assert [f.bytes_acked for f in pair.nics[0].flows()] == [10_000, 10_000]


def test_invalid_frames_are_counted_by_reason_and_change_nothing() -> None:
    pair = Pair()
    endless(pair)
    good = pause(65535)
    bad = [b"\x02" + good[1:], good[:-1], good[:-1] + b"\1"]  # destination, length, pad
    bad += [good[:15] + b"\x02" + good[16:], good[:17] + b"\0" + good[18:]]  # opcode, zero vector
    for at, frame in enumerate(bad):
        pair.put(0, frame, at)
    pair.put(0, build_pause(PauseFrame(MAC_BYTES, 65535)), 10)  # PAUSE is not enabled
    pair.run(2 * US)
    stats = pair.nics[0].stats()
    assert stats.pfc_invalid == (1, 1, 1, 1, 1)  # destination, length, pad, opcode, zero vector
    assert (stats.rx_pause, stats.pauses) == (1, (0,) * 8)
    assert pair.sent[0][1].start_ps == wire_ps(FULL + 16)


def test_a_slow_receiver_pauses_its_peer_and_loses_nothing() -> None:
    """100 Gb/s in, 10 Gb/s out: XOFF at 50 kB, then what was under way still comes; XON at 20 kB."""
    slow = ReceiveBuffer(drain_bps=10 * GBPS, bytes=70_000, xoff_bytes=50_000, xon_bytes=20_000)
    pair = Pair(b=config(1, buffer=slow))
    connect_rdma(*pair.nics, RdmaConfig(bytes=1_000_000))
    pair.run()
    stats = pair.nics[1].stats()
    assert pair.nics[1].flow(0).rx_bytes == 1_000_000
    assert (stats.rx_drop, stats.rx_used_bytes) == (0, 0)
    # after the XOFF: a frame each that was being sent here and there, twice the cable, the PFC frame; at 100 Gb/s
    late_ps = 2 * wire_ps(FULL) + 2 * DELAY_PS + wire_ps(60)
    assert 50_000 < stats.rx_peak_bytes <= 50_000 + FULL + late_ps * 100 // 8000
    requests = [frame.requests for _, frame in pfc_sent(pair.sent[1])]
    assert requests[:2] == [{3: 65535}, {3: 0}]
    assert all(set(r) == {3} for r in requests)
    assert stats.xoff_tx[3] == stats.xon_tx[3] == len(requests) // 2
    # the drain is busy from the first frame's arrival on: the last byte leaves it at exactly its rate
    total_bits = sum(len(s.frame) for s in pair.sent[0]) * 8
    first = pair.sent[0][0].end_ps - pair.gap_ps(0) + DELAY_PS
    assert pair.nics[1].flow(0).rx_last_ps == first + total_bits * 100


def test_without_pfc_the_same_buffer_overflows() -> None:
    slow = ReceiveBuffer(drain_bps=10 * GBPS, bytes=60_000, xoff_bytes=50_000, xon_bytes=20_000)
    pair = Pair(b=config(1, buffer=slow, pfc_tx=frozenset()))
    connect_rdma(*pair.nics, RdmaConfig(bytes=100 * 1024, reliable=False))
    pair.run()
    stats = pair.nics[1].stats()
    assert stats.tx_pfc == 0
    assert stats.rx_drop + pair.nics[1].flow(0).rx_packets == 100
    assert stats.rx_drop == stats.rx_drop_prio[3] > 30
    assert stats.rx_drop_bytes == stats.rx_drop * FULL


def test_xoff_is_refreshed_after_half_its_time_while_the_host_is_stuck() -> None:
    buffer = ReceiveBuffer(xoff_bytes=20_000, xon_bytes=10_000)
    pair = Pair(b=config(1, buffer=buffer, pfc_quanta=1000))
    endless(pair)
    pair.nics[1].set_drain(0, 0, stalled=True)
    pair.run(20 * US)
    starts = [at for at, _ in pfc_sent(pair.sent[1])]
    assert len(starts) > 5
    assert {b - a for a, b in pairwise(starts)} == {500 * QUANTUM_PS}
    peer = pair.nics[0].stats()
    assert peer.pauses[3] == 1
    held = pair.nics[1].stats().rx_used_bytes
    assert held >= 20_000
    pair.nics[1].set_drain(0, 20 * US)
    pair.run(22 * US)
    assert pair.nics[1].stats().rx_used_bytes == 0
    assert pfc_sent(pair.sent[1])[-1][1].requests == {3: 0}
    assert pair.nics[0].stats().xon_rx[3] == 1


def test_a_storm_pauses_at_its_interval_until_it_ends() -> None:
    pair = Pair()
    endless(pair)
    pair.nics[1].storm((3, 4), 5 * US, quanta=65535, start_ps=1 * US, until_ps=20 * US)
    pair.run(500 * US)
    frames = pfc_sent(pair.sent[1])
    assert [at for at, _ in frames] == [1 * US, 6 * US, 11 * US, 16 * US]
    assert {tuple(frame.requests.items()) for _, frame in frames} == {((3, 65535), (4, 65535))}
    until = 16 * US + wire_ps(60) - pair.gap_ps(1) + DELAY_PS + 65535 * QUANTUM_PS  # no XON: the last one runs out
    began = 1 * US + wire_ps(60) - pair.gap_ps(1) + DELAY_PS
    starts = [s.start_ps for s in pair.sent[0]]
    assert min(s for s in starts if s > began) == until
    pair.nics[1].storm((), 1)
    pair.run(600 * US)
    assert len(pfc_sent(pair.sent[1])) == 4


def test_pfc_goes_ahead_of_the_queues_but_not_into_a_frame() -> None:
    pair = Pair()
    endless(pair)
    pair.nics[0].storm((3,), 100 * US, start_ps=10 * US)
    pair.run(11 * US)
    order = [read(s.frame).kind for s in pair.sent[0]]
    at = order.index("pfc")
    before = pair.sent[0][at - 1]
    assert before.start_ps < 10 * US < before.end_ps == pair.sent[0][at].start_ps


def test_strict_priorities_go_first_and_weights_share_the_rest() -> None:
    pair = Pair(config(0, weights={0: 40, 3: 60}, dscp_to_priority={}))
    for priority in (0, 3, 6):
        bytes_ = 100_000 if priority == 6 else ENDLESS
        connect_rdma(*pair.nics, RdmaConfig(bytes=bytes_, priority=priority, dscp=0, reliable=False, mtu_bytes=1000))
    pair.run(100 * US)
    kinds = [read(s.frame).queue_pair for s in pair.sent[0]]
    assert kinds[:100] == [0x102] * 100
    after = pair.nics[0].stats().tx_bytes_prio
    assert abs(after[0] / 40 - after[3] / 60) <= 1100 / 40 + 1100 / 60
    assert after[0] + after[3] > 10**6


def test_queue_pairs_of_a_priority_take_turns() -> None:
    pair = Pair()
    for _ in range(3):
        endless(pair)
    pair.run(5 * US)
    order = [read(s.frame).queue_pair for s in pair.sent[0]]
    assert order == [0x100 + i % 3 for i in range(len(order))]


def test_sampling_takes_each_running_flow_at_its_times() -> None:
    pair = Pair()
    connect_rdma(*pair.nics, RdmaConfig(bytes=1024 * 100, rate_bps=50 * GBPS))
    pair.nics[0].set_sampling(1 * US, 10 * US)
    pair.run(20 * US)
    samples = pair.nics[0].samples()
    assert [s.time_ps for s in samples] == [i * US for i in range(1, 11)]  # at 0 it was not running yet
    assert {(s.flow, s.rate_bps) for s in samples} == {(0, 50 * GBPS)}
    sent = [sum(s.start_ps < at.time_ps for s in pair.sent[0]) * 1024 for at in samples]
    assert [s.bytes_sent for s in samples] == sent


def test_settings_that_break_a_rule_are_refused_by_name() -> None:
    with pytest.raises(NicError, match="rate_bps: 1000 is out of range"):
        Pair(config(0, 1000))
    with pytest.raises(NicError, match=r"rx_xon_bytes\[3\]: 9 must be less than rx_xoff_bytes, 9"):
        Pair(config(0, buffer=ReceiveBuffer(xoff_bytes=9, xon_bytes=9)))
    pair = Pair()
    with pytest.raises(NicError, match="mtu_bytes: 9 is out of range"):
        connect_rdma(*pair.nics, RdmaConfig(bytes=1, mtu_bytes=9))
    with pytest.raises(NicError, match="DCTCP needs ECN"):
        connect_tcp(*pair.nics, TcpConfig(bytes=1, algorithm=1))  # type: ignore[arg-type]
    with pytest.raises(NicError, match="flow 7: there is none"):
        pair.nics[0].flow(7)

"""TCP senders: slow start, additive increase, fast retransmit, timeouts, ECN of Reno and DCTCP, delayed ACKs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from nic_pair import GBPS, US, Pair, config, wire_ps

from dcb.units import PS_PER_MS
from hosts.nic import FlowState, connect_tcp
from hosts.nic_config import ENDLESS, ONE_Q32, TcpAlgorithm, TcpConfig
from hosts.packets import read

MSS = 1000
SEGMENT = 54 + MSS
DCTCP = TcpConfig(bytes=ENDLESS, mss_bytes=MSS, algorithm=TcpAlgorithm.DCTCP, ecn=True, ack_every=1)
FAR_PS = 500 * US  # one way: round trips that dwarf the wire times


def far(change: Callable[[int, int, bytes], bytes | None] | None = None) -> Pair:
    return Pair(delay_ps=FAR_PS, change=change)


def sequence(frame: bytes) -> int:
    return int.from_bytes(frame[38:42], "big")


def ack(frame: bytes) -> int:
    return int.from_bytes(frame[42:46], "big")


def flags(frame: bytes) -> int:
    return frame[47]


def test_slow_start_doubles_the_window_each_round_trip() -> None:
    pair = far()
    connect_tcp(*pair.nics, TcpConfig(bytes=100 * MSS, mss_bytes=MSS, initial_window_segments=2, ack_every=1))
    pair.run()
    rounds: dict[int, int] = {}
    for sent in pair.sent[0]:
        rounds[sent.start_ps // (2 * FAR_PS)] = rounds.get(sent.start_ps // (2 * FAR_PS), 0) + 1
    assert list(rounds.values()) == [2, 4, 8, 16, 32, 38]
    assert pair.nics[0].flow(0).state is FlowState.FINISHED
    assert pair.nics[1].flow(0).rx_bytes == 100 * MSS


def test_acks_are_delayed_for_two_segments_or_their_timer() -> None:
    pair = far()
    delay = 40 * US
    connect_tcp(*pair.nics, TcpConfig(bytes=4 * MSS, mss_bytes=MSS, delayed_ack_ps=delay, initial_window_segments=3))
    pair.run()
    assert [ack(s.frame) for s in pair.sent[1]] == [2 * MSS, 3 * MSS, 4 * MSS]
    third = pair.sent[0][2].end_ps - pair.gap_ps(0) + FAR_PS
    assert pair.sent[1][1].start_ps == third + delay
    last = pair.sent[0][3].end_ps - pair.gap_ps(0) + FAR_PS
    assert pair.sent[1][2].start_ps == last  # PSH is acknowledged at once


def test_three_duplicate_acks_repair_a_loss_and_halve_the_flight() -> None:
    pair = far(change=lambda end, number, frame: None if end == 0 and number == 4 else frame)
    connect_tcp(*pair.nics, TcpConfig(bytes=60 * MSS, mss_bytes=MSS, ack_every=1))
    pair.run()
    order = [sequence(s.frame) // MSS for s in pair.sent[0]]
    again = [i for i, number in enumerate(order) if number == 4]
    assert len(again) == 2
    acks = [ack(s.frame) // MSS for s in pair.sent[1]]
    assert acks[:4] == [1, 2, 3, 4]
    assert acks[4:9] == [4] * 5  # segments 5..9
    # ACKs 1..4 opened the window from 10 to 14, for segments up to 17; seven ACKs come (the third duplicate is the last
    # of them) while seven segments leave
    assert order[: again[1]] == list(range(17))
    flow = pair.nics[0].flow(0)
    assert flow.ssthresh_bytes == (17 - 4) * MSS // 2
    assert (flow.timeouts, flow.packets_resent, flow.bytes_acked) == (0, 1, 60 * MSS)


def test_two_losses_in_a_window_are_repaired_by_partial_acks() -> None:
    pair = far(change=lambda end, number, frame: None if end == 0 and number in (2, 6) else frame)
    connect_tcp(*pair.nics, TcpConfig(bytes=40 * MSS, mss_bytes=MSS, ack_every=1))
    pair.run()
    flow = pair.nics[0].flow(0)
    assert (flow.timeouts, flow.packets_resent, flow.bytes_acked) == (0, 2, 40 * MSS)
    assert pair.nics[1].flow(0).rx_duplicates == 0


def test_congestion_avoidance_adds_one_segment_a_window() -> None:
    pair = far(change=lambda end, number, frame: None if end == 0 and number == 0 else frame)
    connect_tcp(*pair.nics, TcpConfig(bytes=ENDLESS, mss_bytes=MSS, ack_every=1))
    pair.run(6 * PS_PER_MS - 1)
    first = pair.nics[0].flow(0)
    assert first.ssthresh_bytes == 5 * MSS
    pair.run(20 * PS_PER_MS - 1)
    later = pair.nics[0].flow(0)
    assert later.ssthresh_bytes == 5 * MSS
    assert later.cwnd_bytes - first.cwnd_bytes == 14 * MSS  # 14 round trips


def test_a_timeout_starts_over_and_doubles() -> None:
    dead = [True]
    pair = far(change=lambda end, number, frame: None if dead[0] and end == 0 else frame)
    connect_tcp(*pair.nics, TcpConfig(bytes=3 * MSS, mss_bytes=MSS, rto_initial_ps=10 * PS_PER_MS))
    pair.run(35 * PS_PER_MS)
    resent = [s.start_ps for s in pair.sent[0][3:]]
    assert resent == [10 * PS_PER_MS, 30 * PS_PER_MS]
    assert pair.nics[0].flow(0).cwnd_bytes == MSS
    dead[0] = False
    pair.run()
    flow = pair.nics[0].flow(0)
    assert (flow.state, flow.timeouts) == (FlowState.FINISHED, 3)
    assert pair.sent[0][5].start_ps == 70 * PS_PER_MS


def test_round_trips_set_the_timer() -> None:
    """RFC 6298: after one sample the RTO is R + 4 R/2 = 3 R; the second flight is lost and waits that long."""
    pair = far(change=lambda end, number, frame: None if end == 0 and number == 1 else frame)
    small = TcpConfig(bytes=2 * MSS, mss_bytes=MSS, initial_window_segments=1, ack_every=1, rto_min_ps=1)
    connect_tcp(*pair.nics, small)
    pair.run()
    rtt = wire_ps(SEGMENT) - pair.gap_ps(0) + wire_ps(60) - pair.gap_ps(1) + 2 * FAR_PS
    assert pair.sent[0][1].start_ps == rtt
    assert pair.sent[0][2].start_ps == rtt + rtt + 4 * (rtt // 2)


def ce(numbers: Callable[[int], bool]) -> Callable[[int, int, bytes], bytes]:
    def change(end: int, number: int, frame: bytes) -> bytes:
        marked = end == 0 and frame[15] & 3 and numbers(number)
        return frame[:15] + bytes([frame[15] | 3]) + frame[16:] if marked else frame

    return change


def test_reno_halves_once_per_window_for_ecn_and_says_so() -> None:
    pair = far(change=ce(lambda number: number == 3))
    connect_tcp(*pair.nics, TcpConfig(bytes=60 * MSS, mss_bytes=MSS, ack_every=1, ecn=True))
    pair.run()
    echoes = [bool(flags(s.frame) & 0x40) for s in pair.sent[1]]
    cwr = [i for i, s in enumerate(pair.sent[0]) if flags(s.frame) & 0x80]
    assert len(cwr) == 1
    assert echoes.index(True) == 3
    assert echoes[3 : cwr[0]] == [True] * (cwr[0] - 3)  # until the CWR comes
    assert not any(echoes[cwr[0] :])
    flow = pair.nics[0].flow(0)
    assert flow.ssthresh_bytes == 13 * MSS // 2  # three ACKs had opened it to 13
    assert flow.packets_resent == 0
    assert {read(s.frame).ecn for s in pair.sent[0]} == {2}
    assert {read(s.frame).ecn for s in pair.sent[1]} == {0}


@pytest.mark.parametrize(("every", "limit"), [(1, Fraction(1)), (4, Fraction(1, 4))])
def test_dctcp_alpha_tends_to_the_marked_fraction(every: int, limit: Fraction) -> None:
    pair = far(change=ce(lambda number: number % every == 0))
    connect_tcp(*pair.nics, replace(DCTCP, max_window_bytes=40 * MSS))
    pair.run(150 * PS_PER_MS)
    assert pair.nics[0].flow(0).alpha_q32 / ONE_Q32 == pytest.approx(float(limit), abs=0.08)


def test_dctcp_alpha_without_marks_decays_by_g_a_window() -> None:
    pair = far()
    connect_tcp(*pair.nics, replace(DCTCP, max_window_bytes=8 * MSS))
    pair.run(41 * PS_PER_MS - 1)
    # 40 round trips of 8 segments are acknowledged. The first window is the first segment, the second ends at the 8th;
    # then SND.NXT is 7 ahead as an ACK is looked at (RFC 8257, 3.3), for what it lets go is not sent yet
    assert pair.nics[1].flow(0).rx_packets == 41 * 8
    windows = 2 + (40 * 8 - 8) // 7
    assert pair.nics[0].flow(0).alpha_q32 / ONE_Q32 == pytest.approx((15 / 16) ** windows, abs=1e-7)


def test_the_window_bounds_what_is_in_flight() -> None:
    pair = far()
    connect_tcp(*pair.nics, TcpConfig(bytes=ENDLESS, mss_bytes=MSS, max_window_bytes=5 * MSS, ack_every=1))
    pair.run(10 * PS_PER_MS)
    assert len(pair.sent[0]) == 5 * 10


def test_throughput_is_the_wire_rate_where_nothing_is_lost() -> None:
    pair = Pair(config(0, 10 * GBPS), config(1, 10 * GBPS))
    connect_tcp(*pair.nics, TcpConfig(bytes=ENDLESS))
    pair.run(5 * PS_PER_MS)
    sent = pair.sent[0]
    rate = 1514 * 8 * 10**12 * len(sent) // 5_000_000_000
    assert rate > 0.98 * 10 * GBPS * 1514 / 1538

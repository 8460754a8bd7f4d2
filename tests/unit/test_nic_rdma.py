"""Queue pairs: go-back-N under given losses, ACKs, pacing, windows, CNPs; frames held against scapy and tshark."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from nic_pair import DELAY_PS, GBPS, US, Pair, config, wire_ps

from hosts.nic import EventKind, FlowState, connect_rdma, connect_tcp
from hosts.nic_config import ENDLESS, Dcqcn, RdmaConfig, Recovery, TcpConfig
from hosts.packets import read

FULL = 14 + 20 + 8 + 12 + 1024 + 4


def lose(end: int, *numbers: int) -> Callable[[int, int, bytes], bytes | None]:
    """The frames of `end` with these numbers are lost."""
    return lambda e, number, frame: None if e == end and number in numbers else frame


def psns(pair: Pair, end: int = 0) -> list[int]:
    return [read(s.frame).psn or 0 for s in pair.sent[end]]


def aeth(frame: bytes) -> tuple[str, int, int]:
    """(ack or nak, PSN, MSN) of an ACKNOWLEDGE."""
    assert frame[42] == 0x11
    return (
        {0x1F: "ack", 0x60: "nak"}[frame[54]],
        int.from_bytes(frame[51:54], "big"),
        int.from_bytes(frame[55:58], "big"),
    )


def test_acks_come_every_so_many_packets_and_at_the_end_of_a_message() -> None:
    pair = Pair()
    connect_rdma(*pair.nics, RdmaConfig(bytes=40 * 1024, message_bytes=20 * 1024, ack_every=8))
    pair.run()
    assert [aeth(s.frame) for s in pair.sent[1]] == [
        ("ack", 7, 0), ("ack", 15, 0), ("ack", 19, 1), ("ack", 27, 1), ("ack", 35, 1), ("ack", 39, 2),
    ]  # fmt: skip
    assert [read(s.frame).opcode for s in pair.sent[0]] == [6, *[7] * 18, 8] * 2  # First, Middle, Last
    flow = pair.nics[0].flow(0)
    done = pair.sent[1][-1].end_ps - pair.gap_ps(1) + DELAY_PS
    assert (flow.state, flow.finish_ps, flow.completion_ps) == (FlowState.FINISHED, done, done)
    assert pair.nics[1].flow(0).rx_messages == 2


def test_one_lost_packet_makes_one_nak_and_everything_from_it_on_again() -> None:
    pair = Pair(change=lose(0, 5))
    connect_rdma(*pair.nics, RdmaConfig(bytes=30 * 1024))
    pair.run()
    naks = [aeth(s.frame) for s in pair.sent[1] if aeth(s.frame)[0] == "nak"]
    assert naks == [("nak", 5, 0)]
    sent = psns(pair)
    turn = next(i for i, (a, b) in enumerate(pairwise(sent)) if b < a)
    assert sent == [*range(turn + 1), *range(5, 30)]
    sender, receiver = pair.nics[0].flow(0), pair.nics[1].flow(0)
    assert (sender.naks, sender.timeouts, sender.packets_resent) == (1, 0, turn + 1 - 5)
    assert (receiver.rx_packets, receiver.rx_bytes) == (30, 30 * 1024)
    assert receiver.rx_out_of_order == turn - 5  # what came between the loss and the turn


def test_a_lost_last_packet_waits_for_the_timer() -> None:
    pair = Pair(change=lose(0, 9))
    connect_rdma(*pair.nics, RdmaConfig(bytes=10 * 1024, ack_every=1, rto_ps=100 * US))
    pair.run()
    assert psns(pair) == [*range(10), 9]
    last_ack = pair.sent[1][8].end_ps - pair.gap_ps(1) + DELAY_PS  # of PSN 8: the timer's last start
    assert pair.sent[0][-1].start_ps == last_ack + 100 * US
    assert pair.nics[0].flow(0).timeouts == 1


def test_a_lost_ack_is_made_up_for_by_a_later_one() -> None:
    pair = Pair(change=lose(1, 0, 1))
    connect_rdma(*pair.nics, RdmaConfig(bytes=100 * 1024, ack_every=16))
    pair.run()
    flow = pair.nics[0].flow(0)
    assert (flow.packets_resent, flow.bytes_acked) == (0, 100 * 1024)


def test_a_lost_final_ack_is_repeated_for_the_duplicate() -> None:
    pair = Pair(change=lose(1, 0))
    connect_rdma(*pair.nics, RdmaConfig(bytes=3 * 1024, rto_ps=50 * US))
    pair.run()
    assert psns(pair)[:4] == [0, 1, 2, 0]
    assert pair.nics[1].flow(0).rx_duplicates >= 1
    assert pair.nics[0].flow(0).state is FlowState.FINISHED


def test_retries_end_in_a_failed_flow() -> None:
    pair = Pair(change=lambda end, number, frame: None)
    connect_rdma(*pair.nics, RdmaConfig(bytes=1024, retry_limit=3, rto_ps=10 * US))
    pair.run()
    assert [s.start_ps for s in pair.sent[0]] == [0, 10 * US, 20 * US, 30 * US]
    flow = pair.nics[0].flow(0)
    assert (flow.state, flow.finish_ps, flow.completion_ps) == (FlowState.FAILED, 40 * US, None)
    assert [e.kind for e in pair.nics[0].events()] == [EventKind.STARTED, EventKind.FAILED]


def test_more_data_does_not_put_the_timer_off() -> None:
    """Packet 2 is lost, and so is what the NAK brings again; without a window data goes on all the time."""
    copies = 0

    def lose(end: int, _: int, frame: bytes) -> bytes | None:
        nonlocal copies
        second = end == 0 and frame[36:38] == (4791).to_bytes(2, "big") and frame[51:54] == (2).to_bytes(3, "big")
        copies += second
        return None if second and copies <= 2 else frame

    pair = Pair(change=lose)
    connect_rdma(*pair.nics, RdmaConfig(bytes=4_000_000, ack_every=1, rto_ps=50 * US))
    pair.run(1000 * US)
    sender = pair.nics[0].flow(0)
    assert (copies, sender.timeouts, sender.naks) == (3, 1, 1)
    assert sender.finish_ps is not None
    assert pair.nics[1].flow(0).rx_bytes == 4_000_000


def test_psns_wrap_and_losses_across_the_wrap_are_repaired() -> None:
    pair = Pair(change=lose(0, 12))
    connect_rdma(*pair.nics, RdmaConfig(bytes=40 * 1024, initial_psn=(1 << 24) - 10, ack_every=4))
    pair.run()
    sent = psns(pair)
    assert sent[:13] == [*range((1 << 24) - 10, 1 << 24), 0, 1, 2]
    assert [aeth(s.frame)[:2] for s in pair.sent[1]][:4] == [
        ("ack", (1 << 24) - 7),
        ("ack", (1 << 24) - 3),
        ("ack", 1),
        ("nak", 2),
    ]
    assert sent[-1] == 29
    assert pair.nics[1].flow(0).rx_bytes == 40 * 1024


def test_go_back_0_sends_the_whole_message_again() -> None:
    pair = Pair(change=lose(0, 25))
    connect_rdma(*pair.nics, RdmaConfig(bytes=40 * 1024, message_bytes=20 * 1024, recovery=Recovery.GO_BACK_0))
    pair.run()
    naks = [aeth(s.frame) for s in pair.sent[1] if aeth(s.frame)[0] == "nak"]
    assert naks == [("nak", 20, 1)]
    sent = psns(pair)
    turn = next(i for i, (a, b) in enumerate(pairwise(sent)) if b < a)
    assert sent == [*range(turn + 1), *range(20, 40)]
    assert pair.nics[1].flow(0).rx_messages == 2


def test_go_back_0_is_livelocked_where_go_back_n_is_not() -> None:
    """Loss of every 256th frame, messages of 4 MB: SIGCOMM'16 saw no goodput (reference/dcb.md, 6.1)."""
    done = {}
    for recovery in Recovery:
        pair = Pair(change=lambda end, number, frame: None if end == 0 and number % 256 == 255 else frame)
        connect_rdma(*pair.nics, RdmaConfig(bytes=ENDLESS, message_bytes=4_000_000, recovery=recovery))
        pair.run(1000 * US)
        done[recovery] = pair.nics[1].flow(0).rx_messages
    assert done[Recovery.GO_BACK_0] == 0
    assert done[Recovery.GO_BACK_N] >= 2


def test_a_window_bounds_the_bytes_in_flight() -> None:
    pair = Pair()
    connect_rdma(*pair.nics, RdmaConfig(bytes=64 * 1024, window_bytes=8 * 1024))
    pair.run()
    # no ACK before the 8th packet, which asks for one
    rtt = wire_ps(FULL) - pair.gap_ps(0) + DELAY_PS + wire_ps(62) - pair.gap_ps(1) + DELAY_PS
    starts = [s.start_ps for s in pair.sent[0]]
    for i in range(8, 64, 8):
        assert starts[i] == starts[i - 1] + rtt
    assert [aeth(s.frame)[1] for s in pair.sent[1]] == list(range(7, 64, 8))


@pytest.mark.parametrize("rate_bps", [50 * GBPS, 7 * GBPS])
def test_pacing_is_exact_over_time(rate_bps: int) -> None:
    pair = Pair()
    connect_rdma(*pair.nics, RdmaConfig(bytes=200 * 1024, rate_bps=rate_bps))
    pair.run()
    bits = 0
    for sent in pair.sent[0]:
        assert sent.start_ps == bits * 10**12 // rate_bps
        bits += (len(sent.frame) + 24) * 8


def test_two_paced_flows_at_half_the_rate_fill_the_wire() -> None:
    pair = Pair()
    for _ in range(2):
        connect_rdma(*pair.nics, RdmaConfig(bytes=500 * 1024, rate_bps=50 * GBPS))
    pair.run()
    busy = sum(wire_ps(len(s.frame)) for s in pair.sent[0])
    assert pair.sent[0][-1].end_ps - busy <= wire_ps(FULL)


def test_unreliable_connections_neither_acknowledge_nor_repeat() -> None:
    pair = Pair(change=lose(0, 3, 4))
    connect_rdma(*pair.nics, RdmaConfig(bytes=10 * 1024, reliable=False))
    pair.run()
    assert [read(s.frame).opcode for s in pair.sent[0]] == [0x26, *[0x27] * 8, 0x28]
    assert pair.sent[1] == []
    receiver = pair.nics[1].flow(0)
    assert (receiver.rx_packets, receiver.rx_out_of_order) == (8, 1)
    assert pair.nics[0].flow(0).state is FlowState.FINISHED


def test_a_stopped_flow_finishes_with_what_it_has_sent() -> None:
    pair = Pair()
    connect_rdma(*pair.nics, RdmaConfig(bytes=ENDLESS, ack_every=1))
    pair.run(10 * US)
    pair.nics[0].stop_flow(0, 10 * US)
    pair.run()
    flow = pair.nics[0].flow(0)
    assert flow.state is FlowState.FINISHED
    assert flow.bytes == flow.bytes_acked == flow.bytes_sent == len(pair.sent[0]) * 1024
    # those that started before, and the one that ends the message and asks for an ACK
    assert len(pair.sent[0]) == -(-10 * US // wire_ps(FULL)) + 1
    last = pair.sent[0][-1].frame
    assert (read(last).opcode, last[50] & 0x80) == (0x08, 0x80)
    assert pair.nics[1].flow(0).rx_messages == 1


@pytest.mark.parametrize("stop_ps", [0, 1, 5_000, 123_456, 900_000, 2_000_000, 10_000_000])
@pytest.mark.parametrize("window", [0, 1024, 10_000])
def test_a_stopped_flow_sends_nothing_again_and_needs_no_timeout(stop_ps: int, window: int) -> None:
    """With an ACK every 16 packets the last ones before the stop would wait for one until the timer ends."""
    pair = Pair()
    connect_rdma(*pair.nics, RdmaConfig(bytes=ENDLESS, message_bytes=30_000, window_bytes=window))
    pair.run(stop_ps)
    pair.nics[0].stop_flow(0, stop_ps)
    pair.run()
    flow, receiver = pair.nics[0].flow(0), pair.nics[1].flow(0)
    assert flow.state is FlowState.FINISHED
    assert (flow.timeouts, flow.packets_resent, receiver.rx_duplicates) == (0, 0, 0)
    assert flow.bytes == flow.bytes_acked == flow.bytes_sent == receiver.rx_bytes


def mark(end: int, number: int, frame: bytes) -> bytes | None:
    """CE on every data frame, as a switch would: the checksum of the header is changed with it."""
    if end != 0 or frame[15] & 3 == 0:
        return frame
    assert frame[15] & 3 == 2
    checksum = int.from_bytes(frame[24:26], "big") ^ 0xFFFF
    checksum += 1
    checksum = (checksum & 0xFFFF) + (checksum >> 16) ^ 0xFFFF
    return frame[:15] + bytes([frame[15] | 3]) + frame[16:24] + checksum.to_bytes(2, "big") + frame[26:]


@pytest.mark.parametrize(("interval_ps", "profile"), [(50 * US, "paper"), (4 * US, "cx4")])
def test_cnps_are_no_closer_than_their_interval(interval_ps: int, profile: str) -> None:
    pair = Pair(change=mark)
    dcqcn = Dcqcn.named(profile, 100 * GBPS)
    connect_rdma(*pair.nics, RdmaConfig(bytes=ENDLESS, dcqcn=dcqcn))
    pair.run(400 * US)
    cnps = [s for s in pair.sent[1] if read(s.frame).kind == "cnp"]
    first = pair.sent[0][0].end_ps - pair.gap_ps(0) + DELAY_PS
    assert cnps[0].start_ps == first
    gaps = [b.start_ps - a.start_ps for a, b in pairwise(cnps)]
    assert all(interval_ps <= gap for gap in gaps)
    assert len(cnps) > 5
    info = read(cnps[0].frame)
    assert (info.dscp, info.ecn, info.queue_pair, info.length) == (48, 0, 0x100, 74)
    assert pair.nics[0].flow(0).cnps <= pair.nics[1].flow(0).cnps_sent == len(cnps)
    assert pair.nics[1].stats().rx_ce == pair.nics[1].flow(0).marks >= 50


def test_two_queue_pairs_have_each_their_own_cnps() -> None:
    pair = Pair(change=mark)
    for _ in range(2):
        connect_rdma(*pair.nics, RdmaConfig(bytes=ENDLESS, dcqcn=Dcqcn.paper()))
    pair.run(45 * US)
    cnps = [read(s.frame).queue_pair for s in pair.sent[1] if read(s.frame).kind == "cnp"]
    assert cnps == [0x100, 0x101]


def all_kinds() -> Pair:
    """Data with and without RETH, padded, ACK, NAK, CNP, UC, TCP."""
    pair = Pair(change=lambda e, n, f: None if e == 0 and n == 4 else mark(e, n, f))
    connect_rdma(*pair.nics, RdmaConfig(bytes=5 * 4096 + 1001, mtu_bytes=4096, dcqcn=Dcqcn.paper()))
    connect_rdma(*pair.nics, RdmaConfig(bytes=77, reliable=False, start_ps=10 * US))
    connect_tcp(*pair.nics, TcpConfig(bytes=4000, ecn=True, start_ps=20 * US))
    return pair.run()


def test_the_invariant_crc_is_that_of_scapy() -> None:
    from scapy.contrib.roce import BTH
    from scapy.layers.l2 import Ether

    pair = all_kinds()
    seen = set()
    for sent in (*pair.sent[0], *pair.sent[1]):
        packet = Ether(sent.frame)
        if BTH not in packet:
            continue
        seen.add(packet[BTH].opcode)
        body = sent.frame[54:-4]
        assert packet[BTH].compute_icrc(body) == sent.frame[-4:], packet.summary()
    assert seen == {0x06, 0x07, 0x08, 0x2A, 0x11, 0x81}


def test_the_invariant_crc_may_be_left_out() -> None:
    pair = Pair(config(0, icrc=False))
    connect_rdma(*pair.nics, RdmaConfig(bytes=3000))
    pair.run()
    assert {s.frame[-4:] for s in pair.sent[0]} == {bytes(4)}


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_every_kind_of_frame(tmp_path: Path) -> None:
    from scapy.utils import wrpcap

    pair = all_kinds()
    frames = sorted((*pair.sent[0], *pair.sent[1]), key=lambda s: s.start_ps)
    path = tmp_path / "nic.pcap"
    wrpcap(str(path), [s.frame for s in frames], linktype=1)
    command = [
        "tshark",
        "-r",
        str(path),
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "tcp.check_checksum:TRUE",
        "-T",
        "fields",
    ]
    fields = ["infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.aeth.syndrome", "infiniband.reth.dmalen"]
    fields += ["ip.checksum.status", "tcp.checksum.status", "_ws.malformed", "ip.dsfield.dscp", "infiniband.bth.padcnt"]
    command += [word for name in fields for word in ("-e", name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(rows) == len(frames)
    assert {row[4] for row in rows} == {"1"}  # good
    assert {row[5] for row in rows} == {"", "1"}
    assert {row[6] for row in rows} == {""}
    by_opcode = {row[0]: row for row in rows if row[0]}
    assert set(by_opcode) == {"6", "7", "8", "42", "17", "129"}
    assert by_opcode["6"][3] == str(5 * 4096 + 1001)
    assert by_opcode["42"][3] == "77"
    assert (by_opcode["8"][8], by_opcode["42"][8]) == ("3", "3")
    assert {row[7] for row in rows if row[0] == "129"} == {"48"}
    assert {row[7] for row in rows if row[0] in ("6", "7", "8", "17")} == {"26"}
    naks = [row for row in rows if row[0] == "17" and int(row[2], 0) == 0x60]
    assert [row[1] for row in naks] == ["4"]

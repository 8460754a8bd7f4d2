"""Congestion points of 802.1Qau on the bundled program: what is sampled, the feedback, and the message on the wire.

Feedback is worked out by hand from Fb = -(Qoff + w Qdelta), limit (2w + 1) Qeq, 6 bits; messages are read by scapy.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dcb_switch import DcbSwitch, data, port_mac
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw
from scapy_qcn import Cnm, CnTag

from switch.core import Output

POINT = 2 * 8 + 3  # port 2, queue 3
CPID = 0x0201000001020003
HOST = "02:00:00:00:01:01"


@pytest.fixture
def switch() -> Iterator[DcbSwitch]:
    made = DcbSwitch()
    made.hold(2)
    yield made
    made.service.close()


def point(
    switch: DcbSwitch, qeq: int = 10_000, weight: int = 1, sample: int = 10_000, jitter: int = 0, priority: int = 6
) -> None:
    switch.put("egress.tm_qcn", (2, 3), "egress.tm_set_qcn", qeq, weight & 0xFF, sample, jitter, priority, CPID)


def messages(outputs: list[Output]) -> list[tuple[int, int, int]]:
    """(feedback, offset, delta) of the messages, which all leave port 1."""
    found = []
    for output in outputs:
        assert output.port == 1
        cnm = Ether(output.frame)[Cnm]
        found.append((cnm.feedback, cnm.q_offset, cnm.q_delta))
    return found


def test_samples_and_feedback(switch: DcbSwitch) -> None:
    """1000-byte frames into a queue that stands still. After 10 of them, then the sooner the more feedback."""
    point(switch)
    for _ in range(25):
        switch.receive(1, data(1000))
    # frame  queue  Qoff   Qdelta  Qoff + 2 Qdelta  of 50,000, 63rds  next after
    #    10  10000     0    10000            20000                25  10000 / 4
    #    13  13000  3000     3000             9000                11  10000 / 2
    #    18  18000  8000     5000            18000                22  10000 / 3
    #    22  22000 12000     4000            20000                25  10000 / 4
    #    25  25000 15000     3000            21000                26  10000 / 4
    assert messages(switch.until(10**6)) == [
        (25, 0, 156), (11, 46, 46), (22, 125, 78), (25, 187, 62), (26, 234, 46),
    ]  # fmt: skip
    assert switch.count("egress.tm_qcn_samples", POINT) == (5, 5_000)
    assert switch.count("egress.tm_qcn_cnms", POINT) == (5, 5_000)
    assert switch.counts("egress.cnm_tx") == {1 * 8 + 3: 5}


def test_no_feedback_below_the_set_point(switch: DcbSwitch) -> None:
    """An emptying queue: Qdelta outweighs what is above the set point; samples go on every 150,000 bytes' worth."""
    point(switch, sample=2_000)
    for _ in range(14):
        switch.receive(1, data(1000))
    before = switch.until(10**6)
    assert switch.count("egress.tm_qcn_samples", POINT)[0] > len(messages(before)) > 0  # the first ones are below
    switch.hold(2, False)
    switch.until(2 * 10**6 - 1)  # at 40 Gb/s a frame takes 204.8 ns: queue down to 9 frames or so
    switch.drain()
    switch.hold(2)
    cnms = switch.count("egress.tm_qcn_cnms", POINT)
    for _ in range(4):
        switch.receive(1, data(1000))
    assert switch.count("egress.tm_qcn_cnms", POINT) == cnms
    switch.hold(2, False)
    switch.drain()
    switch.assert_empty()


@pytest.mark.parametrize(
    ("weight", "feedback"),
    [
        (0, 63 * (0 + 10_000) // 30_000),  # w = 1
        (3, 63 * (0 + 80_000) // 170_000),  # w = 8
        (-2, 63 * (0 + 2_500) // 15_000),  # w = 1/4
        (10, 63 * 10_240_000 // 20_490_000),
        (-10, 0),  # 9.77 of 10,019.5 is less than 1/63
    ],
)
def test_weight(switch: DcbSwitch, weight: int, feedback: int) -> None:
    point(switch, weight=weight)
    for _ in range(10):
        switch.receive(1, data(1000))
    assert messages(switch.until(10**6)) == ([(feedback, 0, 156)] if feedback else [])


def test_feedback_is_limited(switch: DcbSwitch) -> None:
    point(switch, qeq=100, sample=9_000)
    for _ in range(9):
        switch.receive(1, data(1000))
    assert messages(switch.until(10**6)) == [(63, 139, 140)]
    for _ in range(2):  # 9000 / 8 = 1125 bytes
        switch.receive(1, data(1000))
    assert messages(switch.until(2 * 10**6)) == [(63, 170, 31)]


def test_jitter(switch: DcbSwitch) -> None:
    """Below the set point: 100 samples of 100,000 bytes each, give or take 15 per cent, even over the range."""
    switch.hold(2, False)
    point(switch, qeq=1_000_000, sample=100_000, jitter=15)
    gaps: list[int] = []
    last = 0
    for n in range(1, 10_001):
        switch.receive(1, data(1000), n * 10**6)
        samples = switch.switch_core.tm.read_counter("qcn_samples", POINT).packets
        if samples != len(gaps):
            gaps.append(n - last)
            last = n
    assert gaps[0] == 100  # the first interval has none
    assert 95 <= len(gaps) <= 105
    assert min(gaps[1:]) in range(85, 90)
    assert max(gaps) in range(112, 117)
    assert 98 < sum(gaps) / len(gaps) < 102.5  # half a frame is rounded up


def test_message_on_the_wire(switch: DcbSwitch) -> None:
    """Every field, of a frame that came in with a VLAN tag and a CN-TAG."""
    point(switch, sample=1_000, qeq=100)
    frame = bytes(
        Ether(dst=port_mac(1), src=HOST) / Dot1Q(vlan=7, prio=2, dei=1) / CnTag(flow_id=0xBEEF)
        / IP(src="10.1.0.1", dst="10.1.0.2", tos=26 << 2, ttl=9) / UDP(sport=1, dport=2) / Raw(bytes(range(256)) * 4)
    )  # fmt: skip
    switch.receive(1, frame)
    (output,) = switch.until(10**6)
    assert output.port == 1
    msdu = frame[20:84]  # EtherType and what follows it, as it came in: TTL 9
    assert msdu[:2] == b"\x08\x00"
    expected = (
        Ether(dst=HOST, src=port_mac(1)) / Dot1Q(vlan=7, prio=6) / CnTag(flow_id=0xBEEF)
        / Cnm(feedback=63, cpid=CPID, q_offset=(len(frame) - 100) // 64, q_delta=len(frame) // 64, priority=3,
              dst=port_mac(1), msdu=msdu, msdu_len=64)
    )  # fmt: skip
    assert output.frame == bytes(expected)
    assert len(output.frame) == 12 + 4 + 4 + 2 + 24 + 64
    switch.hold(2, False)
    (sent,) = switch.drain()
    routed = Ether(sent.frame)  # out of the domain: no CN-TAG, everything else is there
    assert CnTag not in routed
    assert (routed[Dot1Q].vlan, routed[IP].ttl, bytes(routed[UDP].payload)) == (7, 8, bytes(range(256)) * 4)


def test_short_frame_and_ipv6(switch: DcbSwitch) -> None:
    point(switch, sample=1, qeq=1, priority=5)
    short = data(60)
    switch.receive(1, short)
    (output,) = switch.until(10**6)
    cnm = Ether(output.frame)[Cnm]
    assert (cnm.msdu_len, cnm.msdu, len(output.frame)) == (48, short[12:], 12 + 2 + 24 + 48)
    switch.put("ingress.ipv6_lpm", ((0xFD << 120, 8),), "ingress.route", 2)
    six = bytes(Ether(dst=port_mac(1), src=HOST) / IPv6(dst="fd00::2", tc=26 << 2) / UDP(sport=3) / Raw(bytes(999)))
    switch.receive(1, six, 10**6)
    (output,) = switch.until(2 * 10**6)
    assert Ether(output.frame)[Cnm].msdu == six[12:76]
    assert switch.counts("egress.cnm_tx") == {1 * 8 + 3: 2}
    assert switch.count("egress.tm_dequeued", 1 * 8 + 5)[0] == 2  # the queue of the messages' priority


def test_the_message_waits_its_turn_and_is_not_sampled(switch: DcbSwitch) -> None:
    """It goes through a queue of the port that the frame came in on: held there, and never the cause of another."""
    switch.put("egress.tm_qcn", (1, 6), "egress.tm_set_qcn", 1, 1, 1, 0, 6, 1)
    point(switch, sample=1, qeq=1)
    switch.hold(1)
    switch.receive(1, data(1000))
    assert switch.until(10**6) == []
    assert switch.state("egress.tm_queue_depth", 1 * 8 + 6) == 128  # of the sampled frame
    switch.hold(1, False)
    assert [output.port for output in switch.until(2 * 10**6)] == [1]
    assert switch.count("egress.tm_qcn_samples", 1 * 8 + 6) == (0, 0)
    assert switch.count("egress.tm_qcn_samples", POINT) == (1, 1000)


def test_dropped_frames_do_not_count(switch: DcbSwitch) -> None:
    """A lossy queue with a limit: only what is queued is counted and sampled."""
    switch.put("egress.tm_qcn", (2, 0), "egress.tm_set_qcn", 1_000, 1, 5_000, 0, 6, 1)
    switch.put("egress.tm_queue", (2, 0), "egress.tm_queue_static", 4_500)
    for _ in range(10):
        switch.receive(1, data(1000, priority=0))
    assert switch.count("egress.tm_qcn_samples", 2 * 8) == (0, 0)
    switch.remove("egress.tm_qcn", (2, 0))
    switch.put("egress.tm_queue", (2, 0), "egress.tm_queue_static", 45_000)
    for _ in range(10):
        switch.receive(1, data(1000, priority=0))
    assert switch.count("egress.tm_qcn_samples", 2 * 8) == (0, 0)


def test_a_message_is_not_routed(switch: DcbSwitch) -> None:
    """One that comes from the next switch has its source in another domain: counted and dropped."""
    cnm = Ether(dst=port_mac(1), src="02:02:00:00:01:01") / Cnm(feedback=1, dst=HOST, msdu=data(100)[12:76])
    for frame in (cnm, Ether(dst=port_mac(1)) / Dot1Q(vlan=1) / CnTag() / cnm[Cnm]):
        switch.receive(1, bytes(frame))
    assert switch.drain() == []
    assert switch.counts("ingress.cnm_rx") == {1 * 8: 2}
    assert switch.counts("ingress.drops") == {1 * 8 + 2: 2}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((0, 1, 1, 0, 6), "qeq 0: must be 1..4294967295"),
        ((1, 11, 1, 0, 6), "weight 11: must be -10..10"),
        ((1, 0xF5, 1, 0, 6), "weight -11: must be -10..10"),
        ((1, 1, 0, 0, 6), "sample 0: must be 1..4294967295"),
        ((1, 1, 1, 51, 6), "jitter 51: must be 0..50"),
    ],
)
def test_ranges(switch: DcbSwitch, values: tuple[int, ...], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        switch.put("egress.tm_qcn", (2, 3), "egress.tm_set_qcn", *values, CPID)

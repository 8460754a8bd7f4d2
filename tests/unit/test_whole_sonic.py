"""The data-plane tests of sonic-mgmt (tests/qos, saitests, pfc_asym, snappi), in shape and name, by injection.

Their DUT is the bundled program on our switch; where theirs allow a margin in cells, these are exact to the byte.
Headroom pools and pool watermarks are in `test_whole_pools`, the watchdog in `test_whole_storm`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import sqrt

import pytest
from dcb_switch import PORTS, DcbSwitch, data, port_mac
from l2_core import is_pfc, pfc, read_pfc
from scapy.contrib.mac_control import MACControlPause
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

XOFF, XON, HEADROOM = 10_000, 4_000, 3_000
PG3 = 1 * 8 + 3
US = 10**6


@pytest.fixture
def switch() -> Iterator[DcbSwitch]:
    made = DcbSwitch()
    for pg in (3, 4):
        made.static_group(1, pg, 0, XOFF, XON, HEADROOM)
    made.send_pfc(1, 0x18)
    yield made
    made.service.close()


def send(switch: DcbSwitch, packets: int, priority: int = 3, source: int = 1) -> None:
    for _ in range(packets):
        switch.receive(source, data(500, priority=priority), switch.switch_core.now_ps)


def pfc_sent(switch: DcbSwitch, until_ps: int) -> list[tuple[int, dict[int, int]]]:
    return [(out.port, read_pfc(out.frame)) for out in switch.until(until_ps) if is_pfc(out.frame)]


@cache
def marked(dscp: int = 0, pcp: int | None = None, dei: int = 0) -> bytes:
    """A frame with these code points for 10.1.0.2."""
    tag = Ether() if pcp is None else Ether() / Dot1Q(prio=pcp, dei=dei, vlan=5)
    packet = tag / IP(src="10.1.0.1", dst="10.1.0.2", tos=dscp << 2) / UDP(sport=1, dport=9) / Raw(bytes(60))
    packet[Ether].dst = port_mac(1)
    return bytes(packet)


# --- thresholds ------------------------------------------------------------------------------------------------------


def test_pfc_xoff_limit(switch: DcbSwitch) -> None:
    """N - 1: no PFC, no drop; N: PFC; all headroom: no drop; one more: a drop of that group; never an egress drop."""
    switch.hold(2)
    send(switch, XOFF // 500 - 1)
    assert pfc_sent(switch, 0) == []
    send(switch, 1)
    assert pfc_sent(switch, 0) == [(1, {3: 65535})]
    send(switch, HEADROOM // 500)
    assert switch.drops() == {}
    send(switch, 1)
    send(switch, 1, priority=4)
    send(switch, 1, priority=0)
    assert switch.drops() == {"tm_drop_headroom": {PG3: 1}}


def test_xon_hysteresis(switch: DcbSwitch) -> None:
    """Between XON and XOFF nothing is said: neither on the way down nor on the way up again."""
    switch.hold(2)
    send(switch, XOFF // 500)
    assert pfc_sent(switch, 0) == [(1, {3: 65535})]
    switch.hold(2, False)
    start = switch.switch_core.now_ps
    frame_ps = (500 + 24) * 8 * 25
    assert pfc_sent(switch, start + 11 * frame_ps - 1) == []  # 11 have left: 4,500 bytes
    switch.hold(2)
    send(switch, (XOFF - 500 - 4_500) // 500)  # up to 9,500: below XOFF, and XOFF still
    assert pfc_sent(switch, switch.switch_core.now_ps) == []
    assert switch.state("egress.tm_pg_xoff", PG3) == 1
    switch.hold(2, False)
    drained = [frame for _, frame in pfc_sent(switch, switch.switch_core.now_ps + 30 * frame_ps)]
    assert drained == [{3: 0}]
    switch.hold(2)
    send(switch, XOFF // 500 - 1)  # above XON, below XOFF, after XON
    assert pfc_sent(switch, switch.switch_core.now_ps) == []
    send(switch, 1)
    assert pfc_sent(switch, switch.switch_core.now_ps) == [(1, {3: 65535})]
    assert switch.state("egress.tm_xoff_count", PG3) == 2
    switch.hold(2, False)
    switch.drain()
    switch.assert_empty()


def test_shared_reservation_size(switch: DcbSwitch) -> None:
    """With the pool full each group still gets what is reserved for it, to the byte."""
    switch.put("egress.tm_pool", (0,), "egress.tm_set_pool", 3_000)
    switch.static_group(1, 3, 2_000, 5_000, 1_000, 0)
    switch.static_group(4, 3, 2_000, 5_000, 1_000, 0)
    switch.put("egress.tm_priority_group", (3, 0), "egress.tm_pg_dynamic", 1_000, 7, 0, 0, 0)
    switch.hold(2)
    send(switch, 10)  # 2,000 reserved, 3,000 of the pool
    assert switch.state("egress.tm_pool_used", 0) == 3_000
    send(switch, 4, source=4)
    send(switch, 2, source=3, priority=0)
    assert switch.drops() == {}
    send(switch, 1, source=4)
    send(switch, 1, source=3, priority=0)
    assert switch.drops() == {"tm_drop_headroom": {4 * 8 + 3: 1}, "tm_drop_pg": {3 * 8: 1}}
    switch.hold(2, False)
    switch.drain()
    switch.assert_empty()


@pytest.mark.parametrize(
    ("register", "packets", "expected"), [("pg_watermark", 12, 6_000), ("pg_headroom_watermark", 24, 2_000)]
)
def test_pg_watermarks(switch: DcbSwitch, register: str, packets: int, expected: int) -> None:
    """The highest fill is kept while it drains, and cleared by writing 0."""
    switch.hold(2)
    send(switch, packets)
    assert switch.state(f"egress.tm_{register}", PG3) == expected
    switch.hold(2, False)
    switch.drain()
    assert switch.state(f"egress.tm_{register}", PG3) == expected
    switch.clear(f"egress.tm_{register}", PG3)
    assert switch.state(f"egress.tm_{register}", PG3) == 0


def test_pg_drop(switch: DcbSwitch) -> None:
    """A lossy group over its share of the pool: ingress drops of that group, as many as were sent too much."""
    switch.put("egress.tm_pool", (0,), "egress.tm_set_pool", 10_000)
    switch.put("egress.tm_queue", (2, 0), "egress.tm_queue_static", 1_000_000)
    switch.hold(2)
    send(switch, 30, priority=0)  # 2^0 of what is free: 5,000
    assert switch.drops() == {"tm_drop_pg": {1 * 8: 20}}
    assert switch.count("egress.tm_drop_pg", 1 * 8) == (20, 10_000)
    switch.hold(2, False)
    switch.drain()
    switch.assert_empty()


def test_lossy_queue(switch: DcbSwitch) -> None:
    """No PFC whatever is sent; drops at the queue's limit; lossless traffic through the same port is not touched."""
    switch.put("egress.tm_queue", (2, 0), "egress.tm_queue_static", 5_000)
    switch.hold(2)
    send(switch, 40, priority=0)
    send(switch, 5, priority=3)
    assert pfc_sent(switch, 0) == []
    assert switch.drops() == {"tm_drop_queue": {2 * 8: 30}}
    assert switch.state("egress.tm_queue_depth", 2 * 8 + 3) == 2_500


# --- mapping ---------------------------------------------------------------------------------------------------------


def map_classes(switch: DcbSwitch) -> None:
    """Queue and group differ from the priority and from each other; nothing is lossless."""
    for priority in range(8):
        queue, pg = (priority + 1) % 8, (priority + 3) % 8
        switch.put("ingress.priority_map", (1, priority), "ingress.set_class", queue, pg, 0)
        switch.put("egress.tm_priority_group", (1, pg), "egress.tm_pg_dynamic", 0, 0, 0, 0, 0)
    switch.hold(2)


def where(switch: DcbSwitch, frame: bytes) -> tuple[int, int]:
    """(queue, group) that a frame goes to."""
    before = [[switch.state(f"egress.tm_{kind}", port * 8 + n) for n in range(8)] for kind, port in DEPTHS]
    switch.receive(1, frame)
    after = [[switch.state(f"egress.tm_{kind}", port * 8 + n) for n in range(8)] for kind, port in DEPTHS]
    ((queue,), (pg,)) = ([n for n in range(8) if a[n] > b[n]] for a, b in zip(after, before, strict=True))
    return queue, pg


DEPTHS = (("queue_depth", 2), ("pg_depth", 1))


def test_dscp_queue_and_pg_mapping(switch: DcbSwitch) -> None:
    """All 64 values, spread over the priorities by 5n mod 8."""
    map_classes(switch)
    for dscp in range(64):
        switch.put("ingress.dscp_to_priority", (1, dscp), "ingress.set_priority", 5 * dscp % 8)
    for dscp in range(64):
        priority = 5 * dscp % 8
        assert where(switch, marked(dscp)) == ((priority + 1) % 8, (priority + 3) % 8), dscp
    assert [switch.count("ingress.rx", 8 + n)[0] for n in range(8)] == [8] * 8


def test_dot1p_queue_and_pg_mapping(switch: DcbSwitch) -> None:
    """All 8 values with either DEI; a DSCP does not count."""
    map_classes(switch)
    switch.put("ingress.port_config", (1,), "ingress.set_port", 1, 0, 1, 0, 0)
    for pcp in range(8):
        for dei in (0, 1):
            switch.put("ingress.pcp_to_priority", (1, pcp, dei), "ingress.set_priority", (3 * pcp + dei) % 8)
    for pcp in range(8):
        for dei in (0, 1):
            priority = (3 * pcp + dei) % 8
            assert where(switch, marked(26, pcp, dei)) == ((priority + 1) % 8, (priority + 3) % 8), (pcp, dei)


# --- PFC received ----------------------------------------------------------------------------------------------------


def test_pfc_counters(switch: DcbSwitch) -> None:
    """Pause and unpause count by priority; 802.3x in none of them; nothing of it is RX_OK or RX_DRP."""
    for n in range(8):
        for _ in range(n + 1):
            switch.receive(2, pfc({n: 65535}))
        switch.receive(2, pfc({n: 0}))
    assert switch.counts("ingress.pfc_rx_xoff") == {16 + n: n + 1 for n in range(8)}
    assert switch.counts("ingress.pfc_rx_xon") == {16 + n: 1 for n in range(8)}
    assert switch.count("ingress.pfc_rx_frames", 16) == (44, 44 * 60)
    for time in (65535, 0):
        frame = bytes(Ether(dst="01:80:c2:00:00:01") / MACControlPause(pause_time=time))
        switch.receive(2, frame.ljust(60, b"\0"))
    assert switch.count("ingress.pause_rx_frames", 16) == (2, 120)
    assert sum(switch.counts("ingress.pfc_rx_xoff").values()) == 36
    assert switch.counts("ingress.rx") == switch.counts("ingress.drops") == {}
    assert switch.drops() == {}


def test_asymmetric_pfc(switch: DcbSwitch) -> None:
    """Off: heard and sent on lossless priorities; on: heard on all of them, sent on lossless ones."""
    for heard, expected in ((0x18, [3, 4]), (0xFF, list(range(8)))):
        switch.set_up_port(2, pfc_rx=heard)
        switch.receive(2, pfc(dict.fromkeys(range(8), 1000)), switch.switch_core.now_ps)
        assert [n for n in range(8) if switch.state("egress.tm_pause_left", 16 + n)] == expected
        switch.receive(2, pfc(dict.fromkeys(range(8), 0)), switch.switch_core.now_ps)
    switch.hold(2)
    for priority in (0, 3, 4):
        send(switch, 30, priority=priority)
    assert pfc_sent(switch, 0) == [(1, {3: 65535, 4: 65535})]


def test_global_pause(switch: DcbSwitch) -> None:
    """802.3x where it is not configured: no effect on any priority."""
    switch.receive(2, bytes(Ether(dst="01:80:c2:00:00:01") / MACControlPause(pause_time=65535)).ljust(60, b"\0"))
    for priority in (0, 3, 4):
        switch.receive(1, data(500, priority=priority))
    assert len(switch.until(US)) == 3


def test_unset_bit_enable_vector(switch: DcbSwitch) -> None:
    """A vector of 0 pauses nothing and counts for no priority, whatever its times."""
    switch.receive(2, pfc(dict.fromkeys(range(8), 65535), vector=0))
    switch.receive(1, data(500))
    assert len(switch.until(US)) == 1
    assert switch.counts("ingress.pfc_rx_xoff") == switch.counts("ingress.pfc_rx_frames") == {}


def test_zero_mac(switch: DcbSwitch) -> None:
    """A source address of zeros changes nothing: counted and heeded."""
    frame = pfc({3: 1000})
    switch.receive(2, frame[:6] + bytes(6) + frame[12:])
    assert switch.counts("ingress.pfc_rx_xoff") == {2 * 8 + 3: 1}
    assert switch.state("egress.tm_pause_left", 2 * 8 + 3) == 1000


def test_no_congestion_no_pfc(switch: DcbSwitch) -> None:
    """Line rate from one port to another: not a PFC frame."""
    frame_ps = (500 + 24) * 8 * 25
    for n in range(1_000):
        switch.receive(1, data(500), n * frame_ps)
    assert {out.port for out in switch.drain()} == {2}
    assert switch.counts("egress.pfc_tx_frames") == {}


# --- ECN -------------------------------------------------------------------------------------------------------------


def ecn(switch: DcbSwitch, kmin: int, kmax: int, pmax: int) -> None:
    slope = (pmax << 16) // (kmax - kmin) if kmax > kmin else 0
    switch.put("egress.ecn_profile", (2, 3), "egress.set_ecn", kmin, kmax, pmax, slope, 0)


def marks(switch: DcbSwitch, packets: int) -> list[bool]:
    """Queue so many frames of 1,000 bytes while paused, release, and say which were marked."""
    now = switch.switch_core.now_ps
    switch.receive(2, pfc({3: 65535}), now)
    for _ in range(packets):
        switch.receive(1, data(1000, ecn=2), now)
    switch.receive(2, pfc({3: 0}), now)
    return [out.frame[15] & 3 == 3 for out in switch.drain() if out.port == 2]


def test_ecn_egress(switch: DcbSwitch) -> None:
    """Kmin = Kmax = N: of 2N the first N are marked, for marking is at dequeue, and the last N are not."""
    switch.static_group(1, 3, 0, 1_000_000, 500_000, 0)
    ecn(switch, 10_000, 10_000, 2**32 - 1)
    assert marks(switch, 20) == [True] * 10 + [False] * 10
    assert switch.counts("egress.ce_marked") == {2 * 8 + 3: 10}


def test_ecn_accuracy(switch: DcbSwitch) -> None:
    """Marks by depth follow (q - Kmin) / (Kmax - Kmin) * Pmax, 0 below and 1 from Kmax on; 50 rounds, 4 sigma."""
    kmin, kmax, pmax, rounds, packets = 20_000, 80_000, 0.05, 50, 90
    switch.static_group(1, 3, 0, 1_000_000, 500_000, 0)
    ecn(switch, kmin, kmax, int(pmax * (2**32 - 1)))
    seen = [0] * packets  # by packets left behind
    for _ in range(rounds):
        for position, mark in enumerate(marks(switch, packets)):
            seen[packets - 1 - position] += mark
    assert seen[: kmin // 1000 + 1] == [0] * (kmin // 1000 + 1)  # at Kmin itself the probability is 0
    assert seen[kmax // 1000 :] == [rounds] * (packets - kmax // 1000)
    for low in range(kmin // 1000, kmax // 1000, 20):  # three bands of the slope
        probabilities = [(q * 1000 - kmin) / (kmax - kmin) * pmax for q in range(low, low + 20)]
        expected = rounds * sum(probabilities)
        sigma = sqrt(rounds * sum(p * (1 - p) for p in probabilities))
        assert abs(sum(seen[low : low + 20]) - expected) < 4 * sigma, (low, seen)
    assert sum(seen[21:80]) > 0


def test_every_port_to_every_port(switch: DcbSwitch) -> None:
    """FullMeshTrafficSanity: each frame arrives where it should, in the class that it should."""
    for source in PORTS:
        for to in PORTS:
            if source != to:
                for priority in (0, 3, 4):
                    switch.receive(source, data(500, priority=priority, to=to, source=source))
    outs = switch.drain()
    assert sorted((out.port, out.frame[29]) for out in outs) == sorted(
        (to, source) for to in PORTS for source in PORTS if source != to for _ in range(3)
    )
    switch.assert_empty()

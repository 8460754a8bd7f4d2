"""Truncated, mutated and random frames on every port of the whole program: counted or forwarded, never fatal.

Seeded; every frame of every kind that the parser knows is cut at every length, then frames are mutated at random. The
sanitized run repeats this file on an ASan/UBSan build.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from codegen_fuzz import mutate
from dcb_switch import PORTS, SANITIZE, DcbSwitch, data, port_mac
from scapy.contrib.lldp import LLDPDU
from scapy.contrib.mac_control import MACControlClassBasedFlowControl, MACControlPause
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6ND_NS, IPv6
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Raw

SEED = 20261130
DST = "10.1.0.2"
LLDP_PAYLOAD = Raw(bytes.fromhex("0207040201000001010404030001060200780000"))


def frames() -> list[bytes]:
    """One frame of each kind."""
    mac = Ether(dst=port_mac(1), src="02:00:00:00:01:01")
    group = Ether(dst="01:80:c2:00:00:01", src="02:00:00:00:01:02", type=0x8808)
    bth = Raw(bytes.fromhex("0400ffff00000011800000010000000000000000"))
    kinds: list[Packet] = [
        mac / IP(dst=DST, tos=26 << 2) / UDP(dport=4791) / bth,
        mac / Dot1Q(vlan=5, prio=3) / IP(dst=DST) / TCP(dport=5001),
        mac / Dot1AD(vlan=6) / Dot1Q(vlan=5, prio=3) / IP(dst=DST) / UDP(dport=9),
        mac / IP(dst=DST, options=[Raw(b"\x01\x01\x01\x00")]) / UDP(dport=9) / Raw(bytes(40)),
        mac / IPv6(dst="fd00:1::2") / UDP(dport=4791) / bth,
        mac / Dot1Q(vlan=5) / IPv6(dst="fd00:1::2") / TCP(),
        mac / IPv6(dst="ff02::1") / ICMPv6ND_NS(tgt="fd00:1::2"),
        mac / ARP(op=1, psrc="10.1.0.1", pdst=DST),
        group / MACControlClassBasedFlowControl(c3_enabled=1, c3_pause_time=65535),
        group / MACControlPause(pause_time=65535),
        Ether(dst="01:80:c2:00:00:0e", src="02:00:00:00:01:02", type=0x88CC) / LLDP_PAYLOAD,
        mac / IP(dst=DST, ttl=1) / UDP(),
        Ether(dst="ff:ff:ff:ff:ff:ff", type=0x1234) / Raw(bytes(50)),
    ]
    assert LLDPDU is not None
    return [bytes(kind).ljust(60, b"\0") for kind in kinds]


@pytest.fixture(scope="module")
def switch() -> Iterator[DcbSwitch]:
    made = DcbSwitch()
    # What garbage could reach: PFC both ways, thresholds that a few frames pass, a wildcard ACL entry.
    for port in PORTS:
        made.set_up_port(port, pfc_rx=0xFF, pause_rx=1)
        made.static_group(port, 3, 500, 2_000, 1_000, 1_000)
        made.send_pfc(port, 1 << 3, 1000)
    yield made
    made.service.close()


def still_forwards(switch: DcbSwitch) -> None:
    """After whatever came, pauses end, queues run empty, the books are even, and a good frame goes through."""
    switch.drain()
    switch.service.poll(0, 0)
    switch.assert_empty()
    now = switch.switch_core.now_ps + 10**10  # longer than the longest pause
    switch.receive(1, data(500), now)
    assert [(out.port, len(out.frame)) for out in switch.until(now) if out.port == 2] == [(2, 500)]
    stats = switch.switch_core.stats()
    assert stats["rx_dropped"] == 0


def test_frames_cut_at_every_length_on_every_port(switch: DcbSwitch) -> None:
    now = switch.switch_core.now_ps
    for frame in frames():
        for length in range(len(frame)):
            for port in PORTS:
                now += 100_000
                switch.receive(port, frame[:length], now)
    still_forwards(switch)


def test_mutated_and_random_frames_on_every_port(switch: DcbSwitch) -> None:
    rng = random.Random(SEED)
    seeds = frames()
    now = switch.switch_core.now_ps
    for _ in range(5_000 if SANITIZE else 20_000):
        now += rng.randrange(200_000)
        switch.receive(rng.choice(PORTS), mutate(rng, seeds), now)
        if rng.random() < 0.01:
            switch.until(now)
    still_forwards(switch)


def test_packet_outs_cut_short_or_to_ports_that_are_not_there(switch: DcbSwitch) -> None:
    rng = random.Random(SEED)
    now = switch.switch_core.now_ps
    cpu = switch.switch_core.cpu_port
    for header in range(1 << 16) if not SANITIZE else range(0, 1 << 16, 64):
        now += 100_000
        switch.receive(cpu, header.to_bytes(2, "big") + data(60), now)
    for _ in range(2_000):
        switch.receive(cpu, rng.randbytes(rng.randrange(70)), now)
    still_forwards(switch)


def test_sizes_at_the_edges(switch: DcbSwitch) -> None:
    """0 bytes to the largest frame; one byte more is refused and counted."""
    now = switch.switch_core.now_ps
    for port in PORTS:
        for length in (0, 1, 13, 14, 59, 60, 61, 1514, 9000, 9727, 9728):
            switch.receive(port, (data(9000) + bytes(1000))[:length], now)
        assert not switch.switch_core.receive(port, bytes(9729), now)
        assert switch.count("egress.tm_drop_rx", port * 8 + 1)[0] == 1
    switch.drain()
    switch.assert_empty()

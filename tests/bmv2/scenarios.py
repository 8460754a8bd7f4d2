"""What the goldens are recorded of: table entries and packets, by name and number, the same for every target.

`SCENARIOS` maps a name to a `Scenario`; `record.py` plays each to BMv2 and writes goldens/<name>.json, which holds the
scenario too: `tests/unit/test_goldens.py` replays it without this module. Nothing here is random:
no ECN profile has a slope, and payloads are counted up.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6ND_NS,
    IPv6,
    IPv6ExtHdrHopByHop,
)
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Raw

CPU_PORT = 510
HOST = "02:00:00:00:01:01"  # source of most frames
ROUTER = "02:01:00:00:01:01"

Match = dict[str, Any]  # key -> value; LPM [value, prefix length]; ternary [value, mask]; range [low, high]


@dataclass
class Entry:
    """A table entry. With a selector, `action` is None and `member` or `group` says what it points to."""

    table: str
    match: Match
    action: str | None = None
    params: list[int] = field(default_factory=list)
    priority: int = 0
    member: int | None = None
    group: int | None = None


@dataclass
class Input:
    """A frame that comes in; at the CPU port it starts with a packet_out header."""

    name: str
    port: int
    frame: bytes


@dataclass
class Scenario:
    entries: list[Entry]
    packets: list[Input]
    members: dict[int, list[int]]  # id -> [port, destination MAC] of ingress.forward
    groups: dict[int, list[int]]  # id -> members
    clone_sessions: dict[int, int] = field(default_factory=dict)  # id -> port


def mac(port: int) -> int:
    """MAC of a port of the switch."""
    return 0x020100000100 + port


def neighbour(port: int) -> int:
    """MAC of what is behind a port."""
    return 0x020000000100 + port


def ip4(address: str) -> int:
    a, b, c, d = (int(part) for part in address.split("."))
    return a << 24 | b << 16 | c << 8 | d


def ip6(address: str) -> int:
    return int(ipaddress.IPv6Address(address))


# --- entries that every scenario starts with ----------------------------------------------------------------------

MEMBERS = {port: [port, neighbour(port)] for port in range(1, 9)}
GROUPS = {100: [5, 6, 7, 8], 101: [5, 6, 7]}


def base_entries() -> list[Entry]:
    """Ports 1 to 8, three of them configured; routes by member and by group."""
    entries = [
        # trust DSCP, priority 3 may be paused
        Entry("ingress.port_config", {"ingress_port": 1}, "ingress.set_port", [2, 0, 1, 0x08, 0]),
        # trust PCP, everything may be paused, PAUSE too
        Entry("ingress.port_config", {"ingress_port": 2}, "ingress.set_port", [1, 1, 1, 0xFF, 1]),
        # trust the port, DCBX App
        Entry("ingress.port_config", {"ingress_port": 3}, "ingress.set_port", [0, 5, 2, 0, 0]),
    ]
    for dscp, priority in ((0, 0), (8, 1), (26, 3), (46, 5), (48, 6)):
        match: Match = {"qos_profile": 1, "dscp": dscp}
        entries.append(Entry("ingress.dscp_to_priority", match, "ingress.set_priority", [priority]))
    for pcp in range(8):
        match = {"qos_profile": 1, "pcp": pcp, "dei": 0}
        entries.append(Entry("ingress.pcp_to_priority", match, "ingress.set_priority", [pcp]))
    entries.append(
        Entry("ingress.pcp_to_priority", {"qos_profile": 1, "pcp": 3, "dei": 1}, "ingress.set_priority", [2])
    )
    roce = {"qos_profile": 2, "ether_type": [0, 0], "ip_proto": [17, 0xFF], "l4_dst_port": [4791, 0xFFFF]}
    any6 = {"qos_profile": 2, "ether_type": [0x86DD, 0xFFFF], "ip_proto": [0, 0], "l4_dst_port": [0, 0]}
    entries.append(Entry("ingress.app_priority", roce, "ingress.set_priority", [3], priority=20))
    entries.append(Entry("ingress.app_priority", any6, "ingress.set_priority", [2], priority=10))
    for priority, (queue, group, lossless) in {3: (3, 3, 1), 6: (7, 1, 0)}.items():
        match = {"qos_profile": 1, "priority": priority}
        entries.append(Entry("ingress.priority_map", match, "ingress.set_class", [queue, group, lossless]))

    for prefix, length, hop in (
        ("10.1.0.0", 16, 1),
        ("10.1.2.0", 24, 2),
        ("10.1.2.3", 32, 3),
        ("10.2.0.0", 16, 100),
        ("10.4.0.0", 16, 101),
        ("10.3.0.0", 16, 200),
    ):
        entries.append(Entry("ingress.ipv4_lpm", {"dst": [ip4(prefix), length]}, "ingress.route", [hop]))
    entries.append(Entry("ingress.ipv4_lpm", {"dst": [ip4("10.9.0.0"), 16]}, "ingress.drop_route"))
    entries.append(Entry("ingress.ipv4_lpm", {"dst": [ip4("10.8.0.1"), 32]}, "ingress.punt"))
    for prefix, length, hop in (
        ("fd00:1::", 64, 1),
        ("fd00:1:0:2::", 64, 2),
        ("fd00:1:0:2::3", 128, 3),
        ("fd00:2::", 32, 100),
        ("fd00:4::", 32, 101),
        ("fd00:3::", 32, 200),
    ):
        entries.append(Entry("ingress.ipv6_lpm", {"dst": [ip6(prefix), length]}, "ingress.route", [hop]))
    entries.append(Entry("ingress.ipv6_lpm", {"dst": [ip6("fd00:9::"), 32]}, "ingress.drop_route"))
    entries.append(Entry("ingress.ipv6_lpm", {"dst": [ip6("fd00:8::1"), 128]}, "ingress.punt"))
    for hop in (1, 2, 3, 4):
        entries.append(Entry("ingress.nexthop", {"nexthop": hop}, member=hop))
    for group in GROUPS:
        entries.append(Entry("ingress.nexthop", {"nexthop": group}, group=group))

    for port in range(1, 9):
        entries.append(Entry("egress.port_mac", {"egress_port": port}, "egress.set_src_mac", [mac(port)]))
    # What leaves by port 2 shows its priority in the PCP, what leaves by port 3 in the DSCP.
    for priority in range(8):
        match = {"egress_port": 2, "priority": priority}
        entries.append(Entry("egress.pcp_rewrite", match, "egress.set_pcp", [priority, priority & 1]))
        if priority != 7:
            match = {"egress_port": 3, "priority": priority}
            entries.append(Entry("egress.dscp_rewrite", match, "egress.set_dscp", [priority * 8 + 1]))
    return entries


# --- frames -------------------------------------------------------------------------------------------------------


def payload(length: int, first: int = 0) -> Raw:
    return Raw(bytes((first + i) & 0xFF for i in range(length)))


def ether(dst: str = ROUTER) -> Ether:
    return Ether(dst=dst, src=HOST)


def bth(qp: int, psn: int = 7) -> Raw:
    """Base transport header of an RDMA WRITE only, an acknowledge asked for, and 16 bytes behind it."""
    return Raw(struct.pack(">BBHII", 0x0A, 0x40, 0xFFFF, qp, 1 << 31 | psn) + bytes(range(16)))


def roce(src: str, dst: str, qp: int, sport: int = 49152, tos: int = 26 << 2 | 2) -> Packet:
    return IP(src=src, dst=dst, tos=tos, id=1) / UDP(sport=sport, dport=4791, chksum=0) / bth(qp)


def roce6(src: str, dst: str, qp: int, sport: int = 49152, tc: int = 26 << 2 | 2) -> Packet:
    return IPv6(src=src, dst=dst, tc=tc) / UDP(sport=sport, dport=4791) / bth(qp)


def udp(dst: str, **fields: Any) -> Packet:
    return IP(src="10.7.0.1", dst=dst, id=2, **fields) / UDP(sport=1000, dport=2000) / payload(26)


def udp6(dst: str, **fields: Any) -> Packet:
    return IPv6(src="fd00:7::1", dst=dst, **fields) / UDP(sport=1000, dport=2000) / payload(26)


def corrupted(frame: bytes, offset: int, value: int) -> bytes:
    return frame[:offset] + bytes([value]) + frame[offset + 1 :]


def mac_control(body: bytes, dst: str = "01:80:c2:00:00:01", length: int = 60) -> bytes:
    """An untagged MAC control frame: opcode and what follows, zeros up to `length` bytes."""
    head = bytes.fromhex(dst.replace(":", "") + HOST.replace(":", "")) + b"\x88\x08"
    return (head + body).ljust(length, b"\0")[:length]


def pfc(vector: int, times: dict[int, int]) -> bytes:
    return struct.pack(">HH8H", 0x0101, vector, *(times.get(n, 0) for n in range(8)))


def packet_out(port: int, queue: int, frame: bytes) -> bytes:
    return struct.pack(">H", port << 7 | queue << 4) + frame


# --- scenarios ----------------------------------------------------------------------------------------------------


def routing() -> Iterator[tuple[str, int, bytes | Packet]]:
    """Longest prefix, TTL, checksum, options, fragments, tags, what is not forwarded."""
    for name, dst in (
        ("v4-16", "10.1.1.1"),
        ("v4-24", "10.1.2.1"),
        ("v4-32", "10.1.2.3"),
        ("v4-none", "10.77.0.1"),
        ("v4-drop-route", "10.9.1.1"),
        ("v4-punt", "10.8.0.1"),
        ("v4-no-next-hop", "10.3.0.1"),
    ):
        yield name, 1, ether() / udp(dst)
    for name, dst in (
        ("v6-64", "fd00:1::9"),
        ("v6-64-other", "fd00:1:0:2::1"),
        ("v6-128", "fd00:1:0:2::3"),
        ("v6-none", "fd00:77::1"),
        ("v6-drop-route", "fd00:9::1"),
        ("v6-punt", "fd00:8::1"),
        ("v6-no-next-hop", "fd00:3::1"),
    ):
        yield name, 1, ether() / udp6(dst)
    for ttl in (0, 1, 2, 255):
        yield f"ttl-{ttl}", 4, ether() / udp("10.1.1.1", ttl=ttl)
        yield f"hop-limit-{ttl}", 4, ether() / udp6("fd00:1::1", hlim=ttl)
    yield "ttl-1-no-route", 4, ether() / udp("10.77.0.1", ttl=1)

    good = bytes(ether() / udp("10.1.1.1"))
    yield "checksum-wrong", 1, corrupted(good, 24, good[24] ^ 1)
    yield "checksum-zero", 1, ether() / udp("10.1.1.1", chksum=0)
    # Sums that carry once, twice and not at all.
    for ident in (0x0000, 0x7FFF, 0xFFFE, 0xFFFF):
        packet = IP(src="10.7.0.1", dst="10.1.1.1", id=ident, ttl=64) / UDP(sport=1, dport=2) / payload(18)
        yield f"checksum-id-{ident:04x}", 1, ether() / packet
    options = [IPOption(b"\x94\x04\x00\x00"), IPOption(b"\x07\x07\x04" + bytes(4) + b"\x00")]
    yield "options-4", 1, ether() / udp("10.1.1.1", options=options[:1])
    yield "options-12", 1, ether() / udp("10.1.2.1", options=options)
    yield "options-40", 2, ether() / udp("10.1.2.3", options=[IPOption(b"\x94\x04\x00\x00")] * 10)
    wrong = bytes(ether() / udp("10.1.1.1", options=options))
    yield "options-checksum-wrong", 1, corrupted(wrong, 34, 0x95)
    yield "version-5", 1, corrupted(good, 14, 0x55)
    yield "ihl-4", 1, corrupted(good, 14, 0x44)
    yield "ihl-15-cut", 1, corrupted(good, 14, 0x4F)[:60]
    yield "v6-version-4", 1, corrupted(bytes(ether() / udp6("fd00:1::1")), 14, 0x40)
    for length in (14, 15, 33, 34, 41, 42):
        yield f"v4-cut-{length}", 1, good[:length]
    for length in (53, 54, 61):
        yield f"v6-cut-{length}", 3, bytes(ether() / udp6("fd00:1::1"))[:length]
    yield "fragment-first", 1, ether() / IP(src="10.7.0.1", dst="10.1.1.1", flags="MF", proto=17) / payload(32)
    yield "fragment-last", 1, ether() / IP(src="10.7.0.1", dst="10.1.1.1", frag=4, proto=17) / payload(3)
    yield "dont-fragment", 1, ether() / udp("10.1.1.1", flags="DF")
    yield "tcp", 1, ether() / IP(src="10.7.0.1", dst="10.1.1.1") / TCP(sport=5, dport=80, flags="S") / payload(20)
    yield "tcp6", 1, ether() / IPv6(src="fd00:7::1", dst="fd00:1::1") / TCP(sport=5, dport=80) / payload(2)
    yield "icmp", 1, ether() / IP(src="10.7.0.1", dst="10.1.1.1") / ICMP() / payload(9)
    yield "echo6", 1, ether() / IPv6(src="fd00:7::1", dst="fd00:1::1") / ICMPv6EchoRequest(data=b"abc")
    yield "unknown-protocol", 1, ether() / IP(src="10.7.0.1", dst="10.1.1.1", proto=254) / payload(21)
    hop_by_hop = IPv6(src="fd00:7::1", dst="fd00:1::1") / IPv6ExtHdrHopByHop() / UDP(sport=1, dport=2) / payload(4)
    yield "hop-by-hop", 1, ether() / hop_by_hop
    yield (
        "padded",
        1,
        bytes(ether() / IP(src="10.7.0.1", dst="10.1.1.1") / UDP(sport=1, dport=2) / b"x").ljust(60, b"\0"),
    )
    yield "long", 1, ether() / IP(src="10.7.0.1", dst="10.1.1.1") / UDP(sport=1, dport=2) / payload(1472)

    yield "tag", 2, ether() / Dot1Q(vlan=100, prio=4) / udp("10.1.2.1")
    yield "tag-priority", 2, ether() / Dot1Q(vlan=0, prio=6) / udp6("fd00:1:0:2::1")
    yield "tag-service", 2, ether() / Dot1AD(vlan=7, prio=5) / Dot1Q(vlan=100, prio=2) / udp("10.1.2.1")
    yield "tag-two", 1, ether() / Dot1Q(vlan=7) / Dot1Q(vlan=4095, prio=7) / udp("10.1.2.3")
    yield "tag-three", 1, ether() / Dot1Q(vlan=1) / Dot1Q(vlan=2) / Dot1Q(vlan=3) / udp("10.1.2.1")
    # A tag that is itself cut does not get through a veth pair.
    yield "tag-cut", 1, bytes(ether() / Dot1Q(vlan=1) / udp("10.1.1.1"))[:20]

    arp = ARP(hwsrc=HOST, psrc="10.1.0.2", pdst="10.1.0.1")
    yield "arp-broadcast", 1, bytes(ether("ff:ff:ff:ff:ff:ff") / arp)
    yield "arp-unicast", 1, bytes(ether() / arp)
    solicit = IPv6(src="fd00:7::1", dst="ff02::1:ff00:1", hlim=255) / ICMPv6ND_NS(tgt="fd00:1::1")
    yield "neighbour-solicitation", 1, ether("33:33:ff:00:00:01") / solicit
    probe = IPv6(src="fd00:7::1", dst="fd00:1::1", hlim=255) / ICMPv6ND_NS(tgt="fd00:1::1")
    yield "neighbour-probe", 1, ether() / probe
    yield "ether-type-unknown", 3, Ether(dst=ROUTER, src=HOST, type=0x1234) / payload(46)
    yield "congestion-notification", 3, Ether(dst=ROUTER, src=HOST, type=0x22E7) / payload(46)
    yield "broadcast", 1, ether("ff:ff:ff:ff:ff:ff") / udp("10.1.1.1")
    yield "multicast", 1, ether("01:00:5e:00:00:01") / udp("10.1.1.1")
    yield "multicast6", 1, ether("33:33:00:00:00:01") / udp6("fd00:1::1")
    lldp = bytes.fromhex("0207040201000001010403050001060200780000").ljust(46, b"\0")
    yield "lldp", 1, Ether(dst="01:80:c2:00:00:0e", src=HOST, type=0x88CC) / Raw(lldp)
    yield "lldp-unicast-unconfigured", 4, Ether(dst=ROUTER, src=HOST, type=0x88CC) / Raw(lldp)
    yield "lldp-tagged", 2, ether("01:80:c2:00:00:0e") / Dot1Q(vlan=0, prio=7, type=0x88CC) / Raw(lldp)
    yield "out-1", CPU_PORT, packet_out(1, 0, good)
    yield (
        "out-8-queue-7",
        CPU_PORT,
        packet_out(8, 7, bytes(Ether(dst="01:80:c2:00:00:0e", src=HOST, type=0x88CC)) + lldp),
    )
    yield "out-bad-checksum-ttl-0", CPU_PORT, packet_out(3, 2, corrupted(good, 22, 0))
    yield "out-pfc", CPU_PORT, packet_out(2, 0, mac_control(pfc(0x08, {3: 9})))
    yield "out-nowhere", CPU_PORT, packet_out(511, 1, good)
    yield "out-to-cpu", CPU_PORT, packet_out(CPU_PORT, 1, good)


def classification() -> Iterator[tuple[str, int, bytes | Packet]]:
    """What leaves by ports 2 and 3 shows its priority."""
    for dscp in (0, 1, 8, 26, 46, 48, 63):
        yield f"dscp-{dscp}", 1, ether() / udp("10.1.2.3", tos=dscp << 2 | 1)
        yield f"dscp6-{dscp}", 1, ether() / udp6("fd00:1:0:2::3", tc=dscp << 2 | 2)
    for pcp in range(8):
        yield f"pcp-{pcp}", 2, ether() / Dot1Q(vlan=pcp, prio=pcp) / udp("10.1.2.3", tos=0xFF)
    yield "pcp-3-dei", 2, ether() / Dot1Q(vlan=9, prio=3, id=1) / udp("10.1.2.3")
    yield "pcp-4-dei-not-mapped", 2, ether() / Dot1Q(vlan=9, prio=4, id=1) / udp6("fd00:1:0:2::3")
    yield "pcp-untagged", 2, ether() / udp("10.1.2.3", tos=46 << 2)
    yield "port-untrusting", 3, ether() / Dot1Q(vlan=9, prio=7) / udp("10.1.2.3", tos=46 << 2)
    yield "app-roce", 3, ether() / roce("10.7.0.1", "10.1.2.3", 5)
    yield "app-roce6-larger-priority-wins", 3, ether() / roce6("fd00:7::1", "fd00:1:0:2::3", 5)
    yield "app-v6", 3, ether() / udp6("fd00:1:0:2::3")
    yield "dscp-trust-no-ip", 1, Ether(dst=ROUTER, src=HOST, type=0x1234) / payload(46)
    yield "unconfigured", 4, ether() / Dot1Q(vlan=9, prio=7) / udp("10.1.2.3", tos=46 << 2)
    yield "pcp-written", 1, ether() / Dot1Q(vlan=9, prio=0) / roce("10.7.0.1", "10.1.2.9", 1)
    yield "pcp-written-outer", 1, ether() / Dot1AD(vlan=3) / Dot1Q(vlan=9, prio=7) / udp("10.1.2.9", tos=48 << 2)
    yield "cnp", 1, ether() / roce("10.7.0.1", "10.1.2.3", 5, tos=48 << 2)
    yield "roce-cut", 1, bytes(ether() / roce("10.7.0.1", "10.1.2.3", 5))[:50]


def ecmp() -> Iterator[tuple[str, int, bytes | Packet]]:
    """Flows that differ in one field at a time, over groups of four and of three."""
    for n in range(16):
        yield f"qp-{n}", 1, ether() / roce("10.7.0.1", "10.2.0.1", 0x100000 + n)
    for n in range(8):
        yield f"sport-{n}", 1, ether() / roce("10.7.0.1", "10.2.0.1", 17, sport=49152 + n)
        yield f"src-{n}", 1, ether() / IP(src=f"10.7.0.{n}", dst="10.4.0.1") / UDP(sport=1, dport=2) / payload(18)
        yield f"dst-{n}", 1, ether() / IP(src="10.7.0.1", dst=f"10.4.{n}.1") / TCP(sport=1, dport=2) / payload(6)
        yield f"dport6-{n}", 1, ether() / IPv6(src="fd00:7::1", dst="fd00:2::1") / UDP(sport=1, dport=n) / payload(4)
        yield f"qp6-{n}", 1, ether() / roce6("fd00:7::1", "fd00:2::1", n)
        yield f"src6-{n}", 1, _src6(n)
        yield f"dst6-{n}", 1, ether() / udp6(f"fd00:4::{n}:{8 - n}")
    yield "same-again", 1, ether() / roce("10.7.0.1", "10.2.0.1", 0x100000)
    first = IP(src="10.7.0.1", dst="10.2.0.1", flags="MF", proto=17)
    yield "fragment-first", 1, ether() / first / payload(32, first=1)
    yield "fragment-last", 1, ether() / IP(src="10.7.0.1", dst="10.2.0.1", frag=4, proto=17) / payload(32, first=9)


def _src6(n: int) -> Packet:
    return ether() / IPv6(src=f"fd00:{n}::1", dst="fd00:4::1") / UDP(sport=1, dport=2) / payload(4)


def pause() -> Iterator[tuple[str, int, bytes | Packet]]:
    """MAC control, right and wrong: nothing may come out, the counters say what it was taken for."""
    yield "xoff-3", 1, mac_control(pfc(0x0008, {3: 0xFFFF}))
    yield "xon-3", 1, mac_control(pfc(0x0008, {3: 0}))
    yield "not-enabled-here", 1, mac_control(pfc(0x0001, {0: 100}))
    yield "mixed", 2, mac_control(pfc(0x00FF, {0: 1, 2: 2, 4: 3, 6: 0xFFFF}))
    yield "time-without-bit", 2, mac_control(pfc(0x0010, {4: 5, 5: 5}))
    yield "unconfigured-port", 4, mac_control(pfc(0x0080, {7: 5}))
    yield "high-byte", 2, mac_control(pfc(0x0102, {1: 5}))
    yield "only-high-byte", 2, mac_control(pfc(0xFF00, {1: 5}))
    yield "zero-vector", 2, mac_control(pfc(0, {1: 5}))
    yield "unicast", 2, mac_control(pfc(0x08, {3: 5}), dst="02:01:00:00:01:02")
    yield "other-group", 2, mac_control(pfc(0x08, {3: 5}), dst="01:80:c2:00:00:0e")
    for length in (14, 15, 16, 17, 18, 33, 34, 59, 61, 64, 128):
        yield f"length-{length}", 2, mac_control(pfc(0x08, {3: 5}), length=length)
    for offset in (34, 41, 42, 50, 58, 59):
        yield f"pad-{offset}", 2, corrupted(mac_control(pfc(0x08, {3: 5})), offset, 1)
    yield "opcode-2", 2, mac_control(b"\x00\x02")
    yield "opcode-0101-swapped", 2, mac_control(b"\x01\x00" + bytes(44))
    yield "tagged", 2, ether("01:80:c2:00:00:01") / Dot1Q(vlan=1, type=0x8808) / Raw(pfc(0x08, {3: 5}).ljust(46, b"\0"))
    yield "pause", 2, mac_control(b"\x00\x01\xff\xff")
    yield "pause-zero", 2, mac_control(b"\x00\x01\x00\x00")
    yield "pause-not-enabled", 1, mac_control(b"\x00\x01\x00\x10")
    yield "pause-unicast", 2, mac_control(b"\x00\x01\x00\x10", dst="02:01:00:00:01:02")
    yield "pause-pad", 2, mac_control(b"\x00\x01\x00\x10\x00\x00\x01")
    yield "pause-pad-end", 2, corrupted(mac_control(b"\x00\x01\x00\x10"), 59, 0x80)
    yield "pause-64", 2, mac_control(b"\x00\x01\x00\x10", length=64)
    yield "pause-17", 2, mac_control(b"\x00\x01\x00\x10", length=17)
    yield "data-beside", 1, ether() / udp("10.1.1.1")


DIALECT_OF_PORT = {1: 1, 2: 2, 3: 3}  # cleared bit resumes, top bit is forever, both


def dialect_entries() -> list[Entry]:
    return [
        Entry("ingress.pfc_policy", {"ingress_port": port}, "ingress.set_pfc_policy", [dialect, 2])
        for port, dialect in DIALECT_OF_PORT.items()
    ]


def dialects() -> Iterator[tuple[str, int, bytes | Packet]]:
    """PFC in every dialect: what counts as XOFF, as XON and as invalid. No meter is configured: there is no storm."""
    for port in (1, 2, 3, 4):
        yield f"forever-{port}", port, mac_control(pfc(0x0008, {3: 0x8000}))
        yield f"two-{port}", port, mac_control(pfc(0x0018, {3: 0x7FFF, 4: 0xFFFF}))
        yield f"one-left-out-{port}", port, mac_control(pfc(0x0010, {3: 9, 4: 9}))
        yield f"time-zero-{port}", port, mac_control(pfc(0x0018, {3: 0, 4: 1}))
        yield f"zero-vector-{port}", port, mac_control(pfc(0, {3: 0x8000}))
        yield f"only-high-byte-{port}", port, mac_control(pfc(0xFF00, {1: 5}))
        yield f"pad-{port}", port, corrupted(mac_control(pfc(0, {3: 5})), 50, 1)
    yield "data-beside", 1, ether() / udp("10.1.1.1")


ANY = {
    "in_port": [0, 0],
    "ether_type": [0, 0],
    "src_ip4": [0, 0],
    "dst_ip4": [0, 0],
    "ip_proto": [0, 0],
    "l4_dst_port": [0, 0xFFFF],
    "dscp": [0, 0],
}


def acl_entries() -> list[Entry]:
    def rule(priority: int, action: str, params: list[int], **match: list[int]) -> Entry:
        return Entry("ingress.acl", {**ANY, **match}, f"ingress.{action}", params, priority)

    return [
        rule(100, "acl_drop", [], ip_proto=[6, 0xFF], l4_dst_port=[80, 90]),
        rule(90, "acl_punt", [], dst_ip4=[ip4("10.1.1.0"), 0xFFFFFF00], dscp=[0x2E, 0x3E]),
        rule(80, "acl_mirror", [5], src_ip4=[ip4("10.6.0.0"), 0xFFFF0000]),
        rule(70, "acl_mirror", [6], src_ip4=[ip4("10.5.0.0"), 0xFFFF0000], in_port=[1, 0x1FF]),
        rule(60, "acl_set_class", [6, 2, 1], ether_type=[0x86DD, 0xFFFF], ip_proto=[17, 0xFF]),
        rule(50, "acl_punt", [], ether_type=[0x0806, 0xFFFF]),
        rule(40, "acl_drop", [], in_port=[4, 0x1FC], ip_proto=[17, 0xFF], l4_dst_port=[2000, 2000]),
        rule(30, "acl_drop", [], l4_dst_port=[65535, 65535]),
    ]


def acl() -> Iterator[tuple[str, int, bytes | Packet]]:
    """Every action, range edges, order, and that a copy is the frame as it came in."""

    def tcp(dport: int, **fields: Any) -> Packet:
        return IP(src="10.7.0.1", dst="10.1.2.1", **fields) / TCP(sport=1, dport=dport) / payload(6)

    for port in (79, 80, 85, 90, 91, 65534, 65535):
        yield f"tcp-{port}", 1, ether() / tcp(port)
    yield "udp-80", 1, ether() / IP(src="10.7.0.1", dst="10.1.2.1") / UDP(sport=1, dport=80) / payload(18)
    yield "tcp6-80", 1, ether() / IPv6(src="fd00:7::1", dst="fd00:1::1") / TCP(sport=1, dport=80) / payload(2)
    for dscp in (0x2D, 0x2E, 0x2F, 0x30):
        yield f"punt-dscp-{dscp:x}", 2, ether() / udp("10.1.1.200", tos=dscp << 2)
    for port in (1, 2):
        for src in ("10.5.1.1", "10.6.1.1", "10.7.1.1"):
            packet = IP(src=src, dst="10.1.2.3", tos=26 << 2, ttl=9) / UDP(sport=1, dport=2) / payload(18)
            yield f"mirror-{src}-from-{port}", port, ether() / Dot1Q(vlan=5, prio=2) / packet
    options = [IPOption(b"\x94\x04\x00\x00")]
    packet = IP(src="10.6.1.1", dst="10.1.1.1", options=options) / UDP(sport=1, dport=2) / payload(18)
    yield "mirror-options", 2, ether() / packet
    yield "mirror-no-route", 2, ether() / IP(src="10.6.1.1", dst="10.77.0.1") / UDP(sport=1, dport=2) / payload(18)
    yield "mirror-and-punt-ttl", 1, ether() / IP(src="10.5.1.1", dst="10.1.1.1", ttl=1) / UDP() / payload(18)
    yield "set-class", 1, ether() / udp6("fd00:1:0:2::3")
    yield "arp", 1, bytes(ether("ff:ff:ff:ff:ff:ff") / ARP(hwsrc=HOST, psrc="10.1.0.2", pdst="10.1.0.1"))
    yield "lldp-before-acl", 4, Ether(dst=ROUTER, src=HOST, type=0x88CC) / payload(46)
    for port in (3, 4, 7):
        yield f"port-masked-{port}", port, ether() / udp("10.1.1.1")


def arp_entries() -> list[Entry]:
    """Ports 1, 2, 4, 5 and 6 answer; the ACL punts, drops and mirrors what comes in at 4, 5 and 6."""
    ports = (1, 2, 4, 5, 6)
    entries = [Entry("ingress.arp_proxy", {"ingress_port": port}, "ingress.arp_reply", [mac(port)]) for port in ports]
    for port, action, params in ((4, "acl_punt", []), (5, "acl_drop", []), (6, "acl_mirror", [5])):
        match = {**ANY, "in_port": [port, 0x1FF], "ether_type": [0x0806, 0xFFFF]}
        entries.append(Entry("ingress.acl", match, f"ingress.{action}", list(params), port))
    return entries


def arp() -> Iterator[tuple[str, int, bytes | Packet]]:
    """What is answered, byte for byte, and everything about ARP that is not."""
    broadcast = "ff:ff:ff:ff:ff:ff"

    def asked(**fields: Any) -> ARP:
        return ARP(**{"hwsrc": HOST, "psrc": "10.1.0.2", "pdst": "169.254.0.1", **fields})

    yield "request", 1, ether(broadcast) / asked()
    yield "request-padded", 1, bytes(ether(broadcast) / asked()).ljust(60, b"\0")
    yield "request-unicast", 1, ether() / asked(hwdst=ROUTER)
    yield "request-for-a-host", 1, ether(broadcast) / asked(pdst="10.1.0.4")
    yield "request-sender-differs", 1, ether(broadcast) / asked(hwsrc="02:00:00:00:01:77")
    yield "request-tagged", 2, ether(broadcast) / Dot1Q(vlan=0, prio=5) / asked()
    yield "request-two-tags", 2, ether(broadcast) / Dot1AD(vlan=9, prio=3) / Dot1Q(vlan=8, prio=1) / asked()
    yield "request-three-tags", 2, ether(broadcast) / Dot1Q(vlan=9) / Dot1Q(vlan=8) / Dot1Q(vlan=7) / asked()
    yield "request-elsewhere", 3, ether(broadcast) / asked()
    yield "reply", 1, ether() / asked(op=2, hwdst=ROUTER)
    yield "reverse-request", 1, ether(broadcast) / asked(op=3)
    yield "operation-0", 1, ether(broadcast) / asked(op=0)
    yield "operation-high", 1, ether(broadcast) / asked(op=0x0101)
    yield "announcement", 1, ether(broadcast) / asked(pdst="10.1.0.2")
    yield "probe", 1, ether(broadcast) / asked(psrc="0.0.0.0")
    for name, fields in {
        "hardware": {"hwtype": 6},
        "protocol": {"ptype": 0x86DD},
        "hardware-length": {"hwlen": 8},
        "protocol-length": {"plen": 16},
    }.items():
        yield f"other-{name}", 1, bytes(ether(broadcast) / asked(**fields)).ljust(90, b"\0")
    yield "cut", 1, bytes(ether(broadcast) / asked())[:41]
    yield "cut-at-the-start", 1, bytes(ether(broadcast) / asked())[:20]
    for port, what in ((4, "punted"), (5, "dropped"), (6, "mirrored")):
        yield f"{what}-by-acl", port, ether(broadcast) / Dot1Q(vlan=1, prio=2) / asked()
    yield "data-beside", 1, ether() / udp("10.1.1.1")


def ecn_entries() -> list[Entry]:
    """Steps at 0 bytes: BMv2 knows no depth in bytes, its queue is always 0 of them."""

    def profile(port: int, queue: int, threshold: int, drop: int) -> Entry:
        match: Match = {"egress_port": port, "queue": queue}
        return Entry("egress.ecn_profile", match, "egress.set_ecn", [threshold, threshold, 0xFFFFFFFF, 0, drop])

    return [profile(1, 0, 0, 0), profile(1, 3, 0, 1), profile(2, 0, 1, 1), profile(3, 7, 0, 1)]


def ecn() -> Iterator[tuple[str, int, bytes | Packet]]:
    """All four codepoints over queues that mark, mark or drop, and leave alone."""
    for code in range(4):
        yield f"mark-{code}", 1, ether() / udp("10.1.1.1", tos=code)
        yield f"mark6-{code}", 1, ether() / udp6("fd00:1::1", tc=code)
        yield f"mark-or-drop-{code}", 1, ether() / udp("10.1.1.1", tos=26 << 2 | code)
        yield f"mark6-or-drop-{code}", 1, ether() / udp6("fd00:1::1", tc=26 << 2 | code)
        yield f"below-kmin-{code}", 1, ether() / udp("10.1.2.1", tos=code)
        yield f"no-profile-{code}", 1, ether() / udp("10.1.2.3", tos=code)
        # priority 6 is queue 7 there; the DSCP is rewritten too
        yield f"mapped-queue-{code}", 1, ether() / Dot1Q(vlan=4) / udp("10.1.2.3", tos=48 << 2 | code)
    yield "mark-options", 1, ether() / udp("10.1.1.1", tos=2, options=[IPOption(b"\x94\x04\x00\x00")])
    yield "not-routed", CPU_PORT, packet_out(1, 0, bytes(ether() / udp("10.1.1.1", tos=2)))
    yield "punted", 1, ether() / udp("10.8.0.1", tos=2)


def cn_tag(flow_id: int, inner: Packet, ether_type: int = 0x0800) -> Packet:
    """802.1Qau's tag, for behind Ethernet or a VLAN tag of type 0x22E9."""
    return Raw(struct.pack("!HH", flow_id, ether_type) + bytes(inner))


def qcn() -> Iterator[tuple[str, int, bytes | Packet]]:
    """CN-TAGs are taken off what is routed, and kept on what is punted; messages are not routed."""
    tagged = Ether(dst=ROUTER, src=HOST, type=0x22E9)
    outer = {
        "": tagged,
        "vlan-": ether() / Dot1Q(vlan=5, prio=3, type=0x22E9),
        "svlan-": ether() / Dot1AD(vlan=5, prio=6, type=0x22E9),
        "two-vlans-": ether() / Dot1Q(vlan=5, prio=3) / Dot1Q(vlan=6, type=0x22E9),
    }
    inner = {
        "roce": (roce("10.0.0.1", "10.1.1.1", 17), 0x0800),
        "udp": (udp("10.1.1.1", tos=26 << 2), 0x0800),
        "options": (udp("10.1.1.1", options=[IPOption(b"\x94\x04\x00\x00")]), 0x0800),
        "roce6": (roce6("fd00::1", "fd00:1::1", 17), 0x86DD),
        "arp": (ARP(hwsrc=HOST, psrc="10.0.0.1", pdst="10.0.0.9"), 0x0806),
    }
    for number, (tags, frame) in enumerate(outer.items()):
        for name, (packet, ether_type) in inner.items():
            yield f"{tags}cn-tag-{name}", 1, frame / cn_tag(number, packet, ether_type)
    yield "cn-tag-punted", 1, tagged / cn_tag(2, udp("10.8.0.1"))
    yield "cn-tag-ttl-1", 1, tagged / cn_tag(3, udp("10.1.1.1", ttl=1))
    yield "cn-tag-other", 1, tagged / cn_tag(4, Raw(bytes(40)), 0x1234)
    yield "cn-tag-twice", 1, tagged / cn_tag(5, cn_tag(6, udp("10.1.1.1")), 0x22E9)
    yield "cn-tag-cut", 1, bytes(tagged) + b"\x00\x01\x08"
    message = bytes(24) + bytes(ether() / udp("10.1.1.1"))[12:76]
    yield "cnm", 1, Ether(dst=ROUTER, src=HOST, type=0x22E7) / Raw(message)
    yield "cnm-behind-tags", 1, ether() / Dot1Q(vlan=5, prio=6, type=0x22E9) / cn_tag(7, Raw(message), 0x22E7)


def scenario(packets: Iterator[tuple[str, int, bytes | Packet]], extra: list[Entry] | None = None) -> Scenario:
    inputs = [Input(name, port, bytes(frame)) for name, port, frame in packets]
    assert len({packet.name for packet in inputs}) == len(inputs)
    return Scenario(base_entries() + (extra or []), inputs, MEMBERS, GROUPS, {5: 4, 6: CPU_PORT})


SCENARIOS = {
    "routing": lambda: scenario(routing()),
    "classification": lambda: scenario(classification()),
    "ecmp": lambda: scenario(ecmp()),
    "pause": lambda: scenario(pause()),
    "dialects": lambda: scenario(dialects(), dialect_entries()),
    "acl": lambda: scenario(acl(), acl_entries()),
    "arp": lambda: scenario(arp(), arp_entries()),
    "ecn": lambda: scenario(ecn(), ecn_entries()),
    "qcn": lambda: scenario(qcn()),
}

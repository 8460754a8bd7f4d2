"""Valid frames of every kind that dcb.p4 parses, made with scapy, as seeds for mutation."""

from __future__ import annotations

from scapy.contrib.mac_control import MACControlClassBasedFlowControl, MACControlPause
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

MAC = {"src": "02:00:00:00:01:01", "dst": "02:01:00:00:01:01"}
BTH = bytes.fromhex("04 40 ffff 00 000011 80 000001".replace(" ", ""))


def ip(**fields: object) -> Packet:
    return IP(src="10.1.0.1", dst="10.2.0.3", **fields)


def dcb_frames() -> list[bytes]:
    """Ethernet, VLAN, IPv4 with and without options, IPv6, TCP, UDP, RoCEv2, PFC, PAUSE, LLDP, ARP, packet-out."""
    ether, tagged = Ether(**MAC), Ether(**MAC) / Dot1Q(prio=3, vlan=10)
    roce = UDP(sport=50000, dport=4791) / Raw(BTH + b"payload" * 8)
    six = IPv6(src="fd00:1::1", dst="fd00:2::3", tc=26 << 2 | 1)
    pfc = Ether(dst="01:80:c2:00:00:01", src="02:00:00:00:01:01", type=0x8808) / MACControlClassBasedFlowControl(
        c0_enabled=1, c3_enabled=1, c0_pause_time=65535, c3_pause_time=100
    )
    pause = Ether(dst="01:80:c2:00:00:01", src="02:00:00:00:01:01", type=0x8808) / MACControlPause(pause_time=9)
    frames = [
        ether / ip(tos=26 << 2 | 1, ttl=64) / roce,
        ether / ip(tos=26 << 2 | 2, ttl=1) / roce,
        tagged / ip(tos=3, ttl=9) / UDP(sport=7, dport=53) / Raw(b"x" * 100),
        ether / ip(ttl=64) / TCP(sport=1000, dport=80, flags="S") / Raw(b"y" * 40),
        ether / ip(ttl=64, options=[IPOption(b"\x94\x04\0\0")]) / UDP(sport=1, dport=4791) / Raw(BTH),
        ether / ip(frag=10) / Raw(b"z" * 30),
        ether / ip() / ICMP(),
        ether / six / roce,
        tagged / six / TCP(sport=5, dport=6),
        ether / IPv6(src="fd00:1::1", dst="fd00:2::4", hlim=1) / UDP(sport=9, dport=4791) / Raw(BTH),
        ether / ARP(),
        Ether(dst="ff:ff:ff:ff:ff:ff", src=MAC["src"]) / ip() / UDP(),
        Ether(dst="01:80:c2:00:00:0e", src=MAC["src"], type=0x88CC) / Raw(bytes.fromhex("02070402000000010104036162")),
        Ether(**MAC, type=0x22E9) / Raw(bytes(24)),
        Ether(**MAC, type=0x1234) / Raw(bytes(46)),
    ]
    made = [bytes(frame) for frame in frames]
    for frame in (pfc, pause):
        made.append(bytes(frame).ljust(60, b"\0"))
        made.append(bytes(frame).ljust(60, b"\0")[:59])
    made.append(bytes.fromhex("0091") + bytes(ether / ip(ttl=3) / roce))  # as a packet-out: port 1, queue 1
    return made

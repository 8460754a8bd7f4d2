"""Packets a second of dcb.p4 by direct injection on one core: the pipeline alone, and the whole switch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from switch.api import ActionCall, GroupRef, KeyMatch, MatchKind
from switch.core import SwitchCore
from topologies.paths import PIPELINE_JSON

PORTS = range(1, 9)
PACKETS = 200_000
ROUNDS = 7  # the best of them counts: what else runs on the machine only ever adds time


@dataclass(frozen=True, slots=True)
class Rate:
    name: str
    packets_per_s: float
    note: str


def exact(value: int) -> KeyMatch:
    return KeyMatch(MatchKind.EXACT, value)


def configured_core() -> SwitchCore:
    """dcb.p4 with what a leaf of the lab has: trust DSCP, the class maps, a route and an ECN profile for each port."""
    core = SwitchCore(PIPELINE_JSON.read_text())
    table, pipeline = core.pipeline.table_insert, core.pipeline
    for dscp in range(64):
        priority = {26: 3, 48: 6}.get(dscp, 0)
        action = ActionCall("ingress.set_priority", (priority,))
        table("ingress.dscp_to_priority", [exact(1), exact(dscp)], 0, action)
    for priority in range(8):
        action = ActionCall("ingress.set_class", (priority, priority, int(priority == 3)))
        table("ingress.priority_map", [exact(1), exact(priority)], 0, action)
    for port in PORTS:
        core.tm.add_port(port)
        table("ingress.port_config", [exact(port)], 0, ActionCall("ingress.set_port", (2, 0, 1, 8, 0)))
        table("egress.port_mac", [exact(port)], 0, ActionCall("egress.set_src_mac", (0x020100000100 + port,)))
        forward = ActionCall("ingress.forward", (port, 0x020000000100 + port))
        pipeline.member_set("ingress.ecmp", port, forward)
        pipeline.group_set("ingress.ecmp", port, [(port, 1)])
        table("ingress.nexthop", [exact(port)], 0, GroupRef(port))
        prefix = KeyMatch(MatchKind.LPM, 0x0A000000 | port << 16, prefix_len=16)
        table("ingress.ipv4_lpm", [prefix], 0, ActionCall("ingress.route", (port,)))
        ecn = ActionCall("egress.set_ecn", (20_000, 80_000, 0x19999999, 469_124_961, 0))
        table("egress.ecn_profile", [exact(port), exact(3)], 0, ecn)
    return core


def frames() -> Iterator[tuple[int, bytes]]:
    """RoCEv2-like frames of 128 bytes from every port to the next."""
    for port in PORTS:
        ip = IP(src=f"10.{port}.0.9", dst=f"10.{port % len(PORTS) + 1}.0.7", tos=26 << 2 | 2)
        packet = Ether(dst=f"02:01:00:00:01:{port:02x}", src="02:00:00:00:00:01") / ip
        udp = UDP(sport=49152 + port, dport=4791, chksum=0)
        bth = bytes.fromhex("0440ffff0000010000000000")
        yield port, bytes(packet / udp / (bth + bytes(128 - 14 - 20 - 8 - 12)))


def best(measure: Callable[[], tuple[float, int]]) -> float:
    """Nanoseconds of processor time for a packet, in the best of the rounds; every packet must have come out."""
    times = []
    for _ in range(ROUNDS):
        nanoseconds_each, sent = measure()
        assert sent == PACKETS, f"{PACKETS - sent} packets were dropped"
        times.append(nanoseconds_each)
    return min(times)


def run() -> Iterator[Rate]:
    core = configured_core()
    traffic = list(frames())
    port, frame = traffic[0]
    alone = best(lambda: core.pipeline.bench(frame, PACKETS, port))
    yield Rate("pipeline alone, injection", 1e9 / alone, "parse + ingress + egress + deparse")

    def whole() -> tuple[float, int]:
        nanoseconds, sent = core.bench(traffic, PACKETS)
        return nanoseconds / PACKETS, sent

    yield Rate("whole switch, injection", 1e9 / best(whole), "with traffic manager; aim: at least 2,000,000")

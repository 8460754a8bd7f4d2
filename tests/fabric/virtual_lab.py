"""Fabrics for tests and benches: switch cores with dcb.p4 set up as a leaf or spine of docs/contract.md, section 7.

Straight through the pipeline's tables, without a controller: what is tested here is the engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from fabric.engine import Fabric
from fabric.tester import Tester
from switch.api import ActionCall, GroupRef, KeyMatch, MatchKind
from switch.core import StaticGroup, SwitchCore
from switch.tm_settings import StaticLimit
from topologies.description import Host, Switch, Topology
from topologies.paths import PIPELINE_JSON

G = 10**9
LOSSLESS = 3
SANITIZE = os.environ.get("DCB_TEST_SANITIZE") == "1"
DSCP = {0: 0, 3: 26, 6: 48}


@cache
def program() -> str:
    return PIPELINE_JSON.read_text()


def exact(*values: int) -> list[KeyMatch]:
    return [KeyMatch(MatchKind.EXACT, value) for value in values]


def address(dotted: str) -> int:
    return int.from_bytes(bytes(map(int, dotted.split("."))), "big")


def mac(text: str) -> int:
    return int(text.replace(":", ""), 16)


def configure(core: SwitchCore, topology: Topology, switch: Switch, rate_bps: int) -> None:
    """Trust DSCP, priority 3 lossless, PFC on 3 both ways, ECMP routes to every host."""
    insert, pipeline = core.pipeline.table_insert, core.pipeline
    for priority, dscp in DSCP.items():
        insert("ingress.dscp_to_priority", exact(1, dscp), 0, ActionCall("ingress.set_priority", (priority,)))
    for priority in range(8):
        lossless = int(priority == LOSSLESS)
        insert(
            "ingress.priority_map",
            exact(1, priority),
            0,
            ActionCall("ingress.set_class", (priority,) * 2 + (lossless,)),
        )
    for port in switch.ports:
        core.tm.add_port(port)
        core.tm.set_port(port, rate_bps)
        core.tm.set_pfc(port, 1 << LOSSLESS, 65535)
        insert("ingress.port_config", exact(port), 0, ActionCall("ingress.set_port", (2, 0, 1, 1 << LOSSLESS, 0)))
        insert("egress.port_mac", exact(port), 0, ActionCall("egress.set_src_mac", (mac(switch.port_mac(port)),)))
    groups: dict[tuple[tuple[int, str], ...], int] = {}
    for host in topology.hosts:
        hops = tuple(topology.next_hops(switch, host))
        if hops not in groups:
            group = groups[hops] = len(groups) + 1
            members = []
            for i, (port, next_mac) in enumerate(hops):
                member = group * 256 + i
                pipeline.member_set("ingress.ecmp", member, ActionCall("ingress.forward", (port, mac(next_mac))))
                members.append((member, 1))
            pipeline.group_set("ingress.ecmp", group, members)
            insert("ingress.nexthop", exact(group), 0, GroupRef(group))
        route = [KeyMatch(MatchKind.LPM, address(host.ip4), prefix_len=32)]
        insert("ingress.ipv4_lpm", route, 0, ActionCall("ingress.route", (groups[hops],)))


def lossless_buffers(core: SwitchCore, switch: Switch, xoff: int, xon: int, headroom: int) -> None:
    for port in switch.ports:
        core.tm.set_priority_group(port, LOSSLESS, StaticGroup(0, xoff, xon, headroom, 1 << LOSSLESS))


def lossy_limits(core: SwitchCore, switch: Switch, limit: int) -> None:
    for port in switch.ports:
        for queue in range(8):
            core.tm.set_queue(port, queue, StaticLimit(limit))


@cache
def headers(source: Host, target: Host, gateway: str, dscp: int, length: int, sport: int) -> bytes:
    """A UDP frame for the RoCEv2 port of `length` bytes without FCS."""
    head = Ether(dst=gateway, src=source.mac) / IP(src=source.ip4, dst=target.ip4, tos=dscp << 2 | 2, id=1)
    return bytes(head / UDP(sport=sport, dport=4791, chksum=0) / bytes(length - 42))


@dataclass
class VirtualLab:
    """A leaf-spine of switch cores with a tester in place of each host."""

    topology: Topology
    fabric: Fabric
    cores: dict[str, SwitchCore] = field(default_factory=dict)
    testers: dict[str, Tester] = field(default_factory=dict)

    def frame(self, source: str, target: str, length: int, priority: int = 3, sport: int = 49152) -> bytes:
        a, b = self.topology.host(source), self.topology.host(target)
        gateway = self.topology.switch(a.leaf).port_mac(a.number)
        return headers(a, b, gateway, DSCP[priority], length, sport)


@contextmanager
def virtual_lab(
    topology: Topology,
    *,
    length_m: int = 10,
    seed: int = 1,
    trace: bool = True,
    debug: bool | None = None,
    record_bytes: int = 64 << 20,
    pfc: int = 1 << LOSSLESS,
    pfc_response_ps: int = 0,
    lookahead_ps: int | None = None,
    hosts: bool = True,
) -> Iterator[VirtualLab]:
    """The fabric of a topology; without `hosts` their ports are left free."""
    lab = VirtualLab(topology, Fabric(seed, trace=trace, debug=debug, lookahead_ps=lookahead_ps))
    rate_bps = topology.links[0].rate_bps
    try:
        for i, switch in enumerate(topology.switches):
            core = SwitchCore(program(), seed=seed * 1000 + i, sanitize=SANITIZE)
            lab.cores[switch.name] = core
            configure(core, topology, switch, rate_bps)
            lab.fabric.add_switch(switch.name, core, pfc_response_ps=pfc_response_ps)
        for host in topology.hosts if hosts else ():
            lab.testers[host.name] = Tester(rate_bps, pfc=pfc, record_bytes=record_bytes)
            lab.fabric.add_nic(host.name, lab.testers[host.name], pfc_response_ps=pfc_response_ps)
        for link in topology.links:
            if link.a.port == 0 and not hosts:
                continue
            ends = (link.a.node, link.a.port, link.b.node, link.b.port)
            lab.fabric.connect(*ends, rate_bps=link.rate_bps, length_m=length_m)
        yield lab
    finally:
        lab.fabric.close()
        for core in lab.cores.values():
            core.close()
        for tester in lab.testers.values():
            tester.close()

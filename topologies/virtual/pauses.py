"""How far pauses went in a lab: over which links (a `LinkMap` of the report), over how many hops, by which chain.

Reads what the lab's links counted and what its switches keep; owns nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from controller.propagation import Pauses, Spread, Wiring, spread
from topologies.description import Tier
from topologies.html_report import LinkFlow, LinkMap
from topologies.virtual.lab import VirtualLab

Xoffs = Mapping[tuple[str, str], Sequence[int]]
"""(sender, receiver) -> XOFF frames sent by then, by priority."""


def xoffs(lab: VirtualLab) -> Xoffs:
    """XOFF frames that each end of each link has sent since the lab was made (those that were lost too)."""
    directions = (d for link in lab.fabric.links for d in link.directions)
    return {(d.source[0], d.target[0]): d.stats().xoff for d in directions}


def link_map(lab: VirtualLab, title: str, before: Xoffs | None = None, priorities: Iterable[int] = range(8)) -> LinkMap:
    """The fabric with the XOFF frames that went over its links since `before` (None: ever)."""
    chosen = tuple(priorities)
    flows = []
    for (sender, receiver), counts in xoffs(lab).items():
        earlier = (before or {}).get((sender, receiver), (0,) * 8)
        count = sum(counts[p] - earlier[p] for p in chosen)
        if count:
            flows.append(LinkFlow(sender, receiver, float(count), f"{count} XOFF"))
    switches = lab.topology.switches
    tiers = [[s.name for s in switches if s.tier is tier] for tier in (Tier.SPINE, Tier.LEAF)]
    tiers.append([host.name for host in lab.topology.hosts])
    pairs = [(link.a.node, link.b.node) for link in lab.topology.links]
    return LinkMap(title, tiers, pairs, flows, "An arrow: XOFF frames that its tail sent to its head")


class PauseWatch:
    """What became XOFF, and what was paused, since it was made or last asked: the longest chain of each priority.

    The chain is what routes allow (controller.propagation): the same figure that telemetry has.
    """

    _REGISTERS = ("tm_xoff_count", "tm_pause_count", "tm_pg_xoff", "tm_pause_left")

    def __init__(self, lab: VirtualLab) -> None:
        self._lab, self._wiring = lab, Wiring(lab.controller.running)
        self._counts = {s.name: self._read(s.name) for s in lab.topology.switches}

    def chains(self) -> dict[int, Spread]:
        """By priority; one without XOFF or pause is not there."""
        xoff, paused = set(), set()
        for switch, before in self._counts.items():
            now = self._counts[switch] = self._read(switch)
            for cell in now["tm_xoff_count"]:
                if now["tm_pg_xoff"][cell] or now["tm_xoff_count"][cell] != before["tm_xoff_count"][cell]:
                    xoff.add((switch, *cell))
                if now["tm_pause_left"][cell] or now["tm_pause_count"][cell] != before["tm_pause_count"][cell]:
                    paused.add((switch, *cell))
        return spread(self._wiring, Pauses(xoff, paused))

    def _read(self, switch: str) -> dict[str, dict[tuple[int, int], int]]:
        core, ports = self._lab.core(switch), self._lab.topology.switch(switch).ports
        cells = [(port, n) for port in ports for n in range(8)]
        return {
            name: {(port, n): core.tm.read_state(name.removeprefix("tm_"), port * 8 + n) for port, n in cells}
            for name in self._REGISTERS
        }

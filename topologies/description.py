"""Leaf-spine fabrics as data: names, ports, addresses and links; no process, no namespace, no I/O.

`leaf_spine()` makes a `Topology`; `topologies.network` builds it with Mininet, `topologies.settings` turns it into
the controller's configuration. Naming, numbering and addressing are those of docs/contract.md, section 7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NoReturn

GATEWAY_IP4 = "169.254.0.1"
GATEWAY_IP6 = "fe80::1"
LINK_RATE_RANGE_BPS = (1_000_000, 800_000_000_000)


class Tier(Enum):
    """Where a switch stands; the value is the second byte of its MAC addresses."""

    LEAF = 1
    SPINE = 2


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One end of a link. `port` is 0 for a host."""

    node: str
    port: int

    @property
    def interface(self) -> str:
        """Linux interface name; at most 15 characters (IFNAMSIZ - 1)."""
        return f"{self.node}-eth{self.port}"


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex link of `rate_bps` each way; `a` is the lower end (host or leaf), `b` the upper one."""

    a: Endpoint
    b: Endpoint
    rate_bps: int


@dataclass(frozen=True, slots=True)
class Switch:
    name: str
    tier: Tier
    index: int  # 1-based within its tier
    ports: tuple[int, ...]

    @property
    def device_id(self) -> int:
        """P4Runtime device id."""
        return self.index if self.tier is Tier.LEAF else 100 + self.index

    def port_mac(self, port: int) -> str:
        return f"02:{self.tier.value:02x}:00:00:{self.index:02x}:{port:02x}"


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    leaf: str
    leaf_index: int
    number: int  # 1-based on its leaf: also the leaf's port

    @property
    def mac(self) -> str:
        return f"02:00:00:00:{self.leaf_index:02x}:{self.number:02x}"

    @property
    def ip4(self) -> str:
        return f"10.{self.leaf_index}.0.{self.number}"

    @property
    def ip6(self) -> str:
        return f"fd00:{self.leaf_index:x}::{self.number:x}"

    @property
    def interface(self) -> str:
        return f"{self.name}-eth0"


@dataclass(frozen=True, slots=True)
class Topology:
    """A fabric. Look-ups raise KeyError with the name that is not there."""

    name: str
    switches: tuple[Switch, ...]
    hosts: tuple[Host, ...]
    links: tuple[Link, ...]
    _peers: dict[Endpoint, Endpoint] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for link in self.links:
            self._peers[link.a] = link.b
            self._peers[link.b] = link.a

    def switch(self, name: str) -> Switch:
        return next((s for s in self.switches if s.name == name), None) or _missing("switch", name)

    def host(self, name: str) -> Host:
        return next((h for h in self.hosts if h.name == name), None) or _missing("host", name)

    def peer(self, node: str, port: int) -> Endpoint:
        """The other end of the link at that port."""
        return self._peers[Endpoint(node, port)]

    def port_to(self, switch: str, peer: str) -> int:
        """The first port of a switch that leads to a node. KeyError where none does."""
        found = (port for port in self.switch(switch).ports if self.peer(switch, port).node == peer)
        port = next(found, None)
        return _missing("neighbour of " + switch, peer) if port is None else port

    def rate_bps(self, node: str, port: int) -> int:
        end = Endpoint(node, port)
        return next(link.rate_bps for link in self.links if end in (link.a, link.b))

    def leaves(self) -> Iterator[Switch]:
        return (s for s in self.switches if s.tier is Tier.LEAF)

    def spines(self) -> Iterator[Switch]:
        return (s for s in self.switches if s.tier is Tier.SPINE)

    def next_hops(self, switch: Switch, host: Host) -> list[tuple[int, str]]:
        """(port, MAC of the next node) of every shortest path from the switch to the host."""
        if switch.tier is Tier.SPINE:
            leaf = self.switch(host.leaf)
            return [(leaf.index, leaf.port_mac(self.peer(switch.name, leaf.index).port))]
        if switch.name == host.leaf:
            return [(host.number, host.mac)]
        return [
            (port, self.switch(end.node).port_mac(end.port))
            for port in switch.ports
            if (end := self.peer(switch.name, port)).port != 0
        ]


def _missing(kind: str, name: str) -> NoReturn:
    raise KeyError(f"{kind} {name!r}: no such {kind} in this topology")


def leaf_spine(
    leaves: int = 2, spines: int = 2, hosts_per_leaf: int = 4, rate_bps: int = 100_000_000, *, name: str = "lab"
) -> Topology:
    """A two-tier Clos: every leaf has one link to every spine.

    leaves and spines 1..99 (device ids and MAC bytes), hosts_per_leaf 1..200, together at most 255 ports a switch;
    rate_bps of every link, 1 Mb/s to 800 Gb/s. Raises ValueError naming the argument, the value and the rule.
    """
    for label, value, high in (("leaves", leaves, 99), ("spines", spines, 99), ("hosts_per_leaf", hosts_per_leaf, 200)):
        if not 1 <= value <= high:
            raise ValueError(f"{label} {value}: must be 1..{high}")
    if hosts_per_leaf + spines > 255:
        raise ValueError(f"hosts_per_leaf {hosts_per_leaf} + spines {spines}: a leaf has at most 255 ports")
    low, high = LINK_RATE_RANGE_BPS
    if not low <= rate_bps <= high:
        raise ValueError(f"rate_bps {rate_bps}: must be {low}..{high}")
    leaf_ports = tuple(range(1, hosts_per_leaf + spines + 1))
    switches = [Switch(f"leaf{i}", Tier.LEAF, i, leaf_ports) for i in range(1, leaves + 1)]
    switches += [Switch(f"spine{j}", Tier.SPINE, j, tuple(range(1, leaves + 1))) for j in range(1, spines + 1)]
    hosts = [
        Host(f"h{(i - 1) * hosts_per_leaf + n}", f"leaf{i}", i, n)
        for i in range(1, leaves + 1)
        for n in range(1, hosts_per_leaf + 1)
    ]
    links = [Link(Endpoint(h.name, 0), Endpoint(h.leaf, h.number), rate_bps) for h in hosts]
    links += [
        Link(Endpoint(f"leaf{i}", hosts_per_leaf + j), Endpoint(f"spine{j}", i), rate_bps)
        for i in range(1, leaves + 1)
        for j in range(1, spines + 1)
    ]
    return Topology(name, tuple(switches), tuple(hosts), tuple(links))

"""Static check for deadlock: is there a cyclic buffer dependency in a config's routes and priorities?

A lossless ingress buffer (switch, port, priority group) depends on another when packets in it leave for the other's
port and the other's XOFF stops the queue that they leave from. Packets are followed from every edge port along every
route (all ECMP ways), classified and re-marked at each switch as its config says. A cycle among the buffers is
necessary for a deadlock, not sufficient (Hu et al., HotNets 2016). Pure: Config in, cycles out.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from controller.config import Config, NextHop, Port, QosProfile
from controller.links import Links, PortRef

_SHOWN_PREFIXES = 4

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, order=True, slots=True)
class Buffer:
    """A lossless ingress buffer: what a switch holds of one priority group of one port."""

    switch: str
    port: int
    pg: int

    def __str__(self) -> str:
        return f"{self.switch}:{self.port} pg {self.pg}"


@dataclass(frozen=True, slots=True)
class Dependency:
    """`holder` cannot drain while `waits_for` is XOFF: packets for `prefixes` leave by `out_port` with `priority`."""

    holder: Buffer
    out_port: int
    priority: int
    waits_for: Buffer
    prefixes: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(self.prefixes[:_SHOWN_PREFIXES])
        more = len(self.prefixes) - _SHOWN_PREFIXES
        tail = f" and {more} more" if more > 0 else ""
        return f"{self.holder} -> out {self.out_port} priority {self.priority} -> {self.waits_for} (to {shown}{tail})"


@dataclass(frozen=True, slots=True)
class Cycle:
    """Buffers that wait for each other in a ring; the last one waits for the first."""

    dependencies: tuple[Dependency, ...]

    def __str__(self) -> str:
        ring = [str(d.holder) for d in self.dependencies]
        return " -> ".join([*ring, ring[0]])


def dependencies(config: Config) -> list[Dependency]:
    """Every dependency between lossless buffers of different switches, in a fixed order."""
    walker = _Walker(config)
    for prefixes in _destinations(config):
        walker.follow(prefixes)
    return [
        Dependency(holder, port, priority, waits_for, tuple(sorted(prefixes)))
        for (holder, port, priority, waits_for), prefixes in sorted(walker.found.items())
    ]


def cycles(config: Config) -> list[Cycle]:
    """One shortest cycle of each knot of buffers that wait for each other; empty: no deadlock by these routes."""
    outgoing: dict[Buffer, dict[Buffer, Dependency]] = defaultdict(dict)
    for dependency in dependencies(config):
        outgoing[dependency.holder].setdefault(dependency.waits_for, dependency)
    found = []
    for knot in _knots({node: list(edges) for node, edges in outgoing.items()}):
        ring = min((_shortest(node, knot, outgoing) for node in sorted(knot)), key=len)
        found.append(Cycle(tuple(ring)))
    return found


def _destinations(config: Config) -> Iterator[list[Network]]:
    """Prefixes of all switches; those that every switch treats alike come together, so that they are followed once."""
    every = {ipaddress.ip_network(r.prefix) for s in config.switches.values() for r in s.routes if r.via}
    groups: dict[tuple[object, ...], list[Network]] = defaultdict(list)
    tables = {name: _table(config, name) for name in config.switches}
    for prefix in sorted(every, key=lambda n: (n.version, n)):
        key = tuple(
            tuple(sorted((h.port, h.mac) for h in _lookup(table, prefix))) for table in (tables[n] for n in tables)
        )
        groups[key].append(prefix)
    yield from groups.values()


Table = dict[Network, list[NextHop]]


def _table(config: Config, switch: str) -> Table:
    return {ipaddress.ip_network(route.prefix): list(route.via) for route in config.switches[switch].routes}


def _lookup(table: Table, prefix: Network) -> list[NextHop]:
    """Longest prefix match for all of `prefix`."""
    for length in range(prefix.prefixlen, -1, -1):
        hops = table.get(prefix.supernet(new_prefix=length))
        if hops is not None:
            return hops
    return []


@dataclass(frozen=True, slots=True)
class _At:
    """Packets as they arrive: with this DSCP, and this PCP where they carry a tag."""

    port: PortRef
    dscp: int
    pcp: int


class _Walker:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._links = Links(config)
        self._tables = {name: _table(config, name) for name in config.switches}
        self.found: dict[tuple[Buffer, int, int, Buffer], set[str]] = defaultdict(set)

    def follow(self, prefixes: list[Network]) -> None:
        """All packets for destinations that are routed alike, from every edge port."""
        todo = deque(start for edge in sorted(self._links.edges) for start in self._marks(edge))
        seen = set(todo)
        while todo:
            for onward in self._step(todo.popleft(), prefixes):
                if onward not in seen:
                    seen.add(onward)
                    todo.append(onward)

    def _marks(self, edge: PortRef) -> Iterator[_At]:
        port, qos = self._port(edge)
        trust = port.trust or qos.trust
        if trust == "dscp":  # one DSCP stands for all that get the same priority
            by_priority = {qos.dscp_to_priority.get(d, qos.default_priority): d for d in range(63, -1, -1)}
            yield from (_At(edge, dscp, 0) for dscp in by_priority.values())
        elif trust == "pcp":
            yield from (_At(edge, 0, pcp) for pcp in range(8))
        else:
            yield _At(edge, 0, 0)

    def _port(self, ref: PortRef) -> tuple[Port, QosProfile]:
        port = self._config.switches[ref.switch].ports[ref.port]
        return port, self._config.qos_of(port)

    def _priority(self, at: _At) -> int:
        port, qos = self._port(at.port)
        match port.trust or qos.trust:
            case "dscp":
                return qos.dscp_to_priority.get(at.dscp, qos.default_priority)
            case "pcp":
                return qos.pcp_to_priority.get(at.pcp, at.pcp)
        return qos.default_priority

    def _step(self, at: _At, prefixes: list[Network]) -> Iterator[_At]:
        """Where packets go from a port, noting what their buffer then depends on."""
        switch, priority = at.port.switch, self._priority(at)
        for hop in _lookup(self._tables[switch], prefixes[0]):
            out = PortRef(switch, hop.port)
            far = self._links.peer(out)
            if far is None:
                continue
            out_port = self._config.switches[switch].ports[hop.port]
            onward = _At(far, out_port.dscp_rewrite.get(priority, at.dscp), out_port.pcp_rewrite.get(priority, at.pcp))
            holder, waits_for = self._buffer(at), self._buffer(onward)
            if holder is not None and waits_for is not None and self._stops(out, priority, self._priority(onward)):
                self.found[holder, hop.port, priority, waits_for].update(map(str, prefixes))
            yield onward

    def _buffer(self, at: _At) -> Buffer | None:
        """The buffer that the packets are held in, where it makes XOFF; None: they are lossy here."""
        port, qos = self._port(at.port)
        priority = self._priority(at)
        if priority not in port.pfc or priority not in qos.lossless:
            return None
        return Buffer(at.port.switch, at.port.port, qos.pg_of(priority))

    def _stops(self, out: PortRef, priority: int, paused: int) -> bool:
        """Whether XOFF for priority `paused`, received on `out`, stops the queue of `priority`."""
        port, qos = self._port(out)
        return paused in port.pfc and qos.queue_of(paused) == qos.queue_of(priority)


def _shortest(start: Buffer, knot: set[Buffer], outgoing: dict[Buffer, dict[Buffer, Dependency]]) -> list[Dependency]:
    """The shortest way from a buffer of a knot back to itself."""
    came: dict[Buffer, Dependency] = {}
    todo = deque([start])
    while todo:
        node = todo.popleft()
        for onward in sorted(outgoing[node]):
            if onward not in knot or onward in came:
                continue
            came[onward] = outgoing[node][onward]
            if onward == start:
                ring = [came[start]]
                while ring[0].holder != start:
                    ring.insert(0, came[ring[0].holder])
                return ring
            todo.append(onward)
    raise AssertionError("every buffer of a knot is on a cycle")


def _knots(graph: dict[Buffer, list[Buffer]]) -> list[set[Buffer]]:
    """Strongly connected components with a cycle (Tarjan 1972, without recursion)."""
    index: dict[Buffer, int] = {}
    low: dict[Buffer, int] = {}
    stack: list[Buffer] = []
    on_stack: set[Buffer] = set()
    found: list[set[Buffer]] = []
    for root in sorted(graph):
        if root in index:
            continue
        work = [(root, iter(sorted(graph.get(root, []))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, onward = work[-1]
            for nxt in onward:
                if nxt not in index:
                    index[nxt] = low[nxt] = len(index)
                    stack.append(nxt)
                    on_stack.add(nxt)
                    work.append((nxt, iter(sorted(graph.get(nxt, [])))))
                    break
                if nxt in on_stack:
                    low[node] = min(low[node], index[nxt])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    knot: set[Buffer] = set()
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        knot.add(member)
                        if member == node:
                            break
                    if len(knot) > 1 or node in graph.get(node, []):
                        found.append(knot)
    return found

"""Who waits for whom: the wait-for graph of paused queues, its cycles (deadlock), and where a pause comes from.

Pure: `FabricView`s (what switches showed at one time) and the config's links in, findings out. A queue that a peer has
paused waits for the peer's ingress buffer; that buffer waits for every queue of the peer that holds packets which came
in by the port. A chain ends at a queue that is not paused (congestion: it drains, slowly), at an edge port (a host or
its NIC sends the pause), or where it began (a deadlock, if nothing moved between two views).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from controller.config import Config
from controller.links import Links, PortRef

Cell = tuple[int, int]  # port, and priority, queue or priority group


@dataclass(frozen=True, slots=True)
class SwitchView:
    """A switch at one time, read over P4Runtime; cells that are 0 may be missing.

    `pause_left`: quanta by (port, priority). `depth`, `packets`: bytes in, and packets that ever left, a (port, queue).
    `sources`: ingress ports of what waits in a (port, queue). `xoff`: (port, priority group) in XOFF. The rest: frames
    that named a (port, priority).
    """

    pause_left: Mapping[Cell, int] = field(default_factory=dict)
    depth: Mapping[Cell, int] = field(default_factory=dict)
    packets: Mapping[Cell, int] = field(default_factory=dict)
    sources: Mapping[Cell, frozenset[int]] = field(default_factory=dict)
    xoff: frozenset[Cell] = frozenset()
    rx_xoff: Mapping[Cell, int] = field(default_factory=dict)
    rx_xon: Mapping[Cell, int] = field(default_factory=dict)
    rx_invalid: Mapping[Cell, int] = field(default_factory=dict)  # (port, reason)
    tx_xoff: Mapping[Cell, int] = field(default_factory=dict)
    tx_xon: Mapping[Cell, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FabricView:
    """All switches at about one time; `time_ns` on the clock of the controller."""

    time_ns: int
    switches: Mapping[str, SwitchView]


@dataclass(frozen=True, order=True, slots=True)
class Queue:
    """An egress queue that priority `priority` leaves by."""

    switch: str
    port: int
    priority: int

    def __str__(self) -> str:
        return f"{self.switch}:{self.port} priority {self.priority}"


class Cause(Enum):
    """What a chain of pauses ends in."""

    HOST = "host"  # the pause comes from outside: a host, its NIC, a switch that is not ours
    CONGESTION = "congestion"  # a queue that is not paused and holds more than it can send
    DEADLOCK = "deadlock"  # the chain comes back to itself and nothing moves
    LOOP = "loop"  # it comes back to itself, but frames moved
    DRAINED = "drained"  # the peer's buffer is below XOFF or holds nothing for this port: the pause is running out


@dataclass(frozen=True, slots=True)
class Hop:
    """One queue of a chain. `waits_for`: the ingress port at its far end; None at the end of the chain."""

    queue: Queue
    depth_bytes: int
    pause_left_quanta: int
    waits_for: PortRef | None


@dataclass(frozen=True, slots=True)
class Chain:
    """From a paused queue to what it waits for in the end; `hops[0]` is the queue that was asked about."""

    hops: tuple[Hop, ...]
    cause: Cause
    text: str

    @property
    def propagation_hops(self) -> int:
        """Links that the pause has crossed."""
        return sum(hop.waits_for is not None or hop.pause_left_quanta > 0 for hop in self.hops)


class WaitGraph:
    """The graph at the second of two views; the first one tells what moved in between."""

    def __init__(self, config: Config, before: FabricView, now: FabricView) -> None:
        self.config = config
        self.links = Links(config)
        self.before, self.now = before, now

    # --- the graph

    def paused(self) -> list[Queue]:
        """Every queue that is paused and holds something, in order."""
        found = {
            Queue(name, port, priority)
            for name, view in self.now.switches.items()
            for (port, priority), left in view.pause_left.items()
            if left and self.depth(Queue(name, port, priority))
        }
        return sorted(found)

    def waits_for(self, queue: Queue) -> list[Queue]:
        """The queues at the peer that hold what keeps its buffer in XOFF. Empty: the pause is not from a switch."""
        far = self.links.peer(PortRef(queue.switch, queue.port))
        if far is None or far.switch not in self.now.switches:
            return []
        view = self.now.switches[far.switch]
        qos = self.config.qos_of(self.config.switches[far.switch].ports[far.port])
        pg = qos.pg_of(queue.priority)
        if (far.port, pg) not in view.xoff:
            return []
        members = [p for p in range(8) if qos.pg_of(p) == pg and p in qos.lossless]
        return sorted(
            Queue(far.switch, out, priority)
            for out in self.config.switches[far.switch].ports
            for priority in members
            if far.port in view.sources.get((out, self._queue_of(far.switch, out, priority)), frozenset())
        )

    def cycles(self) -> list[tuple[Queue, ...]]:
        """Rings of paused queues none of which sent a frame between the two views: deadlocks, least first."""
        stuck = {queue for queue in self.paused() if not self._moved(queue)}
        found: set[tuple[Queue, ...]] = set()
        done: set[Queue] = set()
        for start in sorted(stuck):
            path: list[Queue] = []
            self._search(start, stuck, path, done, found)
        return sorted(found)

    def _search(
        self, node: Queue, stuck: set[Queue], path: list[Queue], done: set[Queue], found: set[tuple[Queue, ...]]
    ) -> None:
        """Depth first; each back edge is a ring. A fabric's rings are short: no deeper than its paused queues."""
        if node in path:
            ring = path[path.index(node) :]
            least = ring.index(min(ring))
            found.add(tuple(ring[least:] + ring[:least]))
            return
        if node in done:
            return
        path.append(node)
        for onward in self.waits_for(node):
            if onward in stuck:
                self._search(onward, stuck, path, done, found)
        path.pop()
        done.add(node)

    # --- chains

    def chains(self, queue: Queue) -> list[Chain]:
        """Every way from a paused queue to where its pause comes from, the shortest first."""
        found: list[Chain] = []
        self._follow(queue, (), found)
        return sorted(found, key=lambda chain: (len(chain.hops), chain.text))

    def _follow(self, queue: Queue, path: tuple[Hop, ...], found: list[Chain]) -> None:
        left = self.now.switches[queue.switch].pause_left.get((queue.port, queue.priority), 0)
        near = PortRef(queue.switch, queue.port)
        far = self.links.peer(near) if left else None
        hop = Hop(queue, self.depth(queue), left, far)
        if any(earlier.queue == queue for earlier in path):
            ring = [h.queue for h in path[[h.queue for h in path].index(queue) :]]
            names = " -> ".join(map(str, [*ring, queue]))
            if any(self._moved(member) for member in ring):
                found.append(Chain(path, Cause.LOOP, f"the pause comes back to {queue}, but frames move: {names}"))
            else:
                found.append(Chain(path, Cause.DEADLOCK, f"deadlock: {names}"))
            return
        path = (*path, hop)
        if not left:
            text = f"{queue} is not paused and holds {hop.depth_bytes} bytes: congestion there"
            found.append(Chain(path, Cause.CONGESTION, text))
        elif far is None:
            text = f"{near} is paused by {self.links.neighbour(near)}, which is no switch of this fabric"
            found.append(Chain(path, Cause.HOST, text))
        elif not (onward := self.waits_for(queue)):
            text = f"{far} is below XOFF or holds nothing: the pause of {near} runs out in {left} quanta"
            found.append(Chain(path, Cause.DRAINED, text))
        else:
            for peer_queue in onward:
                self._follow(peer_queue, path, found)

    # --- cells

    def sent(self, queue: Queue) -> int:
        """Frames that left the queue between the two views."""
        cell = queue.port, self._queue_of(queue.switch, queue.port, queue.priority)
        before = self.before.switches.get(queue.switch, SwitchView())
        return delta(before.packets, self.now.switches[queue.switch].packets, cell)

    def _queue_of(self, switch: str, port: int, priority: int) -> int:
        return self.config.qos_of(self.config.switches[switch].ports[port]).queue_of(priority)

    def depth(self, queue: Queue) -> int:
        """Bytes in the queue."""
        number = self._queue_of(queue.switch, queue.port, queue.priority)
        return self.now.switches[queue.switch].depth.get((queue.port, number), 0)

    def _moved(self, queue: Queue) -> bool:
        return self.sent(queue) != 0


def delta(before: Mapping[Cell, int], now: Mapping[Cell, int], cell: Cell) -> int:
    """How far a counter went between two views."""
    return now.get(cell, 0) - before.get(cell, 0)


def sources(mask: int) -> frozenset[int]:
    """Ports of a `tm_queue_sources` cell: bit n = port n."""
    return frozenset(port for port in range(mask.bit_length()) if mask >> port & 1)


def describe_ring(ring: Iterable[Queue]) -> str:
    """A deadlock in words."""
    names = [str(queue) for queue in ring]
    return " -> ".join([*names, names[0]])

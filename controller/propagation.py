"""How far PFC spreads: over how many links one after the other a pause was passed on, by priority (requirement R21).

Pure. `Wiring` holds, from a config, which lossless buffer waits for which (`controller.deadlock.dependencies`);
`spread` lays over it who was XOFF, and which ports that face hosts were paused, in one interval. A buffer that is XOFF
pauses the port at the other end of its link: one hop. It is the next link of a chain when the packets that it holds
leave by a port that the one before it has paused; a pause that comes from an edge (a host or its NIC) is a hop of its
own. The chain is what routes allow, not proven packet by packet: two congestions that meet on a path count as one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from controller.config import Config
from controller.deadlock import dependencies
from controller.links import Links, PortRef

Node = tuple[str, int, int]  # switch, port, priority


@dataclass(frozen=True, slots=True)
class Pauses:
    """What was seen in an interval: (switch, port, priority) that sent XOFF, and that were paused by their peer."""

    xoff: set[Node]
    paused: set[Node]


@dataclass(frozen=True, slots=True)
class Spread:
    """The longest chain of a priority: nodes that a pause went through, from its origin on; `cyclic`: it came back."""

    chain: tuple[str, ...]
    cyclic: bool = False

    @property
    def hops(self) -> int:
        """Links that the pause went over."""
        return max(0, len(self.chain) - 1)

    def __str__(self) -> str:
        return " -> ".join(self.chain) + (" (in a circle)" if self.cyclic else "")


class Wiring:
    """Who passes a pause on to whom. `onward`: XOFF buffer -> buffers that may be XOFF since it is."""

    def __init__(self, config: Config) -> None:
        self.links = Links(config)
        self.onward: Mapping[Node, set[Node]] = defaultdict(set)
        for found in dependencies(config):
            cause = found.waits_for.switch, found.waits_for.port, found.priority
            self.onward[cause].add((found.holder.switch, found.holder.port, found.priority))
        self.edges = {(ref.switch, ref.port) for ref in self.links.edges}

    def peer(self, node: Node) -> str:
        """Name of the switch or host at the other end of a port's link."""
        far = self.links.peer(PortRef(node[0], node[1]))
        return far.switch if far is not None else self.links.neighbour(PortRef(node[0], node[1]))


def spread(wiring: Wiring, seen: Pauses) -> dict[int, Spread]:
    """The longest chain of each priority that has one."""
    result: dict[int, Spread] = {}
    for priority in sorted({node[2] for node in seen.xoff | seen.paused}):
        result_of = _Search(wiring, {n for n in seen.xoff if n[2] == priority}).longest(
            {n for n in seen.paused if n[2] == priority and n[:2] in wiring.edges}
        )
        if result_of is not None:
            result[priority] = result_of
    return result


class _Search:
    """Longest paths among the buffers that are XOFF, each worked out once."""

    def __init__(self, wiring: Wiring, active: set[Node]) -> None:
        self._wiring, self._active = wiring, active
        self._best: dict[Node, tuple[Node, ...]] = {}
        self._open: set[Node] = set()
        self._cyclic: set[Node] = set()

    def longest(self, edges: set[Node]) -> Spread | None:
        best: tuple[str, ...] = ()
        cyclic = False
        for node in sorted(self._active):
            path = self._from(node)
            chain = (path[0][0], *(self._wiring.peer(step) for step in path))
            if len(chain) > len(best):
                best, cyclic = chain, bool(self._cyclic & set(path))
        for edge in sorted(edges):
            # packets of all other ports of the switch may wait for the paused one
            tails = [self._from(n) for n in sorted(self._active) if n[0] == edge[0] and n[1] != edge[1]]
            path = max(tails, key=len, default=())
            chain = (self._wiring.peer(edge), edge[0], *(self._wiring.peer(step) for step in path))
            if len(chain) > len(best):
                best, cyclic = chain, bool(self._cyclic & set(path))
        return Spread(best, cyclic) if best else None

    def _from(self, node: Node) -> tuple[Node, ...]:
        if node in self._best:
            return self._best[node]
        if node in self._open:
            self._cyclic.add(node)
            return ()
        self._open.add(node)
        tails = [self._from(n) for n in sorted(self._wiring.onward.get(node, set()) & self._active)]
        self._open.discard(node)
        self._best[node] = (node, *max(tails, key=len, default=()))
        return self._best[node]

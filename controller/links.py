"""Which port is joined to which, as far as a config tells: pure, no switch asked.

Two sources: a route's next hop names the MAC address of the port at the far end, and `peer` of a port names a switch
(where exactly one port of each points at the other), `switch:port`, or the far port's `name`. A port that leads to no
switch of the config is an edge: hosts, or the world.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from controller.config import Config


@dataclass(frozen=True, order=True, slots=True)
class PortRef:
    """A port of a switch of the config."""

    switch: str
    port: int

    def __str__(self) -> str:
        return f"{self.switch}:{self.port}"


class Links:
    """The links between the switches of a config. `edges`: ports that lead to no switch of it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._peers: dict[PortRef, PortRef] = {}
        by_mac = {p.mac.lower(): PortRef(s, n) for s, sw in config.switches.items() for n, p in sw.ports.items()}
        for name, switch in config.switches.items():
            for route in switch.routes:
                for hop in route.via:
                    far = by_mac.get(hop.mac.lower())
                    if far is not None and far.switch != name:
                        self._join(PortRef(name, hop.port), far)
        for near, far in _named_peers(config):
            self._join(near, far)
        self.edges = frozenset(
            PortRef(s, n) for s, sw in config.switches.items() for n in sw.ports if PortRef(s, n) not in self._peers
        )

    def _join(self, near: PortRef, far: PortRef) -> None:
        if near not in self._peers and far not in self._peers:
            self._peers[near], self._peers[far] = far, near

    def peer(self, port: PortRef) -> PortRef | None:
        """The port at the other end; None at an edge."""
        return self._peers.get(port)

    def neighbour(self, port: PortRef) -> str:
        """What is at the other end, for people: `spine1:2`, the `peer` of an edge port, or `?`."""
        far = self._peers.get(port)
        return str(far) if far is not None else self._config.switches[port.switch].ports[port.port].peer or "?"


def _named_peers(config: Config) -> Iterator[tuple[PortRef, PortRef]]:
    names = {p.name: PortRef(s, n) for s, sw in config.switches.items() for n, p in sw.ports.items() if p.name}
    towards: dict[tuple[str, str], list[PortRef]] = defaultdict(list)
    for name, switch in config.switches.items():
        for number, port in switch.ports.items():
            near = PortRef(name, number)
            other, _, other_port = (port.peer or "").partition(":")
            if other_port.isdigit() and other in config.switches and int(other_port) in config.switches[other].ports:
                yield near, PortRef(other, int(other_port))
            elif port.peer in names:
                yield near, names[port.peer]
            elif port.peer in config.switches:
                towards[name, port.peer].append(near)
    for (name, other), ports in towards.items():
        back = towards.get((other, name), [])
        if len(ports) == len(back) == 1:
            yield ports[0], back[0]

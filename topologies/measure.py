"""From counters that switches kept to figures of a run: pure functions on two snapshots; `topologies.lab` reads them.

A snapshot holds, by switch and counter name, the cells of every port of the topology: (port, n) -> (packets, bytes), n
being the priority, queue or priority group, which are the same number in the labs' configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from topologies.description import Topology
from topologies.results import Drops, LinkPfc

Cells = Mapping[tuple[int, int], tuple[int, int]]

DROPS = ("tm_drop_queue", "tm_drop_pg", "tm_drop_headroom", "tm_drop_pool", "tm_drop_port", "ecn_dropped")
PFC_SENT = ("pfc_tx_xoff", "pfc_tx_xon")
PFC_RECEIVED = ("pfc_rx_xoff", "pfc_rx_xon")
RX_DROPS = ("receive ring overrun", "frame too long", "no memory")  # of tm_drop_rx, by n
COUNTERS = ("rx", "tx", "ce_marked", "tm_dequeued", "tm_drop_rx", *PFC_SENT, *PFC_RECEIVED, *DROPS)
REGISTERS = ("tm_queue_depth", "tm_pg_depth", "tm_paused_ns")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters and registers of every switch at one time (seconds, any epoch)."""

    time_s: float
    counters: Mapping[str, Mapping[str, Cells]]
    registers: Mapping[str, Mapping[str, Mapping[tuple[int, int], int]]]

    def packets(self, name: str, priority: int, switches: Iterable[str] | None = None) -> int:
        """Sum of a counter over every port of the switches (all: None)."""
        chosen = self.counters if switches is None else switches
        return sum(
            packets
            for switch in chosen
            for (_, n), (packets, _) in self.counters[switch][name].items()
            if n == priority
        )

    def lost(self, priority: int) -> int:
        """Frames of a priority that any switch dropped after it had classified them."""
        return sum(self.packets(name, priority) for name in DROPS)

    def paused_ns(self, priority: int) -> int:
        return sum(v for r in self.registers.values() for (_, n), v in r["tm_paused_ns"].items() if n == priority)

    def buffered_bytes(self) -> int:
        """What all priority groups of all switches hold."""
        return sum(v for r in self.registers.values() for v in r["tm_pg_depth"].values())

    def xoff_frames(self) -> int:
        return sum(self.packets("pfc_tx_xoff", priority) for priority in range(8))


def host_frames(topology: Topology, snapshot: Snapshot, name: str, priority: int) -> int:
    """A counter (`rx`: from hosts into the fabric, `tx`: to hosts) summed over the ports that face hosts."""
    return sum(snapshot.counters[host.leaf][name][host.number, priority][0] for host in topology.hosts)


def drops(before: Snapshot, after: Snapshot) -> tuple[Drops, ...]:
    """Every (switch, reason, priority) that dropped frames between two snapshots; priority -1: it had none yet."""
    found = []
    for switch, counters in after.counters.items():
        for name in (*DROPS, "tm_drop_rx"):
            for n in range(8):
                frames = sum(
                    cell[0] - before.counters[switch][name][key][0]
                    for key, cell in counters[name].items()
                    if key[1] == n
                )
                if frames and name == "tm_drop_rx":
                    found.append(Drops(switch, RX_DROPS[n] if n < len(RX_DROPS) else f"receive {n}", -1, frames))
                elif frames:
                    found.append(Drops(switch, name.removeprefix("tm_drop_").replace("_", " "), n, frames))
    return tuple(found)


def pfc_links(
    topology: Topology, before: Snapshot, after: Snapshot, host_received: Mapping[str, int]
) -> tuple[LinkPfc, ...]:
    """PFC frames between two snapshots, one record for each link direction that saw any.

    host_received: what hosts that look at PFC counted; of another host nobody knows what it received.
    """

    def frames(name: str, switch: str, port: int) -> dict[int, int]:
        cells, earlier = after.counters[switch][name], before.counters[switch][name]
        return {n: cells[port, n][0] - earlier[port, n][0] for n in range(8)}

    links = []
    for switch in topology.switches:
        for port in switch.ports:
            xoff, xon = (frames(name, switch.name, port) for name in PFC_SENT)
            priorities = tuple(n for n in range(8) if xoff[n] or xon[n])
            if priorities:
                peer = topology.peer(switch.name, port)
                received = host_received.get(peer.node)
                if peer.port:
                    received = sum(sum(frames(name, peer.node, peer.port).values()) for name in PFC_RECEIVED)
                sent = sum(xoff.values()), sum(xon.values())
                links.append(LinkPfc(switch.name, peer.node, *sent, priorities, received))
    return tuple(links)


def shares(before: Snapshot, after: Snapshot, switch: str, port: int, queues: Iterable[int]) -> dict[int, float]:
    """What each queue of a port got of the bytes that these queues sent between two snapshots, 0..1."""
    sent = {
        q: after.counters[switch]["tm_dequeued"][port, q][1] - before.counters[switch]["tm_dequeued"][port, q][1]
        for q in queues
    }
    total = sum(sent.values())
    return {q: count / total if total else 0.0 for q, count in sent.items()}

"""LLDP reception (IEEE 802.1AB-2016, 9.2.7.7 and 9.2.9): the neighbours of one port, and how they come, change and go.

`Receiver` takes PDUs that were decoded already, with the time in nanoseconds. A neighbour is its MSAP: chassis ID and
port ID with their subtypes. It lives for the TTL that it last sent, to the nanosecond. At most `max_neighbors` are
kept; one more is discarded, and `too_many_neighbors` stays true for as long as what was discarded would have lived.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dcb.lldp.pdu import Lldpdu
from dcb.lldp.tlv import RawTlv
from dcb.lldp.transmit import NS_PER_S

Msap = tuple[RawTlv, RawTlv]


class RemovalReason(Enum):
    """Why a neighbour is gone."""

    AGED = "rxTTL ran out"
    SHUTDOWN = "shutdown PDU (TTL 0)"
    REINITIALIZED = "reception started anew"


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A neighbour: its last PDU, the source MAC of that, and since when and until when (ns) it is known."""

    msap: Msap
    source: bytes
    pdu: Lldpdu
    first_seen_ns: int
    last_change_ns: int
    last_seen_ns: int
    expires_ns: int


@dataclass(frozen=True, slots=True)
class NeighborAdded:
    """A new MSAP."""

    neighbor: Neighbor


@dataclass(frozen=True, slots=True)
class NeighborChanged:
    """A known MSAP says something else (somethingChangedRemote), or from another source MAC."""

    neighbor: Neighbor
    before: Neighbor


@dataclass(frozen=True, slots=True)
class NeighborRefreshed:
    """A known MSAP repeats itself: only rxTTL starts anew."""

    neighbor: Neighbor


@dataclass(frozen=True, slots=True)
class NeighborRemoved:
    """A neighbour is gone."""

    neighbor: Neighbor
    reason: RemovalReason


@dataclass(frozen=True, slots=True)
class NeighborDiscarded:
    """No room for this neighbour; tooManyNeighbors until `until_ns`."""

    msap: Msap
    until_ns: int


@dataclass(frozen=True, slots=True)
class TooManyNeighborsEnded:
    """tooManyNeighborsTimer ran out."""


ReceiveEvent = (
    NeighborAdded | NeighborChanged | NeighborRefreshed | NeighborRemoved | NeighborDiscarded | TooManyNeighborsEnded
)


def _content(pdu: Lldpdu) -> tuple[RawTlv, ...]:
    """What counts as a change: every TLV but the TTL."""
    return pdu.tlvs[:2] + pdu.tlvs[3:]


class Receiver:
    """The neighbours of one port."""

    def __init__(self, max_neighbors: int) -> None:
        if max_neighbors < 1:
            raise ValueError(f"max_neighbors: {max_neighbors}, must be at least 1")
        self.max_neighbors = max_neighbors
        self.neighbors: dict[Msap, Neighbor] = {}
        self.too_many_until_ns: int | None = None

    @property
    def too_many_neighbors(self) -> bool:
        """tooManyNeighbors: a neighbour that would still live was discarded."""
        return self.too_many_until_ns is not None

    def receive(self, source: bytes, pdu: Lldpdu, now_ns: int) -> list[ReceiveEvent]:
        """A valid PDU has come."""
        events = self.handle_timer(now_ns)
        known = self.neighbors.get(pdu.msap)
        expires_ns = now_ns + pdu.ttl.seconds * NS_PER_S
        if pdu.ttl.seconds == 0:
            if known is not None:
                events.append(self._remove(known, RemovalReason.SHUTDOWN))
        elif known is None:
            if len(self.neighbors) >= self.max_neighbors:
                self.too_many_until_ns = max(expires_ns, self.too_many_until_ns or 0)
                events.append(NeighborDiscarded(pdu.msap, self.too_many_until_ns))
            else:
                fresh = Neighbor(pdu.msap, source, pdu, now_ns, now_ns, now_ns, expires_ns)
                self.neighbors[pdu.msap] = fresh
                events.append(NeighborAdded(fresh))
        else:
            changed = _content(pdu) != _content(known.pdu) or source != known.source
            last_change_ns = now_ns if changed else known.last_change_ns
            new = Neighbor(pdu.msap, source, pdu, known.first_seen_ns, last_change_ns, now_ns, expires_ns)
            self.neighbors[pdu.msap] = new
            events.append(NeighborChanged(new, known) if changed else NeighborRefreshed(new))
        return events

    def _remove(self, neighbor: Neighbor, reason: RemovalReason) -> NeighborRemoved:
        del self.neighbors[neighbor.msap]
        return NeighborRemoved(neighbor, reason)

    def reinitialize(self) -> list[ReceiveEvent]:
        """rxInitializeLLDP: all that is known is deleted."""
        self.too_many_until_ns = None
        return [self._remove(neighbor, RemovalReason.REINITIALIZED) for neighbor in [*self.neighbors.values()]]

    def handle_timer(self, now_ns: int) -> list[ReceiveEvent]:
        """Ageing (rxInfoAge) and the end of tooManyNeighbors, in the order of their times."""
        events: list[ReceiveEvent] = []
        aged = [neighbor for neighbor in self.neighbors.values() if now_ns >= neighbor.expires_ns]
        events += [self._remove(one, RemovalReason.AGED) for one in sorted(aged, key=lambda one: one.expires_ns)]
        if self.too_many_until_ns is not None and now_ns >= self.too_many_until_ns:
            self.too_many_until_ns = None
            events.append(TooManyNeighborsEnded())
        return events

    def next_deadline_ns(self) -> int | None:
        """When `handle_timer` next has something, None for never."""
        times = [neighbor.expires_ns for neighbor in self.neighbors.values()]
        if self.too_many_until_ns is not None:
            times.append(self.too_many_until_ns)
        return min(times, default=None)

"""What the traffic manager can be told, and what it can be asked: settings, ranges, names of counters and state.

Values only. `switch.core` carries them to the C (`switch/native/tm.h`), `switch.target_tm` makes them of table entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_PORTS: Final = 512
MAX_FRAME_BYTES: Final = 9728
NEVER_PS: Final = 2**64 - 1
MAX_RATE_BPS: Final = 800_000_000_000
NOMINAL_RATE_BPS: Final = 10_000_000_000
"""What quanta are timed by on a port without a rate: the speed that veth reports."""

COUNTER_KINDS: Final = (
    "enqueued",
    "dequeued",
    "drop_queue_limit",
    "drop_pg_limit",
    "drop_headroom",
    "drop_pool",
    "drop_port",
    "drop_rx",
)
STATE_KINDS: Final = (
    "queue_depth",
    "queue_watermark",
    "pg_depth",
    "pg_headroom",
    "pg_watermark",
    "pg_headroom_watermark",
    "pg_xoff",
    "pause_left",
    "paused_ns",
    "pause_count",
    "pool_used",
    "queue_packets",
)
WATERMARK_KINDS: Final = ("queue_watermark", "pg_watermark", "pg_headroom_watermark")
IDENTITY_QUEUE_MAP: Final = sum(n << (3 * n) for n in range(8))


class SwitchCoreError(ValueError):
    """A value that the traffic manager, the replication engine or the driver cannot take."""


@dataclass(frozen=True, slots=True)
class Strict:
    """Served before all others; of two strict queues the higher index goes first."""


@dataclass(frozen=True, slots=True)
class Ets:
    """Shares what strict and CBS queues leave in proportion to `weight`, 1..100, by bytes of frames."""

    weight: int = 1


@dataclass(frozen=True, slots=True)
class Cbs:
    """Credit-based shaper (802.1Q 8.6.8.2); idle slope in bit/s of the wire, overhead included."""

    idle_slope_bps: int


Scheduler = Strict | Ets | Cbs


@dataclass(frozen=True, slots=True)
class StaticGroup:
    """Priority group with fixed thresholds, in bytes. XOFF counts from zero occupancy: reserved <= xoff, xon < xoff.

    `priorities`: bit n set: XOFF of this group pauses priority n at the peer.
    """

    reserved: int
    xoff: int
    xon: int
    headroom: int
    priorities: int


@dataclass(frozen=True, slots=True)
class DynamicGroup:
    """Priority group whose shared bytes may grow to 2^alpha of the free pool, alpha -16..16."""

    reserved: int = 0
    alpha: int = 0
    xon_offset: int = 0
    headroom: int = 0
    priorities: int = 0


PriorityGroup = StaticGroup | DynamicGroup


@dataclass(frozen=True, slots=True)
class StaticLimit:
    """Bytes that lossy packets may fill a queue to."""

    limit_bytes: int = 256 * 1024


@dataclass(frozen=True, slots=True)
class DynamicLimit:
    """Lossy packets may fill a queue to 2^alpha of the free pool, alpha -16..16."""

    alpha: int


QueueLimit = StaticLimit | DynamicLimit

Replicas = Sequence[tuple[int, int]]
"""(egress port, rid) of each copy."""


def check_range(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise SwitchCoreError(f"{what} {value} must be {low}..{high}")


def check_port(port: int) -> None:
    check_range("port", port, 0, MAX_PORTS - 1)


def check_index(index: int) -> None:
    check_range("index", index, 0, MAX_PORTS * 8 - 1)


def kind_number(kinds: tuple[str, ...], kind: str) -> int:
    try:
        return kinds.index(kind)
    except ValueError:
        raise SwitchCoreError(f"unknown kind {kind}; known: {', '.join(kinds)}") from None

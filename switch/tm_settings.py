"""What the traffic manager can be told, and what it can be asked: settings, ranges, names of counters and state.

Values only. `switch.core` carries them to the C (`switch/native/tm.h`), `switch.target_tm` makes them of table entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
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
    "drop_storm_tx",
    "drop_storm_rx",
    "qcn_samples",
    "qcn_cnms",
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
    "pool_watermark",
    "headroom_pool_used",
    "headroom_pool_watermark",
    "storm_state",
    "storm_count",
    "xoff_ns",
    "xoff_count",
    "delay_histogram",
    "pause_histogram",
    "xoff_histogram",
)
WIDE_KIND: Final = "queue_sources"
"""State of 256 bits: bit p set: a packet that came in on port p waits in the queue."""
WATERMARK_KINDS: Final = (
    "queue_watermark",
    "pg_watermark",
    "pg_headroom_watermark",
    "pool_watermark",
    "headroom_pool_watermark",
)
HISTOGRAM_KINDS: Final = ("delay_histogram", "pause_histogram", "xoff_histogram")
HISTOGRAM_BUCKETS: Final = 32
POOLS: Final = 8
OWN_HEADROOM: Final = 255
"""Headroom pool of a group whose headroom is its own."""
PAUSE_LEFT_FOREVER: Final = 65_536
"""What `pause_left` says of a pause that ends only when it is resumed."""
DEFAULT_POOL_BYTES: Final = 16 << 20
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


class StormAction(IntEnum):
    """What is done about a PFC storm of a (port, priority). Values are those of `egress.tm_set_watchdog`."""

    ALERT = 0
    """Nothing but an event (own watchdog only)."""
    FORWARD = 1
    """Pauses of the priority are ignored."""
    DROP = 2
    """They are ignored, and packets of the priority, to the port and from it, are dropped."""


@dataclass(frozen=True, slots=True)
class Watchdog:
    """The switch's own detection of storms. Times in microseconds; `restore_us` 0: never by itself."""

    detect_us: int
    restore_us: int
    action: StormAction
    empty_queue: bool = False
    """Detect whether or not a packet of the priority waits."""


@dataclass(frozen=True, slots=True)
class Qcn:
    """Congestion point of a queue (802.1Qau). Defaults are IEEE8021-CN-MIB's, the jitter's our reference's.

    `weight`: w is 2^weight, -10..10. A sample every `sample_bytes` / (floor(qFb / 8) + 1) bytes into the queue, give or
    take `jitter_percent`, 0..50. `priority` of the messages, which name the congestion point `cpid` (64 bits).
    """

    qeq_bytes: int = 26_000
    weight: int = 1
    sample_bytes: int = 150_000
    jitter_percent: int = 15
    priority: int = 6
    cpid: int = 0


Replicas = Sequence[tuple[int, int]]
"""(egress port, rid) of each copy."""


def check_range(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise SwitchCoreError(f"{what} {value} must be {low}..{high}")


def check_port(port: int) -> None:
    check_range("port", port, 0, MAX_PORTS - 1)


def check_index(index: int, kind: str = "") -> None:
    """Of a cell of a counter or of state; histograms have more of them."""
    check_range("index", index, 0, MAX_PORTS * 8 * (HISTOGRAM_BUCKETS if kind in HISTOGRAM_KINDS else 1) - 1)


def kind_number(kinds: tuple[str, ...], kind: str) -> int:
    try:
        return kinds.index(kind)
    except ValueError:
        raise SwitchCoreError(f"unknown kind {kind}; known: {', '.join(kinds)}") from None

"""The control half of a core under Python: `TrafficManager` and `ReplicationEngine`, views on one `SwitchCore`.

Both check ranges and pass values to the C under the core's lock; they own nothing.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from switch.api import CounterValue
from switch.tm_settings import (
    COUNTER_KINDS,
    DEFAULT_POOL_BYTES,
    HISTOGRAM_KINDS,
    IDENTITY_QUEUE_MAP,
    MAX_RATE_BPS,
    OWN_HEADROOM,
    POOLS,
    STATE_KINDS,
    WATERMARK_KINDS,
    WIDE_KIND,
    Cbs,
    Ets,
    PriorityGroup,
    Qcn,
    QueueLimit,
    Replicas,
    Scheduler,
    StaticGroup,
    StaticLimit,
    StormAction,
    Strict,
    SwitchCoreError,
    Watchdog,
    check_index,
    check_port,
    check_range,
    kind_number,
)

if TYPE_CHECKING:
    from switch.core import SwitchCore


class TrafficManager:
    """Configuration and state of the traffic manager. Everything takes effect before the call returns.

    What is configured for a port holds whether or not the port is there, and outlives it. Values out of range raise
    `SwitchCoreError` and change nothing.
    """

    def __init__(self, core: SwitchCore) -> None:
        self._core = core
        self._lib = core._lib
        self._tm = core._lib.sw_tm(core._sw)

    # --- ports

    def add_port(self, port: int) -> None:
        """Bring a port into being; frames can be queued for it from now on. CPU and drop port are refused."""
        check_port(port)
        with self._core.lock():
            if self._lib.sw_add_port(self._core._sw, port, self._core.now_ps) < 0:
                raise SwitchCoreError(f"port {port} exists, or is the CPU or the drop port")

    def remove_port(self, port: int) -> None:
        """Remove a port: what is queued for it is dropped (drop_port), its pauses end, its configuration stays."""
        check_port(port)
        with self._core.lock():
            if self._lib.sw_remove_port(self._core._sw, port, self._core.now_ps) < 0:
                raise SwitchCoreError(f"port {port} does not exist")

    def set_port(self, port: int, rate_bps: int = 0) -> None:
        """Rate of a port in bit/s, up to 800 Gb/s; 0: unlimited."""
        check_port(port)
        check_range("rate_bps", rate_bps, 0, MAX_RATE_BPS)
        self._call("tm_set_port", port, rate_bps)

    def block_port(self, port: int, blocked: bool) -> None:
        """Hold everything that would leave a port (what a driver does while its socket is full)."""
        check_port(port)
        self._call("tm_block_port", port, blocked)

    def set_pfc(self, port: int, tx_enable: int = 0, quanta: int = 65535, queue_map: int = IDENTITY_QUEUE_MAP) -> None:
        """PFC of a port: priorities that may be paused at the peer, and for how long; queue of priority n for received
        pauses in bits 3n+2..3n of `queue_map`."""
        check_port(port)
        check_range("tx_enable", tx_enable, 0, 0xFF)
        check_range("quanta", quanta, 1 if tx_enable else 0, 0xFFFF)
        check_range("queue_map", queue_map, 0, 0xFFFFFF)
        self._call("tm_set_pfc", port, tx_enable, quanta, queue_map)

    def set_scheduler(self, port: int, queue: int, scheduler: Scheduler) -> None:
        """How a queue is served. Default: `Ets(1)`."""
        check_port(port)
        check_range("queue", queue, 0, 7)
        match scheduler:
            case Strict():
                self._call("tm_set_scheduler", port, queue, 1, 0)
            case Ets(weight):
                check_range("weight", weight, 1, 100)
                self._call("tm_set_scheduler", port, queue, 0, weight)
            case Cbs(idle_slope_bps):
                check_range("idle_slope_bps", idle_slope_bps, 1, MAX_RATE_BPS)
                self._call("tm_set_scheduler", port, queue, 2, idle_slope_bps)

    def set_priority_group(self, port: int, pg: int, group: PriorityGroup) -> None:
        """Ingress buffer of a priority group. Default: `DynamicGroup()`. What it holds is kept and takes up no headroom
        that it did not take before."""
        check_port(port)
        check_range("pg", pg, 0, 7)
        for name in group.__slots__:
            if name != "alpha":
                check_range(name, getattr(group, name), 0, 0xFF if name == "priorities" else 0xFFFFFFFF)
        if isinstance(group, StaticGroup):
            if group.xoff < group.reserved:
                raise SwitchCoreError(f"xoff {group.xoff} must not be less than reserved {group.reserved}")
            if group.xon >= group.xoff:
                raise SwitchCoreError(f"xon {group.xon} must be less than xoff {group.xoff}")
            self._call(
                "tm_set_pg", port, pg, False, group.reserved, group.xoff, group.xon, group.headroom, group.priorities
            )
        else:
            check_range("alpha", group.alpha, -16, 16)
            self._call(
                "tm_set_pg", port, pg, True, group.reserved, group.alpha & 0xFF, group.xon_offset, group.headroom,
                group.priorities,
            )  # fmt: skip

    def set_queue(self, port: int, queue: int, limit: QueueLimit) -> None:
        """Limit of a queue for lossy packets. Default: `StaticLimit()`."""
        check_port(port)
        check_range("queue", queue, 0, 7)
        if isinstance(limit, StaticLimit):
            check_range("limit_bytes", limit.limit_bytes, 0, 0xFFFFFFFF)
            self._call("tm_set_queue", port, queue, False, limit.limit_bytes)
        else:
            check_range("alpha", limit.alpha, -16, 16)
            self._call("tm_set_queue", port, queue, True, limit.alpha & 0xFF)

    def set_pool(self, size: int = DEFAULT_POOL_BYTES, pool: int = 0) -> None:
        """Shared bytes of a pool, 0..7. At first pool 0 has 16 MiB, the others nothing."""
        check_range("pool", pool, 0, POOLS - 1)
        check_range("pool size", size, 0, 0xFFFFFFFF)
        self._call("tm_set_pool", pool, size)

    def set_headroom_pool(self, pool: int, size: int = 0) -> None:
        """Bytes that the headroom of all groups of a headroom pool, 0..7, may use together."""
        check_range("headroom pool", pool, 0, POOLS - 1)
        check_range("headroom pool size", size, 0, 0xFFFFFFFF)
        self._call("tm_set_headroom_pool", pool, size)

    def set_pg_pool(self, port: int, pg: int, pool: int = 0, headroom_pool: int = OWN_HEADROOM) -> None:
        """Pools of a priority group; headroom pool 255: its headroom is its own. What it holds moves with it."""
        check_port(port)
        check_range("pg", pg, 0, 7)
        check_range("pool", pool, 0, POOLS - 1)
        if headroom_pool != OWN_HEADROOM:
            check_range("headroom pool", headroom_pool, 0, POOLS - 1)
        self._call("tm_set_pg_pool", port, pg, pool, headroom_pool)

    def set_storm(self, port: int, priority: int, action: StormAction | None = None) -> None:
        """Mitigate a PFC storm of a priority (`FORWARD` or `DROP`), or no longer (None)."""
        check_port(port)
        check_range("priority", priority, 0, 7)
        if action is StormAction.ALERT:
            raise SwitchCoreError("action ALERT: a storm is mitigated by FORWARD or DROP")
        self._call_core("sw_set_storm", port, priority, 0 if action is None else int(action))

    def set_watchdog(self, port: int, priority: int, watchdog: Watchdog | None = None) -> None:
        """The switch's own watchdog of a priority, or none. One that is taken away ends what it had mitigated."""
        check_port(port)
        check_range("priority", priority, 0, 7)
        if watchdog is None:
            self._call_core("sw_set_watchdog", port, priority, 0, 0, 0, 0)
            return
        check_range("detect_us", watchdog.detect_us, 1, 0xFFFFFFFF)
        check_range("restore_us", watchdog.restore_us, 0, 0xFFFFFFFF)
        self._call_core(
            "sw_set_watchdog", port, priority, watchdog.detect_us, watchdog.restore_us, int(watchdog.action),
            watchdog.empty_queue,
        )  # fmt: skip

    def set_qcn(self, port: int, queue: int, point: Qcn | None = None) -> None:
        """Make a queue a congestion point (802.1Qau), or none. It starts anew."""
        check_port(port)
        check_range("queue", queue, 0, 7)
        if point is None:
            self._call("tm_set_qcn", port, queue, 0, 0, 0, 0, 0, 0)
            return
        check_range("qeq_bytes", point.qeq_bytes, 1, 0xFFFFFFFF)
        check_range("weight", point.weight, -10, 10)
        check_range("sample_bytes", point.sample_bytes, 1, 0xFFFFFFFF)
        check_range("jitter_percent", point.jitter_percent, 0, 50)
        check_range("priority", point.priority, 0, 7)
        check_range("cpid", point.cpid, 0, (1 << 64) - 1)
        self._call(
            "tm_set_qcn", port, queue, point.qeq_bytes, point.weight, point.sample_bytes, point.jitter_percent,
            point.priority, point.cpid,
        )  # fmt: skip

    # --- counters and state; kinds as the `@tm` names, indexes port * 8 + n

    def read_counter(self, kind: str, index: int) -> CounterValue:
        check_index(index)
        with self._core.lock():
            count = self._lib.tm_read_counter(self._tm, kind_number(COUNTER_KINDS, kind), index)
        return CounterValue(count.packets, count.bytes)

    def clear_counter(self, kind: str, index: int) -> None:
        check_index(index)
        with self._core.lock():
            self._lib.tm_clear_counter(self._tm, kind_number(COUNTER_KINDS, kind), index)

    def read_state(self, kind: str, index: int) -> int:
        """State now. `pause_left` in quanta, `paused_ns` and `xoff_ns` in nanoseconds, depths and watermarks in bytes.

        Pools have the index of the pool; histograms (port * 8 + n) * 32 + bucket.
        """
        check_index(index, kind)
        with self._core.lock():
            if kind == WIDE_KIND:
                words = (ctypes.c_uint64 * 4)()
                self._lib.tm_read_sources(self._tm, index, words)
                return sum(word << (64 * number) for number, word in enumerate(words))
            return int(self._lib.tm_read_state(self._tm, kind_number(STATE_KINDS, kind), index, self._core.now_ps))

    def clear_watermark(self, kind: str, index: int) -> None:
        """Start a watermark again from what is held now, or a bucket of a histogram from 0."""
        check_index(index, kind)
        if kind not in WATERMARK_KINDS + HISTOGRAM_KINDS:
            known = ", ".join(WATERMARK_KINDS + HISTOGRAM_KINDS)
            raise SwitchCoreError(f"{kind} is not a watermark; they are {known}")
        with self._core.lock():
            self._lib.tm_clear_watermark(self._tm, kind_number(STATE_KINDS, kind), index)

    def check(self) -> None:
        """Raise AssertionError where the accounting disagrees with the packets (for tests)."""
        with self._core.lock():
            broken = self._lib.tm_check(self._tm)
        if broken:
            raise AssertionError(broken.decode())

    def _call(self, name: str, *arguments: int) -> None:
        with self._core.lock():
            if getattr(self._lib, name)(self._tm, *arguments, self._core.now_ps) < 0:
                raise SwitchCoreError(f"{name}{arguments}: refused")

    def _call_core(self, name: str, *arguments: int) -> None:
        with self._core.lock():
            if getattr(self._lib, name)(self._core._sw, *arguments, self._core.now_ps) < 0:
                raise SwitchCoreError(f"{name}{arguments}: refused")


class ReplicationEngine:
    """Multicast groups and clone sessions."""

    def __init__(self, core: SwitchCore) -> None:
        self._core = core

    def set_multicast_group(self, group_id: int, replicas: Replicas) -> None:
        """Set (create or replace) a group, 1..65535."""
        check_range("multicast group", group_id, 1, 0xFFFF)
        self._set("sw_set_multicast", group_id, replicas)

    def delete_multicast_group(self, group_id: int) -> None:
        check_range("multicast group", group_id, 1, 0xFFFF)
        with self._core.lock():
            if self._core._lib.sw_delete_multicast(self._core._sw, group_id) < 0:
                raise SwitchCoreError(f"multicast group {group_id} does not exist")

    def set_clone_session(self, session_id: int, replicas: Replicas, cos: int = 0, length: int = 0) -> None:
        """Set a session, 0..65535. `cos`: priority of the copies where not 0; `length`: bytes kept where not 0."""
        check_range("clone session", session_id, 0, 0xFFFF)
        check_range("class of service", cos, 0, 7)
        check_range("packet length", length, 0, 0xFFFFFFFF)
        self._set("sw_set_clone_session", session_id, replicas, cos, length)

    def delete_clone_session(self, session_id: int) -> None:
        check_range("clone session", session_id, 0, 0xFFFF)
        with self._core.lock():
            if self._core._lib.sw_delete_clone_session(self._core._sw, session_id) < 0:
                raise SwitchCoreError(f"clone session {session_id} does not exist")

    def _set(self, name: str, number: int, replicas: Replicas, *more: int) -> None:
        for port, rid in replicas:
            check_port(port)
            check_range("replica id", rid, 0, 0xFFFF)
        array = ctypes.c_uint16 * len(replicas)
        ports, rids = array(*(port for port, _ in replicas)), array(*(rid for _, rid in replicas))
        with self._core.lock():
            if getattr(self._core._lib, name)(self._core._sw, number, ports, rids, len(replicas), *more) < 0:
                raise SwitchCoreError(f"{name} {number}: refused")

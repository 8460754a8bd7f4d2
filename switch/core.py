"""The native switch core under Python: `SwitchCore`, with its traffic manager (`tm`) and replication engine (`pre`).

A shared object holds one program: generated pipeline, traffic manager, core and driver (`switch/native`). `SwitchCore`
owns one `sw_t` in it. Two ways to run it: passively (frames and integer picoseconds in with `receive` and `advance`,
frames out with `outputs`), as the fabric and the tests do; or by its own driver thread on packet sockets
(`start_driver`). Packet-ins and digests wait for `events` either way. Every call takes the core's lock; `lock()` holds
it over several, and callers that touch the pipeline beside a running driver must hold it.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from switch.api import CounterValue

if TYPE_CHECKING:
    from switch.native_pipeline import NativePipeline

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
_STATS: Final = (
    "received",
    "rx_dropped",
    "copies",
    "pfc_made",
    "ingress_dropped",
    "egress_dropped",
    "tm_dropped",
    "group_dropped",
    "transmitted",
    "to_cpu",
    "cpu_dropped",
    "memory_dropped",
    "reentered",
)
_RECORD: Final = struct.Struct("<IIIIQQ")
_EVENT_PACKET_IN: Final = 1
_BUFFER_BYTES: Final = 256 * 1024
_LARGEST_RECORD: Final = 16 * 1024  # a frame that the deparser has grown, or a digest
_IDENTITY_QUEUE_MAP: Final = sum(n << (3 * n) for n in range(8))


class SwitchCoreError(ValueError):
    """A value that the traffic manager, the replication engine or the driver cannot take."""


@dataclass(frozen=True, slots=True)
class Output:
    """A frame that left: without FCS; its first bit at `start_ps`, the wire free again at `end_ps`."""

    port: int
    frame: bytes
    start_ps: int
    end_ps: int


@dataclass(frozen=True, slots=True)
class PacketIn:
    """A frame for the CPU port."""

    frame: bytes


@dataclass(frozen=True, slots=True)
class DigestData:
    """One message of generate_digest: the fields of the list, each padded to whole bytes, in order."""

    list_id: int
    data: bytes


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


def _load(path: Path) -> ctypes.CDLL:
    lib = ctypes.CDLL(str(path))
    u32, u64, p = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
    i32, cp, u16s = ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint16)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "sw_create": (p, [u64, u32, u32, u32, cp, u64]),
        "sw_destroy": (None, [p]),
        "sw_pipeline": (p, [p]),
        "sw_tm": (p, [p]),
        "sw_inject": (i32, [p, u32, cp, u32, u64]),
        "sw_next_deadline": (u64, [p]),
        "sw_run": (None, [p, u64]),
        "sw_now": (u64, [p]),
        "sw_add_port": (i32, [p, u32, u64]),
        "sw_remove_port": (i32, [p, u32, u64]),
        "sw_outputs_take": (u64, [p, p, u64]),
        "sw_events_take": (u64, [p, p, u64]),
        "sw_event_fd": (i32, [p]),
        "sw_events_lost": (u64, [p]),
        "sw_read_stats": (None, [p, p]),
        "sw_packets_live": (u64, [p]),
        "sw_set_multicast": (i32, [p, u32, u16s, u16s, u32]),
        "sw_delete_multicast": (i32, [p, u32]),
        "sw_set_clone_session": (i32, [p, u32, u16s, u16s, u32, u32, u32]),
        "sw_delete_clone_session": (i32, [p, u32]),
        "sw_lock": (None, [p]),
        "sw_unlock": (None, [p]),
        "sw_bench": (u64, [p, ctypes.POINTER(cp), ctypes.POINTER(u32), u16s, u32, u64, u64, ctypes.POINTER(u64)]),
        "sw_driver_start": (i32, [p, cp, cp, u64]),
        "sw_driver_stop": (None, [p]),
        "sw_driver_add": (i32, [p, u32, cp, cp, u64]),
        "sw_driver_remove": (i32, [p, u32]),
        "sw_driver_port_up": (i32, [p, u32]),
        "tm_set_port": (i32, [p, u32, u64, u64]),
        "tm_set_pfc": (i32, [p, u32, u32, u32, u32, u64]),
        "tm_set_scheduler": (i32, [p, u32, u32, u32, u64, u64]),
        "tm_set_pg": (i32, [p, u32, u32, ctypes.c_bool, u32, u32, u32, u32, u32, u64]),
        "tm_set_queue": (i32, [p, u32, u32, ctypes.c_bool, u32, u64]),
        "tm_set_pool": (i32, [p, u64, u64]),
        "tm_block_port": (i32, [p, u32, ctypes.c_bool, u64]),
        "tm_read_counter": (_Count, [p, u32, u32]),
        "tm_clear_counter": (i32, [p, u32, u32]),
        "tm_read_state": (u64, [p, u32, u32, u64]),
        "tm_clear_watermark": (i32, [p, u32, u32]),
        "tm_check": (cp, [p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype = result
        function.argtypes = arguments
    return lib


class _Count(ctypes.Structure):
    _fields_ = (("packets", ctypes.c_uint64), ("bytes", ctypes.c_uint64))


def _check_range(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise SwitchCoreError(f"{what} {value} must be {low}..{high}")


def _check_port(port: int) -> None:
    _check_range("port", port, 0, MAX_PORTS - 1)


def _check_index(index: int) -> None:
    _check_range("index", index, 0, MAX_PORTS * 8 - 1)


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
        _check_port(port)
        with self._core.lock():
            if self._lib.sw_add_port(self._core._sw, port, self._core.now_ps) < 0:
                raise SwitchCoreError(f"port {port} exists, or is the CPU or the drop port")

    def remove_port(self, port: int) -> None:
        """Remove a port: what is queued for it is dropped (drop_port), its pauses end, its configuration stays."""
        _check_port(port)
        with self._core.lock():
            if self._lib.sw_remove_port(self._core._sw, port, self._core.now_ps) < 0:
                raise SwitchCoreError(f"port {port} does not exist")

    def set_port(self, port: int, rate_bps: int = 0) -> None:
        """Rate of a port in bit/s, up to 800 Gb/s; 0: unlimited."""
        _check_port(port)
        _check_range("rate_bps", rate_bps, 0, MAX_RATE_BPS)
        self._call("tm_set_port", port, rate_bps)

    def block_port(self, port: int, blocked: bool) -> None:
        """Hold everything that would leave a port (what a driver does while its socket is full)."""
        _check_port(port)
        self._call("tm_block_port", port, blocked)

    def set_pfc(self, port: int, tx_enable: int = 0, quanta: int = 65535, queue_map: int = _IDENTITY_QUEUE_MAP) -> None:
        """PFC of a port: priorities that may be paused at the peer, and for how long; queue of priority n for received
        pauses in bits 3n+2..3n of `queue_map`."""
        _check_port(port)
        _check_range("tx_enable", tx_enable, 0, 0xFF)
        _check_range("quanta", quanta, 1 if tx_enable else 0, 0xFFFF)
        _check_range("queue_map", queue_map, 0, 0xFFFFFF)
        self._call("tm_set_pfc", port, tx_enable, quanta, queue_map)

    def set_scheduler(self, port: int, queue: int, scheduler: Scheduler) -> None:
        """How a queue is served. Default: `Ets(1)`."""
        _check_port(port)
        _check_range("queue", queue, 0, 7)
        match scheduler:
            case Strict():
                self._call("tm_set_scheduler", port, queue, 1, 0)
            case Ets(weight):
                _check_range("weight", weight, 1, 100)
                self._call("tm_set_scheduler", port, queue, 0, weight)
            case Cbs(idle_slope_bps):
                _check_range("idle_slope_bps", idle_slope_bps, 1, MAX_RATE_BPS)
                self._call("tm_set_scheduler", port, queue, 2, idle_slope_bps)

    def set_priority_group(self, port: int, pg: int, group: PriorityGroup) -> None:
        """Ingress buffer of a priority group. Default: `DynamicGroup()`. What it holds is kept and split anew."""
        _check_port(port)
        _check_range("pg", pg, 0, 7)
        for name in group.__slots__:
            if name != "alpha":
                _check_range(name, getattr(group, name), 0, 0xFF if name == "priorities" else 0xFFFFFFFF)
        if isinstance(group, StaticGroup):
            if group.xoff < group.reserved:
                raise SwitchCoreError(f"xoff {group.xoff} must not be less than reserved {group.reserved}")
            if group.xon >= group.xoff:
                raise SwitchCoreError(f"xon {group.xon} must be less than xoff {group.xoff}")
            self._call(
                "tm_set_pg", port, pg, False, group.reserved, group.xoff, group.xon, group.headroom, group.priorities
            )
        else:
            _check_range("alpha", group.alpha, -16, 16)
            self._call(
                "tm_set_pg", port, pg, True, group.reserved, group.alpha & 0xFF, group.xon_offset, group.headroom,
                group.priorities,
            )  # fmt: skip

    def set_queue(self, port: int, queue: int, limit: QueueLimit) -> None:
        """Limit of a queue for lossy packets. Default: `StaticLimit()`."""
        _check_port(port)
        _check_range("queue", queue, 0, 7)
        if isinstance(limit, StaticLimit):
            _check_range("limit_bytes", limit.limit_bytes, 0, 0xFFFFFFFF)
            self._call("tm_set_queue", port, queue, False, limit.limit_bytes)
        else:
            _check_range("alpha", limit.alpha, -16, 16)
            self._call("tm_set_queue", port, queue, True, limit.alpha & 0xFF)

    def set_pool(self, size: int = 16 << 20) -> None:
        """Shared bytes of the switch."""
        _check_range("pool size", size, 0, 0xFFFFFFFF)
        self._call("tm_set_pool", size)

    # --- counters and state; kinds as the `@tm` names, indexes port * 8 + n

    def read_counter(self, kind: str, index: int) -> CounterValue:
        _check_index(index)
        with self._core.lock():
            count = self._lib.tm_read_counter(self._tm, _kind(COUNTER_KINDS, kind), index)
        return CounterValue(count.packets, count.bytes)

    def clear_counter(self, kind: str, index: int) -> None:
        _check_index(index)
        with self._core.lock():
            self._lib.tm_clear_counter(self._tm, _kind(COUNTER_KINDS, kind), index)

    def read_state(self, kind: str, index: int) -> int:
        """State now. `pause_left` in quanta, `paused_ns` in nanoseconds, depths and watermarks in bytes."""
        _check_index(index)
        with self._core.lock():
            return int(self._lib.tm_read_state(self._tm, _kind(STATE_KINDS, kind), index, self._core.now_ps))

    def clear_watermark(self, kind: str, index: int) -> None:
        """Start a watermark again from what is held now."""
        _check_index(index)
        if kind not in WATERMARK_KINDS:
            raise SwitchCoreError(f"{kind} is not a watermark; they are {', '.join(WATERMARK_KINDS)}")
        with self._core.lock():
            self._lib.tm_clear_watermark(self._tm, _kind(STATE_KINDS, kind), index)

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


def _kind(kinds: tuple[str, ...], kind: str) -> int:
    try:
        return kinds.index(kind)
    except ValueError:
        raise SwitchCoreError(f"unknown kind {kind}; known: {', '.join(kinds)}") from None


Replicas = Sequence[tuple[int, int]]
"""(egress port, rid) of each copy."""


class ReplicationEngine:
    """Multicast groups and clone sessions."""

    def __init__(self, core: SwitchCore) -> None:
        self._core = core

    def set_multicast_group(self, group_id: int, replicas: Replicas) -> None:
        """Set (create or replace) a group, 1..65535."""
        _check_range("multicast group", group_id, 1, 0xFFFF)
        self._set("sw_set_multicast", group_id, replicas)

    def delete_multicast_group(self, group_id: int) -> None:
        _check_range("multicast group", group_id, 1, 0xFFFF)
        with self._core.lock():
            if self._core._lib.sw_delete_multicast(self._core._sw, group_id) < 0:
                raise SwitchCoreError(f"multicast group {group_id} does not exist")

    def set_clone_session(self, session_id: int, replicas: Replicas, cos: int = 0, length: int = 0) -> None:
        """Set a session, 0..65535. `cos`: priority of the copies where not 0; `length`: bytes kept where not 0."""
        _check_range("clone session", session_id, 0, 0xFFFF)
        _check_range("class of service", cos, 0, 7)
        _check_range("packet length", length, 0, 0xFFFFFFFF)
        self._set("sw_set_clone_session", session_id, replicas, cos, length)

    def delete_clone_session(self, session_id: int) -> None:
        _check_range("clone session", session_id, 0, 0xFFFF)
        with self._core.lock():
            if self._core._lib.sw_delete_clone_session(self._core._sw, session_id) < 0:
                raise SwitchCoreError(f"clone session {session_id} does not exist")

    def _set(self, name: str, number: int, replicas: Replicas, *more: int) -> None:
        for port, rid in replicas:
            _check_port(port)
            _check_range("replica id", rid, 0, 0xFFFF)
        array = ctypes.c_uint16 * len(replicas)
        ports, rids = array(*(port for port, _ in replicas)), array(*(rid for _, rid in replicas))
        with self._core.lock():
            if getattr(self._core._lib, name)(self._core._sw, number, ports, rids, len(replicas), *more) < 0:
                raise SwitchCoreError(f"{name} {number}: refused")


class SwitchCore:
    """One switch: pipeline, traffic manager, replication engine, and a driver if it is started.

    `json_text`: a BMv2 JSON, compiled (or found in the cache) by `switch.build`. `seed` seeds the program's random
    numbers. `priority_queues` 1..8: packets of a higher priority are dropped (drop_port), as BMv2 does. `debug`:
    without optimisation, which compiles sooner.
    """

    def __init__(
        self,
        json_text: str | bytes,
        *,
        cpu_port: int = 510,
        drop_port: int = 511,
        seed: int = 0,
        priority_queues: int = 8,
        sanitize: bool = False,
        debug: bool = False,
    ) -> None:
        from switch.build import build_program
        from switch.loader import load
        from switch.native_pipeline import NativePipeline

        program = load(json_text)
        self._open(build_program(json_text, sanitize=sanitize, debug=debug), cpu_port, drop_port, seed, priority_queues)
        self._pipeline: NativePipeline | None = NativePipeline(self._lib, self._lib.sw_pipeline(self._sw), program)

    @classmethod
    def from_library(
        cls, path: Path, *, cpu_port: int = 510, drop_port: int = 511, seed: int = 0, priority_queues: int = 8
    ) -> SwitchCore:
        """A core of a shared object made by hand; it has no `pipeline`."""
        core = cls.__new__(cls)
        core._pipeline = None
        core._open(path, cpu_port, drop_port, seed, priority_queues)
        return core

    def _open(self, path: Path, cpu_port: int, drop_port: int, seed: int, priority_queues: int) -> None:
        self._sw: int | None = None
        self._lib = _load(path)
        error = ctypes.create_string_buffer(512)
        self._sw = self._lib.sw_create(seed, cpu_port, drop_port, priority_queues, error, len(error))
        if not self._sw:
            raise SwitchCoreError(error.value.decode() or "out of memory")
        self.cpu_port = cpu_port
        self.drop_port = drop_port
        self._buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
        self.tm = TrafficManager(self)
        self.pre = ReplicationEngine(self)

    @property
    def pipeline(self) -> NativePipeline:
        if self._pipeline is None:
            raise SwitchCoreError("this core was made from a library without a program description")
        return self._pipeline

    def close(self) -> None:
        """Stop the driver and free everything. The core cannot be used after."""
        if getattr(self, "_sw", None):
            self._lib.sw_destroy(self._sw)
            self._sw = None

    def __enter__(self) -> SwitchCore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the core against its driver thread; may be nested."""
        self._lib.sw_lock(self._sw)
        try:
            yield
        finally:
            self._lib.sw_unlock(self._sw)

    # --- packets and time

    @property
    def now_ps(self) -> int:
        """The last time that the core saw, or the clock of the running driver."""
        return int(self._lib.sw_now(self._sw))

    def receive(self, port: int, frame: bytes, now_ps: int | None = None) -> bool:
        """A frame (no FCS) has arrived whole on a port, data or CPU. None: now, by the driver's clock.

        What was due before it is done first; what is due at the same time waits for `advance`. False: dropped before
        parsing and counted (longer than 9728 bytes, or no memory).
        """
        _check_port(port)
        when = NEVER_PS if now_ps is None else now_ps
        return bool(self._lib.sw_inject(self._sw, port, frame, len(frame), when) == 0)

    def next_deadline(self) -> int | None:
        """When `advance` next has something to do; None: not until a frame arrives or a setting changes."""
        deadline = int(self._lib.sw_next_deadline(self._sw))
        return None if deadline == NEVER_PS else deadline

    def advance(self, now_ps: int) -> None:
        """Do everything that is due up to and at `now_ps`, each at its own time."""
        self._lib.sw_run(self._sw, now_ps)

    def outputs(self) -> list[Output]:
        """Frames that left since the last call, in order (not while a driver runs: it sends them)."""
        return [
            Output(kind, data, start_ps, end_ps)
            for kind, _, data, start_ps, end_ps in self._records(self._lib.sw_outputs_take)
        ]

    def events(self) -> list[PacketIn | DigestData]:
        """Packet-ins and digests since the last call, in order."""
        return [
            PacketIn(data) if kind == _EVENT_PACKET_IN else DigestData(number, data)
            for kind, number, data, _, _ in self._records(self._lib.sw_events_take)
        ]

    @property
    def event_fd(self) -> int:
        """Readable while `events` has something."""
        return int(self._lib.sw_event_fd(self._sw))

    @property
    def events_lost(self) -> int:
        """Packet-ins and digests that found the event ring (4 MiB) full."""
        return int(self._lib.sw_events_lost(self._sw))

    def stats(self) -> dict[str, int]:
        """Frames since creation: what came in equals what went out, was dropped, or is still held."""
        values = (ctypes.c_uint64 * len(_STATS))()
        with self.lock():
            self._lib.sw_read_stats(self._sw, values)
        return dict(zip(_STATS, values, strict=True))

    @property
    def packets_held(self) -> int:
        """Packets in queues, on their way back to ingress, and in the hands of the driver."""
        return int(self._lib.sw_packets_live(self._sw))

    def _records(self, take: Any) -> Iterator[tuple[int, int, bytes, int, int]]:
        while True:
            n = take(self._sw, self._buffer, _BUFFER_BYTES)
            if not n:
                return
            data = ctypes.string_at(self._buffer, n)
            at = 0
            while at < n:
                total, kind, number, length, start_ps, end_ps = _RECORD.unpack_from(data, at)
                yield kind, number, data[at + _RECORD.size : at + _RECORD.size + length], start_ps, end_ps
                at += total
            if n <= _BUFFER_BYTES - _LARGEST_RECORD:
                return

    def bench(self, frames: Sequence[tuple[int, bytes]], count: int, gap_ps: int = 0) -> tuple[int, int]:
        """Inject `count` of the (port, frame) in turn, `gap_ps` apart, and run all that is due.

        Returns the nanoseconds that it took and the number of frames that left.
        """
        n = len(frames)
        data = (ctypes.c_char_p * n)(*(frame for _, frame in frames))
        lens = (ctypes.c_uint32 * n)(*(len(frame) for _, frame in frames))
        ports = (ctypes.c_uint16 * n)(*(port for port, _ in frames))
        sent = ctypes.c_uint64()
        with self.lock():
            ns = self._lib.sw_bench(self._sw, data, lens, ports, n, count, gap_ps, ctypes.byref(sent))
        return int(ns), int(sent.value)

    # --- real time

    def start_driver(self, interfaces: Mapping[int, str], pcap_dir: Path | None = None) -> None:
        """Start the thread that moves frames between network interfaces and the core; needs CAP_NET_RAW.

        Ports are added as they are named. `pcap_dir`: write `<interface>_in.pcap` and `<interface>_out.pcap` there.
        """
        error = ctypes.create_string_buffer(512)
        directory = None if pcap_dir is None else os.fsencode(pcap_dir)
        if self._lib.sw_driver_start(self._sw, directory, error, len(error)) < 0:
            raise SwitchCoreError(f"driver: {error.value.decode()}")
        try:
            for port, interface in interfaces.items():
                self.add_interface(port, interface)
        except SwitchCoreError:
            self.stop_driver()
            raise

    def stop_driver(self) -> None:
        """Stop the thread and close its sockets; its ports are removed. Harmless where none runs."""
        self._lib.sw_driver_stop(self._sw)

    def add_interface(self, port: int, interface: str) -> None:
        """Add a port on a network interface to the running driver."""
        _check_port(port)
        error = ctypes.create_string_buffer(512)
        if self._lib.sw_driver_add(self._sw, port, interface.encode(), error, len(error)) < 0:
            raise SwitchCoreError(f"port {port}@{interface}: {error.value.decode()}")

    def remove_interface(self, port: int) -> None:
        """Remove a port and close its socket."""
        if self._lib.sw_driver_remove(self._sw, port) < 0:
            raise SwitchCoreError(f"port {port} has no interface")

    def port_up(self, port: int) -> bool:
        """Whether the port has an interface that is up."""
        return bool(self._lib.sw_driver_port_up(self._sw, port) == 1)

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

from switch.tm_control import ReplicationEngine, TrafficManager
from switch.tm_settings import (
    MAX_FRAME_BYTES,
    MAX_PORTS,
    MAX_RATE_BPS,
    NEVER_PS,
    NOMINAL_RATE_BPS,
    Cbs,
    DynamicGroup,
    DynamicLimit,
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
    check_port,
)

if TYPE_CHECKING:
    from switch.native_pipeline import NativePipeline

# The settings are part of this interface.
__all__ = [
    "MAX_FRAME_BYTES",
    "MAX_PORTS",
    "MAX_RATE_BPS",
    "NEVER_PS",
    "NOMINAL_RATE_BPS",
    "Cbs",
    "DigestData",
    "DynamicGroup",
    "DynamicLimit",
    "Ets",
    "Output",
    "PacketIn",
    "PriorityGroup",
    "Qcn",
    "QueueLimit",
    "Replicas",
    "ReplicationEngine",
    "Scheduler",
    "StaticGroup",
    "StaticLimit",
    "StormAction",
    "Strict",
    "SwitchCore",
    "SwitchCoreError",
    "TrafficManager",
    "Watchdog",
]

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
    "events_made",
)
_RECORD: Final = struct.Struct("<IIIIQQ")
_EVENT_PACKET_IN: Final = 1
_BUFFER_BYTES: Final = 256 * 1024
_LARGEST_RECORD: Final = 16 * 1024  # a frame that the deparser has grown, or a digest


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
        "tm_set_pool": (i32, [p, u32, u64, u64]),
        "tm_set_headroom_pool": (i32, [p, u32, u64, u64]),
        "tm_set_pg_pool": (i32, [p, u32, u32, u32, u32, u64]),
        "tm_set_qcn": (i32, [p, u32, u32, u32, i32, u32, u32, u32, u64, u64]),
        "sw_set_storm": (i32, [p, u32, u32, u32, u64]),
        "sw_set_watchdog": (i32, [p, u32, u32, u32, u32, u32, ctypes.c_bool, u64]),
        "tm_block_port": (i32, [p, u32, ctypes.c_bool, u64]),
        "tm_read_counter": (_Count, [p, u32, u32]),
        "tm_clear_counter": (i32, [p, u32, u32]),
        "tm_read_state": (u64, [p, u32, u32, u64]),
        "tm_read_sources": (None, [p, u32, ctypes.POINTER(u64)]),
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

    @property
    def native(self) -> tuple[ctypes.CDLL, int | None]:
        """The library and the `sw_t` in it (None once closed), for an engine in C that drives the core itself."""
        return self._lib, self._sw

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
        check_port(port)
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
        check_port(port)
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

"""`Nic`: an end station in virtual time, over hosts/native/nic.h. RDMA queue pairs with DCQCN or QCN, TCP, PFC.

Passive as `switch.core.SwitchCore`: frames and times in, frames with their times out; `fabric.engine` drives it in C
through `native`, tests through `receive`, `advance` and `set_output`. One `nic_t` per object; one thread.

    a, b = Nic(config_a), Nic(config_b)
    flow = connect_rdma(a, b, RdmaConfig(bytes=10**6))     # both ends; a sends
    ... run the fabric ...
    a.flow(flow.sender).finish_ps
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, Final

from hosts import build
from hosts.nic_config import (
    NEVER_PS,
    QPN_BASE,
    TCP_PORT_BASE,
    U32,
    U64,
    CNicConfig,
    CNicDcb,
    CRdmaConfig,
    CTcpConfig,
    EventKind,
    NicConfig,
    NicDcb,
    RdmaConfig,
    TcpConfig,
)

_ABI_VERSION: Final = 2
_CHUNK: Final = 4096
_MAX_FRAME_BYTES: Final = 9216
UNGATED: Final = 8  # as a raw frame's priority: no pause holds it back
_OUTPUT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint8), U32, U32, U64, U64)

Output = Callable[[bytes, int, int], None]  # frame, start_ps, end_ps


class NicError(ValueError):
    """A setting that a NIC refuses; the message names field, value and rule."""


class FlowKind(IntEnum):
    RDMA = 0
    TCP = 1


class FlowState(IntEnum):
    WAITING = 0  # its start time has not come
    RUNNING = 1
    FINISHED = 2
    FAILED = 3
    RESPONDER = 4  # sends no data


class _CEvent(ctypes.Structure):
    _fields_ = (("time_ps", U64), ("kind", U32), ("flow", U32), ("value", U64))


class _CSample(ctypes.Structure):
    _fields_ = (
        ("time_ps", U64), ("flow", U32), ("pad", U32), ("rate_bps", U64), ("bytes_sent", U64), ("bytes_acked", U64),
        ("window_bytes", U64),
    )  # fmt: skip


_COUNTS: Final = (
    *("tx_frames", "tx_bytes", "rx_frames", "rx_bytes", "tx_pfc", "rx_pfc", "rx_pause", "tx_cnp", "rx_cnp"),
    *("tx_ack", "rx_ack", "tx_nak", "rx_nak", "rx_cnm", "rx_ce"),
    *("rx_not_ours", "rx_other", "rx_malformed", "rx_unknown_flow"),
    *("rx_drop", "rx_drop_bytes", "rx_used_bytes", "rx_peak_bytes"),
)
_BY_PRIORITY: Final = (
    *("tx_frames_prio", "tx_bytes_prio", "rx_frames_prio", "rx_bytes_prio", "rx_drop_prio"),
    *("xoff_tx", "xon_tx", "xoff_rx", "xon_rx", "pauses", "paused_ps"),
)


class _CStats(ctypes.Structure):
    _fields_ = (
        *((name, U64) for name in _COUNTS),
        *((name, U64 * 8) for name in _BY_PRIORITY),
        ("pfc_invalid", U64 * 5), ("pfc_high_byte_set", U64), ("raw_tx", U64), ("raw_tx_drop", U64), ("raw_rx", U64),
        ("raw_rx_lost", U64), ("events_lost", U64), ("samples_lost", U64),
    )  # fmt: skip


class _CFlow(ctypes.Structure):
    _fields_ = (
        ("kind", U32), ("state", U32),
        *((name, U64) for name in (
            "start_ps", "first_ps", "finish_ps", "bytes", "bytes_sent", "bytes_acked", "packets_sent", "packets_resent",
            "timeouts", "naks", "cnps", "marks", "rate_bps", "target_bps", "alpha_q32", "cwnd_bytes", "ssthresh_bytes",
            "rx_bytes", "rx_packets", "rx_messages", "rx_out_of_order", "rx_duplicates", "cnps_sent", "rx_first_ps",
            "rx_last_ps", "cnms",
        )),
    )  # fmt: skip


_STATS: Final = tuple(f[0] for f in _CStats._fields_)
_FLOW: Final = tuple(f[0] for f in _CFlow._fields_)


@dataclass(frozen=True, slots=True)
class NicStats:
    """Counters since creation. `*_prio` and what follows them: a tuple by priority. rx_used_bytes: held now."""

    tx_frames: int
    tx_bytes: int
    rx_frames: int
    rx_bytes: int
    tx_pfc: int
    rx_pfc: int
    rx_pause: int
    tx_cnp: int
    rx_cnp: int
    tx_ack: int
    rx_ack: int
    tx_nak: int
    rx_nak: int
    rx_cnm: int
    rx_ce: int
    rx_not_ours: int
    rx_other: int
    rx_malformed: int
    rx_unknown_flow: int
    rx_drop: int
    rx_drop_bytes: int
    rx_used_bytes: int
    rx_peak_bytes: int
    tx_frames_prio: tuple[int, ...]
    tx_bytes_prio: tuple[int, ...]
    rx_frames_prio: tuple[int, ...]
    rx_bytes_prio: tuple[int, ...]
    rx_drop_prio: tuple[int, ...]
    xoff_tx: tuple[int, ...]
    xon_tx: tuple[int, ...]
    xoff_rx: tuple[int, ...]
    xon_rx: tuple[int, ...]
    pauses: tuple[int, ...]
    paused_ps: tuple[int, ...]
    pfc_invalid: tuple[int, ...]
    pfc_high_byte_set: int
    raw_tx: int
    raw_tx_drop: int
    raw_rx: int
    raw_rx_lost: int
    events_lost: int
    samples_lost: int


@dataclass(frozen=True, slots=True)
class FlowStats:
    """One flow at one end. Times None: not yet. `rx_*`, `marks`, `cnps_sent`: what it did as the receiving end."""

    flow: int
    kind: FlowKind
    state: FlowState
    start_ps: int
    first_ps: int | None  # first frame on the wire
    finish_ps: int | None  # last byte acknowledged
    bytes: int
    bytes_sent: int  # payload, what was sent again included
    bytes_acked: int
    packets_sent: int
    packets_resent: int
    timeouts: int
    naks: int
    cnps: int
    marks: int
    rate_bps: int
    target_bps: int
    alpha_q32: int
    cwnd_bytes: int
    ssthresh_bytes: int
    rx_bytes: int
    rx_packets: int
    rx_messages: int
    rx_out_of_order: int
    rx_duplicates: int
    cnps_sent: int
    rx_first_ps: int | None
    rx_last_ps: int | None
    cnms: int  # congestion notification messages (802.1Qau) about it

    @property
    def completion_ps(self) -> int | None:
        """Flow completion time: from its start until its last byte was acknowledged."""
        return (
            None if self.finish_ps is None or self.state is not FlowState.FINISHED else self.finish_ps - self.start_ps
        )


@dataclass(frozen=True, slots=True)
class NicEvent:
    time_ps: int
    kind: EventKind
    flow: int  # or the priority: PAUSED, RESUMED, RX_DROP; or the EtherType: RAW
    value: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A running flow at one time. window_bytes: in flight (RDMA), congestion window (TCP)."""

    time_ps: int
    flow: int
    rate_bps: int
    bytes_sent: int
    bytes_acked: int
    window_bytes: int


@dataclass(frozen=True, slots=True)
class Connection:
    """The two ends of one flow: its number at the sending and at the receiving NIC."""

    sender: int
    receiver: int


@cache
def _load(sanitize: bool) -> ctypes.CDLL:
    lib = ctypes.CDLL(str(build.build("nic", sanitize=sanitize)))
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "nic_abi_version": (U32, []),
        "nic_struct_bytes": (None, [ctypes.POINTER(U32)]),
        "nic_create": (pointer, [ctypes.POINTER(CNicConfig), text, size]),
        "nic_destroy": (None, [pointer]),
        "nic_set_output": (None, [pointer, pointer, pointer]),
        "nic_receive": (None, [pointer, U32, text, U32, U64]),
        "nic_next_deadline": (U64, [pointer]),
        "nic_advance": (None, [pointer, U64]),
        "nic_add_rdma": (ctypes.c_int32, [pointer, ctypes.POINTER(CRdmaConfig), text, size]),
        "nic_add_tcp": (ctypes.c_int32, [pointer, ctypes.POINTER(CTcpConfig), text, size]),
        "nic_flow_count": (U32, [pointer]),
        "nic_wait_flow": (ctypes.c_int, [pointer, U32, U32, text, size]),
        "nic_stop_flow": (ctypes.c_int, [pointer, U32, U64]),
        "nic_set_dcb": (ctypes.c_int, [pointer, ctypes.POINTER(CNicDcb), U64, text, size]),
        "nic_set_marks": (ctypes.c_int, [pointer, U32, U32, U32, U64, text, size]),
        "nic_set_link": (None, [pointer, ctypes.c_int, U64]),
        "nic_send_raw": (ctypes.c_int, [pointer, text, U32, U32, U64, text, size]),
        "nic_take_raw": (U32, [pointer, pointer, U32, ctypes.POINTER(U64)]),
        "nic_storm": (None, [pointer, ctypes.c_uint8, ctypes.c_uint16, U64, U64, U64]),
        "nic_set_drain": (None, [pointer, U64, ctypes.c_int, U64]),
        "nic_set_sampling": (None, [pointer, U64, U64]),
        "nic_read_stats": (None, [pointer, ctypes.POINTER(_CStats)]),
        "nic_read_flow": (ctypes.c_int, [pointer, U32, ctypes.POINTER(_CFlow)]),
        "nic_read_events": (U32, [pointer, ctypes.POINTER(_CEvent), U32]),
        "nic_read_samples": (U32, [pointer, ctypes.POINTER(_CSample), U32]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    if lib.nic_abi_version() != _ABI_VERSION:
        raise NicError(f"the NIC library has ABI version {lib.nic_abi_version()}, this is for {_ABI_VERSION}")
    sizes = (U32 * 8)()
    lib.nic_struct_bytes(sizes)
    ours = [
        ctypes.sizeof(c) for c in (CNicConfig, CNicDcb, CRdmaConfig, CTcpConfig, _CEvent, _CSample, _CStats, _CFlow)
    ]
    if list(sizes) != ours:
        raise NicError(f"structs of the NIC library have {list(sizes)} bytes, those of Python {ours}")
    return lib


class Nic:
    """A NIC with one port. Raises `NicError`. `sanitize` None: as $DCB_TEST_SANITIZE says."""

    def __init__(self, config: NicConfig, *, sanitize: bool | None = None) -> None:
        self._nic: int | None = None
        self.config = config
        self._lib = _load(os.environ.get("DCB_TEST_SANITIZE") == "1" if sanitize is None else sanitize)
        self._error = ctypes.create_string_buffer(256)
        self._frame = ctypes.create_string_buffer(_MAX_FRAME_BYTES)
        self._callback: Any = None
        native = config.native()
        self._nic = self._lib.nic_create(ctypes.byref(native), self._error, len(self._error))
        if not self._nic:
            raise NicError(self._error.value.decode())

    def close(self) -> None:
        """Free everything; a fabric that drives the NIC is closed before."""
        if getattr(self, "_nic", None):
            self._lib.nic_destroy(self._nic)
            self._nic = None

    def __enter__(self) -> Nic:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    @property
    def native(self) -> tuple[ctypes.CDLL, int | None]:
        """The library and the `nic_t` in it (None once closed), for an engine in C that drives the NIC itself."""
        return self._lib, self._nic

    # --- frames and time

    def set_output(self, output: Output | None) -> None:
        """`output(frame, start_ps, end_ps)` for each frame that leaves; end_ps: wire free again, gap included."""
        if output is None:
            self._callback = None
        else:

            def call(_: int, frame: Any, length: int, __: int, start_ps: int, end_ps: int) -> None:
                output(ctypes.string_at(frame, length), start_ps, end_ps)

            self._callback = _OUTPUT(call)
        self._lib.nic_set_output(self._nic, ctypes.cast(self._callback, ctypes.c_void_p) if output else None, None)

    def receive(self, frame: bytes, now_ps: int) -> None:
        """A frame (no FCS) has arrived whole. What was due before is done first; what is due now is `advance`'s."""
        self._lib.nic_receive(self._nic, 0, frame, len(frame), now_ps)

    def next_deadline(self) -> int | None:
        """When `advance` next has something to do; None: not until a frame arrives or a flow is added."""
        deadline = int(self._lib.nic_next_deadline(self._nic))
        return None if deadline == NEVER_PS else deadline

    def advance(self, now_ps: int) -> None:
        """Do all that is due up to and at `now_ps`, each at its own time."""
        self._lib.nic_advance(self._nic, now_ps)

    # --- flows

    def next_flow(self) -> int:
        """The number that the next flow will get: the other end has to know it."""
        return int(self._lib.nic_flow_count(self._nic))

    def add_rdma_flow(self, config: RdmaConfig, *, remote_mac: str, remote_ip: str, remote_flow: int) -> int:
        """One end of a queue pair; `remote_mac` is the next hop's. Its number. `connect_rdma` makes both ends."""
        native = config.native(remote_mac, remote_ip, QPN_BASE + remote_flow)
        return self._number(self._lib.nic_add_rdma(self._nic, ctypes.byref(native), self._error, len(self._error)))

    def add_tcp_flow(self, config: TcpConfig, *, remote_mac: str, remote_ip: str, remote_flow: int) -> int:
        """One end of a TCP connection; its number."""
        native = config.native(remote_mac, remote_ip, TCP_PORT_BASE + remote_flow)
        return self._number(self._lib.nic_add_tcp(self._nic, ctypes.byref(native), self._error, len(self._error)))

    def wait_flow(self, flow: int, other: int) -> None:
        """Message k (from 0) of RDMA flow `flow` waits until flow `other` has received k messages: ring all-reduce."""
        self._number(self._lib.nic_wait_flow(self._nic, flow, other, self._error, len(self._error)))

    def stop_flow(self, flow: int, now_ps: int) -> None:
        """No new data, but for a packet that ends an RDMA message and asks for an ACK where the last ones did not; the
        flow finishes when what it has sent is acknowledged."""
        if self._lib.nic_stop_flow(self._nic, flow, now_ps) != 0:
            raise NicError(f"flow {flow}: there is none, this NIC has {self.next_flow()}")

    def _number(self, flow: int) -> int:
        if flow < 0:
            raise NicError(self._error.value.decode())
        return flow

    def set_marks(self, flow: int, now_ps: int, *, dscp: int, priority: int) -> None:
        """DSCP and priority of an RDMA flow's data and ACKs at this end, from the next frame on. Switches may let them
        overtake what is under way with the old ones: RC mends that by sending again."""
        self._number(self._lib.nic_set_marks(self._nic, flow, dscp, priority, now_ps, self._error, len(self._error)))

    # --- what DCBX and a driver do

    def set_dcb(self, dcb: NicDcb, now_ps: int) -> None:
        """From now on: pauses of priorities that are no longer obeyed end; who was told XOFF for one is told XON."""
        native = dcb.native()
        self._number(self._lib.nic_set_dcb(self._nic, ctypes.byref(native), now_ps, self._error, len(self._error)))

    def set_link(self, up: bool, now_ps: int) -> None:
        """Carrier (up at first; `fabric.links.Link` says it). Down: nothing leaves, flows wait while their timers run,
        raw frames are dropped, pauses are forgotten both ways."""
        self._lib.nic_set_link(self._nic, up, now_ps)

    def send(self, frame: bytes, now_ps: int, *, priority: int = UNGATED) -> bool:
        """A frame (no FCS) of somebody else's: it goes before the data of its priority and waits at its gate, or goes
        right after PFC. False: dropped and counted, since the link is down or 256 wait in that priority."""
        done = self._lib.nic_send_raw(self._nic, frame, len(frame), priority, now_ps, self._error, len(self._error))
        return bool(self._number(done))

    def frames(self) -> list[tuple[int, bytes]]:
        """What has arrived since the last call and is nobody's here, with its time: frames to group addresses, and of
        other EtherTypes than IPv4. Only where `NicConfig.events` has RAW; 256 wait, more are lost and counted."""
        found = []
        at = U64()
        while length := self._lib.nic_take_raw(self._nic, self._frame, _MAX_FRAME_BYTES, ctypes.byref(at)):
            found.append((at.value, self._frame.raw[:length]))
        return found

    # --- faults

    def storm(
        self,
        priorities: Iterable[int],
        interval_ps: int,
        *,
        quanta: int = 65535,
        start_ps: int = 0,
        until_ps: int = NEVER_PS,
    ) -> None:
        """A broken NIC: XOFF for `priorities` every `interval_ps` in [start, until). No priority: the storm is over
        (without XON: what was paused runs out)."""
        chosen = tuple(priorities)
        if any(not 0 <= p <= 7 for p in chosen):
            raise NicError(f"priorities: {chosen} are not all within 0..7")
        if not 0 <= quanta <= 0xFFFF:
            raise NicError(f"quanta: {quanta} is out of range, must be 0..65535")
        if interval_ps < 1:
            raise NicError(f"interval_ps: {interval_ps}, must be 1 or more")
        self._lib.nic_storm(self._nic, sum(1 << p for p in set(chosen)), quanta, interval_ps, start_ps, until_ps)

    def set_drain(self, drain_bps: int, now_ps: int, *, stalled: bool = False) -> None:
        """From now on the host takes received frames at this rate (0: at once), or (`stalled`) not at all."""
        self._lib.nic_set_drain(self._nic, drain_bps, stalled, now_ps)

    # --- what happened

    def stats(self) -> NicStats:
        raw = _CStats()
        self._lib.nic_read_stats(self._nic, ctypes.byref(raw))
        values: dict[str, Any] = {}
        for name in _STATS:
            value = getattr(raw, name)
            values[name] = value if isinstance(value, int) else tuple(value)
        return NicStats(**values)

    def flow(self, flow: int) -> FlowStats:
        raw = _CFlow()
        if self._lib.nic_read_flow(self._nic, flow, ctypes.byref(raw)) != 0:
            raise NicError(f"flow {flow}: there is none, this NIC has {self.next_flow()}")
        values: dict[str, Any] = {name: getattr(raw, name) for name in _FLOW}
        for name in ("first_ps", "finish_ps", "rx_first_ps", "rx_last_ps"):
            if values[name] == NEVER_PS:
                values[name] = None
        return FlowStats(flow, FlowKind(values.pop("kind")), FlowState(values.pop("state")), **values)

    def flows(self) -> list[FlowStats]:
        return [self.flow(i) for i in range(self.next_flow())]

    def events(self) -> list[NicEvent]:
        """Records since the last call, in order."""
        rows = self._take(self._lib.nic_read_events, _CEvent)
        return [NicEvent(r.time_ps, EventKind(r.kind), r.flow, r.value) for r in rows]

    def set_sampling(self, interval_ps: int, until_ps: int) -> None:
        """A `Sample` of every running flow each `interval_ps` from now until `until_ps`; interval 0: none."""
        self._lib.nic_set_sampling(self._nic, interval_ps, until_ps)

    def samples(self) -> list[Sample]:
        """Samples since the last call, in order of time, then flow."""
        rows = self._take(self._lib.nic_read_samples, _CSample)
        return [Sample(r.time_ps, r.flow, r.rate_bps, r.bytes_sent, r.bytes_acked, r.window_bytes) for r in rows]

    def _take(self, read: Any, row: type[Any]) -> list[Any]:
        found: list[Any] = []
        while True:
            chunk = (row * _CHUNK)()
            n = read(self._nic, chunk, _CHUNK)
            found += chunk[:n]
            if n < _CHUNK:
                return found


def connect_rdma(
    sender: Nic, receiver: Nic, config: RdmaConfig, *, sender_hop: str | None = None, receiver_hop: str | None = None
) -> Connection:
    """Both ends of a queue pair. `*_hop`: MAC of the next hop from that NIC (its leaf port); None: the other NIC."""
    return _connect(sender, receiver, Nic.add_rdma_flow, config, sender_hop, receiver_hop)


def connect_tcp(
    sender: Nic, receiver: Nic, config: TcpConfig, *, sender_hop: str | None = None, receiver_hop: str | None = None
) -> Connection:
    """Both ends of a TCP connection; as `connect_rdma`."""
    return _connect(sender, receiver, Nic.add_tcp_flow, config, sender_hop, receiver_hop)


def _connect(
    sender: Nic,
    receiver: Nic,
    add: Callable[..., int],
    config: RdmaConfig | TcpConfig,
    sender_hop: str | None,
    receiver_hop: str | None,
) -> Connection:
    here, there = sender.next_flow(), receiver.next_flow()
    if receiver is sender:
        raise NicError("receiver: is the sender; a flow needs two NICs")
    to_sender, to_receiver = receiver_hop or sender.config.mac, sender_hop or receiver.config.mac
    add(receiver, config.responder(), remote_mac=to_sender, remote_ip=sender.config.ip, remote_flow=here)
    add(sender, config, remote_mac=to_receiver, remote_ip=receiver.config.ip, remote_flow=there)
    return Connection(here, there)

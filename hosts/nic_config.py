"""Settings of the NIC model as dataclasses, and the C structs that they become (hosts/native/nic.h, field by field).

Values only; `hosts.nic` owns the NIC. Rates are bits per second on the wire (preamble and gap included), times integer
picoseconds, sizes bytes. Ranges are checked in C, which names field, value and rule.
"""

from __future__ import annotations

import ctypes
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from fractions import Fraction
from typing import Final

from dcb.units import PS_PER_MS, PS_PER_US

NEVER_PS: Final = (1 << 64) - 1
ENDLESS: Final = (1 << 64) - 1  # bytes of a flow that goes on until it is stopped
QPN_BASE: Final = 0x100  # queue pair number of a NIC's flow i is QPN_BASE + i
TCP_PORT_BASE: Final = 10000  # and its TCP port TCP_PORT_BASE + i
ONE_Q32: Final = 1 << 32
STORAGE_DSCP: Final = 26
CNP_DSCP: Final = 48
DSCP_TO_PRIORITY: Final[Mapping[int, int]] = {STORAGE_DSCP: 3, CNP_DSCP: 6}  # docs/contract.md, 7; elsewhere 0

U8, U16, U32, U64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64


class CNicConfig(ctypes.Structure):
    _fields_ = (
        ("rate_bps", U64), ("ip", U32), ("port", U32), ("mac", U8 * 6), ("pfc_rx_enable", U8), ("pfc_tx_enable", U8),
        ("pause_rx_enable", U8), ("icrc", U8), ("pfc_quanta", U16), ("events_mask", U32), ("notify_mask", U32),
        ("pad", U32), ("rx_buffer_bytes", U64), ("rx_drain_bps", U64), ("rx_xoff_bytes", U64 * 8),
        ("rx_xon_bytes", U64 * 8), ("weight", U32 * 8), ("dscp_to_priority", U8 * 64),
    )  # fmt: skip


class CNicDcb(ctypes.Structure):
    _fields_ = (
        ("pfc_rx_enable", U8), ("pfc_tx_enable", U8), ("priority_to_tc", U8 * 8), ("dscp_to_priority", U8 * 64),
        ("pad", U8 * 2), ("weight", U32 * 8),
    )  # fmt: skip


class CDcqcnConfig(ctypes.Structure):
    _fields_ = (
        ("enabled", U32), ("fast_recovery", U32), ("alpha_at_cnp", U32), ("hyper_scales", U32), ("clamp_target", U32),
        ("pad", U32), ("g_q32", U64),
        ("alpha_timer_ps", U64), ("decrease_interval_ps", U64), ("increase_timer_ps", U64),
        ("byte_counter_bytes", U64), ("ai_bps", U64), ("hai_bps", U64), ("min_rate_bps", U64),
    )  # fmt: skip


class CQcnConfig(ctypes.Structure):
    _fields_ = (
        ("enabled", U32), ("fast_recovery", U32), ("clamp_after_timer", U32), ("pad", U32), ("gd_q32", U64),
        ("least_factor_q32", U64), ("byte_limit_bytes", U64), ("timer_ps", U64), ("ai_bps", U64), ("hai_bps", U64),
        ("min_rate_bps", U64),
    )  # fmt: skip


class CRdmaConfig(ctypes.Structure):
    _fields_ = (
        ("remote_ip", U32), ("remote_qpn", U32), ("remote_mac", U8 * 6), ("dscp", U8), ("priority", U8),
        ("ack_dscp", U8), ("ack_priority", U8), ("cnp_dscp", U8), ("cnp_priority", U8), ("ecn", U8), ("reliable", U8),
        ("recovery", U8), ("pad", U8), ("udp_source_port", U16), ("pad2", U16), ("mtu_bytes", U32), ("ack_every", U32),
        ("retry_limit", U32), ("ttl", U32), ("initial_psn", U32), ("pad3", U32), ("start_ps", U64),
        ("bytes", U64), ("message_bytes", U64), ("window_bytes", U64), ("rate_bps", U64), ("rto_ps", U64),
        ("cnp_interval_ps", U64), ("dcqcn", CDcqcnConfig), ("qcn", CQcnConfig),
    )  # fmt: skip


class CTcpConfig(ctypes.Structure):
    _fields_ = (
        ("remote_ip", U32), ("remote_port", U16), ("pad0", U16), ("remote_mac", U8 * 6), ("dscp", U8), ("priority", U8),
        ("algorithm", U8), ("ecn", U8), ("ttl", U8), ("pad", U8), ("mss_bytes", U32), ("ack_every", U32),
        ("initial_window_segments", U32), ("start_ps", U64), ("bytes", U64), ("max_window_bytes", U64),
        ("rto_min_ps", U64), ("rto_max_ps", U64), ("rto_initial_ps", U64), ("delayed_ack_ps", U64),
        ("dctcp_g_q32", U64),
    )  # fmt: skip


def mac_bytes(text: str) -> bytes:
    """02:00:00:00:01:01 -> 6 bytes."""
    parts = text.split(":")
    if len(parts) != 6 or any(len(p) != 2 for p in parts):
        raise ValueError(f"mac: {text!r} is not six pairs of hexadecimal digits")
    return bytes(int(p, 16) for p in parts)


def ip_number(text: str) -> int:
    """10.1.0.1 -> 0x0a010001. The model speaks IPv4."""
    return int(ipaddress.IPv4Address(text))


def q32(value: Fraction) -> int:
    """A fraction as a multiple of 2^-32, rounded down."""
    return value.numerator * ONE_Q32 // value.denominator


class Recovery(IntEnum):
    """What a requester does about a lost packet."""

    GO_BACK_N = 0
    GO_BACK_0 = 1  # the whole message anew: livelock at a loss of 1/256 (SIGCOMM'16, reference/dcb.md 6.1)


class TcpAlgorithm(IntEnum):
    RENO = 0
    DCTCP = 1


class EventKind(IntEnum):
    """What a NIC records; what `flow` and `value` are: hosts/native/nic.h."""

    STARTED = 0
    FINISHED = 1
    FAILED = 2
    MESSAGE = 3
    PAUSED = 4
    RESUMED = 5
    RX_DROP = 6
    CNP = 7
    RAW = 8  # a frame that is nobody's: where it is recorded, `Nic.frames` has them
    LINK = 9
    CNM = 10


EVENTS: Final = frozenset(
    {EventKind.STARTED, EventKind.FINISHED, EventKind.FAILED, EventKind.PAUSED, EventKind.RESUMED}
)


@dataclass(frozen=True, slots=True)
class Dcqcn:
    """A DCQCN profile: reaction point (sender) and, with `cnp_interval_ps`, notification point (receiver).

    alpha begins at 1. A CNP sets rate := rate * (1 - alpha / 2). `alpha_at_cnp`: alpha := (1 - g) alpha + g with each
    CNP, else at the next tick of its timer; a tick without a CNP: alpha := (1 - g) alpha. Timer and byte counter raise:
    `fast_recovery` times half the way to the target, then `ai_bps` more target, then `hai_bps` (with `hyper_scales` the
    i-th time i * hai_bps). decrease_interval_ps: no two decreases within it; 0: each CNP counts. byte_counter_bytes 0:
    there is none. A decrease makes the rate before it the target; without `clamp_target` only the first one since an
    increase.
    """

    name: str
    enabled: bool = True
    g: Fraction = Fraction(1, 256)
    cnp_interval_ps: int = 50 * PS_PER_US
    alpha_timer_ps: int = 55 * PS_PER_US
    decrease_interval_ps: int = 0
    increase_timer_ps: int = 55 * PS_PER_US
    byte_counter_bytes: int = 10_000_000
    fast_recovery: int = 5
    ai_bps: int = 40_000_000
    hai_bps: int = 400_000_000
    min_rate_bps: int = 10_000_000
    alpha_at_cnp: bool = True
    hyper_scales: bool = True
    clamp_target: bool = True

    @classmethod
    def off(cls) -> Dcqcn:
        """No reaction and no CNPs."""
        return cls("off", enabled=False, cnp_interval_ps=NEVER_PS)

    @classmethod
    def paper(cls) -> Dcqcn:
        """SIGCOMM'15 (reference/dcb.md 6.1): CNP at most every 50 us, timers 55 us, byte counter 10 MB, F 5, g 1/256,
        R_AI 40 Mb/s. R_HAI is not in our source of numbers: ten times R_AI, the ratio of QCN (5 and 50 Mb/s)."""
        return cls("paper")

    @classmethod
    def cx4(cls, rate_bps: int) -> Dcqcn:
        """The vendor's form as HPCC's run.py configures it (reference/p4.md 6.1): alpha timer 1 us, decrease at most
        every 4 us, increase 300 us, no byte counter, AI 5 and HAI 50 Mb/s per 25 Gb/s of the port, F 1, the target kept
        through decreases in a row. Ours: CNPs at most every 4 us (receivers there echo every mark), 100 Mb/s least."""
        return cls(
            "cx4",
            cnp_interval_ps=4 * PS_PER_US,
            alpha_timer_ps=PS_PER_US,
            decrease_interval_ps=4 * PS_PER_US,
            increase_timer_ps=300 * PS_PER_US,
            byte_counter_bytes=0,
            fast_recovery=1,
            ai_bps=5_000_000 * rate_bps // 25_000_000_000,
            hai_bps=50_000_000 * rate_bps // 25_000_000_000,
            min_rate_bps=100_000_000,
            alpha_at_cnp=False,
            hyper_scales=False,
            clamp_target=False,
        )

    @classmethod
    def named(cls, name: str, rate_bps: int) -> Dcqcn:
        """`off`, `paper` or `cx4`."""
        if name == "off":
            return cls.off()
        if name == "paper":
            return cls.paper()
        if name == "cx4":
            return cls.cx4(rate_bps)
        raise ValueError(f"dcqcn: {name!r} is not a profile, must be off, paper or cx4")

    def native(self) -> CDcqcnConfig:
        return CDcqcnConfig(
            self.enabled, self.fast_recovery, self.alpha_at_cnp, self.hyper_scales, self.clamp_target, 0,
            q32(self.g), self.alpha_timer_ps,
            self.decrease_interval_ps, self.increase_timer_ps, self.byte_counter_bytes, self.ai_bps, self.hai_bps,
            self.min_rate_bps,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Qcn:
    """A QCN profile (802.1Qau): the reaction point of a sender.

    A message with feedback n (1..63) takes n * gd of the rate, and leaves at least `least_factor` of it; the rate
    before it is the target, unless no cycle of the byte counter has ended since the message before
    (`clamp_after_timer`: nor one of the timer). Then, each time that `byte_limit_bytes` were sent or `timer_ps` went
    by, the rate goes half the way to the target. From a counter's cycle `fast_recovery` + 1 on cycles are half as long
    and `ai_bps` is added to the target; once both counters are there, i * `hai_bps` with the lesser of the cycles
    beyond it. A target more than ten times the rate at the end of a first cycle is divided by eight instead. At line
    rate the flow is unlimited again.
    """

    name: str
    enabled: bool = True
    gd: Fraction = Fraction(1, 128)
    least_factor: Fraction = Fraction(1, 2)
    byte_limit_bytes: int = 150_000
    timer_ps: int = 15 * PS_PER_MS
    fast_recovery: int = 5
    ai_bps: int = 5_000_000
    hai_bps: int = 50_000_000
    min_rate_bps: int = 5_000_000
    clamp_after_timer: bool = False

    @classmethod
    def off(cls) -> Qcn:
        """Messages are counted and otherwise ignored."""
        return cls("off", enabled=False)

    @classmethod
    def standard(cls) -> Qcn:
        """Defaults of IEEE8021-CN-MIB (reference/dcb.md 6.4 has the same): meant for 10 Gb/s."""
        return cls("standard")

    @classmethod
    def scaled(cls, rate_bps: int) -> Qcn:
        """Ours: the standard's figures for 10 Gb/s in proportion to the port's rate, the timer shorter by as much."""
        standard = cls.standard()
        tens = Fraction(rate_bps, 10**10)
        return replace(
            standard,
            name="scaled",
            timer_ps=int(standard.timer_ps / tens),
            ai_bps=int(standard.ai_bps * tens),
            hai_bps=int(standard.hai_bps * tens),
            min_rate_bps=max(1, int(standard.min_rate_bps * tens)),
        )

    def native(self) -> CQcnConfig:
        return CQcnConfig(
            self.enabled, self.fast_recovery, self.clamp_after_timer, 0, q32(self.gd), q32(self.least_factor),
            self.byte_limit_bytes, self.timer_ps, self.ai_bps, self.hai_bps, self.min_rate_bps,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RdmaConfig:
    """One end of a queue pair. `bytes` 0: responder only; ENDLESS: until `stop_flow`.

    priority: which of the NIC's queues (PFC gates are per priority); dscp is what switches see. mtu_bytes: payload of a
    full packet. message_bytes 0: the flow is one message. window_bytes: payload in flight, 0: no limit. rate_bps 0: the
    port's. ack_every: as responder, an ACK per so many packets, besides those asked for. rto_ps: without
    a new acknowledgement. retry_limit: timeouts in a row, 0: for ever. reliable False: UC, no ACKs, nothing sent again.
    """

    bytes: int = 0
    start_ps: int = 0
    dscp: int = STORAGE_DSCP
    priority: int = 3
    ack_dscp: int | None = None  # None: as data
    ack_priority: int | None = None
    cnp_dscp: int = CNP_DSCP
    cnp_priority: int = 6
    ecn: int = 2  # ECT(0)
    reliable: bool = True
    recovery: Recovery = Recovery.GO_BACK_N
    initial_psn: int = 0
    udp_source_port: int = 49152
    mtu_bytes: int = 1024
    message_bytes: int = 0
    window_bytes: int = 0
    rate_bps: int = 0
    ack_every: int = 16
    rto_ps: int = 4_194_304_000  # 4.096 us * 2^10: InfiniBand's local ACK timeout 10
    retry_limit: int = 0
    ttl: int = 64
    dcqcn: Dcqcn = field(default_factory=Dcqcn.off)
    qcn: Qcn = field(default_factory=Qcn.off)

    def responder(self) -> RdmaConfig:
        """The other end: the same but sends no data."""
        return replace(self, bytes=0, start_ps=0)

    def native(self, remote_mac: str, remote_ip: str, remote_qpn: int) -> CRdmaConfig:
        c = CRdmaConfig(
            remote_ip=ip_number(remote_ip), remote_qpn=remote_qpn, dscp=self.dscp, priority=self.priority,
            ack_dscp=self.dscp if self.ack_dscp is None else self.ack_dscp,
            ack_priority=self.priority if self.ack_priority is None else self.ack_priority,
            cnp_dscp=self.cnp_dscp, cnp_priority=self.cnp_priority, ecn=self.ecn, reliable=self.reliable,
            recovery=self.recovery, udp_source_port=self.udp_source_port, mtu_bytes=self.mtu_bytes,
            ack_every=self.ack_every, retry_limit=self.retry_limit, ttl=self.ttl,
            start_ps=self.start_ps, bytes=self.bytes,
            initial_psn=self.initial_psn, message_bytes=self.message_bytes, window_bytes=self.window_bytes,
            rate_bps=self.rate_bps, rto_ps=self.rto_ps, cnp_interval_ps=self.dcqcn.cnp_interval_ps,
            dcqcn=self.dcqcn.native(), qcn=self.qcn.native(),
        )  # fmt: skip
        c.remote_mac[:] = mac_bytes(remote_mac)
        return c


@dataclass(frozen=True, slots=True)
class TcpConfig:
    """One end of a TCP connection that is established already. `bytes` 0: receiver only; ENDLESS: until stopped."""

    bytes: int = 0
    start_ps: int = 0
    algorithm: TcpAlgorithm = TcpAlgorithm.RENO
    ecn: bool = False
    dscp: int = 0
    priority: int = 0
    mss_bytes: int = 1460
    ack_every: int = 2
    initial_window_segments: int = 10  # RFC 6928
    max_window_bytes: int = 16 << 20
    rto_min_ps: int = 10 * PS_PER_MS
    rto_max_ps: int = 60_000 * PS_PER_MS
    rto_initial_ps: int = 1000 * PS_PER_MS  # RFC 6298
    delayed_ack_ps: int = 1 * PS_PER_MS
    dctcp_g: Fraction = Fraction(1, 16)  # RFC 8257
    ttl: int = 64

    def responder(self) -> TcpConfig:
        """The other end: the same but sends no data."""
        return replace(self, bytes=0, start_ps=0)

    def native(self, remote_mac: str, remote_ip: str, remote_port: int) -> CTcpConfig:
        c = CTcpConfig(
            remote_ip=ip_number(remote_ip), remote_port=remote_port, dscp=self.dscp, priority=self.priority,
            algorithm=self.algorithm, ecn=self.ecn, ttl=self.ttl, mss_bytes=self.mss_bytes, ack_every=self.ack_every,
            initial_window_segments=self.initial_window_segments, start_ps=self.start_ps, bytes=self.bytes,
            max_window_bytes=self.max_window_bytes, rto_min_ps=self.rto_min_ps, rto_max_ps=self.rto_max_ps,
            rto_initial_ps=self.rto_initial_ps, delayed_ack_ps=self.delayed_ack_ps, dctcp_g_q32=q32(self.dctcp_g),
        )  # fmt: skip
        c.remote_mac[:] = mac_bytes(remote_mac)
        return c


@dataclass(frozen=True, slots=True)
class ReceiveBuffer:
    """What a NIC holds until its host has taken it. drain_bps 0: at once (nothing is ever held).

    bytes 0: no limit, else a frame that does not fit is dropped. xoff_bytes and xon_bytes are of one priority's frames.
    """

    drain_bps: int = 0
    bytes: int = 0
    xoff_bytes: int = 100_000
    xon_bytes: int = 50_000


@dataclass(frozen=True, slots=True)
class NicConfig:
    """A NIC's port. pfc_rx: priorities whose pauses it honours; pfc_tx: those for which it sends XOFF.

    weights: priority -> weight of deficit-free fair sharing; priorities without one are strict, higher first (each is
    a traffic class of its own until `Nic.set_dcb`). events: what is recorded; with RAW frames of others are kept.
    notify: of those, what makes a fabric let its callers react at once.
    """

    mac: str
    ip: str
    rate_bps: int
    port: int = 0
    pfc_rx: frozenset[int] = frozenset({3})
    pfc_tx: frozenset[int] = frozenset({3})
    pause_rx: bool = False
    pfc_quanta: int = 65535
    icrc: bool = True
    weights: Mapping[int, int] = field(default_factory=dict)
    dscp_to_priority: Mapping[int, int] = field(default_factory=lambda: DSCP_TO_PRIORITY)
    buffer: ReceiveBuffer = field(default_factory=ReceiveBuffer)
    events: frozenset[EventKind] = EVENTS
    notify: frozenset[EventKind] = frozenset()

    def native(self) -> CNicConfig:
        c = CNicConfig(
            rate_bps=self.rate_bps, ip=ip_number(self.ip), port=self.port, pfc_rx_enable=_mask("pfc_rx", self.pfc_rx),
            pfc_tx_enable=_mask("pfc_tx", self.pfc_tx), pause_rx_enable=self.pause_rx, icrc=self.icrc,
            pfc_quanta=self.pfc_quanta, events_mask=sum(1 << kind for kind in self.events),
            notify_mask=sum(1 << kind for kind in self.notify), rx_buffer_bytes=self.buffer.bytes,
            rx_drain_bps=self.buffer.drain_bps,
        )  # fmt: skip
        if not 1 <= self.pfc_quanta <= 0xFFFF:
            raise ValueError(f"pfc_quanta: {self.pfc_quanta} is out of range, must be 1..65535")
        c.mac[:] = mac_bytes(self.mac)
        c.rx_xoff_bytes[:] = [self.buffer.xoff_bytes] * 8
        c.rx_xon_bytes[:] = [self.buffer.xon_bytes] * 8
        for priority, weight in self.weights.items():
            _mask("weights", (priority,))
            c.weight[priority] = weight
        _fill_dscp(c.dscp_to_priority, self.dscp_to_priority)
        return c


@dataclass(frozen=True, slots=True)
class NicDcb:
    """What a NIC runs as DCBX has it: PFC both ways, traffic classes, priorities by DSCP (others 0).

    weights: traffic class -> weight among those that have one; classes without one are strict, the higher first.
    """

    pfc: frozenset[int]
    priority_to_tc: tuple[int, ...] = tuple(range(8))
    weights: Mapping[int, int] = field(default_factory=dict)
    dscp_to_priority: Mapping[int, int] = field(default_factory=lambda: DSCP_TO_PRIORITY)

    def native(self) -> CNicDcb:
        mask = _mask("pfc", self.pfc)
        c = CNicDcb(pfc_rx_enable=mask, pfc_tx_enable=mask)
        if len(self.priority_to_tc) != 8:
            raise ValueError(
                f"priority_to_tc: {len(self.priority_to_tc)} classes, must be one for each of 8 priorities"
            )
        c.priority_to_tc[:] = self.priority_to_tc
        for tc, weight in self.weights.items():
            if not 0 <= tc <= 7 or weight < 1:
                raise ValueError(f"weights: class {tc} with weight {weight}, must be 0..7 with 1 or more")
            c.weight[tc] = weight
        _fill_dscp(c.dscp_to_priority, self.dscp_to_priority)
        return c


def _fill_dscp(into: ctypes.Array[ctypes.c_uint8], dscp_to_priority: Mapping[int, int]) -> None:
    for dscp, priority in dscp_to_priority.items():
        if not 0 <= dscp <= 63:
            raise ValueError(f"dscp_to_priority: {dscp} is no DSCP, must be 0..63")
        into[dscp] = priority


def _mask(name: str, priorities: frozenset[int] | tuple[int, ...]) -> int:
    for priority in priorities:
        if not 0 <= priority <= 7:
            raise ValueError(f"{name}: priority {priority} is out of range, must be 0..7")
    return sum(1 << priority for priority in priorities)

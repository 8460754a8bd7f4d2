"""One port's LLDP agent (IEEE 802.1AB-2016, clause 9): transmit, receive, counters; sans-IO.

The owner passes in frames and the time (integer nanoseconds, any origin, never backwards):

    agent = LldpAgent(mac, LocalSystem(ChassisId.mac(mac), PortId.interface("eth0")))
    agent.set_port_enabled(True, now_ns)
    events = agent.receive(frame, now_ns)        # or agent.handle_timer(now_ns) at agent.next_deadline_ns()
    for frame in agent.frames_to_send(now_ns): ...

What the agent says besides the basic TLVs is `set_organizational`; DCBX uses that. After every call that takes the
time, ask for `frames_to_send` and `next_deadline_ns` again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from dcb.lldp.pdu import (
    MAX_PDU_BYTES,
    NEAREST_BRIDGE,
    PduError,
    TlvProblem,
    build_frame,
    decode_frame,
    is_lldp,
)
from dcb.lldp.receive import (
    Neighbor,
    NeighborAdded,
    NeighborDiscarded,
    NeighborRemoved,
    ReceiveEvent,
    Receiver,
    RemovalReason,
)
from dcb.lldp.tlv import (
    TYPE_PORT_DESCRIPTION,
    TYPE_SYSTEM_DESCRIPTION,
    TYPE_SYSTEM_NAME,
    ChassisId,
    ManagementAddress,
    OrganizationalTlv,
    PortId,
    RawTlv,
    SystemCapabilities,
    TextTlv,
    TimeToLive,
)
from dcb.lldp.transmit import Due, LldpTimers, Transmitter


class AdminStatus(Enum):
    """adminStatus (9.2.5.1)."""

    DISABLED = "disabled"
    TX_ONLY = "enabledTxOnly"
    RX_ONLY = "enabledRxOnly"
    RX_TX = "enabledRxTx"

    @property
    def transmits(self) -> bool:
        """Whether PDUs are sent."""
        return self in (AdminStatus.TX_ONLY, AdminStatus.RX_TX)

    @property
    def receives(self) -> bool:
        """Whether PDUs are taken in."""
        return self in (AdminStatus.RX_ONLY, AdminStatus.RX_TX)


@dataclass(frozen=True, slots=True)
class LocalSystem:
    """What a port says of itself in the basic TLVs; None and empty are left out."""

    chassis_id: ChassisId
    port_id: PortId
    port_description: str | None = None
    system_name: str | None = None
    system_description: str | None = None
    capabilities: SystemCapabilities | None = None
    management_addresses: tuple[ManagementAddress, ...] = ()

    def tlvs(self) -> tuple[RawTlv, ...]:
        """The optional TLVs, in the standard's order."""
        texts = (
            (TYPE_PORT_DESCRIPTION, self.port_description),
            (TYPE_SYSTEM_NAME, self.system_name),
            (TYPE_SYSTEM_DESCRIPTION, self.system_description),
        )
        tlvs = [TextTlv(tlv_type, text.encode()).raw() for tlv_type, text in texts if text is not None]
        if self.capabilities is not None:
            tlvs.append(self.capabilities.raw())
        return (*tlvs, *(address.raw() for address in self.management_addresses))


@dataclass(slots=True)
class LldpCounters:
    """Statistics counters (9.2.6), by the standard's names, and two of the remote table's (11.5.1)."""

    stats_frames_out_total: int = 0
    stats_frames_in_total: int = 0
    stats_frames_discarded_total: int = 0
    stats_frames_in_errors_total: int = 0
    stats_tlvs_discarded_total: int = 0
    stats_tlvs_unrecognized_total: int = 0
    stats_ageouts_total: int = 0
    lldpdu_length_errors: int = 0
    rem_tables_inserts: int = 0
    rem_tables_deletes: int = 0
    rem_tables_drops: int = 0


@dataclass(frozen=True, slots=True)
class FrameDiscarded:
    """A frame was not taken: the rule that it breaks."""

    reason: str


@dataclass(frozen=True, slots=True)
class TlvsDiscarded:
    """A frame was taken, but for these optional TLVs."""

    neighbor: Neighbor
    problems: tuple[TlvProblem, ...]


LldpEvent = ReceiveEvent | FrameDiscarded | TlvsDiscarded

KNOWN_OUIS = (bytes.fromhex("0080c2"), bytes.fromhex("00120f"), bytes.fromhex("001b21"))


@dataclass(slots=True)
class LldpAgent:
    """The agent of one port for one destination address. Nothing happens before `set_port_enabled`.

    mac: of the port. known_ouis: organizations whose TLVs do not count as unrecognized.
    """

    mac: bytes
    local: LocalSystem
    timers: LldpTimers = field(default_factory=LldpTimers)
    admin_status: AdminStatus = AdminStatus.RX_TX
    max_neighbors: int = 8
    destination: bytes = NEAREST_BRIDGE
    known_ouis: tuple[bytes, ...] = KNOWN_OUIS
    counters: LldpCounters = field(default_factory=LldpCounters)
    port_enabled: bool = field(default=False, init=False)
    organizational: tuple[OrganizationalTlv, ...] = field(default=(), init=False)
    last_error: str | None = field(default=None, init=False)
    transmitter: Transmitter = field(init=False)
    receiver: Receiver = field(init=False)

    def __post_init__(self) -> None:
        if len(self.mac) != 6:
            raise ValueError(f"mac: {len(self.mac)} bytes, a MAC address has 6")
        self.transmitter = Transmitter(self.timers)
        self.receiver = Receiver(self.max_neighbors)
        self._check_size(self.local, ())

    @property
    def neighbors(self) -> tuple[Neighbor, ...]:
        """The neighbours, the one that is known longest first."""
        return tuple(self.receiver.neighbors.values())

    @property
    def too_many_neighbors(self) -> bool:
        """Whether a neighbour was discarded that would still live."""
        return self.receiver.too_many_neighbors

    def set_port_enabled(self, enabled: bool, now_ns: int) -> list[LldpEvent]:
        """The link went up or down. Down: nothing is sent, what is known ages. Up: all that was known is deleted."""
        events: list[LldpEvent] = []
        if enabled and not self.port_enabled:
            events += self._count(self.receiver.reinitialize())
        self.port_enabled = enabled
        self.transmitter.set_enabled(self.admin_status.transmits, enabled, now_ns)
        return events

    def set_admin_status(self, status: AdminStatus, now_ns: int) -> list[LldpEvent]:
        """Switch directions on and off. Reception off deletes what is known, transmission off says goodbye."""
        events: list[LldpEvent] = []
        if self.admin_status.receives and not status.receives:
            events += self._count(self.receiver.reinitialize())
        self.admin_status = status
        self.transmitter.set_enabled(status.transmits, self.port_enabled, now_ns)
        return events

    def set_local(self, local: LocalSystem, now_ns: int) -> None:
        """Say something else in the basic TLVs; a change is sent at once. Raises ValueError where it is too long."""
        self._check_size(local, self.organizational)
        if local != self.local:
            self.local = local
            self.transmitter.local_change(now_ns)

    def set_organizational(self, tlvs: Sequence[OrganizationalTlv], now_ns: int) -> None:
        """Say something else in the organizationally specific TLVs; a change is sent at once. Raises ValueError."""
        self._check_size(self.local, tuple(tlvs))
        if tuple(tlvs) != self.organizational:
            self.organizational = tuple(tlvs)
            self.transmitter.local_change(now_ns)

    def _check_size(self, local: LocalSystem, organizational: tuple[OrganizationalTlv, ...]) -> None:
        size = len(self._pdu(local, organizational))
        if size > MAX_PDU_BYTES:
            self.counters.lldpdu_length_errors += 1
            raise ValueError(f"LLDPDU: {size} bytes, must fit into {MAX_PDU_BYTES}")

    def pdu(self) -> bytes:
        """The LLDPDU that the agent sends now."""
        return self._pdu(self.local, self.organizational)

    def _pdu(self, local: LocalSystem, organizational: tuple[OrganizationalTlv, ...]) -> bytes:
        tlvs = [local.chassis_id.raw(), local.port_id.raw(), TimeToLive(self.timers.tx_ttl_s).raw(), *local.tlvs()]
        return b"".join(tlv.encode() for tlv in (*tlvs, *(one.raw() for one in organizational))) + b"\0\0"

    def _shutdown_pdu(self) -> bytes:
        tlvs = (self.local.chassis_id.raw(), self.local.port_id.raw(), TimeToLive(0).raw())
        return b"".join(tlv.encode() for tlv in tlvs) + b"\0\0"

    def receive(self, frame: bytes, now_ns: int) -> list[LldpEvent]:
        """A frame has come, as captured, without FCS. What is no LLDP frame for this agent is left alone, uncounted."""
        if not is_lldp(frame) or frame[:6] != self.destination or not self.port_enabled:
            return []
        if not self.admin_status.receives:
            return []
        self.counters.stats_frames_in_total += 1
        try:
            decoded = decode_frame(frame)
        except PduError as error:
            self.counters.stats_frames_discarded_total += 1
            self.counters.stats_frames_in_errors_total += 1
            self.last_error = str(error)
            return [FrameDiscarded(str(error))]
        pdu = decoded.pdu
        self.counters.stats_tlvs_discarded_total += len(pdu.problems)
        self.counters.stats_frames_in_errors_total += bool(pdu.problems)
        unknown = sum(1 for tlv in pdu.organizational if tlv.oui not in self.known_ouis)
        self.counters.stats_tlvs_unrecognized_total += unknown + len(pdu.unrecognized)
        events: list[LldpEvent] = [*self._count(self.receiver.receive(decoded.source, pdu, now_ns))]
        neighbor = self.receiver.neighbors.get(pdu.msap)
        if pdu.problems and neighbor is not None:
            self.last_error = str(pdu.problems[-1].error)
            events.append(TlvsDiscarded(neighbor, pdu.problems))
        if any(isinstance(event, NeighborAdded) for event in events):
            self.transmitter.new_neighbor(now_ns)
        return events

    def _count(self, events: list[ReceiveEvent]) -> list[ReceiveEvent]:
        for event in events:
            if isinstance(event, NeighborAdded):
                self.counters.rem_tables_inserts += 1
            elif isinstance(event, NeighborRemoved):
                self.counters.rem_tables_deletes += 1
                self.counters.stats_ageouts_total += event.reason is RemovalReason.AGED
            elif isinstance(event, NeighborDiscarded):
                self.counters.rem_tables_drops += 1
                self.counters.stats_frames_discarded_total += 1
        return events

    def handle_timer(self, now_ns: int) -> list[LldpEvent]:
        """What time brings: ageing here, and what `frames_to_send` then has."""
        self.transmitter.handle_timer(now_ns)
        return [*self._count(self.receiver.handle_timer(now_ns))]

    def next_deadline_ns(self) -> int | None:
        """When to call `handle_timer` and `frames_to_send` next, None for never."""
        times = (self.transmitter.next_deadline_ns(), self.receiver.next_deadline_ns())
        return min((time for time in times if time is not None), default=None)

    def frames_to_send(self, now_ns: int) -> list[bytes]:
        """The frames that are due, without FCS; each is given once."""
        frames = []
        while (due := self.transmitter.take(now_ns)) is not None:
            pdu = self._shutdown_pdu() if due is Due.SHUTDOWN else self.pdu()
            frames.append(build_frame(self.mac, pdu, self.destination))
            self.counters.stats_frames_out_total += 1
        return frames

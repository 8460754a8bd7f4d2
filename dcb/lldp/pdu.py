"""LLDPDUs and LLDP frames (IEEE 802.1AB-2016, 8.2 and 9.2.7.7): bytes to TLVs and back, and what makes a PDU unusable.

    destination 01-80-C2-00-00-0E | source | 0x88CC | Chassis ID | Port ID | TTL | optional TLVs ... | End | padding

`decode_pdu` raises `PduError` for what discards the whole PDU: the first three TLVs absent, out of order, repeated or
malformed, a TLV that runs past the end. What is wrong with an optional TLV discards that TLV alone: it is listed in
`Lldpdu.problems`. Frames carry no FCS here. An 802.1Q tag before the EtherType (priority-tagged LLDP, which Nexus
switches send) is stepped over.
"""

from __future__ import annotations

from dataclasses import dataclass

from dcb.lldp.tlv import (
    TYPE_CHASSIS_ID,
    TYPE_END,
    TYPE_MANAGEMENT_ADDRESS,
    TYPE_NAMES,
    TYPE_ORGANIZATIONAL,
    TYPE_PORT_ID,
    TYPE_TTL,
    ChassisId,
    ManagementAddress,
    OrganizationalTlv,
    PortId,
    RawTlv,
    SystemCapabilities,
    TextTlv,
    TimeToLive,
    Tlv,
    TlvError,
    decode,
)

ETHER_TYPE = 0x88CC
NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
NEAREST_NON_TPMR_BRIDGE = bytes.fromhex("0180c2000003")
NEAREST_CUSTOMER_BRIDGE = bytes.fromhex("0180c2000000")
MIN_FRAME_BYTES = 60
MAX_PDU_BYTES = 1500

_MANDATORY = (TYPE_CHASSIS_ID, TYPE_PORT_ID, TYPE_TTL)
_REPEATABLE = (TYPE_MANAGEMENT_ADDRESS, TYPE_ORGANIZATIONAL)
_TAG_TYPES = (b"\x81\x00", b"\x88\xa8")


class PduError(ValueError):
    """An LLDPDU or frame that is discarded whole. The message names the field, the value and the rule."""


@dataclass(frozen=True, slots=True)
class TlvProblem:
    """An optional TLV that was discarded: its place in the PDU (0 is the Chassis ID), its bytes, and why."""

    index: int
    raw: RawTlv
    error: TlvError


@dataclass(frozen=True, slots=True)
class Lldpdu:
    """One LLDPDU.

    tlvs: every TLV before the End, byte for byte and in order, those that were discarded too. ended: whether an End
    TLV was there (802.1AB-2016 lets a PDU end with the frame). views: the valid ones, decoded. problems: the others.
    """

    tlvs: tuple[RawTlv, ...]
    ended: bool
    chassis_id: ChassisId
    port_id: PortId
    ttl: TimeToLive
    views: tuple[Tlv, ...]
    problems: tuple[TlvProblem, ...] = ()

    @property
    def msap(self) -> tuple[RawTlv, RawTlv]:
        """The identity of the sender: chassis ID and port ID, subtypes included."""
        return self.tlvs[0], self.tlvs[1]

    def text(self, tlv_type: int) -> str | None:
        """Port description, system name or system description, or None."""
        return next((view.text for view in self.views if isinstance(view, TextTlv) and view.type == tlv_type), None)

    @property
    def capabilities(self) -> SystemCapabilities | None:
        """The system capabilities, or None."""
        return next((view for view in self.views if isinstance(view, SystemCapabilities)), None)

    @property
    def management_addresses(self) -> tuple[ManagementAddress, ...]:
        """All of them."""
        return tuple(view for view in self.views if isinstance(view, ManagementAddress))

    @property
    def organizational(self) -> tuple[OrganizationalTlv, ...]:
        """The organizationally specific TLVs, known or not, in order."""
        return tuple(view for view in self.views if isinstance(view, OrganizationalTlv))

    @property
    def unrecognized(self) -> tuple[RawTlv, ...]:
        """TLVs of reserved types 9..126, kept."""
        return tuple(view for view in self.views if isinstance(view, RawTlv))

    def encode(self) -> bytes:
        """The bytes of the PDU, those of the decoded one again."""
        return b"".join(tlv.encode() for tlv in self.tlvs) + (b"\0\0" if self.ended else b"")


def split(data: bytes) -> tuple[tuple[RawTlv, ...], bool]:
    """The TLVs of a PDU up to the End TLV (what follows is padding), and whether that was there. Raises `PduError`."""
    tlvs: list[RawTlv] = []
    at = 0
    while at < len(data):
        if len(data) - at < 2:
            raise PduError(f"TLV {len(tlvs)}: header truncated, 1 byte is left and it has 2")
        header = int.from_bytes(data[at : at + 2], "big")
        tlv_type, length = header >> 9, header & 0x1FF
        at += 2
        name = TYPE_NAMES.get(tlv_type, f"Reserved type {tlv_type}")
        if length > len(data) - at:
            raise PduError(f"{name} TLV: length: {length}, but only {len(data) - at} bytes are left in the frame")
        if tlv_type == TYPE_END:
            if length:
                raise PduError(f"{name} TLV: length: {length}, must be 0")
            return tuple(tlvs), True
        tlvs.append(RawTlv(tlv_type, data[at : at + length]))
        at += length
    return tuple(tlvs), False


def _mandatory(tlvs: tuple[RawTlv, ...]) -> tuple[ChassisId, PortId, TimeToLive]:
    for index, wanted in enumerate(_MANDATORY):
        found = tlvs[index].type if index < len(tlvs) else TYPE_END
        if found != wanted:
            was = TYPE_NAMES.get(found, f"Reserved type {found}")
            raise PduError(f"TLV {index}: {was} (type {found}), must be {TYPE_NAMES[wanted]} (type {wanted})")
    try:
        chassis_id, port_id, ttl = (decode(tlv) for tlv in tlvs[:3])
    except TlvError as error:
        raise PduError(str(error)) from error
    assert isinstance(chassis_id, ChassisId)
    assert isinstance(port_id, PortId)
    assert isinstance(ttl, TimeToLive)
    return chassis_id, port_id, ttl


def from_tlvs(tlvs: tuple[RawTlv, ...], ended: bool = True) -> Lldpdu:
    """A PDU of these TLVs, checked. Raises `PduError`."""
    chassis_id, port_id, ttl = _mandatory(tlvs)
    views: list[Tlv] = [chassis_id, port_id, ttl]
    problems: list[TlvProblem] = []
    seen: set[int] = set()
    for index, raw in enumerate(tlvs[3:], start=3):
        if raw.type in _MANDATORY:
            raise PduError(f"TLV {index}: {raw.name}: occurs twice, must occur once")
        try:
            if raw.type < 9 and raw.type not in _REPEATABLE and raw.type in seen:
                raise TlvError(raw.name, "occurrence", "duplicate", "must occur at most once; the first one counts")
            seen.add(raw.type)
            view = decode(raw)
            if isinstance(view, ManagementAddress) and view in views:
                raise TlvError(raw.name, "management address", view.text, "occurs twice, each must be different")
        except TlvError as error:
            problems.append(TlvProblem(index, raw, error))
        else:
            views.append(view)
    return Lldpdu(tlvs, ended, chassis_id, port_id, ttl, tuple(views), tuple(problems))


def decode_pdu(data: bytes) -> Lldpdu:
    """An LLDPDU. Raises `PduError` where the whole of it has to be discarded; never anything else."""
    return from_tlvs(*split(data))


@dataclass(frozen=True, slots=True)
class LldpFrame:
    """An LLDP frame: destination and source MAC, and its PDU."""

    destination: bytes
    source: bytes
    pdu: Lldpdu

    def encode(self) -> bytes:
        """The frame without FCS, padded to 60 bytes."""
        return build_frame(self.source, self.pdu.encode(), self.destination)


def build_frame(source: bytes, pdu: bytes, destination: bytes = NEAREST_BRIDGE) -> bytes:
    """An untagged LLDP frame without FCS, padded to 60 bytes. Raises ValueError on addresses that are not 6 bytes."""
    for field, address in (("source", source), ("destination", destination)):
        if len(address) != 6:
            raise ValueError(f"{field}: {len(address)} bytes, a MAC address has 6")
    if len(pdu) > MAX_PDU_BYTES:
        raise ValueError(f"LLDPDU: {len(pdu)} bytes, must fit into {MAX_PDU_BYTES}")
    return (destination + source + ETHER_TYPE.to_bytes(2, "big") + pdu).ljust(MIN_FRAME_BYTES, b"\0")


def _payload_offset(data: bytes) -> int | None:
    at = 12
    if data[at : at + 2] in _TAG_TYPES:
        at += 4
    return at + 2 if data[at : at + 2] == ETHER_TYPE.to_bytes(2, "big") else None


def is_lldp(data: bytes) -> bool:
    """Whether a frame carries EtherType 0x88CC, behind one VLAN tag or none."""
    return _payload_offset(data) is not None


def decode_frame(data: bytes) -> LldpFrame:
    """A captured frame (no FCS). Raises `PduError`."""
    at = _payload_offset(data)
    if at is None:
        raise PduError("not an LLDP frame (EtherType 0x88cc)")
    return LldpFrame(data[:6], data[6:12], decode_pdu(data[at:]))

"""The DCBX of CEE, v1.01 (OUI 00-1B-21, subtype 2), and CIN (subtype 1, read only): bytes to records and back.

One organizationally specific TLV holds sub-TLVs of 7 bits type, 9 bits length:

    1 Control         oper version 1 | max version 1 | SeqNo 4 | AckNo 4                                 length 10
    2 Priority Group  header | PGID of priority 0..7, a nibble each | per cent of PGID 0..7 | num TCs 1   length 17
    3 PFC             header | enable 1 (bit n is priority n) | num TCs 1                                length 6
    4 Application     header | n x (protocol 2 | OUI high 6 bits.selector 2 | OUI low 2 | priorities 1)  length 4 + 6n
    header            oper version 1 | max version 1 | Enable.Willing.Error.rsv5 | sub-type 1

PGID 15 is "link strict": ahead of all groups, no share. A bad sub-TLV is refused alone, with a `TlvError`; other types
are kept as they came. A TLV without a good Control sub-TLV is refused whole.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from dcb.lldp.tlv import OrganizationalTlv, RawTlv, TlvError

OUI_INTEL = bytes.fromhex("001b21")
SUBTYPE_CIN = 1
SUBTYPE_CEE = 2
LINK_STRICT = 15
MAX_APPS = 77  # of the TLV's 507 bytes 45 are for control, priority groups, PFC and headers; 6 are for each application


class SubTlv(IntEnum):
    """Types of sub-TLVs in CEE."""

    CONTROL = 1
    PRIORITY_GROUP = 2
    PFC = 3
    APPLICATION = 4


NAMES = {
    SubTlv.CONTROL: "CEE Control",
    SubTlv.PRIORITY_GROUP: "CEE Priority Group",
    SubTlv.PFC: "CEE PFC",
    SubTlv.APPLICATION: "CEE Application",
}


def _check(tlv: str, field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise TlvError(tlv, field, value, f"must be {low}..{high}")


@dataclass(frozen=True, slots=True)
class Control:
    """Control sub-TLV: versions 0..255, sequence and acknowledgement numbers 0..2^32-1."""

    seq_no: int
    ack_no: int
    oper_version: int = 0
    max_version: int = 0

    def encode(self) -> RawTlv:
        """As a sub-TLV."""
        return RawTlv(
            SubTlv.CONTROL, struct.pack("!BBII", self.oper_version, self.max_version, self.seq_no, self.ack_no)
        )

    @classmethod
    def decode(cls, value: bytes) -> Control:
        """Raises `TlvError`."""
        if len(value) != 10:
            raise TlvError(NAMES[SubTlv.CONTROL], "length", len(value), "must be 10")
        oper_version, max_version, seq_no, ack_no = struct.unpack("!BBII", value)
        return cls(seq_no, ack_no, oper_version, max_version)


@dataclass(frozen=True, slots=True)
class Header:
    """What every feature begins with. reserved: the low 5 bits of the flags."""

    enable: bool = True
    willing: bool = False
    error: bool = False
    oper_version: int = 0
    max_version: int = 0
    sub_type: int = 0
    reserved: int = 0

    def octets(self) -> bytes:
        """Its 4 bytes."""
        flags = self.enable << 7 | self.willing << 6 | self.error << 5 | self.reserved
        return bytes([self.oper_version, self.max_version, flags, self.sub_type])

    @classmethod
    def from_octets(cls, value: bytes) -> Header:
        """Of the first 4 bytes."""
        flags = value[2]
        return cls(
            bool(flags & 0x80), bool(flags & 0x40), bool(flags & 0x20), value[0], value[1], value[3], flags & 0x1F
        )


@dataclass(frozen=True, slots=True)
class PriorityGroups:
    """What the Priority Group feature configures. pgid: of each priority, 0..7 or 15 (link strict).

    percent: of PGID 0..7, which sum to 100; or to 0 where every priority is link strict. num_tcs: 0..8.
    Raises `TlvError`.
    """

    pgid: tuple[int, ...] = (0,) * 8
    percent: tuple[int, ...] = (100, 0, 0, 0, 0, 0, 0, 0)
    num_tcs: int = 8

    def __post_init__(self) -> None:
        name = NAMES[SubTlv.PRIORITY_GROUP]
        for field, values in (("PGID", self.pgid), ("PG percentage", self.percent)):
            if len(values) != 8:
                raise TlvError(name, f"{field} entries", len(values), "must be 8")
        for priority, group in enumerate(self.pgid):
            if not (0 <= group <= 7 or group == LINK_STRICT):
                raise TlvError(name, f"PGID of priority {priority}", group, "must be 0..7 or 15 (link strict)")
        for group, share in enumerate(self.percent):
            if not 0 <= share <= 100:
                raise TlvError(name, f"percentage of PGID {group}", share, "must be 0..100")
        total = sum(self.percent)
        if total != 100 and (total or set(self.pgid) != {LINK_STRICT}):
            raise TlvError(name, "percentage sum", total, "must be 100, or 0 where every priority is link strict")
        _check(name, "num TCs", self.num_tcs, 0, 8)

    def octets(self) -> bytes:
        """Its 13 bytes."""
        pairs = zip(self.pgid[::2], self.pgid[1::2], strict=True)
        return bytes(high << 4 | low for high, low in pairs) + bytes(self.percent) + bytes([self.num_tcs])

    @classmethod
    def from_octets(cls, value: bytes) -> PriorityGroups:
        """Raises `TlvError`."""
        if len(value) != 13:
            raise TlvError(NAMES[SubTlv.PRIORITY_GROUP], "length", len(value) + 4, "must be 17")
        pgid = tuple(nibble for octet in value[:4] for nibble in (octet >> 4, octet & 0xF))
        return cls(pgid, tuple(value[4:12]), value[12])


@dataclass(frozen=True, slots=True)
class PfcFeature:
    """What the PFC feature configures.

    enable: bit n is priority n. num_tcs: how many classes can do PFC, 0..8; 0 says nothing.
    """

    enable: int = 0
    num_tcs: int = 8

    def __post_init__(self) -> None:
        name = NAMES[SubTlv.PFC]
        _check(name, "PFC enable", self.enable, 0, 0xFF)
        _check(name, "num TCs", self.num_tcs, 0, 8)
        if 0 < self.num_tcs < self.enable.bit_count():
            rule = f"enables {self.enable.bit_count()} priorities, must be at most num TCs {self.num_tcs}"
            raise TlvError(name, "PFC enable", f"0x{self.enable:02x}", rule)

    def octets(self) -> bytes:
        """Its 2 bytes."""
        return bytes([self.enable, self.num_tcs])

    @classmethod
    def from_octets(cls, value: bytes) -> PfcFeature:
        """Raises `TlvError`."""
        if len(value) != 2:
            raise TlvError(NAMES[SubTlv.PFC], "length", len(value) + 4, "must be 6")
        return cls(value[0], value[1])


@dataclass(frozen=True, slots=True)
class CeeApp:
    """One application: selector 0 EtherType or 1 TCP/UDP port (2, 3 reserved), protocol, a bitmap of its priorities.

    oui: of whoever numbered it, 00-1B-21 for those of CEE; its low two bits of the first byte are the selector's place.
    """

    selector: int
    protocol: int
    priorities: int
    oui: bytes = OUI_INTEL

    def __post_init__(self) -> None:
        name = NAMES[SubTlv.APPLICATION]
        _check(name, "selector", self.selector, 0, 3)
        _check(name, "protocol ID", self.protocol, 0, 0xFFFF)
        _check(name, "priority map", self.priorities, 0, 0xFF)
        if len(self.oui) != 3 or self.oui[0] & 3:
            raise TlvError(name, "OUI", self.oui.hex("-"), "must be 3 bytes, the low two bits of the first being 0")


@dataclass(frozen=True, slots=True)
class AppFeature:
    """What the Application feature configures."""

    entries: tuple[CeeApp, ...] = ()

    def octets(self) -> bytes:
        """6 bytes an application."""
        return b"".join(
            struct.pack("!HB", one.protocol, one.oui[0] | one.selector) + one.oui[1:] + bytes([one.priorities])
            for one in self.entries
        )

    @classmethod
    def from_octets(cls, value: bytes) -> AppFeature:
        """Raises `TlvError`."""
        if len(value) % 6:
            raise TlvError(NAMES[SubTlv.APPLICATION], "length", len(value) + 4, "must be 4 + 6n")
        entries = []
        for i in range(0, len(value), 6):
            protocol, mixed = struct.unpack_from("!HB", value, i)
            oui = bytes([mixed & 0xFC]) + value[i + 3 : i + 5]
            entries.append(CeeApp(mixed & 3, protocol, value[i + 5], oui))
        return cls(tuple(entries))


Config = PriorityGroups | PfcFeature | AppFeature


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature sub-TLV: header and configuration."""

    header: Header
    config: Config

    @property
    def type(self) -> SubTlv:
        """Which sub-TLV it is."""
        if isinstance(self.config, PriorityGroups):
            return SubTlv.PRIORITY_GROUP
        return SubTlv.PFC if isinstance(self.config, PfcFeature) else SubTlv.APPLICATION

    def encode(self) -> RawTlv:
        """As a sub-TLV."""
        return RawTlv(self.type, self.header.octets() + self.config.octets())

    @classmethod
    def decode(cls, raw: RawTlv) -> Feature:
        """A sub-TLV of type 2, 3 or 4. Raises `TlvError`."""
        kind = SubTlv(raw.type)
        if len(raw.value) < 4:
            raise TlvError(NAMES[kind], "length", len(raw.value), "must be at least 4")
        header, rest = Header.from_octets(raw.value), raw.value[4:]
        if kind is SubTlv.PRIORITY_GROUP:
            return cls(header, PriorityGroups.from_octets(rest))
        return cls(header, PfcFeature.from_octets(rest) if kind is SubTlv.PFC else AppFeature.from_octets(rest))


@dataclass(frozen=True, slots=True)
class CeeProblem:
    """A sub-TLV that was refused, and why."""

    raw: RawTlv
    error: TlvError


@dataclass(frozen=True, slots=True)
class CeeTlv:
    """The TLV of CEE.

    features: one of each kind at most. duplicates: features of which there was a second, which CEE calls MULTI_TLV; the
    first is kept. unknown: other sub-TLVs. problems: bad ones.
    """

    control: Control
    features: tuple[Feature, ...] = ()
    unknown: tuple[RawTlv, ...] = ()
    problems: tuple[CeeProblem, ...] = ()
    duplicates: frozenset[SubTlv] = frozenset()

    def feature(self, kind: SubTlv) -> Feature | None:
        """The feature of a kind, or None."""
        return next((feature for feature in self.features if feature.type is kind), None)

    def encode(self) -> OrganizationalTlv:
        """As a TLV: control, features, unknown ones."""
        subs = (self.control.encode(), *(feature.encode() for feature in self.features), *self.unknown)
        return OrganizationalTlv(OUI_INTEL, SUBTYPE_CEE, b"".join(sub.encode() for sub in subs))


def split(name: str, info: bytes) -> tuple[RawTlv, ...]:
    """The sub-TLVs of a TLV. Raises `TlvError` where one runs past the end."""
    subs: list[RawTlv] = []
    at = 0
    while at < len(info):
        left = len(info) - at
        if left < 2:
            raise TlvError(name, f"sub-TLV {len(subs)}: header", f"{left} byte", "must be 2 bytes: truncated")
        header = int.from_bytes(info[at : at + 2], "big")
        kind, length = header >> 9, header & 0x1FF
        if length > left - 2:
            raise TlvError(
                name, f"sub-TLV {len(subs)} (type {kind}): length", length, f"only {left - 2} bytes are left"
            )
        subs.append(RawTlv(kind, info[at + 2 : at + 2 + length]))
        at += 2 + length
    return tuple(subs)


def is_cee(tlv: OrganizationalTlv) -> bool:
    """Whether a TLV is CEE's."""
    return tlv.oui == OUI_INTEL and tlv.subtype == SUBTYPE_CEE


def is_cin(tlv: OrganizationalTlv) -> bool:
    """Whether a TLV is CIN's."""
    return tlv.oui == OUI_INTEL and tlv.subtype == SUBTYPE_CIN


def decode(tlv: OrganizationalTlv) -> CeeTlv:
    """A TLV of which `is_cee` holds. Raises `TlvError` where all of it is unusable; never anything else."""
    name = "CEE DCBX"
    control: Control | None = None
    features: list[Feature] = []
    unknown: list[RawTlv] = []
    problems: list[CeeProblem] = []
    seen: set[SubTlv] = set()
    duplicates: set[SubTlv] = set()
    for raw in split(name, tlv.info):
        if raw.type not in NAMES:
            unknown.append(raw)
            continue
        kind = SubTlv(raw.type)
        if kind in seen:
            if kind is SubTlv.CONTROL:
                raise TlvError(name, "Control sub-TLV", "duplicate", "must occur once")
            duplicates.add(kind)
            problems.append(CeeProblem(raw, TlvError(NAMES[kind], "occurrence", "duplicate", "must occur once")))
            continue
        seen.add(kind)
        if kind is SubTlv.CONTROL:
            control = Control.decode(raw.value)
            continue
        try:
            features.append(Feature.decode(raw))
        except TlvError as error:
            problems.append(CeeProblem(raw, error))
    if control is None:
        raise TlvError(name, "Control sub-TLV", "absent", "must occur once")
    return CeeTlv(control, tuple(features), tuple(unknown), tuple(problems), frozenset(duplicates))


CIN_NAMES = {
    1: "Control",
    2: "Priority Group",
    3: "PFC",
    4: "Backward Congestion Notification",
    5: "Application",
    6: "Logical Link",
}


@dataclass(frozen=True, slots=True)
class CinTlv:
    """The TLV of CIN, read only: its Control, and the sub-TLVs as they came, by type. It is shown, never acted on."""

    control: Control | None
    subs: tuple[RawTlv, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What sub-TLVs there are."""
        return tuple(CIN_NAMES.get(sub.type, f"type {sub.type}") for sub in self.subs)


def decode_cin(tlv: OrganizationalTlv) -> CinTlv:
    """A TLV of which `is_cin` holds. Raises `TlvError` where a sub-TLV runs past the end."""
    subs = split("CIN DCBX", tlv.info)
    first = next((sub for sub in subs if sub.type == SubTlv.CONTROL), None)
    return CinTlv(Control.decode(first.value) if first is not None and len(first.value) == 10 else None, subs)


def find(tlvs: Sequence[OrganizationalTlv]) -> tuple[OrganizationalTlv, ...]:
    """The TLVs of CEE in a PDU; there should be one."""
    return tuple(tlv for tlv in tlvs if is_cee(tlv))

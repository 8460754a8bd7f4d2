"""DCBX TLVs (IEEE 802.1Q Annex D.2.8 to D.2.16; 802.1Qaz, 802.1Qau, 802.1Qcd): bytes to records and back, every bit.

Layouts (value of a type 127 TLV after OUI 00-80-C2 and subtype):

    0x08 Congestion Notification  CNPV 1 | ready 1                                            length  6
    0x09 ETS Configuration        willing.CBS.rsv3.maxTCs3 | prio->TC 4 | bandwidth 8 | TSA 8  length 25
    0x0A ETS Recommendation       reserved 1               | prio->TC 4 | bandwidth 8 | TSA 8  length 25
    0x0B PFC Configuration        willing.MBC.rsv2.cap4 | enable 1                            length  6
    0x0C Application Priority     reserved 1 | n x (priority3.rsv2.selector3 | protocol 2)     length 5 + 3n
    0x10 Application VLAN         n x (VID12.rsv1.selector3 | protocol 2), no reserved byte    length 4 + 4n

`decode` refuses with a `TlvError` (TLV, field, value, rule) what breaks a rule; a record that exists is valid. Reserved
bits are kept, so that a decoded TLV encodes to its own bytes, and have no meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from dcb.lldp.tlv import OrganizationalTlv, TlvError

OUI_8021 = bytes.fromhex("0080c2")
PRIORITIES = 8
CLASSES = 8
ROCE_V2_PORT = 4791
ETHER_TYPE_FCOE = 0x8906


class Subtype(IntEnum):
    """Subtypes under OUI 00-80-C2 that belong to DCBX."""

    CONGESTION_NOTIFICATION = 0x08
    ETS_CONFIGURATION = 0x09
    ETS_RECOMMENDATION = 0x0A
    PFC_CONFIGURATION = 0x0B
    APPLICATION_PRIORITY = 0x0C
    APPLICATION_VLAN = 0x10


NAMES = {
    Subtype.CONGESTION_NOTIFICATION: "Congestion Notification",
    Subtype.ETS_CONFIGURATION: "ETS Configuration",
    Subtype.ETS_RECOMMENDATION: "ETS Recommendation",
    Subtype.PFC_CONFIGURATION: "PFC Configuration",
    Subtype.APPLICATION_PRIORITY: "Application Priority",
    Subtype.APPLICATION_VLAN: "Application VLAN",
}


class Tsa(IntEnum):
    """Transmission selection algorithms (802.1Q table 8-6 as DCBX carries it)."""

    STRICT = 0
    CBS = 1
    ETS = 2
    VENDOR = 255


class Selector(IntEnum):
    """What an application entry's protocol ID is."""

    ETHER_TYPE = 1
    TCP = 2  # TCP or SCTP port
    UDP = 3  # UDP or DCCP port
    ANY_PORT = 4  # any of TCP, SCTP, UDP, DCCP
    DSCP = 5


def _check(tlv: str, field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise TlvError(tlv, field, value, f"must be {low}..{high}")


def _check_length(tlv: str, info: bytes, wanted: int) -> None:
    """Lengths in messages are those of the TLV's length field, which counts OUI and subtype."""
    if len(info) + 4 != wanted:
        raise TlvError(tlv, "length", len(info) + 4, f"must be {wanted}")


@dataclass(frozen=True, slots=True)
class EtsTable:
    """What ETS schedules by: traffic class of each priority, bandwidth (per cent) and TSA of each traffic class.

    Valid: classes 0..7, TSA 0, 1, 2 or 255, bandwidths 0..100 which sum to 100; or to 0 where no class is ETS.
    Raises `TlvError`.
    """

    priority_tc: tuple[int, ...] = (0,) * 8
    bandwidth: tuple[int, ...] = (0,) * 8
    tsa: tuple[int, ...] = (0,) * 8

    def __post_init__(self) -> None:
        self.check(NAMES[Subtype.ETS_CONFIGURATION])

    def check(self, tlv: str, max_tcs: int = CLASSES) -> None:
        """Check as part of `tlv`, where there are `max_tcs` traffic classes. Raises `TlvError`."""
        for field, values in (
            ("priority table", self.priority_tc),
            ("TC bandwidth", self.bandwidth),
            ("TSA", self.tsa),
        ):
            if len(values) != 8:
                raise TlvError(tlv, f"{field} entries", len(values), "must be 8")
        for priority, traffic_class in enumerate(self.priority_tc):
            if not 0 <= traffic_class < max_tcs:
                rule = f"must be 0..{max_tcs - 1}: {max_tcs} classes"
                raise TlvError(tlv, f"traffic class of priority {priority}", traffic_class, rule)
        for traffic_class, algorithm in enumerate(self.tsa):
            if algorithm not in (0, 1, 2, 255):
                rule = "must be 0 (strict), 1 (CBS), 2 (ETS) or 255 (vendor)"
                raise TlvError(tlv, f"TSA of traffic class {traffic_class}", algorithm, rule)
        for traffic_class, percent in enumerate(self.bandwidth):
            if not 0 <= percent <= 100:
                raise TlvError(tlv, f"bandwidth of traffic class {traffic_class}", percent, "must be 0..100 per cent")
        total = sum(self.bandwidth)
        if total != 100 and (total or Tsa.ETS in self.tsa):
            rule = "must be 100" if Tsa.ETS in self.tsa else "must be 100, or 0 as no traffic class is ETS"
            raise TlvError(tlv, "bandwidth sum", total, rule)

    @classmethod
    def build(cls, priority_tc: Sequence[int], bandwidth: Sequence[int], tsa: Sequence[int | Tsa]) -> EtsTable:
        """Of any sequences. Raises `TlvError`."""
        return cls(tuple(priority_tc), tuple(bandwidth), tuple(int(algorithm) for algorithm in tsa))

    def octets(self) -> bytes:
        """The 20 bytes of the three tables; priority 0 is the high nibble of the first."""
        pairs = zip(self.priority_tc[::2], self.priority_tc[1::2], strict=True)
        return bytes(high << 4 | low for high, low in pairs) + bytes(self.bandwidth) + bytes(self.tsa)

    @classmethod
    def from_octets(cls, tlv: str, octets: bytes, max_tcs: int = CLASSES) -> EtsTable:
        """The three tables of 20 bytes. Raises `TlvError`."""
        table = object.__new__(cls)
        nibbles = tuple(nibble for octet in octets[:4] for nibble in (octet >> 4, octet & 0xF))
        object.__setattr__(table, "priority_tc", nibbles)
        object.__setattr__(table, "bandwidth", tuple(octets[4:12]))
        object.__setattr__(table, "tsa", tuple(octets[12:20]))
        table.check(tlv, max_tcs)
        return table


@dataclass(frozen=True, slots=True)
class EtsConfiguration:
    """ETS Configuration TLV (D.2.9): what the sender runs. max_tcs: 1..8 (8 is sent as 0). reserved: bits 5..3."""

    table: EtsTable
    willing: bool = False
    cbs: bool = False
    max_tcs: int = 8
    reserved: int = 0

    def __post_init__(self) -> None:
        name = NAMES[Subtype.ETS_CONFIGURATION]
        _check(name, "max TCs", self.max_tcs, 1, 8)
        _check(name, "reserved", self.reserved, 0, 7)
        self.table.check(name, self.max_tcs)

    def encode(self) -> OrganizationalTlv:
        """As a TLV."""
        head = self.willing << 7 | self.cbs << 6 | self.reserved << 3 | self.max_tcs & 7
        return OrganizationalTlv(OUI_8021, Subtype.ETS_CONFIGURATION, bytes([head]) + self.table.octets())

    @classmethod
    def decode(cls, info: bytes) -> EtsConfiguration:
        """Of the bytes after OUI and subtype. Raises `TlvError`."""
        name = NAMES[Subtype.ETS_CONFIGURATION]
        _check_length(name, info, 25)
        max_tcs = info[0] & 7 or 8
        table = EtsTable.from_octets(name, info[1:], max_tcs)
        return cls(table, bool(info[0] & 0x80), bool(info[0] & 0x40), max_tcs, info[0] >> 3 & 7)


@dataclass(frozen=True, slots=True)
class EtsRecommendation:
    """ETS Recommendation TLV (D.2.10): what the sender would have its peer run."""

    table: EtsTable
    reserved: int = 0

    def __post_init__(self) -> None:
        name = NAMES[Subtype.ETS_RECOMMENDATION]
        _check(name, "reserved", self.reserved, 0, 0xFF)
        self.table.check(name)

    def encode(self) -> OrganizationalTlv:
        """As a TLV."""
        info = bytes([self.reserved]) + self.table.octets()
        return OrganizationalTlv(OUI_8021, Subtype.ETS_RECOMMENDATION, info)

    @classmethod
    def decode(cls, info: bytes) -> EtsRecommendation:
        """Of the bytes after OUI and subtype. Raises `TlvError`."""
        name = NAMES[Subtype.ETS_RECOMMENDATION]
        _check_length(name, info, 25)
        return cls(EtsTable.from_octets(name, info[1:]), info[0])


@dataclass(frozen=True, slots=True)
class PfcConfiguration:
    """PFC Configuration TLV (D.2.11).

    enable: bit n is priority n. cap: how many traffic classes can do PFC at once, 0..8. mbc: MACsec bypass capability.
    More priorities than `cap` may be enabled only where they share traffic classes; the TLV alone does not say, so
    `decode` leaves that to `check_cap`.
    """

    enable: int
    willing: bool = False
    mbc: bool = False
    cap: int = 8
    reserved: int = 0

    def __post_init__(self) -> None:
        name = NAMES[Subtype.PFC_CONFIGURATION]
        _check(name, "PFC enable", self.enable, 0, 0xFF)
        _check(name, "PFC cap", self.cap, 0, 8)
        _check(name, "reserved", self.reserved, 0, 3)

    @property
    def priorities(self) -> tuple[int, ...]:
        """The priorities with PFC."""
        return bits(self.enable)

    def check_cap(self, priority_tc: Sequence[int] | None = None) -> None:
        """Whether `cap` is enough for what is enabled: traffic classes by `priority_tc`, else one per priority.

        Raises `TlvError`.
        """
        enabled = self.priorities
        used = len(enabled) if priority_tc is None else len({priority_tc[n] for n in enabled})
        if used > self.cap:
            what = "priorities" if priority_tc is None else "traffic classes"
            rule = f"enables {used} {what} ({numbers(enabled)}), must be at most PFC cap {self.cap}"
            raise TlvError(NAMES[Subtype.PFC_CONFIGURATION], "PFC enable", f"0x{self.enable:02x}", rule)

    def encode(self) -> OrganizationalTlv:
        """As a TLV."""
        head = self.willing << 7 | self.mbc << 6 | self.reserved << 4 | self.cap
        return OrganizationalTlv(OUI_8021, Subtype.PFC_CONFIGURATION, bytes([head, self.enable]))

    @classmethod
    def decode(cls, info: bytes) -> PfcConfiguration:
        """Of the bytes after OUI and subtype. Raises `TlvError`."""
        _check_length(NAMES[Subtype.PFC_CONFIGURATION], info, 6)
        head = info[0]
        return cls(info[1], bool(head & 0x80), bool(head & 0x40), head & 0xF, head >> 4 & 3)


def bits(bitmap: int) -> tuple[int, ...]:
    """The numbers of the bits that are set in the lowest eight."""
    return tuple(n for n in range(8) if bitmap >> n & 1)


def numbers(values: Sequence[int]) -> str:
    """ "3,4", or "none"."""
    return ",".join(map(str, values)) or "none"


@dataclass(frozen=True, slots=True)
class AppEntry:
    """One application: selector and protocol ID (EtherType, port or DSCP), and its priority.

    Selectors 0, 6 and 7 are reserved: kept, shown, without effect. `reserved`: bits 4..3.
    """

    selector: int
    protocol: int
    priority: int
    reserved: int = 0

    def __post_init__(self) -> None:
        name = NAMES[Subtype.APPLICATION_PRIORITY]
        _check(name, "selector", self.selector, 0, 7)
        _check(name, "priority", self.priority, 0, 7)
        _check(name, "reserved", self.reserved, 0, 3)
        _check_protocol(name, self.selector, self.protocol)

    @property
    def known(self) -> bool:
        """Whether the selector means something."""
        return 1 <= self.selector <= 5

    @property
    def key(self) -> tuple[int, int]:
        """What the entry is about."""
        return self.selector, self.protocol

    @property
    def text(self) -> str:
        """For people: "UDP port 4791 -> priority 3"."""
        return f"{protocol_text(self.selector, self.protocol)} -> priority {self.priority}"


def _check_protocol(tlv: str, selector: int, protocol: int) -> None:
    if selector == Selector.DSCP:
        _check(tlv, "protocol ID of selector 5 (DSCP)", protocol, 0, 63)
    _check(tlv, "protocol ID", protocol, 0, 0xFFFF)


def protocol_text(selector: int, protocol: int) -> str:
    """What a selector and a protocol ID name."""
    if selector == Selector.ETHER_TYPE:
        return f"EtherType 0x{protocol:04x}" if protocol else "default"
    kinds = {2: "TCP/SCTP port", 3: "UDP/DCCP port", 4: "TCP/SCTP/UDP/DCCP port", 5: "DSCP"}
    return f"{kinds.get(selector, f'reserved selector {selector}')} {protocol}"


@dataclass(frozen=True, slots=True)
class ApplicationPriority:
    """Application Priority TLV (D.2.12): a table of applications, in the sender's order.

    reserved: the byte before the table. Its top bit is Willing in the dialect `app-symmetric`, and nothing otherwise.
    """

    entries: tuple[AppEntry, ...]
    reserved: int = 0

    def __post_init__(self) -> None:
        name = NAMES[Subtype.APPLICATION_PRIORITY]
        _check(name, "reserved", self.reserved, 0, 0xFF)
        _check(name, "entries", len(self.entries), 0, 168)

    @property
    def dialect_willing(self) -> bool:
        """Willing, in the dialect `app-symmetric`."""
        return bool(self.reserved & 0x80)

    def encode(self) -> OrganizationalTlv:
        """As a TLV."""
        table = b"".join(
            bytes([one.priority << 5 | one.reserved << 3 | one.selector]) + one.protocol.to_bytes(2, "big")
            for one in self.entries
        )
        return OrganizationalTlv(OUI_8021, Subtype.APPLICATION_PRIORITY, bytes([self.reserved]) + table)

    @classmethod
    def decode(cls, info: bytes) -> ApplicationPriority:
        """Of the bytes after OUI and subtype. Raises `TlvError`."""
        if len(info) % 3 != 1:
            raise TlvError(NAMES[Subtype.APPLICATION_PRIORITY], "length", len(info) + 4, "must be 5 + 3n")
        entries = tuple(
            AppEntry(info[i] & 7, int.from_bytes(info[i + 1 : i + 3], "big"), info[i] >> 5, info[i] >> 3 & 3)
            for i in range(1, len(info), 3)
        )
        return cls(entries, info[0])


@dataclass(frozen=True, slots=True)
class AppVlanEntry:
    """One application and the VLAN that it lives in; VID 0..4094."""

    vid: int
    selector: int
    protocol: int
    reserved: int = 0

    def __post_init__(self) -> None:
        name = NAMES[Subtype.APPLICATION_VLAN]
        _check(name, "VID", self.vid, 0, 4094)
        _check(name, "selector", self.selector, 0, 7)
        _check(name, "reserved", self.reserved, 0, 1)
        _check_protocol(name, self.selector, self.protocol)


@dataclass(frozen=True, slots=True)
class ApplicationVlan:
    """Application VLAN TLV (D.2.16; 802.1Qcd). An empty one is valid, and seen in the field."""

    entries: tuple[AppVlanEntry, ...]

    def __post_init__(self) -> None:
        _check(NAMES[Subtype.APPLICATION_VLAN], "entries", len(self.entries), 0, 126)

    def encode(self) -> OrganizationalTlv:
        """As a TLV."""
        words = ((one.vid << 4 | one.reserved << 3 | one.selector) << 16 | one.protocol for one in self.entries)
        info = b"".join(word.to_bytes(4, "big") for word in words)
        return OrganizationalTlv(OUI_8021, Subtype.APPLICATION_VLAN, info)

    @classmethod
    def decode(cls, info: bytes) -> ApplicationVlan:
        """Of the bytes after OUI and subtype. Raises `TlvError`."""
        if len(info) % 4:
            raise TlvError(NAMES[Subtype.APPLICATION_VLAN], "length", len(info) + 4, "must be 4 + 4n")
        words = [int.from_bytes(info[i : i + 4], "big") for i in range(0, len(info), 4)]
        return cls(tuple(AppVlanEntry(w >> 20, w >> 16 & 7, w & 0xFFFF, w >> 19 & 1) for w in words))


@dataclass(frozen=True, slots=True)
class CongestionNotification:
    """Congestion Notification TLV (D.2.8; 802.1Qau): CNPV indicators and ready indicators, bit n is priority n."""

    cnpv: int
    ready: int

    def __post_init__(self) -> None:
        name = NAMES[Subtype.CONGESTION_NOTIFICATION]
        _check(name, "CNPV indicators", self.cnpv, 0, 0xFF)
        _check(name, "ready indicators", self.ready, 0, 0xFF)

    def encode(self) -> OrganizationalTlv:
        """As a TLV."""
        return OrganizationalTlv(OUI_8021, Subtype.CONGESTION_NOTIFICATION, bytes([self.cnpv, self.ready]))

    @classmethod
    def decode(cls, info: bytes) -> CongestionNotification:
        """Of the bytes after OUI and subtype. Raises `TlvError`."""
        _check_length(NAMES[Subtype.CONGESTION_NOTIFICATION], info, 6)
        return cls(info[0], info[1])


DcbxTlv = (
    EtsConfiguration
    | EtsRecommendation
    | PfcConfiguration
    | ApplicationPriority
    | ApplicationVlan
    | CongestionNotification
)


def is_dcbx(tlv: OrganizationalTlv) -> bool:
    """Whether a TLV is one of this module's."""
    return tlv.oui == OUI_8021 and tlv.subtype in NAMES


def decode(tlv: OrganizationalTlv) -> DcbxTlv:
    """A TLV of which `is_dcbx` holds. Raises `TlvError` where it breaks a rule; never anything else."""
    match tlv.subtype:
        case Subtype.CONGESTION_NOTIFICATION:
            return CongestionNotification.decode(tlv.info)
        case Subtype.ETS_CONFIGURATION:
            return EtsConfiguration.decode(tlv.info)
        case Subtype.ETS_RECOMMENDATION:
            return EtsRecommendation.decode(tlv.info)
        case Subtype.PFC_CONFIGURATION:
            return PfcConfiguration.decode(tlv.info)
        case Subtype.APPLICATION_PRIORITY:
            return ApplicationPriority.decode(tlv.info)
        case _:
            return ApplicationVlan.decode(tlv.info)


@dataclass(frozen=True, slots=True)
class DcbxProblem:
    """A DCBX TLV that was refused: its bytes and why."""

    tlv: OrganizationalTlv
    error: TlvError


@dataclass(frozen=True, slots=True)
class DcbxTlvs:
    """The DCBX TLVs of one PDU: one of each kind or None, and what was refused."""

    ets: EtsConfiguration | None = None
    recommendation: EtsRecommendation | None = None
    pfc: PfcConfiguration | None = None
    app: ApplicationPriority | None = None
    app_vlan: ApplicationVlan | None = None
    congestion: CongestionNotification | None = None
    problems: tuple[DcbxProblem, ...] = ()

    def encode(self) -> tuple[OrganizationalTlv, ...]:
        """Those that are there, in the order of their subtypes."""
        ordered = (self.congestion, self.ets, self.recommendation, self.pfc, self.app, self.app_vlan)
        return tuple(tlv.encode() for tlv in ordered if tlv is not None)

    @property
    def any(self) -> bool:
        """Whether the PDU held any, valid or not."""
        return bool(self.encode() or self.problems)

    def refused(self, subtype: Subtype) -> bool:
        """Whether one of this kind was there, and no valid one."""
        return any(p.tlv.subtype == subtype for p in self.problems) and getattr(self, FIELDS[subtype]) is None


FIELDS = {
    Subtype.CONGESTION_NOTIFICATION: "congestion",
    Subtype.ETS_CONFIGURATION: "ets",
    Subtype.ETS_RECOMMENDATION: "recommendation",
    Subtype.PFC_CONFIGURATION: "pfc",
    Subtype.APPLICATION_PRIORITY: "app",
    Subtype.APPLICATION_VLAN: "app_vlan",
}


def decode_all(tlvs: Sequence[OrganizationalTlv]) -> DcbxTlvs:
    """The DCBX TLVs among the organizationally specific ones of a PDU.

    Each stands alone: a bad one is refused, a second of a kind too (the first counts), the others are taken. PFC is
    checked against its cap by the traffic classes of the ETS Configuration of the same PDU, if that has a valid one.
    Never raises.
    """
    found = DcbxTlvs()
    problems: list[DcbxProblem] = []
    seen: set[int] = set()
    for tlv in tlvs:
        if not is_dcbx(tlv):
            continue
        subtype = Subtype(tlv.subtype)
        try:
            if subtype in seen:
                raise TlvError(NAMES[subtype], "occurrence", "duplicate", "must occur once in a PDU; the first counts")
            seen.add(subtype)
            found = replace(found, **{FIELDS[subtype]: decode(tlv)})  # type: ignore[arg-type]
        except TlvError as error:
            problems.append(DcbxProblem(tlv, error))
    if found.pfc is not None:
        try:
            found.pfc.check_cap(found.ets.table.priority_tc if found.ets is not None else None)
        except TlvError as error:
            problems.append(DcbxProblem(found.pfc.encode(), error))
            found = replace(found, pfc=None)
    return replace(found, problems=tuple(problems))

"""LLDP TLVs (IEEE 802.1AB-2016, clause 8): bytes to records and back, with the standard's rules on what is valid.

A PDU is a sequence of `RawTlv`, kept byte for byte, so nothing that a peer sends is lost; the typed records here are
views of single TLVs. `decode` gives the view or raises `TlvError`, which names the TLV, the field, the value and the
rule. Organizationally specific TLVs (type 127) come out as `OrganizationalTlv` whatever they hold; reserved types as
`RawTlv`.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag

MAX_VALUE_BYTES = 511
TYPE_END = 0
TYPE_CHASSIS_ID = 1
TYPE_PORT_ID = 2
TYPE_TTL = 3
TYPE_PORT_DESCRIPTION = 4
TYPE_SYSTEM_NAME = 5
TYPE_SYSTEM_DESCRIPTION = 6
TYPE_SYSTEM_CAPABILITIES = 7
TYPE_MANAGEMENT_ADDRESS = 8
TYPE_ORGANIZATIONAL = 127

TYPE_NAMES = {
    TYPE_END: "End Of LLDPDU",
    TYPE_CHASSIS_ID: "Chassis ID",
    TYPE_PORT_ID: "Port ID",
    TYPE_TTL: "Time To Live",
    TYPE_PORT_DESCRIPTION: "Port Description",
    TYPE_SYSTEM_NAME: "System Name",
    TYPE_SYSTEM_DESCRIPTION: "System Description",
    TYPE_SYSTEM_CAPABILITIES: "System Capabilities",
    TYPE_MANAGEMENT_ADDRESS: "Management Address",
    TYPE_ORGANIZATIONAL: "Organizationally Specific",
}


class TlvError(ValueError):
    """A TLV that breaks a rule: `tlv` and `field` by the standard's names, `value` as found, `rule` as it should be."""

    def __init__(self, tlv: str, field: str, value: object, rule: str) -> None:
        super().__init__(f"{tlv} TLV: {field}: {value}, {rule}")
        self.tlv = tlv
        self.field = field
        self.value = value
        self.rule = rule


class ChassisIdSubtype(IntEnum):
    """Table 8-2."""

    CHASSIS_COMPONENT = 1
    INTERFACE_ALIAS = 2
    PORT_COMPONENT = 3
    MAC_ADDRESS = 4
    NETWORK_ADDRESS = 5
    INTERFACE_NAME = 6
    LOCAL = 7


class PortIdSubtype(IntEnum):
    """Table 8-3."""

    INTERFACE_ALIAS = 1
    PORT_COMPONENT = 2
    MAC_ADDRESS = 3
    NETWORK_ADDRESS = 4
    INTERFACE_NAME = 5
    AGENT_CIRCUIT_ID = 6
    LOCAL = 7


class Capability(IntFlag):
    """Table 8-4."""

    OTHER = 1 << 0
    REPEATER = 1 << 1
    BRIDGE = 1 << 2
    WLAN_ACCESS_POINT = 1 << 3
    ROUTER = 1 << 4
    TELEPHONE = 1 << 5
    DOCSIS = 1 << 6
    STATION_ONLY = 1 << 7
    C_VLAN = 1 << 8
    S_VLAN = 1 << 9
    TPMR = 1 << 10


@dataclass(frozen=True, slots=True)
class RawTlv:
    """One TLV as on the wire: type 0..127, value of 0..511 bytes."""

    type: int
    value: bytes

    def __post_init__(self) -> None:
        if not 0 <= self.type <= 127:
            raise ValueError(f"type: {self.type} is out of range, must be 0..127")
        if len(self.value) > MAX_VALUE_BYTES:
            raise ValueError(f"value: {len(self.value)} bytes, a TLV holds at most {MAX_VALUE_BYTES}")

    @property
    def name(self) -> str:
        """What the standard calls the type."""
        return TYPE_NAMES.get(self.type, f"Reserved type {self.type}")

    def encode(self) -> bytes:
        """Header (7 bits type, 9 bits length) and value."""
        return struct.pack("!H", self.type << 9 | len(self.value)) + self.value


def _id_text(subtype: int, identifier: bytes, mac: int, network: int) -> str:
    if subtype == mac and len(identifier) == 6:
        return identifier.hex(":")
    if subtype == network and len(identifier) > 1:
        return address_text(identifier[0], identifier[1:])
    text = identifier.decode("utf-8", "replace")
    return text if text.isprintable() else identifier.hex(":")


def address_text(family: int, address: bytes) -> str:
    """An address of an IANA address family as people write it; families 1 (IPv4), 2 (IPv6), 6 (802), others in hex."""
    if (family, len(address)) in ((1, 4), (2, 16)):
        return str(ipaddress.ip_address(address))
    return address.hex(":")


def _check_id(tlv: str, subtype: int, identifier: bytes) -> None:
    if not 0 <= subtype <= 255:
        raise TlvError(tlv, "subtype", subtype, "must be 0..255")
    if not 1 <= len(identifier) <= 255:
        raise TlvError(tlv, "ID length", len(identifier), "must be 1..255 bytes")


@dataclass(frozen=True, slots=True)
class ChassisId:
    """Chassis ID TLV (8.5.2): subtype and 1..255 bytes."""

    subtype: int
    identifier: bytes

    def __post_init__(self) -> None:
        _check_id("Chassis ID", self.subtype, self.identifier)

    @classmethod
    def mac(cls, address: bytes) -> ChassisId:
        """The usual chassis ID, a MAC address."""
        return cls(ChassisIdSubtype.MAC_ADDRESS, address)

    @property
    def text(self) -> str:
        """The ID as people write it."""
        return _id_text(self.subtype, self.identifier, ChassisIdSubtype.MAC_ADDRESS, ChassisIdSubtype.NETWORK_ADDRESS)

    def raw(self) -> RawTlv:
        """As a TLV."""
        return RawTlv(TYPE_CHASSIS_ID, bytes([self.subtype]) + self.identifier)


@dataclass(frozen=True, slots=True)
class PortId:
    """Port ID TLV (8.5.3): subtype and 1..255 bytes."""

    subtype: int
    identifier: bytes

    def __post_init__(self) -> None:
        _check_id("Port ID", self.subtype, self.identifier)

    @classmethod
    def interface(cls, name: str) -> PortId:
        """An interface name."""
        return cls(PortIdSubtype.INTERFACE_NAME, name.encode())

    @property
    def text(self) -> str:
        """The ID as people write it."""
        return _id_text(self.subtype, self.identifier, PortIdSubtype.MAC_ADDRESS, PortIdSubtype.NETWORK_ADDRESS)

    def raw(self) -> RawTlv:
        """As a TLV."""
        return RawTlv(TYPE_PORT_ID, bytes([self.subtype]) + self.identifier)


@dataclass(frozen=True, slots=True)
class TimeToLive:
    """Time To Live TLV (8.5.4): 0..65535 s; 0 says goodbye. `extra`: what follows the two bytes, ignored."""

    seconds: int
    extra: bytes = b""

    def __post_init__(self) -> None:
        if not 0 <= self.seconds <= 0xFFFF:
            raise TlvError("Time To Live", "TTL", self.seconds, "must be 0..65535 s")

    def raw(self) -> RawTlv:
        """As a TLV."""
        return RawTlv(TYPE_TTL, struct.pack("!H", self.seconds) + self.extra)


@dataclass(frozen=True, slots=True)
class TextTlv:
    """Port Description, System Name or System Description TLV (8.5.5 to 8.5.7): 0..255 bytes, meant as UTF-8."""

    type: int
    octets: bytes

    def __post_init__(self) -> None:
        if self.type not in (TYPE_PORT_DESCRIPTION, TYPE_SYSTEM_NAME, TYPE_SYSTEM_DESCRIPTION):
            raise ValueError(f"type: {self.type}, must be 4, 5 or 6")
        if len(self.octets) > 255:
            raise TlvError(TYPE_NAMES[self.type], "length", len(self.octets), "must be 0..255")

    @property
    def text(self) -> str:
        """The text, bytes that are not UTF-8 replaced."""
        return self.octets.decode("utf-8", "replace")

    def raw(self) -> RawTlv:
        """As a TLV."""
        return RawTlv(self.type, self.octets)


@dataclass(frozen=True, slots=True)
class SystemCapabilities:
    """System Capabilities TLV (8.5.8): what the system can be, and what of it is enabled; 16 bits each."""

    system: int
    enabled: int

    def __post_init__(self) -> None:
        for field, bits in (("system capabilities", self.system), ("enabled capabilities", self.enabled)):
            if not 0 <= bits <= 0xFFFF:
                raise TlvError("System Capabilities", field, bits, "must be 0..65535")
        if self.enabled & ~self.system:
            raise TlvError(
                "System Capabilities",
                "enabled capabilities",
                f"0x{self.enabled:04x}",
                f"must be among the system capabilities 0x{self.system:04x}",
            )

    def raw(self) -> RawTlv:
        """As a TLV."""
        return RawTlv(TYPE_SYSTEM_CAPABILITIES, struct.pack("!HH", self.system, self.enabled))


@dataclass(frozen=True, slots=True)
class ManagementAddress:
    """Management Address TLV (8.5.9). A PDU may hold several.

    family: IANA address family (1 IPv4, 2 IPv6, 6 MAC); address: 1..31 bytes; interface_subtype: 1 unknown, 2 ifIndex,
    3 system port number; oid: 0..128 bytes, BER without its header.
    """

    family: int
    address: bytes
    interface_subtype: int = 1
    interface_number: int = 0
    oid: bytes = b""

    def __post_init__(self) -> None:
        tlv = TYPE_NAMES[TYPE_MANAGEMENT_ADDRESS]
        if not 1 <= len(self.address) <= 31:
            raise TlvError(tlv, "management address length", len(self.address), "must be 1..31 bytes")
        if len(self.oid) > 128:
            raise TlvError(tlv, "OID length", len(self.oid), "must be 0..128 bytes")
        for field, value, limit in (
            ("address subtype", self.family, 0xFF),
            ("interface numbering subtype", self.interface_subtype, 0xFF),
            ("interface number", self.interface_number, 0xFFFFFFFF),
        ):
            if not 0 <= value <= limit:
                raise TlvError(tlv, field, value, f"must be 0..{limit}")

    @property
    def text(self) -> str:
        """The address as people write it."""
        return address_text(self.family, self.address)

    def raw(self) -> RawTlv:
        """As a TLV."""
        head = bytes([len(self.address) + 1, self.family]) + self.address
        tail = struct.pack("!BIB", self.interface_subtype, self.interface_number, len(self.oid)) + self.oid
        return RawTlv(TYPE_MANAGEMENT_ADDRESS, head + tail)


@dataclass(frozen=True, slots=True)
class OrganizationalTlv:
    """Organizationally specific TLV (8.6): OUI of 3 bytes, subtype, 0..507 bytes that the organization defines."""

    oui: bytes
    subtype: int
    info: bytes

    def __post_init__(self) -> None:
        if len(self.oui) != 3:
            raise TlvError("Organizationally Specific", "OUI length", len(self.oui), "must be 3 bytes")
        if not 0 <= self.subtype <= 255:
            raise TlvError("Organizationally Specific", "subtype", self.subtype, "must be 0..255")
        if len(self.info) > MAX_VALUE_BYTES - 4:
            raise TlvError("Organizationally Specific", "length", len(self.info), "must be 0..507 bytes of information")

    def raw(self) -> RawTlv:
        """As a TLV."""
        return RawTlv(TYPE_ORGANIZATIONAL, self.oui + bytes([self.subtype]) + self.info)


Tlv = ChassisId | PortId | TimeToLive | TextTlv | SystemCapabilities | ManagementAddress | OrganizationalTlv | RawTlv


def _id_value(raw: RawTlv) -> tuple[int, bytes]:
    if not 2 <= len(raw.value) <= 256:
        raise TlvError(raw.name, "length", len(raw.value), "must be 2..256")
    return raw.value[0], raw.value[1:]


def _management_address(raw: RawTlv) -> ManagementAddress:
    value = raw.value
    if not 9 <= len(value) <= 167:
        raise TlvError(raw.name, "length", len(value), "must be 9..167")
    string_bytes = value[0]
    if not 2 <= string_bytes <= 32:
        raise TlvError(raw.name, "management address string length", string_bytes, "must be 2..32")
    rest = value[1 + string_bytes :]
    if len(rest) < 6:
        rule = f"leaves {len(rest)} of the 6 bytes that interface and OID length need"
        raise TlvError(raw.name, "management address string length", string_bytes, rule)
    interface_subtype, interface_number, oid_bytes = struct.unpack("!BIB", rest[:6])
    if oid_bytes != len(rest) - 6:
        raise TlvError(raw.name, "OID string length", oid_bytes, f"must be {len(rest) - 6}, which is what follows")
    return ManagementAddress(value[1], value[2 : 1 + string_bytes], interface_subtype, interface_number, rest[6:])


def decode(raw: RawTlv) -> Tlv:
    """A TLV as the record of its type. Raises `TlvError` where it breaks a rule of 802.1AB; never anything else."""
    value = raw.value
    if raw.type == TYPE_CHASSIS_ID:
        return ChassisId(*_id_value(raw))
    if raw.type == TYPE_PORT_ID:
        return PortId(*_id_value(raw))
    if raw.type == TYPE_TTL:
        if len(value) < 2:
            raise TlvError(raw.name, "length", len(value), "must be at least 2")
        return TimeToLive(int.from_bytes(value[:2], "big"), value[2:])
    if raw.type in (TYPE_PORT_DESCRIPTION, TYPE_SYSTEM_NAME, TYPE_SYSTEM_DESCRIPTION):
        return TextTlv(raw.type, value)
    if raw.type == TYPE_SYSTEM_CAPABILITIES:
        if len(value) != 4:
            raise TlvError(raw.name, "length", len(value), "must be 4")
        return SystemCapabilities(*struct.unpack("!HH", value))
    if raw.type == TYPE_MANAGEMENT_ADDRESS:
        return _management_address(raw)
    if raw.type == TYPE_ORGANIZATIONAL:
        if len(value) < 4:
            raise TlvError(raw.name, "length", len(value), "must be at least 4")
        return OrganizationalTlv(value[:3], value[3], value[4:])
    if raw.type == TYPE_END and value:
        raise TlvError(raw.name, "length", len(value), "must be 0")
    return raw

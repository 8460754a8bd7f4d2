"""Test frames: built with scapy from a `FrameSpec`, and read back into a `FrameInfo` that prints as one line.

Pure functions on bytes. Lengths are without FCS. Payloads begin with what `roce recv` looks for (docs/traffic.md):
magic, run, sequence and send time, big-endian, then a byte pattern; so scapy's frames are counted like those of the
C sender.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from dcb.pfc import PauseFrame, PfcError, PfcFrame, is_mac_control, parse

ROCE_PORT = 4791
PROBE = struct.Struct("!IIQQ")
PROBE_MAGIC = 0xDCB10001
MIN_FRAME_BYTES = 60
MAX_FRAME_BYTES = 9200
CNP_OPCODE = 0x81
OPCODES = {"rc-send": 0x04, "rc-write": 0x0A, "uc-send": 0x24, "uc-write": 0x2A, "cnp": CNP_OPCODE}
KINDS = (
    *("pfc", "pause", "mac-control", "roce", "cnp", "udp", "tcp", "icmp", "icmpv6"),
    *("ipv4", "ipv6", "arp", "lldp", "other"),
)
_RETH_OPCODES = (0x0A, 0x2A)


class Kind(StrEnum):
    """What `dcbtraffic send` can build."""

    UDP = "udp"
    TCP = "tcp"
    ROCE = "roce"
    CNP = "cnp"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class FrameSpec:
    """One stream of frames. Addresses in text form; vlan None: no tag; size_bytes None: as small as it gets."""

    kind: Kind
    src_mac: str
    dst_mac: str
    src_ip: str = ""
    dst_ip: str = ""
    src_port: int = 49152
    dst_port: int = 9
    dscp: int = 0
    ecn: int = 0
    ttl: int = 64
    vlan: int | None = None
    pcp: int = 0
    dei: int = 0
    size_bytes: int | None = None
    queue_pair: int = 0x100
    psn: int = 0
    opcode: int = OPCODES["uc-send"]
    pkey: int = 0xFFFF
    ether_type: int = 0x88B5  # for local experiments (IEEE 802)
    run: int = 1


def _payload(spec: FrameSpec, length: int, number: int, time_ns: int) -> bytes:
    head = PROBE.pack(PROBE_MAGIC, spec.run, number, time_ns)
    return (head + bytes(i & 0xFF for i in range(len(head), length)))[:length]


def build(spec: FrameSpec, number: int = 0, time_ns: int = 0) -> bytes:
    """Frame `number` of a stream (its sequence number), at least 60 bytes. ValueError where the size cannot be had."""
    from scapy.contrib.roce import BTH, CNPPadding
    from scapy.layers.inet import IP, TCP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Dot1Q, Ether
    from scapy.packet import Raw

    def assemble(payload: bytes) -> Any:
        link = Ether(src=spec.src_mac, dst=spec.dst_mac)
        if spec.vlan is not None:
            link = link / Dot1Q(vlan=spec.vlan, prio=spec.pcp, dei=spec.dei)
        if spec.kind is Kind.RAW:
            link.lastlayer().type = spec.ether_type
            return link / Raw(payload)
        traffic_class = spec.dscp << 2 | spec.ecn
        if ipaddress.ip_address(spec.dst_ip).version == 6:
            link = link / IPv6(src=spec.src_ip, dst=spec.dst_ip, tc=traffic_class, hlim=spec.ttl)
        else:
            link = link / IP(src=spec.src_ip, dst=spec.dst_ip, tos=traffic_class, ttl=spec.ttl, flags="DF", id=0)
        if spec.kind is Kind.TCP:
            return link / TCP(sport=spec.src_port, dport=spec.dst_port, flags="A", seq=number, ack=0) / Raw(payload)
        if spec.kind is Kind.UDP:
            return link / UDP(sport=spec.src_port, dport=spec.dst_port) / Raw(payload)
        psn = (spec.psn + number) & 0xFFFFFF
        udp = UDP(sport=spec.src_port, dport=ROCE_PORT)
        if ipaddress.ip_address(spec.dst_ip).version == 4:
            udp.chksum = 0  # as RoCEv2 NICs do; over IPv6 a checksum is obligatory
        if spec.kind is Kind.CNP or spec.opcode == CNP_OPCODE:
            return link / udp / BTH(opcode=CNP_OPCODE, becn=1, dqpn=spec.queue_pair, pkey=spec.pkey) / CNPPadding()
        pad = -len(payload) % 4
        header = BTH(opcode=spec.opcode, dqpn=spec.queue_pair, psn=psn, pkey=spec.pkey, padcount=pad)
        reth = struct.pack("!QII", 0, 1, len(payload)) if spec.opcode in _RETH_OPCODES else b""
        return link / udp / header / Raw(reth + payload + bytes(pad))

    smallest = len(bytes(assemble(b"")))
    if spec.size_bytes is None:
        length = PROBE.size
    elif not smallest <= spec.size_bytes <= MAX_FRAME_BYTES:
        raise ValueError(f"size: {spec.size_bytes} bytes, must be {smallest}..{MAX_FRAME_BYTES} for such a frame")
    else:
        length = spec.size_bytes - smallest
        if spec.kind is Kind.ROCE:
            length -= length % 4  # RoCE payloads are padded to 4 bytes: the next smaller size that can be had
    return bytes(assemble(_payload(spec, length, number, time_ns))).ljust(MIN_FRAME_BYTES, b"\0")


@dataclass(frozen=True, slots=True)
class FrameInfo:
    """What a captured frame says of itself; None where it has no such field."""

    kind: str  # one of KINDS
    length: int
    src_mac: str
    dst_mac: str
    ether_type: int
    vlan: int | None = None
    pcp: int | None = None
    dei: int | None = None
    src_ip: str | None = None
    dst_ip: str | None = None
    dscp: int | None = None
    ecn: int | None = None
    ttl: int | None = None
    src_port: int | None = None
    dst_port: int | None = None
    opcode: int | None = None
    queue_pair: int | None = None
    psn: int | None = None
    sequence: int | None = None
    run: int | None = None
    pfc: PfcFrame | None = None
    pause: PauseFrame | None = None
    invalid: str | None = None  # the rule that a MAC control frame breaks, or "truncated"

    def as_json(self) -> dict[str, Any]:
        """The fields that are there, for JSON."""
        plain = {k: v for k, v in asdict(self).items() if v is not None and k not in ("pfc", "pause")}
        if self.pfc is not None:
            plain["vector"] = self.pfc.vector
            plain["quanta"] = {str(n): quanta for n, quanta in self.pfc.requests.items()}
        if self.pause is not None:
            plain["quanta"] = self.pause.quanta
        return plain

    def text(self) -> str:
        """One line, with no time."""
        words = [f"{self.kind:<5} {self.length:>4} B"]
        if self.vlan is not None:
            words.append(f"vlan {self.vlan} pcp {self.pcp} dei {self.dei}")
        if self.src_ip is None:
            words.append(f"{self.src_mac} > {self.dst_mac}")
        else:
            port = "" if self.src_port is None else f":{self.src_port}"
            to_port = "" if self.dst_port is None else f":{self.dst_port}"
            words.append(f"{_host(self.src_ip, port)} > {_host(self.dst_ip or '', to_port)}")
            words.append(f"dscp {self.dscp} ecn {self.ecn} ({_ECN_NAMES[self.ecn or 0]}) ttl {self.ttl}")
        if self.queue_pair is not None:
            words.append(f"opcode 0x{self.opcode:02x} qp 0x{self.queue_pair:x} psn {self.psn}")
        if self.sequence is not None:
            words.append(f"seq {self.sequence}")
        if self.pfc is not None:
            words += [f"{n}:{f'XOFF {q}' if q else 'XON'}" for n, q in self.pfc.requests.items()]
        if self.pause is not None:
            words.append(f"XOFF {self.pause.quanta}" if self.pause.quanta else "XON")
        if self.invalid is not None:
            words.append(f"INVALID {self.invalid}")
        if self.kind == "other":
            words.append(f"type 0x{self.ether_type:04x}")
        return "  ".join(words)


_ECN_NAMES = ("not-ECT", "ECT(1)", "ECT(0)", "CE")
_PROTOCOLS = {1: "icmp", 58: "icmpv6", 6: "tcp", 17: "udp"}


def _host(address: str, port: str) -> str:
    return f"[{address}]{port}" if ":" in address and port else f"{address}{port}"


def _mac(raw: bytes) -> str:
    return raw.hex(":")


def read(data: bytes) -> FrameInfo:
    """Decode a captured frame. Never raises: what is cut short or unknown says so in `invalid` or `kind`."""
    if len(data) < 14:
        return FrameInfo("other", len(data), _mac(data[6:12]), _mac(data[:6]), 0, invalid="truncated")
    fields: dict[str, Any] = {"length": len(data), "src_mac": _mac(data[6:12]), "dst_mac": _mac(data[:6])}
    at = 12
    ether_type = int.from_bytes(data[at : at + 2], "big")
    if ether_type == 0x8100 and len(data) >= 18:
        tci = int.from_bytes(data[14:16], "big")
        fields |= {"pcp": tci >> 13, "dei": tci >> 12 & 1, "vlan": tci & 0xFFF}
        at, ether_type = 16, int.from_bytes(data[16:18], "big")
    fields["ether_type"] = ether_type
    body = data[at + 2 :]
    if is_mac_control(data):
        fields |= _read_mac_control(data)
    elif ether_type == 0x0800:
        fields |= _read_ipv4(body)
    elif ether_type == 0x86DD:
        fields |= _read_ipv6(body)
    else:
        fields["kind"] = {0x0806: "arp", 0x88CC: "lldp"}.get(ether_type, "other")
        if ether_type == 0x88B5:
            fields |= _read_probe(body)
    return FrameInfo(**fields)


def _read_mac_control(data: bytes) -> dict[str, Any]:
    opcode = int.from_bytes(data[14:16], "big")
    fields: dict[str, Any] = {"kind": {0x0101: "pfc", 1: "pause"}.get(opcode, "mac-control"), "opcode": opcode}
    try:
        frame = parse(data)
    except PfcError as error:
        return fields | {"invalid": str(error)}
    return fields | ({"pfc": frame} if isinstance(frame, PfcFrame) else {"pause": frame})


def _read_ipv4(body: bytes) -> dict[str, Any]:
    header = (body[0] & 0xF) * 4 if body else 0
    if len(body) < 20 or header < 20 or len(body) < header:
        return {"kind": "ipv4", "invalid": "truncated"}
    total = int.from_bytes(body[2:4], "big")
    fields = {
        "src_ip": str(ipaddress.IPv4Address(body[12:16])),
        "dst_ip": str(ipaddress.IPv4Address(body[16:20])),
        "dscp": body[1] >> 2,
        "ecn": body[1] & 3,
        "ttl": body[8],
    }
    if not header <= total <= len(body):
        return fields | {"kind": "ipv4", "invalid": "truncated"}
    if int.from_bytes(body[6:8], "big") & 0x1FFF:
        return fields | {"kind": "ipv4"}  # a later fragment has no ports
    return fields | _read_transport(body[9], body[header:total], "ipv4")


def _read_ipv6(body: bytes) -> dict[str, Any]:
    if len(body) < 40:
        return {"kind": "ipv6", "invalid": "truncated"}
    length = int.from_bytes(body[4:6], "big")
    traffic_class = int.from_bytes(body[:2], "big") >> 4 & 0xFF
    fields = {
        "src_ip": str(ipaddress.IPv6Address(body[8:24])),
        "dst_ip": str(ipaddress.IPv6Address(body[24:40])),
        "dscp": traffic_class >> 2,
        "ecn": traffic_class & 3,
        "ttl": body[7],
    }
    if 40 + length > len(body):
        return fields | {"kind": "ipv6", "invalid": "truncated"}
    return fields | _read_transport(body[6], body[40 : 40 + length], "ipv6")


def _read_transport(protocol: int, segment: bytes, network: str) -> dict[str, Any]:
    kind = _PROTOCOLS.get(protocol, network)
    if kind not in ("tcp", "udp"):
        return {"kind": kind}
    if len(segment) < (20 if kind == "tcp" else 8):
        return {"kind": kind, "invalid": "truncated"}
    source, destination = struct.unpack("!HH", segment[:4])
    fields: dict[str, Any] = {"kind": kind, "src_port": source, "dst_port": destination}
    if kind == "tcp":
        return fields | _read_probe(segment[(segment[12] >> 4) * 4 :])
    if destination != ROCE_PORT:
        return fields | _read_probe(segment[8:])
    if len(segment) < 8 + 12 + 4:
        return fields | {"kind": "roce", "invalid": "truncated"}
    opcode = segment[8]
    fields |= {
        "kind": "cnp" if opcode == CNP_OPCODE else "roce",
        "opcode": opcode,
        "queue_pair": int.from_bytes(segment[13:16], "big"),
        "psn": int.from_bytes(segment[17:20], "big"),
    }
    return fields | _read_probe(segment[20 + (16 if opcode in _RETH_OPCODES else 0) : -4])


def _read_probe(payload: bytes) -> dict[str, Any]:
    if len(payload) < PROBE.size:
        return {}
    magic, run, sequence, _ = PROBE.unpack(payload[: PROBE.size])
    return {"run": run, "sequence": sequence} if magic == PROBE_MAGIC else {}

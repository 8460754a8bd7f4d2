"""A veth link between two network namespaces, a tap on it, and tshark's reading of what the tap saw.

`Link` owns the namespaces; agents (`lldpad.Lldpad`, `lldpd.Lldpd`, `peer.Peer`) live in one of them each. Nothing
sleeps for a fixed time: `until` asks again until a condition holds, and fails with what it was waiting for.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

ETHERTYPE_LLDP = 0x88CC
NEAREST_BRIDGE = "01:80:c2:00:00:0e"
LOW_MAC, HIGH_MAC = "02:00:00:00:0a:01", "02:00:00:00:0b:01"
CLONE_NEWNET = 0x40000000
PACKET_OUTGOING = 4

Value = TypeVar("Value")

_libc = ctypes.CDLL(None, use_errno=True)


def ip(*arguments: str) -> None:
    """Runs iproute2's `ip`; raises with what it said."""
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def until(condition: Callable[[], Value], what: str, seconds: float = 10.0) -> Value:
    """The first true value of `condition`, asked every 20 ms; fails after `seconds`, naming `what`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}; last: {value!r}")
        time.sleep(0.02)


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Sockets that this thread opens meanwhile belong to the namespace."""
    with Path("/proc/thread-self/ns/net").open() as home, Path("/run/netns", namespace).open() as there:
        if _libc.setns(there.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"enter network namespace {namespace}")
        try:
            yield
        finally:
            if _libc.setns(home.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "return from the network namespace")


@dataclass(frozen=True)
class End:
    """One end of a link: interface `name` with address `mac` in network namespace `namespace`."""

    namespace: str
    name: str
    mac: str

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """The outcome of a command that was run in the namespace."""
        return subprocess.run(
            ["ip", "netns", "exec", self.namespace, *command], check=False, capture_output=True, text=True, timeout=10
        )

    def packet_socket(self, protocol: int = ETHERTYPE_LLDP) -> socket.socket:
        """A raw, non-blocking socket on the interface."""
        with inside(self.namespace):
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.htons(protocol))
        opened.bind((self.name, protocol))
        opened.setblocking(False)
        return opened


class Link:
    """Two namespaces, joined by a veth pair: `left` has the lower MAC address unless `swap`."""

    def __init__(self, swap: bool = False) -> None:
        low, high = (HIGH_MAC, LOW_MAC) if swap else (LOW_MAC, HIGH_MAC)
        prefix = f"iop{os.getpid()}"
        self.left = End(f"{prefix}l", "left", low)
        self.right = End(f"{prefix}r", "right", high)

    def __enter__(self) -> Link:
        try:
            for end in (self.left, self.right):
                ip("netns", "add", end.namespace)
                ip("-n", end.namespace, "link", "set", "lo", "up")
                # No router solicitations and the like between the frames that the tests look at.
                end.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
            own = ("name", self.left.name, "address", self.left.mac, "netns", self.left.namespace)
            peer = ("name", self.right.name, "address", self.right.mac, "netns", self.right.namespace)
            ip("link", "add", *own, "type", "veth", "peer", *peer)
            for end in (self.left, self.right):
                ip("-n", end.namespace, "link", "set", end.name, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self.left, self.right):
            subprocess.run(["ip", "netns", "del", end.namespace], check=False, capture_output=True)


@dataclass
class Tlv:
    """One TLV as tshark shows it: its title, and by name the fields below it, their values as tshark prints them."""

    title: str
    fields: dict[str, list[str]] = field(default_factory=dict)

    def one(self, name: str) -> str:
        """The value of a field that occurs once."""
        (value,) = self.fields[name]
        return value

    def number(self, name: str) -> int:
        """The same as a number, whatever base tshark prints it in."""
        return int(self.one(name), 0)

    def each(self, pattern: str) -> list[int]:
        """The values of eight numbered fields, `pattern` with 0 to 7 for its `{}`."""
        return [self.number(pattern.format(i)) for i in range(8)]


@dataclass
class Dissected:
    """One frame as tshark shows it."""

    source: str
    destination: str
    tlvs: list[Tlv]
    malformed: bool

    def ieee8021(self, subtype: int) -> list[Tlv]:
        """TLVs of 802.1 with this subtype."""
        name = "lldp.ieee.802_1.subtype"
        return [tlv for tlv in self.tlvs if subtype in [int(v, 0) for v in tlv.fields.get(name, [])]]

    @property
    def ttl(self) -> int:
        """Time to live in seconds."""
        (ttl,) = [int(v) for tlv in self.tlvs for v in tlv.fields.get("lldp.time_to_live", [])]
        return ttl

    @property
    def cee(self) -> dict[int, Tlv]:
        """Sub-TLVs of the CEE TLV by type: 1 control, 2 priority groups, 3 PFC, 4 application."""
        return {int(tlv.one("lldp.dcbx.type"), 0): tlv for tlv in self.tlvs if "lldp.dcbx.type" in tlv.fields}


class Tap:
    """LLDP frames that pass one end of a link, by direction. They stay in the socket until `poll` is called."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._socket = end.packet_socket(3)  # ETH_P_ALL: also what this end sends
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.received: list[bytes] = []
        self.sent: list[bytes] = []

    def __enter__(self) -> Tap:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def poll(self) -> None:
        """Takes what has come since the last call into `received` and `sent`."""
        while True:
            try:
                frame, address = self._socket.recvfrom(9216)
            except BlockingIOError:
                return
            if frame[12:14] == ETHERTYPE_LLDP.to_bytes(2):
                (self.sent if address[2] == PACKET_OUTGOING else self.received).append(frame)

    def await_received(self, condition: Callable[[bytes], bool], what: str, seconds: float = 10.0) -> bytes:
        """The first received frame, from now on or earlier, that fulfils the condition."""

        def found() -> bytes:
            self.poll()
            return next((frame for frame in self.received if condition(frame)), b"")

        return until(found, what, seconds)

    def await_sent(self, what: str) -> bytes:
        """A frame that this end sends."""

        def found() -> list[bytes]:
            self.poll()
            return self.sent

        return until(found, what)[0]


def has_tlv(subtype: int, body: bytes | None = None, oui: bytes = b"\x00\x80\xc2") -> Callable[[bytes], bool]:
    """Condition on a frame: a TLV with this OUI and subtype and, where given, these contents."""

    def fulfils(frame: bytes) -> bool:
        at = 14
        while at + 2 <= len(frame):
            head = struct.unpack_from("!H", frame, at)[0]
            value = frame[at + 2 : at + 2 + (head & 0x1FF)]
            if head >> 9 == 127 and value[:4] == oui + bytes([subtype]) and (body is None or value[4:] == body):
                return True
            if head >> 9 == 0:
                return False
            at += 2 + (head & 0x1FF)
        return False

    return fulfils


def dissect(frames: list[bytes], directory: Path) -> list[Dissected]:
    """tshark's reading of frames. `directory` takes the capture file."""
    capture = directory / "frames.pcap"
    with capture.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, frame in enumerate(frames):
            out.write(struct.pack("<IIII", number, 0, len(frame), len(frame)) + frame)
    command = ["tshark", "-r", str(capture), "-T", "pdml"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    return [_frame(packet) for packet in ET.fromstring(shown.stdout).iter("packet")]


def _frame(packet: ET.Element) -> Dissected:
    ethernet = packet.find("proto[@name='eth']")
    lldp = packet.find("proto[@name='lldp']")
    assert ethernet is not None
    addresses = {part.get("name"): part.get("show", "") for part in ethernet.iter("field")}
    tlvs = [] if lldp is None else [tlv for top in lldp for tlv in _tlvs(top)]
    # tshark marks what it cannot read in the tree, as a protocol or as an expert item of severity "Error".
    malformed = any(
        "malformed" in (part.get("name") or "") or "Malformed" in (part.get("showname") or "") for part in packet.iter()
    )
    return Dissected(addresses["eth.src"], addresses["eth.dst"], tlvs, malformed)


def _tlvs(top: ET.Element) -> Iterator[Tlv]:
    """A TLV, or, for DCBX of before 802.1Qaz, the TLVs within it."""
    inner = [part for part in top if part.get("name") == "" and any(f.get("name") == "lldp.dcbx.type" for f in part)]
    if inner:
        for part in inner:
            yield from _tlvs(part)
        return
    tlv = Tlv(top.get("show") or "")
    for part in top.iter("field"):
        if part is not top and part.get("name"):
            tlv.fields.setdefault(part.get("name") or "", []).append(part.get("show") or "")
    yield tlv

"""Ports, hand-made frames and a wire for the DCBX tests: what is due is carried, the clock moves by deadline."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from dcb.dcbx.fabric import DcbxSwitch
from dcb.dcbx.port import DcbxPort
from dcb.dcbx.settings import DcbxSettings
from dcb.dcbx.tlv import AppEntry, EtsTable
from dcb.lldp.agent import LocalSystem
from dcb.lldp.pdu import build_frame
from dcb.lldp.tlv import ChassisId, OrganizationalTlv, PortId, TimeToLive

S = 1_000_000_000
LOW = bytes.fromhex("020000000001")
MIDDLE = bytes.fromhex("020000000002")
HIGH = bytes.fromhex("0200000000ff")
STORAGE = EtsTable((0, 0, 0, 1, 0, 0, 2, 0), (40, 60, 0, 0, 0, 0, 0, 0), (2, 2, 0, 0, 0, 0, 0, 0))
OTHER = EtsTable((0, 1, 1, 1, 2, 2, 2, 2), (10, 20, 70, 0, 0, 0, 0, 0), (2, 2, 2, 0, 0, 0, 0, 0))
ROCE = AppEntry(3, 4791, 3)


def local(mac: bytes, name: str = "e1") -> LocalSystem:
    return LocalSystem(ChassisId.mac(mac), PortId.interface(name))


def up(mac: bytes, settings: DcbxSettings, now_ns: int = 0, name: str = "e1", **options: int) -> DcbxPort:
    """A port with its link up; its first frame is not taken yet."""
    port = DcbxPort(mac, local(mac, name), settings, **options)  # type: ignore[arg-type]
    port.set_link(True, now_ns)
    return port


def said(
    mac: bytes, tlvs: Iterable[OrganizationalTlv] = (), ttl: int = 121, port: str = "p", chassis: bytes | None = None
) -> bytes:
    """A frame that a neighbour would send."""
    identity = (ChassisId.mac(chassis or mac).raw(), PortId.interface(port).raw(), TimeToLive(ttl).raw())
    return build_frame(mac, b"".join(t.encode() for t in (*identity, *(tlv.raw() for tlv in tlvs))) + b"\0\0")


class Wire:
    """Two ends, each a port or a port of a switch, joined; frames are recorded as (time, end, frame)."""

    def __init__(self, *links: tuple[tuple[object, str], tuple[object, str]]) -> None:
        self.now_ns = 0
        self.log: list[tuple[int, str, bytes]] = []
        self.events: list[tuple[int, str, object]] = []
        self.peers = {**{(id(a[0]), a[1]): b for a, b in links}, **{(id(b[0]), b[1]): a for a, b in links}}
        self.nodes = list({id(end[0]): end[0] for link in links for end in link}.values())

    def _send(self, node: object) -> list[tuple[str, bytes]]:
        if isinstance(node, DcbxSwitch):
            return node.frames_to_send(self.now_ns)
        assert isinstance(node, DcbxPort)
        return [("", frame) for frame in node.frames_to_send(self.now_ns)]

    def carry(self) -> None:
        """Deliver what is due, and what that brings about, until all are silent."""
        while True:
            out = [(node, name, frame) for node in self.nodes for name, frame in self._send(node)]
            if not out:
                return
            for node, name, frame in out:
                self.log.append((self.now_ns, name, frame))
                peer = self.peers.get((id(node), name))
                if peer is None:
                    continue
                to, port = peer
                if isinstance(to, DcbxSwitch):
                    self.events += [(self.now_ns, n, event) for n, event in to.receive(port, frame, self.now_ns)]
                else:
                    assert isinstance(to, DcbxPort)
                    self.events += [(self.now_ns, "", event) for event in to.receive(frame, self.now_ns)]

    def run(self, until_ns: int) -> None:
        """Carry what is due up to and including a time."""
        self.carry()
        while True:
            deadlines = [node.next_deadline_ns() for node in self.nodes]  # type: ignore[attr-defined]
            due = min((time for time in deadlines if time is not None), default=None)
            if due is None or due > until_ns:
                break
            assert due >= self.now_ns
            self.now_ns = due
            for node in self.nodes:
                node.handle_timer(due)  # type: ignore[attr-defined]
            self.carry()
        self.now_ns = until_ns


def write_pcap(path: Path, frames: Iterable[bytes]) -> None:
    """A capture file of Ethernet frames."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for frame in frames:
            file.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)


def tshark(path: Path, *arguments: str) -> list[str]:
    """Lines that tshark prints of a capture."""
    run = subprocess.run(["tshark", "-r", str(path), *arguments], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


def sent_at(port: DcbxPort, until_ns: int, act: Callable[[int], None] | None = None) -> list[int]:
    """Times in seconds at which a lone port sends, up to and including `until_ns`; whole seconds only."""
    times: list[int] = []
    now_ns = 0
    while True:
        for _ in port.frames_to_send(now_ns):
            assert now_ns % S == 0
            times.append(now_ns // S)
        due = port.next_deadline_ns()
        if due is None or due > until_ns:
            return times
        now_ns = due
        port.handle_timer(now_ns)
        if act is not None:
            act(now_ns)

"""Packet sockets for test traffic: whole frames out, whole frames in, with the 802.1Q tag put back where it was.

The kernel takes the outer tag off before a packet socket sees a frame and reports it beside it (PACKET_AUXDATA). Frames
that this host sends itself are not received.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from hosts.net import NetError

_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_AUXDATA = 8
_PACKET_IGNORE_OUTGOING = 23
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_STATISTICS = 6
_PACKET_MR_PROMISC = 1
_TP_STATUS_VLAN_VALID = 1 << 4
_TP_STATUS_VLAN_TPID_VALID = 1 << 6
_AUXDATA = struct.Struct("=IIIHHHH")
_RECEIVE_BUFFER_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Captured:
    """A frame and when it was read (CLOCK_MONOTONIC, ns)."""

    data: bytes
    time_ns: int


class Port:
    """A packet socket on one interface; use as a context manager. Needs CAP_NET_RAW. Raises `NetError`.

    receive: whether it takes frames in. A port that only sends costs the kernel nothing.
    """

    def __init__(self, device: str, *, receive: bool) -> None:
        self.device = device
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except PermissionError:
            raise NetError("a packet socket needs root (CAP_NET_RAW)") from None
        try:
            if receive:
                self._socket.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
                self._socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
                request = struct.pack("=iHH8s", socket.if_nametoindex(device), _PACKET_MR_PROMISC, 0, b"")
                self._socket.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, request)
            self._socket.bind((device, _ETH_P_ALL if receive else 0))
        except OSError as error:
            self._socket.close()
            raise NetError(f"interface {device}: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> None:
        """Send one frame; a full queue of the kernel is waited for. Raises `NetError`."""
        while True:
            try:
                self._socket.send(frame)
                return
            except BlockingIOError:
                select.select([], [self._socket], [])
            except OSError as error:
                if error.errno != 105:  # ENOBUFS: the frame was not taken
                    raise NetError(f"interface {self.device}: {len(frame)} bytes: {error.strerror}") from None
                time.sleep(0.0001)

    def receive(self, deadline_ns: int | None) -> Captured | None:
        """The next frame, or None when `deadline_ns` (CLOCK_MONOTONIC) passes first."""
        timeout_s = None if deadline_ns is None else max(0, deadline_ns - time.monotonic_ns()) / 1e9
        if not select.select([self._socket], [], [], timeout_s)[0]:
            return None
        try:
            data, control, _, _ = self._socket.recvmsg(65536, socket.CMSG_SPACE(_AUXDATA.size))
        except OSError as error:
            raise NetError(f"interface {self.device}: {error.strerror}") from None
        now_ns = time.monotonic_ns()
        for level, kind, raw in control:
            if level == _SOL_PACKET and kind == _PACKET_AUXDATA:
                data = restore_tag(data, raw)
        return Captured(data, now_ns)

    def frames(self, deadline_ns: int | None) -> Iterator[Captured]:
        """Frames until the deadline."""
        while (captured := self.receive(deadline_ns)) is not None:
            yield captured

    def drops(self) -> int:
        """Frames that the kernel dropped since the last call because nobody read them in time."""
        raw = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        return int(struct.unpack("=II", raw)[1])


def restore_tag(data: bytes, auxdata: bytes) -> bytes:
    """The frame with the tag that `auxdata` (struct tpacket_auxdata) reports back after the addresses."""
    status, _, _, _, _, tci, tpid = _AUXDATA.unpack(auxdata[: _AUXDATA.size])
    if not status & _TP_STATUS_VLAN_VALID:
        return data
    return data[:12] + struct.pack("!HH", tpid if status & _TP_STATUS_VLAN_TPID_VALID else 0x8100, tci) + data[12:]

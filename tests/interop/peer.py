"""Our DCBX port on a packet socket: the driver that a host agent is, reduced to what tests need.

Everything happens in the test's own thread, in `until`: frames out, frames in, timers, until a condition holds. Time is
CLOCK_MONOTONIC plus what `advance` has added, which is how a test sees a TTL of two minutes run out at once.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import TypeVar

from links import End

from dcb.dcbx.port import DcbxEvent, DcbxPort
from dcb.dcbx.settings import DcbxSettings
from dcb.lldp.agent import AdminStatus, LocalSystem
from dcb.lldp.tlv import ChassisId, ManagementAddress, PortId
from dcb.lldp.transmit import LldpTimers

Value = TypeVar("Value")

NS_PER_S = 1_000_000_000


class Peer:
    """`DcbxPort` at one end of a link. `events` is everything that it told, `frames` what it sent."""

    def __init__(
        self,
        end: End,
        settings: DcbxSettings,
        timers: LldpTimers | None = None,
        management_addresses: tuple[ManagementAddress, ...] = (),
    ) -> None:
        mac = bytes.fromhex(end.mac.replace(":", ""))
        local = LocalSystem(
            ChassisId.mac(mac),
            PortId.interface(end.name),
            port_description="to the other end",
            system_name="dcblab",
            system_description="dcblab interoperability test",
            management_addresses=management_addresses,
        )
        self.port = DcbxPort(mac, local, settings, timers=timers)
        self.events: list[DcbxEvent] = []
        self.frames: list[bytes] = []
        self._ahead_ns = 0
        self._socket = end.packet_socket()

    def __enter__(self) -> Peer:
        self.events += self.port.set_link(True, self.now_ns())
        self._send()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def now_ns(self) -> int:
        """The port's clock."""
        return time.monotonic_ns() + self._ahead_ns

    def advance(self, seconds: float) -> None:
        """Moves the port's clock, and runs what falls due on the way; nothing is received meanwhile."""
        self._ahead_ns += int(seconds * NS_PER_S)
        self.events += self.port.handle_timer(self.now_ns())
        self._send()

    def set(self, settings: DcbxSettings) -> None:
        """Another configuration."""
        self.events += self.port.set_settings(settings, self.now_ns())
        self._send()

    def shut_down(self) -> None:
        """Stops transmission, with the shutdown LLDPDU (TTL 0)."""
        self.events += self.port.set_admin_status(AdminStatus.DISABLED, self.now_ns())
        self._send()

    def link(self, up: bool) -> None:
        """Tells the port that the link went up or down."""
        self.events += self.port.set_link(up, self.now_ns())
        self._send()

    def until(self, condition: Callable[[], Value], what: str, seconds: float = 10.0) -> Value:
        """Runs the port until the condition holds; returns its value, or fails, naming `what`."""
        deadline_ns = time.monotonic_ns() + int(seconds * NS_PER_S)
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic_ns() > deadline_ns:
                raise AssertionError(f"waited {seconds} s for {what}; the port runs {self.port.operational}")
            self._step()

    def for_seconds(self, seconds: float) -> None:
        """Runs the port for a while: for what must not happen, or happens over and over."""
        deadline_ns = time.monotonic_ns() + int(seconds * NS_PER_S)
        self.until(lambda: time.monotonic_ns() >= deadline_ns, "the time to pass", seconds + 5)

    def _step(self) -> None:
        """Waits for a frame or the next deadline, for 20 ms at most, and acts on it."""
        wait_ns = 20_000_000
        due_ns = self.port.next_deadline_ns()
        if due_ns is not None:
            wait_ns = max(0, min(wait_ns, due_ns - self.now_ns()))
        select.select([self._socket], [], [], wait_ns / NS_PER_S)
        while True:
            try:
                frame = self._socket.recv(9216)
            except BlockingIOError:
                break
            self.events += self.port.receive(frame, self.now_ns())
        self.events += self.port.handle_timer(self.now_ns())
        self._send()

    def _send(self) -> None:
        for frame in self.port.frames_to_send(self.now_ns()):
            self.frames.append(frame)
            self._socket.send(frame)

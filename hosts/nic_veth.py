"""The NIC of `hosts.nic` on an interface of this network namespace, in real time: one core, another driver.

The core's picoseconds are CLOCK_MONOTONIC's nanoseconds since the driver was made; what is due is done when this
process gets to it, each frame as the core has it, so a late process sends a burst. Frames leave and come in through a
packet socket; PFC of the switch reaches the core as any frame. Python: good for the rates of labs (some 10,000 frames
a second), not for more.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from hosts.net import NetError
from hosts.nic import Nic
from hosts.wire import Port

ROCE_V2_PORT: Final = 4791
_PS_PER_NS: Final = 1000
_BATCH: Final = 64  # frames that are taken before the core is asked what is due


class NicDriver:
    """Runs a NIC on an interface; use as a context manager. Needs CAP_NET_RAW. Raises `NetError`."""

    def __init__(self, nic: Nic, device: str) -> None:
        self.nic = nic
        self._origin_ns = time.monotonic_ns()
        self._error: NetError | None = None
        self._port = Port(device, receive=True)
        try:
            # who answers "port unreachable" is the kernel, to the sender: it has to have the port, and nobody reads it
            self._taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._taken.bind(("", ROCE_V2_PORT))
        except OSError as error:
            self._port.__exit__(None, None, None)
            raise NetError(f"UDP port {ROCE_V2_PORT}: {error.strerror}: another driver or program has it") from None
        nic.set_output(self._send)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.nic.set_output(None)
        self._taken.close()
        self._port.__exit__(None, None, None)

    @property
    def now_ps(self) -> int:
        """The core's time."""
        return (time.monotonic_ns() - self._origin_ns) * _PS_PER_NS

    def run(self, done: Callable[[], bool], until_ps: int | None = None) -> bool:
        """Until `done()` (asked after each round), or `until_ps`. Returns whether it is done. Raises `NetError`."""
        while not done():
            now_ps = self.now_ps
            if until_ps is not None and now_ps >= until_ps:
                return False
            self.nic.advance(now_ps)
            if self._error is not None:
                raise self._error
            times = [t for t in (self.nic.next_deadline(), until_ps) if t is not None]
            wait_ns = self._origin_ns + -(-min(times) // _PS_PER_NS) if times else None
            captured = self._port.receive(wait_ns)
            for _ in range(_BATCH):
                if captured is None:
                    break
                self.nic.receive(captured.data, max(0, captured.time_ns - self._origin_ns) * _PS_PER_NS)
                captured = self._port.receive(0)
            else:
                if captured is not None:
                    self.nic.receive(captured.data, self.now_ps)
        return True

    def drops(self) -> int:
        """Frames that the kernel dropped since the last call, because this process did not read them in time."""
        return self._port.drops()

    def _send(self, frame: bytes, start_ps: int, end_ps: int) -> None:
        try:
            self._port.send(frame)
        except NetError as error:  # it cannot pass through the core, which called this
            self._error = error

"""The DCBX agent of a host in virtual time: `hosts.dcbx_agent` on one side, a port of the fabric and the loop's timers.

Frames that reach the host's port come in by `receive`, those of the agent go out through `send`; the loop's clock is
the agent's. What `dcb-host` prints is in `log`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dcb.dcbx.settings import DcbxSettings
from dcb.lldp.transmit import LldpTimers
from fabric.loop import PS_PER_NS, VirtualLoop
from hosts.dcbx_agent import HostAgent, Json

LLDP_ETHER_TYPE = b"\x88\xcc"


def is_lldp(frame: bytes) -> bool:
    """Whether a frame is for the agent."""
    return frame[12:14] == LLDP_ETHER_TYPE


class HostDcbx:
    """See the module. Silent until `set_link(True)`."""

    def __init__(
        self,
        loop: VirtualLoop,
        send: Callable[[bytes], object],
        *,
        mac: bytes,
        interface: str,
        name: str,
        settings: DcbxSettings | None = None,
        timers: LldpTimers | None = None,
        changed: Callable[[], object] = lambda: None,
    ) -> None:
        """`settings`: default willing, of everything, with nothing of its own, as `dcb-host` is. `changed`: called when
        something has happened, before the agent says anything about it."""
        self.agent = HostAgent(mac, interface, name, settings or DcbxSettings.host(), timers)
        self.log: list[tuple[int, str]] = []  # (nanoseconds, what happened)
        self._loop, self._send, self._changed = loop, send, changed
        self._timer: asyncio.TimerHandle | None = None

    @property
    def now_ns(self) -> int:
        """The agent's time."""
        return self._loop.now_ps // PS_PER_NS

    def set_link(self, up: bool) -> None:
        """Carrier came or went."""
        self._go_on(self.agent.set_link(up, self.now_ns))

    def receive(self, frame: bytes) -> None:
        """A frame has come in on the host's port; only LLDP is for the agent."""
        if is_lldp(frame):
            self._go_on(self.agent.receive(frame, self.now_ns))

    def shut_down(self) -> None:
        """Say goodbye (TTL 0) and be silent."""
        if self._timer is not None:
            self._timer.cancel()
        for frame in self.agent.shut_down(self.now_ns):
            self._send(frame)

    def state(self) -> Json:
        """What `dcb-host show -j` prints."""
        return self.agent.state(self.now_ns)

    def _on_timer(self) -> None:
        self._timer = None
        self._go_on(self.agent.handle_timer(self.now_ns))

    def _go_on(self, lines: list[str]) -> None:
        self.log += [(self.now_ns, line) for line in lines]
        if lines:
            self._changed()
        for frame in self.agent.frames_to_send(self.now_ns):
            self._send(frame)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ns = self.agent.next_deadline_ns()
        if due_ns is not None:
            self._timer = self._loop.call_at_ps(due_ns * PS_PER_NS, self._on_timer)

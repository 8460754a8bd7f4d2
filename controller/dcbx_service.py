"""DCBX agents on the wire: frames through P4Runtime packet-in and -out, the event loop's clock, and the config.

One task for all switches of a `Controller`, which owns it. A session tells `on_primary` (with what the switch holds)
and `on_backup`; packets come by `on_packet`; when what a port runs has changed, `refresh(switch)` of the controller is
called, which writes the difference. The clock is a parameter: tests pass their own; the default is the event loop's,
which in real time is time.monotonic().
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from finsy import P4ClientError

from controller.config import Config
from controller.dcbx import DcbxAgent
from controller.dcbx_overlay import Run, dcbx_ports
from controller.entries import Entity
from controller.switches import NotConnectedError, PacketIn
from controller.waiting import event_or_time

LOGGER = logging.getLogger("dcblab.controller")
LLDP_REASON = 0  # of packet-ins (docs/contract.md, section 2)
LLDP_QUEUE = 7
MUTE_NS = 5_000_000_000  # how long a controller that takes over at most waits for the last of its switches

PacketOut = Callable[[str, int, bytes, int], Awaitable[None]]


def loop_clock_ns() -> int:
    """The running event loop's clock; where none runs, that of the loop which asyncio would make."""
    try:
        return round(asyncio.get_running_loop().time() * 1e9)
    except RuntimeError:
        return time.monotonic_ns()


class DcbxService:
    """The agents of a controller. `packet_out(switch, port, frame, queue)`, `refresh(switch)` are the controller's."""

    def __init__(
        self,
        packet_out: PacketOut,
        refresh: Callable[[str], None],
        clock_ns: Callable[[], int] = loop_clock_ns,
    ) -> None:
        self.agents: dict[str, DcbxAgent] = {}
        self.clock_ns = clock_ns
        self._packet_out = packet_out
        self._refresh = refresh
        self._runs: dict[str, dict[int, Run]] = {}
        self._mute_until_ns = 0
        self._primary_on: set[str] = set()
        self._wake = asyncio.Event()
        self._news = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    def configure(self, config: Config) -> None:
        """Take the config: agents come and go. What they run is then in `runs`; the caller writes it."""
        now_ns = self.clock_ns()
        for name in [name for name in self.agents if name not in config.switches]:
            del self.agents[name]
        self._primary_on &= config.switches.keys()
        for name, switch in config.switches.items():
            new = name not in self.agents
            if new and not dcbx_ports(switch):
                continue
            agent = self.agents.setdefault(name, DcbxAgent(name))
            agent.configure(config, now_ns)
            if new and name in self._primary_on:  # no port of the switch spoke DCBX so far: nothing is held
                agent.activate((), now_ns)
        self._runs = {name: agent.runs() for name, agent in self.agents.items()}
        self._wake.set()

    def runs(self) -> dict[str, dict[int, Run]]:
        """What every DCBX port runs, by switch and port."""
        return self._runs

    # ---- what sessions tell -----------------------------------------------------------------------------------------

    def on_primary(self, switch: str, held: Sequence[Entity]) -> None:
        """The controller has become primary on a switch, and read what it holds; nothing is written yet."""
        self._primary_on.add(switch)
        if (agent := self.agents.get(switch)) is not None:
            now_ns = self.clock_ns()
            agent.activate(held, now_ns)
            if agent.holding:
                # What is taken over is said when the old controller is primary nowhere: it would answer differently.
                self._mute_until_ns = self._mute_until_ns or now_ns + MUTE_NS
            self._changed(switch, agent)

    def on_backup(self, switch: str) -> None:
        """Another controller is primary on a switch."""
        self._primary_on.discard(switch)
        if (agent := self.agents.get(switch)) is not None:
            agent.deactivate(self.clock_ns())
            self._changed(switch, agent)

    def on_packet(self, switch: str, packet: PacketIn) -> None:
        """Any packet-in; only LLDP is for DCBX."""
        agent = self.agents.get(switch)
        if agent is not None and packet.reason == LLDP_REASON:
            agent.receive(packet.ingress_port, packet.payload, self.clock_ns())
            self._changed(switch, agent)

    def _changed(self, switch: str, agent: DcbxAgent) -> None:
        self._wake.set()
        self._spread(switch, agent)

    def _spread(self, switch: str, agent: DcbxAgent) -> None:
        runs = agent.runs()
        if runs != self._runs.get(switch):
            self._runs[switch] = runs
            self._refresh(switch)

    # ---- the task ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.create_task(self._run(), name="dcbx")

    async def stop(self) -> None:
        """Say goodbye on every port (TTL 0) and end the task."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for name, agent in self.agents.items():
            await self._send(name, agent.shut_down(self.clock_ns()))

    async def wait_news(self, seen: dict[str, int], timeout_s: float) -> None:
        """Return when an agent has logged something beyond `seen` (switch -> number), or the time is over."""

        def news() -> bool:
            return any(agent.logged > seen.get(name, 0) for name, agent in self.agents.items())

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._news:
                await self._news.wait_for(news)

    def _muted(self, now_ns: int) -> bool:
        return now_ns < self._mute_until_ns and not all(agent.active for agent in self.agents.values())

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            deadlines: list[int | None] = []
            for name, agent in list(self.agents.items()):
                try:
                    now_ns = self.clock_ns()
                    agent.handle_timer(now_ns)
                    self._spread(name, agent)
                    if self._muted(now_ns):
                        deadlines.append(self._mute_until_ns)
                    else:
                        await self._send(name, agent.frames_to_send(now_ns))
                        deadlines.append(agent.next_deadline_ns())
                except Exception:  # a fault in one switch's agent must not silence the others
                    LOGGER.exception("%s: DCBX failed", name)
                    await asyncio.sleep(1)
            async with self._news:
                self._news.notify_all()
            due_ns = min((time_ns for time_ns in deadlines if time_ns is not None), default=None)
            wait_s = None if due_ns is None else max(0, due_ns - self.clock_ns()) / 1e9
            await event_or_time(self._wake, wait_s)

    async def _send(self, switch: str, frames: Sequence[tuple[int, bytes]]) -> None:
        for port, frame in frames:
            try:
                await self._packet_out(switch, port, frame, LLDP_QUEUE)
            except TimeoutError:  # the switch takes nothing: neither would it take the others
                LOGGER.debug("%s: LLDP on port %d not sent: the stream is stuck", switch, port)
                return
            except (NotConnectedError, P4ClientError, OSError) as error:
                LOGGER.debug("%s: LLDP on port %d not sent: %s", switch, port, error)

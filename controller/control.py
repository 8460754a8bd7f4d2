"""`Controller`: a config, and one session per switch that makes it so. The library's front door.

Owns the config that is in force and the tasks; a new config comes in through `apply`, which first checks that every
entry of it can be written (so that a bad one changes nothing) and then hands each session its entries.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from finsy import GRPCStatusCode, P4ClientError

from controller import state, thresholds
from controller.codec import Codec
from controller.config import Config
from controller.dcbx_overlay import overlay
from controller.dcbx_service import DcbxService, loop_clock_ns
from controller.deadlock_service import DeadlockService
from controller.desired import build
from controller.diff import Kind, Update, by_key
from controller.entries import Entity
from controller.events import EventHub
from controller.program import P4Program
from controller.state import Cell, CounterValue
from controller.switches import NotConnectedError, PacketHandler, PacketIn, SwitchSession, SwitchStatus
from controller.telemetry_service import TelemetryService
from controller.transport import ClientFactory, finsy_client
from controller.watchdog_service import WatchdogService

_WRITES_PER_CLEAR = 1000


class Controller:
    """Async context manager; see the package's docstring for use."""

    def __init__(
        self,
        config: Config,
        *,
        p4: P4Program | None = None,
        packet_handler: PacketHandler | None = None,
        election_id: int = 100,
        client: ClientFactory = finsy_client,
    ) -> None:
        """`p4`: default `P4Program.load()`. `client`: makes the P4Runtime client of a switch, default over gRPC.

        Raises ProgramError when the config needs what the program lacks. In virtual time, make it inside the loop.
        """
        self.program = p4 or P4Program.load()
        self._packet_handler = packet_handler
        self._election_id = election_id
        self._client = client
        self._config = config
        self.dcbx = DcbxService(self.packet_out, self._refresh)
        self.dcbx.configure(config)
        self._running = overlay(config, self.dcbx.runs())
        self.watchdog = WatchdogService(self.program, self.session)
        self.watchdog.configure(self._running)
        thresholds.check(config)
        self.thresholds = thresholds.ThresholdService(self.program, self.session)
        self.thresholds.configure(self._running)
        self.events = EventHub(loop_clock_ns)
        self.telemetry = TelemetryService(self.program, self.session, self.events, dcbx=self.dcbx)
        self.telemetry.configure(self._running)
        self.watchdog.listeners.append(self.telemetry.on_watchdog)
        self.deadlock = DeadlockService(self, self.events)
        self.deadlock.configure(self._running)
        self._entities = self._build(self._running)
        self._sessions: dict[str, SwitchSession] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def config(self) -> Config:
        """The config in force, as asked for."""
        return self._config

    @property
    def running(self) -> Config:
        """The config in force with what DCBX agreed on laid over it: what the switches are to hold."""
        return self._running

    async def __aenter__(self) -> Self:
        self.events.wall_offset_ns = time.time_ns() - loop_clock_ns()
        self.telemetry.start()
        self._start(self._entities)
        self.dcbx.start()
        self.watchdog.start()
        self.thresholds.start()
        self.deadlock.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.deadlock.stop()
        await self.thresholds.stop()
        await self.watchdog.stop()
        await self.dcbx.stop()
        await self.telemetry.stop()
        await asyncio.gather(*(self._sessions[name].flush() for name in self.dcbx.agents if name in self._sessions))
        for name in list(self._tasks):
            await self._stop(name)

    def _refresh(self, switch: str) -> None:
        """What DCBX runs on a switch has changed: write the difference."""
        self._running = overlay(self._config, self.dcbx.runs())
        self.watchdog.configure(self._running)
        self.telemetry.configure(self._running)
        self.thresholds.configure(self._running)
        self.deadlock.configure(self._running)
        self._entities[switch] = build(self._running, switch)
        if switch in self._sessions:
            self._sessions[switch].set_desired(self.thresholds.laid_over(switch, self._entities[switch]))

    def on_primary(self, switch: str, held: Sequence[Entity]) -> None:
        """Of a session: this controller is primary on the switch, and nothing is written yet."""
        self.dcbx.on_primary(switch, held)
        self.watchdog.on_primary(switch, held)

    def on_backup(self, switch: str) -> None:
        """Of a session: another controller is primary on the switch."""
        self.dcbx.on_backup(switch)
        self.watchdog.on_backup(switch)

    async def _on_packet(self, switch: str, packet: PacketIn) -> None:
        self.dcbx.on_packet(switch, packet)
        self.watchdog.on_packet(switch, packet)
        if self._packet_handler is not None:
            result = self._packet_handler(switch, packet)
            if inspect.isawaitable(result):
                await result

    def _build(self, config: Config) -> dict[str, list[Entity]]:
        """Entries of every switch, each encoded once to see that it can be."""
        codec = Codec(self.program)
        result = {}
        for name in config.switches:
            entities = build(config, name)
            by_key(entities)
            for entity in entities:
                codec.update(Update(Kind.INSERT, entity))
            result[name] = entities
        return result

    def _start(self, entities: dict[str, list[Entity]]) -> None:
        for name, switch in self._config.switches.items():
            if name not in self._sessions:
                session = SwitchSession(
                    name,
                    switch.address,
                    switch.device_id,
                    self.program,
                    election_id=self._election_id,
                    on_packet=self._on_packet,
                    observer=self,
                    client=self._client,
                    on_status=self.telemetry.on_status,
                )
                self._sessions[name] = session
                self._tasks[name] = asyncio.create_task(session.run(), name=f"switch {name}")
            self._sessions[name].set_desired(self.thresholds.laid_over(name, entities[name]))

    async def _stop(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        self._sessions.pop(name, None)

    async def apply(self, config: Config) -> None:
        """Take a new config. Raises ProgramError, and changes nothing, when an entry of it cannot be written.

        Returns before the switches hold it: see `wait_synced`. A switch that left the config is let go as it is.
        """
        self._build(config)  # refused before anything changes
        thresholds.check(config)
        self.dcbx.configure(config)
        running = overlay(config, self.dcbx.runs())
        entities = self._build(running)
        old, leaving = self._config.switches, []
        for name in list(self._sessions):
            new = config.switches.get(name)
            if new is None or (new.address, new.device_id) != (old[name].address, old[name].device_id):
                del self._sessions[name]
                leaving.append(self._tasks.pop(name))
        self._config, self._running, self._entities = config, running, entities
        self.watchdog.configure(running)
        self.thresholds.configure(running)
        self.telemetry.configure(running)
        self.deadlock.configure(running)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        self._start(self._entities)  # DCBX may have made them anew meanwhile

    async def wait_synced(self, timeout: float | None = None, switches: Iterable[str] | None = None) -> None:
        """Wait until the switches (default: all) hold the config in force.

        Raises TimeoutError after `timeout` seconds, naming each switch that is behind, its state and its last error.
        """
        names = list(self._sessions if switches is None else switches)
        sessions = [self.session(name) for name in names]
        try:
            async with asyncio.timeout(timeout):
                for session in sessions:
                    await session.wait_synced()
        except TimeoutError:
            behind = [
                f"{s.name}: {s.status.state.value}" + (f": {s.status.last_error}" if s.status.last_error else "")
                for s in sessions
                if not s.synced
            ]
            raise TimeoutError(f"not synced after {timeout} s: {'; '.join(behind)}") from None

    def session(self, switch: str) -> SwitchSession:
        """The session of a switch. KeyError, naming the switches there are; NotConnectedError before it has one."""
        if switch not in self._sessions:
            if switch in self.config.switches:
                raise NotConnectedError(f"switch {switch}: not connected: the controller is not running")
            raise KeyError(f"switch {switch}: not in the config (known: {', '.join(self._sessions) or 'none'})")
        return self._sessions[switch]

    def status(self) -> list[SwitchStatus]:
        """A snapshot of every session, in the order of the config."""
        return [self._sessions[name].status for name in self._config.switches if name in self._sessions]

    def _ports(self, switch: str, ports: Iterable[int] | None) -> Sequence[int]:
        return sorted(self._config.switches[switch].ports) if ports is None else list(ports)

    async def read_counters(
        self, switch: str, names: Iterable[str], ports: Iterable[int] | None = None
    ) -> dict[str, dict[Cell, CounterValue]]:
        """Counters by name -> (port, n) -> value, for `ports` (default: those in the config).

        Raises KeyError, ProgramError (unknown counter), NotConnectedError, finsy.P4ClientError.
        """
        session = self.session(switch)
        return await state.read_counters(session.read, self.program, names, self._ports(switch, ports))

    async def read_registers(
        self, switch: str, names: Iterable[str], ports: Iterable[int] | None = None
    ) -> dict[str, dict[Cell, int]]:
        """Registers by name -> (port, n) -> value; errors as in `read_counters`.

        No cells for any name where the switch serves no registers (BMv2: docs/targets.md).
        """
        session = self.session(switch)
        wanted = list(names)
        try:
            return await state.read_registers(session.read, self.program, wanted, self._ports(switch, ports))
        except P4ClientError as error:
            if error.code is not GRPCStatusCode.UNIMPLEMENTED:
                raise
            return {name: {} for name in wanted}

    async def clear_counters(
        self,
        switch: str,
        names: Iterable[str],
        ports: Iterable[int] | None = None,
        registers: Iterable[str] = (),
    ) -> None:
        """Set counters, and watermark registers, of some ports to 0."""
        session = self.session(switch)
        updates = state.clear_updates(self.program, names, registers, self._ports(switch, ports))
        for first in range(0, len(updates), _WRITES_PER_CLEAR):
            await session.write_raw(updates[first : first + _WRITES_PER_CLEAR])

    async def packet_out(self, switch: str, port: int, payload: bytes, queue: int = 0) -> None:
        """Send a frame out of a port of a switch, unchanged."""
        await self.session(switch).packet_out(port, payload, queue)

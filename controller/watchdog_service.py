"""PFC watchdogs of a controller: one task per switch reads, lets `controller.watchdog` decide, and writes.

Samples flow in by P4Runtime reads in the rhythm of the poll interval (and once more where a storm could be told
sooner), events of the switch's own watchdog by packet-ins; `tm_storm` entries flow out. What the switch holds is read
back whenever this controller becomes its primary, so that a controller that starts in a storm takes it over. A
controller that ends leaves its entries, as all else; a watchdog that is stopped takes them back. The clock is the event
loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from finsy import GRPCStatusCode, P4ClientError

from controller.config import Config
from controller.dcbx_service import loop_clock_ns
from controller.entries import Entity
from controller.program import P4Program, ProgramError
from controller.switches import NotConnectedError, PacketIn, SwitchSession, SwitchState, describe
from controller.waiting import event_or_time
from controller.watchdog import TM_STORM, Pair, WatchdogAgent, WatchdogEvent
from controller.watchdog_read import can_watch, read_states, read_storms, storm_updates
from dcb.watchdog import Action

LOGGER = logging.getLogger("dcblab.controller")
STORM_REASON, RESTORED_REASON = 4, 5  # of packet-ins (docs/contract.md, section 2)
_SHORTEST_WAIT_NS = 1_000_000


class SwitchWatchdog:
    """The agent of a switch with what its task needs to know."""

    def __init__(self, agent: WatchdogAgent) -> None:
        self.agent = agent
        self.primary = False
        self.held: dict[Pair, Action] | None = None  # tm_storm entries of the switch; None: to be read
        self.fault = ""  # why it cannot watch now
        self.next_poll_ns = 0
        self.epoch = 0  # counts the times that this controller became primary
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """True where there is nothing to look at and nothing to take back."""
        return not self.primary or (not self.agent.watches and not self.agent.big_red and self.held == {})


class WatchdogService:
    """The watchdogs of a controller. `session(switch)` is the controller's, and may raise NotConnectedError."""

    def __init__(
        self,
        program: P4Program,
        session: Callable[[str], SwitchSession],
        clock_ns: Callable[[], int] = loop_clock_ns,
    ) -> None:
        self.switches: dict[str, SwitchWatchdog] = {}
        self.listeners: list[Callable[[WatchdogEvent], None]] = []
        self.clock_ns = clock_ns
        self._program = program
        self._session = session
        self._running = False
        self._news = asyncio.Condition()

    def configure(self, running: Config) -> None:
        """Take the running config (with what DCBX agreed on)."""
        now_ns = self.clock_ns()
        for name in [name for name in self.switches if name not in running.switches]:
            task = self.switches.pop(name).task
            if task is not None:
                task.cancel()
        for name in running.switches:
            if name not in self.switches:
                self.switches[name] = SwitchWatchdog(WatchdogAgent(name, self._tell))
                if self._running:
                    self._start(name)
            watchdog = self.switches[name]
            poll_ns = watchdog.agent.poll_ns
            watchdog.agent.configure(running, now_ns)
            if watchdog.agent.poll_ns != poll_ns:
                watchdog.next_poll_ns = now_ns
            watchdog.wake.set()

    def _tell(self, event: WatchdogEvent) -> None:
        LOGGER.warning("%s: %s", event.switch, event.text)
        for listener in self.listeners:
            listener(event)

    # ---- what sessions tell ---------------------------------------------------------------------------------------

    def on_primary(self, switch: str, held: Sequence[Entity]) -> None:
        """The controller has become primary on a switch, which may have been restarted."""
        watchdog = self.switches.get(switch)
        if watchdog is not None:
            watchdog.primary, watchdog.held, watchdog.fault = True, None, ""
            watchdog.epoch += 1
            watchdog.agent.lost_sight()
            watchdog.wake.set()

    def on_backup(self, switch: str) -> None:
        """Another controller is primary on a switch, and watches."""
        watchdog = self.switches.get(switch)
        if watchdog is not None:
            watchdog.primary, watchdog.fault = False, "another controller is primary"
            watchdog.agent.lost_sight()

    def on_packet(self, switch: str, packet: PacketIn) -> None:
        """Any packet-in; only the events of the switch's own watchdog are looked at."""
        watchdog = self.switches.get(switch)
        if watchdog is not None and packet.reason in (STORM_REASON, RESTORED_REASON):
            pair = (packet.ingress_port, packet.priority)
            watchdog.agent.told(pair, packet.reason == STORM_REASON, self.clock_ns())
            watchdog.wake.set()

    # ---- the tasks ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a task for each switch."""
        self._running = True
        for name in self.switches:
            self._start(name)

    def _start(self, name: str) -> None:
        self.switches[name].task = asyncio.create_task(self._run(self.switches[name]), name=f"pfcwd {name}")

    async def stop(self) -> None:
        """End the tasks. What the switches hold stays."""
        self._running = False
        tasks = [watchdog.task for watchdog in self.switches.values() if watchdog.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def wait_news(self, seen: dict[str, int], timeout_s: float) -> None:
        """Return when something has been logged beyond `seen` (switch -> number), or the time is over."""

        def news() -> bool:
            return any(dog.agent.logged > seen.get(name, 0) for name, dog in self.switches.items())

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._news:
                await self._news.wait_for(news)

    async def wait_applied(self, timeout_s: float) -> None:
        """Return when every switch that can be reached holds the mitigation that is wanted, or the time is over."""

        def applied() -> bool:
            return all(dog.idle or dog.fault or dog.held == dog.agent.wanted() for dog in self.switches.values())

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._news:
                await self._news.wait_for(applied)

    async def _run(self, watchdog: SwitchWatchdog) -> None:
        agent = watchdog.agent
        while True:
            watchdog.wake.clear()
            try:
                await self.step(watchdog)
            except (NotConnectedError, P4ClientError, OSError, ProgramError) as error:
                self._failed(watchdog, error)
            except Exception as error:  # a fault in one switch's watchdog must not blind the others
                LOGGER.exception("%s: PFC watchdog failed", agent.name)
                self._failed(watchdog, error)
            async with self._news:
                self._news.notify_all()
            wait_ns = self._wait_ns(watchdog)
            await event_or_time(watchdog.wake, None if wait_ns is None else wait_ns / 1e9)

    def _wait_ns(self, watchdog: SwitchWatchdog) -> int | None:
        """Until the next look; None: until something changes."""
        if watchdog.idle:
            return None
        now_ns, poll_ns = self.clock_ns(), watchdog.agent.poll_ns
        if watchdog.next_poll_ns <= now_ns:  # a late poll does not shift those that follow
            missed = (now_ns - watchdog.next_poll_ns) // poll_ns + 1
            watchdog.next_poll_ns += missed * poll_ns
        due_ns = watchdog.agent.due_ns()
        at_ns = watchdog.next_poll_ns if due_ns is None else min(watchdog.next_poll_ns, due_ns)
        return max(at_ns - now_ns, _SHORTEST_WAIT_NS)

    def _failed(self, watchdog: SwitchWatchdog, error: BaseException) -> None:
        watchdog.agent.lost_sight()
        text = describe(error)
        if isinstance(error, P4ClientError) and error.code is GRPCStatusCode.UNIMPLEMENTED:
            text = "the switch serves no registers: it cannot be watched"
        if text != watchdog.fault:
            quiet = isinstance(error, NotConnectedError)  # the session says so already
            LOGGER.log(logging.DEBUG if quiet else logging.WARNING, "%s: PFC watchdog: %s", watchdog.agent.name, text)
        watchdog.fault = text

    async def step(self, watchdog: SwitchWatchdog) -> None:
        """One look at a switch, and what follows from it. Raises NotConnectedError, P4ClientError, ProgramError."""
        agent = watchdog.agent
        if watchdog.idle:
            return
        if not can_watch(self._program):
            if not agent.watches and not agent.big_red:
                watchdog.held = {}
                return
            raise ProgramError("the P4 program has no tm_storm or no counters of queues: the switch cannot be watched")
        session = self._session(agent.name)
        if session.status.state is SwitchState.DISCONNECTED:
            raise NotConnectedError(f"switch {agent.name}: not connected")
        if watchdog.held is None:
            watchdog.held = await read_storms(session.read, session.codec)
            agent.adopt(watchdog.held, self.clock_ns())
        if agent.watches:
            states = await read_states(session.read, self._program, agent.watches.values(), self.clock_ns)
            lost = [pair for pair in watchdog.held if pair in states and not states[pair].storm_state & TM_STORM]
            if lost:  # somebody else took entries away, or pushed the pipeline anew
                watchdog.held = await read_storms(session.read, session.codec)
            agent.take(states)
        wanted = agent.wanted()
        updates = storm_updates(session.codec, watchdog.held, wanted)
        if updates:
            epoch, watchdog.held = watchdog.epoch, None  # if the switch does not take all of it, it is asked again
            await session.write_raw(updates)
            if watchdog.epoch == epoch:
                watchdog.held = wanted
        watchdog.fault = ""

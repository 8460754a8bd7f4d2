"""Telemetry in time: polls the switches, lets `Collector` and `Alarms` judge, tells the event hub, serves Prometheus.

One task of a `Controller`, which owns it; the clock is the event loop's. After each round there is a new `Snapshot`,
which is immutable: the HTTP server's threads, `dcbctl` and tests read the newest. A switch that does not answer is
missing from a round. Without the key `telemetry` the task sleeps, but where ports have storm control: their alarm is
always on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from finsy import P4ClientError

from controller.alarms import Alarm, Alarms
from controller.config import Config
from controller.dcbx_service import DcbxService, loop_clock_ns
from controller.events import EventHub
from controller.program import P4Program
from controller.prometheus import Endpoint
from controller.switches import NotConnectedError, SwitchSession, SwitchState, SwitchStatus
from controller.telemetry import STORM_COUNTER, Collector, Interval, SwitchSample
from controller.telemetry_config import Telemetry
from controller.telemetry_read import COUNTERS, REGISTERS, read_sample
from controller.waiting import event_or_time
from controller.watchdog import WatchdogEvent

LOGGER = logging.getLogger("dcblab.controller")
_NS_PER_MS = 10**6
_LONG_S = 3600.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known after a round. `config` is what runs. `rounds` counts them."""

    config: Config
    rounds: int = 0
    samples: Mapping[str, SwitchSample] = field(default_factory=dict)
    interval: Interval | None = None
    alarms: tuple[Alarm, ...] = ()
    rules: Alarms = field(default_factory=Alarms)
    switches: tuple[str, ...] = ()  # of the config, whether or not they answered


class TelemetryService:
    """See the module. `session(switch)` is the controller's, and may raise NotConnectedError."""

    def __init__(
        self,
        program: P4Program,
        session: Callable[[str], SwitchSession],
        hub: EventHub,
        clock_ns: Callable[[], int] = loop_clock_ns,
        dcbx: DcbxService | None = None,
    ) -> None:
        self.hub = hub
        self._dcbx = dcbx
        self.alarms = Alarms()
        self.collector = Collector()
        self.endpoint = Endpoint(lambda: self.snapshot)
        self.clock_ns = clock_ns
        self._program = program
        self._session = session
        self._config = Config()
        self._settings: Telemetry | None = None
        self._storm_control = False
        self._started = False
        self.snapshot = Snapshot(self._config)
        self._wake = asyncio.Event()
        self._round = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []

    def configure(self, running: Config) -> None:
        """Take the running config (with what DCBX agreed on)."""
        self._config = running
        storm_control = any(
            port.pfc_storm_control is not None for switch in running.switches.values() for port in switch.ports.values()
        )
        if storm_control and not self._storm_control:
            self._wake.set()
        self._storm_control = storm_control
        settings = running.telemetry
        if settings == self._settings and self._started:
            return
        self._settings = settings
        active = settings or Telemetry()
        self.alarms.configure(active.thresholds, active.hysteresis)
        if self._started:
            self._publish()
        self._wake.set()

    def _publish(self) -> None:
        settings = self._settings or Telemetry()
        self.hub.write_to(settings.events)
        self.endpoint.serve(settings.endpoint if settings.prometheus is not None else None)

    def start(self) -> None:
        """Open the events' file and the Prometheus endpoint, start the task."""
        self._started = True
        self._publish()
        self._tasks = [
            asyncio.create_task(self._run(), name="telemetry"),
            asyncio.create_task(self._follow_dcbx(), name="events of DCBX"),
        ]

    async def stop(self) -> None:
        """End the task, close endpoint and file."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self._started = False
        self.endpoint.serve(None)
        self.hub.close()

    async def wait_round(self, after: int) -> Snapshot:
        """The first snapshot of a round beyond number `after`; no time-out of its own."""
        async with self._round:
            await self._round.wait_for(lambda: self.snapshot.rounds > after)
        return self.snapshot

    async def sample(self, switch: str, earlier: SwitchSample | None = None) -> SwitchSample:
        """A complete sample of a switch, now. Raises KeyError, NotConnectedError, P4ClientError."""
        ports = sorted(self._config.switches[switch].ports)
        return await read_sample(self._session(switch).read, self._program, ports, self.clock_ns, earlier)

    # ---- events of others -----------------------------------------------------------------------------------------

    def on_watchdog(self, event: WatchdogEvent) -> None:
        """Of the PFC watchdog."""
        self.hub.emit(
            "watchdog",
            event.text,
            switch=event.switch,
            port=event.name,
            time_ns=event.time_ns,
            priority=event.priority,
            queue=event.queue,
            event=event.kind,
            action=event.action,
        )

    async def _follow_dcbx(self) -> None:
        if self._dcbx is None:
            return
        seen: dict[str, int] = {}
        while True:
            for name, agent in self._dcbx.agents.items():
                for line in agent.log:
                    if line.number > seen.get(name, 0):
                        self.hub.emit(
                            "dcbx", line.text, switch=name, port=line.port, time_ns=line.time_ns, event=line.kind
                        )
                seen[name] = agent.logged
            await self._dcbx.wait_news(seen, _LONG_S)

    def on_status(self, before: SwitchStatus, after: SwitchStatus) -> None:
        """Of a session."""
        if after.state is before.state or (before.state, after.state) == (SwitchState.SYNCED, SwitchState.SYNCING):
            return
        text = after.state.value
        if after.state is SwitchState.SYNCED:
            text += f": {after.last_sync_updates} updates written"
        elif after.last_error:
            text += f": {after.last_error}"
        self.hub.emit("session", text, switch=after.name, state=after.state.value)

    # ---- the task -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        due_ns = self.clock_ns()
        while True:
            self._wake.clear()
            if self._settings is None and not self._storm_control:
                self._judge({})
                while self.alarms.standing():  # nobody looks any more: what stands is over
                    self._judge({})
                await self._wake.wait()
                due_ns = self.clock_ns()
                continue
            try:
                await self._poll()
            except Exception:  # a fault of telemetry must not end it, let alone the controller
                LOGGER.exception("telemetry failed")
            period_ns = (self._settings or Telemetry()).interval_ms * _NS_PER_MS
            now_ns = self.clock_ns()
            due_ns += period_ns * max(1, -(-(now_ns - due_ns) // period_ns))  # rounds that are too late are left out
            if await event_or_time(self._wake, (due_ns - now_ns) / 1e9):
                due_ns = self.clock_ns()

    async def _poll(self) -> None:
        names = list(self._config.switches)
        found = await asyncio.gather(*(self._one(name) for name in names))
        self._judge({name: sample for name, sample in zip(names, found, strict=True) if sample is not None})
        async with self._round:
            self._round.notify_all()

    async def _one(self, switch: str) -> SwitchSample | None:
        ports = self._config.switches[switch].ports
        earlier = self.collector.last.get(switch)
        every = self._settings is not None
        chosen = sorted(ports if every else (n for n, port in ports.items() if port.pfc_storm_control is not None))
        names = (COUNTERS, REGISTERS) if every else ((STORM_COUNTER,), ())
        try:
            read = self._session(switch).read
            return await read_sample(read, self._program, chosen, self.clock_ns, earlier, *names)
        except (NotConnectedError, P4ClientError, OSError, KeyError) as error:
            LOGGER.debug("%s: telemetry: %s", switch, error)
            return None

    def _judge(self, samples: Mapping[str, SwitchSample]) -> None:
        config, active = self._config, self._settings or Telemetry()
        interval = self.collector.take(samples, config, active.thresholds)
        for alarm in self.alarms.take(interval.readings, self.clock_ns()):
            reading, rule = alarm.reading, alarm.rule
            word = "raised" if alarm.raised else "cleared"
            sign = ">" if rule.at_most else ">="
            text = f"{rule.title}, {reading.where}: {word}"
            text += f": {reading.value} {sign} {rule.limit} {rule.unit}" if alarm.raised else f" (worst {alarm.worst})"
            self.hub.emit(
                "alarm",
                text,
                switch=reading.labels.get("switch", ""),
                port=reading.labels.get("port", ""),
                metric=rule.metric,
                where=reading.where,
                raised=alarm.raised,
                value=reading.value,
                threshold=rule.limit,
                unit=rule.unit,
                worst=alarm.worst,
                detail=reading.detail,
                advice=rule.advice,
            )
        self.snapshot = Snapshot(
            config,
            self.snapshot.rounds + 1,
            dict(samples),
            interval,
            tuple(self.alarms.standing()),
            self.alarms,
            tuple(config.switches),
        )

"""The PFC watchdog of one switch: what is watched, what is known of it, what is to be done. Sans-IO.

`configure` says what is watched, `adopt` what the switch holds already (of an earlier controller), `take` brings
samples, `told` what the switch's own watchdog says. `wanted` is the answer: the `tm_storm` entries that the switch is
to hold. They are state of the run and no part of the desired config: `controller.desired` neither makes nor deletes
them. `controller.watchdog_service` does the reading and the writing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controller.config import Config
from controller.watchdog_config import Watched, lossless_pairs, watched
from dcb.watchdog import MS, Action, Change, Machine, Sample

Pair = tuple[int, int]  # port, priority
_LOG_LENGTH = 1000
OWN_STORM, TM_STORM = 0b101, 0b010  # bits of storm_state (docs/contract.md, section 3): by the switch, by tm_storm


@dataclass(frozen=True, slots=True)
class WatchdogEvent:
    """Something that happened. `time_ns` is of the service's clock; `kind`: storm, restored, taken over, stopped."""

    number: int
    time_ns: int
    switch: str
    port: int
    name: str
    priority: int
    queue: int
    kind: str
    action: str
    text: str


@dataclass(frozen=True, slots=True)
class State:
    """What one read of a switch says of a (port, priority). storm_state: OWN_STORM, TM_STORM."""

    sample: Sample
    storm_state: int = 0
    storm_count: int = 0


class Watch:
    """One (port, priority): its settings and its state machine."""

    def __init__(self, of: Watched, name: str) -> None:
        self.of = of
        self.name = name
        self.machine = Machine(of.settings)
        self.storm_count: int | None = None  # of the switch's own watchdog: those that are known of
        self.differs = False  # the last look at the switch showed something else than its events

    @property
    def by_switch(self) -> bool:
        """True where the switch's own timer watches."""
        return self.of.mode == "switch"


class WatchdogAgent:
    """See the module."""

    def __init__(self, name: str, on_event: Callable[[WatchdogEvent], None] = lambda event: None) -> None:
        self.name = name
        self.watches: dict[Pair, Watch] = {}
        self.big_red: tuple[Pair, ...] = ()
        self.poll_ns = 200 * MS
        self.log: deque[WatchdogEvent] = deque(maxlen=_LOG_LENGTH)
        self.logged = 0
        self._on_event = on_event

    # ---- what it is told ------------------------------------------------------------------------------------------

    def configure(self, config: Config, now_ns: int) -> None:
        """Take the running config. Storms go on through a change; where nothing is watched any more they end."""
        self.poll_ns = config.pfc_watchdog.poll_interval_ms * MS
        self.big_red = tuple(lossless_pairs(config, self.name)) if config.pfc_watchdog.big_red_switch else ()
        switch = config.switches[self.name]
        found = {(of.port, of.priority): of for of in watched(config, self.name)}
        for pair in [pair for pair in self.watches if pair not in found]:
            watch = self.watches.pop(pair)
            if watch.machine.stormed:
                self._say(watch, now_ns, "stopped", "PFC Watchdog stopped, mitigation ends")
        for pair, of in found.items():
            name = switch.ports[of.port].name or f"{self.name}:{of.port}"
            watch = self.watches.setdefault(pair, Watch(of, name))
            if watch.of.mode != of.mode or watch.of.queue != of.queue:
                watch.machine.lost_sight()
                watch.storm_count = None
            watch.of, watch.name = of, name
            watch.machine.configure(of.settings)

    def adopt(self, held: Mapping[Pair, Action], now_ns: int) -> None:
        """The `tm_storm` entries that the switch holds, when this controller becomes its primary."""
        for pair in held:
            watch = self.watches.get(pair)
            if watch is not None and not watch.by_switch and not watch.machine.stormed and not self.big_red:
                watch.machine.adopt(now_ns)
                self._say(watch, now_ns, "taken over", "PFC Watchdog took over a PFC storm")

    def take(self, states: Mapping[Pair, State]) -> None:
        """A sample of each (port, priority)."""
        for pair, state in states.items():
            watch = self.watches.get(pair)
            if watch is None:
                continue
            if watch.by_switch:
                self._take_switch(watch, state)
            else:
                self._changed(watch, watch.machine.sample(state.sample), state.sample.time_ns)

    def _take_switch(self, watch: Watch, state: State) -> None:
        """The switch decides and sends events; what it says when asked makes up for events that were lost."""
        machine, now_ns = watch.machine, state.sample.time_ns
        machine.observe(state.sample)
        stormed = bool(state.storm_state & OWN_STORM)
        if watch.storm_count is None or state.storm_count < watch.storm_count:  # first look, or a restarted switch
            if stormed and not machine.stormed:
                machine.adopt(now_ns)
                self._say(watch, now_ns, "taken over", "PFC Watchdog took over a PFC storm")
            elif not stormed:
                self._changed(watch, machine.told(False, now_ns), now_ns)
            watch.storm_count = state.storm_count
            return
        unseen = state.storm_count - watch.storm_count
        if not unseen and stormed == machine.stormed:
            watch.differs = False
            return
        if not watch.differs:  # the events may be on their way: look once more
            watch.differs = True
            return
        if unseen:  # the storm that was known is over; the newest of those that were missed may be the one that runs
            self._changed(watch, machine.told(False, now_ns), now_ns)
            machine.missed(unseen - int(stormed))
        self._changed(watch, machine.told(stormed, now_ns), now_ns)
        watch.storm_count, watch.differs = state.storm_count, False

    def told(self, pair: Pair, stormed: bool, now_ns: int) -> None:
        """An event of the switch's own watchdog. It may be of a (port, priority) that is watched no more."""
        watch = self.watches.get(pair)
        if watch is None or not watch.by_switch:
            return
        change = watch.machine.told(stormed, now_ns)
        if change is Change.DETECTED and watch.storm_count is not None:
            watch.storm_count += 1
        self._changed(watch, change, now_ns)

    def lost_sight(self) -> None:
        """The switch cannot be asked."""
        for watch in self.watches.values():
            watch.machine.lost_sight()

    # ---- what it answers ------------------------------------------------------------------------------------------

    def wanted(self) -> dict[Pair, Action]:
        """The `tm_storm` entries that the switch is to hold."""
        if self.big_red:
            return dict.fromkeys(self.big_red, Action.DROP)
        return {
            pair: watch.of.settings.action
            for pair, watch in self.watches.items()
            if watch.machine.stormed and not watch.by_switch and watch.of.settings.action is not Action.ALERT
        }

    def due_ns(self) -> int | None:
        """When a look before the next poll would show something."""
        due = [watch.machine.due_ns() for watch in self.watches.values() if not watch.by_switch]
        return min((time_ns for time_ns in due if time_ns is not None), default=None)

    # ---- events ---------------------------------------------------------------------------------------------------

    def _changed(self, watch: Watch, change: Change | None, now_ns: int) -> None:
        if change is Change.DETECTED:
            self._say(watch, now_ns, "storm", "PFC Watchdog detected PFC storm")
        elif change is Change.RESTORED:
            self._say(watch, now_ns, "restored", "PFC Watchdog storm restored")

    def _say(self, watch: Watch, now_ns: int, kind: str, what: str) -> None:
        self.logged += 1
        of, action = watch.of, watch.of.settings.action.value
        text = f"{what} on port {watch.name}, queue index {of.queue}, priority {of.priority}, action {action}"
        event = WatchdogEvent(
            *(self.logged, now_ns, self.name, of.port, watch.name, of.priority, of.queue, kind, action, text)
        )
        self.log.append(event)
        self._on_event(event)

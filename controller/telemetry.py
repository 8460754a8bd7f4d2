"""Telemetry of a fabric: samples of what switches count, and the time, in; figures of the interval and readings out.

Sans-IO. `controller.telemetry_service` reads a `SwitchSample` from every switch and hands them to `Collector.take`,
which keeps the last ones and returns an `Interval`: what happened between two samples, and the readings that alarms
judge. What a target does not serve (BMv2 has no registers) is missing from a sample and from what is made of it.
Counters that went backwards (cleared, or a switch that started again) count from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from controller.alarms import HOPS, LATENCY, PFC_RATE, RECOVERY, STORM_CONTROL, Reading
from controller.config import CbsSlope, Config, EtsWeight, Port
from controller.histogram import Histogram
from controller.propagation import Pauses, Spread, Wiring, spread
from controller.state import Cell, CounterValue
from controller.telemetry_config import Thresholds

NS_PER_S = 10**9
CELLS = range(8)

Counters = Mapping[str, Mapping[Cell, CounterValue]]
Registers = Mapping[str, Mapping[Cell, int]]
Histograms = Mapping[str, Mapping[Cell, Histogram]]

DELAY, PAUSE, XOFF = "egress.tm_delay_histogram", "egress.tm_pause_histogram", "egress.tm_xoff_histogram"
STORM_COUNTER = "ingress.pfc_rx_storm"


@dataclass(frozen=True, slots=True)
class SwitchSample:
    """What one switch counted up to `time_ns`; by full name of counter or register, then (port, n).

    `pools`: register name -> pool -> bytes.
    """

    time_ns: int
    counters: Counters = field(default_factory=dict)
    registers: Registers = field(default_factory=dict)
    histograms: Histograms = field(default_factory=dict)
    pools: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def packets(self, name: str, port: int, n: int) -> int:
        """Packets of a counter cell; 0 where there is none."""
        return self.counters.get(name, {}).get((port, n), CounterValue()).packets

    def bytes(self, name: str, port: int, n: int) -> int:
        """Bytes of a counter cell; 0 where there is none."""
        return self.counters.get(name, {}).get((port, n), CounterValue()).bytes

    def register(self, name: str, port: int, n: int) -> int | None:
        """A register cell; None where the target does not serve it."""
        return self.registers.get(name, {}).get((port, n))

    def histogram(self, name: str, port: int, n: int) -> Histogram:
        """A histogram; empty where there is none."""
        return self.histograms.get(name, {}).get((port, n), Histogram())


def _since(now: int, before: int) -> int:
    return now if now < before else now - before


class SwitchInterval:
    """What a switch did between two samples, `seconds` apart."""

    def __init__(self, before: SwitchSample, after: SwitchSample) -> None:
        self.before, self.after = before, after
        self.duration_ns = max(1, after.time_ns - before.time_ns)

    def packets(self, name: str, port: int, n: int) -> int:
        """Packets counted in the interval."""
        return _since(self.after.packets(name, port, n), self.before.packets(name, port, n))

    def bytes(self, name: str, port: int, n: int) -> int:
        """Bytes counted in the interval."""
        return _since(self.after.bytes(name, port, n), self.before.bytes(name, port, n))

    def grew(self, name: str, port: int, n: int) -> int:
        """By how much a register that only grows grew; 0 where it is not served."""
        return _since(self.after.register(name, port, n) or 0, self.before.register(name, port, n) or 0)

    def histogram(self, name: str, port: int, n: int) -> Histogram:
        """Durations that ended in the interval."""
        return self.after.histogram(name, port, n).since(self.before.histogram(name, port, n))

    def sent_bytes(self, port: int) -> dict[int, int]:
        """Bytes that each queue of a port sent."""
        return {queue: self.bytes("egress.tm_dequeued", port, queue) for queue in CELLS}

    def per_second(self, count: int) -> int:
        """A rate, rounded down."""
        return count * NS_PER_S // self.duration_ns


@dataclass(frozen=True, slots=True)
class Interval:
    """A fabric between two rounds of samples. `switches`: those that answered both times."""

    time_ns: int
    switches: Mapping[str, SwitchInterval]
    readings: tuple[Reading, ...]
    spreads: Mapping[int, Spread]  # by priority


def queue_of_highest_priority(config: Config, port: Port, sent: Callable[[int], int]) -> int | None:
    """The queue that the scheduler serves before all others, of those that `sent` frames.

    Strict queues by index; a port without them: queues behind a shaper; without those too: ETS, which has no order, by
    index. None where none of them sent anything.
    """
    profile = config.ets_of(port)
    strict = [queue for queue, scheduler in profile.items() if scheduler == "strict"]
    shaped = [queue for queue, scheduler in profile.items() if isinstance(scheduler, CbsSlope)]
    for queue in sorted(strict or shaped or CELLS, reverse=True):
        if sent(queue):
            return queue
    return None


def ets_shares(config: Config, port: Port, sent_bytes: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Of each ETS queue that the config names: (share of the bytes that these queues sent, share by weight), in 1/1000.

    Nothing where they sent nothing. The two need only agree while all of these queues have something to send.
    """
    weights = {q: s.ets for q, s in config.ets_of(port).items() if isinstance(s, EtsWeight)}
    total_bytes, total = sum(sent_bytes[queue] for queue in weights), sum(weights.values())
    if not total_bytes:
        return {}
    return {q: (1000 * sent_bytes[q] // total_bytes, 1000 * weight // total) for q, weight in sorted(weights.items())}


class Collector:
    """Keeps the last sample of each switch, and how long each XOFF that has not ended is going on."""

    def __init__(self) -> None:
        self._last: dict[str, SwitchSample] = {}
        self._xoff_since: dict[tuple[str, int, int], tuple[int, int]] = {}  # -> (count, time it was first seen)
        self._wiring: tuple[Config, Wiring] | None = None

    @property
    def last(self) -> Mapping[str, SwitchSample]:
        """The newest sample of each switch."""
        return self._last

    def take(self, samples: Mapping[str, SwitchSample], config: Config, thresholds: Thresholds) -> Interval:
        """One round. `config`: what runs. A switch that is not in `samples` did not answer, and is forgotten."""
        time_ns = max((sample.time_ns for sample in samples.values()), default=0)
        intervals = {
            name: SwitchInterval(self._last[name], sample)
            for name, sample in samples.items()
            if name in self._last and name in config.switches
        }
        self._last = dict(samples)
        readings: list[Reading] = []
        for name, interval in intervals.items():
            for number, port in config.switches[name].ports.items():
                readings += self._port(config, name, number, port, interval, thresholds)
        spreads = spread(self._wired(config), self._pauses(config, intervals))
        readings += [
            Reading(HOPS, f"priority {p}", s.hops, {"priority": str(p)}, str(s)) for p, s in spreads.items() if s.hops
        ]
        return Interval(time_ns, intervals, tuple(readings), spreads)

    def _wired(self, config: Config) -> Wiring:
        if self._wiring is None or self._wiring[0] is not config:
            self._wiring = config, Wiring(config)
        return self._wiring[1]

    def _port(
        self, config: Config, switch: str, number: int, port: Port, seen: SwitchInterval, thresholds: Thresholds
    ) -> Iterator[Reading]:
        place = port.name or f"{switch}:{number}"
        labels = {"switch": switch, "port": place}
        for direction, counter in (("rx", "ingress.pfc_rx_xoff"), ("tx", "egress.pfc_tx_xoff")):
            for priority in CELLS:
                if frames := seen.packets(counter, number, priority):
                    where = f"{place} priority {priority} {direction}"
                    own = labels | {"priority": str(priority), "direction": direction}
                    yield Reading(PFC_RATE, where, seen.per_second(frames), own)
        queue = queue_of_highest_priority(config, port, lambda q: seen.packets("egress.tm_dequeued", number, q))
        if queue is not None:
            delay = seen.histogram(DELAY, number, queue)
            latency_ns = delay.quantile_ns(thresholds.quantile)
            if latency_ns is not None:
                own = labels | {"queue": str(queue)}
                detail = f"p{thresholds.quantile} of {delay.total} frames"
                yield Reading(LATENCY, f"{place} queue {queue}", latency_ns, own, detail)
        for pg in CELLS:
            ended, going_on = seen.histogram(XOFF, number, pg), self._going_on(switch, number, pg, seen.after)
            recovery_ns = max(ended.quantile_ns(thresholds.quantile) or 0, going_on)
            if ended.total or going_on:
                own = labels | {"pg": str(pg)}
                detail = f"p{thresholds.quantile} of {ended.total} XOFF states" + (", one still XOFF" * bool(going_on))
                yield Reading(RECOVERY, f"{place} priority group {pg}", recovery_ns, own, detail)
        for n, action in enumerate(("ignored", "counted")):
            if frames := seen.packets(STORM_COUNTER, number, n):
                yield Reading(STORM_CONTROL, f"{place} {action}", frames, labels | {"action": action})

    def _going_on(self, switch: str, port: int, pg: int, sample: SwitchSample) -> int:
        """For how long at least the XOFF state that a group is in has lasted, ns; 0 of a group that is not XOFF."""
        key = (switch, port, pg)
        if not sample.register("egress.tm_pg_xoff", port, pg):
            self._xoff_since.pop(key, None)
            return 0
        count = sample.register("egress.tm_xoff_count", port, pg) or 0
        known = self._xoff_since.get(key)
        if known is None or known[0] != count:
            self._xoff_since[key] = count, sample.time_ns
            return 0
        return sample.time_ns - known[1]

    @staticmethod
    def _pauses(config: Config, intervals: Mapping[str, SwitchInterval]) -> Pauses:
        """Who was XOFF, and which edge was paused, at some time in the interval."""
        found = Pauses(set(), set())
        for name, seen in intervals.items():
            for number, port in config.switches[name].ports.items():
                qos = config.qos_of(port)
                for priority in sorted(set(port.pfc)):
                    pg = qos.pg_of(priority)
                    if (
                        seen.after.register("egress.tm_pg_xoff", number, pg)
                        or seen.grew("egress.tm_xoff_ns", number, pg)
                        or seen.packets("egress.pfc_tx_xoff", number, priority)
                    ):
                        found.xoff.add((name, number, priority))
                for priority in CELLS:
                    if seen.after.register("egress.tm_pause_left", number, priority) or seen.grew(
                        "egress.tm_paused_ns", number, priority
                    ):
                        found.paused.add((name, number, priority))
        return found

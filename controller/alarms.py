"""The alarm state machine: readings in, `raised` and `cleared` out. Sans-IO, no clock.

One machine for each key that was ever at its threshold. It is raised by `raise_after` readings in a row that break the
rule, and cleared by `clear_after` readings in a row that keep it by a margin; what is between the two changes nothing.
A key that gives no reading in an interval (no traffic, a switch away) counts as keeping the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controller.telemetry_config import Hysteresis, Thresholds

Key = tuple[str, str]  # metric, where


@dataclass(frozen=True, slots=True)
class Rule:
    """A metric is good below `limit` (`at_most`: up to and including it)."""

    metric: str
    title: str
    limit: int
    unit: str
    advice: str
    at_most: bool = False

    def broken(self, value: int) -> bool:
        """Whether a value is an alarm."""
        return value > self.limit if self.at_most else value >= self.limit

    def calm(self, value: int, clear_percent: int) -> bool:
        """Whether a value is good by the margin that clears an alarm; counts of hops have none."""
        return value <= self.limit if self.at_most else 100 * value < self.limit * clear_percent


PFC_RATE, LATENCY, RECOVERY, HOPS, STORM_CONTROL = "pfc_rate", "latency", "recovery", "hops", "storm_control"


def rules(thresholds: Thresholds) -> dict[str, Rule]:
    """The four metrics of requirement R21, and storm control; times in ns."""
    return {
        rule.metric: rule
        for rule in (
            Rule(
                *(PFC_RATE, "PFC per second", thresholds.pfc_per_second, "frames/s"),
                "look at bursts: who sends at once (dcbctl show buffer: watermarks), and XOFF, which may be too low",
            ),
            Rule(
                *(LATENCY, "latency of the highest-priority queue", 1000 * thresholds.latency_us, "ns"),
                "adjust weights: less may go through this queue, or it wants a larger share (dcbctl show ets)",
            ),
            Rule(
                *(RECOVERY, "XOFF to XON recovery", 1000 * thresholds.recovery_us, "ns"),
                "look at buffers: XON further below XOFF or more headroom; the queue behind it drains too slowly",
            ),
            Rule(
                *(HOPS, "PFC propagation", thresholds.hops, "hops"),
                "isolate: a pause spreads over the fabric; give its traffic a priority or a path of its own",
                at_most=True,
            ),
            Rule(
                *(STORM_CONTROL, "PFC beyond storm control", 1, "frames"),
                "a peer sends more PFC than pfc_storm_control allows: look at its NIC, or raise the rate",
            ),
        )
    }


@dataclass(frozen=True, slots=True)
class Reading:
    """A value of a metric at a place. `labels`: switch, port, priority, ... for machines; `where`: for people."""

    metric: str
    where: str
    value: int
    labels: Mapping[str, str]
    detail: str = ""

    @property
    def key(self) -> Key:
        return self.metric, self.where


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm that was raised or cleared, or stands."""

    rule: Rule
    reading: Reading  # of its raising; of a cleared one the last
    since_ns: int
    raised: bool
    worst: int


@dataclass(slots=True)
class _State:
    reading: Reading
    bad: int = 0
    good: int = 0
    raised_ns: int | None = None
    worst: int = 0


class Alarms:
    """All alarms of a fabric."""

    def __init__(self) -> None:
        self._states: dict[Key, _State] = {}
        self._rules: dict[str, Rule] = rules(Thresholds())
        self._hysteresis = Hysteresis()

    def configure(self, thresholds: Thresholds, hysteresis: Hysteresis) -> None:
        """Take new thresholds; alarms that stand are judged by them from the next readings on."""
        self._rules, self._hysteresis = rules(thresholds), hysteresis

    @property
    def rules(self) -> Mapping[str, Rule]:
        """By metric."""
        return self._rules

    def standing(self) -> list[Alarm]:
        """Alarms that are raised, the oldest first."""
        found = [
            Alarm(self._rules[s.reading.metric], s.reading, s.raised_ns, True, s.worst)
            for s in self._states.values()
            if s.raised_ns is not None
        ]
        return sorted(found, key=lambda alarm: (alarm.since_ns, alarm.reading.key))

    def take(self, readings: Iterable[Reading], now_ns: int) -> list[Alarm]:
        """Readings of one interval; returns what it raised or cleared. ValueError on a key that is given twice."""
        seen: dict[Key, Reading] = {}
        for reading in readings:
            if reading.key in seen:
                raise ValueError(f"{reading.metric} of {reading.where}: given twice")
            seen[reading.key] = reading
        changes = []
        for key, reading in seen.items():
            rule = self._rules[reading.metric]
            if key not in self._states and rule.broken(reading.value):
                self._states[key] = _State(reading)
        for key, state in list(self._states.items()):
            rule, now = self._rules[state.reading.metric], seen.get(key)
            value = 0 if now is None else now.value
            broken, calm = rule.broken(value), rule.calm(value, self._hysteresis.clear_percent)
            state.bad = state.bad + 1 if broken else 0
            state.good = state.good + 1 if calm else 0
            state.worst = max(state.worst, value)
            if now is not None and (broken or state.raised_ns is not None):
                state.reading = now
            if state.raised_ns is None:
                if state.bad >= self._hysteresis.raise_after:
                    state.raised_ns = now_ns
                    changes.append(Alarm(rule, state.reading, now_ns, True, state.worst))
                elif not broken:
                    del self._states[key]
            elif state.good >= self._hysteresis.clear_after:
                changes.append(Alarm(rule, state.reading, state.raised_ns, False, state.worst))
                del self._states[key]
        return changes

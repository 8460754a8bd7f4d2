"""What the control socket answers about telemetry: `state`, `watch`, `events`. As plain JSON data.

`watch` samples the switches twice, an interval apart, so it needs no `telemetry` in the config; alarms are there where
the telemetry service runs. Rates are per second, bytes without FCS, times in ns, shares in 1/1000.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from finsy import P4ClientError

from controller.alarms import Alarm
from controller.config import Config
from controller.control import Controller
from controller.edit import select
from controller.events import KINDS
from controller.reasons import DROPS, DROPS_BY_GROUP, DROPS_BY_PRIORITY, DROPS_BY_QUEUE
from controller.switches import NotConnectedError
from controller.telemetry import DELAY, PAUSE, XOFF, SwitchInterval, SwitchSample, ets_shares
from controller.views import port_head

Json = dict[str, Any]
CELLS = range(8)
_LONGEST_WAIT_S = 30.0
_INTERVAL_MS = (10, 30_000)
_STORM_BITS = ((1, "mitigated by the switch"), (2, "mitigated"), (4, "alert"))


class TelemetryRequestError(ValueError):
    """A request that cannot be answered as it stands."""


async def answer(controller: Controller, params: Mapping[str, Any]) -> Json:
    """`what`: state, watch, or events. Raises TelemetryRequestError, SelectionError."""
    what, target = params.get("what"), params.get("target")
    if target is not None and not isinstance(target, str):
        raise TelemetryRequestError(f"target: {target!r}: a string is wanted")
    if what == "state":
        return _state(controller)
    if what == "watch":
        return await _watch(controller, target, params.get("interval_ms", 1000))
    if what == "events":
        return await _events(controller, params)
    raise TelemetryRequestError(f"what: {what!r}: state, watch or events is wanted")


def _alarm(controller: Controller, alarm: Alarm) -> Json:
    return {
        "metric": alarm.rule.metric,
        "title": alarm.rule.title,
        "where": alarm.reading.where,
        **dict(alarm.reading.labels),
        "value": alarm.reading.value,
        "worst": alarm.worst,
        "threshold": alarm.rule.limit,
        "unit": alarm.rule.unit,
        "detail": alarm.reading.detail,
        "advice": alarm.rule.advice,
        "since": (alarm.since_ns + controller.events.wall_offset_ns) / 1e9,
    }


def _state(controller: Controller) -> Json:
    """The four metrics with threshold, worst reading of the last interval, alarm and advice."""
    snapshot = controller.telemetry.snapshot
    readings = () if snapshot.interval is None else snapshot.interval.readings
    metrics = []
    for metric, rule in controller.telemetry.alarms.rules.items():
        of = [reading for reading in readings if reading.metric == metric]
        worst = max(of, key=lambda reading: reading.value, default=None)
        metrics.append(
            {
                "metric": metric,
                "title": rule.title,
                "threshold": rule.limit,
                "at_most": rule.at_most,
                "unit": rule.unit,
                "advice": rule.advice,
                "value": None if worst is None else worst.value,
                "where": None if worst is None else worst.where,
                "detail": "" if worst is None else worst.detail,
                "alarms": sum(alarm.rule.metric == metric for alarm in snapshot.alarms),
            }
        )
    return {
        "on": snapshot.config.telemetry is not None,
        "rounds": snapshot.rounds,
        "answered": sorted(snapshot.samples),
        "silent": sorted(set(snapshot.switches) - set(snapshot.samples))
        if snapshot.config.telemetry is not None
        else [],
        "prometheus": controller.telemetry.endpoint.url,
        "metrics": metrics,
        "alarms": [_alarm(controller, alarm) for alarm in snapshot.alarms],
    }


async def _events(controller: Controller, params: Mapping[str, Any]) -> Json:
    seen, wait_s, kinds = params.get("seen", 0), params.get("wait_s", 0), params.get("kinds") or list(KINDS)
    if not isinstance(seen, int) or not isinstance(wait_s, int | float) or not isinstance(kinds, list):
        raise TelemetryRequestError("seen, wait_s, kinds: a number, a number and a list are wanted")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise TelemetryRequestError(f"kinds: {unknown[0]!r}: one of {', '.join(KINDS)} is wanted")
    hub = controller.events
    if wait_s > 0:
        await hub.wait(seen, min(float(wait_s), _LONGEST_WAIT_S))
    found = [event.as_json(hub.wall_offset_ns) for event in hub.since(seen) if event.kind in kinds]
    return {"events": found, "seen": hub.newest}


# ---- watch ----------------------------------------------------------------------------------------------------------


async def _watch(controller: Controller, target: str | None, interval_ms: object) -> Json:
    if not isinstance(interval_ms, int) or not _INTERVAL_MS[0] <= interval_ms <= _INTERVAL_MS[1]:
        raise TelemetryRequestError(f"interval_ms: {interval_ms!r}: {_INTERVAL_MS[0]}..{_INTERVAL_MS[1]} is wanted")
    chosen = select(controller.config, target)

    async def sample(switch: str, earlier: SwitchSample | None = None) -> SwitchSample | None:
        try:
            return await controller.telemetry.sample(switch, earlier)
        except (NotConnectedError, P4ClientError):
            return None

    before = dict(zip((s for s, _ in chosen), await asyncio.gather(*(sample(s) for s, _ in chosen)), strict=True))
    await asyncio.sleep(interval_ms / 1000)
    after = dict(zip(before, await asyncio.gather(*(sample(s, old) for s, old in before.items())), strict=True))
    config = controller.running
    ports: list[Json] = []
    silent: list[str] = []
    for switch, numbers in chosen:
        first, last = before[switch], after[switch]
        if first is None or last is None or switch not in config.switches:
            silent.append(switch)
            continue
        seen = SwitchInterval(first, last)
        ports += [port_row(config, switch, n, seen) for n in numbers if n in config.switches[switch].ports]
    return {
        "time": (controller.telemetry.clock_ns() + controller.events.wall_offset_ns) / 1e9,
        "interval_ms": interval_ms,
        "ports": ports,
        "silent": silent,
        "alarms": [_alarm(controller, alarm) for alarm in controller.telemetry.snapshot.alarms],
        "watchdog": _watchdog(controller),
    }


def _watchdog(controller: Controller) -> list[Json]:
    """What the PFC watchdog holds stormed."""
    found = []
    for switch, watchdog in controller.watchdog.switches.items():
        for (port, priority), watch in sorted(watchdog.agent.watches.items()):
            if watch.machine.stormed:
                found.append({"switch": switch, "port": port, "name": watch.name, "priority": priority})
    return found


def storm_text(state: int) -> str:
    """`tm_storm_state` in words."""
    return ", ".join(text for bit, text in _STORM_BITS if state & bit) or "operational"


def port_row(config: Config, switch: str, number: int, seen: SwitchInterval) -> Json:
    """What a port did in an interval, by priority. The queue and group of a priority are those that it maps to."""
    port = config.switches[switch].ports[number]
    qos = config.qos_of(port)
    shares = ets_shares(config, port, seen.sent_bytes(number))
    priorities = []
    for n in CELLS:
        queue, pg = qos.queue_of(n), qos.pg_of(n)
        paused_ns = (
            seen.grew("egress.tm_paused_ns", number, n) if "egress.tm_paused_ns" in seen.after.registers else None
        )
        storm = seen.after.register("egress.tm_storm_state", number, n)
        dropped = sum(
            seen.packets(name, number, index)
            for names, index in ((DROPS_BY_QUEUE, queue), (DROPS_BY_GROUP, pg), (DROPS_BY_PRIORITY, n))
            for name in names
        )
        xoff = seen.after.register("egress.tm_pg_xoff", number, pg)
        left = seen.after.register("egress.tm_pause_left", number, n)
        priorities.append(
            {
                "priority": n,
                "queue": queue,
                "pg": pg,
                "pfc": n in port.pfc,
                "rx_bps": 8 * seen.per_second(seen.bytes("ingress.rx", number, n)),
                "tx_bps": 8 * seen.per_second(seen.bytes("egress.tx", number, n)),
                "xoff_rx": seen.per_second(seen.packets("ingress.pfc_rx_xoff", number, n)),
                "xoff_tx": seen.per_second(seen.packets("egress.pfc_tx_xoff", number, n)),
                "ce_marked": seen.per_second(seen.packets("egress.ce_marked", number, n)),
                "dropped": dropped,
                "paused_permille": None if paused_ns is None else min(1000, 1000 * paused_ns // seen.duration_ns),
                "paused": None if left is None else bool(left),
                "xoff": None if xoff is None else bool(xoff),
                "queue_bytes": seen.after.register("egress.tm_queue_depth", number, queue),
                "pg_bytes": seen.after.register("egress.tm_pg_depth", number, pg),
                "delay_p99_ns": seen.histogram(DELAY, number, queue).quantile_ns(99),
                "pause_p99_ns": seen.histogram(PAUSE, number, n).quantile_ns(99),
                "xoff_p99_ns": seen.histogram(XOFF, number, pg).quantile_ns(99),
                "storm": None if storm is None else storm_text(storm),
                "share_permille": shares.get(queue, (None, None))[0],
                "weight_permille": shares.get(queue, (None, None))[1],
            }
        )
    other = sum(seen.packets(name, number, n) for name in DROPS for n in CELLS)
    return port_head(config, switch, number) | {"rate_bps": port.rate, "dropped": other, "priorities": priorities}

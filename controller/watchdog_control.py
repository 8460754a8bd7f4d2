"""What the control socket answers about the PFC watchdog, and the edits of `dcbctl pfcwd start|stop|...`.

Requests come from `controller.daemon`, state from `controller.watchdog_service`. Edits are functions Config -> Config,
as in `controller.edit`: what they make is checked as a file is, and written into it by `--save`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from controller.config import Config, ConfigError, parse, to_data
from controller.control import Controller
from controller.edit import select
from controller.watchdog import Watch
from controller.watchdog_config import ACTIONS, NEVER, port_settings
from dcb.watchdog import Traffic, default_times_ms

Json = dict[str, Any]
SHOWN = ("config", "stats", "history", "events", "clear")
EDITS = ("start", "stop", "interval", "start-default", "big-red-switch")
_LONGEST_WAIT_S = 30.0


class WatchdogRequestError(ValueError):
    """A request that cannot be answered as it stands."""


class StormedError(RuntimeError):
    """Statistics of a storm that goes on are not cleared."""


async def answer(controller: Controller, params: Mapping[str, Any]) -> Json:
    """`what`: one of SHOWN; target. Raises WatchdogRequestError, StormedError, SelectionError."""
    what, target = params.get("what"), params.get("target")
    if what == "config":
        return _config(controller, target)
    if what == "stats":
        return _stats(controller, target)
    if what == "history":
        return _history(controller, target)
    if what == "events":
        return await _events(controller, target, params)
    if what == "clear":
        return _clear(controller, target)
    raise WatchdogRequestError(f"what: {what!r}: one of {', '.join((*SHOWN, *EDITS))} is wanted")


def _name(config: Config, switch: str, number: int) -> str:
    return config.switches[switch].ports[number].name or f"{switch}:{number}"


def _config(controller: Controller, target: str | None) -> Json:
    config, running = controller.config, controller.running
    rows = []
    for switch, ports in select(config, target):
        for number in ports:
            held = port_settings(running, switch, number)
            if held is not None:
                rows.append(
                    {
                        "switch": switch,
                        "port": number,
                        "name": _name(config, switch, number),
                        "action": held.action,
                        "detection_time_ms": held.detection_time_ms,
                        "restoration_time_ms": held.restoration_time_ms or None,
                        "priorities": list(held.priorities),
                        "mode": held.mode,
                        "empty_queue": held.empty_queue,
                    }
                )
    watchdog = config.pfc_watchdog
    return {
        "poll_interval_ms": watchdog.poll_interval_ms,
        "big_red_switch": watchdog.big_red_switch,
        "ports": rows,
    }


def _watches(controller: Controller, target: str | None) -> Iterator[tuple[str, Watch]]:
    for switch, ports in select(controller.config, target):
        watchdog = controller.watchdog.switches.get(switch)
        if watchdog is not None:
            for pair, watch in sorted(watchdog.agent.watches.items()):
                if pair[0] in ports:
                    yield switch, watch


def _faults(controller: Controller, target: str | None) -> dict[str, str]:
    """Switches of which the figures are old, with the reason."""
    return {
        switch: controller.watchdog.switches[switch].fault
        for switch, _ in select(controller.config, target)
        if controller.watchdog.switches[switch].fault
    }


def _head(switch: str, watch: Watch) -> Json:
    of = watch.of
    return {"switch": switch, "port": of.port, "name": watch.name, "priority": of.priority, "queue": of.queue}


def _traffic(prefix: str, traffic: Traffic) -> Json:
    return {
        f"tx{prefix}_ok": traffic.tx_ok,
        f"tx{prefix}_drop": traffic.tx_drop,
        f"rx{prefix}_ok": traffic.rx_ok,
        f"rx{prefix}_drop": traffic.rx_drop,
    }


def _stats(controller: Controller, target: str | None) -> Json:
    rows = []
    for switch, watch in _watches(controller, target):
        machine = watch.machine
        rows.append(
            {
                **_head(switch, watch),
                "status": "stormed" if machine.stormed else "operational",
                "action": watch.of.settings.action.value,
                "mode": watch.of.mode,
                "detected": machine.stats.detected,
                "restored": machine.stats.restored,
                **_traffic("", machine.stats.total),
                **_traffic("_last", machine.stats.last),
            }
        )
    return {
        "big_red_switch": controller.config.pfc_watchdog.big_red_switch,
        "faults": _faults(controller, target),
        "queues": rows,
    }


def _history(controller: Controller, target: str | None) -> Json:
    service = controller.watchdog
    offset_ns = time.time_ns() - service.clock_ns()
    rows = []
    for switch, watch in _watches(controller, target):
        history = watch.machine.history
        at_ns = history.recent_at_ns
        rows.append(
            {
                **_head(switch, watch),
                "transitions": history.transitions,
                "total_ns": history.total_ns,
                "recent_ns": history.recent_ns,
                "recent_time": None if at_ns is None else (at_ns + offset_ns) / 1e9,
            }
        )
    return {"faults": _faults(controller, target), "queues": rows}


async def _events(controller: Controller, target: str | None, params: Mapping[str, Any]) -> Json:
    """What was logged since `seen` (switch -> number); waits `wait_s` for something where there is nothing."""
    given = params.get("seen")
    seen = {str(k): int(v) for k, v in given.items()} if isinstance(given, dict) else {}
    wait_s = min(float(params.get("wait_s", 0)), _LONGEST_WAIT_S)
    chosen = {switch: set(ports) for switch, ports in select(controller.config, target)}
    service = controller.watchdog
    if wait_s > 0:
        await service.wait_news(seen, wait_s)
    offset_ns = time.time_ns() - service.clock_ns()
    events: list[Json] = [
        {
            "time": (event.time_ns + offset_ns) / 1e9,
            "switch": event.switch,
            "port": event.port,
            "name": event.name,
            "priority": event.priority,
            "queue": event.queue,
            "kind": event.kind,
            "action": event.action,
            "text": event.text,
        }
        for name, watchdog in service.switches.items()
        for event in watchdog.agent.log
        if event.number > seen.get(name, 0) and event.port in chosen.get(name, ())
    ]
    events.sort(key=lambda event: event["time"])
    return {"events": events, "seen": {name: dog.agent.logged for name, dog in service.switches.items()}}


def _clear(controller: Controller, target: str | None) -> Json:
    chosen = [watch for _, watch in _watches(controller, target)]
    stormed = [f"{watch.name}:{watch.of.priority}" for watch in chosen if watch.machine.stormed]
    if stormed:
        raise StormedError(f"pfcwd clear: {', '.join(stormed)}: stormed now; nothing is cleared until it is restored")
    for watch in chosen:
        watch.machine.clear()
    return {"cleared": len(chosen)}


# ---- edits ----------------------------------------------------------------------------------------------------------


def edit(config: Config, running: Config, params: Mapping[str, Any]) -> tuple[Config, list[str]]:
    """The config after one of EDITS, and what people should read about it. Raises ConfigError, SelectionError."""
    what = params.get("what")
    if what == "start":
        return _start(config, running, params)
    if what == "stop":
        return _stop(config, params.get("target")), []
    if what == "interval":
        return _interval(config, params.get("interval_ms")), []
    if what == "start-default":
        return _start_default(config, running)
    assert what == "big-red-switch"
    return _big_red(config, params.get("state")), []


def _start(config: Config, running: Config, params: Mapping[str, Any]) -> tuple[Config, list[str]]:
    detection = params.get("detection_time_ms")
    if not isinstance(detection, int) or isinstance(detection, bool):
        raise ConfigError("pfcwd start", [f"detection_time_ms: {detection!r}: a number of milliseconds is wanted"])
    restoration = params.get("restoration_time_ms")
    if restoration is None:
        restoration = 2 * detection  # as SONiC's CLI
    elif restoration != NEVER:
        try:
            restoration = int(restoration)
        except (TypeError, ValueError):
            raise ConfigError(
                "pfcwd start", [f"restoration_time_ms: {restoration!r}: milliseconds or {NEVER} is wanted"]
            ) from None
    action = params.get("action") or "drop"
    if action not in ACTIONS:
        raise ConfigError("pfcwd start", [f"action: {action!r}: one of {', '.join(ACTIONS)} is wanted"])
    key: Json = {"action": action, "detection_time_ms": detection, "restoration_time_ms": restoration}
    key |= {name: params[name] for name in ("priorities", "mode", "empty_queue") if params.get(name) is not None}
    data, notes, started = to_data(config), [], 0
    for switch, ports in _chosen(config, params.get("target")):
        for number in ports:
            port = running.switches[switch].ports[number]
            if not port.pfc and not port.pfc_asymmetric:
                notes.append(f"SKIPPED: PFC is not enabled on port: {_name(config, switch, number)}")
                continue
            data["switches"][switch]["ports"][number]["pfc_watchdog"] = dict(key)
            started += 1
    if not started:
        raise ConfigError("pfcwd start", notes or [f"target: {params.get('target')!r}: has no port"])
    return parse(data, "pfcwd start"), notes


def _chosen(config: Config, target: object) -> list[tuple[str, list[int]]]:
    """As `edit.select`, of one target or a list of them."""
    targets = target if isinstance(target, list) else [target]
    return [found for one in targets for found in select(config, None if one is None else str(one))]


def _stop(config: Config, target: object) -> Config:
    data = to_data(config)
    for switch, ports in _chosen(config, target):
        for number in ports:
            data["switches"][switch]["ports"][number].pop("pfc_watchdog", None)
    return parse(data, "pfcwd stop")


def _interval(config: Config, interval_ms: object) -> Config:
    data = to_data(config)
    data["pfc_watchdog"] = data.get("pfc_watchdog", {}) | {"poll_interval_ms": interval_ms}
    try:
        return parse(data, "pfcwd interval")
    except ConfigError as error:
        if any("poll_interval_ms," in line for line in error.problems):  # SONiC's words, then which times they are
            said = f"unable to use polling interval = {interval_ms}ms, value is bigger than one of the configured times"
            raise ConfigError("pfcwd interval", [said, *error.problems]) from None
        raise


def _start_default(config: Config, running: Config) -> tuple[Config, list[str]]:
    """Every port with PFC, action drop, times by the number of ports of the largest switch."""
    largest = max((len(switch.ports) for switch in config.switches.values()), default=0)
    detection, restoration, poll = default_times_ms(largest)
    data, notes, started = to_data(config), [], 0
    watchdog = data.setdefault("pfc_watchdog", {})
    times = {"action": "drop", "detection_time_ms": detection, "restoration_time_ms": restoration}
    watchdog["defaults"] = watchdog.get("defaults", {}) | times
    watchdog["poll_interval_ms"] = poll
    for switch_name, switch in running.switches.items():
        for number, port in switch.ports.items():
            entry = data["switches"][switch_name]["ports"][number]
            entry.pop("pfc_watchdog", None)
            if port.pfc or port.pfc_asymmetric:
                entry["pfc_watchdog"] = {}
                started += 1
            else:
                notes.append(f"SKIPPED: PFC is not enabled on port: {_name(config, switch_name, number)}")
    if not started:
        raise ConfigError("pfcwd start-default", notes or ["switches: no port has PFC"])
    return parse(data, "pfcwd start-default"), notes


def _big_red(config: Config, state: object) -> Config:
    if state not in ("enable", "disable"):
        raise ConfigError("pfcwd big-red-switch", [f"state: {state!r}: enable or disable is wanted"])
    data = to_data(config)
    data["pfc_watchdog"] = data.get("pfc_watchdog", {}) | {"big_red_switch": state == "enable"}
    return parse(data, "pfcwd big-red-switch")

"""Changes that an operator asks for by `dcbctl set`, as functions Config -> Config. Sans-IO.

Each change goes through the same checks as a file (`config.parse`), so it is refused whole or taken whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from controller.config import Config, ConfigError, parse, parse_rate, to_data

PortEdit = Callable[[dict[str, Any]], None]


class SelectionError(ValueError):
    """A target that names no switch or port of the config; the message says which there are."""


def select(config: Config, target: str | None) -> list[tuple[str, list[int]]]:
    """`None` or "all", "leaf1", "leaf1:2", "leaf1:leaf1-eth2" or "leaf1-eth2" -> [(switch, ports)].

    Raises SelectionError.
    """
    if target in (None, "", "all"):
        return [(name, sorted(switch.ports)) for name, switch in config.switches.items()]
    assert target is not None
    switch_name, colon, port_name = target.partition(":")
    if switch_name in config.switches:
        ports = config.switches[switch_name].ports
        if not colon:
            return [(switch_name, sorted(ports))]
        for number, port in ports.items():
            if port_name in (str(number), port.name):
                return [(switch_name, [number])]
        known = ", ".join(str(number) for number in sorted(ports))
        raise SelectionError(f"port {port_name!r}: not a port of {switch_name} (known: {known or 'none'})")
    if not colon:
        found = [(s, [n]) for s, switch in config.switches.items() for n, p in switch.ports.items() if p.name == target]
        if len(found) == 1:
            return found
    raise SelectionError(f"switch {switch_name!r}: not in the config (known: {', '.join(config.switches) or 'none'})")


def _edit_ports(config: Config, target: str, edit: PortEdit) -> Config:
    data = to_data(config)
    for switch, ports in select(config, target):
        for number in ports:
            edit(data["switches"][switch]["ports"][number])
    return parse(data, f"set {target}")


def _priorities(text: str) -> list[int]:
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise ConfigError("set pfc", [f"priorities: {text!r}: numbers 0..7 with commas between are wanted"]) from None
    if not found or found[0] < 0 or found[-1] > 7:
        raise ConfigError("set pfc", [f"priorities: {text!r}: a priority is 0..7"])
    return found


def set_pfc(config: Config, target: str, state: str, priorities: str) -> Config:
    """Turn PFC of some priorities ("3" or "3,4") "on" or "off"; the others keep what they have."""
    if state not in ("on", "off"):
        raise ConfigError("set pfc", [f"state: {state!r}: on or off is wanted"])
    wanted = set(_priorities(priorities))

    def edit(port: dict[str, Any]) -> None:
        enabled = set(port.get("pfc", []))
        port["pfc"] = sorted(enabled | wanted if state == "on" else enabled - wanted)

    return _edit_ports(config, target, edit)


def set_ets(config: Config, target: str, spec: str) -> Config:
    """`0=40,3=60,6=strict,1=cbs:10M,2=default`: queues not named keep what they have; default: not in the config."""
    changes: dict[int, Any] = {}
    for item in spec.split(","):
        queue_text, equals, value = item.partition("=")
        if not equals or not queue_text.strip().isdigit():
            raise ConfigError("set ets", [f"queue: {item!r}: QUEUE=WEIGHT, =strict, =cbs:RATE or =default is wanted"])
        changes[int(queue_text)] = _scheduler(value.strip())

    data = to_data(config)
    for switch, ports in select(config, target):
        for number in ports:
            port = data["switches"][switch]["ports"][number]
            now = port.get("ets", {})
            merged: dict[int, Any] = dict(data["ets_profiles"][now] if isinstance(now, str) else now)
            merged.update(changes)
            kept = {queue: merged[queue] for queue in sorted(merged) if merged[queue] is not None}
            named = [name for name, profile in data.get("ets_profiles", {}).items() if profile == kept]
            port["ets"] = named[0] if named else kept
            if not kept:
                del port["ets"]
    return parse(data, f"set {target}")


def _scheduler(value: str) -> Any:
    if value == "default":
        return None
    if value == "strict":
        return "strict"
    if value.startswith("cbs:"):
        return {"cbs": value.removeprefix("cbs:")}
    if value.isdigit():
        return {"ets": int(value)}
    raise ConfigError("set ets", [f"scheduler: {value!r}: a weight 1..100, strict, cbs:RATE or default is wanted"])


def set_ecn(config: Config, target: str, queue: int, values: Mapping[str, str]) -> Config:
    """Give a queue an ECN profile: {"profile": name}, {"off": ""} or some of kmin, kmax, pmax, drop_non_ect.

    Thresholds not given keep the value of the queue's present profile (pmax: 1 without one). Bytes take K and M
    (10^3, 10^6).
    """
    if not 0 <= queue <= 7:
        raise ConfigError("set ecn", [f"queue: {queue}: 0..7"])
    unknown = set(values) - {"profile", "off", "kmin", "kmax", "pmax", "drop_non_ect"}
    if unknown:
        raise ConfigError("set ecn", [f"{name}: {values[name]!r}: unknown key" for name in sorted(unknown)])
    data = to_data(config)
    for switch, ports in select(config, target):
        for number in ports:
            ecn = data["switches"][switch]["ports"][number].setdefault("ecn", {})
            if "off" in values:
                ecn.pop(queue, None)
            elif "profile" in values:
                ecn[queue] = values["profile"]
            else:
                now = ecn.get(queue, {})
                ecn[queue] = dict(data["ecn_profiles"][now] if isinstance(now, str) else now) | _thresholds(values)
    return parse(data, f"set {target}")


def _thresholds(values: Mapping[str, str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, key in (("kmin", "kmin_bytes"), ("kmax", "kmax_bytes")):
        if name in values:
            try:
                result[key] = parse_rate(values[name]) if values[name] != "0" else 0
            except ValueError:
                raise ConfigError("set ecn", [f"{name}: {values[name]!r}: bytes such as 20000 or 20K"]) from None
    if "pmax" in values:
        result["pmax"] = values["pmax"]
    if "drop_non_ect" in values:
        if values["drop_non_ect"] not in ("on", "off"):
            raise ConfigError("set ecn", [f"drop_non_ect: {values['drop_non_ect']!r}: on or off is wanted"])
        result["drop_non_ect"] = values["drop_non_ect"] == "on"
    return result


def set_trust(config: Config, target: str, trust: str) -> Config:
    """What a port takes the priority from: "port", "pcp" or "dscp"."""
    return _edit_ports(config, target, lambda port: port.update(trust=trust))


def set_rate(config: Config, target: str, rate: str) -> Config:
    """Rate of a port, "100M" or bit/s."""
    return _edit_ports(config, target, lambda port: port.update(rate=rate))

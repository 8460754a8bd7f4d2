"""Changes of buffers by `dcbctl set buffer` and `set pool`, as functions Config -> Config. Sans-IO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller.config import Config, ConfigError, parse, to_data
from controller.edit import select

_NUMBERS = ("reserved", "headroom", "xoff", "xon", "xon_offset", "pool", "headroom_pool")
_DYNAMIC, _STATIC = ("alpha", "xon_offset"), ("xoff", "xon", "threshold_policy")


def set_buffer(config: Config, target: str, pg: int, values: Mapping[str, str]) -> Config:
    """Give a priority group a buffer profile: {"profile": name}, {"off": ""} or some keys of one, as text.

    Keys not given keep what the group's profile has; alpha makes it dynamic, xoff static. Raises ConfigError.
    """
    if not 0 <= pg <= 7:
        raise ConfigError("set buffer", [f"pg: {pg}: 0..7"])
    unknown = set(values) - {"profile", "off", "alpha", *_NUMBERS}
    if unknown:
        raise ConfigError("set buffer", [f"{name}: {values[name]!r}: unknown key" for name in sorted(unknown)])
    changes = {name: _value(name, text) for name, text in values.items() if name not in ("profile", "off")}
    data = to_data(config)
    for switch, ports in select(config, target):
        for number in ports:
            buffers = data["switches"][switch]["ports"][number].setdefault("buffers", {})
            if "off" in values:
                buffers.pop(pg, None)
            elif "profile" in values:
                buffers[pg] = values["profile"]
            else:
                now = buffers.get(pg, {})
                merged: dict[str, Any] = dict(data["buffer_profiles"][now] if isinstance(now, str) else now)
                for key in _STATIC if "alpha" in changes else _DYNAMIC if "xoff" in changes else ():
                    merged.pop(key, None)
                buffers[pg] = merged | changes
    return parse(data, f"set {target}")


def set_pool(config: Config, target: str, pool: int, size: int, *, headroom: bool = False) -> Config:
    """Size of a shared pool, or of a headroom pool, of some switches, in bytes. Raises ConfigError."""
    data = to_data(config)
    for switch, _ports in select(config, target):
        of = data["switches"][switch]
        if not headroom and pool == 0:
            of.pop("pool", None)
        of.setdefault("headroom_pools" if headroom else "pools", {})[pool] = size
    return parse(data, f"set {target}")


def _value(name: str, text: str) -> Any:
    if name == "alpha":
        return int(text) if text.lstrip("-").isdigit() else text
    if name == "headroom_pool" and text == "own":
        return None
    if not text.isdigit():
        raise ConfigError("set buffer", [f"{name}: {text!r}: a number is wanted"])
    return int(text)

"""The key `pfc_watchdog` of the config file: of the whole fabric, and of single ports. Models only; no I/O.

A port is watched where it has the key (`{}` is enough); what the key leaves open is what `pfc_watchdog.defaults` of
the file says. `Config` knows ports and PFC; `watched` puts both together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from controller.values import Priority, no_bool
from dcb.watchdog import DEFAULT_MS, DETECTION_RANGE_MS, MS, POLL_RANGE_MS, RESTORATION_RANGE_MS, Action, Settings

if TYPE_CHECKING:
    from controller.config import Config

NEVER = "never"
ACTIONS = tuple(action.value for action in Action)
Mode = Literal["poll", "switch"]
ActionName = Literal["drop", "forward", "alert"]
SWITCH_MIN_MS = 1  # the switch's own timer is exact: what polls limit is not its limit


def _restoration(value: object) -> object:
    """0 and "never" are the same: a storm that does not end by itself."""
    return 0 if value == NEVER else no_bool(value)


def _number(low: int, high: int) -> Any:
    return Annotated[int, BeforeValidator(no_bool), Field(ge=low, le=high)]


Detection = _number(SWITCH_MIN_MS, DETECTION_RANGE_MS[1])
Restoration = Annotated[
    int,
    BeforeValidator(_restoration),
    Field(ge=0, le=RESTORATION_RANGE_MS[1]),
    PlainSerializer(lambda value: value or NEVER),
]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WatchdogDefaults(_Model):
    """What holds for a watched port that does not say otherwise."""

    action: ActionName = "drop"
    detection_time_ms: Detection = DEFAULT_MS  # type: ignore[valid-type]
    restoration_time_ms: Restoration = DEFAULT_MS
    empty_queue: bool = False
    mode: Mode = "poll"


class FabricWatchdog(_Model):
    """Of all switches. big_red_switch: drop every priority with PFC on every port, and watch nothing."""

    poll_interval_ms: _number(*POLL_RANGE_MS) = DEFAULT_MS  # type: ignore[valid-type]
    defaults: WatchdogDefaults = WatchdogDefaults()
    big_red_switch: bool = False


class PortWatchdog(_Model):
    """Of one port. priorities: of those with PFC, the ones that are watched; default all of them."""

    action: ActionName | None = None
    detection_time_ms: Detection | None = None  # type: ignore[valid-type]
    restoration_time_ms: Restoration | None = None
    priorities: list[Priority] | None = None
    empty_queue: bool | None = None
    mode: Mode | None = None

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.priorities is not None and not self.priorities:
            raise ValueError("priorities: [] watches nothing: name at least one, or leave pfc_watchdog out")
        return self


@dataclass(frozen=True, slots=True)
class Watched:
    """One (port, priority) that is watched, with everything that holds for it. Times in milliseconds."""

    port: int
    priority: int
    queue: int
    mode: Mode
    settings: Settings
    pause_rx: bool = False  # the port obeys PAUSE too


@dataclass(frozen=True, slots=True)
class PortSettings:
    """What holds for a watched port. restoration_time_ms 0: never."""

    action: ActionName
    detection_time_ms: int
    restoration_time_ms: int
    empty_queue: bool
    mode: Mode
    priorities: tuple[int, ...]  # those with PFC

    @property
    def settings(self) -> Settings:
        """As the state machine wants it."""
        restoration_ns = self.restoration_time_ms * MS or None
        return Settings(Action(self.action), self.detection_time_ms * MS, restoration_ns, self.empty_queue)


def port_settings(config: Config, switch: str, number: int) -> PortSettings | None:
    """Of a port; None where it is not watched. A priority without PFC cannot be paused, so it is not watched."""
    port, defaults = config.switches[switch].ports[number], config.pfc_watchdog.defaults
    own = port.pfc_watchdog
    if own is None:
        return None
    pausable = range(8) if port.pfc_asymmetric else port.pfc
    chosen = port.pfc if own.priorities is None else [p for p in own.priorities if p in pausable]

    def value(name: str) -> Any:
        given = getattr(own, name)
        return getattr(defaults, name) if given is None else given

    return PortSettings(
        action=value("action"),
        detection_time_ms=value("detection_time_ms"),
        restoration_time_ms=value("restoration_time_ms"),
        empty_queue=value("empty_queue"),
        mode=value("mode"),
        priorities=tuple(sorted(set(chosen))),
    )


def watched(config: Config, switch: str) -> list[Watched]:
    """Every (port, priority) of a switch that is watched: none while the big red switch is on."""
    if config.pfc_watchdog.big_red_switch:
        return []
    found = []
    for number, port in config.switches[switch].ports.items():
        held = port_settings(config, switch, number)
        if held is not None:
            qos = config.qos_of(port)
            found += [
                Watched(number, p, qos.queue_of(p), held.mode, held.settings, port.pause_rx) for p in held.priorities
            ]
    return found


def lossless_pairs(config: Config, switch: str) -> list[tuple[int, int]]:
    """(port, priority) of everything with PFC: what the big red switch drops."""
    return [(number, p) for number, port in config.switches[switch].ports.items() for p in sorted(set(port.pfc))]


def problems(config: Config) -> Iterator[str]:
    """Rules between keys, as `field: value: rule`."""
    poll = config.pfc_watchdog.poll_interval_ms
    defaults = config.pfc_watchdog.defaults
    if defaults.mode == "poll":
        times = (defaults.detection_time_ms, defaults.restoration_time_ms)
        yield from _time_problems("pfc_watchdog.defaults", *times, poll)
    for switch, number, held in _held(config):
        own = config.switches[switch].ports[number].pfc_watchdog
        assert own is not None
        if held.mode == "poll":
            where = f"switches.{switch}.ports.{number}.pfc_watchdog"
            times = (held.detection_time_ms, held.restoration_time_ms)
            # what a port takes from the defaults is complained of there, once
            known = defaults.mode == "poll"
            detection = times[0] if own.detection_time_ms is not None or not known else None
            restoration = times[1] if own.restoration_time_ms is not None or not known else None
            yield from _time_problems(where, detection, restoration, poll)


def _held(config: Config) -> Iterator[tuple[str, int, PortSettings]]:
    for name, switch in config.switches.items():
        for number in switch.ports:
            held = port_settings(config, name, number)
            if held is not None:
                yield name, number, held


def _time_problems(where: str, detection: int | None, restoration: int | None, poll: int) -> Iterator[str]:
    for field, value, (low, high) in (
        ("detection_time_ms", detection, DETECTION_RANGE_MS),
        ("restoration_time_ms", restoration or None, RESTORATION_RANGE_MS),
    ):
        if value is None:
            continue
        if value < low:
            never = ", or never" if field == "restoration_time_ms" else ""
            yield f"{where}.{field}: {value}: with mode poll {low}..{high} ms{never}"
        elif value < poll:
            yield f"{where}.{field}: {value}: must not be below pfc_watchdog.poll_interval_ms, {poll}"


def warnings(config: Config) -> Iterator[str]:
    """Legal settings that watch less than they seem to, one `field: reason` line each."""
    for switch, number, held in _held(config):
        port = config.switches[switch].ports[number]
        where = f"switches.{switch}.ports.{number}.pfc_watchdog"
        assert port.pfc_watchdog is not None
        if config.switches[switch].dcbx_of(number) is not None:
            continue  # which priorities have PFC is DCBX's matter
        if not port.pfc and not port.pfc_asymmetric:
            yield f"{where}: nothing is watched: PFC is not enabled on the port"
        elif without := sorted(set(port.pfc_watchdog.priorities or ()) - set(held.priorities)):
            yield f"{where}.priorities: {_listed(without)} not watched: no PFC on the port"


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(str(number) for number in numbers)

"""The DCBX of a whole switch: port roles, the elected configuration source, and how its configuration spreads. Sans-IO.

Roles as switch vendors have them (Dell, Edgecore):

    manual                as configured; takes no part
    configuration-source  the first choice for source. Not willing: what it is configured with is the source's
                          configuration, always. Willing: what its peer makes it run, once it does
    auto-upstream         faces where configuration comes from: willing until another port is elected. Elected where no
                          configuration-source is fit; the first to follow its peer wins, and keeps it while it can
    auto-downstream       faces what is to be configured: never willing

The source's operational ETS, PFC and applications become the administrative ones of every other auto port, which
announces and recommends them and is not willing. So each switch hands on what it is told: one source configures a
fabric. With no source, ports are as configured. `election` says who, why, and why no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from dcb.dcbx.machines import State
from dcb.dcbx.port import DcbxEvent, DcbxPort, OperationalChanged
from dcb.dcbx.settings import DcbxSettings
from dcb.lldp.tlv import TlvError


class PortRole(Enum):
    """What a port is in the switch's DCBX."""

    MANUAL = "manual"
    AUTO_UPSTREAM = "auto-upstream"
    AUTO_DOWNSTREAM = "auto-downstream"
    CONFIGURATION_SOURCE = "configuration-source"


@dataclass(frozen=True, slots=True)
class Election:
    """The source (a port name) or None, why, and the part of each port: elected, or why not, or what went wrong."""

    source: str | None
    why: str
    ports: dict[str, str]


@dataclass(frozen=True, slots=True)
class SourceChanged:
    """Another source, or none."""

    before: str | None
    election: Election


SwitchEvent = DcbxEvent | SourceChanged


@dataclass(slots=True)
class _Port:
    port: DcbxPort
    role: PortRole
    base: DcbxSettings
    problem: str | None = None


class DcbxSwitch:
    """The ports of one switch, by name, in the order that they were added.

    Calls return events as (port name, event); `SourceChanged` comes under the name of the new source, or that of the
    old one where there is none. However often a call made a port run something else in between, it tells of one
    `OperationalChanged`.
    """

    def __init__(self) -> None:
        self._ports: dict[str, _Port] = {}
        self._source: str | None = None
        self._election = Election(None, "no port", {})

    @property
    def ports(self) -> dict[str, DcbxPort]:
        """The ports. To look at: change them through the switch."""
        return {name: one.port for name, one in self._ports.items()}

    @property
    def election(self) -> Election:
        """Who is the source, and why."""
        return self._election

    def role(self, name: str) -> PortRole:
        """The role of a port."""
        return self._ports[name].role

    def settings(self, name: str) -> DcbxSettings:
        """What a port was configured with; what it does instead because of its role is `ports[name].settings`."""
        return self._ports[name].base

    def add_port(self, name: str, port: DcbxPort, role: PortRole, now_ns: int) -> list[tuple[str, SwitchEvent]]:
        """Take a port in; its settings are its configuration. Raises ValueError where the name is taken."""
        if name in self._ports:
            raise ValueError(f"port {name}: is there already")
        self._ports[name] = _Port(port, role, port.settings)
        return self._settle(self._before(), [], now_ns)

    def set_role(self, name: str, role: PortRole, now_ns: int) -> list[tuple[str, SwitchEvent]]:
        """Give a port another role."""
        before = self._before()
        self._ports[name].role = role
        if self._source == name:
            self._source = None
        return self._settle(before, [], now_ns)

    def set_settings(self, name: str, settings: DcbxSettings, now_ns: int) -> list[tuple[str, SwitchEvent]]:
        """Configure a port anew."""
        before = self._before()
        self._ports[name].base = settings
        return self._settle(before, [], now_ns)

    def set_link(self, name: str, up: bool, now_ns: int) -> list[tuple[str, SwitchEvent]]:
        """The link of a port went up or down."""
        before = self._before()
        return self._settle(before, self._named(name, self._ports[name].port.set_link(up, now_ns)), now_ns)

    def receive(self, name: str, frame: bytes, now_ns: int) -> list[tuple[str, SwitchEvent]]:
        """A frame has come in on a port."""
        before = self._before()
        return self._settle(before, self._named(name, self._ports[name].port.receive(frame, now_ns)), now_ns)

    def handle_timer(self, now_ns: int) -> list[tuple[str, SwitchEvent]]:
        """What time brings, to all ports."""
        before = self._before()
        events: list[tuple[str, SwitchEvent]] = []
        for name, one in self._ports.items():
            events += self._named(name, one.port.handle_timer(now_ns))
        return self._settle(before, events, now_ns)

    def next_deadline_ns(self) -> int | None:
        """When to call `handle_timer` and `frames_to_send` next, None for never."""
        times = (one.port.next_deadline_ns() for one in self._ports.values())
        return min((time for time in times if time is not None), default=None)

    def frames_to_send(self, now_ns: int) -> list[tuple[str, bytes]]:
        """The frames that are due, each with its port."""
        return [(name, frame) for name, one in self._ports.items() for frame in one.port.frames_to_send(now_ns)]

    # How it works

    @staticmethod
    def _named(name: str, events: Sequence[DcbxEvent]) -> list[tuple[str, SwitchEvent]]:
        return [(name, event) for event in events if not isinstance(event, OperationalChanged)]

    def _before(self) -> tuple[dict[str, OperationalChanged], str | None]:
        """What every port runs before a call, as a change to itself, and the source."""
        now = {name: one.port.operational for name, one in self._ports.items()}
        return {name: OperationalChanged(oper, oper, ()) for name, oper in now.items()}, self._source

    def _settle(
        self,
        before: tuple[dict[str, OperationalChanged], str | None],
        events: list[tuple[str, SwitchEvent]],
        now_ns: int,
    ) -> list[tuple[str, SwitchEvent]]:
        """Elect, spread, and tell what came of it."""
        was, old_source = before
        events += self._elect(now_ns)
        for name, one in self._ports.items():
            old, new = was[name].before, one.port.operational
            changed = new.differs(old)
            if changed:
                events.append((name, OperationalChanged(old, new, changed)))
        if self._source != old_source:
            events.append((self._source or old_source or "", SourceChanged(old_source, self._election)))
        return events

    def _elect(self, now_ns: int) -> list[tuple[str, SwitchEvent]]:
        events = self._apply(now_ns)
        source = self._source
        preferred = self._fit(PortRole.CONFIGURATION_SOURCE)
        keeps = source is not None and self._unfit(source) is None and (source in preferred or not preferred)
        if not keeps:
            self._source = None
            events += self._apply(now_ns)
            candidates = preferred or self._fit(PortRole.AUTO_UPSTREAM)
            self._source = candidates[0] if candidates else None
        events += self._apply(now_ns)
        self._election = self._tell()
        return events

    def _fit(self, role: PortRole) -> list[str]:
        return [name for name, one in self._ports.items() if one.role is role and self._unfit(name) is None]

    def _unfit(self, name: str) -> str | None:
        """Why a port cannot be the source, or None."""
        one = self._ports[name]
        if one.role not in (PortRole.CONFIGURATION_SOURCE, PortRole.AUTO_UPSTREAM):
            return f"{one.role.value} ports are never the source"
        if one.role is PortRole.CONFIGURATION_SOURCE and not (one.base.ets_willing or one.base.pfc_willing):
            return None
        oper = one.port.operational
        if State.RX_RECOMMEND in (oper.ets_state, oper.pfc_state):
            return None
        return f"does not follow a peer (ETS: {oper.ets_why}; PFC: {oper.pfc_why})"

    def _tell(self) -> Election:
        parts: dict[str, str] = {}
        for name, one in self._ports.items():
            unfit = self._unfit(name)
            if name == self._source:
                parts[name] = "elected"
            elif one.problem is not None:
                parts[name] = one.problem
            elif one.role is PortRole.MANUAL:
                parts[name] = "manual: takes no part"
            elif self._source is not None:
                parts[name] = f"runs what {self._source} runs"
            else:
                parts[name] = unfit or "fit"
        if self._source is None:
            return Election(None, "no port is fit to be the source", parts)
        one = self._ports[self._source]
        if one.role is PortRole.CONFIGURATION_SOURCE and not (one.base.ets_willing or one.base.pfc_willing):
            why = "configuration-source with a configuration of its own"
        else:
            why = f"{one.role.value} that follows its peer"
        return Election(self._source, why, parts)

    def _apply(self, now_ns: int) -> list[tuple[str, SwitchEvent]]:
        """Give every port the settings that its role and the source call for."""
        events: list[tuple[str, SwitchEvent]] = []
        for name, one in self._ports.items():
            events += self._named(name, one.port.set_settings(self._wanted(name, one), now_ns))
        return events

    def _wanted(self, name: str, one: _Port) -> DcbxSettings:
        one.problem = None
        if one.role is PortRole.MANUAL or (one.role is PortRole.CONFIGURATION_SOURCE and self._source in (None, name)):
            return one.base
        if self._source is None or self._source == name:
            if one.role is PortRole.AUTO_UPSTREAM:
                return _willing(one.base, True)
            return replace(_willing(one.base, False), recommendation=one.base.ets)
        oper = self._ports[self._source].port.operational
        try:
            return replace(
                _willing(one.base, False),
                ets=oper.ets,
                recommendation=oper.ets,
                pfc_enable=oper.pfc_enable,
                app=oper.app,
            )
        except TlvError as error:
            one.problem = f"cannot run what {self._source} runs: {error}"
            return _willing(one.base, False)


def _willing(settings: DcbxSettings, willing: bool) -> DcbxSettings:
    """Settings with every willingness on or off; a willing port recommends nothing."""
    return replace(
        settings,
        ets_willing=willing,
        pfc_willing=willing,
        app_accept=willing,
        app_willing=willing,
        recommendation=None if willing else settings.recommendation,
    )

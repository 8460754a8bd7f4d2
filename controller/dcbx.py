"""The DCBX agent of one switch: `dcb.dcbx`'s ports and roles on one side, runs for the desired state on the other.

Sans-IO; `now_ns` is passed in. `controller.dcbx_service` carries frames (P4Runtime packet-in and -out) and time:

    agent.configure(config, now_ns)            # the ports and what they are configured with; again when it changes
    agent.activate(held_entries, now_ns)       # primary on the switch, which holds these entries
    agent.receive(port, frame, now_ns)
    agent.handle_timer(now_ns)                 # at agent.next_deadline_ns()
    agent.frames_to_send(now_ns)               # after each of these: [(port, frame)]
    agent.runs()                               # {port: Run}: what `dcbx_overlay.overlay` lays over the config

An agent that starts on a switch that works (a restart of the controller, or a backup that takes over) goes on with what
the entries say that it ran: it announces that, and keeps it, until every such port has heard its neighbour, the source
is found again and follows its peer in everything, at most for as long as neighbours keep what was said before (TTL).
"""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.config import Config
from controller.dcbx_config import Dcbx
from controller.dcbx_overlay import Run, dcbx_ports, local_settings, restored, with_run
from controller.entries import Entity
from dcb.dcbx.fabric import DcbxSwitch, PortRole, SourceChanged, SwitchEvent
from dcb.dcbx.machines import State
from dcb.dcbx.port import DcbxPort, MultiPeerChanged, OperationalChanged, TlvRejected
from dcb.dcbx.settings import DcbxSettings
from dcb.dcbx.summary import change_text
from dcb.lldp.agent import AdminStatus, FrameDiscarded, LocalSystem
from dcb.lldp.receive import NeighborAdded, NeighborRemoved
from dcb.lldp.tlv import Capability, ChassisId, ManagementAddress, PortId, SystemCapabilities
from dcb.lldp.transmit import NS_PER_S, LldpTimers

LOG_LENGTH = 1000


@dataclass(frozen=True, slots=True)
class LogLine:
    """One thing that happened. number counts up from 1 in each agent; port is the interface, "" for the switch."""

    number: int
    time_ns: int
    port: str
    kind: str
    text: str


def mac_bytes(mac: str) -> bytes:
    """ "02:01:00:00:01:01" -> its six bytes."""
    return bytes.fromhex(mac.replace(":", ""))


class DcbxAgent:
    """DCBX of one switch. Ports are numbers here; inside, and for people, interface names."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.active = False
        self.log: deque[LogLine] = deque(maxlen=LOG_LENGTH)
        self.logged = 0
        self.names: dict[int, str] = {}  # port number -> interface
        self.configured: dict[int, Dcbx] = {}
        self._numbers: dict[str, int] = {}
        self._locals: dict[int, DcbxSettings] = {}
        self._identity: dict[int, tuple[bytes, LocalSystem, LldpTimers]] = {}
        self._switch = DcbxSwitch()
        self._config: Config | None = None
        self._farewell: list[tuple[int, bytes]] = []
        self._held: dict[int, Run] = {}
        self._hold_until_ns = 0

    # ---- what there is to see ---------------------------------------------------------------------------------------

    @property
    def switch(self) -> DcbxSwitch:
        """The roles and the elected source; ports by interface name. To look at."""
        return self._switch

    def port(self, number: int) -> DcbxPort:
        """The DCBX of a port. KeyError where it has none."""
        return self._switch.ports[self.names[number]]

    def local(self, number: int) -> DcbxSettings:
        """What a port is configured with (LocalAdminParam before roles)."""
        return self._locals[number]

    @property
    def holding(self) -> bool:
        """Whether the agent goes on with what it found on the switch."""
        return bool(self._held)

    def runs(self) -> dict[int, Run]:
        """What each port is to run."""
        found = {}
        for number, name in self.names.items():
            port = self._switch.ports[name]
            held = self._held.get(number)
            found[number] = held if held is not None and not port.remotes else Run.of(port.operational)
        return found

    # ---- what happens to it -----------------------------------------------------------------------------------------

    def configure(self, config: Config, now_ns: int) -> None:
        """Take the config: ports come and go, or change what they are configured with."""
        self._config = config
        switch = config.switches[self.name]
        wanted = dcbx_ports(switch)
        names = {number: switch.ports[number].name or f"{self.name}:{number}" for number in wanted}
        identity = {number: self._identify(number, dcbx, names[number]) for number, dcbx in wanted.items()}
        local = {number: local_settings(config, self.name, number) for number in wanted}
        if identity != self._identity or names != self.names:
            self._rebuild(names, identity, local, wanted, now_ns)
        self.configured = wanted
        for number, settings in local.items():
            role = PortRole(wanted[number].role or "manual")
            if self._switch.role(names[number]) is not role:
                self._tell(self._switch.set_role(names[number], role, now_ns), now_ns)
            if self._locals.get(number) != settings:
                self._held.pop(number, None)
                self._tell(self._switch.set_settings(names[number], settings, now_ns), now_ns)
        self._locals = local

    def activate(self, held: Sequence[Entity], now_ns: int) -> None:
        """The controller is primary on the switch, which holds `held`. Nothing where it was already."""
        if self.active:
            return
        self.active = True
        assert self._config is not None
        for number, name in self.names.items():
            run = restored(self._config, self.name, number, held)
            if run is None:
                continue
            self._held[number] = run
            ttl_ns = self._identity[number][2].tx_ttl_s * NS_PER_S
            self._hold_until_ns = max(self._hold_until_ns, now_ns + ttl_ns)
            local = self._locals[number]
            if self._switch.role(name) in (PortRole.AUTO_UPSTREAM, PortRole.AUTO_DOWNSTREAM) or local.pfc_willing:
                self._tell(self._switch.set_settings(name, with_run(local, run), now_ns), now_ns)
        if self._held:
            self._note(now_ns, "", "restart", f"{len(self._held)} ports go on with what the switch holds")
        for name in self.names.values():
            self._tell(self._switch.set_link(name, True, now_ns), now_ns)

    def deactivate(self, now_ns: int) -> None:
        """Another controller is primary: be silent, and forget."""
        if self.active:
            self.active = False
            self._held.clear()
            for name in self.names.values():
                self._tell(self._switch.set_link(name, False, now_ns), now_ns)

    def receive(self, port: int, frame: bytes, now_ns: int) -> None:
        """An LLDP frame has come in on a port; ports without DCBX leave it alone."""
        if self.active and port in self.names:
            self._tell(self._switch.receive(self.names[port], frame, now_ns), now_ns)
            self._release(now_ns)

    def handle_timer(self, now_ns: int) -> None:
        """What time brings."""
        self._tell(self._switch.handle_timer(now_ns), now_ns)
        self._release(now_ns)

    def next_deadline_ns(self) -> int | None:
        """When to call `handle_timer` next, None for never."""
        times = [self._switch.next_deadline_ns(), self._hold_until_ns if self._held else None]
        return min((time for time in times if time is not None), default=None)

    def frames_to_send(self, now_ns: int) -> list[tuple[int, bytes]]:
        """The frames that are due, each with its port."""
        farewell, self._farewell = self._farewell, []
        return farewell + [(self._numbers[name], frame) for name, frame in self._switch.frames_to_send(now_ns)]

    def shut_down(self, now_ns: int) -> list[tuple[int, bytes]]:
        """Say goodbye (TTL 0) on every port; the agent is of no use afterwards."""
        if not self.active:
            return []
        self.active = False
        return [item for number in self.names for item in self._goodbye(number, now_ns)]

    # ---- how it works -----------------------------------------------------------------------------------------------

    def _identify(self, number: int, dcbx: Dcbx, name: str) -> tuple[bytes, LocalSystem, LldpTimers]:
        assert self._config is not None
        switch = self._config.switches[self.name]
        chassis = mac_bytes(switch.ports[min(switch.ports)].mac)
        address = dcbx.management_address
        bridge = Capability.BRIDGE | Capability.ROUTER
        local = LocalSystem(
            ChassisId.mac(chassis),
            PortId.interface(name),
            port_description=f"port {number}" + (f" to {peer}" if (peer := switch.ports[number].peer) else ""),
            system_name=dcbx.system_name or self.name,
            system_description="dcblab",
            capabilities=SystemCapabilities(bridge, bridge),
            management_addresses=() if address is None else (management_address(address, number),),
        )
        timers = LldpTimers(
            msg_tx_interval_s=dcbx.tx_interval_s or 30, msg_tx_hold=dcbx.tx_hold or 4, msg_fast_tx_s=dcbx.fast_tx_s or 1
        )
        return mac_bytes(switch.ports[number].mac), local, timers

    def _rebuild(
        self,
        names: dict[int, str],
        identity: dict[int, tuple[bytes, LocalSystem, LldpTimers]],
        local: dict[int, DcbxSettings],
        wanted: dict[int, Dcbx],
        now_ns: int,
    ) -> None:
        """Other ports, or ports that are called otherwise: those that stay keep what they know."""
        old = self._switch.ports
        stay = {n for n in names if self._identity.get(n) == identity[n] and self.names.get(n) == names[n]}
        for number in self.names:
            if number not in stay and self.active:
                self._farewell += self._goodbye(number, now_ns)
        self._switch = DcbxSwitch()
        for number, name in names.items():
            mac, system, timers = identity[number]
            port = old[name] if number in stay else DcbxPort(mac, system, local[number], timers=timers)
            role = PortRole(wanted[number].role or "manual")
            self._tell(self._switch.add_port(name, port, role, now_ns), now_ns)
            if number in stay:  # what it does because of its role is not what it is configured with
                self._tell(self._switch.set_settings(name, local[number], now_ns), now_ns)
            elif self.active:
                self._tell(self._switch.set_link(name, True, now_ns), now_ns)
        self._held = {number: run for number, run in self._held.items() if number in stay}
        self.names, self._identity = names, identity
        self._numbers = {name: number for number, name in names.items()}
        self._locals = {number: local[number] for number in names}

    def _goodbye(self, number: int, now_ns: int) -> list[tuple[int, bytes]]:
        port = self._switch.ports[self.names[number]]
        port.frames_to_send(now_ns)  # what was due is not said any more
        port.set_admin_status(AdminStatus.DISABLED, now_ns)
        return [(number, frame) for frame in port.frames_to_send(now_ns)]

    def _release(self, now_ns: int) -> None:
        """Stop holding what was found: all is as it was, or too much time has passed."""
        if not self._held:
            return
        silent = [number for number in self._held if not self._switch.ports[self.names[number]].remotes]
        roles = {self._switch.role(name) for name in self.names.values()}
        found = self._switch.election.source is not None or roles == {PortRole.MANUAL}
        if now_ns < self._hold_until_ns and (silent or not found or any(map(self._falls_back, self._held))):
            return
        kept, self._held = self._held, {}
        for number in kept:
            self._tell(self._switch.set_settings(self.names[number], self._locals[number], now_ns), now_ns)
        self._note(now_ns, "", "restart", "over" if not silent else f"over: {len(silent)} ports heard nobody in time")

    def _falls_back(self, number: int) -> bool:
        """Whether a port that is to follow its peer would not do so in everything, and run its own instead.

        A peer that has not found its own source yet is still willing: it says what PFC it runs, which may be followed
        at once, but recommends no ETS. What is held differs from the port's own there, so letting go would change it.
        """
        name, local, held = self.names[number], self._locals[number], self._held[number]
        role, oper = self._switch.role(name), self._switch.ports[name].operational
        upstream = role is PortRole.AUTO_UPSTREAM
        if name != self._switch.election.source and role is not PortRole.MANUAL:
            return False  # it runs what the source runs
        ets = (upstream or local.ets_willing) and oper.ets_state is not State.RX_RECOMMEND
        pfc = (upstream or local.pfc_willing) and oper.pfc_state is not State.RX_RECOMMEND
        return (ets and held.ets != local.ets) or (pfc and held.pfc_enable != local.pfc_enable)

    def _tell(self, events: Iterable[tuple[str, SwitchEvent]], now_ns: int) -> None:
        for name, event in events:
            match event:
                case OperationalChanged():
                    self._note(now_ns, name, "operational", change_text(event))
                case NeighborAdded():
                    pdu = event.neighbor.pdu
                    self._note(now_ns, name, "neighbor", f"new: {pdu.chassis_id.text} {pdu.port_id.text}")
                case NeighborRemoved():
                    pdu = event.neighbor.pdu
                    text = f"gone ({event.reason.value}): {pdu.chassis_id.text} {pdu.port_id.text}"
                    self._note(now_ns, name, "neighbor", text)
                case TlvRejected():
                    self._note(now_ns, name, "rejected", event.rejection.message)
                case FrameDiscarded():
                    self._note(now_ns, name, "discarded", event.reason)
                case MultiPeerChanged():
                    text = f"{event.neighbors} neighbours: none counts" if event.active else "one neighbour is left"
                    self._note(now_ns, name, "peers", text)
                case SourceChanged():
                    source = event.election.source
                    text = f"source: {source or 'none'}: {event.election.why}"
                    self._note(now_ns, "", "source", text)

    def _note(self, now_ns: int, port: str, kind: str, text: str) -> None:
        self.logged += 1
        self.log.append(LogLine(self.logged, now_ns, port, kind, text))


def management_address(address: str, interface_number: int) -> ManagementAddress:
    """A Management Address TLV of an IP address in text; the number is that of the port."""
    ip = ipaddress.ip_address(address)
    return ManagementAddress(1 if ip.version == 4 else 2, ip.packed, 3, interface_number)

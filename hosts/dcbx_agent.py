"""DCBX of an end station, sans-IO: one `DcbxPort`, and what it means for the RoCE sender and for egress marking.

    agent = HostAgent(mac, "h1-eth0", "h1", DcbxSettings.host())
    lines = agent.set_link(True, now_ns)         # or receive(frame, ...), handle_timer(...): what happened, in words
    frames = agent.frames_to_send(now_ns)
    agent.state(now_ns)                          # plain data for the state file; `marks` is what senders read

The file of a running agent is how senders on the host know: `roce_arguments(state)` are options of `hosts.roce`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dcb.dcbx import show
from dcb.dcbx.port import DcbxEvent, DcbxPort, MultiPeerChanged, OperationalChanged, TlvRejected
from dcb.dcbx.settings import DcbxSettings, Operational
from dcb.dcbx.summary import change_text, screen, summary
from dcb.dcbx.tlv import ROCE_V2_PORT, Selector
from dcb.lldp.agent import AdminStatus, FrameDiscarded, LocalSystem
from dcb.lldp.receive import NeighborAdded, NeighborRemoved
from dcb.lldp.tlv import Capability, ChassisId, PortId, SystemCapabilities
from dcb.lldp.transmit import LldpTimers

Json = dict[str, Any]
DEFAULT_ROCE_DSCP, DEFAULT_ROCE_PRIORITY = 26, 3
DSCP_PER_CLASS_SELECTOR = 8


def roce_marks(oper: Operational) -> Json:
    """Priority, PCP and DSCP of RoCEv2, and whether that priority is lossless on this link.

    The priority is the App table's for UDP port 4791, else its for DSCP 26, else 3. The DSCP is 26 if it maps to that
    priority or to none, else the lowest that maps to it, else the priority's class selector.
    """
    by_key = {entry.key: entry.priority for entry in reversed(oper.app)}  # the first of two counts
    by_dscp = {protocol: priority for (selector, protocol), priority in by_key.items() if selector == Selector.DSCP}
    candidates = (
        by_key.get((Selector.UDP, ROCE_V2_PORT)),
        by_key.get((Selector.ANY_PORT, ROCE_V2_PORT)),
        by_dscp.get(DEFAULT_ROCE_DSCP),
    )
    priority = next((one for one in candidates if one is not None), DEFAULT_ROCE_PRIORITY)
    if by_dscp.get(DEFAULT_ROCE_DSCP, priority) == priority:
        dscp = DEFAULT_ROCE_DSCP
    else:
        fitting = [code for code, mapped in by_dscp.items() if mapped == priority]
        dscp = min(fitting, default=DSCP_PER_CLASS_SELECTOR * priority)
    return {"priority": priority, "pcp": priority, "dscp": dscp, "lossless": priority in oper.lossless_priorities}


def roce_arguments(state: Json) -> list[str]:
    """Options of `roce send` for what an agent's state says. PFC is obeyed only where the link does it."""
    roce = state["marks"]["roce"]
    options = ["--priority", str(roce["priority"]), "--dscp", str(roce["dscp"])]
    return options if roce["lossless"] else [*options, "--no-pfc"]


class HostAgent:
    """The DCBX of one interface."""

    def __init__(
        self, mac: bytes, interface: str, name: str, settings: DcbxSettings, timers: LldpTimers | None = None
    ) -> None:
        station = SystemCapabilities(Capability.STATION_ONLY, Capability.STATION_ONLY)
        local = LocalSystem(
            ChassisId.mac(mac), PortId.interface(interface), interface, name, "dcblab host", capabilities=station
        )
        self.interface, self.name = interface, name
        self.port = DcbxPort(mac, local, settings, timers=timers)
        self.changed_ns = 0

    def set_link(self, up: bool, now_ns: int) -> list[str]:
        """Carrier came or went."""
        return self._lines(self.port.set_link(up, now_ns), now_ns)

    def receive(self, frame: bytes, now_ns: int) -> list[str]:
        """An LLDP frame has come in."""
        return self._lines(self.port.receive(frame, now_ns), now_ns)

    def handle_timer(self, now_ns: int) -> list[str]:
        """What time brings."""
        return self._lines(self.port.handle_timer(now_ns), now_ns)

    def next_deadline_ns(self) -> int | None:
        """When to call `handle_timer`."""
        return self.port.next_deadline_ns()

    def frames_to_send(self, now_ns: int) -> list[bytes]:
        """The frames that are due."""
        return self.port.frames_to_send(now_ns)

    def shut_down(self, now_ns: int) -> list[bytes]:
        """The goodbye (TTL 0)."""
        self.port.frames_to_send(now_ns)
        self.port.set_admin_status(AdminStatus.DISABLED, now_ns)
        return self.port.frames_to_send(now_ns)

    @property
    def settled(self) -> bool:
        """A peer is there, speaks DCBX, and the two agree on PFC."""
        peer, oper = self.port.peer, self.port.operational
        return peer is not None and bool(peer.modes) and oper.pfc_agreed == oper.pfc_enable

    def state(self, now_ns: int) -> Json:
        """All of it as plain data, with the texts of `dcb-host show`."""
        oper = self.port.operational
        view = summary(self.port, now_ns)
        title = f"{self.interface} ({self.name})"
        roce = roce_marks(oper)
        lossless = "lossless" if roce["lossless"] else "not lossless"
        note = f"RoCEv2: priority {roce['priority']}, DSCP {roce['dscp']}, PCP {roce['pcp']}, {lossless}"
        return {
            "interface": self.interface,
            "host": self.name,
            "marks": {"roce": roce, "dscp_to_priority": _dscp(oper), "default_priority": _default(oper)},
            **view,
            "text": {
                "table": screen(view, title, [note]),
                "lldptool": show.lldptool_neighbor(self.port),
                "lldptool_local": show.lldptool_local(self.port),
                "dcb": show.dcb_ets_show(self.port) + show.dcb_pfc_show(self.port) + show.dcb_app_show(self.port),
            },
        }

    def _lines(self, events: Sequence[DcbxEvent], now_ns: int) -> list[str]:
        lines = []
        for event in events:
            match event:
                case OperationalChanged():
                    self.changed_ns = now_ns
                    lines.append(f"operational: {change_text(event)}")
                case NeighborAdded():
                    pdu = event.neighbor.pdu
                    lines.append(f"neighbor: new: {pdu.chassis_id.text} {pdu.port_id.text}")
                case NeighborRemoved():
                    pdu = event.neighbor.pdu
                    lines.append(f"neighbor: gone ({event.reason.value}): {pdu.chassis_id.text} {pdu.port_id.text}")
                case TlvRejected():
                    lines.append(f"rejected: {event.rejection.message}")
                case FrameDiscarded():
                    lines.append(f"discarded: {event.reason}")
                case MultiPeerChanged():
                    text = f"{event.neighbors} neighbours: none counts" if event.active else "one neighbour is left"
                    lines.append(f"peers: {text}")
        return lines


def _dscp(oper: Operational) -> dict[str, int]:
    # keys are text, as JSON has them
    return {str(one.protocol): one.priority for one in reversed(oper.app) if one.selector == Selector.DSCP}


def _default(oper: Operational) -> int:
    return next((one.priority for one in oper.app if one.key == (Selector.ETHER_TYPE, 0)), 0)

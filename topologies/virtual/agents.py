"""DCBX of a host in virtual time: the agent of `dcb-host` on a NIC, and the NIC runs what the agent runs.

LLDP frames go out ungated and come in as the NIC's raw frames; the link's state is the agent's carrier. With each
change of what the agent runs the NIC gets it: PFC of the priorities that both ends run, ETS by traffic class,
priorities by DSCP; and flows that follow the agreement get new marks (`dcb-host roce send` of real labs does not).
"""

from __future__ import annotations

from collections.abc import Callable

from dcb.dcbx.settings import DcbxSettings, Operational
from dcb.dcbx.tlv import Selector, Tsa
from dcb.lldp.transmit import LldpTimers
from fabric.dcbx import HostDcbx, is_lldp
from fabric.links import Link
from fabric.loop import VirtualLoop
from hosts.dcbx_agent import Json, roce_marks
from hosts.nic import Nic
from hosts.nic_config import NicDcb
from topologies.description import Host


def nic_settings(oper: Operational) -> NicDcb:
    """What a NIC does of what an agent runs. CBS has no rate in DCBX, so it is strict, as on switches; an ETS class of
    0 per cent gets weight 1."""
    table = oper.ets
    weights = {tc: max(1, table.bandwidth[tc]) for tc in set(table.priority_tc) if table.tsa[tc] == Tsa.ETS}
    dscp = {one.protocol: one.priority for one in reversed(oper.app) if one.selector == Selector.DSCP}
    return NicDcb(frozenset(oper.lossless_priorities), tuple(table.priority_tc), weights, dscp)


class NicAgent:
    """See the module. Silent until `start`; `poll` each time that the fabric has run."""

    def __init__(
        self,
        loop: VirtualLoop,
        nic: Nic,
        host: Host,
        link: Link,
        settings: DcbxSettings | None = None,
        timers: LldpTimers | None = None,
    ) -> None:
        """`settings`: default willing, of everything, with nothing of its own, as `dcb-host` is."""
        self.changes: list[tuple[int, Json]] = []  # time in ps, RoCE's marks from then on
        self._loop, self._nic, self._link = loop, nic, link
        self._followers: list[int] = []
        self._runs: Operational | None = None
        self._is_up = False
        self.dcbx = HostDcbx(
            loop,
            self._send,
            mac=bytes.fromhex(host.mac.replace(":", "")),
            interface=host.interface,
            name=host.name,
            settings=settings,
            timers=timers,
            changed=self._apply,
        )

    def start(self) -> None:
        """Speak, and let the NIC run what the agent does: at first what it has of its own."""
        self._apply()
        self._is_up = self._link.is_up
        self.dcbx.set_link(self._is_up)

    def stop(self) -> None:
        """Say goodbye; the NIC keeps what it runs."""
        self.dcbx.shut_down()

    def poll(self) -> None:
        """Take what the NIC has for the agent."""
        if self._link.is_up != self._is_up:
            self._is_up = self._link.is_up
            self.dcbx.set_link(self._is_up)
        for _, frame in self._nic.frames():
            if is_lldp(frame):
                self.dcbx.receive(frame)

    @property
    def marks(self) -> Json:
        """Priority, PCP and DSCP of RoCEv2 as agreed, and whether that is lossless."""
        return roce_marks(self.dcbx.agent.port.operational)

    def follow(self, flow: int) -> None:
        """An RDMA flow of this NIC (either end) takes the marks of each agreement from the next one on."""
        self._followers.append(flow)

    def _send(self, frame: bytes) -> None:
        self._nic.send(frame, self._loop.now_ps)

    def _apply(self) -> None:
        oper = self.dcbx.agent.port.operational
        if self._runs is not None and not oper.differs(self._runs):
            return
        before, self._runs = self._runs, oper
        now_ps = self._loop.now_ps
        self._nic.set_dcb(nic_settings(oper), now_ps)
        marks = roce_marks(oper)
        if before is not None and marks == roce_marks(before):
            return
        self.changes.append((now_ps, marks))
        for flow in self._followers:
            self._nic.set_marks(flow, now_ps, dscp=marks["dscp"], priority=marks["priority"])


DcbxOf = Callable[[Host], DcbxSettings | None]


def willing(_: Host) -> DcbxSettings:
    """Every host speaks DCBX and takes what its switch says: for `LabSettings(dcbx=willing)`."""
    return DcbxSettings.host()

"""One port's DCBX: its LLDP agent, the machines over it, and what comes out for the data plane. Sans-IO.

Data flows one way: frame -> LLDP agent -> `RemoteView` of the neighbour -> machines -> `operational` -> the TLVs that
the agent sends. Time is passed in, integer nanoseconds of a clock that never goes back.

    port = DcbxPort(mac, LocalSystem(...), DcbxSettings.switch(ets, 0b1000, app))
    events = port.set_link(True, now_ns)
    events = port.receive(frame, now_ns)            # every LLDP frame of the port
    events = port.handle_timer(now_ns)              # at port.next_deadline_ns()
    frames = port.frames_to_send(now_ns)            # after each of the above
    port.operational                                # what to program; `OperationalChanged` says when to look

More than one neighbour on the port: the peer is not known, so nothing that any of them says counts (802.1Q 38.3), and
every attribute is local, until one is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dcb.cee.convert import app_from_cee, app_to_cee, ets_from_groups, groups_from_ets
from dcb.cee.machine import CeeMachine, FeatureSettings, FeatureStatus
from dcb.cee.tlv import AppFeature, PfcFeature, PriorityGroups, SubTlv
from dcb.dcbx.congestion import Defence, announced, defences
from dcb.dcbx.machines import AsymmetricMachine, State, SymmetricMachine
from dcb.dcbx.settings import AppDialect, DcbxSettings, Mode, ModeSetting, Operational, configuration_tlvs
from dcb.dcbx.tlv import (
    AppEntry,
    ApplicationVlan,
    CongestionNotification,
    DcbxTlvs,
    EtsTable,
    PfcConfiguration,
    Selector,
    Subtype,
)
from dcb.dcbx.views import DcbxCounters, Rejection, RemoteView, ets_unusable, pfc_unusable, view
from dcb.lldp.agent import AdminStatus, FrameDiscarded, LldpAgent, LldpEvent, LocalSystem
from dcb.lldp.receive import (
    Msap,
    Neighbor,
    NeighborAdded,
    NeighborChanged,
    NeighborRefreshed,
    NeighborRemoved,
)
from dcb.lldp.tlv import OrganizationalTlv
from dcb.lldp.transmit import NS_PER_S, LldpTimers

FLAPS = 4


@dataclass(frozen=True, slots=True)
class OperationalChanged:
    """What the port runs is different. changed: of "mode", "ets", "pfc", "app", "agreed"."""

    before: Operational
    after: Operational
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TlvRejected:
    """A neighbour sent a TLV that was refused; told when it first comes, counted each time."""

    neighbor: Neighbor
    rejection: Rejection


@dataclass(frozen=True, slots=True)
class MultiPeerChanged:
    """There is more than one neighbour now, or no more."""

    active: bool
    neighbors: int


DcbxEvent = LldpEvent | OperationalChanged | TlvRejected | MultiPeerChanged


class DcbxPort:
    """DCBX over LLDP on one port. Nothing happens before `set_link(True, ...)`."""

    def __init__(
        self,
        mac: bytes,
        local: LocalSystem,
        settings: DcbxSettings,
        *,
        timers: LldpTimers | None = None,
        max_neighbors: int = 8,
        admin_status: AdminStatus = AdminStatus.RX_TX,
    ) -> None:
        """mac: of the port, 6 bytes; it is the frames' source and what ties are broken by."""
        self.lldp = LldpAgent(mac, local, timers or LldpTimers(), admin_status, max_neighbors)
        self.counters = DcbxCounters()
        self.remotes: dict[Msap, RemoteView] = {}
        self.multi_peer = False
        self.last_error: str | None = None
        self.mode = Mode.CEE if settings.mode is ModeSetting.CEE else Mode.IEEE
        self.mode_why = "as set" if settings.mode is not ModeSetting.AUTO else "IEEE unless the peer speaks only CEE"
        self._settings = settings
        self._pfc_changes_ns: deque[int] = deque(maxlen=FLAPS)
        self._ets: AsymmetricMachine[EtsTable] = AsymmetricMachine(settings.ets, settings.ets_willing)
        self._pfc: SymmetricMachine[int] = SymmetricMachine(settings.pfc_enable, settings.pfc_willing, mac)
        self._app: SymmetricMachine[tuple[AppEntry, ...]] = SymmetricMachine(settings.app, settings.app_willing, mac)
        self.cee = CeeMachine(cee_settings(settings))
        self._operational = self._run()
        self.lldp.set_organizational(self._tlvs(), 0)

    # What there is to see

    @property
    def mac(self) -> bytes:
        """MAC address of the port."""
        return self.lldp.mac

    @property
    def settings(self) -> DcbxSettings:
        """LocalAdminParam, all of it."""
        return self._settings

    @property
    def operational(self) -> Operational:
        """What the port runs, for the data plane."""
        return self._operational

    @property
    def link_up(self) -> bool:
        """Whether the link is up."""
        return self.lldp.port_enabled

    @property
    def peer(self) -> RemoteView | None:
        """The one neighbour, whose TLVs count; None where there is none or more than one."""
        if not self.link_up or self.multi_peer or len(self.remotes) != 1:
            return None
        return next(iter(self.remotes.values()))

    @property
    def pfc_flaps(self) -> bool:
        """Whether PFC changed `FLAPS` times, each within 2 s of the last, and has not been configured since.

        Two willing ends that break the tie in opposite ways can swap their PFC for ever, as fast as LLDP may send.
        """
        times = [*self._pfc_changes_ns]
        return len(times) == FLAPS and all(later - time <= 2 * NS_PER_S for time, later in pairwise(times))

    @property
    def sent(self) -> DcbxTlvs:
        """The IEEE TLVs that the port announces; none while it speaks CEE."""
        if self.mode is not Mode.IEEE:
            return DcbxTlvs()
        settings, oper = self._settings, self._operational
        app = oper.app if settings.app_dialect is AppDialect.SYMMETRIC else settings.app
        ets, recommendation, pfc, app_tlv = configuration_tlvs(settings, oper.ets, oper.pfc_enable, app)
        vlan = ApplicationVlan(settings.app_vlan) if settings.app_vlan else None
        hidden = settings.suppressed
        return DcbxTlvs(
            ets if Subtype.ETS_CONFIGURATION not in hidden else None,
            recommendation if Subtype.ETS_RECOMMENDATION not in hidden else None,
            pfc if Subtype.PFC_CONFIGURATION not in hidden else None,
            app_tlv if Subtype.APPLICATION_PRIORITY not in hidden else None,
            vlan if Subtype.APPLICATION_VLAN not in hidden else None,
            self._congestion_tlv() if Subtype.CONGESTION_NOTIFICATION not in hidden else None,
        )

    @property
    def congestion(self) -> tuple[Defence, ...]:
        """Defence of each priority against congestion that nobody notifies of (802.1Qau); CEE knows none."""
        own = self._settings.congestion if self.mode is Mode.IEEE else None
        return defences(own, self._said_congestion())

    def _said_congestion(self) -> CongestionNotification | None:
        return self.peer.effective.congestion if self.peer is not None else None

    def _congestion_tlv(self) -> CongestionNotification | None:
        own = self._settings.congestion
        return announced(own, self._said_congestion()) if own is not None else None

    # What happens to it

    def set_link(self, up: bool, now_ns: int) -> list[DcbxEvent]:
        """The link went up or down. Down: every attribute is local, and the mode is found anew."""
        if up == self.link_up:
            return []
        if not up:
            self.cee.reset()
            if self._settings.mode is ModeSetting.AUTO and self.mode is not Mode.IEEE:
                self._set_mode(Mode.IEEE, "the link went down")
        return self._after(self.lldp.set_port_enabled(up, now_ns), now_ns)

    def set_admin_status(self, status: AdminStatus, now_ns: int) -> list[DcbxEvent]:
        """Switch LLDP's directions on and off; see `LldpAgent.set_admin_status`."""
        return self._after(self.lldp.set_admin_status(status, now_ns), now_ns)

    def set_settings(self, settings: DcbxSettings, now_ns: int) -> list[DcbxEvent]:
        """Another administrative configuration; what it changes is announced at once."""
        if settings == self._settings:
            return []
        if settings.mode is not self._settings.mode:
            self._set_mode(Mode.CEE if settings.mode is ModeSetting.CEE else Mode.IEEE, "as set")
        self._settings = settings
        self._pfc_changes_ns.clear()
        self.cee.set_local(cee_settings(settings))
        return self._after([], now_ns)

    def set_local(self, local: LocalSystem, now_ns: int) -> None:
        """Say something else in the basic TLVs."""
        self.lldp.set_local(local, now_ns)

    def receive(self, frame: bytes, now_ns: int) -> list[DcbxEvent]:
        """A frame has come in on the port; what is no LLDP to the nearest bridge is left alone."""
        return self._after(self.lldp.receive(frame, now_ns), now_ns)

    def handle_timer(self, now_ns: int) -> list[DcbxEvent]:
        """What time brings. Call at `next_deadline_ns`, or whenever."""
        return self._after(self.lldp.handle_timer(now_ns), now_ns)

    def next_deadline_ns(self) -> int | None:
        """When to call `handle_timer` and `frames_to_send` next, None for never."""
        return self.lldp.next_deadline_ns()

    def frames_to_send(self, now_ns: int) -> list[bytes]:
        """The frames that are due, without FCS; each is given once."""
        frames = self.lldp.frames_to_send(now_ns)
        info_frames = len(frames) if self.lldp.admin_status.transmits else 0
        for _ in range(info_frames):
            self.counters.count_sent(self.lldp.organizational)
        return frames

    # How it works

    def _after(self, lldp_events: Sequence[LldpEvent], now_ns: int) -> list[DcbxEvent]:
        """Carry LLDP's events through the machines to what is run and sent."""
        events: list[DcbxEvent] = []
        for event in lldp_events:
            events.append(event)
            if isinstance(event, FrameDiscarded):
                self.last_error = event.reason
            elif isinstance(event, NeighborRemoved):
                self.remotes.pop(event.neighbor.msap, None)
            elif isinstance(event, NeighborAdded | NeighborChanged | NeighborRefreshed):
                events += self._heard(event.neighbor, isinstance(event, NeighborRefreshed))
        multi_peer = self.link_up and (len(self.remotes) > 1 or self.lldp.too_many_neighbors)
        if multi_peer != self.multi_peer:
            self.multi_peer = multi_peer
            self.counters.multi_peer_entered += multi_peer
            events.append(MultiPeerChanged(multi_peer, len(self.remotes)))
        self._find_mode()
        self._tell_cee()
        before, self._operational = self._operational, self._run()
        changed = self._operational.differs(before)
        if "pfc" in changed:
            self._pfc_changes_ns.append(now_ns)
        if changed:
            self.counters.state_changes += 1
            events.append(OperationalChanged(before, self._operational, changed))
        self.lldp.set_organizational(self._tlvs(), now_ns)
        return events

    def _heard(self, neighbor: Neighbor, refreshed: bool) -> list[DcbxEvent]:
        seen = view(neighbor, self.remotes.get(neighbor.msap))
        self.remotes[neighbor.msap] = seen
        self.counters.count_received(seen)
        if seen.rejections:
            self.last_error = seen.rejections[-1].message
        return [] if refreshed else [TlvRejected(neighbor, rejection) for rejection in seen.rejections]

    def _set_mode(self, mode: Mode, why: str) -> None:
        if mode is not self.mode:
            self.counters.mode_changes += 1
        self.mode, self.mode_why = mode, why

    def _find_mode(self) -> None:
        """AUTO: a peer that speaks CEE and no IEEE moves the port to CEE, until the link goes down."""
        peer = self.peer
        if self._settings.mode is not ModeSetting.AUTO or peer is None or self.mode is not Mode.IEEE:
            return
        if Mode.CEE in peer.modes and Mode.IEEE not in peer.modes:
            self.cee.reset()
            self._set_mode(Mode.CEE, "the peer speaks CEE and not IEEE")

    def _tell_cee(self) -> None:
        if self.mode is Mode.CEE:
            peer = self.peer
            cee = peer.cee if peer is not None else None
            self.cee.receive(cee, multi_peer=self.multi_peer, multi_tlv=peer is not None and peer.cee_count > 1)

    def _run(self) -> Operational:
        return self._run_cee() if self.mode is Mode.CEE else self._run_ieee()

    def _run_ieee(self) -> Operational:
        settings, peer = self._settings, self.peer
        said = peer.effective if peer is not None else DcbxTlvs()
        mac = peer.neighbor.source if peer is not None else b""
        nothing = self._why_no_peer()
        return Operational(
            self.mode,
            self._run_ets(settings, said, nothing),
            self._run_pfc(settings, said.pfc, mac, nothing),
            self._pfc.oper_param & (said.pfc.enable if said.pfc is not None else 0),
            self._run_app(settings, said, mac, nothing),
            self._ets.state,
            self._pfc.state,
            self._app.state,
            self._ets.why,
            self._pfc.why,
            self._app.why,
        )

    def _why_no_peer(self) -> str | None:
        if not self.link_up:
            return "the link is down"
        if self.multi_peer:
            return f"{len(self.remotes)} neighbours on the port: none counts"
        return None if self.remotes else "no neighbour"

    def _run_ets(self, settings: DcbxSettings, said: DcbxTlvs, nothing: str | None) -> EtsTable:
        machine = self._ets
        machine.local_admin_param, machine.local_willing = settings.ets, settings.ets_willing
        wanted = said.recommendation.table if said.recommendation is not None else None
        problem = ets_unusable(wanted, settings.max_tcs, settings.cbs) if wanted is not None else None
        machine.remote_param = wanted if problem is None else None
        machine.run()
        machine.why = nothing or problem or machine.why
        return machine.oper_param

    def _run_pfc(self, settings: DcbxSettings, said: PfcConfiguration | None, mac: bytes, nothing: str | None) -> int:
        machine = self._pfc
        machine.local_admin_param, machine.local_willing = settings.pfc_enable, settings.pfc_willing
        machine.tie_break = settings.tie_break
        problem = pfc_unusable(said, settings.pfc_cap, self._ets.oper_param.priority_tc) if said is not None else None
        machine.remote_param = said.enable if said is not None and problem is None else None
        machine.remote_willing = said is not None and said.willing
        machine.remote_mac = mac
        machine.run()
        machine.why = nothing or problem or machine.why
        return machine.oper_param

    def _run_app(self, settings: DcbxSettings, said: DcbxTlvs, mac: bytes, nothing: str | None) -> tuple[AppEntry, ...]:
        machine = self._app
        machine.local_admin_param, machine.local_willing = settings.app, settings.app_willing
        machine.tie_break, machine.remote_mac = settings.tie_break, mac
        symmetric = settings.app_dialect is AppDialect.SYMMETRIC
        theirs = said.app.entries if said.app is not None else None
        machine.remote_param = theirs if symmetric else None
        machine.remote_willing = said.app is not None and said.app.dialect_willing
        machine.run()
        if symmetric:
            machine.why = nothing or machine.why
            return machine.oper_param
        return self._merge_app(settings, theirs, nothing)

    def _merge_app(
        self, settings: DcbxSettings, theirs: tuple[AppEntry, ...] | None, nothing: str | None
    ) -> tuple[AppEntry, ...]:
        """For information only: what is set here, and where accepted, what the peer adds to it."""
        self._app.why = nothing or ("for information only" if not settings.app_accept else "no table received")
        if not settings.app_accept or theirs is None:
            return settings.app
        self._app.why = "for information only; the peer's entries are accepted"
        mine = {entry.key for entry in settings.app}
        return (*settings.app, *(replace(one, reserved=0) for one in theirs if one.known and one.key not in mine))

    def _run_cee(self) -> Operational:
        """CEE: a feature that is not operational is configured as here, and PFC then is off."""
        groups = self.cee.features[SubTlv.PRIORITY_GROUP]
        pfc = self.cee.features[SubTlv.PFC]
        app = self.cee.features[SubTlv.APPLICATION]
        assert isinstance(groups.oper, PriorityGroups)
        assert isinstance(pfc.oper, PfcFeature)
        assert isinstance(app.oper, AppFeature)
        follows = _follows(groups)
        enable = pfc.oper.enable if pfc.oper_mode else 0
        entries = self._settings.app
        if _follows(app):  # the peer's, all of it; what CEE has no words for stays as it is here
            unsaid = tuple(entry for entry in entries if entry.selector == Selector.DSCP)
            entries = (*app_from_cee(app.oper), *unsaid)
        return Operational(
            self.mode,
            ets_from_groups(groups.oper) if follows else self._settings.ets,
            enable,
            enable,
            entries,
            State.RX_RECOMMEND if follows else State.INIT,
            State.RX_RECOMMEND if _follows(pfc) else State.INIT,
            State.RX_RECOMMEND if _follows(app) else State.INIT,
            groups.why,
            pfc.why,
            app.why,
        )

    def _tlvs(self) -> tuple[OrganizationalTlv, ...]:
        if self.mode is Mode.CEE:
            return (self.cee.tlv().encode(),)
        return self.sent.encode()


def _follows(status: FeatureStatus) -> bool:
    """Whether a feature runs the peer's configuration."""
    peer = status.peer
    return status.oper_mode and status.settings.willing and peer is not None and not peer.header.willing


def cee_settings(settings: DcbxSettings) -> dict[SubTlv, FeatureSettings]:
    """The same configuration in CEE's terms."""
    return {
        SubTlv.PRIORITY_GROUP: FeatureSettings(
            groups_from_ets(settings.ets, settings.max_tcs), willing=settings.ets_willing
        ),
        SubTlv.PFC: FeatureSettings(PfcFeature(settings.pfc_enable, settings.pfc_cap), willing=settings.pfc_willing),
        SubTlv.APPLICATION: FeatureSettings(
            app_to_cee(settings.app), willing=settings.app_accept, advertise=bool(settings.app) or settings.app_accept
        ),
    }

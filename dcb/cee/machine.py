"""The control and feature state machines of CEE's DCBX, v1.01, for one port.

Unlike 802.1Qaz, an end announces what it *wants*, never what it runs, and a feature runs only when the exchange says so
(OperMode). What decides, feature by feature:

    either end has it disabled           local configuration, not operational
    willing, and the peer is not         the peer's configuration
    not willing, and the peer is         local configuration
    equally willing                      operational only where both want the same; else MISMATCH

A willing end that has no applications of its own announces those of a peer that is not willing, which are what it runs
then: open-lldp takes an Application sub-TLV without entries for none, and calls that an error.

SeqNo counts changes of what is announced; the peer returns it as AckNo. A change that comes while the last is
unacknowledged waits, and a feature that waits for its acknowledgement keeps what it runs. The machine has no timers:
`receive` takes what the one peer says (None: it is gone or says nothing), `set_local` what the operator says, `tlv` is
what to announce.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag

from dcb.cee.tlv import (
    MAX_APPS,
    AppFeature,
    CeeTlv,
    Config,
    Control,
    Feature,
    Header,
    PfcFeature,
    PriorityGroups,
    SubTlv,
)

FEATURES = (SubTlv.PRIORITY_GROUP, SubTlv.PFC, SubTlv.APPLICATION)
SEQUENCE_MASK = 0xFFFFFFFF


class ErrorFlag(IntFlag):
    """Why a feature is not operational, by CEE's names."""

    MISMATCH = 0x01
    CFG = 0x02
    MULTI_TLV = 0x04
    PEER = 0x08
    MULTI_PEER = 0x10
    NO_TLV = 0x20


NO_ERROR = ErrorFlag(0)


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """What the operator wants of a feature. advertise off: it is not announced, and runs as configured."""

    config: Config
    enable: bool = True
    willing: bool = False
    advertise: bool = True


@dataclass(slots=True)
class FeatureStatus:
    """One feature: what is announced, what the peer wants, what runs, and why.

    oper: the configuration that runs where `oper_mode` is true, and that would otherwise.
    """

    settings: FeatureSettings
    oper: Config
    oper_mode: bool = False
    error: bool = False
    flags: ErrorFlag = NO_ERROR
    syncd: bool = False
    peer: Feature | None = None
    why: str = "no peer"


def compatible(mine: Config, theirs: Config) -> bool:
    """Whether two configurations are the same in what they do."""
    if isinstance(mine, PriorityGroups) and isinstance(theirs, PriorityGroups):
        return (mine.pgid, mine.percent) == (theirs.pgid, theirs.percent)
    if isinstance(mine, PfcFeature) and isinstance(theirs, PfcFeature):
        return mine.enable == theirs.enable
    if isinstance(mine, AppFeature) and isinstance(theirs, AppFeature):
        return set(mine.entries) == set(theirs.entries)
    return False


def unusable(mine: Config, theirs: Config) -> str | None:
    """Why this end cannot run the peer's configuration, or None."""
    if isinstance(mine, PfcFeature) and isinstance(theirs, PfcFeature):
        wanted = theirs.enable.bit_count()
        if 0 < mine.num_tcs < wanted:
            return f"the peer enables PFC on {wanted} priorities, this end can on {mine.num_tcs}"
    if isinstance(mine, PriorityGroups) and isinstance(theirs, PriorityGroups):
        wanted = len(set(theirs.pgid))
        if 0 < mine.num_tcs < wanted:
            return f"the peer uses {wanted} priority groups, this end has {mine.num_tcs} traffic classes"
    return None


@dataclass(slots=True)
class CeeMachine:
    """The machines of one port. `settings` has a `FeatureSettings` for each of `FEATURES`."""

    settings: Mapping[SubTlv, FeatureSettings]
    features: dict[SubTlv, FeatureStatus] = field(init=False)
    seq_no: int = field(default=1, init=False)
    ack_no: int = field(default=0, init=False)
    my_ack_no: int = field(default=0, init=False)
    has_peer: bool = field(default=False, init=False)
    _pending: Mapping[SubTlv, FeatureSettings] | None = field(default=None, init=False)
    _peers_apps: AppFeature | None = field(default=None, init=False)  # announced for want of any of its own

    def __post_init__(self) -> None:
        self.features = {kind: FeatureStatus(self.settings[kind], self.settings[kind].config) for kind in FEATURES}

    def reset(self) -> None:
        """Begin again, as after a link that was down: nothing sent, nothing known."""
        if self._pending is not None:
            self.settings = self._pending
        self._pending = None
        self.seq_no, self.ack_no, self.my_ack_no = 1, 0, 0
        self.has_peer = False
        self._peers_apps = None
        self.__post_init__()

    def set_local(self, settings: Mapping[SubTlv, FeatureSettings]) -> None:
        """The operator wants something else. Waits where the peer has not acknowledged the last change yet."""
        if self.has_peer and self.seq_no != self.my_ack_no:
            self._pending = settings if settings != self.settings else None
        else:
            self._adopt(settings)

    def _adopt(self, settings: Mapping[SubTlv, FeatureSettings]) -> None:
        changed = [kind for kind in FEATURES if settings[kind] != self.settings[kind]]
        if SubTlv.APPLICATION in changed:
            self._peers_apps = None
        self.settings, self._pending = settings, None
        for kind in changed:
            status = self.features[kind]
            status.settings = settings[kind]
            status.syncd = False
            if not self.has_peer:
                status.oper = settings[kind].config
            elif not settings[kind].advertise:
                self._decide(kind, False)
        if changed and self.has_peer:
            self._announce_change(changed)

    def receive(self, peer: CeeTlv | None, *, multi_peer: bool = False, multi_tlv: bool = False) -> None:
        """What the peer says now. multi_peer: it is not alone. multi_tlv: its PDU held more than one TLV of CEE."""
        if peer is None and not multi_peer:
            if self.has_peer:
                self.reset()
                for status in self.features.values():
                    self._local(status, "the peer is gone", ErrorFlag.NO_TLV, error=True)
            return
        if multi_peer or peer is None:
            for status in self.features.values():
                self._local(status, "more than one peer on the port", ErrorFlag.MULTI_PEER, error=True)
            return
        self.has_peer = True
        if peer.control.oper_version != 0:
            for status in self.features.values():
                status.why = f"waits for the peer to come down from version {peer.control.oper_version} to 0"
            return
        self.my_ack_no = peer.control.ack_no
        self.ack_no = peer.control.seq_no
        refused = {problem.raw.type for problem in peer.problems}
        for kind, status in self.features.items():
            found = peer.feature(kind)
            if found is not None or kind not in refused:
                status.peer = found  # a bad sub-TLV leaves what the last good one said
            self._decide(kind, multi_tlv or kind in peer.duplicates)
        if self._pending is not None and self.seq_no == self.my_ack_no:
            self._adopt(self._pending)
        wanted = self._apps_to_repeat()
        if wanted != self._peers_apps and self.seq_no == self.my_ack_no:
            self._peers_apps = wanted
            self._announce_change((SubTlv.APPLICATION,))

    def _announce_change(self, kinds: Sequence[SubTlv]) -> None:
        for kind in kinds:
            self.features[kind].syncd = False
        self.seq_no = self.seq_no % SEQUENCE_MASK + 1

    def _apps_to_repeat(self) -> AppFeature | None:
        """The peer's applications, as far as they are of a known kind and there is room; None where they do not count.

        The peer's error bit does not matter: an end that misses applications here has it set.
        """
        status = self.features[SubTlv.APPLICATION]
        settings, peer = status.settings, status.peer
        assert isinstance(settings.config, AppFeature)
        if settings.config.entries or not (settings.advertise and settings.enable and settings.willing):
            return None
        if peer is None or peer.header.willing or not peer.header.enable or not isinstance(peer.config, AppFeature):
            return None
        known = tuple(one for one in peer.config.entries if one.selector <= 1)[:MAX_APPS]
        return AppFeature(known) if known else None

    @staticmethod
    def _local(status: FeatureStatus, why: str, flags: ErrorFlag = NO_ERROR, *, error: bool = False) -> None:
        status.oper, status.oper_mode = status.settings.config, False
        status.error, status.flags, status.why = error, flags, why

    def _decide(self, kind: SubTlv, multi_tlv: bool) -> None:
        status = self.features[kind]
        settings, peer = status.settings, status.peer
        if not settings.advertise:
            self._local(status, "not advertised")
            status.oper_mode = settings.enable
            return
        if peer is None:
            self._local(status, "the peer does not announce this feature", ErrorFlag.NO_TLV, error=True)
            status.syncd = True
            return
        if not status.syncd and self.my_ack_no != self.seq_no:
            status.why = f"waits for the peer to acknowledge SeqNo {self.seq_no} (it has {self.my_ack_no})"
            return
        status.syncd = True
        if multi_tlv:
            self._local(status, "the peer announces this feature twice", ErrorFlag.MULTI_TLV, error=True)
        elif peer.header.oper_version != 0:
            status.why = f"waits for the peer to come down from version {peer.header.oper_version} to 0"
            return
        elif not settings.enable or not peer.header.enable:
            self._local(status, "disabled here" if not settings.enable else "disabled at the peer")
        else:
            self._negotiate(status, settings, peer)
        if peer.header.error:
            status.flags |= ErrorFlag.PEER

    def _negotiate(self, status: FeatureStatus, settings: FeatureSettings, peer: Feature) -> None:
        self._local(status, "")
        same = compatible(settings.config, peer.config)
        if settings.willing and not peer.header.willing:
            status.why = "willing, and the peer is not"
            problem = unusable(settings.config, peer.config)
            if problem is not None:
                self._local(status, problem, ErrorFlag.CFG, error=True)
                return
            if not peer.header.error:
                status.oper = peer.config
        elif not settings.willing and peer.header.willing:
            status.why = "not willing, and the peer is"
        elif same:
            status.why = "equally willing, and both want the same"
        else:
            both = "both willing" if settings.willing else "neither willing"
            self._local(status, f"{both}, and they want different things", ErrorFlag.MISMATCH, error=True)
            return
        status.oper_mode = not peer.header.error

    def tlv(self) -> CeeTlv:
        """What to announce."""
        features = tuple(
            Feature(Header(status.settings.enable, status.settings.willing, status.error), self._announced(kind))
            for kind, status in self.features.items()
            if status.settings.advertise
        )
        return CeeTlv(Control(self.seq_no, self.ack_no), features)

    def _announced(self, kind: SubTlv) -> Config:
        repeated = self._peers_apps if kind is SubTlv.APPLICATION else None
        return self.features[kind].settings.config if repeated is None else repeated

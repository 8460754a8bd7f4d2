"""What a port knows of its neighbours' DCBX: the TLVs of each, what was refused, what still counts, and the counters.

`RemoteView` is of one neighbour. A TLV that was refused leaves the last good one of its kind from the same neighbour in
force (`effective`); one that is absent does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dcb.cee.tlv import CeeTlv, CinTlv, decode_cin, is_cee, is_cin
from dcb.cee.tlv import decode as decode_cee
from dcb.dcbx.settings import Mode
from dcb.dcbx.tlv import FIELDS, DcbxTlvs, EtsTable, PfcConfiguration, Subtype, Tsa, decode_all, is_dcbx
from dcb.lldp.receive import Neighbor
from dcb.lldp.tlv import OrganizationalTlv, TlvError


@dataclass(frozen=True, slots=True)
class Rejection:
    """A TLV or sub-TLV that was refused: its name, its bytes after the TLV header, and the rule that it breaks."""

    tlv: str
    octets: bytes
    message: str


@dataclass(frozen=True, slots=True)
class RemoteView:
    """One neighbour. tlvs: as received last; effective: what counts. cee, cin: of the legacy TLVs, or None.

    cee_count: how many TLVs of CEE the PDU held; more than one is an error in CEE.
    """

    neighbor: Neighbor
    tlvs: DcbxTlvs
    effective: DcbxTlvs
    cee: CeeTlv | None = None
    cee_count: int = 0
    cin: CinTlv | None = None
    rejections: tuple[Rejection, ...] = ()

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The dialects that the neighbour speaks."""
        spoken = ((Mode.IEEE, self.tlvs.any), (Mode.CEE, self.cee_count > 0), (Mode.CIN, self.cin is not None))
        return tuple(mode for mode, speaks in spoken if speaks)


def _effective(tlvs: DcbxTlvs, before: DcbxTlvs | None) -> DcbxTlvs:
    if before is None:
        return tlvs
    kept = {name: getattr(before, name) for subtype, name in FIELDS.items() if tlvs.refused(subtype)}
    return replace(tlvs, **kept)


def _rejection(name: str, octets: bytes, error: TlvError) -> Rejection:
    return Rejection(name, octets, str(error))


def view(neighbor: Neighbor, before: RemoteView | None) -> RemoteView:
    """A neighbour's last PDU, after what was known of it. Never raises."""
    organizational = neighbor.pdu.organizational
    tlvs = decode_all(organizational)
    rejections = [_rejection(one.error.tlv, one.tlv.raw().value, one.error) for one in tlvs.problems]
    cee, cee_count, cin = None, 0, None
    for tlv in organizational:
        try:
            if is_cee(tlv):
                cee_count += 1
                if cee_count == 1:
                    cee = decode_cee(tlv)
                    rejections += [_rejection(one.error.tlv, one.raw.value, one.error) for one in cee.problems]
                else:
                    raise TlvError("CEE DCBX", "occurrence", "duplicate", "must occur once in a PDU; the first counts")
            elif is_cin(tlv) and cin is None:
                cin = decode_cin(tlv)
        except TlvError as error:
            rejections.append(_rejection(error.tlv, tlv.raw().value, error))
    if cee is None and cee_count and before is not None:
        cee = before.cee  # refused whole: the last good one counts
    effective = _effective(tlvs, before.effective if before is not None else None)
    return RemoteView(neighbor, tlvs, effective, cee, cee_count, cin, tuple(rejections))


@dataclass(slots=True)
class DcbxCounters:
    """Counts of one port. The keys are the subtypes of 802.1 TLVs; CEE and CIN are counted as TLVs of their own."""

    tlvs_sent: Counter[Subtype] = field(default_factory=Counter)
    tlvs_received: Counter[Subtype] = field(default_factory=Counter)
    tlvs_rejected: Counter[str] = field(default_factory=Counter)
    cee_sent: int = 0
    cee_received: int = 0
    cin_received: int = 0
    state_changes: int = 0
    mode_changes: int = 0
    multi_peer_entered: int = 0

    def count_received(self, seen: RemoteView) -> None:
        """A PDU has come."""
        for tlv in seen.neighbor.pdu.organizational:
            if is_dcbx(tlv):
                self.tlvs_received[Subtype(tlv.subtype)] += 1
            self.cee_received += is_cee(tlv)
            self.cin_received += is_cin(tlv)
        for rejection in seen.rejections:
            self.tlvs_rejected[rejection.tlv] += 1

    def count_sent(self, tlvs: tuple[OrganizationalTlv, ...]) -> None:
        """A PDU has gone."""
        for tlv in tlvs:
            if is_dcbx(tlv):
                self.tlvs_sent[Subtype(tlv.subtype)] += 1
            self.cee_sent += is_cee(tlv)

    def as_dict(self) -> Mapping[str, object]:
        """For display and JSON: subtypes by name."""
        return {
            "tlvs_sent": {subtype.name.lower(): count for subtype, count in sorted(self.tlvs_sent.items())},
            "tlvs_received": {subtype.name.lower(): count for subtype, count in sorted(self.tlvs_received.items())},
            "tlvs_rejected": dict(sorted(self.tlvs_rejected.items())),
            "cee_sent": self.cee_sent,
            "cee_received": self.cee_received,
            "cin_received": self.cin_received,
            "state_changes": self.state_changes,
            "mode_changes": self.mode_changes,
            "multi_peer_entered": self.multi_peer_entered,
        }


def ets_unusable(table: EtsTable, max_tcs: int, cbs: bool) -> str | None:
    """Why a port with `max_tcs` traffic classes, and CBS or not, cannot run a recommended table; None where it can."""
    used = {n for n in range(8) if table.bandwidth[n] or table.tsa[n]} | set(table.priority_tc)
    if max(used) >= max_tcs:
        return f"the peer recommends traffic class {max(used)}, this port has {max_tcs}"
    if not cbs and Tsa.CBS in table.tsa:
        return f"the peer recommends CBS for traffic class {table.tsa.index(Tsa.CBS)}, this port has none"
    if Tsa.VENDOR in table.tsa:
        return f"the peer recommends a vendor specific TSA for traffic class {table.tsa.index(Tsa.VENDOR)}"
    return None


def pfc_unusable(pfc: PfcConfiguration, cap: int, priority_tc: tuple[int, ...]) -> str | None:
    """Why a port that can do PFC on `cap` traffic classes cannot run the peer's PFC; None where it can."""
    used = len({priority_tc[n] for n in pfc.priorities})
    return f"the peer enables PFC on {used} traffic classes, this port can on {cap}" if used > cap else None

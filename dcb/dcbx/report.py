"""Does a link agree? What each end sends, accepts and runs, where they differ, and what to change.

`link_report` needs one end only: by 802.1Qaz an end announces in its Configuration TLVs what it runs. A finding is a
MISMATCH where the link does not do what either end means it to, a NOTE where the ends differ and may.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dcb.cee.convert import app_from_cee, ets_from_groups
from dcb.cee.tlv import CeeTlv, Config, PfcFeature, PriorityGroups, SubTlv
from dcb.dcbx.machines import TieBreak
from dcb.dcbx.port import DcbxPort
from dcb.dcbx.settings import AppDialect, Mode
from dcb.dcbx.tlv import AppEntry, EtsTable, Tsa, bits, numbers, protocol_text
from dcb.dcbx.views import RemoteView

_CEE_ATTRIBUTES = {SubTlv.PRIORITY_GROUP: "ets", SubTlv.PFC: "pfc", SubTlv.APPLICATION: "app"}


class Severity(Enum):
    """How bad a finding is."""

    MISMATCH = "mismatch"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference. attribute: "link", "mode", "pfc", "ets" or "app"; here, there: the two sides of it."""

    severity: Severity
    attribute: str
    here: str
    there: str
    advice: str

    @property
    def text(self) -> str:
        """In one line."""
        return f"{self.severity.value}: {self.attribute}: here {self.here}, there {self.there}: {self.advice}"


@dataclass(frozen=True, slots=True)
class Side:
    """One end: what it sends, accepts ("yes", "no", "unknown") and runs, by attribute, in words."""

    sends: dict[str, str]
    accepts: dict[str, str]
    runs: dict[str, str]


@dataclass(frozen=True, slots=True)
class LinkReport:
    """Both ends of a link and what differs. there: None without a peer that counts."""

    here: Side
    there: Side | None
    findings: tuple[Finding, ...]

    @property
    def agrees(self) -> bool:
        """Whether nothing is a mismatch."""
        return all(finding.severity is not Severity.MISMATCH for finding in self.findings)

    @property
    def text(self) -> str:
        """For people: a table of both ends, then the findings."""
        lines = []
        for what in ("sends", "accepts", "runs"):
            for attribute, value in getattr(self.here, what).items():
                other = getattr(self.there, what).get(attribute, "nothing") if self.there is not None else "no peer"
                lines.append(f"{attribute:<4} {what:<8} here  {value}")
                lines.append(f"{'':<4} {'':<8} there {other}")
        return "\n".join([*lines, *(finding.text for finding in self.findings)])


def ets_text(table: EtsTable) -> str:
    """A table in words: "prio 0:0 1:0 ..; tc 0 ets 50%, 1 ets 50%, 2 strict"; classes that nothing is in left out."""
    names = {Tsa.STRICT: "strict", Tsa.CBS: "cbs", Tsa.ETS: "ets", Tsa.VENDOR: "vendor"}
    used = [n for n in range(8) if n in table.priority_tc or table.bandwidth[n]]
    classes = [
        f"{n} {names[Tsa(table.tsa[n])]}" + (f" {table.bandwidth[n]}%" if table.bandwidth[n] else "") for n in used
    ]
    return f"prio {' '.join(f'{p}:{c}' for p, c in enumerate(table.priority_tc))}; tc {', '.join(classes)}"


def _app_text(entries: tuple[AppEntry, ...]) -> str:
    return ", ".join(entry.text for entry in entries) or "none"


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _here(port: DcbxPort) -> Side:
    sent, settings, oper = port.sent, port.settings, port.operational
    if port.mode is Mode.CEE:
        sends = dict.fromkeys(("ets", "pfc", "app"), "nothing") | _cee_sends(port.cee.tlv())
    else:
        sends = {
            "ets": ets_text(sent.ets.table) if sent.ets is not None else "nothing",
            "reco": ets_text(sent.recommendation.table) if sent.recommendation is not None else "nothing",
            "pfc": numbers(sent.pfc.priorities) if sent.pfc is not None else "nothing",
            "app": _app_text(sent.app.entries) if sent.app is not None else "nothing",
        }
    accepts = {
        "ets": _yes(settings.ets_willing),
        "pfc": _yes(settings.pfc_willing),
        "app": _yes(settings.app_willing if settings.app_dialect is AppDialect.SYMMETRIC else settings.app_accept),
    }
    runs = {"ets": ets_text(oper.ets), "pfc": numbers(oper.pfc_priorities), "app": _app_text(oper.app)}
    return Side(sends, accepts, runs)


def _cee_sends(tlv: CeeTlv) -> dict[str, str]:
    return {_CEE_ATTRIBUTES[one.type]: _cee_words(one.config) for one in tlv.features}


def _there(peer: RemoteView, mode: Mode) -> Side:
    if mode is Mode.CEE:  # which does not tell what an end runs
        if peer.cee is None:
            return Side({}, {}, {})
        accepts = {_CEE_ATTRIBUTES[one.type]: _yes(one.header.willing) for one in peer.cee.features}
        return Side(_cee_sends(peer.cee), accepts, dict.fromkeys(accepts, "unknown"))
    said = peer.effective
    sends: dict[str, str] = {}
    accepts, runs = {}, {}
    if said.ets is not None:
        sends["ets"] = runs["ets"] = ets_text(said.ets.table)
        accepts["ets"] = _yes(said.ets.willing)
    if said.recommendation is not None:
        sends["reco"] = ets_text(said.recommendation.table)
    if said.pfc is not None:
        sends["pfc"] = runs["pfc"] = numbers(said.pfc.priorities)
        accepts["pfc"] = _yes(said.pfc.willing)
    if said.app is not None:
        sends["app"] = _app_text(said.app.entries)
        accepts["app"] = "unknown"
    return Side(sends, accepts, runs)


def _mismatch(attribute: str, here: str, there: str, advice: str) -> Finding:
    return Finding(Severity.MISMATCH, attribute, here, there, advice)


def _pfc(port: DcbxPort, peer: RemoteView) -> list[Finding]:
    oper, said, settings = port.operational, peer.effective.pfc, port.settings
    mine = numbers(oper.pfc_priorities)
    if said is None:
        if not oper.pfc_enable:
            return []
        return [_mismatch("pfc", mine, "no PFC TLV", "let the peer announce PFC, or switch PFC off here")]
    theirs = numbers(said.priorities)
    other = "higher-mac" if settings.tie_break is TieBreak.LOWER_MAC else "lower-mac"
    if port.pfc_flaps and settings.pfc_willing and said.willing:
        advice = "PFC changes all the time: the peer breaks the tie the other way (open-lldp does): set tie_break"
        return [_mismatch("pfc", mine, theirs, f"{advice} {other} here, or make one end not willing")]
    if said.enable == oper.pfc_enable:
        return []
    if not settings.pfc_willing and not said.willing:
        advice = f"neither end is willing: make one willing, or set PFC {mine} there or {theirs} here"
    elif settings.pfc_willing and said.willing:
        advice = (
            f"both ends are willing; if this lasts, the peer breaks the tie the other way (open-lldp does): set "
            f"tie_break {other} here, or make one end not willing"
        )
    elif said.willing:
        advice = f"the peer is willing but does not run {mine}: its PFC cap is {said.cap}, or it has yet to answer"
    else:
        advice = oper.pfc_why
    return [_mismatch("pfc", mine, theirs, advice)]


def _ets(port: DcbxPort, peer: RemoteView) -> list[Finding]:
    oper, said, settings = port.operational, peer.effective, port.settings
    if said.ets is None or said.ets.table == oper.ets:
        return []
    here, there = ets_text(oper.ets), ets_text(said.ets.table)
    wanted = port.sent.recommendation
    if said.ets.willing and wanted is not None and said.ets.table != wanted.table:
        advice = f"the peer is willing but does not run what is recommended: it has {said.ets.max_tcs} traffic classes"
        return [_mismatch("ets", here, there, f"{advice}, or it has yet to answer")]
    if settings.ets_willing and said.recommendation is None:
        return [_mismatch("ets", here, there, "willing here, but the peer recommends nothing: let it recommend ETS")]
    if settings.ets_willing and said.recommendation is not None and said.recommendation.table != oper.ets:
        return [_mismatch("ets", here, there, oper.ets_why)]
    if said.ets.table.priority_tc != oper.ets.priority_tc:
        advice = "priorities share a traffic class at one end and not at the other: make one end willing"
        return [_mismatch("ets", here, there, advice)]
    return [Finding(Severity.NOTE, "ets", here, there, "each direction has its own bandwidths, as ETS allows")]


def _app(port: DcbxPort, peer: RemoteView) -> list[Finding]:
    said = peer.effective.app
    findings = []
    mine: dict[tuple[int, int], set[int]] = {}
    theirs: dict[tuple[int, int], set[int]] = {}
    for table, entries in ((mine, port.operational.app), (theirs, said.entries if said is not None else ())):
        for entry in entries:
            table.setdefault(entry.key, set()).add(entry.priority)
    for key in mine.keys() & theirs.keys():
        if mine[key] != theirs[key]:
            what = protocol_text(*key)
            here, there = (f"{what} -> {numbers(sorted(table[key]))}" for table in (mine, theirs))
            findings.append(_mismatch("app", here, there, "give the application one priority at both ends"))
    return sorted(findings, key=lambda finding: finding.here)


def _cee_text(config: Config) -> str:
    if isinstance(config, PriorityGroups):
        groups = " ".join(f"{priority}:{group}" for priority, group in enumerate(config.pgid))
        return f"PGIDs {groups}, {'/'.join(map(str, config.percent))} %"
    if isinstance(config, PfcFeature):
        return f"PFC {numbers(bits(config.enable))}"
    return _app_text(app_from_cee(config))


def _cee_words(config: Config) -> str:
    """In the words of the other dialect, for the table of both ends."""
    if isinstance(config, PriorityGroups):
        return ets_text(ets_from_groups(config))
    if isinstance(config, PfcFeature):
        return numbers(bits(config.enable))
    return _app_text(app_from_cee(config))


def _cee(port: DcbxPort) -> list[Finding]:
    findings = []
    for kind, status in port.cee.features.items():
        if status.oper_mode or not status.settings.advertise:
            continue
        attribute = _CEE_ATTRIBUTES[kind]
        there = "nothing" if status.peer is None else _cee_text(status.peer.config)
        flags = str(status.flags.name) if status.flags else "not operational"
        findings.append(_mismatch(attribute, _cee_text(status.settings.config), there, f"{flags}: {status.why}"))
    return findings


def _link(port: DcbxPort) -> Finding | None:
    if not port.link_up:
        return _mismatch("link", "down", "unknown", "bring the link up")
    if port.multi_peer:
        names = ", ".join(f"{seen.pdu.chassis_id.text}/{seen.pdu.port_id.text}" for seen in port.lldp.neighbors)
        advice = "leave one LLDP speaker on the link; until then nothing that they say counts"
        return _mismatch("link", f"{len(port.remotes)} neighbours", names, advice)
    if port.peer is None:
        return _mismatch("link", "no neighbour", "silent", "start LLDP and DCBX at the other end, or look for filters")
    return None


def link_report(port: DcbxPort) -> LinkReport:
    """What there is to say of a port's link now."""
    here = _here(port)
    peer = port.peer
    problem = _link(port)
    if problem is not None or peer is None:
        return LinkReport(here, None, (problem,) if problem is not None else ())
    findings: list[Finding] = []
    if not peer.modes:
        advice = "the peer speaks LLDP and no DCBX: switch DCBX on there, or configure that end by hand"
        findings.append(_mismatch("mode", port.mode.value, "no DCBX", advice))
    elif port.mode not in peer.modes:
        spoken = ", ".join(mode.value for mode in peer.modes)
        findings.append(
            _mismatch("mode", port.mode.value, spoken, "set one dialect of DCBX at both ends, or mode auto here")
        )
    for rejection in peer.rejections:
        findings.append(
            _mismatch("tlv", "refused", rejection.message, "correct it at the peer; the last good one counts")
        )
    if port.mode is Mode.CEE and Mode.CEE in peer.modes:
        findings += _cee(port)
    elif port.mode is Mode.IEEE and Mode.IEEE in peer.modes:
        findings += [*_pfc(port, peer), *_ets(port, peer), *_app(port, peer)]
    return LinkReport(here, _there(peer, port.mode), tuple(findings))

"""One port's DCBX as plain data (`summary`), for JSON and for display, and that data in one screen (`screen`).

What the standard names stays by name: `local` is LocalAdminParam, `remote` what the one peer that counts says,
`operational` OperParam with the machines' states and reasons.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dcb.cee.convert import app_from_cee, ets_from_groups
from dcb.cee.tlv import CeeTlv, PfcFeature, PriorityGroups
from dcb.dcbx.congestion import Defence
from dcb.dcbx.port import DcbxPort, OperationalChanged
from dcb.dcbx.report import ets_text, link_report
from dcb.dcbx.settings import AppDialect, Mode, Operational
from dcb.dcbx.tlv import AppEntry, CongestionNotification, EtsTable, Tsa, bits, numbers
from dcb.dcbx.views import RemoteView
from dcb.lldp.receive import Neighbor
from dcb.lldp.tlv import TYPE_SYSTEM_NAME
from dcb.lldp.transmit import NS_PER_S

Json = dict[str, Any]
TSA_NAMES = {Tsa.STRICT: "strict", Tsa.CBS: "cbs", Tsa.ETS: "ets", Tsa.VENDOR: "vendor"}


def ets_data(table: EtsTable) -> Json:
    """Lists by priority and by traffic class, and the same in words."""
    return {
        "priority_to_tc": list(table.priority_tc),
        "bandwidth_percent": list(table.bandwidth),
        "tsa": [TSA_NAMES[Tsa(tsa)] for tsa in table.tsa],
        "text": ets_text(table),
    }


def app_data(entries: tuple[AppEntry, ...]) -> list[Json]:
    """A list of applications."""
    return [
        {"selector": one.selector, "protocol": one.protocol, "priority": one.priority, "text": one.text}
        for one in entries
    ]


def _local(port: DcbxPort) -> Json:
    settings = port.settings
    symmetric = settings.app_dialect is AppDialect.SYMMETRIC
    return {
        "ets": ets_data(settings.ets) | {"willing": settings.ets_willing, "max_tcs": settings.max_tcs},
        "recommendation": None if settings.recommendation is None else ets_data(settings.recommendation),
        "pfc": {
            "enabled": list(bits(settings.pfc_enable)),
            "willing": settings.pfc_willing,
            "cap": settings.pfc_cap,
            "macsec_bypass": settings.mbc,
        },
        "app": {
            "entries": app_data(settings.app),
            "willing": settings.app_willing if symmetric else settings.app_accept,
            "dialect": settings.app_dialect.value,
        },
        "congestion": _congestion(settings.congestion),
    }


def _congestion(said: CongestionNotification | None) -> Json | None:
    return None if said is None else {"cnpv": list(bits(said.cnpv)), "ready": list(bits(said.ready))}


def _remote(peer: RemoteView | None, mode: Mode) -> Json | None:
    """What the peer says in the dialect that the port speaks."""
    if peer is None:
        return None
    modes = {"modes": [spoken.value for spoken in peer.modes]}
    return modes | (_remote_cee(peer.cee) if mode is Mode.CEE else _remote_ieee(peer))


def _remote_cee(said: CeeTlv | None) -> Json:
    """In the shape of the other dialect; CEE has willing for applications too, and no recommendation."""
    found: Json = dict.fromkeys(("ets", "recommendation", "pfc", "app"))
    for feature in said.features if said is not None else ():
        willing, config = {"willing": feature.header.willing}, feature.config
        if isinstance(config, PriorityGroups):
            found["ets"] = ets_data(ets_from_groups(config)) | willing | {"max_tcs": config.num_tcs or 8}
        elif isinstance(config, PfcFeature):
            enabled = list(bits(config.enable))
            found["pfc"] = {"enabled": enabled} | willing | {"cap": config.num_tcs, "macsec_bypass": False}
        else:
            found["app"] = {"entries": app_data(app_from_cee(config))} | willing
    return found


def _remote_ieee(peer: RemoteView) -> Json:
    said = peer.effective
    return {
        "ets": None
        if said.ets is None
        else ets_data(said.ets.table) | {"willing": said.ets.willing, "max_tcs": said.ets.max_tcs},
        "recommendation": None if said.recommendation is None else ets_data(said.recommendation.table),
        "pfc": None
        if said.pfc is None
        else {
            "enabled": list(said.pfc.priorities),
            "willing": said.pfc.willing,
            "cap": said.pfc.cap,
            "macsec_bypass": said.pfc.mbc,
        },
        "app": None if said.app is None else {"entries": app_data(said.app.entries)},
        "congestion": _congestion(said.congestion),
    }


def _neighbor(neighbor: Neighbor, now_ns: int) -> Json:
    pdu = neighbor.pdu
    return {
        "chassis_id": pdu.chassis_id.text,
        "port_id": pdu.port_id.text,
        "system_name": pdu.text(TYPE_SYSTEM_NAME),
        "mac": neighbor.source.hex(":"),
        "management_addresses": [address.text for address in pdu.management_addresses],
        "ttl_s": pdu.ttl.seconds,
        "expires_in_s": max(0, neighbor.expires_ns - now_ns) // NS_PER_S,
        "known_for_s": max(0, now_ns - neighbor.first_seen_ns) // NS_PER_S,
    }


def summary(port: DcbxPort, now_ns: int) -> Json:
    """Everything that there is to see of a port now. Times in seconds, counters since the port was made."""
    oper, settings, report = port.operational, port.settings, link_report(port)
    return {
        "mac": port.mac.hex(":"),
        "link_up": port.link_up,
        "mode": port.mode.value,
        "mode_setting": settings.mode.value,
        "mode_why": port.mode_why,
        "tie_break": settings.tie_break.value,
        "neighbors": [_neighbor(one, now_ns) for one in port.lldp.neighbors],
        "multi_peer": port.multi_peer,
        "local": _local(port),
        "remote": _remote(port.peer, port.mode),
        "operational": {
            "ets": ets_data(oper.ets) | {"state": oper.ets_state.value, "why": oper.ets_why},
            "pfc": {
                "enabled": list(oper.pfc_priorities),
                "lossless": list(oper.lossless_priorities),
                "state": oper.pfc_state.value,
                "why": oper.pfc_why,
            },
            "app": {"entries": app_data(oper.app), "state": oper.app_state.value, "why": oper.app_why},
            "congestion": [defence.value for defence in port.congestion],
        },
        "cee": _cee(port) if port.mode is Mode.CEE else None,
        "agrees": report.agrees,
        "findings": [
            {
                "severity": finding.severity.value,
                "attribute": finding.attribute,
                "here": finding.here,
                "there": finding.there,
                "advice": finding.advice,
            }
            for finding in report.findings
        ],
        "sends": report.here.sends,
        "counters": {"lldp": asdict(port.lldp.counters), "dcbx": dict(port.counters.as_dict())},
        "last_error": port.last_error,
    }


def _cee(port: DcbxPort) -> list[Json]:
    return [
        {
            "feature": kind.name.lower(),
            "willing": status.settings.willing,
            "operational": status.oper_mode,
            "errors": status.flags.name if status.flags else None,
            "why": status.why,
        }
        for kind, status in port.cee.features.items()
    ]


# ---- one screen -----------------------------------------------------------------------------------------------------


def _yes(value: object) -> str:
    return "-" if value is None else "yes" if value else "no"


def _apps(entries: list[Json]) -> str:
    return ", ".join(entry["text"] for entry in entries) or "none"


def _rows(view: Json) -> list[tuple[str, str, str, str]]:
    """(what, whose, willing or state, value)."""
    local, remote, oper = view["local"], view["remote"] or {}, view["operational"]
    rows = []
    for name, value in (
        ("pfc", lambda side: numbers(side["enabled"])),
        ("ets", lambda side: side["text"]),
        ("app", lambda side: _apps(side["entries"])),
    ):
        rows.append(
            (name.upper() if name != "app" else "App", "local", _yes(local[name]["willing"]), value(local[name]))
        )
        said = remote.get(name)
        rows.append(("", "remote", _yes(said and said.get("willing")), "nothing" if said is None else value(said)))
        if name == "ets" and remote.get("recommendation") is not None:
            rows.append(("", "recommended", "", remote["recommendation"]["text"]))
        rows.append(("", "running", oper[name]["state"], f"{value(oper[name])}  [{oper[name]['why']}]"))
        if name == "pfc":
            rows.append(("", "lossless", "", numbers(oper["pfc"]["lossless"])))
    return rows + _congestion_rows(local["congestion"], remote.get("congestion"), oper["congestion"])


def _congestion_rows(local: Json | None, remote: Json | None, states: list[str]) -> list[tuple[str, str, str, str]]:
    """Nothing where neither end has a congestion notification priority."""
    rows: list[tuple[str, str, str, str]] = []
    for whose, said in (("local", local), ("remote", remote)):
        value = "nothing" if said is None else f"CNPV {numbers(said['cnpv'])}, ready {numbers(said['ready'])}"
        rows.append(("" if rows else "CN", whose, "", value))
    running = ", ".join(f"{n} {state}" for n, state in enumerate(states) if state != Defence.DISABLED.value)
    rows.append(("", "running", "", running or "none"))
    return rows if local or remote else []


def screen(view: Json, title: str, notes: list[str] | None = None) -> str:
    """A port for people. title: what it is called; notes: lines that go under it (role, source)."""
    mode = view["mode"] + ("" if view["mode_setting"] != "auto" else f" (auto: {view['mode_why']})")
    lines = [
        f"{title}  {view['mac']}  link {'up' if view['link_up'] else 'down'}  mode {mode}  tie {view['tie_break']}"
    ]
    lines += [f"  {note}" for note in notes or []]
    for one in view["neighbors"]:
        name = f" ({one['system_name']})" if one["system_name"] else ""
        times = f"TTL {one['ttl_s']} s, {one['expires_in_s']} s left"
        lines.append(f"  neighbour {one['chassis_id']} {one['port_id']}{name}, {one['mac']}, {times}")
    if not view["neighbors"]:
        lines.append("  neighbour none")
    elif view["multi_peer"]:
        lines.append(f"  {len(view['neighbors'])} neighbours: none counts")
    lines.append(f"  {'':<4} {'':<11}  {'will./state':<11}  ")
    lines += [f"  {what:<4} {whose:<11}  {flag:<11}  {value}" for what, whose, flag, value in _rows(view)]
    for feature in view["cee"] or []:
        state = "operational" if feature["operational"] else f"off, {feature['errors'] or 'no error'}"
        lines.append(f"  CEE  {feature['feature']}: {state}: {feature['why']}")
    lldp, dcbx = view["counters"]["lldp"], view["counters"]["dcbx"]
    lines.append(
        f"  frames sent {lldp['stats_frames_out_total']}, received {lldp['stats_frames_in_total']}, "
        f"discarded {lldp['stats_frames_discarded_total']}, with errors {lldp['stats_frames_in_errors_total']}; "
        f"neighbours aged out {lldp['stats_ageouts_total']}; TLVs rejected {sum(dcbx['tlvs_rejected'].values())}; "
        f"changes {dcbx['state_changes']}"
    )
    lines.append(f"  last error {view['last_error'] or 'none'}")
    for finding in view["findings"]:
        what = f"{finding['severity']}: {finding['attribute']}"
        lines.append(f"  {what}: here {finding['here']}, there {finding['there']}: {finding['advice']}")
    return "\n".join(line.rstrip() for line in lines)


def change_text(event: OperationalChanged) -> str:
    """What is different, in words: "PFC 3 -> 3,4 (lossless 3); ETS ..."."""
    before, after = event.before, event.after
    parts = []
    if "mode" in event.changed:
        parts.append(f"mode {before.mode.value} -> {after.mode.value}")
    if {"pfc", "agreed"} & set(event.changed):
        parts.append(f"PFC {_pfc(before)} -> {_pfc(after)}: {after.pfc_why}")
    if "ets" in event.changed:
        parts.append(f"ETS {ets_text(after.ets)}: {after.ets_why}")
    if "app" in event.changed:
        parts.append(f"App {', '.join(entry.text for entry in after.app) or 'none'}: {after.app_why}")
    return "; ".join(parts)


def _pfc(oper: Operational) -> str:
    lossless = numbers(oper.lossless_priorities)
    return f"{numbers(oper.pfc_priorities)} (lossless {lossless})"

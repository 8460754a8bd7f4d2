"""All there is to know of a port as plain data, for JSON and for a screen: configured, remote, operational, counters.

`port_status` gives dicts, lists, strings, numbers and None only; keys are stable. `election_status` is of a switch.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dcb.dcbx.fabric import DcbxSwitch
from dcb.dcbx.port import DcbxPort
from dcb.dcbx.report import link_report
from dcb.dcbx.settings import DcbxSettings, Operational
from dcb.dcbx.tlv import AppEntry, DcbxTlvs, EtsTable, bits
from dcb.dcbx.views import RemoteView
from dcb.lldp.transmit import NS_PER_S

_TSA = {0: "strict", 1: "cbs", 2: "ets", 255: "vendor"}


def _ets(table: EtsTable) -> dict[str, Any]:
    tsa = [_TSA[algorithm] for algorithm in table.tsa]
    return {"priority_tc": list(table.priority_tc), "bandwidth": list(table.bandwidth), "tsa": tsa}


def _app(entries: tuple[AppEntry, ...]) -> list[dict[str, int]]:
    return [{"selector": int(one.selector), "protocol": one.protocol, "priority": one.priority} for one in entries]


def _admin(settings: DcbxSettings) -> dict[str, Any]:
    recommendation = settings.recommendation
    return {
        "mode": settings.mode.value,
        "tie_break": settings.tie_break.value,
        "ets": {
            **_ets(settings.ets),
            "willing": settings.ets_willing,
            "max_tcs": settings.max_tcs,
            "cbs": settings.cbs,
            "recommendation": _ets(recommendation) if recommendation is not None else None,
        },
        "pfc": {
            "priorities": list(bits(settings.pfc_enable)),
            "willing": settings.pfc_willing,
            "cap": settings.pfc_cap,
            "mbc": settings.mbc,
        },
        "app": {
            "entries": _app(settings.app),
            "accept": settings.app_accept,
            "willing": settings.app_willing,
            "dialect": settings.app_dialect.value,
        },
    }


def _operational(oper: Operational) -> dict[str, Any]:
    return {
        "ets": {**_ets(oper.ets), "state": oper.ets_state.value, "why": oper.ets_why},
        "pfc": {
            "priorities": list(oper.pfc_priorities),
            "lossless": list(oper.lossless_priorities),
            "state": oper.pfc_state.value,
            "why": oper.pfc_why,
        },
        "app": {"entries": _app(oper.app), "state": oper.app_state.value, "why": oper.app_why},
    }


def _said(tlvs: DcbxTlvs) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if tlvs.ets is not None:
        ets = tlvs.ets
        said["ets"] = {**_ets(ets.table), "willing": ets.willing, "max_tcs": ets.max_tcs, "cbs": ets.cbs}
    if tlvs.recommendation is not None:
        said["recommendation"] = _ets(tlvs.recommendation.table)
    if tlvs.pfc is not None:
        pfc = tlvs.pfc
        said["pfc"] = {"priorities": list(pfc.priorities), "willing": pfc.willing, "cap": pfc.cap, "mbc": pfc.mbc}
    if tlvs.app is not None:
        said["app"] = _app(tlvs.app.entries)
    if tlvs.app_vlan is not None:
        said["app_vlan"] = [asdict(entry) for entry in tlvs.app_vlan.entries]
    if tlvs.congestion is not None:
        congestion = tlvs.congestion
        said["congestion"] = {"cnpv": list(bits(congestion.cnpv)), "ready": list(bits(congestion.ready))}
    return said


def _remote(seen: RemoteView, now_ns: int) -> dict[str, Any]:
    neighbor, pdu = seen.neighbor, seen.neighbor.pdu
    return {
        "chassis_id": pdu.chassis_id.text,
        "port_id": pdu.port_id.text,
        "mac": neighbor.source.hex(":"),
        "system_name": pdu.text(5),
        "management_addresses": [address.text for address in pdu.management_addresses],
        "ttl_s": pdu.ttl.seconds,
        "expires_in_s": max(0, -(-(neighbor.expires_ns - now_ns) // NS_PER_S)),
        "modes": [mode.value for mode in seen.modes],
        "effective": _said(seen.effective),
        "rejected": [{"tlv": one.tlv, "octets": one.octets.hex(), "message": one.message} for one in seen.rejections],
    }


def _cee(port: DcbxPort) -> dict[str, Any]:
    control = port.cee.tlv().control
    features = {
        kind.name.lower(): {
            "oper_mode": status.oper_mode,
            "error": status.error,
            "flags": [flag.name for flag in status.flags],
            "synced": status.syncd,
            "why": status.why,
        }
        for kind, status in port.cee.features.items()
    }
    return {"seq_no": control.seq_no, "ack_no": control.ack_no, "features": features}


def port_status(port: DcbxPort, now_ns: int) -> dict[str, Any]:
    """One port. `expires_in_s` of a neighbour is in whole seconds, rounded up; `cee` is None unless CEE is spoken."""
    report = link_report(port)
    return {
        "mac": port.mac.hex(":"),
        "link_up": port.link_up,
        "lldp": port.lldp.admin_status.value,
        "mode": port.mode.value,
        "mode_why": port.mode_why,
        "multi_peer": port.multi_peer,
        "admin": _admin(port.settings),
        "operational": _operational(port.operational),
        "remotes": [_remote(seen, now_ns) for seen in port.remotes.values()],
        "cee": _cee(port) if port.mode.value == "cee" else None,
        "agrees": report.agrees,
        "findings": [{**asdict(finding), "severity": finding.severity.value} for finding in report.findings],
        "counters": {"dcbx": port.counters.as_dict(), "lldp": asdict(port.lldp.counters)},
        "last_error": port.last_error,
    }


def election_status(switch: DcbxSwitch) -> dict[str, Any]:
    """Who is the source of a switch's configuration, and the part of each port."""
    election = switch.election
    ports = {name: {"role": switch.role(name).value, "part": part} for name, part in election.ports.items()}
    return {"source": election.source, "why": election.why, "ports": ports}

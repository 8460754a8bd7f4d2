"""Text as the tools of the field print it: open-lldp's `lldptool -t` and iproute2's `dcb ets|pfc|app show`.

`lldptool_neighbor` is `lldptool -t -n -i PORT`, `lldptool_local` is `lldptool -t -i PORT`; `dcb_*_show` are of what a
port runs. Spaces at line ends, the tabs and the double spaces are the tools'; scripts that read them carry over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dcb.cee.tlv import OUI_INTEL, AppFeature, CeeTlv, Feature, PfcFeature, PriorityGroups, is_cee
from dcb.cee.tlv import decode as decode_cee
from dcb.dcbx.port import DcbxPort
from dcb.dcbx.tlv import (
    AppEntry,
    ApplicationPriority,
    ApplicationVlan,
    CongestionNotification,
    EtsConfiguration,
    EtsRecommendation,
    EtsTable,
    PfcConfiguration,
    Selector,
    bits,
    is_dcbx,
    protocol_text,
)
from dcb.dcbx.tlv import decode as decode_dcbx
from dcb.lldp.pdu import Lldpdu, PduError, decode_frame, decode_pdu
from dcb.lldp.tlv import (
    Capability,
    ChassisId,
    ManagementAddress,
    OrganizationalTlv,
    PortId,
    RawTlv,
    SystemCapabilities,
    TextTlv,
    TimeToLive,
    Tlv,
    TlvError,
    address_text,
)

_LLDPTOOL_TSA = {0: "strict", 1: "cbshaper", 2: "ets", 255: "vendor"}
_DCB_TSA = {0: "strict", 1: "cbs", 2: "ets", 255: "vendor"}
_CAPABILITIES = {
    Capability.OTHER: "Other",
    Capability.REPEATER: "Repeater",
    Capability.BRIDGE: "Bridge",
    Capability.WLAN_ACCESS_POINT: "WLAN Access Point",
    Capability.ROUTER: "Router",
    Capability.TELEPHONE: "Telephone",
    Capability.DOCSIS: "DOCSIS cable device",
    Capability.STATION_ONLY: "Station Only",
}
_CHASSIS = {1: "Chassis Component", 2: "IfAlias", 3: "Port Component", 4: "MAC", 6: "Ifname", 7: "Local"}
_PORT = {1: "Interface Alias", 2: "Port Component", 3: "MAC", 5: "Ifname", 6: "Agent Circuit ID", 7: "Local"}
_TEXTS = {4: "Port Description TLV", 5: "System Name TLV", 6: "System Description TLV"}
_DSCP_NAMES = {
    **{8 * n: f"CS{n}" for n in range(1, 8)},
    **{8 * n + 2 * m: f"AF{n}{m}" for n in range(1, 5) for m in range(1, 4)},
    46: "EF",
}


def _pairs(values: Iterable[object]) -> str:
    return "".join(f"{n}:{value} " for n, value in enumerate(values))


def _on_off(flag: object) -> str:
    return "on" if flag else "off"


def _address(family: int, address: bytes) -> str:
    kind = {1: "IPv4", 2: "IPv6", 6: "MAC"}.get(family)
    return f"{kind or f'Network Address Type {family}'}: {address_text(family, address)}"


def _identity(subtype: int, identifier: bytes, text: str, names: dict[int, str], network: int) -> str:
    if subtype == network and len(identifier) > 1:
        return _address(identifier[0], identifier[1:])
    return f"{names[subtype]}: {text}" if subtype in names else f"Bad ID: {identifier.hex()}"


def _capabilities(bitmap: int) -> str:
    return ", ".join(name for bit, name in _CAPABILITIES.items() if bitmap & bit)


def _ets_lines(table: EtsTable, map_gap: str) -> list[str]:
    return [
        f" PRIO_MAP:{map_gap}{_pairs(table.priority_tc)}",
        f" TC Bandwidth: {''.join(f'{percent}% ' for percent in table.bandwidth)}",
        f" TSA_MAP: {_pairs(_LLDPTOOL_TSA[tsa] for tsa in table.tsa)}",
    ]


def _app_lines(entries: Sequence[AppEntry]) -> list[str]:
    kinds = {1: "Ethertype: 0x%04x", 2: "{S}TCP Port: %i", 3: "UDP or DCCP Port: %i", 4: "TCP/STCP/UDP/DCCP Port: %i"}
    lines = []
    for index, one in enumerate(entries):
        if one.selector != Selector.DSCP:
            protocol = kinds.get(one.selector, "Reserved Port: %i") % one.protocol
            lines.append(f"App# {index:3} \t Prio {one.priority} \t Sel {one.selector} \t P-ID\t {protocol}")
    for priority in range(8):
        codes = [one.protocol for one in entries if one.selector == Selector.DSCP and one.priority == priority]
        if codes:
            # The tool prints a comma too many and backs over it; so does this, byte for byte.
            lines.append(f"Prio:{priority} \t dscp: {''.join(f' {code:02},' for code in codes)}\b ")
    return lines


def _yes_no(flag: bool) -> str:
    return "yes" if flag else "no"


def _dcbx(tlv: OrganizationalTlv) -> tuple[str, list[str]]:
    match decode_dcbx(tlv):
        case EtsConfiguration() as ets:
            lines = [
                f" Willing: {_yes_no(ets.willing)}",
                f" CBS: {'supported' if ets.cbs else 'not supported'}",
                f" MAX_TCS: {ets.max_tcs}",
                *_ets_lines(ets.table, " "),
            ]
            return "IEEE 8021QAZ ETS Configuration TLV", lines
        case EtsRecommendation() as recommendation:
            return "IEEE 8021QAZ ETS Recommendation TLV", _ets_lines(recommendation.table, "  ")
        case PfcConfiguration() as pfc:
            lines = [
                f" Willing: {_yes_no(pfc.willing)}",
                f" MACsec Bypass Capable: {_yes_no(pfc.mbc)}",
                f" PFC capable traffic classes: {pfc.cap}",
                f" PFC enabled: {''.join(f'{n} ' for n in pfc.priorities) or 'none'}",
            ]
            return "IEEE 8021QAZ PFC TLV", lines
        case ApplicationPriority() as app:
            return "IEEE 8021QAZ APP TLV", _app_lines(app.entries)
        case ApplicationVlan() as vlan:
            entries = [f"VID {one.vid} \t {protocol_text(one.selector, one.protocol)}" for one in vlan.entries]
            return "IEEE 8021Qcd Application VLAN TLV", entries or ["none"]
        case CongestionNotification() as congestion:
            cnpv, ready = (" ".join(map(str, bits(bitmap))) or "none" for bitmap in (congestion.cnpv, congestion.ready))
            return "IEEE 8021Qau Congestion Notification TLV", [f" CNPV: {cnpv}", f" Ready: {ready}"]


def _cee_config(feature: Feature) -> tuple[str, list[str]]:
    config = feature.config
    if isinstance(config, PriorityGroups):
        members = {group: [p for p in range(8) if config.pgid[p] == group] for group in sorted(set(config.pgid))}
        listed = "".join(f" {group}:[{','.join(map(str, ps))}]" for group, ps in members.items())
        percent = " ".join(f"{n}:{share}%" for n, share in enumerate(config.percent))
        lines = [f"PGID Priorities: {listed}", f"PGID Percentages: {percent}"]
        return "Priority Groups TLV:", [*lines, f"Number of TC's supported: {config.num_tcs}"]
    if isinstance(config, PfcFeature):
        enabled = ", ".join(map(str, bits(config.enable))) or "none"
        return "Priority Flow Control TLV:", [
            f"PFC enabled priorities: {enabled}",
            f"Number of TC's supported: {config.num_tcs}",
        ]
    return "Application TLV:", _cee_apps(config)


def _cee_apps(config: AppFeature) -> list[str]:
    lines = []
    for one in config.entries:
        if one.oui == OUI_INTEL:
            kind = {0: "Ethertype", 1: "TCP/UDP Port"}.get(one.selector, "Reserved")
            what = f"{kind}: 0x{one.protocol:04x}"
        else:
            what = f"OUI: 0x{one.oui.hex()}, Selector: {one.selector}, Protocol ID: 0x{one.protocol:04x}"
        lines.append(f"{what}, Priority Map: 0x{one.priorities:02x}")
    return lines


def _cee(tlv: CeeTlv) -> tuple[str, list[str]]:
    lines = ["Control TLV:", f"  SeqNo: {tlv.control.seq_no}, AckNo: {tlv.control.ack_no}"]
    for feature in tlv.features:
        header = feature.header
        flags = (
            f"{'' if header.enable else 'Not '}Enabled, {'' if header.willing else 'Not '}Willing, "
            f"{'' if header.error else 'No '}Error"
        )
        name, config = _cee_config(feature)
        lines += [name, f"  {flags}", *(f"  {line}" for line in config)]
    lines += [f"Unknown DCBX sub-TLV {raw.type}: {raw.value.hex()}" for raw in tlv.unknown]
    return "CEE DCBX TLV", lines


def _organizational(tlv: OrganizationalTlv) -> tuple[str, list[str]]:
    try:
        if is_dcbx(tlv):
            return _dcbx(tlv)
        if is_cee(tlv):
            return _cee(decode_cee(tlv))
    except TlvError as error:
        return f"Bad {error.tlv} TLV", [f"{error.field}: {error.value}, {error.rule}", f"Info: {tlv.info.hex()}"]
    identity = f"OUI: 0x{tlv.oui.hex()}, Subtype: {tlv.subtype}, Info: {tlv.info.hex()}"
    return "Unidentified Org Specific TLV", [identity]


def _tlv(view: Tlv) -> tuple[str, list[str]]:
    match view:
        case ChassisId(subtype, identifier):
            return "Chassis ID TLV", [_identity(subtype, identifier, view.text, _CHASSIS, 5)]
        case PortId(subtype, identifier):
            return "Port ID TLV", [_identity(subtype, identifier, view.text, _PORT, 4)]
        case TimeToLive(seconds):
            return "Time to Live TLV", [str(seconds)]
        case TextTlv(kind):
            return _TEXTS[kind], [view.text]
        case SystemCapabilities(system, enabled):
            lines = [
                f"System capabilities:  {_capabilities(system)}",
                f"Enabled capabilities: {_capabilities(enabled)}",
            ]
            return "System Capabilities TLV", lines
        case ManagementAddress(family, address, subtype, number):
            kinds = {1: "Unknown interface subtype: ", 2: "Ifindex: ", 3: "System port number: "}
            interface = kinds.get(subtype, "Bad interface numbering subtype: ") + str(number)
            oid = [f"OID: {view.oid.hex()}"] if view.oid else []
            return "Management Address TLV", [_address(family, address), interface, *oid]
        case OrganizationalTlv():
            return _organizational(view)
        case RawTlv(kind, value):
            return f"Unidentified TLV\n\ttype: {kind} {value.hex()}", []


def lldptool(pdu: Lldpdu) -> str:
    """All TLVs of a PDU, as `lldptool -t` prints them."""
    lines: list[str] = []
    for view in pdu.views:
        name, body = _tlv(view)
        lines += [name, *(f"\t{line}" for line in body)]
    for problem in pdu.problems:
        lines += [
            f"Bad {problem.error.tlv} TLV",
            f"\t{problem.error.field}: {problem.error.value}, {problem.error.rule}",
        ]
    return "\n".join([*lines, "End of LLDPDU TLV"]) + "\n"


def lldptool_neighbor(port: DcbxPort) -> str:
    """What the neighbours of a port say, `lldptool -t -n`; nothing without one."""
    return "".join(lldptool(neighbor.pdu) for neighbor in port.lldp.neighbors)


def lldptool_local(port: DcbxPort) -> str:
    """What a port says, `lldptool -t`."""
    return lldptool(decode_pdu(port.lldp.pdu()))


def lldptool_frame(frame: bytes) -> str:
    """A captured frame; one line with the reason where it is none. Never raises."""
    try:
        return lldptool(decode_frame(frame).pdu)
    except PduError as error:
        return f"Bad LLDPDU: {error}\n"


def dcb_ets_show(port: DcbxPort) -> str:
    """`dcb ets show dev PORT`: what the port runs, and the recommendation that it sends (zeros where none)."""
    settings, table = port.settings, port.operational.ets
    reco = settings.recommendation or EtsTable()
    lines = [f"willing {_on_off(settings.ets_willing)} ets-cap {settings.max_tcs} cbs {_on_off(settings.cbs)} "]
    for prefix, each in (("", table), ("reco-", reco)):
        lines.append(f"{prefix}tc-bw {_pairs(each.bandwidth)}")
        if not prefix:
            lines.append(f"pg-bw {_pairs(each.bandwidth)}")
        lines.append(f"{prefix}tc-tsa {_pairs(_DCB_TSA[tsa] for tsa in each.tsa)}")
        lines.append(f"{prefix}prio-tc {_pairs(each.priority_tc)}")
    return "\n".join(lines) + "\n"


def dcb_pfc_show(
    port: DcbxPort,
    delay_bits: int = 0,
    requests: Sequence[int] | None = None,
    indications: Sequence[int] | None = None,
) -> str:
    """`dcb pfc show dev PORT`; with counters of eight priorities as `dcb -s` (frames sent and received)."""
    settings, enable = port.settings, port.operational.pfc_enable
    lines = [
        f"pfc-cap {settings.pfc_cap} macsec-bypass {_on_off(settings.mbc)} delay {delay_bits} ",
        f"prio-pfc {_pairs(_on_off(enable >> n & 1) for n in range(8))}",
    ]
    if requests is not None and indications is not None:
        lines += [f"requests {_pairs(requests)}", f"indications {_pairs(indications)}"]
    return "\n".join(lines) + "\n"


def dcb_app_show(port: DcbxPort, numeric: bool = False) -> str:
    """`dcb app show dev PORT`; numeric is `dcb -N`. Applications of reserved selectors are left out, as there."""
    entries = sorted(port.operational.app, key=lambda one: (one.selector, one.protocol, one.priority))

    def pairs(selector: Selector, form: str = "d") -> str:
        chosen = [one for one in entries if one.selector == selector and (one.protocol or selector != 1)]
        return "".join(f"{one.protocol:{form}}:{one.priority} " for one in chosen)

    def dscp() -> str:
        chosen = [one for one in entries if one.selector == Selector.DSCP]
        names = {} if numeric else _DSCP_NAMES
        return "".join(f"{names.get(one.protocol, one.protocol)}:{one.priority} " for one in chosen)

    tables = (
        ("ethtype-prio", pairs(Selector.ETHER_TYPE, "x")),
        ("default-prio", "".join(f"{one.priority} " for one in entries if one.key == (Selector.ETHER_TYPE, 0))),
        ("dscp-prio", dscp()),
        ("stream-port-prio", pairs(Selector.TCP)),
        ("dgram-port-prio", pairs(Selector.UDP)),
        ("port-prio", pairs(Selector.ANY_PORT)),
    )
    return "".join(f"{name} {table}\n" for name, table in tables if table)

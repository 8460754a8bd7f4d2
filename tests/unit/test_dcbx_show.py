"""What is printed: lldptool's and dcb's text by their documented examples, and the mismatch report of a link."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dcbx_net import HIGH, LOW, MIDDLE, OTHER, ROCE, STORAGE, S, Wire, said, up

from dcb.cee.tlv import CeeTlv, Control, Feature, Header, PfcFeature
from dcb.dcbx.machines import TieBreak
from dcb.dcbx.port import DcbxPort
from dcb.dcbx.report import Severity, ets_text, link_report
from dcb.dcbx.settings import DcbxSettings, ModeSetting
from dcb.dcbx.show import (
    dcb_app_show,
    dcb_ets_show,
    dcb_pfc_show,
    lldptool_frame,
    lldptool_local,
    lldptool_neighbor,
)
from dcb.dcbx.tlv import (
    AppEntry,
    ApplicationPriority,
    ApplicationVlan,
    AppVlanEntry,
    CongestionNotification,
    EtsConfiguration,
    EtsRecommendation,
    EtsTable,
    PfcConfiguration,
)
from dcb.lldp.agent import LocalSystem
from dcb.lldp.tlv import ChassisId, ManagementAddress, OrganizationalTlv, PortId, RawTlv, SystemCapabilities, TextTlv

SWITCH = DcbxSettings.switch(STORAGE, 0b1000, (ROCE,))
APPS = (
    AppEntry(1, 0x8906, 3),
    AppEntry(5, 26, 3),
    AppEntry(2, 3260, 4),
    ROCE,
    AppEntry(4, 20049, 5),
    AppEntry(5, 48, 6),
)


def test_lldptool_neighbor() -> None:
    """The layout of open-lldp's clif modules: tab, then (for Qaz) a space; spaces at the ends of lists."""
    tlvs = [
        EtsConfiguration(STORAGE, willing=True).encode(),
        EtsRecommendation(STORAGE).encode(),
        PfcConfiguration(0b1_1000, willing=True).encode(),
        ApplicationPriority(APPS).encode(),
    ]
    port = up(LOW, SWITCH)
    port.receive(said(HIGH, tlvs), 0)
    assert lldptool_neighbor(port) == (
        "Chassis ID TLV\n\tMAC: 02:00:00:00:00:ff\n"
        "Port ID TLV\n\tIfname: p\n"
        "Time to Live TLV\n\t121\n"
        "IEEE 8021QAZ ETS Configuration TLV\n"
        "\t Willing: yes\n\t CBS: not supported\n\t MAX_TCS: 8\n"
        "\t PRIO_MAP: 0:0 1:0 2:0 3:1 4:0 5:0 6:2 7:0 \n"
        "\t TC Bandwidth: 40% 60% 0% 0% 0% 0% 0% 0% \n"
        "\t TSA_MAP: 0:ets 1:ets 2:strict 3:strict 4:strict 5:strict 6:strict 7:strict \n"
        "IEEE 8021QAZ ETS Recommendation TLV\n"
        "\t PRIO_MAP:  0:0 1:0 2:0 3:1 4:0 5:0 6:2 7:0 \n"
        "\t TC Bandwidth: 40% 60% 0% 0% 0% 0% 0% 0% \n"
        "\t TSA_MAP: 0:ets 1:ets 2:strict 3:strict 4:strict 5:strict 6:strict 7:strict \n"
        "IEEE 8021QAZ PFC TLV\n"
        "\t Willing: yes\n\t MACsec Bypass Capable: no\n\t PFC capable traffic classes: 8\n\t PFC enabled: 3 4 \n"
        "IEEE 8021QAZ APP TLV\n"
        "\tApp#   0 \t Prio 3 \t Sel 1 \t P-ID\t Ethertype: 0x8906\n"
        "\tApp#   2 \t Prio 4 \t Sel 2 \t P-ID\t {S}TCP Port: 3260\n"
        "\tApp#   3 \t Prio 3 \t Sel 3 \t P-ID\t UDP or DCCP Port: 4791\n"
        "\tApp#   4 \t Prio 5 \t Sel 4 \t P-ID\t TCP/STCP/UDP/DCCP Port: 20049\n"
        "\tPrio:3 \t dscp:  26,\b \n"
        "\tPrio:6 \t dscp:  48,\b \n"
        "End of LLDPDU TLV\n"
    )


@pytest.mark.parametrize("mode", [ModeSetting.IEEE, ModeSetting.CEE])
def test_lldptool_prints_our_frames_as_we_do(mode: ModeSetting) -> None:
    """Golden: what `lldptool -t -n` of lldpad 1.1+git20221028 (Debian 12) printed of this port's frames over a veth."""
    mac = bytes.fromhex("02bb00000002")
    apps = (ROCE, AppEntry(1, 0x8906, 3), AppEntry(5, 26, 3), AppEntry(5, 48, 6))
    settings = replace(DcbxSettings.switch(STORAGE, 0b1_1000, apps), mode=mode)
    capabilities = SystemCapabilities(0x14, 0x04)
    address = ManagementAddress(1, bytes([10, 0, 0, 1]), 2, 7)
    name = PortId.interface("leaf1-eth1")
    texts = ("to host", "leaf1", "dcblab switch")
    port = DcbxPort(mac, LocalSystem(ChassisId.mac(mac), name, *texts, capabilities, (address,)), settings)
    golden = Path(__file__).parent / "dcbx_golden" / f"lldptool-{mode.value}.txt"
    assert lldptool_local(port) == golden.read_text()


def test_lldptool_local_and_none() -> None:
    port = up(LOW, DcbxSettings())
    text = lldptool_local(port)
    assert "\t PFC enabled: none\n" in text
    assert text.startswith("Chassis ID TLV\n\tMAC: 02:00:00:00:00:01\nPort ID TLV\n\tIfname: e1\n")
    assert lldptool_neighbor(port) == ""


def test_lldptool_basic_cee_and_bad_tlvs() -> None:
    cee = CeeTlv(Control(3, 2), (Feature(Header(willing=True), PfcFeature(0b1001, 4)),)).encode()
    basic = [
        TextTlv(5, b"leaf1").raw(),
        SystemCapabilities(0x14, 0x04).raw(),
        ManagementAddress(1, bytes([10, 0, 0, 1]), 2, 7).raw(),
        RawTlv(7, b"\0"),
    ]
    frame = said(
        HIGH, [cee, OrganizationalTlv(b"\0\x80\xc2", 11, b"\x09\x00"), OrganizationalTlv(b"\0\x12\x0f", 4, b"\1")]
    )
    frame = frame[:31] + b"".join(raw.encode() for raw in basic) + frame[31:]
    assert lldptool_frame(frame).split("Time to Live TLV\n\t121\n")[1] == (
        "System Name TLV\n\tleaf1\n"
        "System Capabilities TLV\n\tSystem capabilities:  Bridge, Router\n\tEnabled capabilities: Bridge\n"
        "Management Address TLV\n\tIPv4: 10.0.0.1\n\tIfindex: 7\n"
        "CEE DCBX TLV\n\tControl TLV:\n\t  SeqNo: 3, AckNo: 2\n"
        "\tPriority Flow Control TLV:\n\t  Enabled, Willing, No Error\n"
        "\t  PFC enabled priorities: 0, 3\n\t  Number of TC's supported: 4\n"
        "Bad PFC Configuration TLV\n\tPFC cap: 9, must be 0..8\n\tInfo: 0900\n"
        "Unidentified Org Specific TLV\n\tOUI: 0x00120f, Subtype: 4, Info: 01\n"
        "Bad System Capabilities TLV\n\toccurrence: duplicate, must occur at most once; the first one counts\n"
        "End of LLDPDU TLV\n"
    )
    assert lldptool_frame(b"") == "Bad LLDPDU: not an LLDP frame (EtherType 0x88cc)\n"


def test_lldptool_of_tlvs_that_it_does_not_know() -> None:
    tlvs = [ApplicationVlan((AppVlanEntry(100, 3, 4791),)).encode(), CongestionNotification(0b1000, 0).encode()]
    text = lldptool_frame(said(HIGH, tlvs))
    assert "IEEE 8021Qcd Application VLAN TLV\n\tVID 100 \t UDP/DCCP port 4791\n" in text
    assert "IEEE 8021Qau Congestion Notification TLV\n\t CNPV: 3\n\t Ready: none\n" in text


def test_dcb_ets_show() -> None:
    """Man page dcb-ets(8), and the order in which iproute2 prints all of it."""
    table = EtsTable(tuple(range(8)), (33, 33, 34, 0, 0, 0, 0, 0), (2, 2, 2, 0, 0, 0, 0, 0))
    port = up(LOW, replace(DcbxSettings.switch(table, 0), recommendation=None, ets_willing=True, max_tcs=8))
    strict = " ".join(f"{n}:strict" for n in range(8))
    assert dcb_ets_show(port) == (
        "willing on ets-cap 8 cbs off \n"
        "tc-bw 0:33 1:33 2:34 3:0 4:0 5:0 6:0 7:0 \n"
        "pg-bw 0:33 1:33 2:34 3:0 4:0 5:0 6:0 7:0 \n"
        "tc-tsa 0:ets 1:ets 2:ets 3:strict 4:strict 5:strict 6:strict 7:strict \n"
        "prio-tc 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7 \n"
        "reco-tc-bw 0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0 \n"
        f"reco-tc-tsa {strict} \n"
        "reco-prio-tc 0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0 \n"
    )


def test_dcb_pfc_show() -> None:
    """The example of man page dcb-pfc(8), and counters as `dcb -s`."""
    port = up(LOW, DcbxSettings(pfc_enable=0b1100_0000))
    text = "pfc-cap 8 macsec-bypass off delay 4096 \nprio-pfc 0:off 1:off 2:off 3:off 4:off 5:off 6:on 7:on \n"
    assert dcb_pfc_show(port, 4096) == text
    counted = dcb_pfc_show(port, 4096, range(8), range(10, 18))
    assert counted == text + (
        "requests 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7 \nindications 0:10 1:11 2:12 3:13 4:14 5:15 6:16 7:17 \n"
    )


def test_dcb_app_show() -> None:
    """The example of man page dcb-app(8): names of DSCPs, and numbers with -N; all tables in iproute2's order."""
    dscp = tuple(AppEntry(5, code, priority) for code, priority in ((0, 0), (24, 3), (48, 6), (24, 2)))
    port = up(LOW, DcbxSettings(app=dscp))
    assert dcb_app_show(port) == "dscp-prio 0:0 CS3:2 CS3:3 CS6:6 \n"
    assert dcb_app_show(port, numeric=True) == "dscp-prio 0:0 24:2 24:3 48:6 \n"
    every = up(LOW, DcbxSettings(app=(*APPS, AppEntry(1, 0, 1), AppEntry(5, 46, 5), AppEntry(7, 1, 1))))
    assert dcb_app_show(every) == (
        "ethtype-prio 8906:3 \n"
        "default-prio 1 \n"
        "dscp-prio AF31:3 EF:5 CS6:6 \n"
        "stream-port-prio 3260:4 \n"
        "dgram-port-prio 4791:3 \n"
        "port-prio 20049:5 \n"
    )
    assert dcb_app_show(up(LOW, DcbxSettings())) == ""


# The report


def findings(a_settings: DcbxSettings, b_settings: DcbxSettings) -> list[tuple[str, str, str, str, str]]:
    """What the end at LOW reports of its link to HIGH after 10 s."""
    a, b = up(LOW, a_settings), up(HIGH, b_settings)
    Wire(((a, ""), (b, ""))).run(10 * S)
    found = link_report(a).findings
    return [(one.severity.value, one.attribute, one.here, one.there, one.advice) for one in found]


def test_a_link_that_agrees() -> None:
    a, b = up(LOW, SWITCH), up(HIGH, DcbxSettings.host())
    Wire(((a, ""), (b, ""))).run(S)
    for port in (a, b):
        assert link_report(port).agrees
        assert link_report(port).findings == ()
    report = link_report(a)
    assert report.there is not None
    assert report.here.accepts == {"ets": "no", "pfc": "no", "app": "no"}
    assert report.there.accepts == {"ets": "yes", "pfc": "yes"}
    assert report.here.runs["pfc"] == report.there.runs["pfc"] == "3"
    assert report.here.runs["ets"] == report.there.runs["ets"] == ets_text(STORAGE)
    assert ets_text(STORAGE) == "prio 0:0 1:0 2:0 3:1 4:0 5:0 6:2 7:0; tc 0 ets 40%, 1 ets 60%, 2 strict"
    lines = report.text.splitlines()
    assert lines[:2] == [f"ets  sends    here  {ets_text(STORAGE)}", f"              there {ets_text(STORAGE)}"]
    assert "app  runs     here  UDP/DCCP port 4791 -> priority 3" in lines


@pytest.mark.parametrize(
    ("here", "there", "advice"),
    [
        (
            SWITCH,
            DcbxSettings(ets=STORAGE, pfc_enable=0x10),
            "neither end is willing: make one willing, or set PFC 3 there or 4 here",
        ),
        (
            replace(SWITCH, pfc_willing=True),
            DcbxSettings(ets=STORAGE, pfc_enable=0x10, pfc_willing=True, tie_break=TieBreak.HIGHER_MAC),
            "both ends are willing; if this lasts, the peer breaks the tie the other way (open-lldp does): set "
            "tie_break higher-mac here, or make one end not willing",
        ),
        (
            replace(SWITCH, pfc_enable=0b1000, pfc_willing=True, tie_break=TieBreak.HIGHER_MAC),
            DcbxSettings(ets=STORAGE, pfc_enable=0x10, pfc_willing=True),
            "PFC changes all the time: the peer breaks the tie the other way (open-lldp does): set tie_break lower-mac "
            "here, or make one end not willing",
        ),
        (
            replace(SWITCH, pfc_enable=0b100_1000),
            replace(DcbxSettings.host(), pfc_cap=1),
            "the peer is willing but does not run 3,6: its PFC cap is 1, or it has yet to answer",
        ),
        (
            replace(SWITCH, pfc_willing=True, pfc_cap=1),
            DcbxSettings(ets=STORAGE, pfc_enable=0b100_1000),
            "the peer enables PFC on 2 traffic classes, this port can on 1",
        ),
    ],
)
def test_pfc_mismatches(here: DcbxSettings, there: DcbxSettings, advice: str) -> None:
    (finding,) = [one for one in findings(here, there) if one[1] == "pfc"]
    assert finding[0] == "mismatch"
    assert finding[4] == advice


def test_ets_findings() -> None:
    """Different bandwidths are fine, different classes are not; a willing end must be told and must follow."""
    other_share = replace(STORAGE, bandwidth=(70, 30, 0, 0, 0, 0, 0, 0))
    assert [one[:2] for one in findings(SWITCH, DcbxSettings(ets=other_share, pfc_enable=8))] == [("note", "ets")]
    (finding,) = findings(SWITCH, DcbxSettings(ets=OTHER, pfc_enable=8))
    assert finding[:2] == ("mismatch", "ets")
    assert finding[4] == "priorities share a traffic class at one end and not at the other: make one end willing"
    silent = replace(SWITCH, recommendation=None)
    (finding,) = findings(replace(DcbxSettings.host(), app=(ROCE,)), silent)
    assert finding[4] == "willing here, but the peer recommends nothing: let it recommend ETS"
    (finding,) = findings(SWITCH, replace(DcbxSettings.host(), max_tcs=2))
    assert finding[4] == (
        "the peer is willing but does not run what is recommended: it has 2 traffic classes, or it has yet to answer"
    )
    (finding,) = findings(replace(DcbxSettings.host(), max_tcs=2), SWITCH)
    assert finding[4] == "the peer recommends traffic class 2, this port has 2"


def test_app_findings() -> None:
    (finding,) = findings(SWITCH, replace(SWITCH, app=(AppEntry(3, 4791, 5),)))
    assert finding == (
        "mismatch",
        "app",
        "UDP/DCCP port 4791 -> 3",
        "UDP/DCCP port 4791 -> 5",
        "give the application one priority at both ends",
    )


def test_link_findings() -> None:
    port = up(LOW, SWITCH)
    assert [(one.attribute, one.here) for one in link_report(port).findings] == [("link", "no neighbour")]
    port.receive(said(HIGH), 0)
    (finding,) = link_report(port).findings[:1]
    assert finding.advice == "the peer speaks LLDP and no DCBX: switch DCBX on there, or configure that end by hand"
    port.receive(said(MIDDLE, port="q"), 0)
    (finding,) = link_report(port).findings
    assert (finding.here, finding.there) == ("2 neighbours", "02:00:00:00:00:ff/p, 02:00:00:00:00:02/q")
    port.set_link(False, 0)
    assert link_report(port).findings[0].text == "mismatch: link: here down, there unknown: bring the link up"
    assert link_report(port).there is None


def test_a_refused_tlv_is_reported() -> None:
    port = up(LOW, SWITCH)
    port.receive(said(HIGH, [EtsConfiguration(STORAGE).encode(), OrganizationalTlv(b"\0\x80\xc2", 11, b"\x09\x08")]), 0)
    first, second = link_report(port).findings
    assert (first.there, first.severity) == ("PFC Configuration TLV: PFC cap: 9, must be 0..8", Severity.MISMATCH)
    assert (second.attribute, second.there) == ("pfc", "no PFC TLV")


def test_modes_that_differ_and_cee() -> None:
    cee = replace(SWITCH, mode=ModeSetting.CEE)
    (finding,) = findings(replace(SWITCH, mode=ModeSetting.IEEE), cee)
    assert finding[:4] == ("mismatch", "mode", "ieee", "cee")
    assert findings(cee, DcbxSettings.host()) == []
    (finding,) = findings(cee, replace(cee, pfc_enable=0x10))
    assert finding == (
        "mismatch",
        "pfc",
        "PFC 3",
        "PFC 4",
        "MISMATCH|PEER: neither willing, and they want different things",
    )


def test_the_example_of_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "dcbx.md").read_text()
    (block,) = (part.split("```")[0] for part in text.split("```python\n")[1:])
    exec(compile(block, "docs/dcbx.md", "exec"), {})
    assert capsys.readouterr().out == "('ets', 'pfc', 'app', 'agreed') (3,)\n"

"""Debian's lldpad on our NIC: what it sends, what two of it agree on, and where it is not what the standard says.

They hold the ground that `test_agent_ieee.py` and `test_agent_cee.py` stand on: that the NIC makes lldpad do DCBX, and
that frames and programming are read rightly. tshark is the judge of frames.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from links import HIGH_MAC, LOW_MAC, NEAREST_BRIDGE, End, Link, Tap, dissect, has_tlv, until
from lldpad import Ets, Lldpad, Pfc

pytestmark = [pytest.mark.mininet, pytest.mark.needs_lldpad]

Start = Callable[[End], Lldpad]

ETS_SETTINGS = ("tsa=0:ets,1:ets,2:strict", "up2tc=0:0,1:0,2:0,3:1,4:0,5:0,6:2,7:0", "tcbw=40,60")
PRIORITY_TC = [0, 0, 0, 1, 0, 0, 2, 0]
BANDWIDTH = [40, 60, 0, 0, 0, 0, 0, 0]
TSA = [2, 2, 0, 0, 0, 0, 0, 0]
TSA_NAMES = ["ets", "ets", "strict", "strict", "strict", "strict", "strict", "strict"]
# The same by the layout of 802.1Q D.2.8 to D.2.10: a nibble for each priority, then eight octets of each
ETS_TABLE = bytes([0x00, 0x01, 0x00, 0x20, 40, 60, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0])
ROCE = {"selector": 3, "protocol": 4791, "priority": 3}
CEE_OUI = b"\x00\x1b\x21"


def configure(agent: Lldpad) -> None:
    """Not willing; ETS and its recommendation as above, PFC on priority 3."""
    agent.set("ETS-CFG", "willing=no", *ETS_SETTINGS)
    agent.set("ETS-REC", "enableTx=yes", *ETS_SETTINGS)
    agent.set("PFC", "willing=no", "enabled=3")


def await_pfc(agent: Lldpad, enabled: int) -> None:
    """Until lldpad has programmed this bit map of priorities."""
    until(
        lambda: agent.nic.last("pfc").get("pfc", {}).get("pfc_en") == enabled, f"PFC {enabled:#x} at {agent.end.name}"
    )


def await_synced(agent: Lldpad) -> None:
    """Until lldpad has what it asked for in CEE acknowledged, and has programmed its groups."""
    until(lambda: agent.operational("pfc")["Syncd"] == "true", f"{agent.end.name} in sync")
    until(lambda: agent.nic.last("group_pct"), f"the groups at {agent.end.name}")


def test_sends_what_it_is_configured_to(link: Link, start: Start, tmp_path: Path) -> None:
    agent = start(link.left)
    with Tap(link.right) as tap:
        configure(agent)
        agent.transmit()
        tap.await_received(has_tlv(0x0B, b"\x08\x08"), "PFC 3 from lldpad")
        frame = tap.await_received(has_tlv(0x09, b"\x00" + ETS_TABLE), "ETS from lldpad")
    (seen,) = dissect([frame], tmp_path)
    assert not seen.malformed
    assert (seen.source, seen.destination, seen.ttl) == (LOW_MAC, NEAREST_BRIDGE, 120)
    (ets,) = seen.ieee8021(0x09)
    (recommendation,) = seen.ieee8021(0x0A)
    (pfc,) = seen.ieee8021(0x0B)
    assert ets.number("lldp.dcbx.ieee.willing") == 0
    assert ets.number("lldp.dcbx.ieee.ets.maxtcs") == 0  # eight
    for tlv in (ets, recommendation):
        assert tlv.each("lldp.dcbx.feature.pg.pgid_prio{}") == PRIORITY_TC
        assert tlv.each("lldp.dcbx.feature.pg.per{}") == BANDWIDTH
        assert tlv.each("lldp.dcbx.ieee.ets.tsa{}") == TSA
    assert pfc.number("lldp.dcbx.ieee.willing") == 0
    assert pfc.number("lldp.dcbx.ieee.pfc.numtcs") == 8
    assert pfc.each("lldp.dcbx.feature.pfc.prio{}") == [0, 0, 0, 1, 0, 0, 0, 0]


def test_is_willing_and_asks_for_nothing_unless_told(link: Link, start: Start) -> None:
    agent = start(link.left)
    agent.transmit()
    until(lambda: "IEEE 8021QAZ PFC TLV" in agent.local(), "it to make up its TLVs")
    assert agent.local().ets() == Ets(True, [0] * 8, [0] * 8, ["strict"] * 8)
    assert agent.local().pfc() == Pfc(True, 8, [])
    assert agent.nic.record("IEEE_SET") == []


def test_says_goodbye(link: Link, start: Start, tmp_path: Path) -> None:
    agent = start(link.left)
    with Tap(link.right) as tap:
        agent.transmit()
        tap.await_received(has_tlv(0x09), "a frame from lldpad")
        agent.stop()
        tap.poll()
        last = dissect(tap.received[-1:], tmp_path)[0]
    assert last.ttl == 0
    assert last.ieee8021(0x09) == []


def test_two_of_it_agree(link: Link, start: Start) -> None:
    configured, willing = start(link.left), start(link.right)
    configured.transmit()
    configure(configured)
    configured.set("APP", "enableTx=yes")
    configured.set("APP", "app=3,3,4791")

    def programmed() -> bool:
        last = willing.nic.last("ets", "pfc")
        return bool(last) and last["ets"]["tc_tx_bw"] == BANDWIDTH and last["pfc"]["pfc_en"] == 0b1000

    until(programmed, "the willing end to program what the other one has")
    for agent in (configured, willing):
        await_pfc(agent, 0b1000)
        last = agent.nic.last("ets", "dcbx")
        assert last["dcbx"] == 0x09  # DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_IEEE
        assert (last["ets"]["prio_tc"], last["ets"]["tc_tx_bw"], last["ets"]["tc_tsa"]) == (PRIORITY_TC, BANDWIDTH, TSA)
        # The register file tells iproute2 the same.
        shown = agent.nic.show("ets")
        assert (shown["prio_tc"], shown["tc_bw"], shown["tc_tsa"]) == (PRIORITY_TC, BANDWIDTH, TSA_NAMES)
        assert agent.nic.show("pfc")["prio_pfc"] == [priority == 3 for priority in range(8)]

    assert willing.neighbour().ets() == Ets(False, PRIORITY_TC, BANDWIDTH, TSA_NAMES)
    assert willing.neighbour().recommendation() == Ets(None, PRIORITY_TC, BANDWIDTH, TSA_NAMES)
    assert willing.neighbour().pfc() == Pfc(False, 8, [3])
    # Its own applications it announces when it has programmed them, which it does when it hears a peer.
    until(lambda: willing.nic.last("app").get("app") == [ROCE], "the application of the other end to be programmed")
    assert configured.nic.last("app")["app"] == [ROCE]
    # What it sends is what it runs, and still that it is willing.
    until(lambda: configured.neighbour().get("IEEE 8021QAZ PFC TLV"), "the willing end's TLVs to arrive")
    assert configured.neighbour().ets() == Ets(True, PRIORITY_TC, BANDWIDTH, TSA_NAMES)
    assert configured.neighbour().pfc() == Pfc(True, 8, [3])


def test_both_willing_the_higher_address_keeps_its_own(link: Link, start: Start) -> None:
    """Observed, and against 802.1Q 38.4.2, where the lower one does (docs/interop.md)."""
    low, high = start(link.left), start(link.right)
    assert (low.end.mac, high.end.mac) == (LOW_MAC, HIGH_MAC)
    low.set("PFC", "enabled=3")
    high.set("PFC", "enabled=5")
    low.transmit()
    high.transmit()
    await_pfc(low, 1 << 5)
    await_pfc(high, 1 << 5)
    until(lambda: low.local().pfc() == high.local().pfc() == Pfc(True, 8, [5]), "both to announce what they run")


def test_cee_sends_what_it_is_configured_to(link: Link, start_cee: Start, tmp_path: Path) -> None:
    agent = start_cee(link.left)
    configure_cee(agent, willing=0)
    with Tap(link.right) as tap:
        agent.transmit()
        frame = tap.await_received(has_tlv(2, oui=CEE_OUI), "a CEE TLV from lldpad")
    (seen,) = dissect([frame], tmp_path)
    assert not seen.malformed
    assert seen.ieee8021(0x09) == []
    control, groups, pfc, app = (seen.cee[kind] for kind in (1, 2, 3, 4))
    assert control.number("lldp.dcbx.control.ack") == 0  # it has heard nobody
    for feature in (groups, pfc, app):
        assert feature.number("lldp.dcbx.feature.enabled") == 1
        assert feature.number("lldp.dcbx.feature.willing") == 0
        assert feature.number("lldp.dcbx.feature.error") == 0
    assert groups.each("lldp.dcbx.feature.pg.pgid_prio{}") == [0, 0, 0, 1, 0, 0, 0, 15]
    assert groups.each("lldp.dcbx.feature.pg.per{}") == BANDWIDTH
    assert pfc.each("lldp.dcbx.feature.pfc.prio{}") == [0, 0, 0, 1, 0, 0, 0, 0]
    assert [int(value, 0) for value in app.fields["lldp.dcbx.feature.app.proto"]] == [0x8906, 3260, 0x8914]


def configure_cee(agent: Lldpad, willing: int) -> None:
    """Priority 3 in group 1 with 60 %, 7 unrestricted, the others in group 0 with 40 %; PFC on 3; FCoE on 3."""
    common = ("e:1", "a:1", f"w:{willing}")
    agent.configure("pg", *common, "pgid:0001000f", "pgpct:40,60,0,0,0,0,0,0")
    agent.configure("pfc", *common, "pfcup:00010000")
    agent.configure("app:0", *common, "appcfg:08")


def test_cee_two_of_it_agree(link: Link, start_cee: Start) -> None:
    configured, willing = start_cee(link.left), start_cee(link.right)
    configure_cee(configured, willing=0)
    willing.configure("pfc", "e:1", "a:1", "w:1", "pfcup:00000100")  # its own wish, until it hears the other one
    configured.transmit()
    willing.transmit()
    until(lambda: willing.nic.last("pfc").get("pfc") == [0, 0, 0, 1, 0, 0, 0, 0], "the willing end to program PFC 3")
    for agent in (configured, willing):
        await_synced(agent)
        assert agent.nic.last("dcbx", "pfc_state") == {"dcbx": 0x05, "pfc_state": 1}  # host managed, CEE
        assert agent.nic.last("group_pct") == {"group_pct": BANDWIDTH}
        for feature in ("pg", "pfc", "app:0"):
            assert agent.operational(feature)["Errors"] == "0x00 - none"
            assert agent.operational(feature)["Oper Mode"] == "true"
        assert agent.operational("pg")["pgid"].split() == list("0001000F")
        assert agent.operational("pfc")["pfcup"].split() == list("00010000")
    assert willing.configured("pfc")["pfcup"].split() == list("00000100")
    assert willing.peer("pfc")["Willing"] == "false"
    assert configured.peer("pfc")["Willing"] == "true"
    fcoe = {"selector": 0, "protocol": 0x8906, "priority": 0x08}
    assert fcoe in [app for line in willing.nic.record("SAPP") for app in line["app"]]


@pytest.mark.debian_12s_lldpad
def test_debian_12_loses_cee_with_its_first_frame(link: Link, start_cee: Callable[..., Lldpad], tmp_path: Path) -> None:
    """Observed: what `ceefix.c` is for."""
    agent = start_cee(link.left, repair=False)
    assert agent.operational("pfc")["Oper Mode"] in ("true", "false")  # it has not sent yet
    with Tap(link.right) as tap:
        frame = tap.await_received(lambda _: True, "its first frame")
    (seen,) = dissect([frame], tmp_path)
    assert seen.cee == {}
    assert seen.ieee8021(0x09) == []
    refused = agent.end.run("dcbtool", "go", agent.end.name, "pfc").stdout
    assert "Command not applicable in IEEE-DCBX modes" in refused

"""Debian's lldpad and lldpd in Mininet hosts at ports of our switch: who is willing takes what the other has.

Whole path: agent, veth, dcbswitch, packet-in, the controller's DCBX agent, its writes to the switch, packet-out. Each
side's view is read with its own tools (lldptool, dcbtool; dcbctl), what it then does from the NIC's record and, over
P4Runtime, from the switch's tables.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from fabriclab import FabricLab
from links import NEAREST_BRIDGE, End, Tap, dissect, until
from lldpad import Ets, Lldpad, Pfc
from lldpd import Lldpd

pytestmark = pytest.mark.mininet

Start = Callable[[End], Lldpad]

# Priority 3 in class 1, 6 in class 2; 40, 60 %, strict
PRIORITY_TC = [0, 0, 0, 1, 0, 0, 2, 0]
BANDWIDTH = [40, 60, 0, 0, 0, 0, 0, 0]
TSA = [2, 2, 0, 0, 0, 0, 0, 0]
TSA_NAMES = ["ets", "ets", "strict", "strict", "strict", "strict", "strict", "strict"]
SOURCE = {
    "role": "configuration-source",
    "ets": {"priority_to_tc": {3: 1, 6: 2}, "bandwidth": {0: 40, 1: 60}, "strict": [2]},
    "pfc": [3],
    "app": [{"udp": 4791, "priority": 3}, {"ether_type": 0x8906, "priority": 3}],
    "lossless_buffers": "lossless",
    "management_address": "10.0.0.1",
}
# Willing, and with something of its own for when nobody tells it
FOLLOWS = {
    "role": "auto-upstream",
    "ets": {"priority_to_tc": {5: 2}, "bandwidth": {0: 70, 2: 30}},
    "pfc": [5],
    "lossless_buffers": "lossless",
}
OWN_QUEUES = [0, 0, 0, 0, 0, 2, 0, 0]


def application(**match: int) -> tuple[tuple[str, object], ...]:
    """A key of `Tables.applications`."""
    return tuple(match.items())


def scheduled(lab: FabricLab, queues: int) -> dict[int, str | int]:
    """Schedulers of the first queues of port 1."""
    return {queue: how for queue, how in lab.tables(1).scheduler.items() if queue < queues}


@pytest.mark.needs_lldpad
def test_willing_lldpad_takes_what_the_switch_port_has(
    fabric_lab: FabricLab, start: Start, stack: ExitStack, tmp_path: Path
) -> None:
    fabric_lab.set(1, SOURCE)
    before = fabric_lab.tables(1)
    assert (before.pfc_rx, before.pfc_tx, before.lossless, before.queues) == (0, 0, [], PRIORITY_TC)  # no neighbour
    end = stack.enter_context(fabric_lab.end("h1"))
    tap = stack.enter_context(Tap(end))
    lldpad = start(end)
    after = fabric_lab.until_tables(1, "the switch to run PFC 3, as lldpad does", pfc_rx=8, pfc_tx=8, lossless=[3])
    assert (after.queues, after.queue_map) == (PRIORITY_TC, PRIORITY_TC)
    assert scheduled(fabric_lab, 3) == {0: 40, 1: 60, 2: "strict"}
    assert after.applications == {application(ip_proto=17, l4_dst_port=4791): 3, application(ether_type=0x8906): 3}

    # lldpad: what it has heard, what it says that it runs, what it has told its NIC
    heard = lldpad.neighbour()
    assert heard.ets() == Ets(False, PRIORITY_TC, BANDWIDTH, TSA_NAMES)
    assert heard.recommendation() == Ets(None, PRIORITY_TC, BANDWIDTH, TSA_NAMES)
    assert heard.pfc() == Pfc(False, 8, [3])
    assert heard["System Name TLV"] == ["leaf1"]
    assert heard["Chassis ID TLV"] == [f"MAC: {fabric_lab.port_mac(1)}"]
    assert heard["Port ID TLV"] == ["Ifname: leaf1-eth1"]
    runs = lldpad.local()
    assert runs.ets() == Ets(True, PRIORITY_TC, BANDWIDTH, TSA_NAMES)
    assert runs.pfc() == Pfc(True, 8, [3])
    told = lldpad.nic.last("ets", "pfc", "dcbx")
    assert (told["pfc"]["pfc_en"], told["dcbx"]) == (1 << 3, 0x09)  # host managed, IEEE
    assert [told["ets"][name] for name in ("prio_tc", "tc_tx_bw", "tc_tsa")] == [PRIORITY_TC, BANDWIDTH, TSA]
    added = [app for line in lldpad.nic.record("IEEE_SET") for app in line.get("app", [])]
    assert {"selector": 3, "protocol": 4791, "priority": 3} in added
    assert {"selector": 1, "protocol": 0x8906, "priority": 3} in added

    # dcbctl: the neighbour, and agreement
    view = fabric_lab.show(1)
    (neighbour,) = view["neighbors"]
    assert [neighbour[name] for name in ("chassis_id", "port_id", "mac", "ttl_s")] == [end.mac, end.mac, end.mac, 120]
    assert (view["mode"], view["agrees"], view["data_plane"]) == ("ieee", True, {"pfc": [3], "synced": True})
    assert view["remote"]["pfc"] == {"enabled": [3], "willing": True, "cap": 8, "macsec_bypass": False}
    assert view["remote"]["ets"]["priority_to_tc"] == PRIORITY_TC
    # What the switch has of lldpad is what lldpad says of itself, and the other way round, line by line.
    shown = ("show", "leaf1:1", "--format", "lldptool")
    until(lambda: fabric_lab.dcbctl(*shown) == lldpad.lldptool("-t"), "dcbctl to print of lldpad what lldptool does")
    assert fabric_lab.dcbctl(*shown, "--local") == lldpad.lldptool("-t", "-n")

    tap.poll()
    seen = dissect(tap.received, tmp_path)
    assert not any(frame.malformed for frame in seen)
    assert {(frame.source, frame.destination, frame.ttl) for frame in seen} == {
        (fabric_lab.port_mac(1), NEAREST_BRIDGE, 121)
    }
    basic = {name: value for tlv in seen[-1].tlvs[:8] for name, value in tlv.fields.items()}
    assert basic.items() >= basic_fields(fabric_lab).items()
    (ets,), (recommendation,), (pfc,), (app,) = (seen[-1].ieee8021(subtype) for subtype in (0x09, 0x0A, 0x0B, 0x0C))
    for tlv in (ets, recommendation):
        assert tlv.each("lldp.dcbx.feature.pg.pgid_prio{}") == PRIORITY_TC
        assert tlv.each("lldp.dcbx.feature.pg.per{}") == BANDWIDTH
        assert tlv.each("lldp.dcbx.ieee.ets.tsa{}") == TSA
    assert (ets.number("lldp.dcbx.ieee.willing"), ets.number("lldp.dcbx.ieee.ets.cbs")) == (0, 0)
    assert (pfc.number("lldp.dcbx.ieee.willing"), pfc.number("lldp.dcbx.ieee.pfc.numtcs")) == (0, 8)
    assert pfc.each("lldp.dcbx.feature.pfc.prio{}") == [0, 0, 0, 1, 0, 0, 0, 0]
    assert app.fields["lldp.dcbx.iee.app.sf"] == ["3", "1"]
    assert app.fields["lldp.dcbx.feature.app.proto"] == ["0x12b7", "0x8906"]  # UDP 4791, FCoE
    assert app.fields["lldp.dcbx.ieee.app.prio"] == ["3", "3"]
    assert len(seen[-1].tlvs) == 8 + 4 + 1  # and the end


def basic_fields(lab: FabricLab) -> dict[str, list[str]]:
    """What port 1 says of itself, in tshark's names."""
    return {
        "lldp.chassis.id.mac": [lab.port_mac(1)],  # the switch's lowest port
        "lldp.port.id": ["leaf1-eth1"],
        "lldp.time_to_live": ["121"],
        "lldp.port.desc": ["port 1 to h1"],
        "lldp.tlv.system.name": ["leaf1"],
        "lldp.tlv.system.desc": ["dcblab"],
        "lldp.tlv.enable_system_cap": ["0x0014"],  # bridge, router
        "lldp.mgn.addr.ip4": ["10.0.0.1"],
        "lldp.mgn.interface.number": ["1"],
    }


@pytest.mark.needs_lldpad
def test_the_switch_port_takes_what_lldpad_has_until_it_says_goodbye(
    fabric_lab: FabricLab, start: Start, stack: ExitStack
) -> None:
    fabric_lab.set(1, FOLLOWS)
    own = fabric_lab.tables(1)
    assert (own.pfc_rx, own.pfc_tx, own.lossless, own.queues) == (0, 0, [], OWN_QUEUES)
    own_schedule = scheduled(fabric_lab, 3)
    assert (own_schedule[0], own_schedule[2]) == (70, 30)
    end = stack.enter_context(fabric_lab.end("h1"))
    lldpad = start(end)
    settings = ("tsa=0:ets,1:ets,2:strict", "up2tc=0:0,1:0,2:0,3:0,4:1,5:0,6:2,7:0", "tcbw=25,75")
    lldpad.set("ETS-CFG", "willing=no", *settings)
    lldpad.set("ETS-REC", "enableTx=yes", *settings)
    lldpad.set("PFC", "willing=no", "enabled=4")
    lldpad.set("APP", "enableTx=yes")
    lldpad.set("APP", "app=4,2,3260")
    iscsi = {application(ip_proto=6, l4_dst_port=3260): 4}
    tables = fabric_lab.until_tables(1, "lldpad's configuration in the switch", pfc_rx=1 << 4, applications=iscsi)
    queues = [0, 0, 0, 0, 1, 0, 2, 0]
    assert (tables.pfc_tx, tables.lossless, tables.queues, tables.queue_map) == (1 << 4, [4], queues, queues)
    assert scheduled(fabric_lab, 3) == {0: 25, 1: 75, 2: "strict"}
    until(lambda: lldpad.neighbour().pfc() == Pfc(True, 8, [4]), "lldpad to see that the switch runs its PFC")
    assert lldpad.neighbour().ets() == Ets(True, queues, [25, 75, 0, 0, 0, 0, 0, 0], TSA_NAMES)
    assert lldpad.nic.last("pfc")["pfc"]["pfc_en"] == 1 << 4
    view = fabric_lab.show(1)
    assert (view["source"], view["agrees"]) == ("leaf1-eth1", True)
    assert [view["operational"][name]["state"] for name in ("ets", "pfc")] == ["RxRecommend", "RxRecommend"]

    lldpad.stop()  # with a shutdown LLDPDU, TTL 0
    fabric_lab.until_tables(1, "the port's own configuration", **vars(own))
    assert fabric_lab.show(1)["neighbors"] == []
    assert "gone (shutdown PDU (TTL 0))" in fabric_lab.dcbctl("watch", "leaf1:1", "--history", "--duration", "0")


def configure_cee(lldpad: Lldpad, willing: int) -> None:
    """Priorities 0-3 and 5-7 in group 0, 4 in group 1; 25 and 75 %; PFC and FCoE on 4."""
    common = ("e:1", "a:1", f"w:{willing}")
    lldpad.configure("pg", *common, "pgid:00001000", "pgpct:25,75,0,0,0,0,0,0")
    lldpad.configure("pfc", *common, "pfcup:00001000")
    lldpad.configure("app:0", *common, "appcfg:10")


@pytest.mark.needs_lldpad
def test_willing_lldpad_takes_what_the_switch_port_has_in_cee(
    fabric_lab: FabricLab, start_cee: Start, stack: ExitStack, tmp_path: Path
) -> None:
    """The port begins with IEEE and falls back."""
    fabric_lab.set(1, SOURCE)
    end = stack.enter_context(fabric_lab.end("h1"))
    lldpad = start_cee(end)
    configure_cee(lldpad, willing=1)
    tap = stack.enter_context(Tap(end))
    lldpad.transmit()
    tables = fabric_lab.until_tables(1, "the switch to run PFC 3", pfc_rx=8, pfc_tx=8, lossless=[3])
    assert tables.queues == PRIORITY_TC
    assert scheduled(fabric_lab, 3) == {0: 40, 1: 60, 2: "strict"}
    until(lambda: lldpad.operational("app:0")["Oper Mode"] == "true", "lldpad to run the application too")
    for feature in ("pg", "pfc", "app:0"):
        running = lldpad.operational(feature)
        assert (running["Errors"], running["Oper Mode"]) == ("0x00 - none", "true")
    assert lldpad.operational("pg")["pgid"].split() == list("000100F0")  # 6 is link strict
    assert lldpad.operational("pg")["pgpct"].replace("%", "").split() == [str(percent) for percent in BANDWIDTH]
    assert lldpad.operational("pfc")["pfcup"].split() == list("00010000")
    assert lldpad.operational("app:0")["appcfg"] == "08"
    assert (lldpad.peer("pfc")["Willing"], lldpad.peer("pfc")["Error"]) == ("false", "false")
    told = lldpad.nic.last("pfc", "group_pct", "dcbx")
    assert told == {"pfc": [0, 0, 0, 1, 0, 0, 0, 0], "group_pct": BANDWIDTH, "dcbx": 0x05}  # host managed, CEE
    view = fabric_lab.show(1)
    assert (view["mode"], view["agrees"], view["data_plane"]) == ("cee", True, {"pfc": [3], "synced": True})
    assert view["remote"]["pfc"] == {"enabled": [4], "willing": True, "cap": 8, "macsec_bypass": False}  # what it wants
    assert view["remote"]["ets"]["bandwidth_percent"] == [25, 75, 0, 0, 0, 0, 0, 0]
    assert [(one["feature"], one["operational"], one["errors"]) for one in view["cee"]] == [
        ("priority_group", True, None),
        ("pfc", True, None),
        ("application", True, None),
    ]

    tap.poll()
    seen = dissect(tap.received, tmp_path)
    assert not any(frame.malformed for frame in seen)
    last = seen[-1]
    assert last.ieee8021(0x09) == []
    assert last.cee[2].each("lldp.dcbx.feature.pg.pgid_prio{}") == [0, 0, 0, 1, 0, 0, 15, 0]
    assert last.cee[2].each("lldp.dcbx.feature.pg.per{}") == BANDWIDTH
    assert last.cee[3].each("lldp.dcbx.feature.pfc.prio{}") == [0, 0, 0, 1, 0, 0, 0, 0]
    assert last.cee[4].fields["lldp.dcbx.feature.app.proto"] == ["0x12b7", "0x8906"]


@pytest.mark.needs_lldpad
def test_the_switch_port_takes_what_lldpad_has_in_cee_until_it_says_goodbye(
    fabric_lab: FabricLab, start_cee: Start, stack: ExitStack
) -> None:
    fabric_lab.set(1, FOLLOWS)
    own = fabric_lab.tables(1)
    end = stack.enter_context(fabric_lab.end("h1"))
    lldpad = start_cee(end)
    configure_cee(lldpad, willing=0)
    lldpad.transmit()
    tables = fabric_lab.until_tables(1, "lldpad's PFC and groups", pfc_rx=1 << 4, queues=[0, 0, 0, 0, 1, 0, 0, 0])
    assert (tables.pfc_tx, tables.lossless) == (1 << 4, [4])
    assert scheduled(fabric_lab, 2) == {0: 25, 1: 75}
    # FCoE as configured; FIP and iSCSI, which lldpad has by default. CEE says TCP or UDP, which are two rules.
    applications = {
        application(ether_type=0x8906): 4,
        application(ether_type=0x8914): 3,
        application(ip_proto=6, l4_dst_port=3260): 4,
        application(ip_proto=17, l4_dst_port=3260): 4,
    }
    fabric_lab.until_tables(1, "lldpad's applications", applications=applications)
    until(lambda: lldpad.operational("app:0")["Oper Mode"] == "true", "lldpad to run its applications too")
    assert [lldpad.operational(f)["Errors"] for f in ("pg", "pfc", "app:0")] == ["0x00 - none"] * 3
    assert lldpad.nic.last("pfc")["pfc"] == [0, 0, 0, 0, 1, 0, 0, 0]
    view = fabric_lab.show(1)
    assert (view["mode"], view["source"], view["data_plane"]["pfc"]) == ("cee", "leaf1-eth1", [4])

    # lldpad that ends with DCB on does not say goodbye (ports.c, port_needs_shutdown); told to be silent, it does.
    lldpad.lldptool("-L", "adminStatus=disabled")
    fabric_lab.until_tables(1, "the port's own configuration", **vars(own))


@pytest.mark.needs_lldpd
def test_lldpd_sees_the_switch_port_and_keeps_its_dot1_tlvs(fabric_lab: FabricLab, stack: ExitStack) -> None:
    fabric_lab.set(2, SOURCE | {"system_name": "leaf1.lab"})
    end = stack.enter_context(fabric_lab.end("h2"))
    with Lldpd(end) as lldpd:
        lldpd.cli("configure", "system", "hostname", "host-two")
        lldpd.cli("update")
        (seen,) = until(lldpd.neighbours, "lldpd to see the switch port")
        assert (seen["name"], seen["via"]) == ("h2-eth0", "LLDP")
        (chassis,), (port,) = seen["chassis"], seen["port"]
        assert chassis["id"] == [{"type": "mac", "value": fabric_lab.port_mac(1)}]  # the switch's lowest port
        assert chassis["name"] == [{"value": "leaf1.lab"}]
        assert chassis["mgmt-ip"] == [{"value": "10.0.0.1"}]
        enabled = {one["type"] for one in chassis["capability"] if one["enabled"]}
        assert enabled == {"Bridge", "Router"}
        assert port["id"] == [{"type": "ifname", "value": "leaf1-eth2"}]
        assert port["descr"] == [{"value": "port 2 to h2"}]
        assert port["ttl"] == [{"value": "121"}]
        tlvs = seen["unknown-tlvs"][0]["unknown-tlv"]
        assert {tlv["oui"] for tlv in tlvs} == {"00,80,C2"}
        unknown = {tlv["subtype"]: bytes.fromhex(tlv["value"].replace(",", "")) for tlv in tlvs}
        # By the layout of 802.1Q D.2.8 to D.2.11: priority 3 in class 1, 6 in 2; 40 and 60 %; ETS, ETS, strict
        table = bytes([0x00, 0x01, 0x00, 0x20, 40, 60, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0])
        assert unknown == {
            "9": b"\x00" + table,
            "10": b"\x00" + table,
            "11": bytes([0x08, 0x08]),
            "12": bytes([0x00, 3 << 5 | 3]) + (4791).to_bytes(2) + bytes([3 << 5 | 1, 0x89, 0x06]),
        }

        def ours() -> list[dict[str, object]]:
            neighbors: list[dict[str, object]] = fabric_lab.show(2)["neighbors"]
            return neighbors

        (neighbour,) = until(ours, "the switch to see lldpd")
        assert (neighbour["system_name"], neighbour["mac"], neighbour["ttl_s"]) == ("host-two", end.mac, 120)
        view = fabric_lab.show(2)
        assert view["remote"]["modes"] == []  # no DCBX
        assert view["data_plane"]["pfc"] == []  # so nothing is lossless
        assert fabric_lab.tables(2).pfc_rx == 0
    # lldpd has said goodbye; and when DCBX is switched off on the port, so does the switch
    until(lambda: not fabric_lab.show(2)["neighbors"], "the switch to forget lldpd")
    with Lldpd(end) as lldpd:
        lldpd.cli("update")
        until(lldpd.neighbours, "lldpd, started again, to see the switch port")
        fabric_lab.set(2, {"enabled": False})
        until(lambda: not lldpd.neighbours(), "lldpd to forget the switch", 3)

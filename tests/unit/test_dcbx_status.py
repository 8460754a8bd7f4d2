"""The status of a port as data: it survives JSON, and says what the records say."""

from __future__ import annotations

import json
from dataclasses import replace

from dcbx_net import HIGH, LOW, ROCE, STORAGE, S, Wire, local, said, up

from dcb.dcbx.fabric import DcbxSwitch, PortRole
from dcb.dcbx.port import DcbxPort
from dcb.dcbx.settings import DcbxSettings, ModeSetting
from dcb.dcbx.status import election_status, port_status
from dcb.dcbx.tlv import ApplicationVlan, AppVlanEntry, CongestionNotification
from dcb.lldp.tlv import OrganizationalTlv

TABLE = {
    "priority_tc": [0, 0, 0, 1, 0, 0, 2, 0],
    "bandwidth": [40, 60, 0, 0, 0, 0, 0, 0],
    "tsa": ["ets", "ets", *["strict"] * 6],
}
APP = [{"selector": 3, "protocol": 4791, "priority": 3}]


def test_a_host_that_follows_its_switch() -> None:
    switch, host = up(LOW, DcbxSettings.switch(STORAGE, 0b1000, (ROCE,))), up(HIGH, DcbxSettings.host())
    Wire(((switch, ""), (host, ""))).run(4 * S)
    status = json.loads(json.dumps(port_status(host, 4 * S + 1)))
    assert status["operational"] == {
        "ets": {**TABLE, "state": "RxRecommend", "why": "willing, and the peer recommends"},
        "pfc": {"priorities": [3], "lossless": [3], "state": "RxRecommend", "why": "willing, and the peer is not"},
        "app": {"entries": APP, "state": "Init", "why": "for information only; the peer's entries are accepted"},
    }
    (remote,) = status["remotes"]
    assert remote["effective"] == {
        "ets": {**TABLE, "willing": False, "max_tcs": 8, "cbs": False},
        "recommendation": TABLE,
        "pfc": {"priorities": [3], "willing": False, "cap": 8, "mbc": False},
        "app": APP,
    }
    assert (remote["mac"], remote["ttl_s"], remote["expires_in_s"]) == ("02:00:00:00:00:01", 121, 120)  # sent at 3 s
    assert (status["mode"], status["cee"], status["agrees"], status["findings"]) == ("ieee", None, True, [])
    assert (status["admin"]["pfc"]["willing"], status["admin"]["ets"]["recommendation"]) == (True, None)
    assert status["counters"]["lldp"]["stats_frames_in_total"] == 5


def test_what_is_refused_and_the_rarer_tlvs() -> None:
    port = up(LOW, DcbxSettings.host())
    tlvs = [
        ApplicationVlan((AppVlanEntry(100, 3, 4791),)).encode(),
        CongestionNotification(0b1000, 0b1000).encode(),
        OrganizationalTlv(b"\0\x80\xc2", 11, b"\x09\x08"),
    ]
    port.receive(said(HIGH, tlvs), 0)
    status = json.loads(json.dumps(port_status(port, 0)))
    (remote,) = status["remotes"]
    message = "PFC Configuration TLV: PFC cap: 9, must be 0..8"
    assert remote["rejected"] == [{"tlv": "PFC Configuration", "octets": "0080c20b0908", "message": message}]
    assert remote["effective"] == {
        "app_vlan": [{"vid": 100, "selector": 3, "protocol": 4791, "reserved": 0}],
        "congestion": {"cnpv": [3], "ready": [3]},
    }
    assert status["last_error"] == message
    assert status["findings"][0]["severity"] == "mismatch"
    assert status["agrees"] is False


def test_cee() -> None:
    port = up(LOW, replace(DcbxSettings.switch(STORAGE, 0b1000), mode=ModeSetting.CEE))
    other = up(HIGH, replace(DcbxSettings.switch(STORAGE, 0b1_0000), mode=ModeSetting.CEE))
    Wire(((port, ""), (other, ""))).run(4 * S)
    cee = json.loads(json.dumps(port_status(port, 4 * S)))["cee"]
    assert (cee["seq_no"], cee["ack_no"]) == (1, 1)
    assert cee["features"]["pfc"] == {
        "oper_mode": False,
        "error": True,
        "flags": ["MISMATCH", "PEER"],
        "synced": True,
        "why": "neither willing, and they want different things",
    }
    assert cee["features"]["priority_group"]["oper_mode"] is True


def test_election() -> None:
    switch = DcbxSwitch()
    switch.add_port("p1", DcbxPort(LOW, local(LOW), DcbxSettings()), PortRole.CONFIGURATION_SOURCE, 0)
    switch.add_port("p2", DcbxPort(HIGH, local(HIGH), DcbxSettings()), PortRole.AUTO_DOWNSTREAM, 0)
    assert json.loads(json.dumps(election_status(switch))) == {
        "source": "p1",
        "why": "configuration-source with a configuration of its own",
        "ports": {
            "p1": {"role": "configuration-source", "part": "elected"},
            "p2": {"role": "auto-downstream", "part": "runs what p1 runs"},
        },
    }

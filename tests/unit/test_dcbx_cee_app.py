"""CEE negotiates applications: an end that is willing runs the peer's table, not a mixture with its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dcbx_net import HIGH, LOW, S, said, up

from dcb.cee.machine import CeeMachine, ErrorFlag, FeatureSettings
from dcb.cee.tlv import (
    AppFeature,
    CeeApp,
    CeeTlv,
    Control,
    Feature,
    Header,
    PfcFeature,
    PriorityGroups,
    SubTlv,
    decode,
)
from dcb.dcbx.report import link_report
from dcb.dcbx.settings import DcbxSettings, Mode, ModeSetting
from dcb.dcbx.summary import summary
from dcb.dcbx.tlv import AppEntry, EtsTable, Selector


def test_willing_end_runs_the_peers_applications_and_keeps_only_what_cee_cannot_say() -> None:
    mine = (AppEntry(Selector.ETHER_TYPE, 0x8906, priority=3), AppEntry(Selector.DSCP, 26, priority=3))
    port = up(HIGH, replace(DcbxSettings.host(), app=mine))
    theirs = AppFeature((CeeApp(0, 0x8906, 1 << 5), CeeApp(1, 3260, 1 << 4)))
    tlv = CeeTlv(Control(1, 1), (Feature(Header(True, False, False), theirs),)).encode()
    port.receive(said(LOW, [tlv]), S)
    assert port.mode is Mode.CEE
    assert port.operational.app == (
        AppEntry(Selector.ETHER_TYPE, 0x8906, priority=5),
        AppEntry(Selector.ANY_PORT, 3260, priority=4),
        AppEntry(Selector.DSCP, 26, priority=3),
    )


APP = SubTlv.APPLICATION
FCOE, ISCSI = CeeApp(0, 0x8906, 1 << 5), CeeApp(1, 3260, 1 << 4)
RESERVED = CeeApp(2, 7, 1 << 1)


def machine(app: AppFeature | None = None, *, willing: bool = True, enable: bool = True) -> CeeMachine:
    settings = FeatureSettings(app or AppFeature(), enable=enable, willing=willing)
    return CeeMachine(
        {
            SubTlv.PRIORITY_GROUP: FeatureSettings(PriorityGroups()),
            SubTlv.PFC: FeatureSettings(PfcFeature()),
            APP: settings,
        }
    )


def says(*entries: CeeApp, ack: int, header: Header | None = None) -> CeeTlv:
    return CeeTlv(Control(1, ack), (Feature(header or Header(), AppFeature(entries)),))


def announced(of: CeeMachine) -> tuple[CeeApp, ...]:
    feature = of.tlv().feature(APP)
    assert feature is not None
    assert isinstance(feature.config, AppFeature)
    return feature.config.entries


def test_willing_end_without_applications_repeats_the_peers() -> None:
    """As with open-lldp: our table without entries is an error to it, until it hears its own entries from us."""
    m = machine()
    status = m.features[APP]
    assert (announced(m), m.seq_no) == ((), 1)
    m.receive(says(FCOE, RESERVED, ISCSI, ack=1, header=Header(error=True)))
    assert (announced(m), m.seq_no) == ((FCOE, ISCSI), 2)  # of known kinds, as a change that wants acknowledgement
    assert (status.oper_mode, status.flags) == (False, ErrorFlag.PEER)
    m.receive(says(FCOE, ISCSI, ack=1))
    assert status.why == "waits for the peer to acknowledge SeqNo 2 (it has 1)"
    m.receive(says(FCOE, ISCSI, ack=2))
    assert (status.oper_mode, status.oper, status.flags) == (True, AppFeature((FCOE, ISCSI)), ErrorFlag(0))
    assert m.seq_no == 2
    m.receive(says(ISCSI, ack=2))  # the peer has changed its mind
    assert (announced(m), m.seq_no) == ((ISCSI,), 3)
    m.receive(says(ISCSI, ack=3))
    assert (status.oper_mode, status.oper) == (True, AppFeature((ISCSI,)))
    m.receive(None)
    assert (announced(m), m.features[APP].oper_mode) == ((), False)


def test_a_change_that_is_not_acknowledged_yet_comes_before_what_is_repeated() -> None:
    m = machine()
    m.receive(says(FCOE, ack=0))
    assert (announced(m), m.seq_no) == ((), 1)
    m.receive(says(FCOE, ack=1))
    assert (announced(m), m.seq_no) == ((FCOE,), 2)


@pytest.mark.parametrize(
    ("m", "peer"),
    [
        (machine(willing=False), Header()),
        (machine(enable=False), Header()),
        (machine(AppFeature((ISCSI,))), Header()),
        (machine(), Header(willing=True)),
        (machine(), Header(enable=False)),
    ],
)
def test_nothing_is_repeated(m: CeeMachine, peer: Header) -> None:
    before = announced(m)
    m.receive(says(FCOE, ack=1, header=peer))
    assert (announced(m), m.seq_no) == (before, 1)


def test_applications_of_its_own_take_the_place_of_the_peers() -> None:
    m = machine()
    m.receive(says(FCOE, ack=1))
    m.receive(says(FCOE, ack=2))
    m.set_local({**m.settings, APP: FeatureSettings(AppFeature((ISCSI,)), willing=True)})
    assert (announced(m), m.seq_no) == ((ISCSI,), 3)
    m.receive(says(FCOE, ack=3))
    assert (announced(m), m.seq_no) == ((ISCSI,), 3)
    assert m.features[APP].oper == AppFeature((FCOE,))


def test_what_is_repeated_fits_into_a_tlv() -> None:
    """A peer that announces nothing but applications has room for 81 of them, this end, with all features, for 77."""
    many = tuple(CeeApp(1, port, 1) for port in range(81))
    m = machine()
    m.receive(decode(says(*many, ack=1).encode()))
    assert announced(m) == many[:77]
    assert len(m.tlv().encode().info) == 45 + 6 * 77 == 507


def test_two_ports_agree_on_the_applications_of_the_one_that_has_some() -> None:
    fcoe = AppEntry(Selector.ETHER_TYPE, 0x8906, priority=5)
    source = up(LOW, replace(DcbxSettings.switch(EtsTable(), 0, (fcoe,)), mode=ModeSetting.CEE))
    host = up(HIGH, replace(DcbxSettings.host(), mode=ModeSetting.CEE))
    for second in range(1, 8):
        for sender, receiver in ((source, host), (host, source)):
            sender.handle_timer(second * S)
            for frame in sender.frames_to_send(second * S):
                receiver.receive(frame, second * S)
    for port in (source, host):
        status = port.cee.features[APP]
        assert (status.oper_mode, status.flags) == (True, ErrorFlag(0))
        assert port.operational.app == (fcoe,)


def test_what_a_peer_says_in_cee_is_shown_in_the_words_of_ieee() -> None:
    port = up(HIGH, DcbxSettings.host())
    groups = PriorityGroups((0, 0, 0, 1, 0, 0, 15, 0), (40, 60, 0, 0, 0, 0, 0, 0), 4)
    features = (
        Feature(Header(), groups),
        Feature(Header(), PfcFeature(1 << 3, 2)),
        Feature(Header(willing=True), AppFeature((FCOE,))),
    )
    assert summary(port, S)["remote"] is None
    port.receive(said(LOW, [CeeTlv(Control(1, 1), features).encode()]), S)
    remote = summary(port, S)["remote"]
    assert remote["modes"] == ["cee"]
    assert remote["recommendation"] is None
    assert remote["ets"] == {
        "priority_to_tc": [0, 0, 0, 1, 0, 0, 7, 0],  # link strict is the highest class that nothing else is in
        "bandwidth_percent": [40, 60, 0, 0, 0, 0, 0, 0],
        "tsa": ["ets", "ets", *["strict"] * 6],
        "text": "prio 0:0 1:0 2:0 3:1 4:0 5:0 6:7 7:0; tc 0 ets 40%, 1 ets 60%, 7 strict",
        "willing": False,
        "max_tcs": 4,
    }
    assert remote["pfc"] == {"enabled": [3], "willing": False, "cap": 2, "macsec_bypass": False}
    assert remote["app"]["willing"] is True
    assert [(one["protocol"], one["priority"]) for one in remote["app"]["entries"]] == [(0x8906, 5)]
    there = link_report(port).there
    assert there is not None
    assert there.sends == {"ets": remote["ets"]["text"], "pfc": "3", "app": "EtherType 0x8906 -> priority 5"}
    assert there.accepts == {"ets": "no", "pfc": "no", "app": "yes"}
    assert set(there.runs.values()) == {"unknown"}  # CEE does not say
    assert link_report(port).here.sends["app"] == "none"

"""One port and its link: arrival, change, vanishing, ageing, shutdown, second neighbour, bad TLVs, modes, dialects."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dcbx_net import HIGH, LOW, MIDDLE, OTHER, ROCE, STORAGE, S, Wire, local, said, up
from hypothesis import given
from hypothesis import strategies as st

from dcb.cee.machine import ErrorFlag
from dcb.cee.tlv import CeeTlv, Control, Feature, Header, PfcFeature, SubTlv
from dcb.dcbx.machines import State, TieBreak
from dcb.dcbx.port import DcbxPort, MultiPeerChanged, OperationalChanged, TlvRejected
from dcb.dcbx.settings import AppDialect, DcbxSettings, Mode, ModeSetting
from dcb.dcbx.tlv import (
    AppEntry,
    ApplicationPriority,
    EtsConfiguration,
    EtsRecommendation,
    EtsTable,
    PfcConfiguration,
    Subtype,
    decode_all,
)
from dcb.lldp.agent import AdminStatus
from dcb.lldp.pdu import decode_frame
from dcb.lldp.receive import NeighborRemoved
from dcb.lldp.tlv import OrganizationalTlv

RECO = EtsRecommendation(STORAGE).encode()
PFC = PfcConfiguration(0b1000).encode()
PFC_WILLING = PfcConfiguration(0b1000, willing=True).encode()
APP = ApplicationPriority((ROCE,)).encode()
SWITCH = DcbxSettings.switch(STORAGE, 0b1000, (ROCE,))


def changes(events: object) -> list[tuple[str, ...]]:
    assert isinstance(events, list)
    return [event.changed for event in events if isinstance(event, OperationalChanged)]


def host(mac: bytes = HIGH, **options: int) -> DcbxPort:
    return up(mac, DcbxSettings.host(), **options)


def test_arrival_configures_a_willing_port_at_once() -> None:
    port = host()
    events = port.receive(said(LOW, [RECO, PFC, APP]), S)
    assert changes(events) == [("ets", "pfc", "app", "agreed")]
    oper = port.operational
    assert (oper.ets, oper.pfc_priorities, oper.lossless_priorities, oper.app) == (STORAGE, (3,), (3,), (ROCE,))
    assert (oper.ets_state, oper.pfc_state) == (State.RX_RECOMMEND, State.RX_RECOMMEND)
    assert (oper.ets_why, oper.pfc_why) == ("willing, and the peer recommends", "willing, and the peer is not")


def test_it_announces_what_it_runs_at_once() -> None:
    port = host()
    port.frames_to_send(0)
    port.receive(said(LOW, [RECO, PFC, APP]), S)
    (frame,) = port.frames_to_send(S)
    sent = decode_all(decode_frame(frame).pdu.organizational)
    assert sent.ets == EtsConfiguration(STORAGE, willing=True)
    assert sent.pfc == PfcConfiguration(0b1000, willing=True)
    assert (sent.recommendation, sent.app) == (None, None)


def test_a_port_that_is_not_willing_keeps_its_own() -> None:
    port = up(HIGH, SWITCH)
    events = port.receive(said(LOW, [EtsRecommendation(OTHER).encode(), PfcConfiguration(0x10).encode(), APP]), 0)
    assert changes(events) == []
    oper = port.operational
    assert (oper.ets, oper.pfc_enable, oper.pfc_agreed, oper.app) == (STORAGE, 0b1000, 0, (ROCE,))
    assert (oper.ets_state, oper.pfc_state, oper.ets_why) == (State.INIT, State.INIT, "not willing")


def test_ets_needs_a_recommendation_and_pfc_a_configuration() -> None:
    port = host()
    port.receive(said(LOW, [EtsConfiguration(STORAGE).encode()]), 0)
    assert port.operational.ets == EtsTable()
    assert port.operational.ets_why == "no Recommendation received"
    assert port.operational.pfc_why == "no Configuration received"


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_tlv_that_vanishes_returns_that_attribute_to_local(gone: int) -> None:
    port = host()
    port.receive(said(LOW, [RECO, PFC, APP]), 0)
    kept = [tlv for n, tlv in enumerate((RECO, PFC, APP)) if n != gone]
    (changed,) = changes(port.receive(said(LOW, kept), S))
    assert changed == [("ets",), ("pfc", "agreed"), ("app",)][gone]
    oper = port.operational
    assert (oper.ets == EtsTable(), oper.pfc_enable == 0, oper.app == ()) == (gone == 0, gone == 1, gone == 2)


def test_a_change_at_the_peer_is_followed() -> None:
    port = host()
    port.receive(said(LOW, [RECO, PFC]), 0)
    events = port.receive(said(LOW, [RECO, PfcConfiguration(0b1_0000).encode()]), S)
    assert changes(events) == [("pfc", "agreed")]
    assert port.operational.pfc_priorities == (4,)
    assert port.operational.ets == STORAGE


def test_ageing_returns_to_local_to_the_second() -> None:
    port = host()
    port.receive(said(LOW, [RECO, PFC, APP], ttl=3), S)
    assert port.handle_timer(4 * S - 1) == []
    events = port.handle_timer(4 * S)
    assert [type(event) for event in events] == [NeighborRemoved, OperationalChanged]
    assert (port.operational.ets, port.operational.pfc_enable, port.operational.app) == (EtsTable(), 0, ())
    assert port.operational.pfc_why == "no neighbour"


def test_shutdown_returns_to_local_at_once() -> None:
    port = host()
    port.receive(said(LOW, [RECO, PFC], ttl=121), S)
    assert changes(port.receive(said(LOW, ttl=0), 2 * S)) == [("ets", "pfc", "agreed")]
    assert port.remotes == {}


def test_a_link_that_goes_down_returns_to_local_and_comes_back_empty() -> None:
    port = host()
    port.receive(said(LOW, [RECO, PFC]), S)
    assert changes(port.set_link(False, 2 * S)) == [("ets", "pfc", "agreed")]
    assert port.operational.pfc_why == "the link is down"
    assert port.receive(said(LOW, [RECO, PFC]), 2 * S) == []
    assert port.set_link(False, 2 * S) == []
    port.set_link(True, 3 * S)
    assert port.remotes == {}
    assert changes(port.receive(said(LOW, [RECO, PFC]), 4 * S)) == [("ets", "pfc", "agreed")]


def test_reception_off_returns_to_local() -> None:
    port = host()
    port.receive(said(LOW, [RECO, PFC]), S)
    assert changes(port.set_admin_status(AdminStatus.TX_ONLY, 2 * S)) == [("ets", "pfc", "agreed")]


def test_a_second_neighbour_suspends_all_and_its_end_restores() -> None:
    port = host()
    port.receive(said(LOW, [RECO, PFC, APP]), 0)
    events = port.receive(said(MIDDLE, [], ttl=10), S)  # says no DCBX; still the peer is not known
    assert MultiPeerChanged(True, 2) in events
    assert changes(events) == [("ets", "pfc", "app", "agreed")]
    assert port.operational.ets_why == "2 neighbours on the port: none counts"
    assert port.peer is None
    assert port.receive(said(LOW, [RECO, PfcConfiguration(0xFF).encode()]), 2 * S)  # changes nothing that is run
    assert port.operational.pfc_enable == 0
    events = port.handle_timer(11 * S)
    assert MultiPeerChanged(False, 1) in events
    assert port.operational.pfc_enable == 0xFF  # what the one that is left says now
    assert port.counters.multi_peer_entered == 1


def test_a_neighbour_that_there_is_no_room_for_suspends_too() -> None:
    port = host(max_neighbors=1)
    port.receive(said(LOW, [RECO, PFC]), 0)
    assert changes(port.receive(said(MIDDLE, ttl=5), S)) == [("ets", "pfc", "agreed")]
    assert changes(port.handle_timer(6 * S)) == [("ets", "pfc", "agreed")]
    assert port.operational.pfc_enable == 0b1000


def test_a_peer_that_restarts_with_another_port_id_is_two_until_the_old_one_ages() -> None:
    port = host()
    port.receive(said(LOW, [RECO, PFC], ttl=121), 0)
    port.receive(said(LOW, [RECO, PFC], ttl=121, port="new"), S)
    assert port.multi_peer
    assert changes(port.handle_timer(121 * S)) == [("ets", "pfc", "agreed")]
    assert port.operational.pfc_enable == 0b1000


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (RECO, OrganizationalTlv(b"\x00\x80\xc2", 10, bytes(20))),
        (PFC, OrganizationalTlv(b"\x00\x80\xc2", 11, b"\x09\xff")),
        (APP, OrganizationalTlv(b"\x00\x80\xc2", 12, b"\x00\x63\x12")),
    ],
)
def test_a_bad_tlv_is_told_counted_and_changes_nothing(good: OrganizationalTlv, bad: OrganizationalTlv) -> None:
    port = host()
    all_good = [RECO, PFC, APP]
    port.receive(said(LOW, all_good), 0)
    before = port.operational
    frame = said(LOW, [bad if tlv is good else tlv for tlv in all_good])
    events = port.receive(frame, S)
    assert changes(events) == []
    (rejected,) = [event for event in events if isinstance(event, TlvRejected)]
    assert rejected.rejection.message == port.last_error
    assert rejected.rejection.octets == bad.raw().value
    port.receive(frame, 2 * S)  # a refresh: counted, not told again
    assert port.counters.tlvs_rejected == {rejected.rejection.tlv: 2}
    assert port.operational == before
    assert port.peer is not None
    assert port.peer.tlvs.refused(Subtype(bad.subtype))
    port.receive(said(LOW, [tlv for tlv in all_good if tlv is not good]), 3 * S)  # absent is not bad: now it goes
    assert port.operational != before


def test_a_bad_tlv_from_a_new_peer_leaves_local() -> None:
    port = host()
    port.receive(said(LOW, [RECO, OrganizationalTlv(b"\x00\x80\xc2", 11, b"\x08")]), 0)
    assert (port.operational.ets, port.operational.pfc_enable) == (STORAGE, 0)


def test_a_discarded_frame_changes_nothing_and_is_told() -> None:
    port = host()
    port.receive(said(LOW, [RECO, PFC]), 0)
    port.receive(said(LOW, [RECO])[:30], S)
    assert port.operational.pfc_enable == 0b1000
    assert port.last_error == "Time To Live TLV: length: 2, but only 1 bytes are left in the frame"
    assert port.lldp.counters.stats_frames_discarded_total == 1


def test_two_management_addresses_do_not_hide_the_dcbx_tlvs() -> None:
    """open-lldp 1.1 discards such frames, which Cumulus switches send."""
    mgmt = bytes.fromhex("100c 05010a000001 02 00000007 00 100c 05010a000002 02 00000007 00")
    frame = said(LOW, [RECO, PFC])
    at = 14 + 9 + 4 + 4
    port = host()
    port.receive(frame[:at] + mgmt + frame[at:], 0)
    assert (port.operational.ets, port.operational.pfc_enable) == (STORAGE, 0b1000)


# What this end cannot do


@pytest.mark.parametrize(
    ("table", "settings", "why"),
    [
        (
            EtsTable((0, 0, 0, 3, 0, 0, 0, 0), (50, 0, 0, 50, 0, 0, 0, 0), (2, 0, 0, 2, 0, 0, 0, 0)),
            {"max_tcs": 3},
            "the peer recommends traffic class 3, this port has 3",
        ),
        (EtsTable(tsa=(0, 1, 0, 0, 0, 0, 0, 0)), {}, "the peer recommends CBS for traffic class 1, this port has none"),
        (EtsTable(tsa=(0, 255, 0, 0, 0, 0, 0, 0)), {}, "the peer recommends a vendor specific TSA for traffic class 1"),
    ],
)
def test_a_recommendation_beyond_this_port_is_left(table: EtsTable, settings: dict[str, int], why: str) -> None:
    port = up(HIGH, replace(DcbxSettings.host(), **settings))  # type: ignore[arg-type]
    port.receive(said(LOW, [EtsRecommendation(table).encode()]), 0)
    assert (port.operational.ets, port.operational.ets_state) == (EtsTable(), State.INIT)
    assert port.operational.ets_why == why
    capable = up(HIGH, replace(DcbxSettings.host(), cbs=True))
    capable.receive(said(LOW, [EtsRecommendation(table).encode()]), 0)
    assert (capable.operational.ets == table) is (255 not in table.tsa)


def test_pfc_beyond_this_port_is_left() -> None:
    port = up(HIGH, replace(DcbxSettings.host(), pfc_cap=1))
    wanted = PfcConfiguration(0b1010, cap=8).encode()
    spread = EtsRecommendation(replace(EtsTable(), priority_tc=tuple(range(8)))).encode()
    port.receive(said(LOW, [spread, wanted]), 0)
    assert port.operational.pfc_enable == 0
    assert port.operational.pfc_why == "the peer enables PFC on 2 traffic classes, this port can on 1"
    port.receive(said(LOW, [wanted]), S)  # all priorities in one class now: one is enough
    assert port.operational.pfc_enable == 0b1010


# Both willing


@pytest.mark.parametrize(("low_tie", "high_tie"), [(a, b) for a in TieBreak for b in TieBreak])
def test_both_willing_over_a_link(low_tie: TieBreak, high_tie: TieBreak) -> None:
    """Two conformant ends run the lower MAC's PFC, two of open-lldp the higher's; one of each, if it answers at once,
    never agrees."""
    base = DcbxSettings(pfc_willing=True)
    low = up(LOW, replace(base, pfc_enable=0b1000, tie_break=low_tie))
    high = up(HIGH, replace(base, pfc_enable=0b1_0000, tie_break=high_tie))
    wire = Wire(((low, ""), (high, "")))
    wire.run(10 * S)
    runs = (low.operational.pfc_priorities, high.operational.pfc_priorities)
    conformant, inverted = TieBreak.LOWER_MAC, TieBreak.HIGHER_MAC
    changed_late = [time for time, _, event in wire.events if isinstance(event, OperationalChanged) and time > 5 * S]
    swapping = (low_tie, high_tie) == (inverted, conformant)
    assert (low.pfc_flaps, high.pfc_flaps) == (swapping, swapping)
    if swapping:  # each takes the other's, for ever, as often as txCredit lets it say so: once a second
        assert changed_late == [second * S for second in range(6, 11) for _ in range(2)]
        return
    assert changed_late == []
    assert (
        runs
        == {
            (conformant, conformant): ((3,), (3,)),
            (inverted, inverted): ((4,), (4,)),
            (conformant, inverted): ((3,), (4,)),  # each keeps its own
        }[low_tie, high_tie]
    )
    assert low.operational.lossless_priorities == (runs[0] if runs[0] == runs[1] else ())


def test_a_source_mac_that_changes_decides_anew() -> None:
    port = up(MIDDLE, DcbxSettings(pfc_willing=True, pfc_enable=1))
    port.receive(said(HIGH, [PFC_WILLING]), 0)
    assert port.operational.pfc_enable == 1
    port.receive(said(LOW, [PFC_WILLING], chassis=HIGH), S)
    assert port.operational.pfc_enable == 0b1000


def test_two_ends_that_recommend_and_are_willing_swap_their_ets() -> None:
    a = up(LOW, DcbxSettings(ets=STORAGE, recommendation=STORAGE, ets_willing=True))
    b = up(HIGH, DcbxSettings(ets=OTHER, recommendation=OTHER, ets_willing=True))
    Wire(((a, ""), (b, ""))).run(5 * S)
    assert (a.operational.ets, b.operational.ets) == (OTHER, STORAGE)


@pytest.mark.parametrize("low_willing", [False, True])
@pytest.mark.parametrize("high_willing", [False, True])
@pytest.mark.parametrize("low_first", [False, True])
def test_every_pair_of_ends_settles(low_willing: bool, high_willing: bool, low_first: bool) -> None:
    """Who is willing, who has the lower MAC, who comes first: both run one PFC unless neither is willing."""
    base = DcbxSettings()
    low = DcbxPort(LOW, local(LOW), replace(base, pfc_enable=0b1000, pfc_willing=low_willing))
    high = DcbxPort(HIGH, local(HIGH), replace(base, pfc_enable=0b1_0000, pfc_willing=high_willing))
    wire = Wire(((low, ""), (high, "")))
    for port in (low, high) if low_first else (high, low):
        port.set_link(True, wire.now_ns)
        wire.run(wire.now_ns + 7 * S)
    wire.run(120 * S)
    low_runs, high_runs = {
        (False, False): (3, 4),
        (True, False): (4, 4),
        (False, True): (3, 3),
        (True, True): (3, 3),
    }[low_willing, high_willing]
    assert (low.operational.pfc_priorities, high.operational.pfc_priorities) == ((low_runs,), (high_runs,))
    assert low.operational.lossless_priorities == ((low_runs,) if low_runs == high_runs else ())


@given(st.lists(st.lists(st.tuples(st.sampled_from([8, 9, 10, 11, 12, 16, 99]), st.binary(max_size=30)), max_size=4)))
def test_any_tlvs_in_any_order(pdus: list[list[tuple[int, bytes]]]) -> None:
    """What is run is always of valid records, and of what was valid in a PDU, or of the port itself."""
    port = host()
    allowed = {0}
    for n, pdu in enumerate(pdus):
        tlvs = [OrganizationalTlv(b"\x00\x80\xc2", subtype, info) for subtype, info in pdu]
        pfc = decode_all(tlvs).pfc
        allowed |= {pfc.enable} if pfc is not None else set()
        port.receive(said(LOW, tlvs), n * S)
        port.operational.ets.check("ETS")
        assert port.operational.pfc_enable in allowed
        for frame in port.frames_to_send(n * S):
            assert decode_all(decode_frame(frame).pdu.organizational).problems == ()


# Timing over a link


def test_convergence_of_a_link_takes_no_time_and_fast_start_is_four() -> None:
    """The first frame of each end configures; then both keep fast start: 4 frames a second apart, then every 30 s."""
    switch, end = up(LOW, SWITCH), host()
    wire = Wire(((switch, ""), (end, "")))
    wire.run(33 * S)
    assert next(time for time, _, event in wire.events if isinstance(event, OperationalChanged)) == 0
    by_source = {mac: [time // S for time, _, frame in wire.log if frame[6:12] == mac] for mac in (LOW, HIGH)}
    assert by_source[LOW] == [0, 0, 1, 2, 3, 33]
    assert by_source[HIGH] == [0, 0, 1, 2, 3, 33]
    assert switch.operational.lossless_priorities == end.operational.lossless_priorities == (3,)


def test_pfc_moves_from_3_to_4_live_and_ets_stays() -> None:
    switch, end = up(LOW, SWITCH), host()
    wire = Wire(((switch, ""), (end, "")))
    wire.run(10 * S)
    wire.events.clear()
    events = switch.set_settings(replace(SWITCH, pfc_enable=0b1_0000), 10 * S)
    assert changes(events) == [("pfc", "agreed")]
    wire.run(10 * S)
    seen = [event for _, _, event in wire.events if isinstance(event, OperationalChanged)]
    assert [event.changed for event in seen] == [("pfc", "agreed"), ("agreed",)]  # the host's, then the switch's
    assert switch.operational.lossless_priorities == end.operational.lossless_priorities == (4,)


def test_adding_a_priority_never_drops_the_one_that_stays() -> None:
    switch, end = up(LOW, SWITCH), host()
    wire = Wire(((switch, ""), (end, "")))
    wire.run(10 * S)
    wire.events.clear()
    events = switch.set_settings(replace(SWITCH, pfc_enable=0b1_1000), 10 * S)
    wire.run(10 * S)
    states = [
        event.after
        for event in [*events, *(event for _, _, event in wire.events)]
        if isinstance(event, OperationalChanged)
    ]
    assert all(oper.pfc_agreed & 0b1000 for oper in states)
    assert end.operational.lossless_priorities == switch.operational.lossless_priorities == (3, 4)


# Applications


def test_application_priority_is_informational() -> None:
    """A host takes what it has no entry for; it announces its own only. Reserved selectors have no effect."""
    mine = AppEntry(3, 4791, 5)
    port = up(HIGH, replace(DcbxSettings.host(), app=(mine,)))
    other = AppEntry(5, 26, 3)
    port.receive(said(LOW, [ApplicationPriority((ROCE, other, AppEntry(6, 1, 1))).encode()]), 0)
    assert port.operational.app == (mine, other)
    assert port.sent.app == ApplicationPriority((mine,))
    assert port.operational.app_state is State.INIT


@pytest.mark.parametrize("willing", [True, False])
@pytest.mark.parametrize("theirs", [True, False])
@pytest.mark.parametrize("mac", [LOW, HIGH])
def test_app_symmetric_dialect(willing: bool, theirs: bool, mac: bytes) -> None:
    mine = AppEntry(1, 0x8906, 4)
    settings = DcbxSettings(app=(mine,), app_willing=willing, app_dialect=AppDialect.SYMMETRIC)
    port = up(mac, settings)
    port.receive(said(MIDDLE, [ApplicationPriority((ROCE,), 0x80 if theirs else 0).encode()]), 0)
    follows = willing and (not theirs or mac == HIGH)
    assert port.operational.app == ((ROCE,) if follows else (mine,))
    assert port.sent.app == ApplicationPriority(port.operational.app, 0x80 if willing else 0)


def test_without_the_dialect_the_reserved_bit_is_nothing() -> None:
    port = up(HIGH, DcbxSettings(app=(ROCE,), app_willing=True))
    port.receive(said(LOW, [ApplicationPriority((AppEntry(1, 1, 1),), 0).encode()]), 0)
    assert port.operational.app == (ROCE,)
    assert port.sent.app == ApplicationPriority((ROCE,), 0)


# Modes


def cee(seq: int = 1, ack: int = 1, willing: bool = False) -> OrganizationalTlv:
    return CeeTlv(Control(seq, ack), (Feature(Header(willing=willing), PfcFeature(0b1000)),)).encode()


CIN = OrganizationalTlv(b"\x00\x1b\x21", 1, bytes.fromhex("020a 0000 00000001 00000001"))


def test_a_peer_with_cee_only_moves_auto_to_cee_until_the_link_is_reset() -> None:
    port = host()
    port.frames_to_send(0)
    port.receive(said(LOW, [cee(ack=0)]), 0)
    assert (port.mode, port.mode_why) == (Mode.CEE, "the peer speaks CEE and not IEEE")
    (frame,) = port.frames_to_send(0)
    assert [(tlv.oui.hex(), tlv.subtype) for tlv in decode_frame(frame).pdu.organizational] == [("001b21", 2)]
    port.receive(said(LOW, [cee(ack=1)]), S)
    assert port.operational.pfc_priorities == (3,)
    port.receive(said(LOW, [cee(ack=1), RECO, PFC]), 2 * S)  # IEEE comes too: CEE stays
    assert port.mode is Mode.CEE
    port.set_link(False, 3 * S)
    assert (port.mode, port.mode_why) == (Mode.IEEE, "the link went down")
    assert port.operational.pfc_enable == 0
    port.set_link(True, 4 * S)
    (frame,) = port.frames_to_send(4 * S)
    assert {tlv.oui.hex() for tlv in decode_frame(frame).pdu.organizational} == {"0080c2"}
    assert port.counters.mode_changes == 2


def test_both_in_one_pdu_is_ieee_and_cee_is_shown() -> None:
    port = host()
    port.receive(said(LOW, [cee(), RECO, PfcConfiguration(0b1_0000).encode()]), 0)
    assert port.mode is Mode.IEEE
    assert port.operational.pfc_priorities == (4,)
    assert port.peer is not None
    assert port.peer.modes == (Mode.IEEE, Mode.CEE)
    assert port.peer.cee is not None


def test_a_bad_ieee_tlv_is_still_ieee() -> None:
    port = host()
    port.receive(said(LOW, [cee(), OrganizationalTlv(b"\x00\x80\xc2", 11, b"\x08")]), 0)
    assert port.mode is Mode.IEEE


def test_cin_is_read_and_moves_nothing() -> None:
    port = host()
    port.receive(said(LOW, [CIN]), 0)
    assert port.mode is Mode.IEEE
    assert port.peer is not None
    assert port.peer.modes == (Mode.CIN,)
    assert port.peer.cin is not None
    assert port.peer.cin.control == Control(1, 1)
    assert port.peer.cin.names == ("Control",)
    assert port.counters.cin_received == 1


@pytest.mark.parametrize("mode", [ModeSetting.IEEE, ModeSetting.CEE])
def test_a_set_mode_stays(mode: ModeSetting) -> None:
    port = up(HIGH, replace(DcbxSettings.host(), mode=mode))
    port.receive(said(LOW, [cee()] if mode is ModeSetting.IEEE else [RECO, PFC]), 0)
    assert port.mode.value == mode.value
    assert port.operational.pfc_enable == 0


def test_the_mode_can_be_set_while_it_runs() -> None:
    port = host()
    port.receive(said(LOW, [cee(), RECO, PFC]), 0)
    port.set_settings(replace(port.settings, mode=ModeSetting.CEE), S)
    assert port.mode is Mode.CEE
    port.set_settings(replace(port.settings, mode=ModeSetting.AUTO), 2 * S)
    assert port.mode is Mode.IEEE
    assert port.operational.pfc_enable == 0b1000


def test_two_ports_of_ours_agree_in_cee() -> None:
    switch = up(LOW, replace(SWITCH, mode=ModeSetting.CEE))
    end = host()
    Wire(((switch, ""), (end, ""))).run(40 * S)
    assert (switch.mode, end.mode) == (Mode.CEE, Mode.CEE)
    assert end.operational.pfc_priorities == switch.operational.lossless_priorities == (3,)
    assert end.operational.ets.bandwidth == (40, 60, 0, 0, 0, 0, 0, 0)
    assert end.operational.app == (AppEntry(4, 4791, 3),)
    assert all(status.syncd and status.oper_mode for status in end.cee.features.values())


def test_in_cee_a_second_neighbour_is_multi_peer_and_two_tlvs_multi_tlv() -> None:
    port = up(HIGH, replace(DcbxSettings.host(), mode=ModeSetting.CEE))
    port.receive(said(LOW, [cee()]), 0)
    assert port.operational.pfc_priorities == (3,)
    port.receive(said(MIDDLE, ttl=5), S)
    assert port.cee.features[SubTlv.PFC].flags is ErrorFlag.MULTI_PEER
    assert port.operational.pfc_enable == 0
    port.handle_timer(6 * S)
    assert port.operational.pfc_priorities == (3,)
    port.receive(said(LOW, [cee(), cee()]), 7 * S)
    assert port.cee.features[SubTlv.PFC].flags is ErrorFlag.MULTI_TLV
    assert port.last_error == "CEE DCBX TLV: occurrence: duplicate, must occur once in a PDU; the first counts"


def test_counters_of_tlvs() -> None:
    port = up(HIGH, SWITCH)
    for _ in range(3):
        port.receive(said(LOW, [RECO, PFC, CIN, cee()]), 0)
    port.frames_to_send(0)
    assert port.counters.as_dict() == {
        "tlvs_sent": dict.fromkeys(
            ("ets_configuration", "ets_recommendation", "pfc_configuration", "application_priority"), 1
        ),
        "tlvs_received": {"ets_recommendation": 3, "pfc_configuration": 3},
        "tlvs_rejected": {},
        "cee_sent": 0,
        "cee_received": 3,
        "cin_received": 3,
        "state_changes": 1,
        "mode_changes": 0,
        "multi_peer_entered": 0,
    }


def test_suppressed_tlvs_are_not_sent() -> None:
    port = up(LOW, replace(SWITCH, suppressed=frozenset(Subtype)))
    (frame,) = port.frames_to_send(0)
    assert decode_frame(frame).pdu.organizational == ()

"""Our DCBX port and Debian's lldpad at the two ends of a link, speaking IEEE: each side's view and programming.

What lldpad programs is read from the NIC's record, what it believes from lldptool, what we send from tshark.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from links import LOW_MAC, NEAREST_BRIDGE, End, Link, Tap, dissect, has_tlv
from lldpad import Ets, Lldpad, Pfc
from lldpd import Lldpd
from peer import Peer

from dcb.dcbx.machines import State, TieBreak
from dcb.dcbx.port import MultiPeerChanged, OperationalChanged
from dcb.dcbx.settings import DcbxSettings, Mode
from dcb.dcbx.tlv import AppEntry, EtsTable, Selector, Tsa
from dcb.lldp.receive import NeighborRemoved
from dcb.lldp.tlv import ManagementAddress
from dcb.lldp.transmit import LldpTimers

pytestmark = [pytest.mark.mininet, pytest.mark.needs_lldpad]

Start = Callable[[End], Lldpad]

PRIORITY_TC = [0, 0, 0, 1, 0, 0, 2, 0]
BANDWIDTH = [40, 60, 0, 0, 0, 0, 0, 0]
TSA = [2, 2, 0, 0, 0, 0, 0, 0]
TSA_NAMES = ["ets", "ets", "strict", "strict", "strict", "strict", "strict", "strict"]
TABLE = EtsTable.build(PRIORITY_TC, BANDWIDTH, TSA)
IDLE = EtsTable.build([0] * 8, [0] * 8, [Tsa.STRICT] * 8)
ROCE = AppEntry(Selector.UDP, 4791, priority=3)
SWITCH = DcbxSettings.switch(TABLE, 1 << 3, (ROCE,))
HOST = DcbxSettings.host()


def programs(agent: Lldpad, pfc: int) -> bool:
    """Whether the last PFC that lldpad has set is this bit map."""
    last = agent.nic.last("pfc")
    return bool(last) and last["pfc"]["pfc_en"] == pfc


def programmed_ets(agent: Lldpad) -> tuple[list[int], list[int], list[int]]:
    """Priority to class, bandwidth and TSA that lldpad has set last."""
    ets = agent.nic.last("ets")["ets"]
    return ets["prio_tc"], ets["tc_tx_bw"], ets["tc_tsa"]


def test_willing_lldpad_takes_ours(link: Link, start: Start, stack: ExitStack, tmp_path: Path) -> None:
    lldpad = start(link.right)
    peer = stack.enter_context(Peer(link.left, SWITCH))
    peer.until(lambda: lldpad.nic.last("app").get("app"), "lldpad to program what we say")
    peer.until(lambda: peer.port.operational.pfc_agreed == 1 << 3, "lldpad to say that it runs PFC 3")

    assert lldpad.nic.last("dcbx")["dcbx"] == 0x09  # host managed, IEEE
    assert lldpad.nic.last("pfc")["pfc"]["pfc_en"] == 1 << 3
    assert programmed_ets(lldpad) == (PRIORITY_TC, BANDWIDTH, TSA)
    assert lldpad.nic.last("app")["app"] == [{"selector": 3, "protocol": 4791, "priority": 3}]
    ours = lldpad.neighbour()
    assert ours.ets() == Ets(False, PRIORITY_TC, BANDWIDTH, TSA_NAMES)
    assert ours.recommendation() == Ets(None, PRIORITY_TC, BANDWIDTH, TSA_NAMES)
    assert ours.pfc() == Pfc(False, 8, [3])
    assert "UDP or DCCP Port: 4791" in ours["IEEE 8021QAZ APP TLV"][0]

    theirs = peer.port.peer
    assert theirs is not None
    assert theirs.rejections == ()
    assert theirs.tlvs.ets is not None
    assert theirs.tlvs.ets.willing
    assert theirs.tlvs.ets.table == TABLE  # a Configuration TLV tells what runs
    assert theirs.tlvs.pfc is not None
    assert (theirs.tlvs.pfc.willing, theirs.tlvs.pfc.enable, theirs.tlvs.pfc.cap) == (True, 1 << 3, 8)
    assert peer.port.operational.ets == TABLE
    assert peer.port.operational.lossless_priorities == (3,)
    assert peer.port.mode is Mode.IEEE

    seen = dissect(peer.frames, tmp_path)
    assert not any(frame.malformed for frame in seen)
    assert {(frame.source, frame.destination, frame.ttl) for frame in seen} == {(LOW_MAC, NEAREST_BRIDGE, 121)}
    (ets,), (recommendation,), (pfc,), (app,) = (seen[-1].ieee8021(subtype) for subtype in (0x09, 0x0A, 0x0B, 0x0C))
    for tlv in (ets, recommendation):
        assert tlv.each("lldp.dcbx.feature.pg.pgid_prio{}") == PRIORITY_TC
        assert tlv.each("lldp.dcbx.feature.pg.per{}") == BANDWIDTH
        assert tlv.each("lldp.dcbx.ieee.ets.tsa{}") == TSA
    assert (ets.number("lldp.dcbx.ieee.willing"), pfc.number("lldp.dcbx.ieee.willing")) == (0, 0)
    assert pfc.each("lldp.dcbx.feature.pfc.prio{}") == [0, 0, 0, 1, 0, 0, 0, 0]
    assert app.number("lldp.dcbx.feature.app.proto") == 4791
    assert app.number("lldp.dcbx.ieee.app.prio") == 3


def test_changes_are_followed(link: Link, start: Start, stack: ExitStack) -> None:
    lldpad = start(link.right)
    peer = stack.enter_context(Peer(link.left, SWITCH))
    peer.until(lambda: programs(lldpad, 1 << 3), "PFC 3")
    other = EtsTable.build([0, 0, 0, 0, 1, 0, 0, 0], [30, 70, 0, 0, 0, 0, 0, 0], [2, 2, 0, 0, 0, 0, 0, 0])
    peer.set(DcbxSettings.switch(other, 1 << 4))
    peer.until(lambda: programs(lldpad, 1 << 4), "PFC 4")
    peer.until(lambda: peer.port.operational.pfc_agreed == 1 << 4, "lldpad to say that it runs PFC 4")
    assert programmed_ets(lldpad) == ([0, 0, 0, 0, 1, 0, 0, 0], [30, 70, 0, 0, 0, 0, 0, 0], [2, 2, 0, 0, 0, 0, 0, 0])


def configure(lldpad: Lldpad) -> None:
    """Not willing: our table, PFC on 5, iSCSI on priority 4."""
    settings = ("tsa=0:ets,1:ets,2:strict", "up2tc=0:0,1:0,2:0,3:1,4:0,5:0,6:2,7:0", "tcbw=40,60")
    lldpad.set("ETS-CFG", "willing=no", *settings)
    lldpad.set("ETS-REC", "enableTx=yes", *settings)
    lldpad.set("PFC", "willing=no", "enabled=5")
    lldpad.set("APP", "enableTx=yes")
    lldpad.set("APP", "app=4,2,3260")


def test_we_take_lldpads(link: Link, start: Start, stack: ExitStack) -> None:
    lldpad = start(link.right)
    configure(lldpad)
    peer = stack.enter_context(Peer(link.left, HOST))
    iscsi = AppEntry(Selector.TCP, 3260, priority=4)
    peer.until(lambda: peer.port.operational.app == (iscsi,), "lldpad's application")
    running = peer.port.operational
    assert running.ets == TABLE
    assert running.pfc_enable == running.pfc_agreed == 1 << 5
    assert (running.ets_state, running.pfc_state) == (State.RX_RECOMMEND, State.RX_RECOMMEND)
    # We announce what we run, as lldptool sees it.
    peer.until(lambda: lldpad.neighbour().pfc() == Pfc(True, 8, [5]), "lldpad to see that we run its PFC")
    assert lldpad.neighbour().ets() == Ets(True, PRIORITY_TC, BANDWIDTH, TSA_NAMES)
    assert programs(lldpad, 1 << 5)


def test_nobody_willing_each_keeps_its_own(link: Link, start: Start, stack: ExitStack) -> None:
    lldpad = start(link.right)
    configure(lldpad)
    peer = stack.enter_context(Peer(link.left, SWITCH))
    peer.until(lambda: programs(lldpad, 1 << 5), "lldpad's own PFC")
    peer.until(lambda: peer.port.peer is not None, "lldpad's frame")
    assert peer.port.operational.pfc_enable == 1 << 3
    assert peer.port.operational.lossless_priorities == ()  # no priority has PFC at both ends
    assert peer.port.operational.pfc_why == "not willing"


BOTH = replace(HOST, pfc_enable=1 << 3)


def test_both_willing_we_are_lower(link: Link, start: Start, stack: ExitStack) -> None:
    """By the standard the lower address keeps its own; lldpad believes that the higher does: no agreement."""
    lldpad = start(link.right)
    lldpad.set("PFC", "enabled=4")
    peer = stack.enter_context(Peer(link.left, BOTH))
    peer.until(lambda: programs(lldpad, 1 << 4), "lldpad, the higher address, to keep its own")
    peer.until(lambda: peer.port.peer is not None, "lldpad's frame")
    assert peer.port.operational.pfc_enable == 1 << 3
    assert peer.port.operational.pfc_why == "both willing, this end has the lower MAC address"
    assert peer.port.operational.lossless_priorities == ()
    assert lldpad.neighbour().pfc() == Pfc(True, 8, [3])


def test_both_willing_we_are_higher(swapped: Link, start: Start, stack: ExitStack) -> None:
    """Both give way. lldpad, silent until it hears DCBX, has taken ours before it first speaks: then both run ours."""
    lldpad = start(swapped.right)
    lldpad.set("PFC", "enabled=4")
    peer = stack.enter_context(Peer(swapped.left, BOTH))
    peer.until(lambda: programs(lldpad, 1 << 3), "lldpad, the lower address, to give way")
    peer.until(lambda: peer.port.operational.pfc_agreed == 1 << 3, "lldpad to say so")
    assert peer.port.operational.pfc_why == "both willing, the peer has the lower MAC address"


def test_both_give_way_while_frames_cross(swapped: Link, start: Start, stack: ExitStack) -> None:
    """Each has spoken before it hears the other. Two that answer at once would swap for ever; lldpad answers once a
    second, with what it heard last, and so the link settles on what one of them began with."""
    lldpad = start(swapped.right)
    lldpad.set("PFC", "enabled=4")
    peer = Peer(swapped.left, BOTH)
    with Tap(swapped.left) as tap:
        lldpad.transmit()
        tap.await_received(has_tlv(0x0B, b"\x88\x10"), "lldpad's first frame, which waits for us while we send ours")
    stack.enter_context(peer)
    peer.until(lambda: peer.port.operational.pfc_agreed in (1 << 3, 1 << 4), "an agreement")
    agreed = peer.port.operational.pfc_agreed
    peer.for_seconds(2.5)  # two of lldpad's seconds
    assert peer.port.operational.pfc_enable == peer.port.operational.pfc_agreed == agreed
    assert programs(lldpad, agreed)


@pytest.mark.parametrize("we_are_higher", [False, True])
def test_both_willing_with_lldpads_tie_break(we_are_higher: bool, start: Start, stack: ExitStack) -> None:
    """`tie_break: higher-mac`: one rule at both ends again, and both run what the higher address has."""
    link = stack.enter_context(Link(swap=we_are_higher))
    lldpad = start(link.right)
    lldpad.set("PFC", "enabled=4")
    lldpad.transmit()
    peer = stack.enter_context(Peer(link.left, replace(BOTH, tie_break=TieBreak.HIGHER_MAC)))
    wanted = 1 << 3 if we_are_higher else 1 << 4
    peer.until(lambda: programs(lldpad, wanted), f"lldpad to run {wanted:#x}")
    peer.until(lambda: peer.port.operational.pfc_agreed == wanted, f"both ends to run {wanted:#x}")
    assert peer.port.operational.pfc_enable == wanted


def test_lldpad_says_goodbye(link: Link, start: Start, stack: ExitStack) -> None:
    lldpad = start(link.right)
    configure(lldpad)
    peer = stack.enter_context(Peer(link.left, HOST))
    peer.until(lambda: peer.port.operational.pfc_enable == 1 << 5, "lldpad's PFC")
    lldpad.stop()
    peer.until(lambda: any(isinstance(event, NeighborRemoved) for event in peer.events), "lldpad's shutdown", 2)
    running = peer.port.operational
    assert (running.ets, running.pfc_enable, running.app) == (IDLE, 0, ())
    assert (running.ets_state, running.pfc_state) == (State.INIT, State.INIT)
    assert peer.port.lldp.counters.stats_ageouts_total == 0


def test_lldpad_dies_and_ages_out(link: Link, start: Start, stack: ExitStack) -> None:
    lldpad = start(link.right)
    configure(lldpad)
    peer = stack.enter_context(Peer(link.left, HOST))
    peer.until(lambda: peer.port.operational.pfc_enable == 1 << 5, "lldpad's PFC")
    lldpad.stop(kill=True)
    peer.for_seconds(0.1)  # what it has sent arrives
    remote = peer.port.peer
    assert remote is not None
    left_s = (remote.neighbor.expires_ns - peer.now_ns()) / 1e9
    assert 118 < left_s <= 120  # it announces 120 s
    peer.advance(left_s - 0.01)
    assert peer.port.operational.pfc_enable == 1 << 5
    peer.advance(0.01)
    assert peer.port.operational.pfc_enable == 0
    assert peer.port.operational.ets == IDLE
    assert peer.port.lldp.counters.stats_ageouts_total == 1


def test_we_say_goodbye(link: Link, start: Start, stack: ExitStack, tmp_path: Path) -> None:
    lldpad = start(link.right)
    peer = stack.enter_context(Peer(link.left, SWITCH))
    peer.until(lambda: programs(lldpad, 1 << 3), "PFC 3")
    peer.shut_down()
    peer.until(lambda: programs(lldpad, 0), "lldpad to return to its own", 2)
    assert programmed_ets(lldpad) == ([0] * 8, [0] * 8, [0] * 8)
    assert lldpad.neighbour() == {}
    removed = [app for line in lldpad.nic.record("IEEE_DEL") for app in line["app"]]
    assert {"selector": 3, "protocol": 4791, "priority": 3} in removed
    (last,) = dissect(peer.frames[-1:], tmp_path)
    assert (last.ttl, last.malformed) == (0, False)


def test_we_fall_silent_and_age_out(link: Link, start: Start, stack: ExitStack) -> None:
    lldpad = start(link.right)
    peer = stack.enter_context(Peer(link.left, SWITCH, LldpTimers(msg_tx_interval_s=1, msg_tx_hold=1)))  # TTL 2 s
    peer.until(lambda: programs(lldpad, 1 << 3), "PFC 3")
    begun_ns = peer.now_ns()
    peer.port.lldp.set_port_enabled(False, begun_ns)  # no shutdown: as if the cable of one direction were cut
    peer.until(lambda: programs(lldpad, 0), "lldpad to let our TTL run out", 6)
    assert peer.now_ns() - begun_ns > 1_000_000_000
    assert lldpad.neighbour() == {}


@pytest.mark.debian_12s_lldpad
def test_two_management_addresses(link: Link, start: Start, stack: ExitStack, tmp_path: Path) -> None:
    """This lldpad takes a PDU with two. Newer ones discard it as a duplicate (intel/openlldp pull request 130)."""
    lldpad = start(link.right)
    for command in ("enableTx=yes", "ipv4=10.9.8.7"):
        lldpad.set("mngAddr", command)
    ours = (ManagementAddress(1, bytes([10, 0, 0, 1])), ManagementAddress(2, bytes.fromhex("fd") + bytes(14) + b"\x01"))
    peer = stack.enter_context(Peer(link.left, SWITCH, management_addresses=ours))
    peer.until(lambda: programs(lldpad, 1 << 3), "PFC 3")
    assert [line for line in lldpad.neighbour()["Management Address TLV"] if line.startswith("IPv")] == [
        "IPv4: 10.0.0.1",
        "IPv6: fd00::1",
    ]

    def addresses() -> list[str]:
        remote = peer.port.peer
        views = remote.neighbor.pdu.views if remote is not None else ()
        return [view.text for view in views if isinstance(view, ManagementAddress)]

    peer.until(lambda: addresses() == ["10.9.8.7"], "lldpad's address")  # it never sends more than one
    assert peer.port.operational.pfc_agreed == 1 << 3
    assert peer.port.lldp.counters.stats_tlvs_discarded_total == 0
    (seen,) = dissect(peer.frames[-1:], tmp_path)
    assert not seen.malformed
    assert sum(tlv.title.startswith("Management Address") for tlv in seen.tlvs) == 2


@pytest.mark.needs_lldpd
def test_a_second_neighbour_suspends_lldpad(link: Link, start: Start, stack: ExitStack) -> None:
    """lldpd on the same interface is a second agent on the link: nobody is *the* peer until one of them goes."""
    lldpad = start(link.right)
    configure(lldpad)
    peer = stack.enter_context(Peer(link.left, HOST))
    peer.until(lambda: peer.port.operational.pfc_enable == 1 << 5, "lldpad's PFC")
    with Lldpd(link.right) as lldpd:
        lldpd.cli("configure", "lldp", "portidsubtype", "ifname")
        lldpd.cli("update")
        peer.until(lambda: peer.port.multi_peer, "the second neighbour")
        assert peer.port.operational.pfc_enable == 0
        assert peer.port.operational.ets == IDLE
        assert peer.port.operational.pfc_why == "2 neighbours on the port: none counts"
    peer.until(lambda: not peer.port.multi_peer, "lldpd's shutdown")
    assert peer.port.operational.pfc_enable == 1 << 5
    assert [event.active for event in peer.events if isinstance(event, MultiPeerChanged)] == [True, False]
    changes = [event for event in peer.events if isinstance(event, OperationalChanged) and "pfc" in event.changed]
    assert [event.after.pfc_enable for event in changes] == [1 << 5, 0, 1 << 5]

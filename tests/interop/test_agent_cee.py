"""Our DCBX port and Debian's lldpad speaking CEE: fallback, negotiation, acknowledgement, errors, and back to IEEE.

lldpad runs with `ceefix.c`, without which Debian 12's cannot send CEE at all (test_lldpad.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from links import End, Link, dissect
from lldpad import Lldpad, Nic
from peer import Peer

from dcb.cee.machine import ErrorFlag
from dcb.cee.tlv import SubTlv
from dcb.dcbx.settings import DcbxSettings, Mode, ModeSetting
from dcb.dcbx.tlv import AppEntry, EtsTable, Selector, Tsa

pytestmark = [pytest.mark.mininet, pytest.mark.needs_lldpad]

Start = Callable[[End], Lldpad]

BANDWIDTH = [40, 60, 0, 0, 0, 0, 0, 0]
# Priority 3 in group 1, priority 7 strict (CEE's group 15), the rest in group 0
TABLE = EtsTable.build([0, 0, 0, 1, 0, 0, 0, 7], BANDWIDTH, [2, 2, 0, 0, 0, 0, 0, 0])
FCOE = AppEntry(Selector.ETHER_TYPE, 0x8906, priority=3)
SWITCH = DcbxSettings.switch(TABLE, 1 << 3, (FCOE,))
HOST = DcbxSettings.host()


def configure(lldpad: Lldpad, willing: int, pfc: str = "00000100") -> None:
    """Priorities 0-4 and 6 in group 0, 5 in group 1; PFC by default on 5; FCoE on 5."""
    common = ("e:1", "a:1", f"w:{willing}")
    lldpad.configure("pg", *common, "pgid:00000100", "pgpct:30,70,0,0,0,0,0,0")
    lldpad.configure("pfc", *common, f"pfcup:{pfc}")
    lldpad.configure("app:0", *common, "appcfg:20")


def programmed(lldpad: Lldpad) -> list[int]:
    """PFC by priority that lldpad has set last."""
    pfc: list[int] = lldpad.nic.last("pfc").get("pfc", [])
    return pfc


def test_willing_lldpad_takes_ours(link: Link, start_cee: Start, stack: ExitStack, tmp_path: Path) -> None:
    """A port that is set to find the dialect falls back to CEE, as the peer speaks nothing else."""
    lldpad = start_cee(link.right)
    configure(lldpad, willing=1)
    lldpad.transmit()
    peer = stack.enter_context(Peer(link.left, SWITCH))
    assert peer.port.mode is Mode.IEEE
    peer.until(lambda: peer.port.mode is Mode.CEE, "the fallback to CEE")
    assert peer.port.mode_why == "the peer speaks CEE and not IEEE"
    peer.until(lambda: programmed(lldpad) == [0, 0, 0, 1, 0, 0, 0, 0], "lldpad to program our PFC")
    peer.until(lambda: lldpad.nic.last("group_pct") == {"group_pct": BANDWIDTH}, "lldpad to program our groups")
    peer.until(lambda: lldpad.operational("pfc")["Syncd"] == "true", "lldpad to have our acknowledgement")
    peer.until(lambda: peer.port.operational.lossless_priorities == (3,), "us to run PFC 3")

    groups = next(line for line in reversed(lldpad.nic.record("PGTX_SCFG")))
    assert groups["up_map"][:3] == [0b01110111, 0b00001000, 0b10000000]  # classes 0, 1 and the strict one
    assert groups["strict"][:3] == [0, 0, 2]  # link strict
    assert lldpad.nic.last("dcbx", "pfc_state") == {"dcbx": 0x05, "pfc_state": 1}  # host managed, CEE
    fcoe = {"selector": 0, "protocol": 0x8906, "priority": 1 << 3}
    assert fcoe in [app for line in lldpad.nic.record("SAPP") for app in line["app"]]
    for feature in ("pg", "pfc", "app:0"):
        running = lldpad.operational(feature)
        assert (running["Errors"], running["Oper Mode"]) == ("0x00 - none", "true")
    assert lldpad.operational("pg")["pgid"].split() == list("0001000F")
    assert lldpad.operational("pg")["pgpct"].replace("%", "").split() == [str(percent) for percent in BANDWIDTH]
    assert lldpad.operational("pfc")["pfcup"].split() == list("00010000")
    assert lldpad.operational("app:0")["appcfg"] == "08"
    ours = lldpad.peer("pfc")
    assert (ours["Enable"], ours["Willing"], ours["Error"], ours["DCBX Subtype"]) == ("true", "false", "false", "2")
    assert ours["num TC's"] == "8"

    status = peer.port.cee.features[SubTlv.PFC]
    assert (status.oper_mode, status.error, status.syncd) == (True, False, True)
    assert status.peer is not None
    assert status.peer.header.willing
    assert peer.port.operational.ets == TABLE

    seen = dissect(peer.frames, tmp_path)
    assert not any(frame.malformed for frame in seen)
    last = seen[-1]
    assert last.ieee8021(0x09) == []
    assert last.cee[2].each("lldp.dcbx.feature.pg.pgid_prio{}") == [0, 0, 0, 1, 0, 0, 0, 15]
    assert last.cee[2].each("lldp.dcbx.feature.pg.per{}") == BANDWIDTH
    assert last.cee[3].each("lldp.dcbx.feature.pfc.prio{}") == [0, 0, 0, 1, 0, 0, 0, 0]
    assert last.cee[4].number("lldp.dcbx.feature.app.proto") == 0x8906


def test_we_take_lldpads(link: Link, start_cee: Start, stack: ExitStack) -> None:
    lldpad = start_cee(link.right)
    configure(lldpad, willing=0)
    lldpad.transmit()
    peer = stack.enter_context(Peer(link.left, replace(HOST, app=(FCOE,))))
    peer.until(lambda: peer.port.operational.lossless_priorities == (5,), "lldpad's PFC")
    peer.until(lambda: len(peer.port.operational.app) == 3, "lldpad's applications")
    running = peer.port.operational
    assert running.ets.priority_tc == (0, 0, 0, 0, 0, 1, 0, 0)
    assert running.ets.bandwidth == (30, 70, 0, 0, 0, 0, 0, 0)
    assert running.ets.tsa[:2] == (Tsa.ETS, Tsa.ETS)
    # FCoE on the peer's priority and not on ours; iSCSI and FIP, which lldpad has by default
    assert set(running.app) == {
        AppEntry(Selector.ETHER_TYPE, 0x8906, priority=5),
        AppEntry(Selector.ANY_PORT, 3260, priority=4),
        AppEntry(Selector.ETHER_TYPE, 0x8914, priority=3),
    }
    peer.until(lambda: lldpad.operational("pfc")["Syncd"] == "true", "lldpad to have our acknowledgement")
    peer.until(lambda: programmed(lldpad) == [0, 0, 0, 0, 0, 1, 0, 0], "lldpad to run its own")
    assert lldpad.peer("pfc")["Willing"] == "true"
    assert lldpad.operational("pfc")["Oper Mode"] == "true"


def test_no_application_here_takes_lldpads(link: Link, start_cee: Start, stack: ExitStack, tmp_path: Path) -> None:
    """lldpad takes an application TLV without entries for none, an error. A willing end then repeats lldpad's."""
    lldpad = start_cee(link.right)
    configure(lldpad, willing=0)
    lldpad.transmit()
    peer = stack.enter_context(Peer(link.left, HOST))
    app = peer.port.cee.features
    peer.until(lambda: len(peer.port.operational.app) == 3, "lldpad's applications")
    assert AppEntry(Selector.ETHER_TYPE, 0x8906, priority=5) in peer.port.operational.app
    assert (app[SubTlv.APPLICATION].error, app[SubTlv.APPLICATION].flags) == (False, 0)
    peer.until(lambda: lldpad.operational("app:0")["Oper Mode"] == "true", "lldpad to run them too")
    assert lldpad.operational("app:0")["Errors"] == "0x00 - none"
    assert lldpad.peer("app:0")["Willing"] == "true"
    (first, last) = dissect([peer.frames[0], peer.frames[-1]], tmp_path)
    assert not first.malformed
    assert not last.malformed
    assert last.cee[4].fields["lldp.dcbx.feature.app.proto"] == ["0x8906", "0x0cbc", "0x8914"]


def test_no_application_and_not_willing_is_no_feature(link: Link, start_cee: Start, stack: ExitStack) -> None:
    """Observed: lldpad calls a feature that its peer does not announce an error of its own; the others run."""
    lldpad = start_cee(link.right)
    configure(lldpad, willing=1)
    lldpad.transmit()
    peer = stack.enter_context(Peer(link.left, replace(SWITCH, app=())))
    peer.until(lambda: programmed(lldpad) == [0, 0, 0, 1, 0, 0, 0, 0], "lldpad to program our PFC")
    peer.until(lambda: peer.port.operational.lossless_priorities == (3,), "us to run PFC 3")
    assert lldpad.operational("app:0")["Errors"] == "0x20 - peer feature not present"
    assert lldpad.operational("pfc")["Errors"] == "0x00 - none"
    assert peer.port.cee.features[SubTlv.APPLICATION].why == "not advertised"


def test_changes_are_acknowledged(link: Link, start_cee: Start, stack: ExitStack) -> None:
    """SeqNo and AckNo: a change at either end is known to have arrived."""
    lldpad = start_cee(link.right)
    configure(lldpad, willing=1)
    lldpad.transmit()
    peer = stack.enter_context(Peer(link.left, SWITCH))
    peer.until(lambda: programmed(lldpad) == [0, 0, 0, 1, 0, 0, 0, 0], "PFC 3")
    peer.until(lambda: peer.port.cee.my_ack_no == peer.port.cee.seq_no, "lldpad's acknowledgement")
    before = peer.port.cee.seq_no
    peer.set(replace(SWITCH, pfc_enable=1 << 4))
    peer.until(lambda: programmed(lldpad) == [0, 0, 0, 0, 1, 0, 0, 0], "PFC 4")
    peer.until(lambda: peer.port.cee.my_ack_no == before + 1, "the acknowledgement of the change")
    assert peer.port.operational.lossless_priorities == (4,)
    # And one of lldpad's.
    before = peer.port.cee.ack_no
    lldpad.configure("pfc", "e:1", "a:1", "w:0", "pfcup:00001000")
    peer.until(lambda: lldpad.operational("pfc")["Syncd"] == "true", "lldpad to have our acknowledgement")
    peer.until(lambda: peer.port.cee.ack_no == before + 1, "lldpad's next sequence number")
    assert peer.port.operational.lossless_priorities == (4,)


def test_a_mismatch_is_an_error_at_both_ends(link: Link, start_cee: Start, stack: ExitStack) -> None:
    """Nobody is willing, and the configurations differ: CEE then runs the feature at neither end."""
    lldpad = start_cee(link.right)
    configure(lldpad, willing=0)
    lldpad.transmit()
    peer = stack.enter_context(Peer(link.left, SWITCH))
    peer.until(lambda: peer.port.cee.features[SubTlv.PFC].flags & ErrorFlag.MISMATCH, "the mismatch to be seen by us")
    peer.until(lambda: "mismatch" in lldpad.operational("pfc")["Errors"].lower(), "the mismatch to be seen by lldpad")
    assert lldpad.operational("pfc")["Oper Mode"] == "false"
    peer.until(lambda: lldpad.peer("pfc")["Error"] == "true", "lldpad to see our error bit")
    assert peer.port.operational.pfc_enable == 0
    assert peer.port.operational.lossless_priorities == ()
    assert not peer.port.cee.features[SubTlv.PFC].oper_mode
    # The same at both ends is no mismatch, willing or not.
    configure(lldpad, willing=0, pfc="00010000")
    peer.until(lambda: peer.port.operational.lossless_priorities == (3,), "PFC 3 at both ends")
    peer.until(lambda: lldpad.operational("pfc")["Oper Mode"] == "true", "lldpad to run it")
    assert programmed(lldpad) == [0, 0, 0, 1, 0, 0, 0, 0]


def test_lldpad_falls_back_when_we_speak_only_cee(
    link: Link, nic: Callable[[End], Nic], libraries: dict[str, Path], stack: ExitStack, tmp_path: Path
) -> None:
    lldpad = stack.enter_context(Lldpad(nic(link.right), tmp_path / "right", libraries["ceefix"]))
    assert lldpad.dcbtool("go", "dcbx")["DCBX Version"] == "CEE"  # what it falls back to; it begins with IEEE
    peer = stack.enter_context(Peer(link.left, replace(SWITCH, mode=ModeSetting.CEE)))
    peer.until(lambda: lldpad.nic.last("dcbx").get("dcbx") == 0x05, "lldpad to fall back to CEE")
    peer.until(lambda: programmed(lldpad) == [0, 0, 0, 1, 0, 0, 0, 0], "lldpad, willing by default, to take our PFC")
    peer.until(lambda: peer.port.operational.lossless_priorities == (3,), "us to run it")
    assert lldpad.nic.record("IEEE_SET") == []


def test_a_link_that_was_down_begins_with_ieee_again(link: Link, start_cee: Start, stack: ExitStack) -> None:
    lldpad = start_cee(link.right)
    configure(lldpad, willing=0)
    lldpad.transmit()
    peer = stack.enter_context(Peer(link.left, HOST))
    peer.until(lambda: peer.port.operational.lossless_priorities == (5,), "lldpad's PFC")
    peer.link(False)
    assert (peer.port.mode, peer.port.operational.pfc_enable) == (Mode.IEEE, 0)
    peer.link(True)
    assert (peer.port.mode, peer.port.operational.pfc_enable) == (Mode.IEEE, 0)
    peer.until(lambda: peer.port.operational.lossless_priorities == (5,), "lldpad's PFC again", 40)
    assert (peer.port.mode, peer.port.mode_why) == (Mode.CEE, "the peer speaks CEE and not IEEE")


def test_lldpad_ends_and_its_cee_configuration_ages_out(link: Link, start_cee: Start, stack: ExitStack) -> None:
    """Observed: with DCB on, lldpad says no goodbye even where it is ended politely."""
    lldpad = start_cee(link.right)
    configure(lldpad, willing=0)
    lldpad.transmit()
    peer = stack.enter_context(Peer(link.left, HOST))
    peer.until(lambda: peer.port.operational.lossless_priorities == (5,), "lldpad's PFC")
    lldpad.stop()
    peer.for_seconds(0.1)
    remote = peer.port.peer
    assert remote is not None
    peer.advance((remote.neighbor.expires_ns - peer.now_ns()) / 1e9 - 0.01)
    assert peer.port.operational.lossless_priorities == (5,)
    peer.advance(0.01)
    assert peer.port.operational.pfc_enable == 0
    assert peer.port.lldp.counters.stats_ageouts_total == 1
    assert peer.port.mode is Mode.CEE  # until the link goes down

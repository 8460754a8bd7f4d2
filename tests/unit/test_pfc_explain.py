"""dcb.pfc_explain: every fault of a frame, hints, dialects; and what SONiC's own tests get wrong (dcb.md 2.4)."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.mac_control import MACControlClassBasedFlowControl
from scapy.layers.l2 import Dot1Q, Ether

from dcb import pfc
from dcb.pfc import DIALECTS, Dialect, PauseFrame, PfcError, PfcFrame, Reason
from dcb.pfc_explain import Says, carries_mac_control, diagnose, explain

SOURCE = bytes.fromhex("020100000001")
GOOD = pfc.build_pfc(pfc.pfc_frame(SOURCE, {3: 65535}, xon=[4]))
BOTH = DIALECTS["both"]


def says(data: bytes, dialect: Dialect = Dialect.STANDARD) -> dict[int, Says]:
    return {r.priority: r.says for r in diagnose(data, dialect).requests}


def test_the_lines_of_a_frame() -> None:
    frame = PfcFrame(SOURCE, 0x18, (0, 0, 0, 65535, 0, 7, 0, 0), 0x01)
    assert explain(pfc.build_pfc(frame), 40 * 10**9).split("\n") == [
        "PFC from 02:01:00:00:00:01: vector 0x18",
        "  vector upper byte 0x01: reserved, ignored",
        "  priority 3: XOFF 65535 quanta (838.848us at 40G)",
        "  priority 4: XON",
        "  hint: priority 5: time 7 without its enable bit: no effect",
    ]
    assert explain(pfc.build_pause(PauseFrame(SOURCE, 0))) == "PAUSE from 02:01:00:00:00:01: all priorities XON"
    assert explain(b"\0" * 60) == "not a MAC control frame (EtherType 0x8808)"


def test_all_faults_of_one_frame_are_told() -> None:
    data = bytes.fromhex("0180c20000aa") + GOOD[6:16] + b"\x80\x00" + GOOD[18:34] + b"\0\x01" + bytes(10)
    found = diagnose(data)
    assert [(f.reason, f.accepted) for f in found.faults] == [
        (Reason.DESTINATION, False),
        (Reason.LENGTH, False),
        (Reason.PAD, False),
        (Reason.ZERO_VECTOR, False),
        (Reason.HIGH_BYTE, True),
    ]
    assert found.head() == (
        "invalid MAC control frame from 02:01:00:00:00:01, ignored: destination: 01-80-c2-00-00-aa, must be "
        "01-80-c2-00-00-01; length: 46 bytes, must be 60 (64 with FCS); pad: byte 35 is 0x01, must be 0; "
        "vector: no priority enabled, the frame does nothing"
    )
    assert diagnose(GOOD[:14] + b"\x02\x02" + GOOD[16:]).faults[0].text == "opcode: 0x0202, must be 0x0101 or 0x0001"


@given(
    st.integers(0, 59).filter(lambda at: at not in (12, 13)), st.integers(0, 255), st.integers(14, 70), st.booleans()
)
def test_the_first_fault_is_the_one_that_the_parser_names(at: int, byte: int, length: int, cut: bool) -> None:
    data = (GOOD[:at] + bytes([byte]) + GOOD[at + 1 :])[: length if cut else 60].ljust(length if cut else 60, b"\0")
    found = diagnose(data)
    try:
        pfc.parse(data)
        refused = None
    except PfcError as error:
        refused = error.reason
    assert next((fault.reason for fault in found.faults if not fault.accepted), None) is refused
    assert found.valid == (refused is None)


def test_the_fcs_of_a_capture_is_recognised() -> None:
    fcs = zlib.crc32(GOOD).to_bytes(4, "little")
    found = diagnose(GOOD + fcs)
    assert (found.valid, found.length_bytes) == (True, 64)
    assert found.hints == ("the capture holds the FCS (last 4 bytes, correct): left out here",)
    assert not diagnose(GOOD + bytes(4)).valid


def test_a_tag_is_a_fault() -> None:
    data = bytes(Ether(dst="01:80:c2:00:00:01", src="02:01:00:00:00:01") / Dot1Q(prio=3, type=0x8808)) + GOOD[14:]
    assert carries_mac_control(data)
    found = diagnose(data)
    assert [f.text for f in found.faults] == ["tag: a MAC control frame carries no VLAN tag"]
    assert not found.valid


def test_dialects_read_the_same_bytes_differently() -> None:
    data = pfc.build_pfc(PfcFrame(SOURCE, 0b11, (0x8000, 0x7FFF, 0, 0, 0, 0, 0, 0)))
    assert says(data) == {0: Says.XOFF, 1: Says.XOFF}
    assert says(data, Dialect.UNTIL_RESUMED) == {0: Says.XOFF_FOREVER, 1: Says.XOFF}
    cleared = dict.fromkeys(range(2, 8), Says.XON_CLEARED)
    assert says(data, Dialect.CLEAR_BIT) == {0: Says.XOFF, 1: Says.XOFF, **cleared}
    assert says(data, BOTH) == {0: Says.XOFF_FOREVER, 1: Says.XOFF, **cleared}
    assert diagnose(data).hints == ("priority 0: top bit of time 0x8000 set: a peer of dialect D1 (until resumed)?",)
    assert diagnose(data, BOTH).hints == ()


def test_frames_of_each_dialect() -> None:
    """(vector, time of priority 3) of XOFF and of XON, read back by scapy."""
    seen = {}
    for name, dialect in DIALECTS.items():
        frames = [pfc.pfc_frame(SOURCE, xoff=[3], dialect=dialect), pfc.pfc_frame(SOURCE, xon=[3], dialect=dialect)]
        layers = [Ether(pfc.build_pfc(frame))[MACControlClassBasedFlowControl] for frame in frames]
        seen[name] = [(layer.c3_enabled, layer.c3_pause_time) for layer in layers]
    assert seen == {
        "standard": [(1, 65535), (1, 0)],
        "clear-bit": [(1, 65535), (0, 0)],
        "until-resumed": [(1, 0x8000), (1, 0)],
        "both": [(1, 0x8000), (0, 0)],
    }
    with pytest.raises(ValueError, match="priority 3: named twice"):
        pfc.pfc_frame(SOURCE, xoff=[3], xon=[3], dialect=BOTH)


# ---- SONiC's own tests (reference: sonic-mgmt) ----------------------------------------------------------------------


def test_xon_not_counted_is_no_xon() -> None:
    """test_xon_not_counted.py sends vector 0 with time 65535 and calls it XON: a no-op, but in dialect D2."""
    data = GOOD[:16] + b"\0\0" + b"\xff\xff" * 8 + bytes(26)
    found = diagnose(data)
    assert [f.reason for f in found.faults] == [Reason.ZERO_VECTOR]
    assert found.requests == ()
    assert found.hints[0] == (
        "XON is an enabled bit with time 0; to a peer of dialect D2 (clear-bit) this frame resumes all"
    )
    assert says(data, Dialect.CLEAR_BIT) == dict.fromkeys(range(8), Says.XON_CLEARED)
    assert diagnose(data, Dialect.CLEAR_BIT).valid


def test_an_enabled_bit_with_time_0_is_valid() -> None:
    """pfc_packet.py:_check_class_pause_times calls bit 1 with time 0, the true XON, invalid."""
    found = diagnose(pfc.build_pfc(PfcFrame(SOURCE, 0x08, (0,) * 8)))
    assert (found.valid, found.faults, found.hints) == (True, (), ())
    assert says(pfc.build_pfc(PfcFrame(SOURCE, 0x08, (0,) * 8))) == {3: Says.XON}


def test_a_frame_without_its_pad_is_short_and_says_why() -> None:
    """pfc_gen.py emits 34 bytes and relies on the NIC to pad."""
    found = diagnose(GOOD[:34])
    assert [f.text for f in found.faults] == ["length: 34 bytes, must be 60 (64 with FCS)"]
    assert found.hints == (
        "the pad is missing: captured where it was sent, before a MAC padded it, or not padded at all",
    )
    assert [(r.priority, r.quanta) for r in found.requests] == [(3, 65535), (4, 0)]


def test_a_source_of_zeros_is_obeyed() -> None:
    """snappi's zero_mac: frames from 00:00:00:00:00:00 count."""
    found = diagnose(GOOD[:6] + bytes(6) + GOOD[12:])
    assert found.valid
    assert found.hints == ("source 00:00:00:00:00:00: obeyed, but no port has this address",)

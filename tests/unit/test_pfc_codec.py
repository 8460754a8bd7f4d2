"""dcb.pfc against the standard's numbers, scapy's MAC control layers and tshark's dissector."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.mac_control import MACControlClassBasedFlowControl, MACControlPause
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from dcb import pfc
from dcb.pfc import PauseFrame, PfcError, PfcFrame, Reason

SOURCE = bytes.fromhex("020100000001")

frames = st.builds(
    PfcFrame,
    st.binary(min_size=6, max_size=6),
    st.integers(1, 255),
    st.tuples(*[st.integers(0, 65535)] * 8),
    st.integers(0, 255),
)


def scapy_pfc(frame: PfcFrame) -> bytes:
    fields = {f"c{n}_enabled": frame.vector >> n & 1 for n in range(8)}
    fields |= {f"c{n}_pause_time": frame.times[n] for n in range(8)}
    layer = MACControlClassBasedFlowControl(_reserved=frame.high_byte, **fields)
    return bytes(Ether(dst="01:80:c2:00:00:01", src=frame.source.hex(":"), type=0x8808) / layer)


def test_bytes_of_the_standard() -> None:
    """802.1Qbb: priority 3 for 65535 quanta, priority 4 resumed; every byte by hand."""
    frame = pfc.pfc_frame(SOURCE, xoff=[3], xon=[4])
    expected = "0180c2000001 020100000001 8808 0101 0018 0000 0000 0000 ffff 0000 0000 0000 0000" + "00" * 26
    assert pfc.build_pfc(frame) == bytes.fromhex(expected)
    assert (frame.xoff, frame.xon) == ((3,), (4,))


def test_pause_bytes_of_the_standard() -> None:
    expected = "0180c2000001 020100000001 8808 0001 1234" + "00" * 42
    assert pfc.build_pause(PauseFrame(SOURCE, 0x1234)) == bytes.fromhex(expected)


@given(frames)
def test_build_equals_scapy(frame: PfcFrame) -> None:
    data = pfc.build_pfc(frame)
    assert len(data) == 60
    assert data == scapy_pfc(frame)


@given(frames)
def test_parse_inverts_build(frame: PfcFrame) -> None:
    assert pfc.parse_pfc(pfc.build_pfc(frame)) == frame


@given(st.binary(min_size=6, max_size=6), st.integers(0, 65535))
def test_pause_equals_scapy_and_parses(source: bytes, quanta: int) -> None:
    data = pfc.build_pause(PauseFrame(source, quanta))
    layer = Ether(dst="01:80:c2:00:00:01", src=source.hex(":"), type=0x8808) / MACControlPause(pause_time=quanta)
    assert data == bytes(layer)
    assert pfc.parse(data) == PauseFrame(source, quanta)


GOOD = pfc.build_pfc(pfc.pfc_frame(SOURCE, {3: 100}))


@pytest.mark.parametrize(
    ("data", "reason", "words"),
    [
        (b"\xff" * 6 + GOOD[6:], Reason.DESTINATION, "ff-ff-ff-ff-ff-ff"),
        (GOOD[:5] + b"\x02" + GOOD[6:], Reason.DESTINATION, "must be 01-80-c2-00-00-01"),
        (GOOD[:59], Reason.LENGTH, "59 bytes, must be 60"),
        (GOOD + b"\0", Reason.LENGTH, "61 bytes, must be 60"),
        (GOOD[:15], Reason.LENGTH, "15 bytes, must be 60"),
        (GOOD[:34], Reason.LENGTH, "34 bytes"),
        (GOOD[:34] + b"\x01" + GOOD[35:], Reason.PAD, "byte 34 is 0x01"),
        (GOOD[:59] + b"\x80", Reason.PAD, "byte 59 is 0x80"),
        (GOOD[:14] + b"\x01\x02" + GOOD[16:], Reason.OPCODE, "0x0102, must be 0x0101"),
        (GOOD[:14] + b"\x00\x01" + GOOD[16:], Reason.OPCODE, "0x0001, must be 0x0101"),
        (GOOD[:17] + b"\x00" + GOOD[18:], Reason.ZERO_VECTOR, "no priority enabled"),
        (GOOD[:12] + b"\x08\x00" + GOOD[14:], None, "not a MAC control frame"),
        (b"", None, "not a MAC control frame"),
    ],
)
def test_refusals(data: bytes, reason: Reason | None, words: str) -> None:
    with pytest.raises(PfcError, match=words) as caught:
        pfc.parse_pfc(data)
    assert caught.value.reason is reason


def test_high_byte_is_accepted_unless_strict() -> None:
    data = GOOD[:16] + b"\x80" + GOOD[17:]
    assert pfc.parse_pfc(data).high_byte == 0x80
    with pytest.raises(PfcError, match="upper byte is 0x80") as caught:
        pfc.parse_pfc(data, strict=True)
    assert caught.value.reason is Reason.HIGH_BYTE


@given(st.binary(max_size=80))
def test_garbage_is_refused_or_round_trips(data: bytes) -> None:
    try:
        frame = pfc.parse_pfc(data)
    except PfcError:
        return
    assert pfc.build_pfc(frame) == data


@pytest.mark.parametrize(
    ("quanta", "rate_bps", "time_ps"),
    [
        (65535, 40 * 10**9, 838_848_000),
        (65535, 10 * 10**9, 3_355_392_000),
        (65535, 100 * 10**9, 335_539_200),
        (65535, 400 * 10**9, 83_884_800),
        (1, 10**8, 5_120_000),
        (0, 10**9, 0),
        (1, 3, 170_666_666_666_667),  # 512/3 s, rounded up
    ],
)
def test_quanta_to_time(quanta: int, rate_bps: int, time_ps: int) -> None:
    assert pfc.quanta_to_ps(quanta, rate_bps) == time_ps


@given(st.integers(0, 65535), st.integers(1, 10**12))
def test_time_to_quanta_inverts(quanta: int, rate_bps: int) -> None:
    time_ps = pfc.quanta_to_ps(quanta, rate_bps)
    if 512 * 10**12 % rate_bps == 0:
        assert pfc.ps_to_quanta(time_ps, rate_bps) == quanta
    if quanta:
        fewest = pfc.ps_to_quanta(pfc.quanta_to_ps(quanta - 1, rate_bps), rate_bps)
        assert pfc.quanta_to_ps(fewest, rate_bps) >= pfc.quanta_to_ps(quanta - 1, rate_bps)


def test_time_beyond_the_longest_pause() -> None:
    assert pfc.ps_to_quanta(838_848_000, 40 * 10**9) == 65535
    with pytest.raises(ValueError, match=r"more than 65535 quanta at this rate last \(838\.848us\)"):
        pfc.ps_to_quanta(838_848_001, 40 * 10**9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"xoff": [8]}, "priority: 8 is out of range, must be 0..7"),
        ({"xoff": [3], "xon": [3]}, "priority 3: named twice"),
        ({"xoff": [3], "quanta": 65536}, "quanta: 65536 is out of range, must be 0..65535"),
        ({"requests": {3: -1}}, "quanta of priority 3: -1 is out of range"),
        ({}, "zero vector"),
    ],
)
def test_wrong_requests(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pfc.pfc_frame(SOURCE, **arguments)  # type: ignore[arg-type]


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_every_field(tmp_path: Path) -> None:
    """One frame per priority, all priorities different times, and a PAUSE frame."""
    times = tuple(range(1000, 1008))
    made = [PfcFrame(SOURCE, 1 << n, times) for n in range(8)] + [PfcFrame(SOURCE, 0xFF, (65535, 0) * 4)]
    capture = tmp_path / "pfc.pcap"
    wrpcap(str(capture), [Ether(pfc.build_pfc(f)) for f in made] + [Ether(pfc.build_pause(PauseFrame(SOURCE, 77)))])
    wanted = ["frame.len", "eth.dst", "eth.src", "eth.type", "macc.opcode"]
    wanted += [f"macc.cbfc.enbv.c{n}" for n in range(8)] + [f"macc.cbfc.pause_time.c{n}" for n in range(8)]
    command = ["tshark", "-r", str(capture), "-T", "fields", "-E", "separator=,"]
    for field in [*wanted, "macc.pause_time", "_ws.malformed"]:
        command += ["-e", field]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 10
    for frame, line in zip(made, lines, strict=False):
        length, dst, src, ether_type, opcode, *rest = line.split(",")
        assert (length, dst, src) == ("60", "01:80:c2:00:00:01", "02:01:00:00:00:01")
        assert (int(ether_type, 16), int(opcode, 16)) == (0x8808, 0x0101)
        assert [int(v in ("1", "True")) for v in rest[:8]] == [frame.vector >> n & 1 for n in range(8)]
        assert [int(v) for v in rest[8:16]] == list(frame.times)
        assert rest[16:] == ["", ""]
    assert lines[9].split(",")[:1] + lines[9].split(",")[-2:] == ["60", "77", ""]

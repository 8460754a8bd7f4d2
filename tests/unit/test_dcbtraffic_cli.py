"""dcbtraffic: wrong use (exit status 2), failed runs (1), and captures explained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import PcapNgWriter, wrpcap
from typer.testing import CliRunner

from dcb import pfc
from hosts.cli import app

run = CliRunner().invoke
A, B = bytes.fromhex("020100000001"), bytes.fromhex("020100000002")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("send", "is required for udp frames"),
        ("send raw", "is required for raw frames"),
        ("send bogus --dst ::1", "bogus"),
        ("send --dst 10.0.0.300", "'10.0.0.300' is not an IPv4 or IPv6 address"),
        ("send --dst 10.0.0.1 --src ::1", "one is IPv4"),
        ("send --dst 10.0.0.1 --dscp 64", "--dscp"),
        ("send roce --dst 10.0.0.1 --opcode 0x100", "0x100 is out of range, must be 0..255"),
        ("send --dst 127.0.0.1 --dst-mac 2:0 --dev lo", "'2:0' is not a MAC address"),
        ("send --dst 127.0.0.1 --dst-mac 02:00:00:00:00:01 --dev lo --size 9", "9 bytes, must be 42..9200"),
        ("send --dst 127.0.0.1 --dst-mac 02:00:00:00:00:01 --dev lo --rate 0pps", "must be at least 1pps"),
        ("send --dst 127.0.0.1 --dst-mac 02:00:00:00:00:01 --dev lo --rate fast", "'fast': a rate is"),
        ("pfc", "name a priority"),
        ("pfc --xoff 8", "'8' is not a priority, must be 0..7"),
        ("pfc --xoff 3 --time 3=4", "priority 3 is named twice"),
        ("pfc --time 3", "'3' is not PRIORITY=QUANTA"),
        ("pfc --time 3=65536", "65536 is out of range, must be 0..65535"),
        ("storm --quanta 0", "--quanta"),
        ("storm --duration 1s --xoff ,", "name at least one priority"),
        ("storm --duration soon", "a time is a number of seconds"),
        ("recv --only pfc,foo", "unknown kind foo"),
        ("explain x.pcap --link-rate fast", "a rate is"),
        ("explain x.pcap --dialect d1", "'d1' is not one of standard, clear-bit, until-resumed, both"),
        ("pfc --xoff 3 --dialect both,d1", "'both,d1' is not one of standard"),
    ],
)
def test_wrong_use(arguments: str, words: str) -> None:
    result = run(app, arguments.split(), env={"COLUMNS": "300"})
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


def test_an_absent_interface_is_a_failed_run() -> None:
    result = run(app, ["pfc", "--xoff", "3", "--dev", "nosuch0"])
    assert result.exit_code == 1
    assert result.stderr.startswith("dcbtraffic: ")
    assert "nosuch0" in result.stderr


def capture(path: Path, *, next_generation: bool) -> Path:
    """XOFF at 0, refreshed at 1 ms, resumed at 2 ms by A; B pauses 4 at 1 ms for 100 quanta and never resumes."""
    timed = [
        (0, pfc.build_pfc(pfc.pfc_frame(A, {3: 65535}))),
        (1000, pfc.build_pfc(pfc.pfc_frame(A, {3: 65535}))),
        (1000, pfc.build_pfc(pfc.pfc_frame(B, {4: 100}))),
        (1500, bytes(Ether() / IP() / UDP())),
        (1600, pfc.build_pfc(pfc.pfc_frame(B, {4: 100}))[:40]),
        (2000, pfc.build_pfc(pfc.pfc_frame(A, xon=[3]))),
        (5000, pfc.build_pause(pfc.PauseFrame(B, 0))),
    ]
    frames = []
    for time_us, data in timed:
        frame = Ether(data)
        frame.time = 1_000_000_000 + time_us / 1e6
        frames.append(frame)
    if next_generation:
        with PcapNgWriter(str(path)) as writer:
            for frame in frames:
                writer.write(frame)
    else:
        wrpcap(str(path), frames)
    return path


@pytest.mark.parametrize("next_generation", [False, True])
def test_explain(tmp_path: Path, next_generation: bool) -> None:
    path = capture(tmp_path / "x.pcap", next_generation=next_generation)
    result = run(app, ["explain", str(path), "--rate", "1G"])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "#1 0s  PFC from 02:01:00:00:00:01: vector 0x08",
        "  priority 3: XOFF 65535 quanta (33.55392ms at 1G)",
        "#2 1ms  PFC from 02:01:00:00:00:01: vector 0x08",
        "  priority 3: XOFF 65535 quanta (33.55392ms at 1G)",
        "  -> priority 3 refreshed 32.55392ms before it ran out",
        "#3 1ms  PFC from 02:01:00:00:00:02: vector 0x10",
        "  priority 4: XOFF 100 quanta (51.2us at 1G)",
        "#5 1.6ms  invalid MAC control frame from 02:01:00:00:00:02, ignored: "
        "length: 40 bytes, must be 60 (64 with FCS)",
        "  priority 4: would be XOFF 100 quanta (51.2us at 1G)",
        "  hint: the pad is missing: captured where it was sent, before a MAC padded it, or not padded at all",
        "#6 2ms  PFC from 02:01:00:00:00:01: vector 0x08",
        "  priority 3: XON",
        "  -> priority 3 resumed after 2ms",
        "#7 5ms  PAUSE from 02:01:00:00:00:02: all priorities XON",
        "  -> priority 4 resumed, but the pause had run out 3.9488ms before",
        "7 frames, 6 MAC control, 1 of them invalid",
        "  faults: 1 length",
        "  02:01:00:00:00:01 priority 3: 2 XOFF, 1 XON, paused 2ms in 1 pauses, resumed",
        *(
            f"  02:01:00:00:00:02 priority {n}: "
            + ("1 XOFF, 1 XON, paused 51.2us in 1" if n == 4 else "0 XOFF, 1 XON, paused 0s in 0")
            + " pauses, resumed"
            for n in range(8)
        ),
    ]


def timed(path: Path, *frames: tuple[int, bytes]) -> str:
    """A capture of (microseconds, frame)."""
    listed = []
    for time_us, data in frames:
        frame = Ether(data)
        frame.time = 5 + time_us / 1e6
        listed.append(frame)
    wrpcap(str(path), listed)
    return str(path)


def test_explain_as_json(tmp_path: Path) -> None:
    """B's pause ran out 948.8 us before the end (1000 us after it less 51.2 us)."""
    path = timed(tmp_path / "y.pcap", *((t, pfc.build_pfc(pfc.pfc_frame(s, {4: 100}))) for s, t in ((B, 0), (A, 1000))))
    result = run(app, ["explain", path, "--link-rate", "1G", "-j"])
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [r["event"] for r in records] == ["frame", "frame", "summary", "priority", "priority"]
    assert records[1] == {
        **{"event": "frame", "number": 2, "time_ps": {"4": 51_200_000}, "source": "02:01:00:00:00:01", "kind": "pfc"},
        **{"at_ps": 1_000_000_000, "length": 60, "valid": True, "faults": [], "hints": [], "vector": 16},
        **{"quanta": {"4": 100}, "says": {"4": "xoff"}, "cleared": [], "changes": {}},
    }
    assert records[2] == {"event": "summary", "frames": 2, "mac_control": 2, "invalid": 0, "faults": {}}
    assert [(r["source"][-1], r["resumed"], r["pause_left_ps"], r["paused_ps"]) for r in records[3:]] == [
        ("1", False, 51_200_000, 0),
        ("2", False, 0, 51_200_000),
    ]
    text = run(app, ["explain", path, "--link-rate", "1G"]).stdout.splitlines()
    assert text[-2].endswith(
        "1 XOFF, 0 XON, paused 0s in 1 pauses, still paused at the end of the capture, for another 51.2us"
    )
    assert text[-1].endswith("paused 51.2us in 1 pauses, never resumed, ran out 948.8us before the end of the capture")


def test_explain_follows_a_peer_of_both_dialects(tmp_path: Path) -> None:
    """Priority 3 paused for ever (0x8000) at 0, resumed by its cleared bit at 700 us."""
    both = pfc.DIALECTS["both"]
    frames = [pfc.pfc_frame(A, xoff=[3], dialect=both), pfc.pfc_frame(A, xon=[3], dialect=both)]
    path = timed(tmp_path / "d.pcap", *zip((0, 700), map(pfc.build_pfc, frames), strict=True))
    assert run(app, ["explain", path, "--rate", "1G", "--dialect", "both"]).stdout.splitlines() == [
        "#1 0s  PFC from 02:01:00:00:00:01: vector 0x08",
        "  priority 3: XOFF until resumed (time 0x8000, dialect D1)",
        "  priority 0,1,2,4,5,6,7: XON (bit cleared, dialect D2)",
        "#2 700us  PFC from 02:01:00:00:00:01: vector 0x00",
        "  priority 0,1,2,3,4,5,6,7: XON (bit cleared, dialect D2)",
        "  -> priority 3 resumed after 700us",
        "2 frames, 2 MAC control, 0 of them invalid",
        "  02:01:00:00:00:01 priority 3: 1 XOFF, 1 XON, paused 700us in 1 pauses, resumed",
    ]
    standard = run(app, ["explain", path, "--rate", "1G"]).stdout.splitlines()
    assert standard[1:3] == [
        "  priority 3: XOFF 32768 quanta (16.777216ms at 1G)",
        "  hint: priority 3: top bit of time 0x8000 set: a peer of dialect D1 (until resumed)?",
    ]
    assert standard[-1].endswith("still paused at the end of the capture, for another 16.077216ms")


@pytest.mark.parametrize(
    ("content", "words"), [(b"not a capture at all, really", "capture"), (b"", "pcap"), (None, "No such")]
)
def test_files_that_are_no_captures(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "z.pcap"
    if content is not None:
        path.write_bytes(content)
    result = run(app, ["explain", str(path)])
    assert result.exit_code == 1
    assert words in result.stderr
    assert "Traceback" not in result.stderr

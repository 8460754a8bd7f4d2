"""PFC of the bundled program through the whole switch: frames to the byte, pauses to the picosecond.

Configured by P4Runtime alone. What is sent is held to scapy, to tshark and to bytes written out by hand; what is
received is built with scapy.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from dcb_switch import DcbSwitch, G, data, port_mac
from scapy.contrib.mac_control import MACControlClassBasedFlowControl, MACControlPause
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet
from scapy.utils import wrpcap

PEER = "02:00:00:00:01:02"
GROUP_ADDRESS = "01:80:c2:00:00:01"
FULL_PAUSE_PS = 838_848_000  # 65535 * 512 bit times at 40 Gb/s
PFC_PS = (60 + 24) * 8 * 25  # on a 40 Gb/s wire


@pytest.fixture
def switch() -> Iterator[DcbSwitch]:
    made = DcbSwitch()
    yield made
    made.service.close()


# --- sent ------------------------------------------------------------------------------------------------------------


def sent_by_port_1(times: dict[int, int]) -> bytes:
    """802.3 Annex 31B/802.1Q clause 36 by hand: address, source, type, opcode, vector, eight times, 26 bytes of pad."""
    vector = sum(1 << n for n in times)
    head = bytes.fromhex("0180c2000001" + "020100000101" + "8808" + "0101" + f"{vector:04x}")
    return head + b"".join(times.get(n, 0).to_bytes(2, "big") for n in range(8)) + bytes(26)


def congested(switch: DcbSwitch, quanta: int = 0x1234) -> None:
    """Groups 3 and 4 of port 1 with XOFF at 10,000 bytes; port 2 sends nothing."""
    for pg in (3, 4):
        switch.static_group(1, pg, reserved=2_000, xoff=10_000, xon=4_000, headroom=3_000)
    switch.send_pfc(1, 0x18, quanta)
    switch.hold(2)


def fill(switch: DcbSwitch, total: int, priority: int = 3, now_ps: int = 0) -> None:
    """Frames of 1,000 bytes and one of what is left, from port 1 to port 2."""
    for _ in range(total // 1000):
        switch.receive(1, data(1000, priority=priority), now_ps)
    if total % 1000:
        switch.receive(1, data(total % 1000, priority=priority), now_ps)


def test_xoff_leaves_at_the_threshold_and_is_these_bytes(switch: DcbSwitch) -> None:
    congested(switch)
    fill(switch, 9_999)
    assert switch.until(0) == []
    assert switch.state("egress.tm_pg_xoff", 1 * 8 + 3) == 0
    switch.hold(2, False)
    assert [out.port for out in switch.drain()] == [2] * 10  # 9,999 bytes came and went without a PFC frame
    switch.hold(2)
    now = switch.switch_core.now_ps
    fill(switch, 10_000, now_ps=now)
    (out,) = switch.until(now)
    assert (out.port, out.start_ps, out.end_ps) == (1, now, now + PFC_PS)
    assert len(out.frame) == 60  # 64 with FCS
    assert out.frame == sent_by_port_1({3: 0x1234})
    assert switch.state("egress.tm_pg_xoff", 1 * 8 + 3) == 1
    assert switch.count("egress.pfc_tx_frames", 1 * 8) == (1, 0)  # counted before it has bytes
    assert switch.counts("egress.pfc_tx_xoff") == {1 * 8 + 3: 1}
    assert switch.counts("egress.pfc_tx_xon") == {}
    assert switch.counts("egress.tx") == {2 * 8 + 3: 10}  # a PFC frame is no data


def test_refresh_while_it_lasts_then_resume(switch: DcbSwitch) -> None:
    congested(switch, quanta=1000)
    half_ps = 500 * 512 * 25  # 6.4 us
    fill(switch, 10_000)
    refreshed = switch.until(3 * half_ps + 1_000)
    assert [(out.port, out.start_ps, out.frame) for out in refreshed] == [
        (1, n * half_ps, sent_by_port_1({3: 1000})) for n in range(4)
    ]
    switch.hold(2, False)
    left = switch.drain()
    # Ten frames of 1,000 bytes leave 1,024 byte times apart; with the start of the sixth, 4,000 bytes are left: XON.
    data_starts = [out.start_ps for out in left if out.port == 2]
    assert data_starts == [data_starts[0] + n * 1024 * 8 * 25 for n in range(10)]
    told = [(out.start_ps, out.frame) for out in left if out.port == 1]
    assert told == [(data_starts[5], sent_by_port_1({3: 0}))]
    assert switch.counts("egress.pfc_tx_xoff") == {1 * 8 + 3: 4}
    assert switch.counts("egress.pfc_tx_xon") == {1 * 8 + 3: 1}
    assert switch.count("egress.pfc_tx_frames", 1 * 8) == (5, 0)
    assert switch.drops() == {}
    switch.assert_empty()


def test_one_frame_says_it_for_all_priorities(switch: DcbSwitch) -> None:
    """XOFF of two groups in one vector; then one resumes while the other is refreshed, in one frame again."""
    congested(switch, quanta=65535)
    switch.receive(3, data(1500, priority=0, to=1, source=3), 0)
    (busy,) = switch.until(0)  # the wire of port 1 is busy: PFC waits and merges
    fill(switch, 10_000, priority=3)
    fill(switch, 10_000, priority=4)
    (both,) = switch.until(10**6)
    assert (busy.start_ps, len(busy.frame)) == (0, 1500)
    assert (both.start_ps, both.frame) == (busy.end_ps, sent_by_port_1({3: 65535, 4: 65535}))
    assert both.frame[16:18] == bytes([0, 0b0001_1000])
    # Queue 4 alone is paused by the peer of port 2, so that group 3 drains and group 4 does not.
    switch.set_up_port(2, pfc_rx=1 << 4)
    switch.receive(2, mac_control(MACControlClassBasedFlowControl(c4_enabled=1, c4_pause_time=65535)), 10**6)
    switch.hold(2, False)
    told = [out for out in switch.until(10**8) if out.port == 1]
    assert [out.frame for out in told] == [sent_by_port_1({3: 0, 4: 65535})]
    assert switch.counts("egress.pfc_tx_xoff") == {1 * 8 + 3: 1, 1 * 8 + 4: 2}
    assert switch.counts("egress.pfc_tx_xon") == {1 * 8 + 3: 1}
    switch.drain()
    switch.assert_empty()


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed (apt-get install tshark)")
def test_tshark_and_scapy_read_what_the_switch_sends(switch: DcbSwitch, tmp_path: Path) -> None:
    congested(switch, quanta=0xABCD)
    fill(switch, 10_000, priority=3)
    frames = switch.until(0)
    fill(switch, 10_000, priority=4)
    frames += switch.until(10**6)
    switch.hold(2, False)
    frames += switch.drain()
    sent = [out.frame for out in frames if out.port == 1]
    # Both drain in turn, queue 4 first (of two that are level the higher goes first): it is told XON first.
    expected = [{3: 0xABCD}, {3: 0xABCD, 4: 0xABCD}, {3: 0xABCD, 4: 0}, {3: 0}]
    capture = tmp_path / "pfc.pcap"
    wrpcap(str(capture), [Ether(frame) for frame in sent])
    for row, frame, times in zip(tshark(capture), sent, expected, strict=True):
        assert row["frame.len"] == "60"
        assert (row["eth.dst"], row["eth.src"]) == (GROUP_ADDRESS, port_mac(1))
        assert (int(row["eth.type"], 16), int(row["macc.opcode"], 16)) == (0x8808, 0x0101)
        assert [row[f"macc.cbfc.enbv.c{n}"] in ("1", "True") for n in range(8)] == [n in times for n in range(8)]
        assert [int(row[f"macc.cbfc.pause_time.c{n}"]) for n in range(8)] == [times.get(n, 0) for n in range(8)]
        assert row["_ws.malformed"] == ""
        assert frame == sent_by_port_1(times)
        read = Ether(frame)
        assert (read.dst, read.src, read.type) == (GROUP_ADDRESS, port_mac(1), 0x8808)
        layer = read[MACControlClassBasedFlowControl]
        assert [getattr(layer, f"c{n}_enabled") for n in range(8)] == [n in times for n in range(8)]
        assert [getattr(layer, f"c{n}_pause_time") for n in range(8)] == [times.get(n, 0) for n in range(8)]
        written = MACControlClassBasedFlowControl(
            **{f"c{n}_enabled": 1 for n in times}, **{f"c{n}_pause_time": time for n, time in times.items()}
        )
        assert mac_control(written, src=port_mac(1)) == frame


def tshark(capture: Path) -> list[dict[str, str]]:
    """Fields of each frame."""
    fields = ["frame.len", "eth.dst", "eth.src", "eth.type", "macc.opcode", "_ws.malformed"]
    fields += [f"macc.cbfc.{kind}.c{n}" for kind in ("enbv", "pause_time") for n in range(8)]
    command = ["tshark", "-r", str(capture), "-T", "fields", "-E", "separator=,"]
    for field in fields:
        command += ["-e", field]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [dict(zip(fields, line.split(","), strict=True)) for line in lines]


# --- received --------------------------------------------------------------------------------------------------------


def mac_control(payload: Packet, *, dst: str = GROUP_ADDRESS, src: str = PEER, length: int = 60) -> bytes:
    return bytes(Ether(dst=dst, src=src, type=0x8808) / payload).ljust(length, b"\0")


def pause_3(quanta: int) -> bytes:
    return mac_control(MACControlClassBasedFlowControl(c3_enabled=1, c3_pause_time=quanta))


def starts(switch: DcbSwitch, until_ps: int, port: int = 2) -> list[tuple[int, int]]:
    """(length, start) of what leaves a port."""
    return [(len(out.frame), out.start_ps) for out in switch.until(until_ps) if out.port == port]


def assert_consumed(switch: DcbSwitch, transmitted: int) -> None:
    """MAC control frames are no data, neither good nor dropped, and none has left."""
    assert sum(switch.counts("ingress.rx").values()) == transmitted
    assert sum(switch.counts("egress.tx").values()) == transmitted
    assert switch.counts("ingress.drops") == {}
    assert switch.drops() == {}
    assert switch.switch_core.stats()["transmitted"] == transmitted
    assert sum(switch.counts("egress.tm_enqueued").values()) == transmitted
    assert switch.service.poll(0, 0) == []  # nor to the controller
    switch.assert_empty()


@pytest.mark.parametrize(
    ("rate_bps", "pause_ps"),
    [(40 * G, 838_848_000), (G, 33_553_920_000), (100 * G, 335_539_200), (400 * G, 83_884_800)],
)
def test_65535_quanta(switch: DcbSwitch, rate_bps: int, pause_ps: int) -> None:
    switch.set_up_port(2, rate_bps=rate_bps)
    now = 5_000
    switch.receive(2, pause_3(65535), now)
    switch.receive(1, data(300), now)
    assert switch.state("egress.tm_pause_left", 2 * 8 + 3) == 65535
    assert starts(switch, now + pause_ps - 1) == []
    assert starts(switch, now + pause_ps) == [(300, now + pause_ps)]
    assert switch.state("egress.tm_pause_count", 2 * 8 + 3) == 1
    assert switch.state("egress.tm_paused_ns", 2 * 8 + 3) == pause_ps // 1000
    assert switch.count("ingress.pfc_rx_frames", 2 * 8) == (1, 60)
    assert switch.counts("ingress.pfc_rx_xoff") == {2 * 8 + 3: 1}
    assert_consumed(switch, transmitted=1)


def test_a_pause_is_of_its_priority_and_its_port_alone(switch: DcbSwitch) -> None:
    switch.receive(2, pause_3(65535), 0)
    switch.receive(1, data(300, priority=3), 0)
    switch.receive(1, data(301, priority=0), 0)
    switch.receive(1, data(302, priority=4), 0)
    switch.receive(1, data(303, priority=3, to=3), 0)
    left = [(out.port, len(out.frame)) for out in switch.until(FULL_PAUSE_PS - 1)]
    assert sorted(left) == [(2, 301), (2, 302), (3, 303)]
    assert starts(switch, FULL_PAUSE_PS) == [(300, FULL_PAUSE_PS)]
    assert_consumed(switch, transmitted=4)


@pytest.mark.parametrize("quanta", [1, 100, 65534])
def test_a_new_time_replaces_the_running_one(switch: DcbSwitch, quanta: int) -> None:
    at = 1_000_000
    switch.receive(2, pause_3(32768), 0)
    switch.receive(1, data(300), 0)
    assert starts(switch, at) == []
    switch.receive(2, pause_3(quanta), at)
    end = at + quanta * 512 * 25
    assert starts(switch, end - 1) == []
    assert starts(switch, end) == [(300, end)]
    assert switch.state("egress.tm_pause_count", 2 * 8 + 3) == 1  # one pause, prolonged or cut short
    assert_consumed(switch, transmitted=1)


def test_time_zero_resumes_at_once(switch: DcbSwitch) -> None:
    switch.receive(2, pause_3(65535), 0)
    switch.receive(1, data(300), 0)
    assert starts(switch, 1_000_000) == []
    switch.receive(2, pause_3(0), 1_000_000)
    assert starts(switch, 1_000_000) == [(300, 1_000_000)]
    assert switch.counts("ingress.pfc_rx_xon") == {2 * 8 + 3: 1}
    assert switch.state("egress.tm_paused_ns", 2 * 8 + 3) == 1_000
    assert_consumed(switch, transmitted=1)


@pytest.mark.parametrize("time_of_clear_bit", [0, 1, 65535])
def test_a_clear_bit_changes_nothing(switch: DcbSwitch, time_of_clear_bit: int) -> None:
    switch.receive(2, pause_3(65535), 0)
    switch.receive(1, data(300), 0)
    other = MACControlClassBasedFlowControl(
        c4_enabled=1, c4_pause_time=0, c3_enabled=0, c3_pause_time=time_of_clear_bit
    )
    switch.receive(2, mac_control(other), 1_000_000)
    assert starts(switch, FULL_PAUSE_PS - 1) == []
    assert starts(switch, FULL_PAUSE_PS) == [(300, FULL_PAUSE_PS)]
    assert_consumed(switch, transmitted=1)


def test_a_priority_that_is_not_enabled_feels_nothing(switch: DcbSwitch) -> None:
    all_of_them = {f"c{n}_enabled": 1 for n in range(8)} | {f"c{n}_pause_time": 65535 for n in range(8)}
    switch.receive(2, mac_control(MACControlClassBasedFlowControl(**all_of_them)), 0)
    switch.receive(1, data(300, priority=3), 0)
    switch.receive(1, data(301, priority=0), 0)
    switch.receive(1, data(302, priority=4), 0)
    assert sorted(length for length, _ in starts(switch, FULL_PAUSE_PS - 1)) == [301, 302]
    assert [switch.state("egress.tm_pause_count", 2 * 8 + n) for n in range(8)] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert switch.counts("ingress.pfc_rx_xoff") == {2 * 8 + n: 1 for n in range(8)}
    switch.drain()
    assert_consumed(switch, transmitted=3)


def test_pause_frames_stop_everything_where_they_are_configured(switch: DcbSwitch) -> None:
    switch.set_up_port(2, pfc_rx=0, pause_rx=1)
    switch.receive(2, mac_control(MACControlPause(pause_time=65535)), 0)
    switch.receive(1, data(300, priority=3), 0)
    switch.receive(1, data(301, priority=0), 0)
    switch.receive(2, pause_3(0), 1_000)  # PFC is not enabled here: it does not resume
    assert starts(switch, FULL_PAUSE_PS - 1) == []
    assert sorted(length for length, _ in starts(switch, FULL_PAUSE_PS + 10**6)) == [300, 301]
    switch.receive(2, mac_control(MACControlPause(pause_time=65535)), 10**9)
    switch.receive(2, mac_control(MACControlPause(pause_time=0)), 10**9 + 1_000)
    switch.receive(1, data(302, priority=3), 10**9 + 1_000)
    assert starts(switch, 10**9 + 1_000) == [(302, 10**9 + 1_000)]
    assert switch.count("ingress.pause_rx_frames", 2 * 8) == (3, 180)
    assert switch.count("ingress.pfc_rx_frames", 2 * 8) == (1, 60)
    assert_consumed(switch, transmitted=3)


def test_pause_frames_are_only_counted_where_they_are_not(switch: DcbSwitch) -> None:
    switch.receive(2, mac_control(MACControlPause(pause_time=65535)), 0)
    switch.receive(1, data(300), 0)
    assert starts(switch, 0) == [(300, 0)]
    assert switch.count("ingress.pause_rx_frames", 2 * 8) == (1, 60)
    assert [switch.state("egress.tm_pause_count", 2 * 8 + n) for n in range(8)] == [0] * 8
    assert_consumed(switch, transmitted=1)


PFC_3 = MACControlClassBasedFlowControl(c3_enabled=1, c3_pause_time=65535)
INVALID = {
    "destination of the port": (mac_control(PFC_3, dst=port_mac(2)), 0),
    "destination of a host behind the switch": (mac_control(PFC_3, dst="02:00:00:00:01:03"), 0),
    "broadcast destination": (mac_control(PFC_3, dst="ff:ff:ff:ff:ff:ff"), 0),
    "address of LLDP": (mac_control(PFC_3, dst="01:80:c2:00:00:0e"), 0),
    "59 bytes": (mac_control(PFC_3)[:59], 1),
    "34 bytes: nothing behind the times": (mac_control(PFC_3)[:34], 1),
    "20 bytes: cut in the times": (mac_control(PFC_3)[:20], 1),
    "14 bytes: not even an opcode": (mac_control(PFC_3)[:14], 1),
    "61 bytes": (mac_control(PFC_3, length=61), 1),
    "1500 bytes": (mac_control(PFC_3, length=1500), 1),
    "first byte of the pad": (mac_control(PFC_3)[:34] + b"\x01" + bytes(25), 2),
    "last byte of the pad": (mac_control(PFC_3)[:59] + b"\x01", 2),
    "pad of a PAUSE frame": (mac_control(MACControlPause(pause_time=65535))[:59] + b"\x80", 2),
    "opcode 0x0102": (mac_control(PFC_3)[:14] + b"\x01\x02" + mac_control(PFC_3)[16:], 3),
    "opcode 0": (mac_control(PFC_3)[:14] + b"\0\0" + mac_control(PFC_3)[16:], 3),
    "zero vector": (mac_control(MACControlClassBasedFlowControl(c3_pause_time=65535)), 4),
    "only the high byte of the vector": (mac_control(PFC_3)[:16] + b"\x08\0" + mac_control(PFC_3)[18:], 4),
}


@pytest.mark.parametrize(("frame", "reason"), INVALID.values(), ids=INVALID.keys())
def test_an_invalid_frame_is_counted_and_ignored(switch: DcbSwitch, frame: bytes, reason: int) -> None:
    switch.set_up_port(2, pfc_rx=0xFF, pause_rx=1)
    switch.receive(2, frame, 0)
    switch.receive(1, data(300), 0)
    assert starts(switch, 0) == [(300, 0)]
    assert switch.counts("ingress.pfc_rx_invalid") == {2 * 8 + reason: 1}
    for counter in ("pfc_rx_frames", "pause_rx_frames", "pfc_rx_xoff", "pfc_rx_xon"):
        assert switch.counts(f"ingress.{counter}") == {}
    assert [switch.state("egress.tm_pause_count", 2 * 8 + n) for n in range(8)] == [0] * 8
    assert_consumed(switch, transmitted=1)


def test_the_high_byte_of_the_vector_is_ignored(switch: DcbSwitch) -> None:
    switch.receive(2, pause_3(65535)[:16] + b"\xff\x08" + pause_3(65535)[18:], 0)
    switch.receive(1, data(300), 0)
    assert starts(switch, FULL_PAUSE_PS - 1) == []
    assert starts(switch, FULL_PAUSE_PS) == [(300, FULL_PAUSE_PS)]
    assert switch.counts("ingress.pfc_rx_invalid") == {2 * 8 + 5: 1}
    assert_consumed(switch, transmitted=1)


def test_a_frame_in_a_vlan_is_no_pfc_frame(switch: DcbSwitch) -> None:
    """MAC control frames are never tagged (802.3 clause 31): this is data of an unknown EtherType."""
    tagged = bytes(Ether(dst=GROUP_ADDRESS, src=PEER) / Dot1Q(vlan=1, prio=3, type=0x8808)) + pause_3(65535)[14:]
    switch.receive(2, tagged, 0)
    switch.receive(1, data(300), 0)
    assert starts(switch, 0) == [(300, 0)]
    assert sum(switch.counts("ingress.drops").values()) == 1
    assert switch.counts("ingress.drops") == {2 * 8 + 2: 1}


def test_a_gigabit_of_pfc_frames_is_one_long_pause(switch: DcbSwitch) -> None:
    """1,000 refreshes, 672 ns apart: the priority stays shut all the time and opens one pause after the last."""
    for n in range(1_000):
        switch.receive(2, pause_3(1000), n * 672_000)
    switch.receive(1, data(300), 999 * 672_000)
    end = 999 * 672_000 + 1000 * 512 * 25
    assert starts(switch, end - 1) == []
    assert starts(switch, end) == [(300, end)]
    assert switch.count("ingress.pfc_rx_frames", 2 * 8) == (1_000, 60_000)
    assert switch.state("egress.tm_pause_count", 2 * 8 + 3) == 1
    assert_consumed(switch, transmitted=1)

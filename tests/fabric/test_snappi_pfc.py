"""sonic-mgmt's tests/snappi_tests/pfc at 100 Gb/s in virtual time: pause frames, their response, and none without need.

Names and shapes are theirs (docs/sonic-mgmt.md has the table); where theirs allow a tolerance, these are exact. One
device for all of them (`snappi_lab`), invariants of fabric and traffic manager checked after every event.
"""

from __future__ import annotations

import pytest
from scapy.contrib.mac_control import MACControlClassBasedFlowControl, MACControlPause
from scapy.layers.l2 import Ether
from snappi_lab import (
    FRAME,
    LENGTH_M,
    LOSSLESS,
    LOSSY,
    RATES,
    RESPONSE_PS,
    WIRE_PS,
    XOFF,
    SnappiLab,
    config,
    data,
    host_mac,
    port_mac,
    xoff,
)

from controller.config import parse, warnings
from dcb.headroom.exact import frames_in_window, link_ps, uniform_headroom, window_ps
from dcb.units import PS_PER_MS, PS_PER_US
from fabric.tester import UNPAUSED

TX, RX = 1, 2
MS, US = PS_PER_MS, PS_PER_US
BUFFER = {port: config()["switches"]["leaf1"]["ports"][port]["buffers"][3] for port in RATES}


def mac_control(payload: MACControlPause | MACControlClassBasedFlowControl, source: str = "") -> bytes:
    """A MAC control frame by scapy."""
    return bytes(Ether(dst="01:80:c2:00:00:01", src=source or host_mac(RX)) / payload).ljust(60, b"\0")


def background(rig: SnappiLab, priorities: tuple[int, ...], length_ps: int) -> dict[int, int]:
    """50% of the line, evenly over priorities; the frames of each."""
    return {p: rig.send(TX, RX, p, 50 / len(priorities), length_ps=length_ps) for p in priorities}


# --- pauses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paused", [(3,), (4,), (3, 4)], ids=["single-3", "single-4", "multi"])
def test_pfc_pause_lossless(rig: SnappiLab, paused: tuple[int, ...]) -> None:
    """test_pfc_pause_{single,multi}_lossless_prio: of the paused priorities nothing arrives, of the others everything;
    in flight is less than the lossless buffer, and no group drops. Then the pause ends and all of it arrives."""
    before = rig.testers[TX].count("tx_bytes") - rig.testers[RX].count("rx_bytes")
    pauses = rig.storm(RX, paused, 1 * MS)
    start_ps = rig.now_ps + 10 * US
    others = tuple(p for p in range(8) if p not in paused)
    for priority in paused:
        rig.send(TX, RX, priority, 50 / len(paused), start_ps=start_ps)
    rig.advance(10 * US)
    sent = background(rig, others, 900 * US)
    rig.advance_to(start_ps + 950 * US)  # the pause still holds
    seen = rig.received()
    assert {p: seen[TX, RX, p] for p in range(8)} == sent | dict.fromkeys(paused, 0)
    in_flight = rig.testers[TX].count("tx_bytes") - rig.testers[RX].count("rx_bytes") - before
    held = rig.core.tm.read_state("pg_depth", TX * 8 + paused[0])
    assert XOFF <= held <= XOFF + BUFFER[TX]["headroom"]
    assert rig.core.tm.read_state("pg_headroom", TX * 8 + paused[0]) == held - XOFF
    rig.stop()
    rig.send_frame(RX, xoff(RX, paused, 0))
    rig.drain()
    counts = rig.counts()
    assert counts.drops() == {}
    after = rig.received()
    offered = {p: counts["rx"].get((TX, p), 0) for p in paused}
    assert {p: after[TX, RX, p] for p in paused} == offered
    assert in_flight == sum(offered.values()) * FRAME <= len(paused) * (XOFF + BUFFER[TX]["headroom"])
    assert counts["pfc_rx_xoff"] == dict.fromkeys(((RX, p) for p in paused), pauses)


@pytest.mark.parametrize("paused", [(1,), LOSSY], ids=["single", "multi"])
def test_pfc_pause_lossy(rig: SnappiLab, paused: tuple[int, ...]) -> None:
    """test_pfc_pause_{single,multi}_lossy_prio: no effect on any priority; counted by priority nevertheless."""
    pauses = rig.storm(RX, paused, 500 * US)
    sent = {p: rig.send(TX, RX, p, 100 / 8, length_ps=400 * US) for p in range(8)}
    rig.drain()
    counts, seen = rig.counts(), rig.received()
    assert {p: seen[TX, RX, p] for p in range(8)} == sent
    assert counts.drops() == {}
    assert counts["pfc_tx_frames"] == {}
    assert counts["pfc_rx_xoff"] == dict.fromkeys(((RX, p) for p in paused), pauses)


def unaffected(rig: SnappiLab, frame: bytes) -> tuple[dict[str, dict[tuple[int, int], int]], int]:
    """Send a frame 100 times from the receiver into full line rate: everything arrives on time. What was counted of
    control frames, and their number."""
    sent = {p: rig.send(TX, RX, p, 100 / 8, length_ps=1 * MS) for p in range(8)}
    rig.send_frame(RX, frame, count=100, gap_ps=9 * US)
    rig.advance(1 * MS + 100 * US)  # nothing was held back
    seen = rig.received()
    assert {p: seen[TX, RX, p] for p in range(8)} == sent
    counts = rig.counts()
    assert counts.drops() == {}
    assert counts["pfc_tx_frames"] == {}
    names = ("pfc_rx_frames", "pfc_rx_xoff", "pfc_rx_xon", "pfc_rx_invalid", "pause_rx_frames")
    return {name: counts[name] for name in names if counts[name]}, 100


def test_global_pause(rig: SnappiLab) -> None:
    """802.3 PAUSE: no effect, and in no PFC counter."""
    counted, frames = unaffected(rig, mac_control(MACControlPause(pause_time=65535)))
    assert counted == {"pause_rx_frames": {(RX, 0): frames}}


def test_pfc_unset_cev(rig: SnappiLab) -> None:
    """test_pfc_pause_unset_bit_enable_vector: a vector of 0 with times is ignored and not counted as PFC."""
    times = {f"c{n}_pause_time": 65535 for n in range(8)}
    counted, frames = unaffected(rig, mac_control(MACControlClassBasedFlowControl(**times)))
    assert counted == {"pfc_rx_invalid": {(RX, 4): frames}}


def test_pfc_zero_src_mac(rig: SnappiLab) -> None:
    """test_pfc_pause_zero_mac: a source address of zeros pauses, and counts."""
    frame = mac_control(MACControlClassBasedFlowControl(c3_enabled=1, c3_pause_time=65535), source="00:00:00:00:00:00")
    rig.send_frame(RX, frame)
    rig.advance(10 * US)
    rig.send(TX, RX, 3, 10, length_ps=200 * US)
    rig.advance(250 * US)
    assert rig.received()[TX, RX, 3] == 0
    counts = rig.counts()
    assert (counts["pfc_rx_frames"], counts["pfc_rx_xoff"]) == ({(RX, 0): 1}, {(RX, 3): 1})


# --- what the device sends -------------------------------------------------------------------------------------------


def test_valid_pfc_frame_and_source_mac(rig: SnappiLab) -> None:
    """test_valid_pfc_frame, test_valid_src_mac_pfc_frame: by scapy and to the byte, of two congested priorities."""
    for priority in LOSSLESS:
        rig.send(TX, RX, priority, 50, length_ps=400 * US)
        rig.send(3, RX, priority, 50, length_ps=400 * US)
    rig.drain()
    counts = rig.counts()
    assert counts.drops() == {}
    rig.received()
    for port in (TX, 3):
        frames = [arrival.frame for arrival in rig.control[port]]
        assert len(frames) == counts["pfc_tx_frames"][port, 0] > 4
        told = dict.fromkeys(LOSSLESS, 0)
        for raw in frames:
            ether = Ether(raw)
            pfc = ether[MACControlClassBasedFlowControl]
            assert (ether.dst, ether.src, len(raw)) == ("01:80:c2:00:00:01", port_mac(port), 60)
            assert raw[12:16] == bytes.fromhex("88080101")
            assert raw[34:] == bytes(26)
            for p in range(8):
                enabled, quanta = getattr(pfc, f"c{p}_enabled"), getattr(pfc, f"c{p}_pause_time")
                assert (enabled, quanta) in ((0, 0), (1, 65535), (1, 0)), (p, quanta)
                assert not enabled or p in LOSSLESS
                told[p] = (told[p] or bool(quanta)) if enabled else told.get(p, 0)
        assert all(told[p] for p in LOSSLESS)
        last = Ether(frames[-1])[MACControlClassBasedFlowControl]
        assert not any(getattr(last, f"c{p}_pause_time") for p in range(8))  # at the end all are resumed
    assert rig.control[RX] == rig.control[4] == []


@pytest.mark.parametrize("late_frames", [0, 1, 10])
def test_pfc_pause_response(rig: SnappiLab, late_frames: int) -> None:
    """test_pfc_pause_response_with_snappi, exact: a peer that obeys as late as planned loses nothing; one that is later
    by the wire time of n frames loses n."""
    window = window_ps(RATES[TX], link_ps(LENGTH_M), reverse_mtu_bytes=0, response_ps=RESPONSE_PS)
    needed = uniform_headroom(window, RATES[TX], FRAME, XOFF)
    group = {**BUFFER[TX], "headroom": needed}
    rig.apply(config({TX: {"buffers": {3: group, 4: group}}}))
    way = rig.fabric.link("leaf1", TX).from_("leaf1")
    way.set_pfc_response(RESPONSE_PS + late_frames * WIRE_PS)
    rig.storm(RX, [3], 300 * US)
    rig.advance(10 * US)
    rig.send(TX, RX, 3, 100, length_ps=200 * US)
    rig.advance(100 * US)
    sent = rig.testers[TX].count("tx_frames")
    rig.stop()
    way.set_pfc_response(RESPONSE_PS)
    rig.advance(500 * US)
    counts = rig.counts()
    inside = XOFF // FRAME + frames_in_window(window, RATES[TX], FRAME)
    assert counts["rx"] == {(TX, 3): inside + late_frames}
    assert counts.drops() == ({"tm_drop_headroom": {(TX, 3): late_frames}} if late_frames else {})
    assert rig.received()[TX, RX, 3] == inside
    assert sent == rig.testers[TX].count("tx_frames")


# --- none without need -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mix", [{3: 100}, {3: 45, 4: 45, 0: 5, 1: 5}, dict.fromkeys(range(8), 12.5)], ids=["lossless", "90-10", "uniform"]
)
def test_no_congestion_line_rate(rig: SnappiLab, mix: dict[int, float]) -> None:
    """test_pfc_no_congestion_throughput: three ports send at line rate to three ports: no PFC frame, no loss, and each
    receiver's wire is full to the frame."""
    circle = ((1, 2), (2, 3), (3, 1))
    length_ps = 1 * MS
    sent = {(a, b, p): rig.send(a, b, p, percent, length_ps=length_ps) for a, b in circle for p, percent in mix.items()}
    for a, b in circle:
        assert abs(sum(n for (x, _, _), n in sent.items() if x == a) - length_ps // WIRE_PS) <= len(mix), b
    rig.advance(length_ps + 20 * US)
    seen, counts = rig.received(), rig.counts()
    assert dict(seen) == sent
    assert counts.drops() == {}
    assert (counts["pfc_tx_frames"], counts["pfc_rx_frames"]) == ({}, {})
    assert not any(rig.control.values())


def test_tx_drop_counter(rig: SnappiLab) -> None:
    """test_tx_drop_counter: no XOFF or XON leaves by a port that is down, and none of them counts as dropped; data for
    it does, frame by frame."""
    rig.storm(RX, [3], 3 * MS)
    rig.advance(10 * US)
    rig.send(TX, RX, 3, 100)
    rig.advance(200 * US)
    assert rig.counts()["pfc_tx_frames"][TX, 0] > 0  # XOFF, and its refreshes
    link = rig.fabric.link("leaf1", TX)
    rig.stop()
    link.down()
    rig.switch.set_port(TX, False)
    rig.counts()
    rig.advance(1 * MS)  # three refreshes would have been due
    counts = rig.counts()
    assert (counts["pfc_tx_frames"], counts.drops()) == ({}, {})
    sent = rig.send(3, TX, 0, 10, length_ps=100 * US)
    rig.advance(200 * US)
    counts = rig.counts()
    assert counts.drops() == {"tm_drop_port": {(TX, 0): sent}}
    link.up()
    rig.switch.set_port(TX, True)
    rig.send_frame(RX, xoff(RX, [3], 0))
    rig.drain()


def test_pfc_pause_lossless_warm_reboot(rig: SnappiLab) -> None:
    """test_pfc_pause_lossless_warm_reboot: the controller goes and comes back over a pause: no frame is lost, nothing
    paused arrives meanwhile, and it writes nothing that is there already."""
    rig.send_frame(RX, xoff(RX, [3]), count=None, gap_ps=200 * US)
    rig.advance(10 * US)
    rig.send(TX, RX, 3, 50)
    rig.send(TX, RX, 0, 5)
    rig.advance(1 * MS)
    before = rig.counts()
    rig.stop_controller()
    rig.advance(1 * MS)
    rig.start_controller()
    rig.advance(1 * MS)
    assert rig.received()[TX, RX, 3] == 0
    rig.stop()
    rig.send_frame(RX, xoff(RX, [3], 0))
    rig.drain()
    counts = rig.counts()
    assert counts.drops() == {}
    assert rig.received()[TX, RX, 3] == before["rx"][TX, 3] + counts["rx"].get((TX, 3), 0) > XOFF // FRAME
    assert before["rx"][TX, 0] + counts["rx"][TX, 0] == before["tx"][RX, 0] + counts["tx"][RX, 0] > 0
    (status,) = rig.controller.status()
    assert (status.updates_written, status.pipeline_pushes) == (0, 0)


def test_frames_that_no_pause_holds_are_lossless_too(rig: SnappiLab) -> None:
    """A generator that does not obey PFC fills the headroom to the byte and loses the rest, in its group alone."""
    rig.storm(RX, [3], 200 * US)
    rig.advance(10 * US)
    flow = rig.testers[TX].send(data(TX, RX, 3), count=500, start_ps=rig.now_ps, priority=UNPAUSED)
    assert flow >= 0
    sent = rig.send(TX, RX, 4, 1, length_ps=100 * US)
    rig.drain()
    counts, seen = rig.counts(), rig.received()
    room = (XOFF + BUFFER[TX]["headroom"]) // FRAME
    assert counts.drops() == {"tm_drop_headroom": {(TX, 3): 500 - room}}
    assert (seen[TX, RX, 3], seen[TX, RX, 4]) == (room, sent)


def test_headroom_0_with_pfc_on_drops_at_ingress_and_is_warned_of(rig: SnappiLab) -> None:
    """SONiC #480: RX_DRP rises though PFC is on, for the group has no headroom. What is in flight when XOFF leaves is
    lost, to the frame, by that group and named so; the config says so beforehand."""
    group = {**BUFFER[TX], "headroom": 0}
    bare = config({TX: {"buffers": {3: group, 4: BUFFER[TX]}}})
    where = f"switches.leaf1.ports.{TX}.buffers.3"
    assert f"{where}: priority 3 has PFC but its group has no headroom" in warnings(parse(bare))
    assert not [line for line in warnings(parse(config())) if "headroom" in line]
    rig.apply(bare)
    rig.storm(RX, [3], 200 * US)
    rig.advance(10 * US)
    rig.send(TX, RX, 3, 100, length_ps=100 * US)
    rig.advance(50 * US)
    rig.stop()
    rig.drain()
    window = window_ps(RATES[TX], link_ps(LENGTH_M), reverse_mtu_bytes=0, response_ps=RESPONSE_PS)
    counts = rig.counts()
    assert counts.drops() == {"tm_drop_headroom": {(TX, 3): frames_in_window(window, RATES[TX], FRAME)}}
    assert rig.received()[TX, RX, 3] == XOFF // FRAME

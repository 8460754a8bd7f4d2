"""Arrival times and PFC of the event engine against closed formulas, with the whole P4 program in every switch.

A frame of L bytes (no FCS) holds the wire for max(L, 60) + 24 bytes and has arrived after 12 fewer: the gap is no part
of it. A switch stores and forwards. At 100 Gb/s a byte takes 80 ps, at 400 Gb/s 20 ps; a metre takes 5 ns.
"""

from __future__ import annotations

import pytest
from scapy.contrib.mac_control import MACControlClassBasedFlowControl
from scapy.layers.l2 import Ether
from virtual_lab import G, VirtualLab, lossless_buffers, virtual_lab

from fabric.links import FabricError
from fabric.tester import Arrival
from topologies.description import leaf_spine

METRE_PS = 5_000
BYTE_PS = {10 * G: 800, 25 * G: 320, 100 * G: 80, 400 * G: 20, 800 * G: 10}


def pfc_frame(priority: int, quanta: int) -> bytes:
    """An 802.1Qbb frame as scapy builds it."""
    fields = {f"c{priority}_enabled": 1, f"c{priority}_pause_time": quanta}
    frame = Ether(dst="01:80:c2:00:00:01", src="02:00:00:00:01:02", type=0x8808)
    return bytes(frame / MACControlClassBasedFlowControl(**fields)).ljust(60, b"\0")


def times(arrivals: list[Arrival]) -> list[int]:
    return [arrival.time_ps for arrival in arrivals]


@pytest.mark.parametrize("rate_bps", BYTE_PS)
@pytest.mark.parametrize(("target", "links"), [("h2", 2), ("h3", 4)])
def test_a_train_of_equal_frames_arrives_one_wire_time_apart_after_each_store_and_forward(
    rate_bps: int, target: str, links: int
) -> None:
    """Frame i of L bytes over n links of D: n * ((L + 12) * byte + D) + i * (L + 24) * byte."""
    byte, length, metres, start = BYTE_PS[rate_bps], 1000, 30, 12_345
    with virtual_lab(leaf_spine(2, 1, 2, rate_bps), length_m=metres, debug=True) as lab:
        lab.testers["h1"].send(lab.frame("h1", target, length), count=5, start_ps=start)
        lab.fabric.run()
        first = start + links * ((length + 12) * byte + metres * METRE_PS)
        assert times(lab.testers[target].arrivals()) == [first + i * (length + 24) * byte for i in range(5)]
        assert lab.fabric.hops == 5 * links


def test_a_short_frame_behind_a_long_one_waits_at_each_switch() -> None:
    """Lindley's recursion, frame by frame and link by link: start = max(arrived, wire free); 400 Gb/s, 100 m."""
    byte, delay, lengths = 20, 100 * METRE_PS, [1500, 60, 60, 9000, 64, 1500]
    with virtual_lab(leaf_spine(2, 1, 1, 400 * G), length_m=100, debug=True) as lab:
        frames = [lab.frame("h1", "h2", length) for length in lengths]
        lab.testers["h1"].send(frames, count=len(frames))
        lab.fabric.run()
        arrived = [0] * len(lengths)
        for _ in range(4):
            free = 0
            for i, length in enumerate(lengths):
                start = max(arrived[i], free)
                free = start + (length + 24) * byte
                arrived[i] = start + (length + 12) * byte + delay
        assert times(lab.testers["h2"].arrivals()) == arrived


def test_a_padded_frame_takes_the_wire_time_of_60_bytes() -> None:
    with virtual_lab(leaf_spine(1, 1, 2, 100 * G), length_m=0, debug=True) as lab:
        lab.testers["h1"].send(lab.frame("h1", "h2", 54))
        lab.fabric.run()
        assert times(lab.testers["h2"].arrivals()) == [2 * 72 * 80]
        assert lab.fabric.link("h1").there.stats().wire_bits == 84 * 8


def receiver_pauses(lab: VirtualLab, at_ps: int, quanta: int, resume_ps: int | None = None) -> list[int]:
    """When frames of 1000 bytes that h1 sends without end until 20 us arrive at h2, while h2 pauses its leaf port."""
    lab.testers["h1"].send(lab.frame("h1", "h2", 1000), count=244)
    lab.testers["h2"].send(pfc_frame(3, quanta), start_ps=at_ps)
    if resume_ps is not None:
        lab.testers["h2"].send(pfc_frame(3, 0), start_ps=resume_ps)
    lab.fabric.run()
    return times(lab.testers["h2"].arrivals())


@pytest.mark.parametrize("response_ps", [0, 47_000_000 // 100, 2_000_001])
def test_a_pause_begins_and_ends_to_the_picosecond(response_ps: int) -> None:
    """100 Gb/s, 50 m. PFC frame sent at 5 us: acts at 5 us + 72 bytes + 250 ns + response; 300 quanta are 300 * 512
    bit times. Frames that have started before then (not at it) are finished; the next starts as the pause ends."""
    delay, wire, tx = 50 * METRE_PS, 1024 * 80, 1012 * 80
    with virtual_lab(leaf_spine(1, 1, 2, 100 * G), length_m=50, pfc_response_ps=response_ps, debug=True, pfc=0) as lab:
        got = receiver_pauses(lab, 5_000_000, 300)
        acts = 5_000_000 + 72 * 80 + delay + response_ps
        first = tx + delay  # the first frame starts out of the leaf as it has arrived
        before = -(-(acts - first) // wire)
        over = acts + 300 * 512 * 10
        starts = [first + i * wire for i in range(before)]
        starts += [over + i * wire for i in range(244 - before)]
        assert got == [start + tx + delay for start in starts]
        back = lab.fabric.link("h2").from_("h2").stats()
        assert (back.pfc_frames, back.xoff[3], back.xon[3], back.pauses[3]) == (1, 1, 0, 1)
        assert back.paused_ps[3] == 300 * 512 * 10


def test_xon_takes_the_same_way_and_the_same_response() -> None:
    delay, response, wire, tx = 50 * METRE_PS, 1_000_000, 1024 * 80, 1012 * 80
    with virtual_lab(leaf_spine(1, 1, 2, 100 * G), length_m=50, pfc_response_ps=response, debug=True) as lab:
        got = receiver_pauses(lab, 5_000_000, 65535, resume_ps=9_000_000)
        acts, over = (at + 72 * 80 + delay + response for at in (5_000_000, 9_000_000))
        before = -(-(acts - tx - delay) // wire)
        assert got[before - 1] == tx + delay + (before - 1) * wire + tx + delay
        assert got[before] == over + tx + delay
        assert lab.fabric.link("h2").from_("h2").stats().paused_ps[3] == 4_000_000


def test_the_response_of_each_end_can_be_set_apart() -> None:
    with virtual_lab(leaf_spine(1, 1, 2, 100 * G), length_m=0, debug=True) as lab:
        lab.fabric.link("h2").from_("h2").set_pfc_response(47_000_000)
        lab.testers["h2"].send(pfc_frame(3, 1))
        lab.fabric.run(47_000_000 + 72 * 80 - 1)
        assert lab.cores["leaf1"].tm.read_state("pause_count", 2 * 8 + 3) == 0
        lab.fabric.run(47_000_000 + 72 * 80)
        assert lab.cores["leaf1"].tm.read_state("pause_count", 2 * 8 + 3) == 1


def test_data_overtakes_a_pfc_frame_that_waits_for_its_response_and_keeps_its_time() -> None:
    with virtual_lab(leaf_spine(1, 1, 2, 100 * G), length_m=0, debug=True) as lab:
        lab.fabric.link("h2").from_("h2").set_pfc_response(1_000_000)
        lab.testers["h2"].send([pfc_frame(3, 9), lab.frame("h2", "h1", 500)], count=2)
        lab.fabric.run()
        assert times(lab.testers["h1"].arrivals()) == [84 * 80 + 2 * 512 * 80]


def test_a_switch_that_fills_up_stops_the_host_in_time() -> None:
    """Two hosts at 100 Gb/s into one: PFC to both, no loss, the last byte when the wire of h3 has carried all of it."""
    with virtual_lab(leaf_spine(1, 1, 3, 100 * G), length_m=20, debug=True) as lab:
        switch = lab.topology.switch("leaf1")
        lossless_buffers(lab.cores["leaf1"], switch, 20_000, 10_000, 8_000)
        for host in ("h1", "h2"):
            lab.testers[host].send(lab.frame(host, "h3", 1000), count=200, priority=3)
        lab.fabric.run(100_000_000)
        arrived = times(lab.testers["h3"].arrivals())
        first = 2 * (1012 * 80 + 20 * METRE_PS)
        assert arrived == [first + i * 1024 * 80 for i in range(400)]
        for host in ("h1", "h2"):
            stats = lab.fabric.link(host).back.stats()
            assert stats.xoff[3] >= 1
            assert stats.xon[3] >= 1
            assert lab.testers[host].count("pauses") == stats.pauses[3] >= 1
        assert lab.cores["leaf1"].packets_held == 0


def test_values_that_do_not_fit_are_refused_by_name() -> None:
    with virtual_lab(leaf_spine(1, 1, 2, 100 * G)) as lab:
        connect = lab.fabric.connect
        with pytest.raises(FabricError, match=r"rate_bps 800000000001: must be 1\.\.800000000000"):
            connect("leaf1", 9, "spine1", 9, rate_bps=800 * G + 1)
        with pytest.raises(FabricError, match="h1 port 0: is connected already"):
            connect("h1", 0, "spine1", 9, rate_bps=G)
        with pytest.raises(FabricError, match="node 'h9': no such node"):
            connect("h9", 0, "spine1", 9, rate_bps=G)
        with pytest.raises(FabricError, match=r"loss 1\.5: must be 0\.\.1"):
            lab.fabric.link("h1").set_errors(loss=1.5)
        lab.fabric.run(5)
        with pytest.raises(FabricError, match="time_ps 4: is before now, 5"):
            lab.fabric.at(4)

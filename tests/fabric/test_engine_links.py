"""Links of the event engine: loss, flaps, captures, series, events, the trace and the invariants."""

from __future__ import annotations

import os
import shutil
import subprocess
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from test_engine_times import pfc_frame
from virtual_lab import G, VirtualLab, lossless_buffers, virtual_lab

from fabric.engine import Fabric, InvariantError, Reason
from fabric.links import FabricError, LinkStats
from fabric.tester import Tester
from hosts.nic import Nic, connect_rdma, connect_tcp
from hosts.nic_config import EventKind, NicConfig, RdmaConfig, TcpConfig
from switch.core import PacketIn
from topologies.description import leaf_spine

WORD = (1 << 64) - 1
SEED = 7


def splitmix64(seed: int) -> int:
    """One draw; the generator that the engine documents."""
    z = seed & WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
    return z ^ z >> 31


def draws(direction: int, count: int) -> list[int]:
    """What a direction draws, one number for each frame: splitmix64 from the seed and the number of the direction."""
    state = SEED + 0x632BE59BD9B4E019 * (direction + 1)
    return [splitmix64(state + 0x9E3779B97F4A7C15 * (i + 1)) for i in range(count)]


def wire(record_bytes: int = 1 << 20, *, debug: bool = True) -> tuple[Fabric, Tester, Tester]:
    """Two testers and 100 m of 100 Gb/s."""
    fabric, a, b = Fabric(SEED, debug=debug), Tester(100 * G, record_bytes=record_bytes), Tester(100 * G)
    fabric.add_nic("a", a)
    fabric.add_nic("b", b)
    fabric.connect("a", 0, "b", 0, rate_bps=100 * G, length_m=100)
    return fabric, a, b


def numbers(tester: Tester) -> list[int]:
    """The stamps of what arrived."""
    return [int.from_bytes(arrival.frame[20:28], "big") for arrival in tester.arrivals()]


def conserved(stats: LinkStats) -> bool:
    return stats.sent_frames == stats.delivered_frames + stats.lost + stats.in_flight


def test_exactly_the_frames_that_the_generator_says_are_lost() -> None:
    fabric, a, b = wire()
    with fabric:
        fabric.link("a").there.set_errors(loss=Fraction(1, 8))
        a.send(bytes(100), count=400, stamp_at=20)
        fabric.run()
        assert numbers(b) == [i for i, draw in enumerate(draws(0, 400)) if draw >= 1 << 61]
        stats = fabric.link("a").there.stats()
        assert (stats.sent_frames, stats.lost_error + stats.delivered_frames) == (400, 400)
        assert 25 < stats.lost_error < 75  # 50 expected


def test_bit_errors_lose_long_frames_more_often_than_short_ones() -> None:
    """A frame survives with (1 - BER)^(8 * (L + 4)): 1e-5 and 1500 bytes: 0.8867."""
    fabric, a, b = wire()
    with fabric:
        fabric.link("a").there.set_errors(bit_error_rate=1e-5)
        a.send(bytes(1500), count=400, stamp_at=20)
        fabric.run()
        survives = (1 - Fraction(1e-5)) ** (8 * 1504) * (1 << 64)
        assert numbers(b) == [i for i, draw in enumerate(draws(0, 400)) if draw < survives]


def test_pfc_loss_takes_mac_control_frames_only() -> None:
    fabric, a, b = wire()
    with fabric:
        fabric.link("a").there.set_errors(pfc_loss=1)
        a.send([bytes(100), pfc_frame(3, 100)], count=10)
        fabric.run()
        stats = fabric.link("a").there.stats()
        assert (stats.pfc_frames, stats.lost_pfc, stats.lost_error, b.count("rx_frames")) == (5, 5, 0, 5)
        assert (stats.xoff[3], stats.pauses[3], stats.paused_ps[3]) == (5, 0, 0)


def test_jitter_keeps_order_and_never_lets_frames_overlap() -> None:
    fabric, a, b = wire()
    with fabric:
        fabric.link("a").there.set_delay(jitter_ps=1_000_000)
        a.send(bytes(100), count=300, gap_ps=50_000, stamp_at=20)
        fabric.run()
        arrivals = b.arrivals()
        assert [int.from_bytes(arrival.frame[20:28], "big") for arrival in arrivals] == list(range(300))
        late = [arrival.time_ps - i * 50_000 - 112 * 80 - 500_000 for i, arrival in enumerate(arrivals)]
        gaps = [y.time_ps - x.time_ps for x, y in pairwise(arrivals)]
        assert min(gaps) >= 124 * 80
        assert min(late) >= 0
        assert max(late) > 500_000


def test_a_flap_loses_what_is_on_the_wire_and_the_switch_gets_its_port_back() -> None:
    """Frames of 1000 bytes each 81.92 ns; down from 2 us to 3 us: 500 ns of cable hold six or seven of them."""
    with virtual_lab(leaf_spine(1, 1, 2, 100 * G), length_m=100, debug=True) as lab:
        link, core = lab.fabric.link("h2"), lab.cores["leaf1"]
        lab.testers["h1"].send(lab.frame("h1", "h2", 1000), count=100, stamp_at=60)
        lab.fabric.at(2_000_000, link.down)
        lab.fabric.at(3_000_000, link.up)
        lab.fabric.run()
        stats, dropped = link.from_("leaf1").stats(), core.tm.read_counter("drop_port", 2 * 8 + 3).packets
        got = [int.from_bytes(arrival.frame[60:68], "big") for arrival in lab.testers["h2"].arrivals()]
        # leaf1 starts frame i at 580,960 + i * 81,920 ps; it arrives 580,960 ps later. By 2 us frames 0..10 have come,
        # 11..17 have started; from 18 on they reach a leaf without the port, until frame 30, which is there at 3.03 us.
        assert got == [*range(11), *range(30, 100)]
        assert (stats.lost_down, dropped) == (7, 12)
        assert conserved(stats)


def test_a_port_faster_than_its_wire_waits_and_is_counted() -> None:
    with virtual_lab(leaf_spine(1, 1, 2, 100 * G), length_m=0, debug=True) as lab:
        lab.cores["leaf1"].tm.set_port(2, 400 * G)
        lab.testers["h1"].send(lab.frame("h1", "h2", 1000), count=3)
        lab.testers["h1"].send(lab.frame("h1", "h2", 100), count=1)
        lab.cores["leaf1"].tm.block_port(2, True)
        lab.fabric.run(1_000_000)
        lab.cores["leaf1"].tm.block_port(2, False)
        lab.fabric.run()
        assert lab.fabric.link("h2").from_("leaf1").stats().late_frames == 3
        gaps = [arrival.time_ps for arrival in lab.testers["h2"].arrivals()]
        assert gaps[2] - gaps[1] == 1024 * 80


def test_captures_open_in_wireshark_with_nanoseconds(tmp_path: Path) -> None:
    with virtual_lab(leaf_spine(1, 1, 2, 100 * G), length_m=0) as lab:
        lab.fabric.link("h1").capture(tmp_path)
        lab.testers["h1"].send([lab.frame("h1", "h2", 1000), pfc_frame(3, 77)], count=4, start_ps=1_000_000_123_999)
        lab.fabric.run()
    path = tmp_path / "h1-0_leaf1-1.pcap"
    assert (tmp_path / "leaf1-1_h1-0.pcap").stat().st_size == 24
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    fields = ["frame.time_epoch", "frame.len", "macc.cbfc.pause_time.c3", "udp.dstport"]
    command = ["tshark", "-r", str(path), "-T", "fields", *(x for field in fields for x in ("-e", field))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    # starts: 1 s + 123,999 ps, and 81,920, 88,640 and 170,560 ps later
    assert rows == [
        ["1.000000123", "1000", "", "4791"],
        ["1.000000205", "60", "77", ""],
        ["1.000000212", "1000", "", "4791"],
        ["1.000000294", "60", "77", ""],
    ]


def test_series_are_taken_in_c_at_their_times() -> None:
    """Two hosts send 100 frames of 1000 bytes at one time into a third: the queue grows by one frame each 81.92 ns."""
    with virtual_lab(leaf_spine(1, 1, 3, 100 * G), length_m=0) as lab:
        lossless_buffers(lab.cores["leaf1"], lab.topology.switch("leaf1"), 500_000, 400_000, 100_000)
        fabric = lab.fabric
        sources = {
            "depth": fabric.switch_state("leaf1", "queue_depth", 3, 3),
            "bytes": fabric.link("h3").from_("leaf1").source_of("bytes"),
            "left": lab.testers["h1"].source_of("waiting"),
        }
        series = fabric.sample(81_920, sources, until_ps=99 * 81_920)
        for host in ("h1", "h2"):
            lab.testers[host].send(lab.frame(host, "h3", 1000), count=100)
        fabric.run()
        # frames i of both arrive at 80,960 + i * 81,920 ps and frame i leaves then: at (i + 1) * 81,920 there are i + 1
        expected = [(0, 0, 0, 199 - 100)] + [(n * 81_920, n * 1000, n * 1000, 99 - n) for n in range(1, 100)]
        rows = series.rows()
        assert [row[:3] for row in rows] == [row[:3] for row in expected]
        assert [row[3] for row in rows] == [row[3] for row in expected]
        assert series.rows() == []


@pytest.mark.parametrize("lookahead_ps", [None, 1])
def test_run_stops_when_a_switch_has_something_for_its_controller(lookahead_ps: int | None) -> None:
    lldp = bytes.fromhex("0180c200000e020000000102" + "88cc") + bytes(46)
    with virtual_lab(leaf_spine(1, 1, 2, 100 * G), length_m=0, lookahead_ps=lookahead_ps) as lab:
        lab.testers["h1"].send(lldp, start_ps=1_000)
        lab.testers["h1"].send(lab.frame("h1", "h2", 1000), start_ps=1_000_000)
        stop = lab.fabric.run(10_000_000)
        assert (stop.reason, stop.nodes) == (Reason.EVENT, ("leaf1",))
        at = 1_000 + 72 * 80
        assert stop.now_ps == at if lookahead_ps else at <= stop.now_ps < at + 72 * 80
        assert lab.cores["leaf1"].now_ps == stop.now_ps
        (event,) = lab.cores["leaf1"].events()
        assert isinstance(event, PacketIn)
        assert lab.fabric.run(10_000_000).reason is Reason.TIME
        assert lab.testers["h2"].count("rx_frames") == 1


def test_calls_come_at_their_time_before_its_frames_and_in_order() -> None:
    fabric, a, b = wire()
    with fabric:
        a.send(bytes(100), count=1)
        arrival, seen = 112 * 80 + 500_000, []
        fabric.at(arrival, lambda: seen.append(("first", fabric.now_ps, b.count("rx_frames"))))
        fabric.at(arrival, lambda: seen.append(("second", fabric.now_ps, b.count("rx_frames"))))
        fabric.at(arrival + 1, lambda: seen.append(("third", fabric.now_ps, b.count("rx_frames"))))
        fabric.at(arrival + 2)
        assert fabric.next_ps == 0
        stop = fabric.run(arrival + 9)
        assert seen == [("first", arrival, 0), ("second", arrival, 0), ("third", arrival + 1, 1)]
        assert (stop.reason, stop.now_ps) == (Reason.BREAK, arrival + 2)
        assert (fabric.run(arrival + 9).reason, fabric.next_ps) == (Reason.TIME, None)


def incast(lookahead_ps: int | None, seed: int, pcap: Path | None = None) -> tuple[str, list[LinkStats], bytes]:
    """PFC, loss, jitter, ECMP over two spines: everything that draws numbers."""
    with virtual_lab(leaf_spine(2, 2, 3, 100 * G), seed=seed, lookahead_ps=lookahead_ps, record_bytes=0) as lab:
        for name, core in lab.cores.items():
            lossless_buffers(core, lab.topology.switch(name), 20_000, 10_000, 30_000)
        for link in lab.fabric.links:
            link.set_errors(loss=1e-3)
            for direction in link.directions:
                direction.set_delay(jitter_ps=20_000)
        if pcap:
            lab.fabric.link("h4").capture(pcap)
        for i, host in enumerate(("h1", "h2", "h3", "h5")):
            frames = [lab.frame(host, "h4", 700 + 100 * k, sport=50_000 + k) for k in range(4)]
            lab.testers[host].send(frames, count=150, priority=3, start_ps=i * 1_000)
        lab.fabric.run(100_000_000)
        stats = [direction.stats() for link in lab.fabric.links for direction in link.directions]
        trace = lab.fabric.trace_hash
        lab.fabric.link("h4").capture(None)
        return trace, stats, b"" if pcap is None else (pcap / "leaf2-1_h4-0.pcap").read_bytes()


def test_the_same_seed_gives_the_same_trace_byte_for_byte_for_each_width_of_window(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    first = incast(None, 11, tmp_path / "a")
    assert sum(stats.lost_error for stats in first[1]) > 0
    assert sum(stats.xoff[3] for stats in first[1]) > 0
    assert len(first[2]) > 100_000
    assert incast(None, 11, tmp_path / "b") == first
    assert incast(1, 11)[:2] == first[:2]
    assert incast(777, 11)[:2] == first[:2]
    assert incast(None, 12)[0] != first[0]


def test_the_trace_sees_one_bit_of_one_frame_and_one_picosecond() -> None:
    def trace(frame: bytes, start_ps: int) -> str:
        fabric, a, _ = wire()
        with fabric:
            a.send(frame, start_ps=start_ps)
            fabric.run()
            return fabric.trace_hash

    base = bytes(range(200))
    assert trace(base, 5) == trace(base, 5)
    assert trace(base, 6) != trace(base, 5)
    for at in (0, 63, 64, 199):
        changed = bytearray(base)
        changed[at] ^= 1
        assert trace(bytes(changed), 5) != trace(base, 5)
    assert trace(base + b"\0", 5) != trace(base, 5)


@pytest.mark.parametrize("lookahead_ps", [None, 1])
def test_a_finished_flow_of_a_nic_stops_the_run(lookahead_ps: int | None) -> None:
    """100,000 bytes over 100 m, no switch: 98 packets of at most 1,024 bytes, the last one acknowledged."""
    finished = frozenset({EventKind.FINISHED})
    nics = [
        Nic(NicConfig(f"02:00:00:00:00:0{i}", f"10.0.0.{i}", 100 * G, events=finished, notify=finished)) for i in (1, 2)
    ]
    with Fabric(SEED, debug=True, lookahead_ps=lookahead_ps) as fabric, nics[0], nics[1]:
        for name, nic in zip("ab", nics, strict=True):
            fabric.add_nic(name, nic)
        fabric.connect("a", 0, "b", 0, rate_bps=100 * G, length_m=100)
        flow = connect_rdma(nics[0], nics[1], RdmaConfig(bytes=100_000))
        stop = fabric.run(10**9)
        assert (stop.reason, stop.nodes) == (Reason.EVENT, ("a",))
        done = nics[0].flow(flow.sender)
        assert (done.packets_sent, done.bytes_acked) == (98, 100_000)
        least = 500_000 + 72 * 80 if lookahead_ps is None else 1
        assert done.finish_ps <= stop.now_ps < done.finish_ps + least
        there, back = fabric.link("a").there.stats(), fabric.link("a").back.stats()
        # data: Ethernet 14, IP 20, UDP 8, BTH 12, ICRC 4, RETH 16 in the first; 97 * 1024 + 672 bytes and no padding
        assert there.sent_bytes == 98 * 58 + 16 + 100_000
        acked = (there.wire_bits // 8 - 12) * 80 + 500_000  # sent back to back; the last one has arrived
        ack = back.sent_bytes // back.sent_frames
        assert done.finish_ps == acked + (max(ack, 60) + 12) * 80 + 500_000
        fabric.close()


def test_a_nic_that_was_idle_starts_at_the_present() -> None:
    """After an idle millisecond, what a NIC is told without a time is of then, not of the past."""
    nics = [Nic(NicConfig(f"02:00:00:00:00:0{i}", f"10.0.0.{i}", 100 * G)) for i in (1, 2)]
    with Fabric(SEED, debug=True) as fabric, nics[0], nics[1]:
        for name, nic in zip("ab", nics, strict=True):
            fabric.add_nic(name, nic)
        fabric.connect("a", 0, "b", 0, rate_bps=100 * G)
        fabric.run(10**9)
        flow = connect_rdma(nics[0], nics[1], RdmaConfig(bytes=1_000))
        tcp = connect_tcp(nics[0], nics[1], TcpConfig(bytes=1_000))
        nics[1].storm([0], 10**8, until_ps=3 * 10**8 + 10**9)
        fabric.run(2 * 10**9)
        done = nics[0].flow(flow.sender)
        assert (done.start_ps, done.first_ps) == (10**9, 10**9)
        # there 14 + 20 + 8 + 12 + 16 + 1000 + 4 bytes and 12 of the wire; an ACK of 62 bytes goes back
        assert done.completion_ps == (1074 + 12 + 62 + 12) * 80
        assert nics[0].flow(tcp.sender).start_ps == 10**9
        assert nics[1].stats().tx_pfc == 3
        fabric.close()


def two_hosts(lab: VirtualLab) -> None:
    lab.testers["h1"].send(lab.frame("h1", "h2", 1000), count=10)


def test_debug_finds_frames_that_vanish() -> None:
    with virtual_lab(leaf_spine(1, 1, 2, 100 * G), debug=True) as lab:
        two_hosts(lab)
        lab.cores["leaf1"].receive(1, lab.frame("h1", "h2", 900), 0)
        lib, handle = lab.cores["leaf1"].native
        lib.sw_set_output(handle, None, None)  # frames go to the core's own list instead of the wire
        with pytest.raises(InvariantError, match="node leaf1: the switch counts another number of frames transmitted"):
            lab.fabric.run()
        with pytest.raises(InvariantError):  # it stays broken
            lab.fabric.run()


def test_debug_finds_an_xon_that_had_no_xoff() -> None:
    fabric, a, _ = wire()
    with fabric:
        fabric._lib.fab_set_paired(fabric._engine, 0, True)  # as for a switch
        a.send([pfc_frame(3, 5), pfc_frame(3, 0), pfc_frame(2, 0)], count=3)
        with pytest.raises(InvariantError, match=r"wire a-0_b-0: XON for priority 2, which was not told XOFF"):
            fabric.run()


def test_a_closed_part_does_not_bring_the_fabric_down() -> None:
    with virtual_lab(leaf_spine(1, 1, 2, 100 * G), length_m=100) as lab:
        two_hosts(lab)
        lab.fabric.run(1_000_000)
        assert lab.fabric.link("h2").from_("leaf1").stats().in_flight > 0
        lab.cores["leaf1"].close()
        with pytest.raises(FabricError, match="node 'x': is closed"):
            lab.fabric.add_switch("x", lab.cores["leaf1"])


def test_memory_of_the_engine_is_clean() -> None:
    """This file again with AddressSanitizer and UndefinedBehaviorSanitizer over the engine and the switch."""
    if os.environ.get("DCB_TEST_SANITIZE") == "1":
        return
    from tests.unit.sanitized import run_again

    run_again([Path(__file__)])

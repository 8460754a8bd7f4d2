"""The bundled program on the whole switch core: PFC and ECN from a frame in to a frame out, read back with scapy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from scapy.contrib.mac_control import MACControlClassBasedFlowControl, MACControlPause
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from switch.api import ActionCall, GroupRef, KeyMatch, MatchKind
from switch.core import PacketIn, StaticGroup, SwitchCore

ROOT = Path(__file__).resolve().parents[2]
EXACT = MatchKind.EXACT
HOST_MAC, PORT_MAC = "02:00:00:00:01:02", "02:01:00:00:01:{:02x}"
G = 10**9


@cache
def program() -> bytes:
    return (ROOT / "p4src" / "build" / "dcb.json").read_bytes()


def exact(*values: int) -> list[KeyMatch]:
    return [KeyMatch(EXACT, value=value) for value in values]


@pytest.fixture
def core() -> Iterator[SwitchCore]:
    """Ports 1..4; 10.1.0.2 behind port 2; priority 3 by DSCP 26 is lossless; PFC is heard on 3."""
    with SwitchCore(program()) as made:
        pipeline = made.pipeline
        for port in range(1, 5):
            made.tm.add_port(port)
            made.tm.set_port(port, 40 * G)
            pipeline.table_insert(
                "ingress.port_config", exact(port), 0, ActionCall("ingress.set_port", (2, 0, 1, 1 << 3, 0))
            )
            mac = int(PORT_MAC.format(port).replace(":", ""), 16)
            pipeline.table_insert("egress.port_mac", exact(port), 0, ActionCall("egress.set_src_mac", (mac,)))
        pipeline.table_insert("ingress.dscp_to_priority", exact(1, 26), 0, ActionCall("ingress.set_priority", (3,)))
        pipeline.table_insert("ingress.priority_map", exact(1, 3), 0, ActionCall("ingress.set_class", (3, 3, 1)))
        pipeline.member_set("ingress.ecmp", 1, ActionCall("ingress.forward", (2, int(HOST_MAC.replace(":", ""), 16))))
        pipeline.group_set("ingress.ecmp", 1, [(1, 1)])
        pipeline.table_insert("ingress.nexthop", exact(1), 0, GroupRef(1))
        route = [KeyMatch(MatchKind.LPM, value=0x0A010002, prefix_len=32)]
        pipeline.table_insert("ingress.ipv4_lpm", route, 0, ActionCall("ingress.route", (1,)))
        yield made


def data(length: int, dscp: int = 26, ecn: int = 0) -> bytes:
    """A UDP frame of `length` bytes for 10.1.0.2."""
    headers = (
        Ether(dst=PORT_MAC.format(1), src="02:00:00:00:01:01")
        / IP(src="10.1.0.1", dst="10.1.0.2", tos=dscp << 2 | ecn, id=7)
        / UDP(sport=1000, dport=4791)
    )
    return bytes(headers / Raw(bytes(length - len(headers))))


def mac_control(payload: Packet) -> bytes:
    return bytes(Ether(dst="01:80:c2:00:00:01", src=HOST_MAC, type=0x8808) / payload).ljust(60, b"\0")


def test_65535_quanta_at_40g_hold_priority_3_for_838848_ns_and_no_other(core: SwitchCore) -> None:
    pause = MACControlClassBasedFlowControl(c3_enabled=1, c3_pause_time=65535, c0_enabled=1, c0_pause_time=65535)
    core.receive(2, mac_control(pause), 0)  # priority 0 is not enabled on this port: no effect
    core.receive(1, data(200), 0)
    core.receive(1, data(201, dscp=0), 0)
    core.advance(838_848_000 - 1)
    assert [(len(out.frame), out.start_ps) for out in core.outputs()] == [(201, 0)]
    core.advance(838_848_000)
    assert [(len(out.frame), out.start_ps) for out in core.outputs()] == [(200, 838_848_000)]
    assert [core.tm.read_state("pause_count", 16 + n) for n in range(8)] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert core.stats()["transmitted"] == 2  # a PFC frame is never forwarded


def test_pause_frames_are_ignored_unless_configured(core: SwitchCore) -> None:
    core.receive(2, mac_control(MACControlPause(pause_time=65535)), 0)
    core.receive(1, data(200), 0)
    core.advance(0)
    assert len(core.outputs()) == 1


def test_congestion_makes_the_frame_that_scapy_reads(core: SwitchCore) -> None:
    core.tm.set_priority_group(1, 3, StaticGroup(0, 10_000, 4_000, 3_000, 1 << 3))
    core.tm.set_pfc(1, tx_enable=1 << 3, quanta=0x1234)
    core.tm.block_port(2, True)
    for _ in range(9):
        core.receive(1, data(1000), 0)
    core.receive(1, data(999), 0)
    core.advance(0)
    assert core.outputs() == []  # 9,999 bytes: one short of XOFF
    core.receive(1, data(1000), 0)
    core.advance(0)
    (out,) = core.outputs()
    assert (out.port, len(out.frame), out.end_ps) == (1, 60, (60 + 24) * 8 * 25)
    frame = Ether(out.frame)
    assert (frame.dst, frame.src, frame.type) == ("01:80:c2:00:00:01", PORT_MAC.format(1), 0x8808)
    pfc = frame[MACControlClassBasedFlowControl]
    assert [getattr(pfc, f"c{n}_enabled") for n in range(8)] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert [getattr(pfc, f"c{n}_pause_time") for n in range(8)] == [0, 0, 0, 0x1234, 0, 0, 0, 0]
    assert set(out.frame[34:]) == {0}
    assert core.pipeline.counter_read("egress.pfc_tx_xoff", 1 * 8 + 3).packets == 1
    core.receive(1, data(1000), 0)
    core.receive(1, data(1000), 0)  # 10,999 + 2,000 = 12,999
    core.receive(1, data(60), 0)
    assert core.tm.read_counter("drop_headroom", 1 * 8 + 3).packets == 1
    core.tm.block_port(2, False)
    core.advance(10**9)
    told = [Ether(out.frame) for out in core.outputs() if out.port == 1]
    assert [frame.c3_pause_time for frame in told] == [0]
    assert core.pipeline.counter_read("egress.pfc_tx_xon", 1 * 8 + 3).packets == 1
    assert core.tm.read_state("pg_depth", 1 * 8 + 3) == 0
    core.tm.check()


def test_ecn_marks_by_the_bytes_left_at_dequeue(core: SwitchCore) -> None:
    """Kmin = Kmax = 5,000: of ten frames of 1,000 bytes the first five leave 9,000 .. 5,000 behind and are marked."""
    core.pipeline.table_insert(
        "egress.ecn_profile", exact(2, 3), 0, ActionCall("egress.set_ecn", (5_000, 5_000, 2**32 - 1, 0, 0))
    )
    core.tm.block_port(2, True)
    for _ in range(10):
        core.receive(1, data(1000, ecn=2), 0)
    core.tm.block_port(2, False)
    core.advance(10**9)
    assert [Ether(out.frame)[IP].tos & 3 for out in core.outputs()] == [3] * 5 + [2] * 5


def test_lldp_reaches_the_cpu_and_a_packet_out_the_wire(core: SwitchCore) -> None:
    lldp = bytes(Ether(dst="01:80:c2:00:00:0e", src=HOST_MAC, type=0x88CC) / Raw(bytes(46)))
    core.receive(3, lldp, 0)
    (event,) = core.events()
    assert isinstance(event, PacketIn)
    assert event.frame == (3 << 7).to_bytes(2, "big") + lldp  # ingress port 9, priority 3, reason 4: LLDP is 0
    core.receive(core.cpu_port, (4 << 7 | 5 << 4).to_bytes(2, "big") + lldp, 0)
    core.advance(0)
    assert [(out.port, out.frame) for out in core.outputs()] == [(4, lldp)]
    assert core.tm.read_counter("dequeued", 4 * 8 + 5).packets == 1


def test_garbage_on_every_port_leaves_the_switch_forwarding(core: SwitchCore) -> None:
    good = data(500)
    tagged = bytes(Ether(good[:12] + b"\x81\x00\x60\x01" + good[12:]))
    assert Dot1Q in Ether(tagged)
    for frame in (good, tagged, mac_control(MACControlPause())):
        for cut in range(len(frame) if len(frame) < 100 else 100):
            for port in range(1, 5):
                core.receive(port, frame[:cut], 0)
    core.advance(10**8)
    core.outputs()
    core.receive(1, good, 10**9)
    core.advance(10**9)
    assert [len(out.frame) for out in core.outputs()] == [500]
    core.tm.check()
    assert core.packets_held == 0

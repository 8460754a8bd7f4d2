"""What the program says to the traffic manager and what it makes of its answers: all that BMv2 cannot show.

Runs on the interpreter; `tests/unit/test_goldens.py` and the differential tests hold generated C to it. Expected frames
come from scapy, expected numbers from docs/contract.md.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.contrib.mac_control import MACControlClassBasedFlowControl, MACControlPause
from scapy.layers.inet import IP, TCP, UDP, IPOption
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw
from scapy_qcn import Cnm, CnTag

from switch.api import ActionCall, CounterValue, KeyMatch, MatchKind, MemberRef
from switch.interp_state import PacketState
from switch.interpreter import Interpreter
from switch.loader import load
from switch.rng import Generator

JSON_TEXT = (Path(__file__).resolve().parents[2] / "p4src" / "build" / "dcb.json").read_text()
PROGRAM = load(JSON_TEXT)
TM = "userMetadata.tm"
EXACT = MatchKind.EXACT
PFC_ADDRESS = "01:80:c2:00:00:01"
PORT_MAC = "02:01:00:00:01:02"
NEXT_MAC = "02:00:00:00:01:09"
HOST_MAC = "02:00:00:00:01:01"
COUNTERS = [name for name in PROGRAM.counters if not name.startswith("egress.tm_")]
INSTANCE_TM_PFC = 7
DROP_PORT = 511


def exact(*values: int) -> list[KeyMatch]:
    return [KeyMatch(EXACT, value) for value in values]


def mac_int(mac: str) -> int:
    return int(mac.replace(":", ""), 16)


@pytest.fixture
def pipeline() -> Interpreter:
    """Port 1 trusts DSCP (26 is priority 3, lossless) and lets priorities 3 and 5 and PAUSE through; all is routed to
    port 2."""
    return make_pipeline()


@functools.cache
def shared_pipeline() -> Interpreter:
    """Made once: it has more than 100,000 cells."""
    made = Interpreter(PROGRAM)
    made.table_insert("ingress.port_config", exact(1), 0, ActionCall("ingress.set_port", (2, 1, 4, 0b101000, 1)))
    made.table_insert("ingress.dscp_to_priority", exact(4, 26), 0, ActionCall("ingress.set_priority", (3,)))
    made.table_insert("ingress.priority_map", exact(4, 3), 0, ActionCall("ingress.set_class", (5, 6, 1)))
    made.member_set("ingress.ecmp", 1, ActionCall("ingress.forward", (2, mac_int(NEXT_MAC))))
    for table in ("ingress.ipv4_lpm", "ingress.ipv6_lpm"):
        made.table_insert(table, [KeyMatch(MatchKind.LPM, 0, prefix_len=0)], 0, ActionCall("ingress.route", (7,)))
    made.table_insert("ingress.nexthop", exact(7), 0, MemberRef(1))
    made.table_insert("egress.port_mac", exact(2), 0, ActionCall("egress.set_src_mac", (mac_int(PORT_MAC),)))
    return made


def make_pipeline() -> Interpreter:
    """The shared pipeline as good as new."""
    made = shared_pipeline()
    made.generator = Generator(0)
    for table in ("egress.ecn_profile", "egress.dscp_rewrite", "egress.pcp_rewrite"):
        for handle in list(made.tables[table].entries):
            made.table_delete(table, handle)
    for name in COUNTERS:
        for index in counted(made, name):
            made.counter_write(name, index, CounterValue())
    return made


def received(pipeline: Interpreter, frame: Packet | bytes, port: int = 1) -> PacketState:
    """A frame after ingress."""
    packet = pipeline.new_packet(bytes(frame), port)
    pipeline.run_ingress(packet)
    return packet


def sent(pipeline: Interpreter, packet: PacketState, depth_bytes: int = 0) -> bytes | None:
    """A packet after egress, by the port that ingress chose; None where it was dropped."""
    port = packet.get("standard_metadata.egress_spec")
    if port == DROP_PORT:
        return None
    packet.set("standard_metadata.egress_port", port)
    packet.set("standard_metadata.egress_spec", 0)
    packet.set(f"{TM}.deq_depth_bytes", depth_bytes)
    pipeline.run_egress(packet)
    return None if packet.get("standard_metadata.egress_spec") == DROP_PORT else pipeline.deparse(packet)


def pause_of(packet: PacketState) -> tuple[int, list[int]] | None:
    """The pause request that ingress left: vector and times."""
    if not packet.get(f"{TM}.pause_valid"):
        return None
    return packet.get(f"{TM}.pause_vector"), [packet.get(f"{TM}.pause_time{n}") for n in range(8)]


def scapy_pfc(times: dict[int, int]) -> bytes:
    """A PFC frame of 60 bytes by scapy: the classes of `times` enabled."""
    fields: dict[str, Any] = {f"c{n}_enabled": 1 for n in times} | {
        f"c{n}_pause_time": time for n, time in times.items()
    }
    frame = Ether(dst=PFC_ADDRESS, src=PORT_MAC, type=0x8808) / MACControlClassBasedFlowControl(**fields)
    return bytes(frame).ljust(60, b"\0")


def counted(pipeline: Interpreter, name: str) -> dict[int, int]:
    """Packets of the cells of a counter that are not 0."""
    return {index: cell.packets for index, cell in enumerate(pipeline.counters[name]) if cell.packets}


# --- PFC frames that the traffic manager asks for ------------------------------------------------------------------


def pfc_frame(pipeline: Interpreter, times: dict[int, int], port: int = 2) -> bytes:
    """What egress makes of an empty packet that asks for a PFC frame."""
    packet = PacketState(pipeline)
    packet.set("standard_metadata.instance_type", INSTANCE_TM_PFC)
    packet.set("standard_metadata.egress_port", port)
    packet.set(f"{TM}.pfc_request", 1)
    packet.set(f"{TM}.pfc_vector", sum(1 << n for n in times))
    for n, time in times.items():
        packet.set(f"{TM}.pfc_time{n}", time)
    pipeline.run_egress(packet)
    assert packet.get("standard_metadata.egress_spec") == 0
    return pipeline.deparse(packet)


@pytest.mark.parametrize(
    "times",
    [
        {3: 0xFFFF},
        {3: 0},
        {0: 1, 7: 0x8000},
        {n: n * 1000 for n in range(8)},
    ],
)
def test_a_pfc_frame_is_as_scapy_writes_it(pipeline: Interpreter, times: dict[int, int]) -> None:
    frame = pfc_frame(pipeline, times)
    assert len(frame) == 60
    assert frame == scapy_pfc(times)


@pytest.mark.parametrize("tags", [0, 1, 2])
def test_a_congestion_notification_message_is_as_scapy_writes_it(pipeline: Interpreter, tags: int) -> None:
    """A sampled frame as it came in, with no, one or two VLAN tags, with and without a CN-TAG."""
    inner = IP(dst="10.1.0.2", ttl=9) / UDP(dport=4791) / Raw(bytes(range(200)))
    for with_tag in (False, True):
        outer, message = Ether(dst=NEXT_MAC, src=HOST_MAC), Ether(dst=HOST_MAC, src=PORT_MAC)
        for n in range(tags):
            outer, message = outer / Dot1Q(vlan=n + 1, prio=2), message / Dot1Q(vlan=n + 1, prio=2 if n else 5)
        if with_tag:
            outer, message = outer / CnTag(flow_id=9), message / CnTag(flow_id=9)
        frame = bytes(outer / inner)[:128]
        packet = pipeline.new_packet(frame, 2)
        packet.set("standard_metadata.instance_type", 9)
        packet.set("standard_metadata.egress_port", 2)
        fields = {"cnm_request": 1, "cnm_qfb": 63, "cnm_priority": 3, "cnm_qoff": 0xFFFF, "cnm_qdelta": 0x7FFF}
        for name, value in (fields | {"priority": 5, "cnm_cpid": 0x0102030405060708}).items():
            packet.set(f"{TM}.{name}", value)
        pipeline.run_egress(packet)
        msdu = frame[12 + 4 * (tags + with_tag) :][:64]
        expected = message / Cnm(
            feedback=63, cpid=0x0102030405060708, q_offset=-1, q_delta=0x7FFF, priority=3, dst=NEXT_MAC, msdu=msdu,
            msdu_len=64,
        )  # fmt: skip
        assert pipeline.deparse(packet)[: packet.requests.truncate_bytes] == bytes(expected)
    assert counted(pipeline, "egress.cnm_tx") == {2 * 8 + 3: 2}


def test_a_pfc_frame_byte_by_byte(pipeline: Interpreter) -> None:
    assert pfc_frame(pipeline, {3: 0xFFFF, 5: 0}) == bytes.fromhex(
        "0180c2000001 020100000102 8808 0101 0028 0000 0000 0000 ffff 0000 0000 0000 0000" + "00" * 26
    )


def test_a_pfc_frame_of_a_port_without_mac_has_no_source(pipeline: Interpreter) -> None:
    assert pfc_frame(pipeline, {1: 2}, port=9)[6:12] == bytes(6)


def test_sent_pfc_frames_are_counted_once_for_each_priority(pipeline: Interpreter) -> None:
    pfc_frame(pipeline, {3: 5, 4: 0})
    pfc_frame(pipeline, {3: 0})
    assert counted(pipeline, "egress.pfc_tx_frames") == {2 * 8: 2}
    assert counted(pipeline, "egress.pfc_tx_xoff") == {2 * 8 + 3: 1}
    assert counted(pipeline, "egress.pfc_tx_xon") == {2 * 8 + 3: 1, 2 * 8 + 4: 1}
    assert counted(pipeline, "egress.tx") == {}


# --- PFC and PAUSE received ---------------------------------------------------------------------------------------


def test_a_pfc_frame_becomes_a_pause_request_for_what_is_enabled(pipeline: Interpreter) -> None:
    packet = received(pipeline, scapy_pfc({0: 9, 3: 0xFFFF, 5: 0}))
    assert pause_of(packet) == (0b101000, [9, 0, 0, 0xFFFF, 0, 0, 0, 0])
    assert sent(pipeline, packet) is None


def test_a_priority_that_is_not_enabled_is_counted_and_nothing_else(pipeline: Interpreter) -> None:
    assert pause_of(received(pipeline, scapy_pfc({0: 9}))) is None
    assert counted(pipeline, "ingress.pfc_rx_xoff") == {8: 1}
    assert counted(pipeline, "ingress.pfc_rx_frames") == {8: 1}


def test_a_port_that_is_not_configured_is_never_paused(pipeline: Interpreter) -> None:
    assert pause_of(received(pipeline, scapy_pfc({3: 9}), port=2)) is None
    pause = bytes(Ether(dst=PFC_ADDRESS, type=0x8808, src=PORT_MAC) / MACControlPause(pause_time=7)).ljust(60, b"\0")
    assert pause_of(received(pipeline, pause, port=2)) is None


def test_pause_stops_every_priority(pipeline: Interpreter) -> None:
    pause = bytes(Ether(dst=PFC_ADDRESS, type=0x8808, src=PORT_MAC) / MACControlPause(pause_time=7)).ljust(60, b"\0")
    assert pause_of(received(pipeline, pause)) == (0xFF, [7] * 8)
    assert counted(pipeline, "ingress.pause_rx_frames") == {8: 1}


def test_the_high_byte_of_the_vector_is_ignored_and_counted(pipeline: Interpreter) -> None:
    good = scapy_pfc({3: 1})
    assert pause_of(received(pipeline, good[:16] + b"\x20" + good[17:])) == (8, [0, 0, 0, 1, 0, 0, 0, 0])
    assert counted(pipeline, "ingress.pfc_rx_invalid") == {8 + 5: 1}


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (bytes.fromhex("0180c2000002") + scapy_pfc({3: 1})[6:], 0),
        (scapy_pfc({3: 1})[:59], 1),
        (scapy_pfc({3: 1}) + b"\0", 1),
        (scapy_pfc({3: 1})[:15], 1),
        (scapy_pfc({3: 1})[:34] + b"\1" + bytes(25), 2),
        (scapy_pfc({3: 1})[:59] + b"\1", 2),
        (scapy_pfc({3: 1})[:14] + b"\1\2" + scapy_pfc({3: 1})[16:], 3),
        (scapy_pfc({}), 4),
    ],
)
def test_a_faulty_frame_has_no_effect_but_its_counter(pipeline: Interpreter, frame: bytes, reason: int) -> None:
    packet = received(pipeline, frame)
    assert pause_of(packet) is None
    assert sent(pipeline, packet) is None
    assert counted(pipeline, "ingress.pfc_rx_invalid") == {8 + reason: 1}
    for name in ("pfc_rx_frames", "pfc_rx_xoff", "pfc_rx_xon", "rx", "drops"):
        assert counted(pipeline, f"ingress.{name}") == {}, name


def test_data_asks_for_no_pause(pipeline: Interpreter) -> None:
    packet = received(pipeline, Ether(dst=PORT_MAC) / IP(dst="10.0.0.1") / UDP())
    assert pause_of(packet) is None


# --- what is said about each packet -------------------------------------------------------------------------------


def test_class_of_a_packet(pipeline: Interpreter) -> None:
    packet = received(pipeline, Ether(dst=PORT_MAC) / IP(dst="10.0.0.1", tos=26 << 2) / UDP())
    told = {name: packet.get(f"{TM}.{name}") for name in ("priority", "pg", "lossless", "model")}
    assert told == {"priority": 3, "pg": 6, "lossless": 1, "model": 0}
    assert packet.get("standard_metadata.priority") == 5
    packet = received(pipeline, Ether(dst=PORT_MAC) / IP(dst="10.0.0.1") / UDP())  # DSCP 0 is not mapped: port default
    told = {name: packet.get(f"{TM}.{name}") for name in ("priority", "pg", "lossless", "model")}
    assert told == {"priority": 1, "pg": 0, "lossless": 0, "model": 0}
    assert packet.get("standard_metadata.priority") == 1


# --- ECN ----------------------------------------------------------------------------------------------------------


class FixedDraw:
    """A generator whose every draw is the same."""

    def __init__(self, value: int) -> None:
        self.value = value

    def uniform(self, low: int, high: int) -> int:
        assert (low, high) == (0, 0xFFFFFFFF)
        return self.value


def marked(kmin: int, kmax: int, slope: int, depth: int, draw: int) -> bool:
    """Whether an ECT(0) packet leaves with CE."""
    pipeline = make_pipeline()
    pipeline.generator = FixedDraw(draw)  # type: ignore[assignment]
    profile = ActionCall("egress.set_ecn", (kmin, kmax, 0xFFFFFFFF, slope, 0))
    pipeline.table_insert("egress.ecn_profile", exact(2, 1), 0, profile)
    packet = received(pipeline, Ether(dst=PORT_MAC) / IP(dst="10.0.0.1", tos=2) / UDP())
    frame = sent(pipeline, packet, depth)
    assert frame is not None
    tos = Ether(frame)[IP].tos
    assert tos in (2, 3)
    assert counted(pipeline, "egress.ce_marked") == ({2 * 8 + 1: 1} if tos == 3 else {})
    return bool(tos == 3)


@pytest.mark.parametrize(
    ("depth", "draw", "expected"),
    [
        (19_999, 0, False),
        (20_000, 0, False),  # probability 0
        (79_999, 0xFFFFFFFF, False),
        (80_000, 0xFFFFFFFF, True),
        (1_000_000, 0xFFFFFFFF, True),
    ],
)
def test_ecn_at_the_thresholds(depth: int, draw: int, expected: bool) -> None:
    pmax = (1 << 32) // 10
    assert marked(20_000, 80_000, pmax * 65536 // 60_000, depth, draw) is expected


@given(
    kmin=st.integers(0, 0xFFFFFFFF),
    kmax=st.integers(0, 0xFFFFFFFF),
    slope=st.integers(0, (1 << 48) - 1),
    depth=st.integers(0, 0xFFFFFFFF),
    offset=st.integers(-2, 2),
)
@settings(max_examples=60, deadline=None)
def test_ecn_between_the_thresholds(kmin: int, kmax: int, slope: int, depth: int, offset: int) -> None:
    probability = ((depth - kmin) * slope) >> 16 if depth >= kmin else 0
    draw = min(max(probability + offset, 0), 0xFFFFFFFF)  # around the edge, where there is one
    expected = depth >= kmin and (depth >= kmax or probability > draw)
    assert marked(kmin, kmax, slope, depth, draw) is expected


@pytest.mark.parametrize("drop", [0, 1])
@pytest.mark.parametrize("code", range(4))
def test_ecn_codepoints(pipeline: Interpreter, code: int, drop: int) -> None:
    profile = ActionCall("egress.set_ecn", (1000, 1000, 0xFFFFFFFF, 0, drop))
    pipeline.table_insert("egress.ecn_profile", exact(2, 1), 0, profile)
    for frame in (
        Ether(dst=PORT_MAC) / IP(dst="10.0.0.1", tos=code) / UDP(),
        Ether(dst=PORT_MAC) / IPv6(dst="fd00::1", tc=code) / UDP(),
    ):
        left = sent(pipeline, received(pipeline, frame), 1000)
        if code == 0 and drop:
            assert left is None
        else:
            assert left is not None
            layer = Ether(left).payload
            assert (layer.tos if IP in layer else layer.tc) == (code if code == 0 else 3)
    assert counted(pipeline, "egress.ecn_dropped") == ({17: 2} if code == 0 and drop else {})
    assert counted(pipeline, "egress.ce_marked") == ({17: 2} if code in (1, 2) else {})


# --- ARP ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def arp_pipeline(pipeline: Interpreter) -> Iterator[Interpreter]:
    """Port 1 answers ARP; its profile puts priority 0 into queue 2, group 1."""
    proxy = pipeline.table_insert(
        "ingress.arp_proxy", exact(1), 0, ActionCall("ingress.arp_reply", (mac_int(PORT_MAC),))
    )
    mapped = pipeline.table_insert("ingress.priority_map", exact(4, 0), 0, ActionCall("ingress.set_class", (2, 1, 0)))
    yield pipeline
    pipeline.table_delete("ingress.arp_proxy", proxy)
    pipeline.table_delete("ingress.priority_map", mapped)


def arp_request(psrc: str = "10.1.0.3", pdst: str = "169.254.0.1", tags: int = 0) -> Packet:
    frame: Packet = Ether(dst="ff:ff:ff:ff:ff:ff", src=NEXT_MAC)
    for n in range(tags):
        frame /= Dot1Q(vlan=100 + n, prio=5 - n)
    return frame / ARP(op="who-has", hwsrc=NEXT_MAC, psrc=psrc, pdst=pdst)


@pytest.mark.parametrize("tags", [0, 1, 2])
@pytest.mark.parametrize("target", ["169.254.0.1", "10.2.0.3"])
def test_an_arp_request_is_answered_as_scapy_would(arp_pipeline: Interpreter, target: str, tags: int) -> None:
    request = arp_request(pdst=target, tags=tags)
    packet = received(arp_pipeline, bytes(request).ljust(60, b"\0"))
    told = {name: packet.get(f"{TM}.{name}") for name in ("priority", "pg", "lossless")}
    assert told == {"priority": 0, "pg": 1, "lossless": 0}
    assert packet.get("standard_metadata.priority") == 2
    assert packet.get("standard_metadata.egress_spec") == 1
    answer = request.copy()
    answer.src, answer.dst = PORT_MAC, NEXT_MAC
    answer[ARP].op = "is-at"
    answer[ARP].hwsrc, answer[ARP].psrc = PORT_MAC, target
    answer[ARP].hwdst, answer[ARP].pdst = NEXT_MAC, "10.1.0.3"
    left = sent(arp_pipeline, packet)
    assert left == bytes(answer).ljust(60, b"\0")
    assert Ether(left).answers(request) if tags == 0 else True
    assert counted(arp_pipeline, "ingress.rx") == counted(arp_pipeline, "egress.tx") == {8: 1}
    assert counted(arp_pipeline, "ingress.drops") == {}


@pytest.mark.parametrize(
    ("frame", "port"),
    [
        (arp_request(), 2),  # not a port that answers
        (arp_request(psrc="10.1.0.3", pdst="10.1.0.3"), 1),
        (arp_request(psrc="0.0.0.0"), 1),
        (Ether(src=NEXT_MAC) / ARP(op="is-at", hwsrc=NEXT_MAC, psrc="10.1.0.3", pdst="10.1.0.4"), 1),
        (Ether(src=NEXT_MAC) / ARP(hwtype=6, psrc="10.1.0.3", pdst="10.1.0.4"), 1),
        (Ether(src=NEXT_MAC) / ARP(ptype=0x86DD, plen=16) / Raw(bytes(40)), 1),
    ],
)
def test_other_arp_is_dropped(arp_pipeline: Interpreter, frame: Packet, port: int) -> None:
    assert sent(arp_pipeline, received(arp_pipeline, frame, port)) is None
    assert counted(arp_pipeline, "ingress.drops") == {port * 8 + 2: 1}


# --- parsing and rewriting against scapy --------------------------------------------------------------------------


@st.composite
def routable(draw: st.DrawFn) -> Packet:
    """A frame that is routed: 0 to 2 tags, IPv4 with options or IPv6, TCP, UDP or another protocol, any payload."""
    frame: Packet = Ether(
        dst="02:00:00:00:00:01", src=draw(st.sampled_from(["02:00:00:00:00:02", "0a:0b:0c:0d:0e:0f"]))
    )
    for _ in range(draw(st.integers(0, 2))):
        frame /= Dot1Q(prio=draw(st.integers(0, 7)), dei=draw(st.integers(0, 1)), vlan=draw(st.integers(0, 4095)))
    fields: dict[str, Any] = {}
    byte = st.integers(0, 255)
    if draw(st.booleans()):
        words = draw(st.integers(0, 10))
        if words:
            raw = b"".join(struct.pack(">BBH", 0x94, 4, draw(st.integers(0, 65535))) for _ in range(words))
            fields["options"] = [IPOption(raw[at : at + 4]) for at in range(0, len(raw), 4)]
        frame /= IP(
            src=f"10.{draw(byte)}.0.1",
            dst=f"10.{draw(byte)}.1.{draw(byte)}",
            tos=draw(byte),
            id=draw(st.integers(0, 65535)),
            ttl=draw(st.integers(2, 255)),
            flags=draw(st.sampled_from(["", "DF"])),
            **fields,
        )
    else:
        frame /= IPv6(src="fd00::1", dst=f"fd00::{draw(byte):x}", tc=draw(byte), fl=draw(st.integers(0, 0xFFFFF)))
        frame[IPv6].hlim = draw(st.integers(2, 255))
    kind = draw(st.sampled_from(["udp", "tcp", "roce", "other"]))
    if kind == "tcp":
        frame /= TCP(sport=draw(st.integers(0, 65535)), dport=draw(st.integers(0, 65535)))
    elif kind == "udp":
        frame /= UDP(sport=draw(st.integers(0, 65535)), dport=draw(st.integers(0, 4790)))
    elif kind == "roce":
        frame /= UDP(sport=draw(st.integers(0, 65535)), dport=4791) / Raw(draw(st.binary(min_size=12, max_size=12)))
    else:
        network = frame[IP] if IP in frame else frame[IPv6]
        setattr(network, "proto" if IP in frame else "nh", 253)
    return frame / Raw(draw(st.binary(max_size=64)))


@given(frame=routable(), dscp=st.none() | st.integers(0, 63), pcp=st.none() | st.integers(0, 7))
@settings(max_examples=150, deadline=None)
def test_a_routed_frame_is_as_scapy_would_rewrite_it(frame: Packet, dscp: int | None, pcp: int | None) -> None:
    before = Ether(bytes(frame))
    pipeline = make_pipeline()
    if dscp is not None:
        for priority in range(8):
            pipeline.table_insert("egress.dscp_rewrite", exact(2, priority), 0, ActionCall("egress.set_dscp", (dscp,)))
    if pcp is not None:
        for priority in range(8):
            pipeline.table_insert("egress.pcp_rewrite", exact(2, priority), 0, ActionCall("egress.set_pcp", (pcp, 1)))
    left = sent(pipeline, received(pipeline, bytes(before)))

    expected = before.copy()
    expected.src, expected.dst = PORT_MAC, NEXT_MAC
    if pcp is not None and Dot1Q in expected:
        expected[Dot1Q].prio, expected[Dot1Q].dei = pcp, 1
    if IP in expected:
        expected[IP].ttl -= 1
        if dscp is not None:
            expected[IP].tos = dscp << 2 | expected[IP].tos & 3
        del expected[IP].chksum
    else:
        expected[IPv6].hlim -= 1
        if dscp is not None:
            expected[IPv6].tc = dscp << 2 | expected[IPv6].tc & 3
    assert left == bytes(expected)


@given(
    data=st.binary(max_size=200),
    start=st.sampled_from(["", "0800", "0806", "86dd", "8100", "8808", "88cc", "81008100"]),
)
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_routed_punted_or_counted(data: bytes, start: str) -> None:
    pipeline = make_pipeline()
    frame = bytes(12) + bytes.fromhex(start) + data
    packet = received(pipeline, frame)
    left = sent(pipeline, packet)
    counts = {
        name: sum(counted(pipeline, name).values())
        for name in ("ingress.rx", "ingress.drops", "ingress.pfc_rx_invalid", "ingress.pfc_rx_frames", "egress.tx")
    }
    counts["pause"] = sum(counted(pipeline, "ingress.pause_rx_frames").values())
    if left is not None:
        assert (counts["egress.tx"], counts["ingress.rx"]) == (1, 1)
        punted = packet.get("standard_metadata.egress_port") == 510
        assert len(left) == len(frame) + (2 if punted else 0)
    elif counts["ingress.rx"]:
        assert counts["ingress.drops"] == 1
    else:
        assert counts["ingress.drops"] == 0
        assert counts["ingress.pfc_rx_invalid"] + counts["ingress.pfc_rx_frames"] + counts["pause"] >= 1

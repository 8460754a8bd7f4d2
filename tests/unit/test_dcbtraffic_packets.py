"""Frames of dcbtraffic: what scapy builds, tshark reads; what hosts.packets reads, scapy built."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw
from scapy.utils import wrpcap

from dcb import pfc
from hosts import packets
from hosts.capture import CaptureWriter, read_capture
from hosts.packets import FrameSpec, Kind
from hosts.wire import restore_tag

BASE = FrameSpec(
    kind=Kind.UDP,
    src_mac="02:00:00:00:01:01",
    dst_mac="02:01:00:00:01:01",
    src_ip="10.1.0.1",
    dst_ip="10.2.0.7",
    dscp=10,
    ecn=1,
)
V6 = replace(BASE, src_ip="fd00:1::1", dst_ip="fd00:2::7")

specs = st.builds(
    lambda base, kind, dscp, ecn, tag, size, port: replace(
        base,
        **{"kind": kind, "dscp": dscp, "ecn": ecn, "size_bytes": size, "src_port": port},
        **({} if tag is None else {"vlan": tag[0], "pcp": tag[1], "dei": tag[2]}),
    ),
    st.sampled_from([BASE, V6]),
    st.sampled_from(list(Kind)),
    st.integers(0, 63),
    st.integers(0, 3),
    st.none() | st.tuples(st.integers(0, 4094), st.integers(0, 7), st.integers(0, 1)),
    st.none() | st.integers(130, 9200),
    st.integers(1, 65535),
)


@given(specs, st.integers(0, 2**24 - 1))
def test_read_gives_back_what_was_built(spec: FrameSpec, number: int) -> None:
    if spec.kind is Kind.CNP:
        spec = replace(spec, size_bytes=None)
    data = packets.build(spec, number)
    info = packets.read(data)
    assert info.kind == ("other" if spec.kind is Kind.RAW else spec.kind.value)
    assert info.length == len(data) >= 60
    if spec.size_bytes is not None:
        assert spec.size_bytes - 3 <= len(data) <= spec.size_bytes
        assert len(data) == spec.size_bytes or spec.kind is Kind.ROCE
    assert (info.src_mac, info.dst_mac) == (spec.src_mac, spec.dst_mac)
    assert (info.vlan, info.pcp, info.dei) == ((None,) * 3 if spec.vlan is None else (spec.vlan, spec.pcp, spec.dei))
    if spec.kind is not Kind.RAW:
        assert (info.dscp, info.ecn, info.ttl) == (spec.dscp, spec.ecn, 64)
        assert (info.src_ip, info.dst_ip, info.src_port) == (spec.src_ip, spec.dst_ip, spec.src_port)
    if spec.kind is not Kind.CNP:
        assert (info.sequence, info.run) == (number, 1)
    if spec.kind is Kind.ROCE:
        assert (info.opcode, info.queue_pair, info.psn) == (0x24, 0x100, number)
    assert info.invalid is None


@given(
    st.binary(max_size=120)
    | st.builds(lambda data, cut: packets.build(V6)[:cut] + data, st.binary(), st.integers(0, 90))
)
def test_reading_garbage_never_raises(data: bytes) -> None:
    info = packets.read(data)
    assert info.length == len(data)
    assert isinstance(info.text(), str)
    assert info.kind in packets.KINDS


@pytest.mark.parametrize(
    ("frame", "kind", "fields"),
    [
        (Ether() / ARP(), "arp", {}),
        (Ether() / IP(proto=1) / Raw(bytes(8)), "icmp", {}),
        (Ether() / IPv6(nh=58) / Raw(bytes(8)), "icmpv6", {}),
        (Ether() / IP(frag=100) / Raw(bytes(8)), "ipv4", {"src_port": None}),
        (Ether() / IP(options=[b"\x01" * 8]) / UDP(sport=5, dport=6), "udp", {"src_port": 5, "dst_port": 6}),
        (Ether() / Dot1Q(vlan=7, prio=6) / IP(tos=3) / TCP(sport=5, dport=6), "tcp", {"pcp": 6, "vlan": 7, "ecn": 3}),
        (Ether(type=0x88CC) / Raw(bytes(50)), "lldp", {}),
        (Ether() / IP(len=200) / UDP(), "ipv4", {"invalid": "truncated"}),
        (Ether(bytes(pfc.build_pfc(pfc.pfc_frame(bytes(6), {3: 9}, xon=[1])))), "pfc", {}),
    ],
)
def test_kinds(frame: Ether, kind: str, fields: dict[str, object]) -> None:
    info = packets.read(bytes(frame))
    assert info.kind == kind
    assert {name: getattr(info, name) for name in fields} == fields


def test_lines() -> None:
    spec = replace(BASE, kind=Kind.ROCE, dscp=26, ecn=2, vlan=5, pcp=3)
    assert packets.read(packets.build(spec, 4)).text() == (
        "roce    86 B  vlan 5 pcp 3 dei 0  10.1.0.1:49152 > 10.2.0.7:4791  dscp 26 ecn 2 (ECT(0)) ttl 64  "
        "opcode 0x24 qp 0x100 psn 4  seq 4"
    )
    frame = pfc.build_pfc(pfc.pfc_frame(bytes.fromhex("020100000001"), {3: 9}, xon=[1]))
    assert packets.read(frame).text() == "pfc     60 B  02:01:00:00:00:01 > 01:80:c2:00:00:01  1:XON  3:XOFF 9"
    assert packets.read(frame[:50]).text().endswith("INVALID length: 50 bytes, must be 60 (64 with FCS)")


def test_sizes_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"size: 41 bytes, must be 42\.\.9200"):
        packets.build(replace(BASE, size_bytes=41))
    assert len(packets.build(replace(BASE, size_bytes=42))) == 60  # padded, as Ethernet wants


def test_the_tag_goes_back_where_the_kernel_took_it_from() -> None:
    """struct tpacket_auxdata: status (VLAN valid 0x10, TPID valid 0x40), len, snaplen, mac, net, TCI, TPID."""
    tagged = bytes(Ether() / Dot1Q(vlan=7, prio=6) / IP() / UDP())
    bare = tagged[:12] + tagged[16:]
    numbers = (0x51).to_bytes(4, "little") + bytes(12) + (6 << 13 | 7).to_bytes(2, "little") + b"\x00\x81"
    assert restore_tag(bare, numbers) == tagged
    assert restore_tag(bare, bytes(20)) == bare


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_what_was_built(tmp_path: Path) -> None:
    made = [
        replace(base, kind=kind, vlan=9, pcp=3, size_bytes=None if kind is Kind.CNP else 200)
        for base in (BASE, V6)
        for kind in (Kind.UDP, Kind.TCP, Kind.ROCE, Kind.CNP)
    ]
    made += [replace(BASE, kind=Kind.ROCE, opcode=0x0A, size_bytes=None)]
    capture = tmp_path / "frames.pcap"
    wrpcap(str(capture), [Ether(packets.build(spec)) for spec in made])
    command = ["tshark", "-r", str(capture), "-T", "fields", "-E", "separator=;"]
    command += ["-o", "udp.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"]
    fields = ["vlan.priority", "vlan.id", "ip.dsfield.dscp", "ip.dsfield.ecn", "ipv6.tclass.dscp", "ipv6.tclass.ecn"]
    fields += ["udp.checksum.status", "tcp.checksum.status", "infiniband.bth.opcode", "infiniband.bth.destqp"]
    for field in [*fields, "_ws.malformed", "_ws.expert.severity"]:
        command += ["-e", field]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == len(made)
    for spec, line in zip(made, lines, strict=True):
        pcp, vid, dscp4, ecn4, dscp6, ecn6, udp, tcp, opcode, qp, malformed, _ = line.split(";")
        assert (pcp, vid) == (("3", "9") if spec.vlan else ("", ""))
        four = ":" not in spec.dst_ip
        assert (dscp4, ecn4, dscp6, ecn6) == (("10", "1", "", "") if four else ("", "", "10", "1"))
        assert malformed == ""
        roce = spec.kind in (Kind.ROCE, Kind.CNP)
        assert udp == ("" if spec.kind is Kind.TCP else "3" if roce and four else "1")  # 1 good, 3 absent
        assert tcp == ("1" if spec.kind is Kind.TCP else "")
        if roce:
            assert int(opcode) == (0x81 if spec.kind is Kind.CNP else spec.opcode)
            assert int(qp, 16) == 0x100


def test_a_written_capture_reads_back_and_tshark_agrees(tmp_path: Path) -> None:
    path = tmp_path / "one.pcap"
    frame = bytes.fromhex("0180c20000010200000000018808" + "0101" + "0008" + "0000" * 3 + "ffff" + "0000" * 4) + bytes(
        26
    )
    writer = CaptureWriter(path)
    writer.write(frame, time.monotonic_ns())
    writer.close()
    ((time_ps, data),) = read_capture(path)
    assert data == frame
    assert abs(time_ps - time.time_ns() * 1000) < 60 * 10**12
    if shutil.which("tshark"):
        fields = ["-T", "fields", "-e", "macc.opcode", "-e", "macc.cbfc.pause_time.c3"]
        shown = subprocess.run(["tshark", "-r", path, *fields], capture_output=True, text=True, check=True).stdout
        assert shown.split() == ["0x0101", "65535"]

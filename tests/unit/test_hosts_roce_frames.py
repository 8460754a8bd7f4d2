"""Frames of the C sender (dry run, sanitizer build) against scapy and tshark; its schedule against its formula."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw
from scapy.utils import wrpcap

from hosts.roce import binary

OPCODES = {"uc-send": 0x24, "rc-send": 0x04, "uc-write": 0x2A, "rc-write": 0x0A}
V4 = ("10.1.0.1", "10.2.0.7")
V6 = ("fd00:1::1", "fd00:2::7")


def dry_run(*options: str, count: int = 3, addresses: tuple[str, str] = V4) -> list[dict[str, Any]]:
    command = [binary(sanitize=True), "send", "--interface", "lo", "--src", addresses[0], "--dst", addresses[1]]
    command += ["--src-mac", "02:00:00:00:01:01", "--dst-mac", "02:01:00:00:01:01", "--link-rate", "100M"]
    done = subprocess.run([*command, "--dry-run", str(count), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def raw(record: dict[str, Any]) -> bytes:
    return bytes.fromhex(record["bytes"])


def expected(
    data: bytes, addresses: tuple[str, str], opcode: int, psn: int, payload_bytes: int, tag: tuple[int, int] | None
) -> bytes:
    """The whole frame as scapy builds it; only the payload is taken from `data`."""
    link = Ether(src="02:00:00:00:01:01", dst="02:01:00:00:01:01")
    if tag is not None:
        link = link / Dot1Q(vlan=tag[0], prio=tag[1])
    if addresses is V6:
        network = IPv6(src=addresses[0], dst=addresses[1], tc=26 << 2 | 2, hlim=64) / UDP(sport=49152, dport=4791)
    else:
        network = IP(src=addresses[0], dst=addresses[1], tos=26 << 2 | 2, ttl=64, flags="DF", id=0)
        network = network / UDP(sport=49152, dport=4791, chksum=0)
    pad = -payload_bytes % 4
    payload = data[-4 - pad - payload_bytes : -4 - pad]
    reth = b"" if opcode not in (0x0A, 0x2A) else bytes(8) + (1).to_bytes(4, "big") + payload_bytes.to_bytes(4, "big")
    bth = BTH(opcode=opcode, padcount=pad, pkey=0xFFFF, dqpn=0x100, psn=psn)
    return bytes(link / network / bth / Raw(reth + payload + bytes(pad)))


@pytest.mark.parametrize("addresses", [V4, V6])
@pytest.mark.parametrize(("opcode", "tag"), [*zip(sorted(OPCODES), [None, (5, 3), (4094, 7), None], strict=True)])
def test_bytes_equal_scapy(addresses: tuple[str, str], opcode: str, tag: tuple[int, int] | None) -> None:
    """Headers, IPv4 and UDP checksums and the ICRC, all as scapy computes them; every pad length, the PSN wraps."""
    payloads = [24, 25, 26, 27, 1023, 1024]
    options = ["--opcode", opcode, "--psn", "0xfffffe"]
    options += [] if tag is None else ["--vlan", str(tag[0]), "--pcp", str(tag[1])]
    for payload in payloads:
        options += ["--flow", f"payload={payload},dest-qp=0x100,udp-source-port=49152"]
    records = dry_run(*options, addresses=addresses)
    assert [(r["flow"], number % 3) for number, r in enumerate(records)] == [(f, n) for f in range(6) for n in range(3)]
    for index, record in enumerate(records):
        data, payload, number = raw(record), payloads[index // 3], index % 3
        psn = (0xFFFFFE + number) % (1 << 24)
        assert data == expected(data, addresses, OPCODES[opcode], psn, payload, tag)
        pad = -payload % 4
        body = data[-4 - pad - payload : -4 - pad]
        assert body[:4] == bytes.fromhex("dcb10001")
        assert int.from_bytes(body[8:16], "big") == number
        assert int.from_bytes(body[16:24], "big") == record["due_ns"]
        assert body[24:] == bytes(i & 0xFF for i in range(24, payload))


def test_queue_pairs_have_their_own_ports_and_numbers() -> None:
    records = dry_run("--qps", "3", "--dest-qp", "0xfffffe", "--udp-source-port", "65534", count=2)
    seen = [(r["flow"], Ether(raw(r))[UDP].sport, Ether(raw(r))[BTH].dqpn, Ether(raw(r))[BTH].psn) for r in records]
    assert seen == [
        *((0, 65534, 0xFFFFFE, 0), (0, 65534, 0xFFFFFE, 1)),
        *((1, 65535, 0xFFFFFF, 0), (1, 65535, 0xFFFFFF, 1)),
        *((2, 0, 0, 0), (2, 0, 0, 1)),
    ]


def test_flow_overrides_what_the_options_say() -> None:
    (record,) = dry_run(
        "--flow", "dst-ip=10.9.9.9,dst-mac=02:00:00:00:00:09,dscp=48,ecn=1,dest-qp=7,udp-source-port=1", count=1
    )
    packet = Ether(raw(record))
    assert (packet.dst, packet[IP].dst, packet[IP].tos) == ("02:00:00:00:00:09", "10.9.9.9", 48 << 2 | 1)
    assert (packet[UDP].sport, packet[BTH].dqpn) == (1, 7)


@pytest.mark.parametrize(
    ("options", "bits", "rate_bps"),
    [
        ((), (82 + 24) * 8, 100_000_000),
        (("--rate", "60M"), (82 + 24) * 8, 60_000_000),
        (("--rate", "7M", "--rate-of", "frame"), 82 * 8, 7_000_000),
        (("--rate", "333333", "--rate-of", "payload"), 24 * 8, 333_333),
    ],
)
def test_schedule_is_exact(options: tuple[str, ...], bits: int, rate_bps: int) -> None:
    """Packet n is due at floor(n * bits / rate): no error adds up, not over 3000 packets either."""
    due = [record["due_ns"] for record in dry_run("--payload", "24", *options, count=3000)]
    assert due == [n * bits * 10**9 // rate_bps for n in range(3000)]


def test_rate_is_shared_to_the_last_bit() -> None:
    records = dry_run("--qps", "3", "--rate", "100", "--rate-of", "payload", count=2)
    assert [r["due_ns"] for r in records if r["due_ns"]] == [8192 * 10**9 // rate for rate in (34, 33, 33)]


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_roce(tmp_path: Path) -> None:
    records = dry_run("--payload", "41", "--opcode", "rc-write") + dry_run(addresses=V6)
    capture = tmp_path / "roce.pcap"
    wrpcap(str(capture), [Ether(raw(r)) for r in records])
    fields = ["bth.opcode", "bth.p_key", "bth.destqp", "bth.psn", "bth.padcnt", "reth.dmalen", "invariant.crc"]
    command = ["tshark", "-r", str(capture), "-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
    command += ["-T", "fields", "-E", "separator=;"]
    for field in [*(f"infiniband.{f}" for f in fields), "ip.dsfield.dscp", "ipv6.tclass.ecn", "udp.checksum.status"]:
        command += ["-e", field]
    command += ["-e", "ip.checksum.status", "-e", "_ws.malformed"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    got = [line.split(";") for line in lines]
    assert len(got) == 6
    for n, (opcode, pkey, qp, psn, pad, dma, crc, dscp, ecn, udp, ip, malformed) in enumerate(got):
        assert int(opcode) == (0x0A if n < 3 else 0x24)
        assert (int(pkey, 0), int(qp, 0), int(psn), malformed) == (0xFFFF, 0x100, n % 3, "")
        assert int(crc, 0) == int.from_bytes(raw(records[n])[-4:], "big")
        if n < 3:
            assert (int(pad), int(dma), int(dscp), ip) == (3, 41, 26, "1")
            assert udp == "3"  # not present: 0, as the sender means it
        else:
            assert (int(pad), ecn, udp) == (0, "2", "1")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["send"], "--interface is required"),
        (["send", "-i", "lo"], "--link-rate is required to honour PFC"),
        (["send", "-i", "lo", "--no-pfc"], "--rate or --link-rate is required"),
        (["send", "-i", "lo", "--link-rate", "1M"], "--dst is required"),
        (["send", "-i", "lo", "--link-rate", "1M", "--dst", "::1"], "--dst-mac is required"),
        (["send", "-i", "lo", "--rate", "12X"], "--rate: '12X' is not a rate in bit/s"),
        (["send", "-i", "lo", "--rate", "0.3"], "--rate: '0.3' is not a rate in bit/s"),
        (["send", "-i", "lo", "--rate", "0"], "--rate: 0 is out of range, must be 1 bit/s..1.6T"),
        (["send", "-i", "lo", "--dscp", "64"], "--dscp: 64 is out of range, must be 0..63"),
        (["send", "-i", "lo", "--payload", "23"], "--payload: 23 is out of range, must be 24..9000"),
        (["send", "-i", "lo", "--dst-mac", "02:00:00:00:00"], "'02:00:00:00:00' is not a MAC address"),
        (["send", "-i", "lo", "--dst", "10.0.0.256"], "'10.0.0.256' is not an IPv4 or IPv6 address"),
        (["send", "-i", "lo", "--duration", "5h"], "'5h' is not a duration"),
        (["send", "-i", "lo", "--priority", "8"], "--priority: 8 is out of range, must be 0..7"),
        (["send", "-i", "lo", "--opcode", "ud"], "--opcode: 'ud' is not uc-send"),
        (["send", "-i", "lo", "--no-pfc", "--rate", "1M", "--flow", "speed=1"], "--flow: unknown key 'speed'"),
        (["send", "-i", "lo", "--no-pfc", "--rate", "1M", "--flow", "dscp"], "'dscp' is not KEY=VALUE"),
        (["recv"], "--interface is required"),
        (["recv", "-i", "lo", "--drain-rate", "1M"], "--drain-rate: needs --link-rate"),
        (["recv", "-i", "lo", "--xoff", "5", "--xon", "5"], "--xon: 5 must be less than --xoff 5"),
        (["recv", "-i", "lo", "stray"], "unexpected argument 'stray'"),
        (["replay"], "--link-rate is required"),
    ],
)
def test_wrong_use_says_what_is_wrong(options: list[str], words: str) -> None:
    done = subprocess.run([binary(sanitize=True), *options], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_an_absent_interface_is_a_failed_run() -> None:
    command = [binary(sanitize=True), "recv", "-i", "nosuch0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (1, "error: interface nosuch0: No such device")

"""The RoCEv2 programs and dcbtraffic between two network namespaces: order, loss, contents and counters; no timing.

Pauses are begun before the run starts (`--wait`) or awaited by what the sender reports, so nothing here races.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from typer.testing import CliRunner

from dcb import pfc
from hosts import packets
from hosts.build import build
from hosts.cli import app
from hosts.packets import FrameSpec, Kind
from hosts.roce import binary, parse_events, result
from hosts.wire import Port

pytestmark = pytest.mark.mininet

A, B, C = (f"dcbt{os.getpid()}{letter}" for letter in "abc")
MAC_A, MAC_B = "02:00:00:00:0a:01", "02:00:00:00:0b:01"
SOURCE = bytes.fromhex("020000000b01")
NEVER_ENDS = 65535  # quanta; 33.5 s at the 1 Mb/s that tests give as the link rate


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> Iterator[None]:
    """A with interface a (10.9.0.1, fd09::1), B with interface b (10.9.0.2, fd09::2), static neighbours."""
    try:
        ip("netns", "add", A)
        ip("netns", "add", B)
        own, peer = ("a", "address", MAC_A, "netns", A), ("b", "address", MAC_B, "netns", B)
        ip("link", "add", "name", *own, "type", "veth", "peer", "name", *peer)
        for name, device, host, other, mac in ((A, "a", 1, 2, MAC_B), (B, "b", 2, 1, MAC_A)):
            ip("-n", name, "addr", "add", f"10.9.0.{host}/24", "dev", device)
            ip("-n", name, "addr", "add", f"fd09::{host}/64", "dev", device, "nodad")
            ip("-n", name, "link", "set", "dev", device, "up")
            ip("-n", name, "neigh", "add", f"10.9.0.{other}", "lladdr", mac, "dev", device)
            ip("-n", name, "neigh", "add", f"fd09::{other}", "lladdr", mac, "dev", device)
        yield
    finally:
        for name in (A, B):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.fixture(scope="module", params=["plain", "sanitized"])
def roce(request: pytest.FixtureRequest) -> Path:
    return binary(sanitize=request.param == "sanitized")


class Program:
    """A program in a namespace, read line by line as JSON; ended with the block."""

    def __init__(self, namespace: str, *command: object) -> None:
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def await_event(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        assert self._process.stdout is not None
        for event in parse_events(self._process.stdout):
            if wanted(event):
                return event
        pytest.fail(f"ended without the event that was awaited: {self._process.communicate()[1]}")

    def ready(self) -> Self:
        self.await_event(lambda event: event["event"] == "ready")
        return self

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def finish(self) -> str:
        out, err = self._process.communicate(timeout=30)
        assert self._process.returncode == 0, err
        return out

    def result(self) -> dict[str, Any]:
        return result(self.finish())


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread in another network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/self/ns/net").open() as home, Path(f"/run/netns/{namespace}").open() as there:
        assert libc.setns(there.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            assert libc.setns(home.fileno(), 0) == 0


@contextlib.contextmanager
def port(namespace: str, device: str, *, receive: bool = False) -> Iterator[Port]:
    """A packet socket in a namespace: opened there, used from here."""
    with inside(namespace):
        opened = Port(device, receive=receive)
    with opened:
        yield opened


def sender(roce: Path, *options: str, six: bool = False) -> Program:
    command = [roce, "send", "-i", "a", "--dst", "fd09::2" if six else "10.9.0.2", "--dst-mac", MAC_B, "--wait"]
    return Program(A, *command, *options)


def receiver(roce: Path, *options: str) -> Program:
    return Program(B, roce, "recv", "-i", "b", *options)


def send_pfc(frame: bytes) -> None:
    with port(B, "b") as peer:
        peer.send(frame)


def xoff(priority: int, quanta: int = NEVER_ENDS) -> bytes:
    return pfc.build_pfc(pfc.pfc_frame(SOURCE, {priority: quanta}))


def xon(priority: int) -> bytes:
    return pfc.build_pfc(pfc.pfc_frame(SOURCE, xon=[priority]))


@pytest.mark.parametrize(
    ("options", "six", "dscp", "pcp"),
    [
        (["--qps", "3"], False, 26, None),
        (["--payload", "1001", "--vlan", "5", "--pcp", "3", "--opcode", "rc-write"], True, 26, 3),
        (["--dscp", "48", "--ecn", "3", "--flow", "dscp=48,dest-qp=9,rate=5M", "--qps", "1"], False, 48, None),
    ],
)
def test_all_arrive_in_order(roce: Path, options: list[str], six: bool, dscp: int, pcp: int | None) -> None:
    with receiver(roce, "--expect", "2000").ready() as r:
        with sender(roce, "--link-rate", "1G", "--rate", "50M", "--packets", "2000", *options, six=six) as s:
            s.go()
            sent = s.result()
        got = r.result()
    assert (sent["sent"], sent["offered"], sent["interface_tx_dropped"]) == (2000, 2000, 0)
    assert (got["received"], got["bytes"], got["payload_bytes"]) == (2000, sent["bytes"], sent["payload_bytes"])
    zeros = ("lost", "reordered", "duplicates", "stale", "icrc_errors", "kernel_drops", "other", "malformed")
    assert {name: got[name] for name in zeros} == dict.fromkeys(zeros, 0)
    key = ("src", "dst", "udp_source_port", "dest_qp", "run", "dscp")
    assert {tuple(f[k] for k in key): f["sent"] for f in sent["flows"]} == {
        tuple(f[k] for k in key): f["received"] for f in got["flows"]
    }
    for flow in got["flows"]:
        assert flow["dscp"] == dscp
        assert flow["psn_errors"] == flow["payload_errors"] == flow["dscp_changes"] == 0
        assert flow["untagged"] + sum(flow["by_pcp"]) == flow["received"]
        assert flow["by_pcp"][pcp] == flow["received"] if pcp is not None else flow["untagged"] == flow["received"]
        assert 0 <= flow["latency_min_ns"] <= flow["latency_mean_ns"] <= flow["latency_max_ns"]
        quantiles = [flow[f"latency_{q}_ns"] for q in ("min", "p50", "p99", "p999", "max")]
        assert quantiles == sorted(quantiles)


def test_xoff_of_its_priority_stops_the_sender_and_xon_resumes_it(roce: Path) -> None:
    with receiver(roce, "--expect", "500").ready() as r:
        options = ["--link-rate", "1M", "--packets", "500", "--payload", "24", "--progress", "20ms"]
        with sender(roce, *options).ready() as s:
            send_pfc(xoff(3))
            s.go()
            for _ in range(3):
                report = s.await_event(lambda e: e["event"] == "progress")
                assert (report["sent"], report["pfc_xoff_rx"]) == (0, 1)
            assert 0 < report["paused_ns"] <= report["duration_ns"]
            send_pfc(xon(3))
            sent = s.result()
        got = r.result()
    assert (sent["sent"], sent["pfc_xoff_rx"], sent["pfc_xon_rx"]) == (500, 1, 1)
    assert report["paused_ns"] < sent["paused_ns"] == sent["paused_ns_by_priority"][3] < sent["duration_ns"]
    assert (got["received"], got["lost"], got["reordered"]) == (500, 0, 0)


def test_xoff_in_full_flight_stops_it(roce: Path) -> None:
    """After the first report that shows the pause, not one more frame leaves until XON."""
    with receiver(roce, "--expect", "400").ready() as r:
        options = ["--link-rate", "1M", "--packets", "400", "--payload", "24", "--progress", "20ms"]
        with sender(roce, *options) as s:
            s.go()
            s.await_event(lambda e: e["event"] == "progress" and e["sent"] > 0)
            send_pfc(xoff(3))
            stopped = s.await_event(lambda e: e["event"] == "progress" and e["pfc_xoff_rx"] == 1)
            for _ in range(3):
                later = s.await_event(lambda e: e["event"] == "progress")
                assert later["sent"] == stopped["sent"] < 400
            send_pfc(xon(3))
            assert s.result()["sent"] == 400
        got = r.result()
    assert (got["received"], got["lost"], got["reordered"]) == (400, 0, 0)


def test_a_pause_that_runs_out_resumes_it(roce: Path) -> None:
    """200 quanta at 1 Mb/s are 102.4 ms: never counted as more, whenever the process ran."""
    with receiver(roce, "--expect", "50").ready() as r:
        with sender(roce, "--link-rate", "1M", "--packets", "50", "--payload", "24").ready() as s:
            send_pfc(xoff(3, 200))
            s.go()
            sent = s.result()
        assert r.result()["received"] == 50
    assert (sent["sent"], sent["pfc_xoff_rx"], sent["pfc_xon_rx"]) == (50, 1, 0)
    assert sent["pauses_by_priority"] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert sent["paused_ns"] <= 102_400_000


@pytest.mark.parametrize("backlog", ["drop", "keep"])
def test_what_was_due_while_paused(roce: Path, backlog: str) -> None:
    """Dropped, the pause comes off the schedule to the packet; kept, everything due is sent by the end."""
    bits, rate_bps, duration_ns = (82 + 24) * 8, 100_000, 1_500_000_000
    options = ["--link-rate", "1M", "--rate", str(rate_bps), "--payload", "24", "--duration", "1.5s"]
    with sender(roce, *options, "--backlog", backlog, "--progress", "20ms").ready() as s:
        send_pfc(xoff(3))
        s.go()
        s.await_event(lambda e: e["event"] == "progress" and e["paused_ns"] > 100_000_000)
        send_pfc(xon(3))
        sent = s.result()
    assert (sent["duration_ns"], sent["pauses_by_priority"][3]) == (duration_ns, 1)
    assert sent["offered"] == -(-duration_ns * rate_bps // (bits * 10**9))
    at_work_ns = duration_ns - (sent["paused_ns"] if backlog == "drop" else 0)
    assert sent["sent"] == -(-at_work_ns * rate_bps // (bits * 10**9))


bad_destination = b"\x01\x80\xc2\x00\x00\x02" + xoff(3)[6:]


@pytest.mark.parametrize(
    ("frame", "options", "counted"),
    [
        (xoff(4), [], ("pfc_xoff_rx_by_priority", 4)),
        (xoff(3), ["--priority", "4"], ("pfc_xoff_rx_by_priority", 3)),
        (xoff(3), ["--no-pfc"], ("pfc_xoff_rx_by_priority", 3)),
        (xoff(3), ["--dscp", "0"], ("pfc_xoff_rx_by_priority", 3)),
        (bad_destination, [], ("pfc_invalid", "destination")),
        (xoff(3) + b"\0", [], ("pfc_invalid", "length")),
        (xoff(3)[:-1] + b"\1", [], ("pfc_invalid", "pad")),
        (pfc.build_pause(pfc.PauseFrame(SOURCE, NEVER_ENDS)), [], None),
    ],
    ids=["other", "of-priority-4", "no-pfc", "dscp-0", "destination", "length", "pad", "pause"],
)
def test_what_must_not_stop_it(
    roce: Path, frame: bytes, options: list[str], counted: tuple[str, int | str] | None
) -> None:
    with receiver(roce, "--expect", "100").ready() as r:
        with sender(roce, "--link-rate", "1M", "--packets", "100", "--payload", "24", *options).ready() as s:
            send_pfc(frame)
            s.go()
            sent = s.result()
        assert r.result()["received"] == 100
    assert (sent["sent"], sent["paused_ns"]) == (100, 0)
    if counted is not None:
        assert sent[counted[0]][counted[1]] == 1


def test_one_sender_two_priorities(roce: Path) -> None:
    with receiver(roce, "--expect", "100").ready() as r:
        flows = ["--flow", "dest-qp=3,packets=100", "--flow", "dest-qp=5,dscp=0,priority=0,packets=100"]
        with sender(roce, "--link-rate", "1M", "--payload", "24", "--duration", "1s", *flows).ready() as s:
            send_pfc(xoff(3))
            s.go()
            sent = s.result()
        got = r.result()
    assert [f["sent"] for f in sent["flows"]] == [0, 100]
    assert [f["dest_qp"] for f in got["flows"]] == [5]
    assert (sent["paused_ns_by_priority"][0], sent["paused_ns_by_priority"][3]) == (0, 1_000_000_000)


def test_a_slow_receiver_holds_the_sender_back_and_loses_nothing(roce: Path) -> None:
    """The receiver's buffer drains slower than the sender sends: with PFC nothing is dropped, without it is."""
    slow = ["--drain-rate", "20M", "--link-rate", "100M", "--idle-timeout", "300ms"]
    with receiver(roce, *slow, "--xoff", "60000", "--xon", "30000", "--buffer", "50000000").ready() as r:
        with sender(roce, "--link-rate", "100M", "--packets", "800") as s:
            s.go()
            sent = s.result()
        got = r.result()
    assert (sent["sent"], got["received"], got["lost"], got["buffer"]["dropped"]) == (800, 800, 0, 0)
    assert 0 < sent["pfc_xoff_rx"] <= got["buffer"]["pfc_xoff_tx"]
    assert 0 < sent["pfc_xon_rx"] <= got["buffer"]["pfc_xon_tx"]
    assert got["buffer"]["peak_bytes"] >= 60000
    with receiver(roce, *slow, "--xoff", "60000", "--xon", "30000", "--buffer", "100000").ready() as r:
        with sender(roce, "--link-rate", "100M", "--packets", "800", "--no-pfc") as s:
            s.go()
            assert s.result()["sent"] == 800
        got = r.result()
    assert got["buffer"]["dropped"] == 800 - got["received"] > 0


SPEC = FrameSpec(kind=Kind.ROCE, src_mac=MAC_A, dst_mac=MAC_B, src_ip="10.9.0.1", dst_ip="10.9.0.2", ecn=2, dscp=26)


def test_the_receiver_tells_loss_reordering_duplicates_and_damage(roce: Path) -> None:
    """By hand: 0 1 3 2 2 6 arrive (4 and 5 lost, 2 late and twice), one CE; then damage and strangers."""
    ce = packets.build(replace(SPEC, ecn=3), 6)
    frames = [packets.build(SPEC, n) for n in (0, 1, 3, 2, 2)] + [ce]
    damaged = bytearray(packets.build(SPEC, 7))
    damaged[-1] ^= 1
    stranger = packets.build(replace(SPEC, kind=Kind.CNP))
    cut = bytearray(packets.build(SPEC, 8))
    cut[16:18] = (2000).to_bytes(2, "big")  # an IPv4 length beyond the frame
    with receiver(roce).ready() as r:
        with port(A, "a") as a:
            for frame in [*frames, bytes(damaged), stranger, bytes(cut)]:
                a.send(frame)
        r.signal(signal.SIGTERM)
        got = r.result()
    assert (got["received"], got["lost"], got["reordered"], got["duplicates"]) == (6, 2, 1, 1)
    assert (got["ce_marked"], got["ect"], got["icrc_errors"], got["other"], got["malformed"]) == (1, 5, 1, 1, 1)


def test_the_receiver_survives_random_frames(roce: Path) -> None:
    """Every prefix of RoCEv2 frames, and frames with one byte changed everywhere: none may upset it."""
    six = replace(SPEC, src_ip="fd09::1", dst_ip="fd09::2", opcode=0x0A, vlan=3)
    whole = [packets.build(SPEC, 1), packets.build(six, 1)]
    with receiver(roce, "--until-stdin-closes").ready() as r:
        with port(A, "a") as a:
            for data in whole:
                for at in range(14, len(data)):
                    a.send(data[:at])
                    a.send(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
            a.send(packets.build(SPEC, 0))
        got = result(r.finish())  # communicate() closes stdin
    assert got["malformed"] + got["other"] + got["icrc_errors"] > 0
    assert [f["received"] for f in got["flows"] if f["run"] == 1 and f["src"] == "10.9.0.1" and f["dest_qp"] == 0x100]


@pytest.mark.parametrize("role", ["send", "recv"])
def test_a_signal_ends_it_with_a_result(roce: Path, role: str) -> None:
    program = sender(roce, "--link-rate", "1M", "--progress", "10ms") if role == "send" else receiver(roce)
    with program.ready() as p:
        if role == "send":
            p.go()
            p.await_event(lambda e: e["event"] == "progress")
        p.signal(signal.SIGINT)
        assert p.result()["role"] == role


def test_a_payload_beyond_the_mtu_is_a_failed_run(roce: Path) -> None:
    command = ["ip", "netns", "exec", A, roce, "send", "-i", "a", "--dst", "10.9.0.2", "--dst-mac", MAC_B]
    done = subprocess.run(
        [*command, "--link-rate", "1M", "--payload", "1457"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "makes an IP packet of 1504 bytes, interface a has an MTU of 1500" in done.stderr


# --- tools of `make bench` ------------------------------------------------------------------------------------------


@pytest.fixture
def beyond() -> Iterator[None]:
    """A third namespace C with interface d, linked to c in A: frames from B reach it through a forwarder in A."""
    try:
        ip("netns", "add", C)
        ip("link", "add", "name", "c", "netns", A, "type", "veth", "peer", "name", "d", "netns", C)
        ip("-n", A, "link", "set", "dev", "c", "up")
        ip("-n", C, "link", "set", "dev", "d", "up")
        yield
    finally:
        # a namespace goes away later than it is deleted, its end of the link with it
        subprocess.run(["ip", "-n", A, "link", "del", "dev", "c"], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", C], check=False, capture_output=True)


@pytest.mark.parametrize("sanitize", [False, True])
def test_flood_through_the_forwarder(beyond: None, sanitize: bool) -> None:
    """Paced so that nothing need be dropped: every frame that went in comes out, and is counted by its contents."""
    frame = packets.build(replace(SPEC, kind=Kind.UDP, src_mac=MAC_B, dst_mac=MAC_A, src_port=1000)).hex()
    forwarder, flood = (build(name, sanitize=sanitize) for name in ("forwarder", "flood"))
    match = f"36={int('9').to_bytes(2, 'big').hex()}"  # the UDP destination port
    with Program(A, forwarder, "a", "c").ready() as f:
        with Program(C, flood, "count", "d", "--match", match, "--idle-timeout", "500ms").ready() as count:
            options = ["--frame", frame, "--packets", "3000", "--rate", "10000", "--vary", "34,16"]
            with Program(B, flood, "send", "b", *options) as send:
                sent = send.result()
            got = count.result()
        f.signal(signal.SIGTERM)
        forwarded = f.result()
    assert (sent["sent"], got["frames"], got["kernel_drops"]) == (3000, 3000, 0)
    assert got["bytes"] == 3000 * len(frame) // 2
    left, right = forwarded["interfaces"]
    assert left["received"] >= 3000
    assert right["sent"] == left["received"]
    assert (right["tx_dropped"], left["kernel_drops"]) == (0, 0)


# --- dcbtraffic ----------------------------------------------------------------------------------------------------


def dcbtraffic(namespace: str, *arguments: str) -> Program:
    return Program(namespace, sys.executable, "-m", "hosts.cli", *arguments)


def dcbtraffic_here(namespace: str, arguments: str) -> str:
    """The same in this process, which spares it a start."""
    with inside(namespace):
        done = CliRunner().invoke(app, arguments.split())
    assert done.exit_code == 0, done.output
    return done.stdout


def events(text: str) -> list[dict[str, Any]]:
    return list(parse_events(text.splitlines()))


def test_dcbtraffic_sends_and_shows_classified_frames() -> None:
    """Addresses and next hops come from the namespace's routes and neighbours."""
    with dcbtraffic(B, "recv", "-j", "--count", "7", "--only", "udp,tcp,roce,cnp").ready() as r:
        for arguments in (
            "send udp --dst 10.9.0.2 --dscp 10 --ecn 1 --vlan 7 --pcp 5 --count 2 --size 200",
            "send tcp --dst fd09::2 --dport 80 --dscp 46",
            "send roce --dst 10.9.0.2 --count 3 --qp 0x42 --psn 0xffffff",
            "send cnp --dst fd09::2",
        ):
            dcbtraffic_here(A, arguments)
        seen = events(r.finish())
    frames, summary = seen[:-1], seen[-1]
    wanted = ("kind", "length", "vlan", "pcp", "dscp", "ecn", "src_ip", "dst_port", "queue_pair", "psn", "sequence")
    four, six = "10.9.0.1", "fd09::1"
    assert [tuple(f.get(k) for k in wanted) for f in frames] == [
        ("udp", 200, 7, 5, 10, 1, four, 9, None, None, 0),
        ("udp", 200, 7, 5, 10, 1, four, 9, None, None, 1),
        ("tcp", 98, None, None, 46, 0, six, 80, None, None, 0),
        ("roce", 82, None, None, 26, 2, four, 4791, 0x42, 0xFFFFFF, 0),
        ("roce", 82, None, None, 26, 2, four, 4791, 0x42, 0, 1),
        ("roce", 82, None, None, 26, 2, four, 4791, 0x42, 1, 2),
        ("cnp", 94, None, None, 48, 0, six, 4791, 0x100, 0, None),
    ]
    assert (summary["frames"], summary["by_kind"]) == (7, {"cnp": 1, "roce": 3, "tcp": 1, "udp": 2})


def test_the_wrapper_fills_in_the_way() -> None:
    """`python -m hosts.roce` takes interface, source and next hop from the namespace."""
    with Program(B, sys.executable, "-m", "hosts.roce", "recv", "--expect", "5").ready() as r:
        command = [sys.executable, "-m", "hosts.roce", "send", "--dst=fd09::2", "--link-rate", "1M"]
        with Program(A, *command, "--packets", "5") as s:
            sent = s.result()
        got = r.result()
    assert (sent["interface"], sent["sent"], got["received"], got["interface"]) == ("a", 5, 5, "b")
    assert got["flows"][0]["src"] == "fd09::1"


def test_frames_of_dcbtraffic_are_counted_by_roce_recv(roce: Path) -> None:
    with receiver(roce, "--expect", "20").ready() as r:
        dcbtraffic_here(A, "send roce --dst fd09::2 --count 20 --size 500")
        got = r.result()
    assert (got["received"], got["lost"], got["reordered"], got["icrc_errors"]) == (20, 0, 0, 0)


def test_dcbtraffic_sends_pfc_pause_and_a_storm() -> None:
    with port(B, "b", receive=True) as peer:
        for arguments in (
            "pfc --xoff 3,4 --xon 0 --time 7=9 --quanta 100 --count 2",
            "pfc --xoff 3 --dst-mac 01:80:c2:00:00:02 --high-byte 1 --length 64",
            "pause --quanta 5",
            "storm --xoff 3 --duration 50ms --interval 10ms --quanta 1000",
        ):
            dcbtraffic_here(A, arguments)
        own = bytes.fromhex(MAC_A.replace(":", ""))
        taken: list[bytes] = []
        while not taken or taken[-1] != pfc.build_pfc(pfc.pfc_frame(own, xon=[3])):
            captured = peer.receive(None)
            assert captured is not None
            if pfc.is_mac_control(captured.data):
                taken.append(captured.data)
    mixed = pfc.build_pfc(pfc.pfc_frame(own, {0: 0, 3: 100, 4: 100, 7: 9}))
    wrong = pfc.build_pfc(pfc.PfcFrame(own, 8, (0, 0, 0, 65535, 0, 0, 0, 0), 1))
    wrong = bytes.fromhex("0180c2000002") + wrong[6:] + bytes(4)
    storm = pfc.build_pfc(pfc.pfc_frame(own, {3: 1000}))
    assert taken[:4] == [mixed, mixed, wrong, pfc.build_pause(pfc.PauseFrame(own, 5))]
    assert taken[4:-1] == [storm] * 5


def test_dcbtraffic_shows_what_comes_back() -> None:
    """Nothing listens on UDP port 7777 of B: its kernel answers with an ICMP error that --listen shows."""
    ip("-n", B, "link", "set", "dev", "lo", "up")
    seen = events(dcbtraffic_here(A, "send udp --dst 10.9.0.2 --dport 7777 --listen 500ms -j"))
    assert seen[0] == {"event": "sent", "frames": 1, "bytes": 66, "interface": "a"}
    answers = [e for e in seen if e["event"] == "frame" and e["kind"] == "icmp"]
    assert [a["src_ip"] for a in answers] == ["10.9.0.2"]
    assert seen[-1]["event"] == "summary"


def test_dcbtraffic_decodes_pfc_in_text() -> None:
    with dcbtraffic(B, "listen", "--only", "pfc", "--count", "1") as r:
        assert r._process.stdout is not None
        assert r._process.stdout.readline() == "ready: interface b\n"
        with port(A, "a") as a:
            a.send(xoff(3, 100))
        out = r.finish()
    assert "3:XOFF 100" in out
    assert "PFC priority 3: 1 XOFF, 0 XON" in out


def test_dcbtraffic_names_a_missing_route() -> None:
    with inside(A):
        done = CliRunner().invoke(app, ["send", "--dst", "192.0.2.1"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("dcbtraffic: ")
    assert "192.0.2.1" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_dcbtraffic_recv_ends_with_its_summary(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "hosts.cli", "recv", "--dev", "lo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready: interface lo\n"
        process.send_signal(number)
        shown, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")
    assert re.search(r"\d+ frames, \d+ bytes in ", shown), shown

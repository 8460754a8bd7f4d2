"""`dcbtraffic rdma` between two network namespaces: the NIC core in real time. Counts, no timing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dcb.pfc import build_pfc, pfc_frame
from hosts.nic_config import Dcqcn

pytestmark = pytest.mark.mininet

A, B = (f"dcbr{os.getpid()}{letter}" for letter in "ab")
MACS = ("02:00:00:00:0a:01", "02:00:00:00:0b:01")
TRAFFIC = (sys.executable, "-m", "hosts.cli")
ROOT = Path(__file__).resolve().parents[2]
BYTES = 300_000
PACKETS = 293  # of at most 1,024 bytes


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> Iterator[None]:
    try:
        ip("netns", "add", A)
        ip("netns", "add", B)
        own, peer = ("a", "address", MACS[0], "netns", A), ("b", "address", MACS[1], "netns", B)
        ip("link", "add", "name", *own, "type", "veth", "peer", "name", *peer)
        for name, device, host, mac in ((A, "a", 1, MACS[1]), (B, "b", 2, MACS[0])):
            ip("-n", name, "addr", "add", f"10.9.0.{host}/24", "dev", device)
            ip("-n", name, "link", "set", "dev", device, "up")
            ip("-n", name, "neigh", "add", f"10.9.0.{3 - host}", "lladdr", mac, "dev", device)
        yield
    finally:
        for name in (A, B):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def start(namespace: str, *arguments: object) -> subprocess.Popen[str]:
    command = ["ip", "netns", "exec", namespace, *TRAFFIC, "rdma", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "ready" in line, process.communicate()[1]
    return process


def finish(process: subprocess.Popen[str], code: int = 0) -> dict[str, Any]:
    out, errors = process.communicate(timeout=30)
    assert process.returncode == code, errors
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def both(*options: object, code: int = 0, receiver: tuple[object, ...] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """Results of the sender in A and the receiver in B."""
    taker = start(B, "recv", "--from", "10.9.0.1", *receiver)
    try:
        sender = start(A, "send", "--dst", "10.9.0.2", *options)
        sent = finish(sender, code)
        taker.send_signal(signal.SIGTERM)
        return sent, finish(taker)
    finally:
        taker.kill()


def test_everything_arrives_and_marks_slow_a_dcqcn_sender_down() -> None:
    """All arrive as CE: a CNP at most every 50 us, and the first halves the rate, since alpha begins at 1."""
    options = ("--bytes", BYTES, "--link-rate", "40M", "--dcqcn", "paper", "--ecn", 3, "--duration", "20s")
    sent, received = both(*options, receiver=("--dcqcn", "paper", "--link-rate", "40M"))
    (mine,), (theirs,) = sent["flows"], received["flows"]
    assert (mine["state"], mine["bytes_acked"]) == ("finished", BYTES)
    assert (theirs["rx_bytes"], theirs["rx_messages"]) == (BYTES, 1)
    assert mine["packets_sent"] - mine["packets_resent"] == theirs["rx_packets"] == PACKETS
    # (58 + 24 bytes of headers and wire) a packet, 16 more in the first: not before that time at 40 Mb/s
    least_ps = (BYTES + PACKETS * 82 + 16 - 1024) * 8 * 10**12 // 40_000_000
    assert mine["finish_ps"] - mine["first_ps"] >= least_ps
    assert received["rx_ce"] >= PACKETS
    assert 0 < mine["cnps"] <= theirs["cnps_sent"] <= received["rx_ce"]
    assert sent["rate_after_cnp"][0][1] == 20_000_000
    assert all(Dcqcn.paper().min_rate_bps <= rate <= 40_000_000 for _, rate in sent["rate_after_cnp"])


def test_a_pause_holds_the_sender() -> None:
    """XOFF for 65535 quanta at 1 Mb/s is 33.5 s: nothing more is acknowledged before the sender is told to stop."""
    taker = start(B, "recv", "--from", "10.9.0.1", "--link-rate", "1M")
    sender = start(A, "send", "--dst", "10.9.0.2", "--link-rate", "1M", "--duration", "20s", "--rate", "1M")
    try:
        frame = build_pfc(pfc_frame(bytes.fromhex(MACS[1].replace(":", "")), {3: 65535}))
        code = (
            f"from hosts.wire import Port\nwith Port('b', receive=False) as p: p.send(bytes.fromhex('{frame.hex()}'))"
        )
        subprocess.run(["ip", "netns", "exec", B, sys.executable, "-c", code], check=True, cwd=ROOT)
        sender.send_signal(signal.SIGTERM)
        out, _ = sender.communicate(timeout=30)
        result = json.loads(out.splitlines()[-1])
        assert result["rx_pfc"] == 1
        assert result["paused_ps"][3] > 1.5 * 10**12  # it waits 2 s for acknowledgements, and is paused for all of them
    finally:
        for process in (taker, sender):
            process.kill()
            process.communicate()

"""Labs on BMv2 (simple_switch_grpc from the PATH) with the program dcb_bmv2: forwarding, and the main scenario."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.mininet,
    pytest.mark.bmv2,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for network namespaces"),
    pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="no simple_switch_grpc on the PATH"),
]

ROOT = Path(__file__).resolve().parents[2]


def dcblab(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DCBLAB_RUN": str(tmp_path / "run"), "DCBLAB_RESULTS": str(tmp_path / "results")}
    return subprocess.run(
        [sys.executable, "-m", "topologies.cli", *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_lab_forwards_answers_arp_and_says_what_cannot_be_read(tmp_path: Path) -> None:
    script = tmp_path / "commands"
    ask = f"sh {sys.executable} -m controller.cli show"
    script.write_text(
        "h1 ping -c 3 -W 5 h5\n"
        "h8 ping -6 -c 3 -W 5 fd00:1::1\n"
        'h3 python3 -c "from scapy.all import *; conf.verb=0; '
        "r=sr1(IP(dst='10.2.0.3')/ICMP(id=7,seq=9)/b'dcblab', timeout=5); print('SCAPY', r[ICMP].type, r[IP].src)\"\n"
        f"{ask} pfc leaf1:1\n"
        f"{ask} queue leaf1:1 -j > {tmp_path}/queue.json\n"
    )
    done = dcblab(tmp_path, "up", "--target", "bmv2", "--script", str(script))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert said.count("3 packets transmitted, 3 received, 0% packet loss") == 2, said
    assert "SCAPY 0 10.2.0.3" in said, said
    paused = said.partition("Paused ms")[2]
    assert re.search(r"leaf1-eth1(\s+N/A){8}", paused), said
    (port,) = json.loads((tmp_path / "queue.json").read_text())["ports"]
    assert port["depth_bytes"] == [None] * 8
    assert port["dequeued_packets"][0] > 0
    assert not (tmp_path / "run" / "lab").exists()


def test_storage_and_business(tmp_path: Path) -> None:
    """No storage loss with PFC, in order, business never paused: what `run` itself says.

    Its claim on shares (within 10 points) is a matter of time, and of who gets the processor: a run may fail it here.
    """
    done = dcblab(
        tmp_path, "run", "storage-and-business", "--target", "bmv2", "--duration", "10", "--out", str(tmp_path)
    )
    said = done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    failed = [check["claim"] for check in results["checks"] if not check["passed"]]
    assert [claim for claim in failed if "shares" not in claim] == [], said
    assert done.returncode == (1 if failed else 0), said
    assert (results["target"], results["rate_bps"]) == ("bmv2", 4_000_000)
    assert len(results["runs"]) == 3


def test_a_pause_holds_storage_until_it_is_resumed(tmp_path: Path) -> None:
    """h1 pauses priority 3 of its port (33.6 s at 1 Mb/s): what h2 sends it waits, and business goes on."""
    script, wait = tmp_path / "commands", tmp_path / "wait.py"
    ask = [sys.executable, "-m", "controller.cli", "show", "queue", "leaf1:1", "-j"]
    wait.write_text(  # each question takes half a second; the lab ends with the script
        "import json, subprocess, sys, time\n"
        "end = time.monotonic() + 15\n"
        "while time.monotonic() < end:\n"
        f"    text = subprocess.run({ask!r}, capture_output=True, text=True, check=True).stdout\n"
        "    (port,) = json.loads(text)['ports']\n"
        "    print(sys.argv[1], port['enqueued_packets'][3], port['dequeued_packets'][3], flush=True)\n"
        "    if port[sys.argv[2]][3] == int(sys.argv[3]):\n"
        "        break\n"
    )
    script.write_text(
        "h1 dcbtraffic pfc --xoff 3\n"
        "h2 dcbtraffic send roce --dst 10.1.0.1 --count 5\n"
        f"sh {sys.executable} {wait} PAUSED enqueued_packets 5\n"
        "h2 ping -c 1 -W 5 h1\n"
        "h1 dcbtraffic pfc --xon 3\n"
        f"sh {sys.executable} {wait} RESUMED dequeued_packets 5\n"
    )
    done = dcblab(tmp_path, "up", "--target", "bmv2", "--rate", "1M", "--script", str(script))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert re.findall(r"^PAUSED (\d+) (\d+)$", said, re.MULTILINE)[-1] == ("5", "0"), said
    assert "1 packets transmitted, 1 received" in said, said
    assert re.findall(r"^RESUMED (\d+) (\d+)$", said, re.MULTILINE)[-1] == ("5", "5"), said

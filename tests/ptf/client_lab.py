"""A switch process on veth pairs in a network namespace of its own, for clients that are not ours.

`lab` runs every test that takes it on `dcbswitch` and on BMv2 (the fixture `target` of tests/conftest.py). Several may
run at once: nothing is shared, and what is asserted is order and contents.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PORTS = (1, 2, 3)
DEVICE_ID = 7
CLONE_NEWNET, ETH_P_ALL = 0x40000000, 3  # sched.h, if_ether.h
READY_TIMEOUT_S = 20.0
EXECUTABLES = {"embedded": [sys.executable, "-m", "switch.cli"], "bmv2": ["simple_switch_grpc", "--log-level", "off"]}
SWITCH_OPTIONS = ["--cpu-port", "510", "--drop-port", "511", "--priority-queues", "8"]


@dataclass(frozen=True)
class Lab:
    """Ports `sN` of the switch, their far ends `hN` in the same namespace; P4Runtime on a unix socket."""

    namespace: str
    address: str
    target: str
    json: Path = REPOSITORY / "p4src/build/dcb.json"
    p4info: Path = REPOSITORY / "p4src/build/dcb.p4info.txtpb"
    device_id: int = DEVICE_ID

    @property
    def inside(self) -> list[str]:
        """A command's first words, to run it in the namespace."""
        return ["ip", "netns", "exec", self.namespace]

    def ip(self, *arguments: str) -> None:
        """`ip` in the namespace."""
        subprocess.run(["ip", "-n", self.namespace, *arguments], check=True)

    def raw_socket(self, interface: str) -> socket.socket:
        """A packet socket in the namespace, which a thread enters for it; reads wait 5 s at most."""

        def made() -> socket.socket:
            with Path("/run/netns", self.namespace).open() as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"setns {self.namespace}")
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # it hears nothing before it is bound
            opened.bind((interface, ETH_P_ALL))
            opened.settimeout(5)
            return opened

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(made).result()


def _await_listening(process: subprocess.Popen[bytes], path: Path) -> None:
    """Until the switch's socket takes connections (what it prints is its own affair)."""
    end = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(path))
                return
        except OSError:
            assert process.poll() is None, f"the switch ended with {process.returncode}"
            assert time.monotonic() < end, f"no P4Runtime server within {READY_TIMEOUT_S} s"
            time.sleep(0.02)


@pytest.fixture
def lab(tmp_path: Path, target: str) -> Iterator[Lab]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    path = tmp_path / "s.sock"
    made = Lab(f"dcbt{uuid.uuid4().hex[:8]}", f"unix:{path}", target)
    with ExitStack() as stack:
        subprocess.run(["ip", "netns", "add", made.namespace], check=True)
        stack.callback(subprocess.run, ["ip", "netns", "del", made.namespace], check=False)
        made.ip("link", "set", "lo", "up")  # for BMv2's Thrift server
        for port in PORTS:
            made.ip("link", "add", f"s{port}", "type", "veth", "peer", "name", f"h{port}")
            for interface in (f"s{port}", f"h{port}"):  # no IPv6: its own packets are not part of the test
                made.ip("link", "set", interface, "addrgenmode", "none", "up")
        ports = [argument for port in PORTS for argument in ("-i", f"{port}@s{port}")]
        flags = ["--device-id", str(DEVICE_ID), "--no-p4", "--", "--grpc-server-addr", made.address, *SWITCH_OPTIONS]
        process = subprocess.Popen(
            [*made.inside, *EXECUTABLES[target], *ports, *flags], stdout=subprocess.DEVNULL, cwd=REPOSITORY
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        _await_listening(process, path)
        yield made
        assert process.poll() is None, f"the switch ended with {process.returncode}"
        if target == "embedded":  # BMv2 says nothing by its exit code
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0

"""A `dcbswitch` process on veth pairs in a network namespace of its own, for clients that are not ours."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
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


@dataclass(frozen=True)
class Lab:
    """Ports `sN` of the switch, their far ends `hN` in the same namespace; P4Runtime on a unix socket."""

    namespace: str
    address: str
    json: Path = REPOSITORY / "p4src/build/dcb.json"
    p4info: Path = REPOSITORY / "p4src/build/dcb.p4info.txtpb"
    device_id: int = DEVICE_ID

    @property
    def inside(self) -> list[str]:
        """A command's first words, to run it in the namespace."""
        return ["ip", "netns", "exec", self.namespace]

    def raw_socket(self, interface: str) -> socket.socket:
        """A packet socket in the namespace, which a thread enters for it; reads wait 5 s at most."""

        def made() -> socket.socket:
            with Path("/run/netns", self.namespace).open() as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"setns {self.namespace}")
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            opened.bind((interface, 0))
            opened.settimeout(5)
            return opened

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(made).result()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    made = Lab(f"dcbt{uuid.uuid4().hex[:8]}", f"unix:{tmp_path}/s.sock")
    with ExitStack() as stack:
        subprocess.run(["ip", "netns", "add", made.namespace], check=True)
        stack.callback(subprocess.run, ["ip", "netns", "del", made.namespace], check=False)
        ip = ["ip", "-n", made.namespace, "link"]
        for port in PORTS:
            subprocess.run([*ip, "add", f"s{port}", "type", "veth", "peer", "name", f"h{port}"], check=True)
            for interface in (f"s{port}", f"h{port}"):  # no IPv6: its own packets are not part of the test
                subprocess.run([*ip, "set", interface, "addrgenmode", "none", "up"], check=True)
        ports = [argument for port in PORTS for argument in ("-i", f"{port}@s{port}")]
        flags = ["--device-id", str(DEVICE_ID), "--no-p4", "--", "--grpc-server-addr", made.address]
        process = subprocess.Popen(
            [*made.inside, sys.executable, "-m", "switch.cli", *ports, *flags],
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        stack.callback(process.kill)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"] is True
        yield made
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0

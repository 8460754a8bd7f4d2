"""`dcbswitch` as a process on real interfaces, driven by finsy: routes, packet I/O, groups that follow a lost link."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import finsy as fy
import pytest

pytestmark = [
    pytest.mark.mininet,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]

REPOSITORY = Path(__file__).parents[2]
JSON = REPOSITORY / "p4src/build/dcb.json"
P4INFO = REPOSITORY / "p4src/build/dcb.p4info.txtpb"
LLDP = bytes.fromhex("0180c200000e02000000000188cc") + bytes(46)
PORTS = (1, 2, 3)


class Lab:
    """A namespace with `sN` (the switch's port N) and `hN` (its far end), and a switch process in it."""

    def __init__(self, namespace: str, address: str, process: subprocess.Popen[str]) -> None:
        self.namespace = namespace
        self.address = address
        self.process = process

    def ip(self, *arguments: str) -> None:
        subprocess.run(["ip", "-n", self.namespace, *arguments], check=True)

    def raw_socket(self, interface: str) -> socket.socket:
        """A packet socket inside the namespace, made by a child and handed out over a unix socket."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        code = (
            "import socket,sys;u=socket.socket(fileno=int(sys.argv[1]));"
            "s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW,socket.ntohs(3));s.bind((sys.argv[2],0));"
            "socket.send_fds(u,[b'x'],[s.fileno()])"
        )
        with ours, theirs:
            command = [
                "ip",
                "netns",
                "exec",
                self.namespace,
                sys.executable,
                "-c",
                code,
                str(theirs.fileno()),
                interface,
            ]
            subprocess.run(command, check=True, pass_fds=[theirs.fileno()])
            _, (fd,), _, _ = socket.recv_fds(ours, 1, 1)
        made = socket.socket(fileno=fd)
        made.setblocking(False)
        return made

    def switch(self) -> fy.Switch:
        return fy.Switch("s", self.address, fy.SwitchOptions(p4info=P4INFO, p4blob=JSON, device_id=7))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    namespace = f"dcbt{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        subprocess.run(["ip", "netns", "add", namespace], check=True)
        stack.callback(subprocess.run, ["ip", "netns", "del", namespace], check=False)
        in_namespace = ["ip", "-n", namespace]
        for port in PORTS:
            subprocess.run(
                [*in_namespace, "link", "add", f"s{port}", "type", "veth", "peer", "name", f"h{port}"], check=True
            )
            for interface in (f"s{port}", f"h{port}"):
                subprocess.run([*in_namespace, "link", "set", interface, "addrgenmode", "none", "up"], check=True)
        address = f"unix:{tmp_path}/s.sock"
        interfaces = [argument for port in PORTS for argument in ("-i", f"{port}@s{port}")]
        process = subprocess.Popen(
            [
                *(
                    "ip",
                    "netns",
                    "exec",
                    namespace,
                    sys.executable,
                    "-m",
                    "switch.cli",
                    *interfaces,
                    "--device-id",
                    "7",
                ),
                *(f"--pcap={tmp_path}/pcap", "--no-p4", "--", "--grpc-server-addr", address),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(process.kill)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ports"] == {"1": "s1", "2": "s2", "3": "s3"}
        yield Lab(namespace, address, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


async def next_frame(source: socket.socket, ether_type: bytes, timeout_s: float = 5) -> bytes:
    """The next frame of an EtherType."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        while True:
            data = await loop.sock_recv(source, 2048)
            if data[12:14] == ether_type:
                return data


def udp(source_port: int) -> bytes:
    """A frame to 10.9.0.1 (header checksum by hand: RFC 791)."""
    head = bytearray.fromhex("45000024000040004011 0000 0a080001 0a090001".replace(" ", ""))
    total = sum(int.from_bytes(head[i : i + 2], "big") for i in range(0, 20, 2))
    total = (total & 0xFFFF) + (total >> 16)
    head[10:12] = (~total & 0xFFFF).to_bytes(2, "big")
    ports = source_port.to_bytes(2, "big") + (4791).to_bytes(2, "big") + (16).to_bytes(2, "big") + bytes(2)
    return bytes.fromhex("020000000001 020000000002 0800".replace(" ", "")) + bytes(head) + ports + bytes(22)


def entries() -> list[fy.P4TableEntry]:
    """10.9.0.0/16 through ports 2 and 3, each watched."""
    hops = [((1, port), fy.Action("forward", port=port, dst_mac=port)) for port in (2, 3)]
    table = [
        fy.P4TableEntry("ipv4_lpm", match=fy.Match(dst="10.9.0.0/16"), action=fy.Action("route", nexthop=1)),
        fy.P4TableEntry("ingress.nexthop", match=fy.Match(nexthop=1), action=fy.P4IndirectAction(hops)),
    ]
    for port in (2, 3):
        table.append(
            fy.P4TableEntry("port_mac", match=fy.Match(egress_port=port), action=fy.Action("set_src_mac", mac=port))
        )
    return table


async def ports_used(source: socket.socket, sinks: dict[int, socket.socket], count: int = 40) -> dict[int, int]:
    """How many of `count` flows come out of each port."""
    used = dict.fromkeys(sinks, 0)
    loop = asyncio.get_running_loop()
    for flow in range(count):
        await loop.sock_sendall(source, udp(1000 + flow))
        waiting = {asyncio.create_task(next_frame(sink, b"\x08\x00")): port for port, sink in sinks.items()}
        done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            assert task.result()[34:36] == (1000 + flow).to_bytes(2, "big")
            used[waiting[task]] += 1
    return used


async def test_routes_packets_and_a_lost_link(lab: Lab) -> None:
    with ExitStack() as stack:
        sockets = {port: stack.enter_context(lab.raw_socket(f"h{port}")) for port in PORTS}
        loop = asyncio.get_running_loop()
        async with lab.switch() as switch:
            packets = switch.read_packets()
            first_packet = asyncio.create_task(anext(packets))
            await asyncio.sleep(0)
            await loop.sock_sendall(sockets[1], LLDP)
            packet = await asyncio.wait_for(first_packet, 5)
            assert (packet.payload, packet["ingress_port"]) == (LLDP, 1)
            await switch.write(fy.P4PacketOut(LLDP, egress_port=3, queue=2, pad=0))
            assert await next_frame(sockets[3], b"\x88\xcc") == LLDP

            await switch.write([+entry for entry in entries()])
            sinks = {port: sockets[port] for port in (2, 3)}
            both = await ports_used(sockets[1], sinks)
            assert min(both.values()) > 5

            lab.ip("link", "set", "h2", "down")
            async with asyncio.timeout(5):  # the switch looks every 0.1 s
                while not await all_flows_arrive(sockets[1], sockets[3]):
                    pass
            (entry,) = [e async for e in switch.read(fy.P4TableEntry("ingress.nexthop"))]
            assert [member[0] for member in entry.action.action_set] == [
                (1, 2),
                (1, 3),
            ]  # the configuration has not changed


async def all_flows_arrive(source: socket.socket, sink: socket.socket) -> bool:
    """Each of 40 flows comes out of this port."""
    loop = asyncio.get_running_loop()
    for flow in range(40):
        await loop.sock_sendall(source, udp(2000 + flow))
        try:
            while (await next_frame(sink, b"\x08\x00", 0.2))[34:36] != (2000 + flow).to_bytes(2, "big"):
                pass
        except TimeoutError:
            return False
    return True

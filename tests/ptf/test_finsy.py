"""finsy, the P4Runtime client that our controller is built on, drives a switch on real interfaces."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import finsy as fy
import pytest
from client_lab import PORTS, Lab

LLDP = bytes.fromhex("0180c200000e02000000000188cc") + bytes(46)


def nonblocking(lab: Lab, stack: ExitStack) -> dict[int, socket.socket]:
    """The far end of each port, for asyncio."""
    sockets = {port: stack.enter_context(lab.raw_socket(f"h{port}")) for port in PORTS}
    for opened in sockets.values():
        opened.setblocking(False)
    return sockets


def connected(lab: Lab) -> fy.Switch:
    options = fy.SwitchOptions(p4info=lab.p4info, p4blob=lab.json, device_id=lab.device_id)
    return fy.Switch("s", lab.address, options)


async def next_frame(source: socket.socket, ether_type: bytes, timeout_s: float = 5) -> bytes:
    """The next frame of an EtherType."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        while True:
            data, address = await loop.sock_recvfrom(source, 2048)
            if data[12:14] == ether_type and address[2] != socket.PACKET_OUTGOING:
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


async def test_packets_in_and_out_and_a_group(lab: Lab) -> None:
    with ExitStack() as stack:
        sockets = nonblocking(lab, stack)
        loop = asyncio.get_running_loop()
        async with connected(lab) as switch:
            packets = switch.read_packets()
            first_packet = asyncio.create_task(anext(packets))
            await asyncio.sleep(0)
            await loop.sock_sendall(sockets[1], LLDP)
            packet = await asyncio.wait_for(first_packet, 5)
            assert (packet.payload, packet["ingress_port"]) == (LLDP, 1)
            await switch.write(fy.P4PacketOut(LLDP, egress_port=3, queue=2, pad=0))
            assert await next_frame(sockets[3], b"\x88\xcc") == LLDP

            await switch.write([+entry for entry in entries()])
            both = await ports_used(sockets[1], {port: sockets[port] for port in (2, 3)})
            assert min(both.values()) > 5
            await group_is_read_back(switch)


@pytest.mark.lacks_bmv2("groups that follow a lost link")
async def test_a_group_follows_a_lost_link(lab: Lab) -> None:
    with ExitStack() as stack:
        sockets = nonblocking(lab, stack)
        async with connected(lab) as switch:
            await switch.write([+entry for entry in entries()])
            lab.ip("link", "set", "h2", "down")
            async with asyncio.timeout(5):  # the switch looks every 0.1 s
                while not await all_flows_arrive(sockets[1], sockets[3]):
                    pass
            await group_is_read_back(switch)  # the configuration has not changed


async def group_is_read_back(switch: fy.Switch) -> None:
    (entry,) = [e async for e in switch.read(fy.P4TableEntry("ingress.nexthop"))]
    assert [member[0] for member in entry.action.action_set] == [(1, 2), (1, 3)]


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

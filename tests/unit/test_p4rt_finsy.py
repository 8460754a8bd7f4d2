"""finsy, as a controller uses it, against the server with the native switch and the project's own program.

The switch has no interfaces here: the test hands it frames and moves its clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import finsy as fy
import pytest
from p4rt_client import DCB_JSON, DCB_P4INFO, DEVICE_ID

from switch.core import SwitchCore
from switch.p4rt.server import P4RuntimeServer
from switch.target import Target, TargetFactory

LLDP = bytes.fromhex("0180c200000e02000000000188cc") + bytes(46)


class Served:
    def __init__(self, server: P4RuntimeServer, address: str) -> None:
        self.server = server
        self.address = address

    @property
    def core(self) -> SwitchCore:
        target = self.server.service.target
        assert isinstance(target, Target)
        return target.core

    def switch(self, **more: object) -> fy.Switch:
        options = fy.SwitchOptions(p4info=DCB_P4INFO, p4blob=DCB_JSON, device_id=DEVICE_ID, **more)  # type: ignore[arg-type]
        return fy.Switch("leaf1", self.address, options)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    server = P4RuntimeServer(DEVICE_ID, 510, TargetFactory())
    address = f"unix:{tmp_path}/p4rt.sock"
    await server.start(address)
    yield Served(server, address)
    await server.stop()


def port_config() -> fy.P4TableEntry:
    return fy.P4TableEntry(
        "ingress.port_config",
        match=fy.Match(ingress_port=1),
        action=fy.Action("set_port", trust=2, default_priority=0, qos_profile=1, pfc_rx_enable=8, pause_rx_enable=0),
    )


def nexthop() -> fy.P4TableEntry:
    return fy.P4TableEntry(
        "ingress.nexthop",
        match=fy.Match(nexthop=1),
        action=fy.P4IndirectAction(
            [(1, fy.Action("forward", port=2, dst_mac=5)), (2, fy.Action("forward", port=3, dst_mac=6))]
        ),
    )


def route() -> fy.P4TableEntry:
    return fy.P4TableEntry("ipv4_lpm", match=fy.Match(dst="10.1.0.0/16"), action=fy.Action("route", nexthop=1))


def acl() -> fy.P4TableEntry:
    return fy.P4TableEntry(
        "acl", match=fy.Match(in_port="1/&0x1ff", l4_dst_port="100...200"), priority=5, action=fy.Action("acl_drop")
    )


def tm_port() -> fy.P4TableEntry:
    return fy.P4TableEntry("egress.tm_port", match=fy.Match(port=1), action=fy.Action("tm_set_port", rate_bps=10**9))


async def test_entries_are_read_as_they_were_written(served: Served) -> None:
    async with served.switch() as switch:
        assert switch.is_primary
        entries = [port_config(), nexthop(), route(), acl(), tm_port()]
        multicast = fy.P4MulticastGroupEntry(9, replicas=[1, 2])
        clone = fy.P4CloneSessionEntry(3, replicas=[510], class_of_service=2, packet_length_bytes=100)
        await switch.write(
            [+entry for entry in (port_config(), nexthop(), route(), acl(), tm_port(), multicast, clone)]
        )
        found = [entry async for entry in switch.read(fy.P4TableEntry())]
        schema = switch.p4info

        def messages(items: list[fy.P4TableEntry]) -> list[str]:
            return sorted(str(item.encode(schema)) for item in items)

        assert messages(found) == messages(entries)
        assert [group.replicas async for group in switch.read(fy.P4MulticastGroupEntry())] == [(1, 2)]
        (session,) = [session async for session in switch.read(fy.P4CloneSessionEntry())]
        assert (session.replicas, session.class_of_service, session.packet_length_bytes) == ((510,), 2, 100)
        await switch.delete_all()
        assert [entry async for entry in switch.read(fy.P4TableEntry())] == []


async def test_reconnecting_keeps_the_pipeline(served: Served) -> None:
    async with served.switch() as switch:
        await switch.write([+route()])
    async with served.switch() as switch:  # same cookie: finsy does not push again
        assert len([entry async for entry in switch.read(fy.P4TableEntry("ipv4_lpm"))]) == 1


async def test_backup_takes_over(served: Served) -> None:
    async with served.switch() as first, served.switch() as second:
        assert (first.is_primary, second.is_primary) == (True, False)
        became_primary = asyncio.Event()
        second.ee.add_listener(fy.SwitchEvent.BECOME_PRIMARY, lambda _switch: became_primary.set())
        first._p4client._stream.cancel()  # type: ignore[union-attr]
        await asyncio.wait_for(became_primary.wait(), 5)
        await second.write([+route()])


async def test_errors_name_field_value_and_rule(served: Served) -> None:
    async with served.switch() as switch:
        bad = fy.P4TableEntry(
            "egress.tm_scheduler", match=fy.Match(port=1, tc=1), action=fy.Action("tm_ets", weight=101)
        )
        with pytest.raises(fy.P4ClientError) as caught:
            await switch.write([+route(), +bad])
        (number,) = caught.value.details
        assert number == 1
        error = caught.value.details[1]
        assert error.canonical_code == fy.GRPCStatusCode.INVALID_ARGUMENT
        assert error.message == "table egress.tm_scheduler: weight 101: must be 1..100"


async def test_punt_and_packet_out(served: Served) -> None:
    async with served.switch() as switch:
        packets = switch.read_packets()
        waiting = asyncio.create_task(anext(packets))
        await asyncio.sleep(0)
        core = served.core
        core.receive(3, LLDP, 1000)
        core.advance(10**6)
        packet = await asyncio.wait_for(waiting, 5)
        assert packet.payload == LLDP
        assert packet.metadata == {"ingress_port": 3, "priority": 0, "reason": 0}
        core.tm.add_port(4)
        await switch.write(fy.P4PacketOut(LLDP, egress_port=4, queue=2, pad=0))
        # Streams are ordered, unary calls are not part of them: a write that fails on the stream tells when it is
        # through.
        core.receive(3, LLDP, 2 * 10**6)
        core.advance(3 * 10**6)
        await asyncio.wait_for(anext(packets), 5)
        for _ in range(100):
            core.advance(core.now_ps + 10**6)
            outputs = core.outputs()
            if outputs:
                break
            await asyncio.sleep(0.01)
        assert [(output.port, output.frame) for output in outputs] == [(4, LLDP)]
        counter = [c async for c in switch.read(fy.P4CounterEntry("ingress.rx", index=3 * 8))]
        assert (counter[0].packet_count, counter[0].byte_count) == (2, 2 * len(LLDP))

"""The controller against the project's P4Runtime server and the real program; only the switch core is in memory.

What the traffic manager and the pipeline were told is compared with numbers worked out by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from controller_fakes import CONFIG
from p4rt_fakes import FakeTargetFactory

from controller import Controller, P4Program, PacketIn, SwitchState
from controller.config import Config, parse, parse_text, to_data
from controller.state import CounterValue as Value
from switch.api import CounterValue
from switch.core import PacketIn as CorePacketIn
from switch.p4rt.server import P4RuntimeServer

TIMEOUT = 10.0
EXTRA = """
    acl:
      - {in_port: 1, src_ip4: 10.1.0.0/16, l4_dst_port: 1000-2000, drop: true}
      - {dscp: 0, l4_dst_port: 4791, mirror: 7}
      - {punt: true, ether_type: 0x88f7}
    clone_sessions: {7: {port: 510, length: 128, class_of_service: 1}}
"""


@pytest.fixture(scope="module")
def program() -> P4Program:
    return P4Program.load()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    text = CONFIG.replace("ADDRESS", str(tmp_path / "leaf1.sock")) + EXTRA
    text = text.replace("device_id: 1", "device_id: 1\n    pool: 1000000")
    text = text.replace(
        "peer: spine1", "peer: spine1, queue_limits: {0: 200000, 1: {alpha: -1}}, dscp_rewrite: {3: 26}"
    )
    return parse_text(text.replace("lossless: [3]", "lossless: [3], app_priority: [{ether_type: 0x8906, priority: 3}]"))


@asynccontextmanager
async def serving(path: Path, factory: FakeTargetFactory) -> AsyncIterator[P4RuntimeServer]:
    server = P4RuntimeServer(1, 510, factory)
    await server.start(f"unix:{path / 'leaf1.sock'}")
    try:
        yield server
    finally:
        await server.stop(0)


async def test_start_restart_change_and_what_the_target_was_told(
    config: Config, tmp_path: Path, program: P4Program
) -> None:
    factory = FakeTargetFactory()
    async with serving(tmp_path, factory):
        async with Controller(config, p4=program) as controller:
            await controller.wait_synced(TIMEOUT)
            first = controller.status()[0]
        assert first.updates_written == first.entries > 60
        async with Controller(config, p4=program) as controller:
            await controller.wait_synced(TIMEOUT)
            again = controller.status()[0]
            assert (again.updates_written, again.pipeline_pushes, again.entries) == (0, 0, first.entries)
            assert len(factory.cores) == 1

            tm, pre, pipeline = factory.core.tm.settings, factory.core.pre, factory.core.pipeline
            assert tm["port", 1] == (100_000_000,)
            assert tm["pfc", 1] == (8, 65535, 0o76543210)
            assert tm["pool", 0] == (1_000_000,)
            assert pre.sessions == {7: ([(510, 0)], 1, 128)}
            routes = sorted(
                (e.keys[0].value, e.keys[0].prefix_len) for e in pipeline.entries["ingress.ipv4_lpm"].values()
            )
            assert routes == [(0x0A010001, 32), (0x0A020000, 16)]
            [ecn] = pipeline.entries["egress.ecn_profile"].values()
            assert [key.value for key in ecn.keys] == [1, 3]
            assert ecn.action.params == (20000, 80000, 429496730, 469124961, 0)

            data = to_data(config)
            data["switches"]["leaf1"]["ports"][1] |= {"rate": "50M", "ets": {0: {"ets": 7}}}
            data["switches"]["leaf1"]["routes"] = data["switches"]["leaf1"]["routes"][:1]
            del data["switches"]["leaf1"]["acl"], data["switches"]["leaf1"]["clone_sessions"]
            await controller.apply(parse(data))
            await controller.wait_synced(TIMEOUT)
            # rate, ETS: one changed and two gone; 2 routes, nexthop, group, 2 members; 3 rules; the session
            assert controller.status()[0].updates_written == 1 + 3 + 6 + 3 + 1
            assert tm["port", 1] == (50_000_000,)
            assert pre.sessions == {}
            assert len(pipeline.entries["ingress.ipv4_lpm"]) == 1
            assert pipeline.entries["ingress.acl"] == {}


async def test_a_server_that_restarts_gets_everything_again(config: Config, tmp_path: Path, program: P4Program) -> None:
    async with Controller(config, p4=program) as controller:
        async with serving(tmp_path, FakeTargetFactory()):
            await controller.wait_synced(TIMEOUT)
        await asyncio.wait_for(controller.session("leaf1").wait_state(SwitchState.DISCONNECTED), TIMEOUT)
        factory = FakeTargetFactory()
        async with serving(tmp_path, factory):
            await controller.wait_synced(TIMEOUT)
            status = controller.status()[0]
            assert (status.pipeline_pushes, status.connects) == (2, 2)
            assert status.updates_written == 2 * status.entries
            assert factory.core.tm.settings["port", 3] == (100_000_000,)


async def test_two_controllers(config: Config, tmp_path: Path, program: P4Program) -> None:
    async with serving(tmp_path, FakeTargetFactory()), Controller(config, p4=program) as backup:
        await backup.wait_synced(TIMEOUT)
        async with Controller(config, p4=program, election_id=101) as primary:
            await primary.wait_synced(TIMEOUT)
            assert primary.status()[0].updates_written == 0
            await asyncio.wait_for(backup.session("leaf1").wait_state(SwitchState.BACKUP), TIMEOUT)
            assert len((await backup.read_counters("leaf1", ["rx"], [1]))["rx"]) == 8
        await backup.wait_synced(TIMEOUT)
        # the same election id twice: the second becomes backup
        async with Controller(config, p4=program, election_id=backup.status()[0].election_id) as second:
            await asyncio.wait_for(second.session("leaf1").wait_state(SwitchState.BACKUP), TIMEOUT)
            assert backup.status()[0].state is SwitchState.SYNCED


async def test_counters_registers_and_packets(config: Config, tmp_path: Path, program: P4Program) -> None:
    seen: asyncio.Queue[PacketIn] = asyncio.Queue()
    factory = FakeTargetFactory()
    async with (
        serving(tmp_path, factory),
        Controller(config, p4=program, packet_handler=lambda _, packet: seen.put_nowait(packet)) as controller,
    ):
        await controller.wait_synced(TIMEOUT)
        core = factory.core
        core.pipeline.counters["ingress.rx"][2 * 8 + 3] = CounterValue(5, 640)
        core.tm.counters["drop_headroom", 1 * 8 + 3] = CounterValue(1, 1500)
        core.tm.states["queue_watermark", 1 * 8 + 3] = 61500
        core.tm.states["paused_ns", 3 * 8 + 7] = 2**40
        counters = await controller.read_counters("leaf1", ["rx", "tm_drop_headroom"])
        assert counters["rx"][2, 3] == Value(5, 640)
        assert counters["tm_drop_headroom"][1, 3] == Value(1, 1500)
        assert len(counters["rx"]) == 24
        registers = await controller.read_registers("leaf1", ["tm_queue_watermark", "tm_paused_ns"])
        assert registers["tm_queue_watermark"][1, 3] == 61500
        assert registers["tm_paused_ns"][3, 7] == 2**40
        await controller.clear_counters("leaf1", ["rx", "tm_drop_headroom"], registers=["tm_queue_watermark"])
        counters = await controller.read_counters("leaf1", ["rx", "tm_drop_headroom"])
        assert {value for cells in counters.values() for value in cells.values()} == {Value()}
        assert (await controller.read_registers("leaf1", ["tm_queue_watermark"]))["tm_queue_watermark"][1, 3] == 0
        assert core.tm.states == {("paused_ns", 3 * 8 + 7): 2**40}

        # packet_in header: ingress_port 9 bits, priority 3, reason 4 = 16 bits: 2, 7, 0
        lldp = bytes.fromhex("0180c200000e") + bytes(6) + b"\x88\xcc" + bytes(46)
        core.happen(CorePacketIn((2 << 7 | 7 << 4 | 0).to_bytes(2, "big") + lldp))
        assert await asyncio.wait_for(seen.get(), TIMEOUT) == PacketIn(lldp, 2, 7, 0)
        await controller.packet_out("leaf1", 3, lldp, queue=6)
        while not core.received:
            await asyncio.sleep(0)
        # packet_out header: egress_port 9 bits, queue 3, pad 4
        assert core.received == [(510, (3 << 7 | 6 << 4).to_bytes(2, "big") + lldp)]


async def test_every_counter_and_register_that_dcbctl_shows_exists(program: P4Program) -> None:
    from controller import views

    for name in (*views.DROPS, *views.DROPS_BY_QUEUE, *views.DROPS_BY_GROUP):
        program.counter(name)
    assert len(program.counters) >= 20

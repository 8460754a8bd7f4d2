"""The real controller over real switches in virtual time: exact times from the latency alone, chaos, determinism."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from bare_world import BareWorld
from finsy import GRPCStatusCode, P4ClientError
from finsy.proto import U128, p4r

from controller import Controller, P4Program
from controller.config import Config, parse
from controller.desired import build
from controller.diff import plan
from fabric.channel import Delays
from fabric.control import ControlPlane, VirtualSwitch
from fabric.loop import PS_PER_S, VirtualLoop, run
from topologies.description import leaf_spine
from topologies.settings import Dcb, controller_config

PROGRAM = P4Program.load()
TOPOLOGY = leaf_spine(2, 2, 2)
CONFIG = parse(controller_config(TOPOLOGY, Dcb()))
US = 1_000_000
ONE_WAY = Delays().one_way_ps
RTT = 2 * ONE_WAY
CONNECTED = 2  # round trips: connection, arbitration
CHECKED = CONNECTED + 3  # cookie, entities, clone sessions
PUSH, READ_BACK = 1, 2


def stages(switch: str) -> int:
    """WriteRequests that a switch with nothing needs."""
    return len([stage for stage in plan(build(CONFIG, switch), []) if stage])


def rounds(switch: str) -> int:
    """Round trips from nothing to synced."""
    return CHECKED + PUSH + stages(switch) + READ_BACK


class Lab:
    """Switches of CONFIG in a world, in the running loop."""

    def __init__(self, world: BareWorld, delays: Delays | None = None, seed: int = 0) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop, self.world = loop, world
        self.plane = ControlPlane(loop, world, delays=delays, seed=seed)
        for switch in TOPOLOGY.switches:
            self.plane.add(switch.name, switch.device_id, switch.ports)

    @property
    def leaf1(self) -> VirtualSwitch:
        return self.plane.switches["leaf1"]

    def controller(self, config: Config = CONFIG, **options: int) -> Controller:
        return Controller(config, p4=PROGRAM, client=self.plane.client, **options)

    async def synced_at(self, controller: Controller) -> dict[str, int]:
        async def one(name: str) -> tuple[str, int]:
            await controller.session(name).wait_synced()
            return name, self.loop.now_ps

        return dict(await asyncio.gather(*map(one, self.plane.switches)))


def in_lab(
    work: Callable[[Lab], Awaitable[object]], delays: Delays | None = None, seed: int = 0
) -> tuple[object, BareWorld]:
    world = BareWorld()

    async def main() -> object:
        lab = Lab(world, delays, seed)
        try:
            return await work(lab)
        finally:
            lab.plane.close()

    return run(world, main(), limit_ps=600 * PS_PER_S), world


@pytest.mark.parametrize("one_way_ps", [ONE_WAY, 250 * US, 0])
def test_switches_are_synced_after_exactly_their_round_trips_and_a_restart_writes_nothing(one_way_ps: int) -> None:
    async def work(lab: Lab) -> None:
        async with lab.controller() as controller:
            at = await lab.synced_at(controller)
            assert at == {name: 2 * one_way_ps * rounds(name) for name in lab.plane.switches}
            for status in controller.status():
                assert (status.connects, status.pipeline_pushes) == (1, 1)
                assert status.updates_written == len(build(CONFIG, status.name)) == status.entries
            assert stages("leaf1") >= 3  # members, groups, entries
        ended_ps = lab.loop.now_ps
        async with lab.controller() as again:
            at = await lab.synced_at(again)
            assert at == dict.fromkeys(lab.plane.switches, ended_ps + 2 * one_way_ps * CHECKED)
            assert [(s.pipeline_pushes, s.updates_written) for s in again.status()] == [(0, 0)] * 4

    in_lab(work, Delays(one_way_ps))


def test_a_killed_switch_that_comes_back_is_filled_again() -> None:
    async def work(lab: Lab) -> None:
        async with lab.controller() as controller:
            await controller.wait_synced()
            old = lab.leaf1.core
            killed_ps = lab.loop.now_ps
            lab.leaf1.restart()
            assert lab.leaf1.core is None
            assert lab.world.cores.keys() == {"leaf2", "spine1", "spine2"}
            session = controller.session("leaf1")
            await session.wait_state(type(session.status.state).DISCONNECTED)
            assert lab.loop.now_ps == killed_ps + ONE_WAY
            assert session.status.last_error == "receive: UNAVAILABLE: Socket closed"
            await controller.wait_synced()
            # 0.1 s is the first wait before a session tries again
            assert lab.loop.now_ps == killed_ps + ONE_WAY + PS_PER_S // 10 + rounds("leaf1") * RTT
            status = session.status
            assert (status.connects, status.pipeline_pushes) == (2, 2)
            assert status.updates_written == 2 * status.entries
            assert lab.leaf1.core is not old
            assert [s.connects for s in controller.status()] == [2, 1, 1, 1]

    in_lab(work)


def test_a_switch_that_stays_dead_is_tried_again_and_again() -> None:
    async def work(lab: Lab) -> None:
        lab.leaf1.kill()
        async with lab.controller() as controller:
            await controller.wait_synced(5, ["leaf2", "spine1", "spine2"])
            with pytest.raises(TimeoutError, match=r"leaf1: disconnected: cannot connect: .*: connection refused"):
                await controller.wait_synced(5)
            lab.leaf1.start()
            await controller.wait_synced(5)

    in_lab(work)


def test_a_cut_breaks_connections_and_leaves_the_switch_as_it_was() -> None:
    async def work(lab: Lab) -> None:
        async with lab.controller() as controller:
            await controller.wait_synced()
            core = lab.leaf1.core
            lab.leaf1.cut()
            await asyncio.sleep(3)
            assert controller.session("leaf1").status.state.value == "disconnected"
            lab.leaf1.heal()
            await controller.wait_synced(5)
            status = controller.session("leaf1").status
            assert (status.connects, status.last_sync_updates, status.pipeline_pushes) == (2, 0, 1)
            assert lab.leaf1.core is core

    in_lab(work)


async def _primary(lab: Lab) -> object:
    def complete(message: object) -> None:
        if isinstance(message, p4r.WriteRequest):
            message.election_id.CopyFrom(U128.encode(7))

    client = lab.plane.client("leaf1", "virtual:leaf1")
    await client.open(complete_request=complete)
    bid = p4r.MasterArbitrationUpdate(device_id=lab.leaf1.device_id, election_id=U128.encode(7))
    await client.send(p4r.StreamMessageRequest(arbitration=bid))
    answer = (await client.receive()).arbitration
    assert (answer.status.code, U128.decode(answer.election_id)) == (0, 7)
    return client


def test_requests_fail_as_over_grpc() -> None:
    async def work(lab: Lab) -> None:
        client = await _primary(lab)
        read = p4r.ReadRequest(device_id=lab.leaf1.device_id, entities=[p4r.Entity(table_entry=p4r.TableEntry())])
        with pytest.raises(P4ClientError) as seen:
            [reply async for reply in client.request_iter(read)]
        assert (seen.value.code, seen.value.is_pipeline_missing) == (GRPCStatusCode.FAILED_PRECONDITION, True)
        async with lab.controller(election_id=6) as controller:
            await controller.session("leaf1").wait_state(type(controller.status()[0].state).BACKUP)
        await client.close()
        async with lab.controller() as controller:
            await controller.wait_synced(5)
        client = await _primary_again(lab)
        wrong = p4r.Update(type=p4r.Update.DELETE, entity=p4r.Entity(table_entry=p4r.TableEntry(table_id=1)))
        good = p4r.Update(
            type=p4r.Update.INSERT,
            entity=p4r.Entity(
                packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(
                    multicast_group_entry=p4r.MulticastGroupEntry(
                        multicast_group_id=5, replicas=[p4r.Replica(egress_port=1, instance=1)]
                    )
                )
            ),
        )
        with pytest.raises(P4ClientError) as seen:
            await client.request(p4r.WriteRequest(device_id=lab.leaf1.device_id, updates=[good, wrong]))
        assert seen.value.code is GRPCStatusCode.UNKNOWN
        assert list(seen.value.details) == [1]
        assert "table" in seen.value.details[1].message
        await client.close()

    async def _primary_again(lab: Lab):
        client = lab.plane.client("leaf1", "virtual:leaf1")
        await client.open(complete_request=lambda m: m.election_id.CopyFrom(U128.encode(500)))
        bid = p4r.MasterArbitrationUpdate(device_id=lab.leaf1.device_id, election_id=U128.encode(500))
        await client.send(p4r.StreamMessageRequest(arbitration=bid))
        await client.receive()
        return client

    in_lab(work)


def test_a_stalled_switch_times_requests_out_after_ten_seconds_and_hears_them_not() -> None:
    async def work(lab: Lab) -> None:
        async with lab.controller() as controller:
            await controller.wait_synced()
            lab.leaf1.stall()
            from_ps = lab.loop.now_ps
            with pytest.raises(P4ClientError) as seen:
                await controller.read_counters("leaf1", ["rx"], [1])
            assert seen.value.code is GRPCStatusCode.DEADLINE_EXCEEDED
            assert lab.loop.now_ps == from_ps + 10 * PS_PER_S
            lab.leaf1.heal()
            assert (await controller.read_counters("leaf1", ["rx"], [1]))["rx"]
            assert lab.loop.now_ps == from_ps + 10 * PS_PER_S + RTT
            assert controller.session("leaf1").status.connects == 1

    in_lab(work)


def test_the_backup_takes_over_when_the_primary_ends() -> None:
    async def work(lab: Lab) -> None:
        async with lab.controller(election_id=50) as backup:
            await backup.wait_synced()
            async with lab.controller(election_id=100) as primary:
                await primary.wait_synced()
                assert {status.state.value for status in backup.status()} == {"backup"}
                assert [status.updates_written for status in primary.status()] == [0] * 4
            left_ps = lab.loop.now_ps
            await backup.wait_synced()
            # the stream's end one way, the news back; a bid with the higher id, its answer; cookie, entities, sessions
            assert lab.loop.now_ps == left_ps + 5 * RTT
            assert sum(status.last_sync_updates for status in backup.status()) == 0

    in_lab(work)


def test_two_runs_with_one_seed_are_alike_and_another_seed_is_not() -> None:
    def history(seed: int) -> object:
        async def work(lab: Lab) -> object:
            seen = []
            async with lab.controller() as controller:
                seen.append(await lab.synced_at(controller))
                lab.leaf1.restart()
                await controller.wait_synced()
                seen.append(lab.loop.now_ps)
                seen += [status.updates_written for status in controller.status()]
            return seen

        return in_lab(work, Delays(one_way_jitter_ps=500 * US, handling_jitter_ps=3000 * US), seed)[0]

    assert history(1) == history(1)
    assert history(1) != history(2)


def test_no_real_clock_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a real clock was read")

    async def work(lab: Lab) -> None:
        async with lab.controller() as controller:
            await controller.wait_synced(5)
            lab.leaf1.restart()
            await controller.wait_synced(5)

    with monkeypatch.context() as patch:
        for name in ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"):
            patch.setattr(time, name, refuse)
        in_lab(work)


def test_unknown_names_are_told() -> None:
    async def work(lab: Lab) -> None:
        with pytest.raises(KeyError, match=r"switch leaf9: not in the fabric .*leaf1, leaf2, spine1, spine2"):
            lab.plane.client("leaf9", "x")
        with pytest.raises(ValueError, match="switch leaf1: there is one of this name"):
            lab.plane.add("leaf1", 1, [1])
        with pytest.raises(KeyError, match="switch leaf1: port 77: ports are 1, 2, 3, 4"):
            lab.leaf1.set_port(77, False)

    in_lab(work)
    with pytest.raises(ValueError, match="one_way_ps: -1: must not be negative"):
        Delays(one_way_ps=-1)


def test_the_way_around_a_port_that_is_down_is_for_the_service_to_know() -> None:
    async def work(lab: Lab) -> None:
        async with lab.controller() as controller:
            await controller.wait_synced()
            target = lab.leaf1.server.target
            told: list[tuple[int, bool]] = []
            lab.leaf1.service._running.writer.profiles.port_changed = lambda port: told.append(
                (port, target.port_is_up(port))
            )
            await asyncio.sleep(1)
            assert told == []
            lab.leaf1.set_port(3, False)
            assert told == [(3, False)]
            await asyncio.sleep(1)
            lab.leaf1.set_port(3, True)
            assert told == [(3, False), (3, True)]
            assert (target.port_exists(4), target.port_exists(5), target.port_exists(510)) == (True, False, True)

    in_lab(work)

"""DCBX of a whole fabric in virtual time, and a second controller that takes it over: whatever the delays, it writes
nothing."""

from __future__ import annotations

import asyncio
import random

import pytest
from bare_world import BareWorld
from dcbx_world import DcbxWorld, dcbx_world, lossless

from controller import Controller
from fabric.channel import Delays
from fabric.loop import run

US, MS = 1_000_000, 1_000_000_000
AGREED = {
    "leaf1": {1: [3], 2: [3], 3: [3], 4: [3]},
    "leaf2": {1: [3], 2: [], 3: [3], 4: [3]},  # h4 refuses
    "spine1": {1: [3], 2: [3]},
    "spine2": {1: [3], 2: [3]},
}


async def agreed(fabric: DcbxWorld, controller: Controller) -> None:
    await controller.wait_synced(60)
    for host in fabric.hosts.values():
        host.set_link(True)
    await fabric.until(lambda: lossless(controller) == AGREED)
    await controller.wait_synced(60)


def changes(fabric: DcbxWorld) -> dict[str, int]:
    return {name: host.state()["counters"]["dcbx"]["state_changes"] for name, host in fabric.hosts.items()}


def test_one_port_configures_the_fabric_within_milliseconds() -> None:
    world = BareWorld()

    async def main() -> None:
        async with dcbx_world(world) as fabric, fabric.controller() as first:
            await agreed(fabric, first)
            assert fabric.loop.now_ps < 200 * MS
            for name, host in fabric.hosts.items():
                marks = host.state()["marks"]["roce"]
                assert (marks["priority"], marks["lossless"]) == (3, name != "h4"), name
            assert host.log[0][1].startswith("neighbor: new: ")

    run(world, main())


# With the delays of these seeds a take-over wrote 56 updates to spine2, before DCBX held on to what it had found until
# the source follows its peer in everything: leaf1's port to it was still willing when it spoke first, so spine2
# followed its PFC, had a source, let go, and ran its own ETS until the recommendation came, a round trip later.
WROTE = {1: (1000 * US, 0), 4: (1000 * US, 20 * MS), 12: (50 * MS, 20 * MS)}


@pytest.mark.parametrize("seed", [*WROTE, 1001])
def test_a_controller_that_takes_over_writes_nothing(seed: int) -> None:
    world = BareWorld()
    generator = random.Random(seed)
    way, handling = WROTE.get(seed, (generator.randrange(500 * MS), generator.randrange(200 * MS)))

    async def main() -> None:
        async with dcbx_world(world, seed=seed) as fabric, fabric.controller() as first:
            await agreed(fabric, first)
            await asyncio.sleep(generator.random() * 5)
            for switch in fabric.plane.switches.values():
                switch.delays = Delays(one_way_jitter_ps=way, handling_jitter_ps=handling)
            before = changes(fabric)
            async with fabric.controller(election_id=200) as second:
                await second.wait_synced(60)
                assert [status.updates_written for status in second.status()] == [0, 0, 0, 0]
                agents = second.dcbx.agents.values()
                await fabric.until(lambda: all(a.switch.election.source and not a.holding for a in agents))
                await asyncio.sleep(10)
                await second.wait_synced(60)
                assert [status.updates_written for status in second.status()] == [0, 0, 0, 0]
                assert lossless(second) == AGREED
                assert changes(fabric) == before
                assert {status.state.value for status in first.status()} == {"backup"}

    run(world, main())

"""Threshold policies in the controller: samples of a fake switch in, entries of the group out; what survives what."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from controller_fakes import CONFIG, FakeSwitch, serving
from finsy.proto import p4r

from controller import Controller, P4Program, thresholds
from controller.codec import Codec
from controller.config import ConfigError, parse_text
from controller.entries import Action, TableEntry
from controller.thresholds import watched_groups
from controller.views import collect
from dcb.thresholds import Bounds

MS = 10**9
TIMEOUT = 20.0
CELL = 1 * 8 + 3
POLICY = CONFIG.replace("headroom: 500000}", "headroom: 500000, threshold_policy: {interval_ms: 60000}}").replace(
    "    device_id: 1\n", "    device_id: 1\n    pool: 157000\n"
)
# pool 157,000 - (60,000 - 3000) = 100,000 more; half of the baseline at least
BOUNDS = Bounds(30_000, 160_000, 500_000, 20_000)


@pytest.fixture(scope="module")
def program() -> P4Program:
    return P4Program.load()


@pytest.fixture
async def fabric(tmp_path: Path, program: P4Program) -> AsyncIterator[tuple[Controller, FakeSwitch]]:
    switch = FakeSwitch()
    config = parse_text(POLICY.replace("ADDRESS", str(tmp_path / "leaf1.sock")))
    async with serving(switch, tmp_path / "leaf1.sock"), Controller(config, p4=program) as controller:
        await controller.wait_synced(TIMEOUT)
        switch.writes.clear()
        yield controller, switch


def put_register(switch: FakeSwitch, program: P4Program, name: str, value: int) -> None:
    entry = p4r.RegisterEntry(register_id=program.register(name).id, index=p4r.Index(index=CELL))
    entry.data.bitstring = value.to_bytes(8, "big")
    switch._apply(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(register_entry=entry)))


def held(switch: FakeSwitch, program: P4Program) -> dict[str, int]:
    """Parameters of the group's entry on the switch."""
    for message in switch.entities.values():
        if message.WhichOneof("entity") == "table_entry":
            entity = Codec(program).decode(message)
            if isinstance(entity, TableEntry) and entity.table == "egress.tm_priority_group":
                assert isinstance(entity.action, Action)
                return dict(entity.action.params)
    raise AssertionError("no priority group")


async def step(controller: Controller, ms: int) -> None:
    groups = list(controller.thresholds.groups["leaf1"].values())
    await controller.thresholds.step("leaf1", groups, ms * MS)


def test_bounds_come_from_the_pool() -> None:
    (group,) = watched_groups(parse_text(POLICY), "leaf1").values()
    assert group.bounds == BOUNDS
    assert (group.port, group.pg, group.priorities) == (1, 3, (3,))
    capped = POLICY.replace("interval_ms: 60000", "min_xoff: 50000, max_xoff: 70000")
    (group,) = watched_groups(parse_text(capped), "leaf1").values()
    assert (group.bounds.min_xoff_bytes, group.bounds.max_xoff_bytes) == (50_000, 70_000)
    assert watched_groups(parse_text(CONFIG), "leaf1") == {}


async def test_a_burst_moves_the_threshold_and_keeps_the_sum(
    fabric: tuple[Controller, FakeSwitch], program: P4Program
) -> None:
    controller, switch = fabric
    # from the start XOFF + headroom is highest + planned: lowering XOFF later takes nothing away
    assert held(switch, program) == {
        "reserved": 3000, "xoff": 60_000, "xon": 40_000, "headroom": 600_000, "priorities": 8,
    }  # fmt: skip
    put_register(switch, program, "egress.tm_pg_depth", 20_000)
    await step(controller, 1000)
    # ewma's first value: 20,000 * 1.2 more
    assert held(switch, program) | {"reserved": 0} == {
        "reserved": 0, "xoff": 84_000, "xon": 64_000, "headroom": 576_000, "priorities": 8,
    }  # fmt: skip
    assert len(switch.updates()) == 1
    # a peak beyond what the pool carries ends at the bound
    put_register(switch, program, "egress.tm_pg_watermark", 3_000_000)
    await step(controller, 61_000)
    assert (held(switch, program)["xoff"], held(switch, program)["headroom"]) == (160_000, 500_000)
    # the watermark stands and says nothing new; a sync writes nothing: the switch holds what is desired
    switch.writes.clear()
    controller.session("leaf1").resync()
    await controller.wait_synced(TIMEOUT)
    assert switch.updates() == []
    view = (await collect(controller, "thresholds", "leaf1:1"))["groups"][0]
    assert json.loads(json.dumps(view)) == view
    assert (view["xoff_bytes"], view["baseline_bytes"], view["max_xoff_bytes"], view["changes"]) == (
        160_000, 60_000, 160_000, 2,
    )  # fmt: skip


async def test_a_new_config_keeps_the_state_of_a_policy_and_ends_one_that_goes(
    fabric: tuple[Controller, FakeSwitch], program: P4Program
) -> None:
    controller, switch = fabric
    put_register(switch, program, "egress.tm_pg_depth", 20_000)
    await step(controller, 1000)
    assert held(switch, program)["xoff"] == 84_000
    address = controller.config.switches["leaf1"].address
    same = POLICY.replace("unix:ADDRESS", address).replace("peer: spine1", "peer: spine9")
    await controller.apply(parse_text(same))
    await controller.wait_synced(TIMEOUT)
    assert held(switch, program)["xoff"] == 84_000
    plain = same.replace(", threshold_policy: {interval_ms: 60000}", "")
    await controller.apply(parse_text(plain))
    await controller.wait_synced(TIMEOUT)
    assert (held(switch, program)["xoff"], held(switch, program)["headroom"]) == (60_000, 500_000)
    assert controller.thresholds.groups["leaf1"] == {}


async def test_the_task_samples_by_itself(tmp_path: Path, program: P4Program) -> None:
    switch = FakeSwitch()
    text = POLICY.replace("ADDRESS", str(tmp_path / "leaf1.sock")).replace("interval_ms: 60000", "interval_ms: 5")
    async with serving(switch, tmp_path / "leaf1.sock"), Controller(parse_text(text), p4=program) as controller:
        await controller.wait_synced(TIMEOUT)
        put_register(switch, program, "egress.tm_pg_depth", 20_000)
        async with asyncio.timeout(TIMEOUT):
            while not controller.thresholds.groups["leaf1"][1, 3].written:
                await asyncio.sleep(0.005)  # the fake has nothing to await
        assert held(switch, program)["xoff"] >= 84_000
        assert held(switch, program)["xoff"] + held(switch, program)["headroom"] == 660_000


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
def test_a_predictor_that_is_not_installed_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lossless\.threshold_policy\.predictor: lstm: PyTorch is not installed"):
        thresholds.check(parse_text(POLICY.replace("interval_ms: 60000", "predictor: lstm")))
    thresholds.check(parse_text(POLICY))


def test_headroom_of_a_pool_does_not_move() -> None:
    with pytest.raises(ConfigError, match="threshold_policy wants headroom of the group's own, no headroom_pool"):
        parse_text(POLICY.replace("threshold_policy:", "headroom_pool: 0, threshold_policy:"))

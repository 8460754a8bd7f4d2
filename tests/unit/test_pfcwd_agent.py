"""The watchdog of a switch without I/O: the switch's own timer whose events get lost, take-over, changes; BMv2."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from controller_fakes import CONFIG, FakeSwitch, serving
from test_pfcwd_config import config

from controller import Controller, watchdog_control
from controller.config import load
from controller.watchdog import State, WatchdogAgent
from dcb.watchdog import MS, Action, Sample

SWITCH_MODE = {"mode": "switch", "detection_time_ms": 2, "priorities": [3]}
PAIR = (1, 3)


def made(port: dict[str, Any], fabric: dict[str, Any] | None = None) -> WatchdogAgent:
    agent = WatchdogAgent("leaf1")
    agent.configure(config(port, fabric), 0)
    return agent


def kinds(agent: WatchdogAgent) -> list[str]:
    return [event.kind for event in agent.log]


def look(agent: WatchdogAgent, at_ms: int, storm_state: int, storm_count: int, **sample: int) -> None:
    agent.take({PAIR: State(Sample(at_ms * MS, **sample), storm_state, storm_count)})


def stats(agent: WatchdogAgent) -> tuple[int, int, bool]:
    machine = agent.watches[PAIR].machine
    return machine.stats.detected, machine.stats.restored, machine.stormed


def test_events_of_the_switch_and_what_it_says_when_asked_agree() -> None:
    agent = made(SWITCH_MODE)
    look(agent, 0, 0, 7)  # storms of before are not counted
    agent.told(PAIR, True, 50 * MS)
    look(agent, 100, 1, 8, drop_tx=40)
    agent.told(PAIR, False, 150 * MS)
    look(agent, 200, 0, 8, drop_tx=45)
    assert kinds(agent) == ["storm", "restored"]
    assert (stats(agent), agent.watches[PAIR].machine.stats.last.tx_drop) == ((1, 1, False), 45)
    assert (agent.wanted(), agent.due_ns()) == ({}, None)  # the switch does it all itself


def test_an_event_that_comes_after_the_look_is_not_a_second_storm() -> None:
    agent = made(SWITCH_MODE)
    look(agent, 0, 0, 0)
    look(agent, 100, 1, 1)
    agent.told(PAIR, True, 101 * MS)
    look(agent, 200, 1, 1)
    look(agent, 300, 0, 1)
    agent.told(PAIR, False, 301 * MS)
    look(agent, 400, 0, 1)
    assert (kinds(agent), stats(agent)) == (["storm", "restored"], (1, 1, False))


@pytest.mark.parametrize(
    ("state", "count", "events", "numbers"),
    [
        (1, 1, ["storm"], (1, 0, True)),  # the event of the storm got lost
        (0, 1, [], (1, 1, False)),  # both events of it
        (0, 3, [], (3, 3, False)),
        (4, 3, ["storm"], (3, 2, True)),  # the third goes on
        (2, 0, [], (0, 0, False)),  # somebody's tm_storm is no storm of the switch's own
        (6, 1, ["storm"], (1, 0, True)),
    ],
)
def test_lost_events_are_made_up_for(state: int, count: int, events: list[str], numbers: tuple[int, int, bool]) -> None:
    agent = made(SWITCH_MODE)
    look(agent, 0, 0, 0)
    look(agent, 100, state, count)
    assert kinds(agent) == []  # they may be on their way
    look(agent, 200, state, count)
    look(agent, 300, state, count)
    assert (kinds(agent), stats(agent)) == (events, numbers)


def test_a_lost_end_and_a_new_storm() -> None:
    agent = made(SWITCH_MODE)
    look(agent, 0, 0, 0)
    agent.told(PAIR, True, 10 * MS)
    look(agent, 100, 1, 1)
    for at in (200, 300, 400):
        look(agent, at, 1, 2)  # it ended and began again, and nobody said so
    assert (kinds(agent), stats(agent)) == (["storm", "restored", "storm"], (2, 1, True))


def test_a_storm_of_before_is_taken_over() -> None:
    agent = made(SWITCH_MODE)
    look(agent, 0, 1, 5)
    assert (kinds(agent), stats(agent)) == (["taken over"], (1, 0, True))
    agent.told(PAIR, False, MS)
    look(agent, 100, 0, 5)
    assert (kinds(agent), stats(agent)) == (["taken over", "restored"], (1, 1, False))


def test_a_restarted_switch_forgets_its_storms() -> None:
    agent = made(SWITCH_MODE)
    look(agent, 0, 0, 5)
    agent.told(PAIR, True, MS)
    agent.lost_sight()
    look(agent, 100, 0, 0)
    assert (kinds(agent), stats(agent)) == (["storm", "restored"], (1, 1, False))


def test_only_what_is_watched_is_taken_over_and_wanted() -> None:
    agent = made({"priorities": [3]})
    agent.adopt({PAIR: Action.DROP, (1, 4): Action.DROP, (2, 3): Action.FORWARD}, 0)
    assert agent.wanted() == {PAIR: Action.DROP}
    agent.configure(config({"priorities": [3], "action": "forward"}), MS)
    assert agent.wanted() == {PAIR: Action.FORWARD}
    agent.configure(config({"priorities": [4]}), 2 * MS)
    assert (agent.wanted(), kinds(agent)) == ({}, ["taken over", "stopped"])


def test_the_big_red_switch_drops_everything_and_takes_nothing_over() -> None:
    agent = made({}, {"big_red_switch": True})
    agent.adopt({PAIR: Action.FORWARD}, 0)
    assert agent.wanted() == {PAIR: Action.DROP, (1, 4): Action.DROP}
    agent.configure(config({}), MS)
    assert (agent.wanted(), kinds(agent)) == ({}, [])


class Bmv2Like(FakeSwitch):
    """Serves no registers, as BMv2."""

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        if any(entity.HasField("register_entry") for entity in request.entities):
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Register reads are not supported yet")
        async for response in super().Read(request, context):
            yield response


async def test_a_switch_without_registers_is_not_watched_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    text = CONFIG.replace("ADDRESS", str(tmp_path / "leaf1.sock")).replace("pfc: [3]", "pfc: [3], pfc_watchdog: {}")
    path.write_text(text)
    async with serving(Bmv2Like(), tmp_path / "leaf1.sock"), Controller(load(path)) as controller:
        await controller.wait_synced(20)
        watchdog = controller.watchdog.switches["leaf1"]
        async with asyncio.timeout(20):
            while not watchdog.fault:
                await asyncio.sleep(0.02)
        assert watchdog.fault == "the switch serves no registers: it cannot be watched"
        assert await watchdog_control.answer(controller, {"what": "stats"}) | {"queues": []} == {
            "big_red_switch": False,
            "faults": {"leaf1": watchdog.fault},
            "queues": [],
        }

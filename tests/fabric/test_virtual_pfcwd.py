"""The PFC watchdog from end to end in virtual time, named after sonic-mgmt's tests/pfcwd where there is a like test.

Controller, P4Runtime, P4 program and traffic manager are the real ones; times are exact but for the latency of the
control plane (100 us each way).
"""

from __future__ import annotations

import random

import pytest
from pfcwd_world import (
    FRAME_BYTES,
    MS,
    PORTS,
    REFRESH_PS,
    XOFF_BYTES,
    PfcwdWorld,
    agent,
    config,
    events,
    in_world,
    stats,
    wait_event,
)

from dcb.pfc import PauseFrame, build_pause, build_pfc, pfc_frame
from dcb.watchdog import Traffic

RTT = 1 * MS  # two round trips of 0.2 ms, and a frame on the wire
T = POLL = 200 * MS
FAST = {"poll_interval_ms": 100, "defaults": {"detection_time_ms": 100, "restoration_time_ms": 100}}


def now_ps(w: PfcwdWorld) -> int:
    return w.loop.now_ps


# ---- actions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["dontcare", "drop", "forward", "alert"])
def test_pfcwd_actions(action: str) -> None:
    """TX via the stormed queue, RX on the stormed port, another lossless queue and group; counters; restoration."""

    async def work(w: PfcwdWorld) -> None:
        key = {} if action == "dontcare" else {"action": action}
        async with w.controller(config(key, FAST)) as controller:
            await controller.wait_synced()
            w.storm(2, [3], 1000 * MS)
            w.send(1, 2, 3, 10, after_ps=5 * MS)
            await wait_event(controller, "storm")
            assert w.storms() == ({} if action == "alert" else {(2, 3): 2})
            mark = now_ps(w)
            w.send(1, 2, 3, 5)  # to the stormed queue
            w.send(2, 4, 3, 6)  # what the stormed port receives
            w.send(1, 2, 4, 7)  # the other lossless queue
            w.send(2, 4, 4, 8, after_ps=MS)  # the other lossless group
            w.send(3, 4, 3, 9, after_ps=2 * MS)  # the same priority between other ports
            await w.sleep_ps(300 * MS)
            left = w.left(mark)
            assert (left[2, 4], left[4, 4]) == (7, 8)
            assert left[4, 3] == 9 + (0 if action in ("dontcare", "drop") else 6)
            assert left[2, 3] == (5 if action == "forward" else 0)  # the 10 left when the pause ended, before `mark`
            found = stats(controller, 2, 3)
            assert (found.detected, found.restored) == (1, 0)
            assert found.last == {
                "forward": Traffic(tx_ok=15, rx_ok=6),
                "alert": Traffic(rx_ok=6),
            }.get(action, Traffic(tx_drop=15, rx_drop=6))
            await wait_event(controller, "restored")
            assert (w.storms(), stats(controller, 2, 3).restored) == ({}, 1)
            await w.sleep_ps(10 * MS)
            mark = now_ps(w)
            w.send(1, 2, 3, 20)
            w.send(2, 4, 3, 20)
            await w.sleep_ps(10 * MS)
            assert w.left(mark) == {(2, 3): 20, (4, 3): 20}
            assert events(controller) == [(2, 3, "storm"), (2, 3, "restored")]

    in_world(work)


def test_pfcwd_drop_counters_increment_while_it_storms() -> None:
    """sonic-buildimage #19067: drop counters that do not increment."""

    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({}, FAST)) as controller:
            await controller.wait_synced()
            w.storm(2, [3], 3000 * MS)
            w.send(1, 2, 3, 4, after_ps=5 * MS)
            await wait_event(controller, "storm")
            for n in range(1, 6):
                w.send(1, 2, 3, 10)
                await w.sleep_ps(110 * MS)
                assert stats(controller, 2, 3).last.tx_drop == 4 + 10 * n

    in_world(work)


def test_pfcwd_drop_sends_no_pause_upstream() -> None:
    """sonic-buildimage #23444: the switch went on to pause its upstream while it dropped. A ToR freezes, and thaws."""

    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({"priorities": [3]}, FAST)) as controller:
            await controller.wait_synced()
            frames = XOFF_BYTES // FRAME_BYTES
            w.storm(2, [3], 2000 * MS)
            w.send(1, 2, 3, frames, after_ps=5 * MS)
            await w.sleep_ps(50 * MS)
            paused = w.pfc_sent(1)
            assert paused  # the upstream neighbour is paused: so is what it has for hosts that are well
            assert all(times == {3: 65535} for _, times in paused)
            await wait_event(controller, "storm")
            mark = now_ps(w)
            assert w.pfc_sent(1)[-1][1] == {3: 0}
            assert w.pfc_sent(1)[-1][0] < mark
            w.send(1, 2, 3, 20 * frames)
            w.send(1, 4, 3, frames, after_ps=MS)
            await w.sleep_ps(500 * MS)
            assert w.pfc_sent(1, mark) == []
            assert w.left(mark) == {(4, 3): frames}

    in_world(work)


# ---- ports and priorities -------------------------------------------------------------------------------------------


def test_pfcwd_multi_port() -> None:
    """Two ports, one after the other."""

    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({}, FAST)) as controller:
            await controller.wait_synced()
            for port in (2, 3):
                w.storm(port, [3, 4], 500 * MS)
                w.send(1, port, 3, 5, after_ps=5 * MS)
                await wait_event(controller, "storm", port=port)
                assert w.storms() == {(port, 3): 2}  # nothing waits for priority 4
                await wait_event(controller, "restored", port=port)
            assert events(controller) == [(p, 3, kind) for p in (2, 3) for kind in ("storm", "restored")]

    in_world(work)


def test_pfcwd_port_toggle() -> None:
    """The link of a stormed port goes down and comes back: restored, and found again when it storms again."""

    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({}, FAST)) as controller:
            await controller.wait_synced()
            w.storm(2, [3], 400 * MS, xon=False)
            w.send(1, 2, 3, 5, after_ps=5 * MS)
            await wait_event(controller, "storm")
            core = w.leaf.core
            assert core is not None
            core.tm.remove_port(2)
            w.leaf.set_port(2, False)
            await wait_event(controller, "restored")
            core.tm.add_port(2)
            w.leaf.set_port(2, True)
            w.send(1, 2, 3, 7)
            await w.sleep_ps(10 * MS)
            assert w.left()[2, 3] == 7
            w.storm(2, [3], 400 * MS)
            w.send(1, 2, 3, 5, after_ps=5 * MS)
            await w.sleep_ps(300 * MS)
            assert stats(controller, 2, 3).detected == 2
            assert w.storms() == {(2, 3): 2}

    in_world(work)


def test_pfcwd_all_port_storm() -> None:
    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({}, FAST)) as controller:
            await controller.wait_synced()
            pairs = {(port, p) for port in PORTS for p in (3, 4)}
            for port in PORTS:
                w.storm(port, [3, 4], 1000 * MS)
            for port, p in sorted(pairs):
                w.send(port % 4 + 1, port, p, 3, after_ps=5 * MS)
            await w.sleep_ps(500 * MS)
            assert w.storms() == dict.fromkeys(pairs, 2)
            await w.sleep_ps(800 * MS)
            assert w.storms() == {}
            for port, p in pairs:
                assert (stats(controller, port, p).detected, stats(controller, port, p).restored) == (1, 1)

    in_world(work)


def test_all_priorities_of_a_port_stormed_at_once_storm_once() -> None:
    """sonic-buildimage #29203: with PFC off on all priorities XOFF was not counted: a loop of storm and restore."""

    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({}, FAST, pfc=range(8), watched=[2])) as controller:
            await controller.wait_synced()
            w.storm(2, range(8), 6000 * MS)
            for p in range(8):
                w.send(1, 2, p, 60, after_ps=5 * MS + p * MS, spacing_ps=90 * MS)
            await w.sleep_ps(6500 * MS)
            for p in range(8):
                assert (stats(controller, 2, p).detected, stats(controller, 2, p).restored) == (1, 1)
                assert stats(controller, 2, p).total.tx_drop == 60

    in_world(work)


def test_a_storm_of_pause_frames_is_one_storm() -> None:
    """PAUSE of 802.3 on a port that obeys it: no XOFF of PFC is counted, and it must not be restored for that."""

    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({"priorities": [3]}, FAST, watched=[2], pause_rx=True)) as controller:
            await controller.wait_synced()
            pause = build_pause(PauseFrame(bytes.fromhex("020000000102"), 65535))
            for n in range(100):
                w.world.inject(now_ps(w) + n * REFRESH_PS, ("leaf1", 2), pause)
            w.send(1, 2, 3, 90, after_ps=5 * MS, spacing_ps=20 * MS)
            await w.sleep_ps(1900 * MS)
            assert (w.storms(), events(controller)) == ({(2, 3): 2}, [(2, 3, "storm")])
            await wait_event(controller, "restored")

    in_world(work)


# ---- traffic --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["drop", "forward"])
def test_pfcwd_storm_during_traffic(action: str) -> None:
    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({"action": action}, FAST)) as controller:
            await controller.wait_synced()
            spacing = 2 * MS
            w.send(1, 2, 3, 700, spacing_ps=spacing)
            start, _ = w.storm(2, [3], 500 * MS, after_ps=150 * MS)
            await wait_event(controller, "storm")
            await w.sleep_ps(50 * MS)
            mark = now_ps(w)
            await w.sleep_ps(200 * MS)
            assert w.left(mark)[2, 3] == (100 if action == "forward" else 0)
            await wait_event(controller, "restored")
            resumed = now_ps(w)
            await w.sleep_ps(1400 * MS - (resumed - start) - 100 * MS)
            dropped = stats(controller, 2, 3).total.tx_drop
            assert w.left()[2, 3] + dropped == 700
            assert (dropped > 0) == (action == "drop")
            assert stats(controller, 2, 3).total.tx_ok == (
                0 if action == "drop" else stats(controller, 2, 3).last.tx_ok
            )

    in_world(work)


@pytest.mark.parametrize("empty", [False, True])
def test_pfcwd_no_traffic(empty: bool) -> None:
    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({"empty_queue": empty}, FAST)) as controller:
            await controller.wait_synced()
            w.storm(2, [3], 800 * MS)
            await w.sleep_ps(700 * MS)
            assert events(controller) == ([(2, 3, "storm")] if empty else [])

    in_world(work)


def test_a_burst_storm_shorter_than_detection_loses_nothing() -> None:
    async def work(w: PfcwdWorld) -> None:
        fabric = {"defaults": {"detection_time_ms": 400, "restoration_time_ms": 400}}
        async with w.controller(config({}, fabric)) as controller:
            await controller.wait_synced()
            w.send(1, 2, 3, 250, spacing_ps=10 * MS)
            for n in range(5):
                w.storm(2, [3], 350 * MS, after_ps=(50 + 450 * n) * MS)
            await w.sleep_ps(2600 * MS)
            assert (events(controller), w.left()[2, 3]) == ([], 250)

    in_world(work)


def test_xon_not_counted() -> None:
    """sonic-swss #4581: after XOFF the peer goes on with XON. That is no storm."""

    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({}, FAST)) as controller:
            await controller.wait_synced()
            w.storm(2, [3], 300 * MS)
            xon = build_pfc(pfc_frame(bytes.fromhex("020000000102"), xon=[3]))
            for n in range(200):
                w.world.inject(now_ps(w) + 300 * MS + n * 10 * MS, ("leaf1", 2), xon)
            w.send(1, 2, 3, 5, after_ps=5 * MS)
            await wait_event(controller, "storm")
            event = await wait_event(controller, "restored")
            assert event.time_ns * 1000 < 700 * MS
            w.send(1, 2, 3, 5)
            await w.sleep_ps(20 * MS)
            assert (w.storms(), w.left()[2, 3]) == ({}, 5)

    in_world(work)


# ---- times ----------------------------------------------------------------------------------------------------------


def test_pfcwd_timer_accuracy() -> None:
    """Detect in [T, T + poll), restore in [T, T + poll), over phases, at the switch: when tm_storm works and ends."""

    async def work(w: PfcwdWorld) -> None:
        generator = random.Random(1)
        async with w.controller(config({"priorities": [3]}, watched=[2])) as controller:
            await controller.wait_synced()
            for n in range(1, 11):
                phase = generator.randrange(POLL)
                start, last = w.storm(2, [3], 700 * MS, after_ps=phase)
                w.send(1, 2, 3, 2, after_ps=phase + MS)
                await wait_event(controller, "storm", count=n)
                assert start + T <= now_ps(w) < start + T + POLL + RTT
                await wait_event(controller, "restored", count=n)
                assert last + T <= now_ps(w) < last + T + POLL + RTT

    in_world(work)


# ---- changes in a storm ---------------------------------------------------------------------------------------------


async def stormed(w: PfcwdWorld, controller: object, length_ps: int = 3000 * MS) -> None:
    """Storm priority 3 of port 2 and wait until it is found."""
    from controller import Controller

    assert isinstance(controller, Controller)
    w.storm(2, [3], length_ps)
    w.send(1, 2, 3, 5, after_ps=5 * MS)
    await wait_event(controller, "storm")
    assert w.storms() == {(2, 3): 2}


def test_pfc_switched_off_while_watched() -> None:
    """sonic-swss #842 and PR #1055: a change of pfc_enable, and an empty one, was ignored by the watchdog."""

    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({}, FAST)) as controller:
            await controller.wait_synced()
            await stormed(w, controller)
            await controller.apply(config({}, FAST, pfc=[4]))
            await controller.wait_synced()
            await controller.watchdog.wait_applied(5)
            assert w.storms() == {}
            assert sorted(agent(controller).watches) == [(port, 4) for port in PORTS]
            w.send(1, 2, 3, 9)  # no PFC on it: it is not stopped, and not dropped
            await w.sleep_ps(10 * MS)
            assert w.left(now_ps(w) - 10 * MS)[2, 3] == 9
            await controller.apply(config({}, FAST, pfc=[]))
            await controller.wait_synced()
            assert agent(controller).watches == {}
            await controller.apply(config({}, FAST))
            await controller.wait_synced()
            w.send(1, 2, 3, 5, after_ps=2 * REFRESH_PS)
            await w.sleep_ps(300 * MS)
            assert w.storms() == {(2, 3): 2}

    in_world(work)


def test_config_change_while_stormed() -> None:
    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({}, FAST)) as controller:
            await controller.wait_synced()
            await stormed(w, controller)
            await controller.apply(config({"action": "forward", "restoration_time_ms": 600}, FAST))
            await controller.watchdog.wait_applied(5)
            mark = now_ps(w)
            w.send(1, 2, 3, 4)
            await w.sleep_ps(150 * MS)
            assert (w.left(mark)[2, 3], w.storms()) == (4, {(2, 3): 2})
            w.send(1, 2, 3, 100, spacing_ps=5 * MS)
            await controller.apply(config({"action": "alert"}, FAST))
            await controller.watchdog.wait_applied(5)
            assert w.storms() == {}
            await w.sleep_ps(400 * MS)
            assert events(controller) == [(2, 3, "storm")]
            await controller.apply(config({"action": "drop"}, FAST))
            await controller.watchdog.wait_applied(5)
            assert w.storms() == {(2, 3): 2}
            assert events(controller) == [(2, 3, "storm")]

    in_world(work)


def test_stop_while_stormed() -> None:
    """sonic-swss #4667."""

    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({}, FAST)) as controller:
            await controller.wait_synced()
            await stormed(w, controller, 300 * MS)
            await controller.apply(config(None, FAST))
            await controller.watchdog.wait_applied(5)
            assert w.storms() == {}
            await w.sleep_ps(400 * MS)
            w.send(1, 2, 3, 9)
            await w.sleep_ps(5 * MS)
            assert w.left(now_ps(w) - 5 * MS)[2, 3] == 9

    in_world(work)


# ---- restarts -------------------------------------------------------------------------------------------------------


def test_pfcwd_warm_reboot() -> None:
    """A controller that ends and starts in a storm: mitigated all the while, detected once, restored."""

    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({}, FAST)) as controller:
            await controller.wait_synced()
            await stormed(w, controller, 1500 * MS)
        await w.sleep_ps(400 * MS)
        assert w.storms() == {(2, 3): 2}
        async with w.controller(config({}, FAST)) as controller:
            await controller.wait_synced()
            await wait_event(controller, "taken over")
            assert controller.status()[0].updates_written == 0
            w.send(1, 2, 3, 11)
            await w.sleep_ps(300 * MS)
            assert (stats(controller, 2, 3).detected, stats(controller, 2, 3).last.tx_drop) == (1, 11)
            await wait_event(controller, "restored")
            assert w.storms() == {}
            assert events(controller) == [(2, 3, "taken over"), (2, 3, "restored")]
        # what was stormed when the last watchdog ended, and is watched no more
        async with w.controller(config({}, FAST)) as controller:
            await controller.wait_synced()
            await stormed(w, controller, 500 * MS)
        async with w.controller(config(None, FAST)) as controller:
            await controller.wait_synced()
            await controller.watchdog.wait_applied(5)
            assert w.storms() == {}

    in_world(work)


def test_a_switch_that_restarts_in_a_storm_is_mitigated_again() -> None:
    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({}, FAST)) as controller:
            await controller.wait_synced()
            await stormed(w, controller, 1500 * MS)
            w.leaf.restart()
            await w.sleep_ps(500 * MS)
            await controller.wait_synced()
            assert w.storms() == {(2, 3): 2}
            await wait_event(controller, "restored")
            assert (stats(controller, 2, 3).detected, stats(controller, 2, 3).restored) == (1, 1)

    in_world(work)


def test_a_cut_control_plane_restores_nothing_and_finds_the_storm_after_it() -> None:
    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({}, FAST)) as controller:
            await controller.wait_synced()
            await stormed(w, controller, 2000 * MS)
            w.leaf.cut()
            await w.sleep_ps(1000 * MS)
            assert w.storms() == {(2, 3): 2}
            w.leaf.heal()
            await controller.wait_synced()
            await wait_event(controller, "restored")
            assert stats(controller, 2, 3).detected == 1

    in_world(work)


def test_an_answer_that_was_long_on_its_way_restores_and_detects_nothing() -> None:
    """Questions are held up for a second and answered then. The next look follows at once: it proves no quiet second,
    and for a priority that has been paused since 5 ms, no second's pause."""

    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({"priorities": [3]}, FAST)) as controller:
            await controller.wait_synced()
            await stormed(w, controller, 2000 * MS)
            w.storm(4, [3], 50 * MS, after_ps=995 * MS)
            w.send(1, 4, 3, 5, after_ps=990 * MS)
            w.send(1, 4, 3, 5, after_ps=1000 * MS)
            w.leaf.stall()
            await w.sleep_ps(1000 * MS)
            w.leaf.heal()
            await w.sleep_ps(500 * MS)
            assert events(controller) == [(2, 3, "storm")]
            assert w.storms() == {(2, 3): 2}
            await wait_event(controller, "restored")

    in_world(work)


def test_an_entry_that_somebody_took_away_is_written_again() -> None:
    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({}, FAST)) as controller:
            await controller.wait_synced()
            await stormed(w, controller)
            from controller.watchdog_read import storm_updates

            session = controller.session("leaf1")
            await session.write_raw(storm_updates(session.codec, agent(controller).wanted(), {}))
            assert w.storms() == {}
            await w.sleep_ps(150 * MS)
            assert w.storms() == {(2, 3): 2}

    in_world(work)


# ---- the switch's own timer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["drop", "forward", "alert"])
def test_the_switchs_own_watchdog_finds_what_polls_are_too_slow_for(action: str) -> None:
    """Storms of 12 ms under polls of 1 s."""

    async def work(w: PfcwdWorld) -> None:
        key = {"mode": "switch", "detection_time_ms": 2, "restoration_time_ms": 25, "action": action}
        fabric = {"poll_interval_ms": 1000, "defaults": {"detection_time_ms": 1000, "restoration_time_ms": 1000}}
        async with w.controller(config(key, fabric)) as controller:
            await controller.wait_synced()
            await w.sleep_ps(1200 * MS)
            start, last = w.storm(2, [3], 3 * REFRESH_PS)
            w.send(1, 2, 3, 10, after_ps=MS)
            event = await wait_event(controller, "storm")
            assert 3 * MS <= event.time_ns * 1000 - start < 3 * MS + RTT  # the packet waits from 1 ms on
            assert w.storms() == {(2, 3): 4 if action == "alert" else 1}
            event = await wait_event(controller, "restored")
            assert 25 * MS <= event.time_ns * 1000 - last < 25 * MS + RTT
            await w.sleep_ps(2500 * MS)
            assert events(controller) == [(2, 3, "storm"), (2, 3, "restored")]
            found = stats(controller, 2, 3)
            assert (found.detected, found.restored) == (1, 1)
            assert found.last.tx_drop == (10 if action == "drop" else 0)
            assert w.left()[2, 3] == (0 if action == "drop" else 10)

    in_world(work)


def test_modes_change_and_stop_in_a_storm() -> None:
    """From polls to the switch's own timer, back, and to no watchdog: one of them holds the storm, at last none."""
    by_switch = {"mode": "switch", "detection_time_ms": 10, "restoration_time_ms": 100}

    async def work(w: PfcwdWorld) -> None:
        async with w.controller(config({}, FAST)) as controller:
            await controller.wait_synced()
            await stormed(w, controller)
            w.send(1, 2, 3, 200, spacing_ps=10 * MS)
            for key, state in ((by_switch, 1), ({}, 2), (by_switch, 1), (None, 0)):
                await controller.apply(config(key, FAST))
                await controller.wait_synced()
                await w.sleep_ps(350 * MS)
                assert w.storms() == ({(2, 3): state} if state else {})

    in_world(work)

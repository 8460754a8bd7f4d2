"""Storm control, dialects and telemetry on the real switch under the real controller, in virtual time: exact numbers.

The world is that of the watchdog's tests: one leaf, four hosts at 1 Gb/s. A read takes a round trip of the channel,
so a sample is of a time; frames are injected between samples, where it does not matter.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from bare_world import BareWorld
from dcbx_world import dcbx_world
from pfcwd_world import MS, PfcwdWorld, config, in_world, wait_event
from prometheus_client.parser import text_string_to_metric_families

from controller import Controller
from controller.config import Config, parse, to_data
from controller.histogram import bucket_of
from controller.telemetry_control import TelemetryRequestError, answer
from controller.views import collect
from dcb.pfc import DIALECTS, PfcFrame, build_pfc, pfc_frame
from fabric.loop import run

S = 1000 * MS
HOST = bytes.fromhex("020000000101")
XOFF = build_pfc(pfc_frame(HOST, xoff=[3]))
XON = build_pfc(pfc_frame(HOST, xon=[3]))


def with_port(number: int, telemetry: dict[str, Any] | None = None, **keys: Any) -> Config:
    data = to_data(config())
    data["switches"]["leaf1"]["ports"][number] |= keys
    if telemetry is not None:
        data["telemetry"] = telemetry
    return parse(data)


def alarms(controller: Controller, metric: str) -> list[tuple[str, bool, int]]:
    found = [e.data for e in controller.events.since(0) if e.kind == "alarm" and e.data["metric"] == metric]
    return [(event["where"], event["raised"], event["value"]) for event in found]


@pytest.mark.parametrize(("action", "n", "pauses"), [("ignore", 0, 10), ("alarm", 1, 100)])
def test_storm_control(action: str, n: int, pauses: int) -> None:
    """100 XOFF 10 us apart against 10 at once and one a second: 10 pass, 90 are beyond. XON frames are beyond too, but
    a pause of 10 quanta (5.12 us) is over before the next XOFF, so obeyed frames are pauses that can be counted."""
    short = build_pfc(pfc_frame(HOST, xoff=[3], quanta=10))

    async def work(lab: PfcwdWorld) -> None:
        storm = {"rate": 1, "burst": 10, "action": action}
        async with lab.controller(with_port(1, pfc_storm_control=storm)) as controller:
            await controller.wait_synced()
            await controller.telemetry.wait_round(controller.telemetry.snapshot.rounds)
            for index in range(100):
                lab.world.inject(lab.loop.now_ps + 100 * MS + index * 10_000_000, ("leaf1", 1), short)
            seen = await controller.telemetry.wait_round(controller.telemetry.snapshot.rounds)
            core = lab.leaf.core
            assert core is not None
            assert core.tm.read_state("pause_count", 1 * 8 + 3) == pauses
            counters = await controller.read_counters("leaf1", ["pfc_rx_storm", "pfc_rx_xoff"], [1])
            assert counters["pfc_rx_storm"][1, n].packets == 90
            assert counters["pfc_rx_storm"][1, 1 - n].packets == 0
            assert counters["pfc_rx_xoff"][1, 3].packets == 100
            name = ("ignored", "counted")[n]
            assert [a.reading.where for a in seen.alarms] == [f"leaf1-eth1 {name}"]
            [row] = (await collect(controller, "pfc_storm-control", "leaf1:1"))["ports"]
            assert (row["storm_control"], row["alarm"], row[f"{name}_frames"]) == (storm, True, 90)
            for _ in range(3):
                seen = await controller.telemetry.wait_round(controller.telemetry.snapshot.rounds)
            assert seen.alarms == ()
            assert alarms(controller, "storm_control") == [
                (f"leaf1-eth1 {name}", True, 90),
                (f"leaf1-eth1 {name}", False, 90),
            ]

    in_world(work)


def test_storm_control_that_comes_and_goes_with_the_config() -> None:
    """A controller that had nothing to poll polls from then on, and an alarm ends with what it is about."""

    async def work(lab: PfcwdWorld) -> None:
        async with lab.controller(config()) as controller:
            await controller.wait_synced()
            await lab.sleep_ps(5 * S)
            assert controller.telemetry.snapshot.samples == {}
            await controller.apply(with_port(1, pfc_storm_control={"rate": 1, "burst": 1}))
            await controller.wait_synced()
            await controller.telemetry.wait_round(controller.telemetry.snapshot.rounds)
            for index in range(3):
                lab.world.inject(lab.loop.now_ps + 100 * MS + index * 10_000_000, ("leaf1", 1), XOFF)
            seen = await controller.telemetry.wait_round(controller.telemetry.snapshot.rounds)
            assert [a.reading.value for a in seen.alarms] == [2]
            await controller.apply(config())
            await lab.sleep_ps(2 * S)
            assert controller.telemetry.snapshot.alarms == ()
            assert [raised for _, raised, _ in alarms(controller, "storm_control")] == [True, False]

    in_world(work)


def test_meters_are_compared_changed_and_taken_back() -> None:
    """Meter and policy of the port; a controller that starts on them writes nothing."""

    async def work(lab: PfcwdWorld) -> None:
        async def updates(of: Config, controller: Controller) -> int:
            before = controller.status()[0].updates_written
            await controller.apply(of)
            await controller.wait_synced()
            return controller.status()[0].updates_written - before

        first = with_port(1, pfc_storm_control={"rate": 1000, "burst": 50})
        async with lab.controller(first) as controller:
            await controller.wait_synced()
        async with lab.controller(first) as controller:
            await controller.wait_synced()
            assert controller.status()[0].updates_written == 0
            faster = with_port(1, pfc_storm_control={"rate": 2000, "burst": 50})
            assert await updates(faster, controller) == 1
            tighter = with_port(1, pfc_storm_control={"rate": 2000, "burst": 51, "action": "alarm"})
            assert await updates(tighter, controller) == 2
            assert await updates(config(), controller) == 2
            assert await updates(config(), controller) == 0
            # nothing limits any more: 100 at once
            for index in range(100):
                lab.world.inject(lab.loop.now_ps + index * 10_000_000, ("leaf1", 1), XOFF)
            await lab.sleep_ps(10 * MS)
            counters = await controller.read_counters("leaf1", ["pfc_rx_storm"], [1])
            assert [counters["pfc_rx_storm"][1, n].packets for n in range(2)] == [0, 0]

    in_world(work)


async def paused(controller: Controller, priority: int = 3) -> bool:
    found = await controller.read_registers("leaf1", ["tm_pause_left"], [1])
    return found["tm_pause_left"][1, priority] > 0


@pytest.mark.parametrize("dialect", ["standard", "clear-bit", "until-resumed", "both"])
def test_dialects_received(dialect: str) -> None:
    """0x8000 + 1 quanta: at 1 Gb/s 16.8 ms, or for ever (D1). Then a frame that enables priority 4 alone: it resumes 3
    by its cleared bit (D2), or says nothing of it."""
    forever = DIALECTS[dialect] & 2

    async def work(lab: PfcwdWorld) -> None:
        async with lab.controller(with_port(1, pfc_dialect={"rx": dialect})) as controller:
            await controller.wait_synced()
            times = (0, 0, 0, 0x8001, 0, 0, 0, 0)
            lab.world.inject(lab.loop.now_ps + MS, ("leaf1", 1), build_pfc(PfcFrame(HOST, 0x08, times)))
            await lab.sleep_ps(2 * MS)
            assert await paused(controller)
            await lab.sleep_ps(98 * MS)
            assert await paused(controller) == bool(forever)
            lab.world.inject(lab.loop.now_ps + MS, ("leaf1", 1), build_pfc(PfcFrame(HOST, 0x08, times)))
            other = build_pfc(pfc_frame(HOST, xoff=[4], quanta=10))
            lab.world.inject(lab.loop.now_ps + 2 * MS, ("leaf1", 1), other)
            await lab.sleep_ps(3 * MS)
            assert await paused(controller) == (not DIALECTS[dialect] & 1)

    in_world(work)


@pytest.mark.parametrize(
    ("dialect", "frames"),
    [
        ("standard", [{3: 65535}, {3: 0}]),
        ("clear-bit", [{3: 65535}, {}]),
        ("until-resumed", [{3: 0x8000}, {3: 0}]),
        ("both", [{3: 0x8000}, {}]),
    ],
)
def test_dialects_sent(dialect: str, frames: list[dict[int, int]]) -> None:
    """Host 1 sends 30 frames at once to host 2, which is paused: XOFF to host 1, and XON when host 2 goes on."""

    async def work(lab: PfcwdWorld) -> None:
        async with lab.controller(with_port(1, pfc_dialect={"tx": dialect})) as controller:
            await controller.wait_synced()
            lab.world.inject(lab.loop.now_ps + MS, ("leaf1", 2), XOFF)
            lab.send(1, 2, 3, 30, after_ps=2 * MS)
            await lab.sleep_ps(5 * MS)
            lab.world.inject(lab.loop.now_ps, ("leaf1", 2), XON)
            await lab.sleep_ps(2 * MS)
            raw = [f for _, _, port, f in lab.world.trace if port == 1 and f[12:14] == b"\x88\x08"]
            seen = [
                {p: int.from_bytes(f[18 + 2 * p : 20 + 2 * p], "big") for p in range(8) if f[17] >> p & 1} for f in raw
            ]
            assert seen == frames

    in_world(work)


@pytest.mark.parametrize(("asymmetric", "obeyed"), [(False, False), (True, True)])
def test_asymmetric_pfc_obeys_every_priority(asymmetric: bool, obeyed: bool) -> None:
    async def work(lab: PfcwdWorld) -> None:
        async with lab.controller(with_port(1, pfc_asymmetric=asymmetric)) as controller:
            await controller.wait_synced()
            lab.world.inject(lab.loop.now_ps, ("leaf1", 1), build_pfc(pfc_frame(HOST, xoff=[0, 3])))
            await lab.sleep_ps(MS)
            assert (await paused(controller, 0), await paused(controller, 3)) == (obeyed, True)
            [row] = (await collect(controller, "pfc_storm-control", "leaf1:1"))["ports"]
            assert row["asymmetric"] is asymmetric

    in_world(work)


def test_what_telemetry_measures(tmp_path: Path) -> None:
    """Host 2 pauses its port for 3 ms while host 1 sends 30 frames to it: XOFF from the 20th on, until 10 are left.

    Every figure is held to what the traffic manager itself says.
    """
    path = tmp_path / "events.jsonl"
    key = {
        **{"interval_ms": 100, "events": str(path), "prometheus": "127.0.0.1:0"},
        **{"thresholds": {"hops": 1, "recovery_us": 1000, "latency_us": 1000}, "hysteresis": {"clear_after": 2}},
    }

    async def work(lab: PfcwdWorld) -> None:
        async with lab.controller(with_port(1, telemetry=key)) as controller:
            await controller.wait_synced()
            service = controller.telemetry
            await service.wait_round(service.snapshot.rounds + 1)
            lab.world.inject(lab.loop.now_ps + MS, ("leaf1", 2), XOFF)
            lab.send(1, 2, 3, 30, after_ps=2 * MS)
            lab.world.inject(lab.loop.now_ps + 4 * MS, ("leaf1", 2), XON)
            seen = await service.wait_round(service.snapshot.rounds)
            core = lab.leaf.core
            assert core is not None
            sample = seen.samples["leaf1"]
            for name, kind, cell in (
                ("egress.tm_delay_histogram", "delay_histogram", (2, 3)),
                ("egress.tm_pause_histogram", "pause_histogram", (2, 3)),
                ("egress.tm_xoff_histogram", "xoff_histogram", (1, 3)),
            ):
                base = (cell[0] * 8 + cell[1]) * 32
                counts = tuple(core.tm.read_state(kind, base + bucket) for bucket in range(32))
                assert sample.histograms[name][cell].counts == counts
                assert sum(counts) > 0
            assert sample.histogram("egress.tm_delay_histogram", 2, 3).total == 30
            assert sample.histogram("egress.tm_pause_histogram", 2, 3).counts[bucket_of(3 * 10**6)] == 1
            assert sample.register("egress.tm_paused_ns", 2, 3) == 3 * 10**6
            xoff_ns = sample.register("egress.tm_xoff_ns", 1, 3)
            assert xoff_ns is not None
            assert sample.histogram("egress.tm_xoff_histogram", 1, 3).counts[bucket_of(xoff_ns)] == 1
            values = {reading.key: reading for reading in seen.interval.readings} if seen.interval else {}
            assert values["hops", "priority 3"].detail == "? -> leaf1 -> ?"
            assert values["pfc_rate", "leaf1-eth2 priority 3 rx"].value == 10  # one in 100 ms
            assert {a.rule.metric for a in seen.alarms} == {"hops", "recovery", "latency"}
            for _ in range(2):
                seen = await service.wait_round(service.snapshot.rounds)
            assert seen.alarms == ()
            state = await answer(controller, {"what": "state"})
            assert (state["on"], state["answered"], state["silent"]) == (True, ["leaf1"], [])
            with urllib.request.urlopen(state["prometheus"]) as reply:
                families = {f.name: f for f in text_string_to_metric_families(reply.read().decode())}
            pauses = {(s.labels["port"], s.labels["priority"]): s.value for s in families["dcblab_pfc_pauses"].samples}
            assert {cell: value for cell, value in pauses.items() if value} == {("leaf1-eth2", "3"): 1}

    in_world(work)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [e["number"] for e in events] == list(range(1, len(events) + 1))
    told = [(e["metric"], e["raised"]) for e in events if e["kind"] == "alarm"]
    assert sorted(told[:3]) == [("hops", True), ("latency", True), ("recovery", True)]
    assert sorted(told[3:]) == [("hops", False), ("latency", False), ("recovery", False)]
    assert [e["state"] for e in events if e["kind"] == "session"][:2] == ["syncing", "synced"]


def test_a_question_that_waits_makes_no_rate_higher() -> None:
    """50 XOFF a second. Questions are held up for 2 s in between: what they count then is of 2 s, not of 100 ms."""

    async def work(lab: PfcwdWorld) -> None:
        async with lab.controller(with_port(1, telemetry={"interval_ms": 100})) as controller:
            await controller.wait_synced()
            service, rates = controller.telemetry, []
            await service.wait_round(service.snapshot.rounds + 1)
            lab.storm(2, [3], 4000 * MS)
            lab.loop.call_at_ps(lab.loop.now_ps + 550 * MS, lab.leaf.stall)
            lab.loop.call_at_ps(lab.loop.now_ps + 2550 * MS, lab.leaf.heal)
            while lab.loop.now_ps < 3 * S:
                seen = await service.wait_round(service.snapshot.rounds)
                assert seen.interval is not None
                rates += [r.value for r in seen.interval.readings if r.key == ("pfc_rate", "leaf1-eth2 priority 3 rx")]
            assert len(rates) > 8
            assert 40 <= min(rates) <= max(rates) <= 60

    in_world(work)


def test_watch_needs_no_telemetry() -> None:
    """100 frames of 1000 bytes to host 2 within the 500 ms between the two samples: 1.6 Mb/s."""

    async def work(lab: PfcwdWorld) -> None:
        async with lab.controller(config()) as controller:
            await controller.wait_synced()
            lab.send(1, 2, 3, 100, after_ps=100 * MS, spacing_ps=MS)
            view = await answer(controller, {"what": "watch", "interval_ms": 500, "target": "leaf1:2"})
            [port] = view["ports"]
            row = port["priorities"][3]
            assert 1_590_000 <= row["tx_bps"] <= 1_600_000  # two round trips of reading are in the interval
            assert (row["rx_bps"], row["dropped"], row["paused_permille"], row["storm"]) == (0, 0, 0, "operational")
            assert row["delay_p99_ns"] == 0
            for wrong in ({"interval_ms": 5}, {"what": "dance"}, {"target": 7}, {"what": "events", "kinds": ["x"]}):
                with pytest.raises(TelemetryRequestError):
                    await answer(controller, {"what": "watch", **wrong})

    in_world(work)


def test_a_switch_that_is_killed_is_silent_and_comes_back() -> None:
    async def work(lab: PfcwdWorld) -> None:
        async with lab.controller(with_port(1, telemetry={"interval_ms": 100})) as controller:
            await controller.wait_synced()
            service = controller.telemetry
            await service.wait_round(service.snapshot.rounds + 1)
            lab.leaf.kill()
            seen = await service.wait_round(service.snapshot.rounds + 1)
            assert (seen.switches, dict(seen.samples)) == (("leaf1",), {})
            lab.leaf.start()
            await controller.wait_synced()
            seen = await service.wait_round(service.snapshot.rounds + 1)
            assert list(seen.samples) == ["leaf1"]
            states = [e.data["state"] for e in controller.events.since(0) if e.kind == "session"]
            assert states == ["syncing", "synced", "disconnected", "syncing", "synced"]

    in_world(work)


def test_what_the_watchdog_says_is_an_event_and_on_the_screen() -> None:
    async def work(lab: PfcwdWorld) -> None:
        async with lab.controller(config({}, {"poll_interval_ms": 100})) as controller:
            await controller.wait_synced()
            lab.storm(2, [3], 1000 * MS)
            lab.send(1, 2, 3, 4, after_ps=5 * MS)
            await wait_event(controller, "storm")
            [event] = [e for e in controller.events.since(0) if e.kind == "watchdog"]
            assert (event.switch, event.port, event.data["priority"], event.data["event"]) == (
                *("leaf1", "leaf1-eth2", 3),
                "storm",
            )
            view = await answer(controller, {"what": "watch", "interval_ms": 200, "target": "leaf1:2"})
            assert view["watchdog"] == [{"switch": "leaf1", "port": 2, "name": "leaf1-eth2", "priority": 3}]
            assert view["ports"][0]["priorities"][3]["storm"] == "mitigated"

    in_world(work)


def test_what_dcbx_says_is_an_event() -> None:
    """Every line of every agent's log, once, with its own time."""
    world = BareWorld()

    async def main() -> None:
        async with dcbx_world(world) as fabric, fabric.controller() as controller:
            await controller.wait_synced(60)
            for host in fabric.hosts.values():
                host.set_link(True)
            await asyncio.sleep(1)
            found = sorted((e.time_ns, e.switch, e.text) for e in controller.events.since(0) if e.kind == "dcbx")
            logs = [(n.time_ns, name, n.text) for name, agent in controller.dcbx.agents.items() for n in agent.log]
            assert found == sorted(logs)
            assert {switch for _, switch, _ in found} == {"leaf1", "leaf2", "spine1", "spine2"}

    run(world, main())

"""sonic-mgmt's tests/snappi_tests/pfcwd at 100 and 400 Gb/s in virtual time: traffic around the PFC watchdog.

The watchdog's times, actions and counters are in `test_virtual_pfcwd`, at 1 Gb/s. Here: what a storm does to flows of a
traffic generator in the shapes of that suite. At line rate the switch's own timer detects (mode `switch`): with polls
of 100 ms most of the time would go into frames.
"""

from __future__ import annotations

import pytest
from snappi_lab import FRAME, LOSSLESS, RATES, SnappiLab, config, xoff

from dcb.units import PS_PER_MS, PS_PER_US
from dcb.watchdog import Stats

TX, RX = 1, 2
MS, US = PS_PER_MS, PS_PER_US
POLL = {"poll_interval_ms": 100}
BY_POLLS = {"action": "drop", "detection_time_ms": 100, "restoration_time_ms": 100}
BY_SWITCH = {"action": "drop", "mode": "switch", "detection_time_ms": 1, "restoration_time_ms": 2}


def watch(rig: SnappiLab, key: dict[str, object], ports: tuple[int, ...] = tuple(RATES)) -> None:
    """Watch these ports."""
    rig.apply(config({port: {"pfc_watchdog": key} for port in ports}, pfc_watchdog=POLL))


def stats(rig: SnappiLab, port: int, priority: int) -> Stats:
    return rig.controller.watchdog.switches["leaf1"].agent.watches[port, priority].machine.stats


def events(rig: SnappiLab) -> int:
    """How many storms and restorations the watchdog has logged."""
    return len(rig.controller.watchdog.switches["leaf1"].agent.log)


@pytest.mark.parametrize("trigger", [True, False], ids=["triggered", "not-triggered"])
@pytest.mark.parametrize("paused", [(3,), LOSSLESS], ids=["single", "multi"])
def test_pfcwd_basic(rig: SnappiLab, paused: tuple[int, ...], trigger: bool) -> None:
    """PFCWD_BASIC: a storm longer than detect + poll: flow 1 is lost whole, flow 2, from restore + poll after its end
    on, arrives whole; a storm of half the detection time: both do. Background arrives in either case."""
    watch(rig, BY_POLLS)
    storm_ps = (250 if trigger else 50) * MS
    pauses = rig.storm(RX, paused, storm_ps)
    rig.advance(10 * US)
    first = {p: rig.send(TX, RX, p, 0.05, length_ps=storm_ps - 20 * MS) for p in paused}
    other = rig.send(TX, RX, 0, 0.05, length_ps=storm_ps + 300 * MS)
    rig.advance(storm_ps + 200 * MS)
    seen = rig.received()
    assert {p: seen[TX, RX, p] for p in paused} == (dict.fromkeys(paused, 0) if trigger else first)
    second = {p: rig.send(TX, RX, p, 0.05, length_ps=50 * MS, sport=50000) for p in paused}
    rig.advance(110 * MS)
    later = rig.received()
    assert {p: later[TX, RX, p] for p in paused} == second
    assert seen[TX, RX, 0] + later[TX, RX, 0] == other
    counts = rig.counts()
    dropped = {(RX, p): n for p, n in first.items()} if trigger else {}
    assert counts.drops() == ({"tm_drop_storm_tx": dropped} if trigger else {})
    assert counts["pfc_rx_xoff"] == dict.fromkeys(((RX, p) for p in paused), pauses)
    for p in paused:
        found = stats(rig, RX, p)
        assert (found.detected, found.restored, found.last.tx_drop) == ((1, 1, first[p]) if trigger else (0, 0, 0))


def stormed(rig: SnappiLab, port: int, priorities: tuple[int, ...], source: int) -> None:
    """A storm without end at a port, with one packet of each priority from `source` waiting; until it is detected."""
    rig.send_frame(port, xoff(port, priorities), count=None, gap_ps=40 * US)
    rig.advance(10 * US)
    for priority in priorities:
        rig.send(source, port, priority, 1, length_ps=20 * US)
    rig.advance(1 * MS + 500 * US)
    assert {p: rig.core.tm.read_state("storm_state", port * 8 + p) for p in priorities} == dict.fromkeys(priorities, 1)
    rig.received()
    rig.counts()


def over(rig: SnappiLab, port: int, priorities: tuple[int, ...]) -> None:
    """The storm ends; until it is restored."""
    rig.stop()
    rig.advance(2 * MS + 500 * US)
    assert not any(rig.core.tm.read_state("storm_state", port * 8 + p) for p in priorities)


def test_pfcwd_all_to_all(rig: SnappiLab) -> None:
    """test_pfcwd_a2a: three ports send to each other at 45% lossless and 45% background; one storms. Lossless frames to
    and from it are dropped, all of them; every other frame arrives, with no pause for anybody."""
    watch(rig, BY_SWITCH)
    stormed(rig, RX, (3,), 1)
    ports = (1, 2, 3)
    sent = {
        (a, b, p): rig.send(a, b, p, 45 / 2, length_ps=500 * US) for a in ports for b in ports if a != b for p in (3, 0)
    }
    rig.advance(600 * US)
    seen, counts = rig.received(), rig.counts()
    lost = {(a, b, p): n for (a, b, p), n in sent.items() if p == 3 and RX in (a, b)}
    assert dict(seen) == {flow: n for flow, n in sent.items() if flow not in lost}
    assert counts.drops() == {
        "tm_drop_storm_tx": {(RX, 3): sent[1, RX, 3] + sent[3, RX, 3]},
        "tm_drop_storm_rx": {(RX, 3): sent[RX, 1, 3] + sent[RX, 3, 3]},
    }
    assert not any(rig.control.values())
    over(rig, RX, (3,))
    again = {(a, b): rig.send(a, b, 3, 40, length_ps=200 * US) for a, b in ((1, RX), (RX, 3))}
    rig.advance(250 * US)
    after = rig.received()
    assert {(a, b): after[a, b, 3] for a, b in again} == again


@pytest.mark.parametrize(("sources", "to"), [((1, 3), 2), ((1, 2, 3), 4)], ids=["100G", "mixed-speed"])
@pytest.mark.parametrize("trigger", [True, False], ids=["triggered", "not-triggered"])
def test_pfcwd_many_to_one(rig: SnappiLab, sources: tuple[int, ...], to: int, trigger: bool) -> None:
    """test_pfcwd_m2o, test_pfcwd_mixed_speed: all ports send to one, which storms. Detected, its lossless frames are
    dropped from every source and nobody is paused any more; a storm that is too short costs nothing."""
    watch(rig, BY_SWITCH)
    if trigger:
        stormed(rig, to, LOSSLESS, sources[0])
    else:
        rig.storm(to, LOSSLESS, 600 * US, gap_ps=40 * US)
        rig.advance(10 * US)
    percent = 45 / len(sources)
    sent = {(s, p): rig.send(s, to, p, percent / 2, length_ps=500 * US) for s in sources for p in LOSSLESS}
    other = {s: rig.send(s, to, 0, percent, length_ps=500 * US) for s in sources}
    if trigger:
        rig.advance(600 * US)
    else:
        rig.drain()
    seen, counts = rig.received(), rig.counts()
    assert {s: seen[s, to, 0] for s in sources} == other
    for (source, priority), n in sent.items():
        assert seen[source, to, priority] == (0 if trigger else n)
    dropped = {(to, p): sum(n for (_, q), n in sent.items() if q == p) for p in LOSSLESS}
    assert counts.drops() == ({"tm_drop_storm_tx": dropped} if trigger else {})
    assert any(rig.control[s] for s in sources) is not trigger
    if trigger:
        over(rig, to, LOSSLESS)
    assert [stats(rig, to, p).detected for p in LOSSLESS] == [int(trigger)] * 2


def test_pfcwd_burst_storm(rig: SnappiLab) -> None:
    """Bursts of half the detection time, a third of the time, into line rate of both lossless priorities:
    the watchdog stays calm and no frame is lost."""
    watch(rig, BY_SWITCH)
    logged = events(rig)
    bursts, cycle_ps = 3, 1500 * US
    for n in range(bursts):
        start_ps = rig.now_ps + n * cycle_ps
        rig.send_frame(RX, xoff(RX, LOSSLESS), count=3, start_ps=start_ps, gap_ps=200 * US)
        rig.send_frame(RX, xoff(RX, LOSSLESS, 0), start_ps=start_ps + 500 * US)
    sent = sum(rig.send(TX, RX, p, 50, length_ps=bursts * cycle_ps) for p in LOSSLESS)
    rig.advance(bursts * cycle_ps)
    rig.drain()
    counts = rig.counts()
    assert counts.drops() == {}
    assert sum(rig.received().values()) == sent
    assert events(rig) == logged
    assert counts["pfc_rx_xoff"] == {(RX, p): 3 * bursts for p in LOSSLESS}


def test_pfcwd_runtime_traffic(rig: SnappiLab) -> None:
    """The watchdog is switched on, changed and off again under line rate: no frame is lost or late, no storm seen."""
    sent = {p: rig.send(TX, RX, p, 100 / 8, length_ps=6 * MS) for p in range(8)}
    start_ps, logged = rig.now_ps, events(rig)
    for key in (BY_SWITCH, {**BY_SWITCH, "action": "forward"}, BY_POLLS):
        watch(rig, key)
        assert events(rig) == logged
        rig.advance(500 * US)
    rig.apply(rig.base)
    assert rig.now_ps - start_ps < 6 * MS
    rig.advance_to(start_ps + 6 * MS + 20 * US)
    seen, counts = rig.received(), rig.counts()
    assert {p: seen[TX, RX, p] for p in sent} == sent
    assert (counts.drops(), counts["pfc_tx_frames"]) == ({}, {})
    assert sum(sent.values()) * FRAME > 70_000_000


def test_pfc_storm_with_shared_headroom_occupancy(rig: SnappiLab) -> None:
    """Pfc_Storm_with_Shared_Headroom: a storm holds frames of two senders in the shared headroom pool; the watchdog's
    drop gives every byte of it back, and after the storm the pool carries the same again."""
    shared = config({port: {"pfc_watchdog": BY_SWITCH} for port in RATES}, pfc_watchdog=POLL)
    leaf = shared["switches"]["leaf1"]
    group = {**leaf["ports"][TX]["buffers"][3], "headroom_pool": 0}
    leaf["headroom_pools"] = {0: 2 * group["headroom"]}
    for port in (TX, 3):
        leaf["ports"][port]["buffers"] = {3: group, 4: group}
    rig.apply(shared)
    tm = rig.core.tm
    for detected in (1, 2):
        rig.send_frame(RX, xoff(RX, [3]), count=30, gap_ps=100 * US)
        rig.advance(10 * US)
        sent = sum(rig.send(source, RX, 3, 100, length_ps=50 * US) for source in (TX, 3))
        rig.advance(100 * US)
        held = tm.read_state("headroom_pool_used", 0)
        assert held == sum(tm.read_state("pg_headroom", port * 8 + 3) for port in (TX, 3)) > group["headroom"]
        rig.advance(1 * MS)
        assert tm.read_state("storm_state", RX * 8 + 3) == 1
        assert tm.read_state("headroom_pool_used", 0) == tm.read_state("pool_used", 0) == 0
        rig.advance(6 * MS)
        assert tm.read_state("storm_state", RX * 8 + 3) == 0
        counts = rig.counts()
        assert counts.drops() == {"tm_drop_storm_tx": {(RX, 3): sent}}
        assert (stats(rig, RX, 3).detected, stats(rig, RX, 3).restored) == (detected, detected)
        sent = sum(rig.send(source, RX, 3, 100, length_ps=50 * US) for source in (TX, 3))
        rig.received()
        rig.drain()
        assert sum(rig.received().values()) == sent
        assert rig.counts().drops() == {}

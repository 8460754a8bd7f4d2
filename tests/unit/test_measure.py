"""Figures of a run from two snapshots, on a fabric of one leaf, one spine and two hosts, worked out by hand."""

from __future__ import annotations

from topologies.description import leaf_spine
from topologies.measure import COUNTERS, REGISTERS, Snapshot, drops, host_frames, pfc_links, shares
from topologies.results import Drops, LinkPfc

FABRIC = leaf_spine(1, 1, 2)
Changes = dict[tuple[str, str, int, int], tuple[int, int]]


def snapshot(changes: Changes | None = None, registers: dict[tuple[str, str, int, int], int] | None = None) -> Snapshot:
    """All zero but for (switch, counter, port, n): (packets, bytes) and (switch, register, port, n): value."""
    counters = {
        s.name: {name: {(port, n): (0, 0) for port in s.ports for n in range(8)} for name in COUNTERS}
        for s in FABRIC.switches
    }
    state = {
        s.name: {name: {(port, n): 0 for port in s.ports for n in range(8)} for name in REGISTERS}
        for s in FABRIC.switches
    }
    for (switch, name, port, n), value in (changes or {}).items():
        counters[switch][name][port, n] = value
    for (switch, name, port, n), value in (registers or {}).items():
        state[switch][name][port, n] = value
    return Snapshot(0.0, counters, state)


def test_pfc_of_each_direction_with_what_the_other_end_received() -> None:
    before = snapshot({("leaf1", "pfc_tx_xoff", 3, 3): (1, 0)})
    after = snapshot(
        {
            ("leaf1", "pfc_tx_xoff", 3, 3): (6, 0),
            ("leaf1", "pfc_tx_xon", 3, 3): (4, 0),
            ("spine1", "pfc_rx_xoff", 1, 3): (5, 0),
            ("spine1", "pfc_rx_xon", 1, 3): (3, 0),
            ("leaf1", "pfc_tx_xoff", 1, 4): (2, 0),
            ("leaf1", "pfc_tx_xoff", 2, 3): (7, 0),
        }
    )
    assert pfc_links(FABRIC, before, after, {"h2": 6}) == (
        LinkPfc("leaf1", "h1", 2, 0, (4,), None),
        LinkPfc("leaf1", "h2", 7, 0, (3,), 6),
        LinkPfc("leaf1", "spine1", 5, 4, (3,), 8),
    )


def test_drops_by_switch_reason_and_priority() -> None:
    after = snapshot(
        {
            ("leaf1", "tm_drop_headroom", 1, 3): (2, 200),
            ("leaf1", "tm_drop_headroom", 2, 3): (3, 300),
            ("leaf1", "tm_drop_rx", 1, 0): (9, 0),
            ("spine1", "ecn_dropped", 1, 0): (1, 60),
        }
    )
    assert drops(snapshot(), after) == (
        Drops("leaf1", "headroom", 3, 5),
        Drops("leaf1", "receive ring overrun", -1, 9),
        Drops("spine1", "ecn dropped", 0, 1),
    )
    assert after.lost(3) == 5
    assert after.lost(0) == 1


def test_shares_are_of_bytes_between_the_snapshots() -> None:
    before = snapshot({("leaf1", "tm_dequeued", 1, 3): (1, 1000)})
    after = snapshot({("leaf1", "tm_dequeued", 1, 3): (9, 7000), ("leaf1", "tm_dequeued", 1, 0): (9, 4000)})
    assert shares(before, after, "leaf1", 1, (3, 0)) == {3: 0.6, 0: 0.4}
    assert shares(before, before, "leaf1", 1, (3, 0)) == {3: 0.0, 0: 0.0}


def test_host_frames_count_ports_that_face_hosts_only() -> None:
    after = snapshot({("leaf1", "rx", 1, 0): (5, 0), ("leaf1", "rx", 2, 0): (6, 0), ("leaf1", "rx", 3, 0): (100, 0)})
    assert host_frames(FABRIC, after, "rx", 0) == 11


def test_what_is_buffered_and_paused() -> None:
    state = snapshot(
        registers={
            ("leaf1", "tm_pg_depth", 1, 3): 100,
            ("spine1", "tm_pg_depth", 1, 0): 20,
            ("leaf1", "tm_paused_ns", 2, 3): 7,
            ("spine1", "tm_paused_ns", 1, 3): 8,
            ("spine1", "tm_paused_ns", 1, 0): 1,
        }
    )
    assert state.buffered_bytes() == 120
    assert (state.paused_ns(3), state.paused_ns(0), state.paused_ns(1)) == (15, 1, 0)

"""Shared pools and headroom pools of the bundled program through the whole switch, changed while they hold bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dcb_switch import DcbSwitch, data

XOFF, XON, HEADROOM = 10_000, 4_000, 20_000
PG = {port: port * 8 + 3 for port in (1, 3, 4)}


@pytest.fixture
def switch() -> Iterator[DcbSwitch]:
    """Lossless groups of ports 1, 3 and 4 towards port 2, which sends nothing."""
    made = DcbSwitch()
    for port in PG:
        made.static_group(port, 3, 0, XOFF, XON, HEADROOM)
        made.send_pfc(port, 1 << 3)
    made.hold(2)
    yield made
    made.service.close()


def pool(switch: DcbSwitch, number: int, size: int) -> None:
    switch.put("egress.tm_pool", (number,), "egress.tm_set_pool", size)


def headroom_pool(switch: DcbSwitch, number: int, size: int) -> None:
    switch.put("egress.tm_headroom_pool", (number,), "egress.tm_set_headroom_pool", size)


def member(switch: DcbSwitch, port: int, in_pool: int, in_headroom_pool: int = 255) -> None:
    switch.put("egress.tm_pg_pool", (port, 3), "egress.tm_set_pg_pool", in_pool, in_headroom_pool)


def fill(switch: DcbSwitch, port: int, total: int, priority: int = 3) -> None:
    """Frames of 1000 bytes and one of the rest."""
    for length in [1000] * (total // 1000) + [total % 1000] * (total % 1000 > 0):
        switch.receive(port, data(length, priority=priority), switch.switch_core.now_ps)


def used(switch: DcbSwitch, kind: str = "pool_used") -> dict[int, int]:
    switch.switch_core.tm.check()
    found = {number: switch.state(f"egress.tm_{kind}", number) for number in range(10)}
    return {number: value for number, value in found.items() if value}


def drain(switch: DcbSwitch) -> None:
    switch.hold(2, False)
    switch.drain()
    switch.assert_empty()


def test_headroom_pool_size(switch: DcbSwitch) -> None:
    """The headroom of all groups together, to the byte; beyond it the group that comes is dropped, and it alone."""
    headroom_pool(switch, 2, 5_000)
    for port in PG:
        member(switch, port, 0, 2)
        fill(switch, port, XOFF)
    assert used(switch, "headroom_pool_used") == {}
    fill(switch, 1, 3_000)
    fill(switch, 3, 1_940)
    assert switch.drops() == {}
    fill(switch, 4, 61)  # 60 are left
    assert switch.drops() == {"tm_drop_headroom": {PG[4]: 1}}
    fill(switch, 4, 60)
    fill(switch, 1, 60)
    assert switch.drops() == {"tm_drop_headroom": {PG[4]: 1, PG[1]: 1}}
    assert used(switch, "headroom_pool_used") == {2: 5_000}
    assert [switch.state("egress.tm_pg_headroom", PG[port]) for port in PG] == [3_000, 1_940, 60]
    drain(switch)
    assert used(switch, "headroom_pool_used") == {}


def test_the_groups_own_headroom_still_limits(switch: DcbSwitch) -> None:
    headroom_pool(switch, 0, 1_000_000)
    member(switch, 1, 0, 0)
    fill(switch, 1, XOFF + HEADROOM)
    assert switch.drops() == {}
    fill(switch, 1, 60)
    assert switch.drops() == {"tm_drop_headroom": {PG[1]: 1}}
    drain(switch)


def test_headroom_pool_watermark(switch: DcbSwitch) -> None:
    headroom_pool(switch, 1, 50_000)
    for port in (1, 3):
        member(switch, port, 0, 1)
        fill(switch, port, XOFF + 2_500)
    assert used(switch, "headroom_pool_watermark") == {1: 5_000}
    switch.hold(2, False)
    switch.drain()
    assert used(switch, "headroom_pool_watermark") == {1: 5_000}
    switch.clear("egress.tm_headroom_pool_watermark", 1)
    assert used(switch, "headroom_pool_watermark") == {}
    assert used(switch, "headroom_pool_used") == {}


def test_buffer_pool_watermark(switch: DcbSwitch) -> None:
    """Shared bytes alone: neither reserved ones nor headroom; cleared, it starts from what is held."""
    pool(switch, 1, 100_000)
    switch.static_group(1, 3, 2_000, XOFF, XON, HEADROOM)
    member(switch, 1, 1)
    fill(switch, 1, XOFF + 5_000)
    fill(switch, 3, 7_000)
    assert used(switch, "pool_watermark") == {0: 7_000, 1: 8_000}
    switch.hold(2, False)
    switch.until(switch.switch_core.now_ps + 100_000)  # one frame of each left, or of one of them
    held = used(switch)
    switch.clear("egress.tm_pool_watermark", 1)
    assert used(switch, "pool_watermark") == {0: 7_000, 1: held[1]}
    drain(switch)
    assert used(switch, "pool_watermark") == {0: 7_000, 1: held[1]}


def test_alpha_is_of_the_groups_pool(switch: DcbSwitch) -> None:
    """Half of its pool, whatever the other pool holds (used <= pool - used)."""
    pool(switch, 1, 20_000)
    for port in (1, 3):
        switch.put("egress.tm_priority_group", (port, 3), "egress.tm_pg_dynamic", 0, 0, 0, 0, 1 << 3)
    member(switch, 1, 1)
    fill(switch, 3, 1_000_000)
    fill(switch, 1, 10_000)
    assert switch.drops() == {}
    assert switch.state("egress.tm_pg_xoff", PG[1]) == 1
    assert switch.state("egress.tm_pg_xoff", PG[3]) == 0
    fill(switch, 1, 60)
    assert switch.drops() == {"tm_drop_pg": {PG[1]: 1}}
    drain(switch)


def test_a_pool_without_bytes_gives_none(switch: DcbSwitch) -> None:
    """Pools 1..7 are empty by default: what is not reserved is dropped for the pool."""
    switch.put("egress.tm_priority_group", (1, 3), "egress.tm_pg_static", 1_000, 5_000, 500, 0, 0)
    member(switch, 1, 7)
    fill(switch, 1, 2_000)
    assert switch.state("egress.tm_pg_depth", PG[1]) == 1_000
    assert switch.drops() == {"tm_drop_headroom": {PG[1]: 1}}
    switch.receive(1, data(500, priority=0))
    drain(switch)


def test_a_group_moves_with_what_it_holds(switch: DcbSwitch) -> None:
    """To another pool and headroom pool and back, over their sizes too: not a byte is lost or leaked."""
    pool(switch, 1, 50_000)
    headroom_pool(switch, 1, 50_000)
    fill(switch, 1, XOFF + 5_000)
    fill(switch, 3, 1_000)
    assert used(switch) == {0: 11_000}
    member(switch, 1, 1, 1)
    assert used(switch) == {0: 1_000, 1: 10_000}
    assert used(switch, "headroom_pool_used") == {1: 5_000}
    member(switch, 1, 2, 2)  # neither has a byte: all is charged to the pool, which is over its size
    assert used(switch) == {0: 1_000, 2: 15_000}
    assert used(switch, "headroom_pool_used") == {}
    fill(switch, 1, 60)
    assert switch.drops() == {"tm_drop_headroom": {PG[1]: 1}}
    headroom_pool(switch, 2, 3_000)
    pool(switch, 2, 12_000)
    switch.static_group(1, 3, 0, XOFF, XON, HEADROOM + 1)  # what is shared now uses up no headroom
    assert used(switch) == {0: 1_000, 2: 15_000}
    fill(switch, 1, 3_000)
    assert used(switch, "headroom_pool_used") == {2: 3_000}
    switch.remove("egress.tm_pool", (2,))
    switch.remove("egress.tm_headroom_pool", (2,))
    assert used(switch) == {0: 1_000, 2: 15_000}
    switch.remove("egress.tm_pg_pool", (1, 3))
    assert used(switch) == {0: 16_000}
    assert switch.state("egress.tm_pg_headroom", PG[1]) == 3_000
    drain(switch)


def test_a_pool_resized_under_load(switch: DcbSwitch) -> None:
    """A dynamic group is XOFF when its pool shrinks and XON when it grows; what is held is kept."""
    pool(switch, 1, 100_000)
    switch.put("egress.tm_priority_group", (1, 3), "egress.tm_pg_dynamic", 0, 0, 1_000, HEADROOM, 1 << 3)
    member(switch, 1, 1)
    fill(switch, 1, 30_000)
    assert switch.state("egress.tm_pg_xoff", PG[1]) == 0
    pool(switch, 1, 5_000)
    assert (used(switch), switch.state("egress.tm_pg_xoff", PG[1])) == ({1: 30_000}, 1)
    switch.until(10**6)
    pool(switch, 1, 60_999)  # threshold 30,999 less the offset: 29,999
    assert switch.state("egress.tm_pg_xoff", PG[1]) == 1
    pool(switch, 1, 61_000)
    assert switch.state("egress.tm_pg_xoff", PG[1]) == 0
    assert switch.state("egress.tm_xoff_count", PG[1]) == 1
    assert switch.state("egress.tm_xoff_ns", PG[1]) == 1_000
    assert switch.histogram("egress.tm_xoff_histogram", PG[1]) == {10: 1}
    drain(switch)

"""Dialects of PFC and storm control of the bundled program, through the whole switch.

D1: the top bit of a time means 'until resumed'. D2: resume is a cleared bit. Frames are written out by hand.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dcb_switch import DEVICE_ID, PORTS, DcbSwitch, data
from finsy.proto import p4r
from l2_core import pfc, read_pfc

US = 10**6  # picoseconds
D2, D1 = 1, 2  # bits of the parameter
STORMED = 2 * 8 + 3


@pytest.fixture
def switch() -> Iterator[DcbSwitch]:
    made = DcbSwitch()
    for port in PORTS:
        made.set_up_port(port, pfc_rx=0x18)
    yield made
    made.service.close()


def policy(switch: DcbSwitch, dialect: int = 0, storm_action: int = 0, port: int = 2) -> None:
    switch.put("ingress.pfc_policy", (port,), "ingress.set_pfc_policy", dialect, storm_action)


def paused(switch: DcbSwitch) -> dict[int, int]:
    """Quanta left of each priority of port 2 that is paused."""
    found = {n: switch.state("egress.tm_pause_left", 2 * 8 + n) for n in range(8)}
    return {n: quanta for n, quanta in found.items() if quanta}


# --- received --------------------------------------------------------------------------------------------------------


def test_without_a_policy_the_top_bit_counts_and_a_cleared_bit_says_nothing(switch: DcbSwitch) -> None:
    switch.receive(2, pfc({3: 0x8001, 4: 5}), 0)
    assert paused(switch) == {3: 0x8001, 4: 5}
    switch.receive(2, pfc({4: 0}), 0)
    assert paused(switch) == {3: 0x8001}
    switch.receive(2, pfc({}), 0)
    assert switch.counts("ingress.pfc_rx_invalid") == {2 * 8 + 4: 1}
    assert paused(switch) == {3: 0x8001}


def test_until_resumed(switch: DcbSwitch) -> None:
    """D1: no time ends it, its 15 bits do not count, XON does; other times keep their meaning."""
    policy(switch, D1)
    switch.receive(2, pfc({3: 0x8001, 4: 0x7FFF}), 0)
    switch.receive(1, data(1000), 0)
    assert paused(switch) == {3: 65536, 4: 0x7FFF}
    assert switch.until(10**13) == []  # ten seconds
    assert paused(switch) == {3: 65536}
    assert switch.state("egress.tm_paused_ns", STORMED) == 10**10
    switch.receive(2, pfc({3: 0x8000}, vector=1 << 4), 10**13)  # a time that is not enabled
    assert paused(switch) == {3: 65536}
    switch.receive(2, pfc({3: 100}), 10**13)  # a time replaces it
    assert paused(switch) == {3: 100}
    switch.receive(2, pfc({3: 0xFFFF}), 10**13)
    switch.receive(2, pfc({3: 0}), 2 * 10**13)
    assert paused(switch) == {}
    assert [out.start_ps for out in switch.drain()] == [2 * 10**13]
    assert switch.histogram("egress.tm_pause_histogram", STORMED) == {31: 1}  # 20 s: the last bucket
    switch.assert_empty()


def test_until_resumed_is_for_enabled_priorities(switch: DcbSwitch) -> None:
    policy(switch, D1)
    switch.receive(2, pfc({5: 0xFFFF}), 0)
    assert paused(switch) == {}
    assert switch.counts("ingress.pfc_rx_xoff") == {2 * 8 + 5: 1}


def test_resume_by_cleared_bit(switch: DcbSwitch) -> None:
    """D2: the frame speaks about every priority; an empty vector is valid."""
    policy(switch, D2)
    switch.receive(2, pfc({3: 1000, 4: 2000}), 0)
    assert paused(switch) == {3: 1000, 4: 2000}
    switch.receive(2, pfc({3: 999, 4: 1500}, vector=1 << 4), 0)  # a cleared bit, whatever its time
    assert paused(switch) == {4: 1500}
    assert switch.counts("ingress.pfc_rx_xon") == {2 * 8 + n: (1 if n == 3 else 2) for n in range(8) if n != 4}
    switch.receive(2, pfc({}), 0)
    assert paused(switch) == {}
    assert switch.counts("ingress.pfc_rx_invalid") == {}
    assert switch.count("ingress.pfc_rx_frames", 16) == (3, 180)
    switch.receive(2, pfc({3: 0x8000}), 0)  # without D1 a long time
    assert paused(switch) == {3: 0x8000}


def test_both_dialects(switch: DcbSwitch) -> None:
    policy(switch, D1 | D2)
    switch.receive(2, pfc({3: 0x8000}), 0)
    switch.until(10**13)
    assert paused(switch) == {3: 65536}
    switch.receive(2, pfc({3: 0x8000}, vector=0), 10**13)
    assert paused(switch) == {}


# --- sent ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "xoff", "xon"),
    [
        (0, {3: 1000}, {3: 0}),
        (D1, {3: 0x8000}, {3: 0}),
        (D2, {3: 1000}, {}),
        (D1 | D2, {3: 0x8000}, {}),
    ],
)
def test_the_dialect_that_is_sent(switch: DcbSwitch, dialect: int, xoff: dict[int, int], xon: dict[int, int]) -> None:
    switch.put("egress.pfc_tx_dialect", (1,), "egress.set_pfc_dialect", dialect)
    switch.static_group(1, 3, 0, 1_000, 500, 1_000)
    switch.send_pfc(1, 1 << 3, 1000)
    switch.hold(2)
    switch.receive(1, data(1000), 0)
    (first,) = switch.until(0)
    assert (first.port, read_pfc(first.frame)) == (1, xoff)
    switch.hold(2, False)
    (data_out, second) = switch.until(10 * US)
    assert (data_out.port, second.port, len(second.frame)) == (2, 1, 60)
    assert read_pfc(second.frame) == xon
    assert second.frame[34:] == bytes(26)
    assert switch.counts("egress.pfc_tx_xoff") == {1 * 8 + 3: 1}
    assert switch.counts("egress.pfc_tx_xon") == {1 * 8 + 3: 1}
    switch.drain()
    switch.assert_empty()


# --- storm control ---------------------------------------------------------------------------------------------------


def limit(switch: DcbSwitch, port: int, rate: int, burst: int) -> None:
    """At most `burst` PFC frames at once, `rate` a second; both rates of the meter are the same."""
    entity = switch.entity(f"meter_entry {{ meter_id: @ingress.pfc_rx_meter index {{ index: {port} }} }}")
    config = entity.meter_entry.config
    config.cir, config.cburst, config.pir, config.pburst = rate, burst, rate, burst
    update = p4r.Update(type=p4r.Update.MODIFY, entity=entity)
    switch.service.write(p4r.WriteRequest(device_id=DEVICE_ID, election_id=p4r.Uint128(low=1), updates=[update]))


@pytest.mark.parametrize(
    ("action", "counted", "quanta"),
    [(0, {}, 10), (1, {2 * 8 + 1: 7}, 10), (2, {2 * 8: 7}, 3)],
    ids=["nothing", "alarm", "ignore"],
)
def test_storm_control(switch: DcbSwitch, action: int, counted: dict[int, int], quanta: int) -> None:
    """Of ten frames at once three are green; the n-th says n quanta."""
    policy(switch, storm_action=action)
    limit(switch, 2, 1000, 3)
    for n in range(1, 11):
        switch.receive(2, pfc({3: n}), US)
    assert paused(switch) == {3: quanta}
    assert switch.counts("ingress.pfc_rx_storm") == counted
    assert switch.counts("ingress.pfc_rx_xoff") == {STORMED: 10}  # what it says is counted in either case
    assert switch.count("ingress.pfc_rx_frames", 16) == (10, 600)
    switch.receive(3, pfc({3: 7}), US)  # another port has no meter
    assert switch.state("egress.tm_pause_left", 3 * 8 + 3) == 7
    switch.receive(2, pfc({3: 20}), 10**12)  # a second later the bucket is full again
    assert paused(switch) == {3: 20}


def test_storm_control_is_for_valid_frames(switch: DcbSwitch) -> None:
    policy(switch, storm_action=2)
    limit(switch, 2, 1, 1)
    for _ in range(5):
        switch.receive(2, pfc({3: 9}) + bytes(1), US)  # too long
    switch.receive(2, pfc({3: 9}), US)
    assert paused(switch) == {3: 9}
    assert switch.counts("ingress.pfc_rx_storm") == {}

"""PFC storms on the bundled program: mitigation that the controller asks for, and the switch's own watchdog.

Times are exact: detection and restoration at the picosecond, written out. Events are read as packet-ins.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dcb_switch import DSCP, PORTS, DcbSwitch, data
from l2_core import pfc

from switch.core import PacketIn

US = 10**6  # picoseconds
ALERT, FORWARD, DROP = 0, 1, 2
STORMED = 2 * 8 + 3  # port 2, priority 3
FROM_1 = 1 * 8 + 3
FRAME_PS = (1000 + 24) * 8 * 25  # 1000 bytes on a 40 Gb/s wire
FOREVER = pfc({3: 65535})  # 838.848 us at 40 Gb/s


@pytest.fixture
def switch() -> Iterator[DcbSwitch]:
    made = DcbSwitch()
    for port in PORTS:
        made.set_up_port(port, pfc_rx=0x18)
        made.send_pfc(port, 0x18)
        made.static_group(port, 3, 0, 10_000, 4_000, 20_000)
        made.static_group(port, 4, 0, 10_000, 4_000, 20_000)
    yield made
    made.service.close()


def storm(switch: DcbSwitch, action: str, port: int = 2, priority: int = 3) -> None:
    switch.put("egress.tm_storm", (port, priority), f"egress.tm_storm_{action}")


def watch(switch: DcbSwitch, detect_us: int, restore_us: int, action: int, empty: int = 0, priority: int = 3) -> None:
    switch.put("egress.tm_watchdog", (2, priority), "egress.tm_set_watchdog", detect_us, restore_us, action, empty)


def events(switch: DcbSwitch) -> list[tuple[int, int, int]]:
    """(port, priority, reason) of the packet-ins since the last call; they carry no frame."""
    found = []
    for event in switch.switch_core.events():
        assert isinstance(event, PacketIn)
        assert len(event.frame) == 2
        word = int.from_bytes(event.frame, "big")
        found.append((word >> 7, word >> 4 & 7, word & 15))
    return found


def left(switch: DcbSwitch, until_ps: int) -> list[tuple[int, int]]:
    """(port, DSCP) of the data frames that leave."""
    return [(out.port, out.frame[15] >> 2) for out in switch.until(until_ps) if out.frame[12:14] == b"\x08\x00"]


# --- tm_storm --------------------------------------------------------------------------------------------------------


def test_storm_drop(switch: DcbSwitch) -> None:
    """What waits and what arrives for it is dropped, what it sends too; nobody is paused, the rest goes on."""
    switch.receive(2, FOREVER, 0)
    for _ in range(12):
        switch.receive(1, data(1000), 0)  # 12,000 bytes: XOFF to port 1
    switch.receive(4, data(1000), 0)
    assert switch.state("egress.tm_queue_sources", STORMED) == 1 << 1 | 1 << 4
    assert [out.port for out in switch.until(US)] == [1]  # the PFC frame
    assert switch.state("egress.tm_pg_xoff", FROM_1) == 1
    storm(switch, "drop")
    assert switch.count("egress.tm_drop_storm_tx", STORMED) == (13, 13_000)
    assert switch.state("egress.tm_storm_state", STORMED) == 2
    assert switch.state("egress.tm_pause_left", STORMED) == 0
    assert switch.state("egress.tm_paused_ns", STORMED) == 1_000
    assert switch.histogram("egress.tm_pause_histogram", STORMED) == {10: 1}  # 512..1023 ns
    switch.switch_core.tm.check()
    (resume,) = switch.until(2 * US)
    assert (resume.port, resume.frame[17], resume.frame[24:26]) == (1, 1 << 3, bytes(2))
    switch.receive(2, FOREVER, 3 * US)  # counted, ignored
    assert switch.state("egress.tm_pause_left", STORMED) == 0
    assert switch.counts("ingress.pfc_rx_xoff") == {STORMED: 2}
    for _ in range(20):
        switch.receive(1, data(1000), 3 * US)  # for the stormed queue
    for _ in range(3):
        switch.receive(2, data(500, to=1), 3 * US)  # from the stormed port
    for source, to in ((1, 2), (2, 1)):
        switch.receive(source, data(300, priority=4, to=to), 3 * US)
        switch.receive(source, data(300, priority=0, to=to), 3 * US)
    switch.receive(1, data(1000, to=3), 3 * US)  # the priority between other ports
    assert sorted(left(switch, 4 * US)) == [(1, DSCP[0]), (1, DSCP[4]), (2, DSCP[0]), (2, DSCP[4]), (3, DSCP[3])]
    assert switch.count("egress.tm_drop_storm_tx", STORMED) == (33, 33_000)
    assert switch.count("egress.tm_drop_storm_rx", STORMED) == (3, 1_500)
    assert switch.drops() == {"tm_drop_storm_tx": {STORMED: 33}, "tm_drop_storm_rx": {STORMED: 3}}
    assert switch.counts("egress.pfc_tx_xoff") == {FROM_1: 1}  # none because of the 20
    switch.remove("egress.tm_storm", (2, 3))
    assert switch.state("egress.tm_storm_state", STORMED) == 0
    switch.receive(1, data(1000), 5 * US)
    switch.receive(2, FOREVER, 6 * US)  # the normal rules again: it pauses
    switch.receive(1, data(1000), 6 * US)
    assert left(switch, 7 * US) == [(2, DSCP[3])]
    switch.receive(2, pfc({3: 0}), 8 * US)
    switch.drain()
    switch.assert_empty()


def test_storm_forward(switch: DcbSwitch) -> None:
    switch.receive(2, FOREVER, 0)
    for _ in range(3):
        switch.receive(1, data(1000), 0)
    assert switch.until(US) == []
    storm(switch, "forward")
    assert left(switch, US) == [(2, DSCP[3])]
    switch.receive(2, FOREVER, US)
    assert left(switch, 2 * US) == [(2, DSCP[3])] * 2
    switch.receive(2, data(500, to=1), 2 * US)
    assert left(switch, 2 * US) == [(1, DSCP[3])]
    assert switch.drops() == {}
    switch.drain()
    switch.assert_empty()


def test_other_priorities_of_the_same_queue_survive_the_flush(switch: DcbSwitch) -> None:
    switch.put("ingress.priority_map", (1, 4), "ingress.set_class", 3, 4, 1)  # priority 4 shares queue 3
    switch.receive(2, FOREVER, 0)
    for length in (300, 301, 302, 303):
        switch.receive(1, data(length, priority=3), 0)
        switch.receive(1, data(length + 100, priority=4), 0)
    assert switch.state("egress.tm_queue_depth", STORMED) == 1206 + 1606
    storm(switch, "drop")
    assert switch.count("egress.tm_drop_storm_tx", STORMED) == (4, 1206)
    assert switch.state("egress.tm_queue_depth", STORMED) == 1606
    assert [len(out.frame) for out in switch.drain()] == [400, 401, 402, 403]
    switch.assert_empty()


def test_all_priorities_stormed_at_once(switch: DcbSwitch) -> None:
    """Every priority of a port, by the controller and by the switch; the last to mitigate decides nothing alone."""
    switch.set_up_port(2, pfc_rx=0xFF)
    for priority in range(8):
        watch(switch, 100, 0, FORWARD, empty=1, priority=priority)
    switch.receive(2, pfc(dict.fromkeys(range(8), 65535)), 0)
    for priority in (0, 3, 4):
        switch.receive(1, data(1000, priority=priority), 0)
    assert switch.until(100 * US - 1) == []
    out = switch.until(100 * US)
    assert events(switch) == [(2, priority, 4) for priority in range(8)]
    assert [o.start_ps for o in out] == [100 * US]  # the first of three
    assert [switch.state("egress.tm_storm_state", 16 + n) for n in range(8)] == [1] * 8
    for priority in range(8):
        storm(switch, "drop", priority=priority)
    assert [switch.state("egress.tm_storm_state", 16 + n) for n in range(8)] == [3] * 8
    assert sum(switch.counts("egress.tm_drop_storm_tx").values()) == 2
    for priority in range(8):
        switch.remove("egress.tm_watchdog", (2, priority))
        switch.remove("egress.tm_storm", (2, priority))
    assert [switch.state("egress.tm_storm_state", 16 + n) for n in range(8)] == [0] * 8
    switch.drain()
    switch.assert_empty()


# --- the switch's own watchdog ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("action", "state"), [(ALERT, 4), (FORWARD, 1), (DROP, 1)])
def test_watchdog_detects_and_restores_to_the_picosecond(switch: DcbSwitch, action: int, state: int) -> None:
    watch(switch, 100, 200, action)
    switch.receive(2, FOREVER, 1 * US)
    switch.receive(1, data(1000), 2 * US)  # what waits is since 2 us
    assert switch.switch_core.next_deadline() == 102 * US
    switch.until(102 * US - 1)
    assert (events(switch), switch.state("egress.tm_storm_state", STORMED)) == ([], 0)
    out = switch.until(102 * US)
    assert events(switch) == [(2, 3, 4)]
    assert switch.state("egress.tm_storm_state", STORMED) == state
    assert switch.state("egress.tm_storm_count", STORMED) == 1
    assert [o.start_ps for o in out] == ([102 * US] if action == FORWARD else [])
    assert switch.drops() == ({"tm_drop_storm_tx": {STORMED: 1}} if action == DROP else {})
    switch.receive(2, FOREVER, 150 * US)  # storm goes on
    switch.receive(2, pfc({3: 0}), 300 * US)  # XON is no storm
    switch.until(350 * US - 1)
    assert (events(switch), switch.state("egress.tm_storm_state", STORMED)) == ([], state)
    switch.until(350 * US)
    assert events(switch) == [(2, 3, 5)]
    assert switch.state("egress.tm_storm_state", STORMED) == 0
    switch.receive(2, FOREVER, 400 * US)
    switch.receive(1, data(1000), 400 * US)
    assert switch.until(410 * US) == []  # it pauses again
    switch.until(500 * US)
    assert events(switch) == [(2, 3, 4)]
    assert switch.state("egress.tm_storm_count", STORMED) == 2
    switch.remove("egress.tm_watchdog", (2, 3))  # stopped while stormed: no mitigation is left, and no event
    assert switch.state("egress.tm_storm_state", STORMED) == 0
    switch.receive(2, pfc({3: 0}), 501 * US)
    switch.drain()
    assert events(switch) == []
    switch.assert_empty()


def test_watchdog_empty_queue(switch: DcbSwitch) -> None:
    """With nothing waiting a pause is a storm only where that is asked for."""
    watch(switch, 100, 0, DROP)
    watch(switch, 100, 0, DROP, empty=1, priority=4)
    switch.receive(2, pfc({3: 65535, 4: 65535}), 0)
    switch.until(100 * US - 1)
    assert events(switch) == []
    switch.until(800 * US)
    assert events(switch) == [(2, 4, 4)]
    switch.until(10**12)
    assert events(switch) == []  # restore_us 0: never by itself
    assert switch.state("egress.tm_storm_state", 2 * 8 + 4) == 1


def test_watchdog_ignores_a_storm_shorter_than_detection(switch: DcbSwitch) -> None:
    watch(switch, 100, 200, DROP)
    switch.receive(1, data(1000), 0)
    for start in range(0, 1000, 100):  # each pause is 99 us long
        switch.receive(2, FOREVER, start * US)
        switch.receive(1, data(1000), start * US)
        switch.receive(2, pfc({3: 0}), (start + 99) * US)
    switch.drain()
    assert events(switch) == []
    assert switch.drops() == {}
    assert switch.state("egress.tm_pause_count", STORMED) == 10
    assert switch.histogram("egress.tm_pause_histogram", STORMED) == {17: 10}  # 65,536..131,071 ns
    switch.assert_empty()


def test_watchdog_sees_progress_of_the_queue(switch: DcbSwitch) -> None:
    """A frame sent between two pauses starts the time anew; a pause renewed without a break does not."""
    watch(switch, 100, 0, ALERT)
    switch.receive(2, pfc({3: 4000}), 0)  # 51.2 us
    switch.receive(1, data(1000), 0)
    switch.receive(1, data(1000), 0)
    switch.receive(2, pfc({3: 4000}), 40 * US)  # to 91.2 us: without a break
    assert len(switch.until(91_200_000)) == 1
    switch.receive(2, pfc({3: 65535}), 91_300_000)
    switch.until(191_300_000 - 1)
    assert events(switch) == []
    switch.until(191_300_000)
    assert events(switch) == [(2, 3, 4)]


def test_an_alert_is_raised_again_while_the_pause_lasts(switch: DcbSwitch) -> None:
    watch(switch, 100, 50, ALERT)
    switch.receive(2, FOREVER, 0)
    switch.receive(1, data(1000), 0)
    seen = []
    while (deadline := switch.switch_core.next_deadline()) is not None and deadline < 400 * US:
        switch.until(deadline)
        seen += [(deadline // US, reason) for _, _, reason in events(switch)]
    assert seen == [(100, 4), (150, 5), (250, 4), (300, 5)]


def test_watchdog_changed_while_it_mitigates(switch: DcbSwitch) -> None:
    watch(switch, 100, 200, FORWARD)
    switch.receive(2, FOREVER, 0)
    switch.receive(1, data(1000), 0)
    switch.until(100 * US)
    watch(switch, 100, 300, DROP)
    switch.receive(1, data(1000), 110 * US)
    assert switch.drops() == {"tm_drop_storm_tx": {STORMED: 1}}
    watch(switch, 100, 300, ALERT)
    assert switch.state("egress.tm_storm_state", STORMED) == 4
    events(switch)
    switch.until(400 * US - 1)
    assert events(switch) == []
    switch.until(400 * US)  # 300 us after its detection
    assert events(switch) == [(2, 3, 5)]
    switch.drain()
    switch.assert_empty()


def test_port_toggle_while_stormed(switch: DcbSwitch) -> None:
    """The watchdog outlives the port: it restores on time."""
    watch(switch, 100, 200, DROP)
    switch.receive(2, FOREVER, 0)
    switch.receive(1, data(1000), 0)
    switch.until(100 * US)
    switch.switch_core.tm.remove_port(2)
    switch.until(200 * US)
    switch.switch_core.tm.add_port(2)
    assert switch.state("egress.tm_storm_state", STORMED) == 1
    switch.until(300 * US)
    assert events(switch) == [(2, 3, 4), (2, 3, 5)]
    switch.receive(1, data(1000), 300 * US)
    assert left(switch, 300 * US) == [(2, DSCP[3])]
    switch.drain()
    switch.assert_empty()


def test_an_event_reaches_the_controller(switch: DcbSwitch) -> None:
    """As P4Runtime hands it out: metadata, and no payload."""
    from switch.p4rt.control import PacketInEvent
    from switch.target import Target

    target = switch.service.target
    assert isinstance(target, Target)
    watch(switch, 1, 0, ALERT, empty=1)
    switch.receive(2, FOREVER, 0)
    switch.until(US)
    (event,) = target.events()
    assert event == PacketInEvent((2 << 7 | 3 << 4 | 4).to_bytes(2, "big"))

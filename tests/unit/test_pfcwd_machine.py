"""The PFC watchdog's state machine: exact times. Names follow sonic-mgmt's tests/pfcwd where there is a like test."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from watchdog_line import XOFF, XON, Line, Poller

from dcb.watchdog import MS, Action, Change, Machine, Sample, Settings, Traffic, default_times_ms

D, R = Change.DETECTED, Change.RESTORED
T = 400 * MS


def settings(
    action: Action = Action.DROP, detect: int = 400, restore: int | None = 400, empty: bool = False
) -> Settings:
    return Settings(action, detect * MS, None if restore is None else restore * MS, empty)


# ---- times ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [True, False], ids=["looks when due", "looks at polls only"])
@pytest.mark.parametrize(("detect", "restore", "poll"), [(400, 400, 400), (200, 200, 200), (1000, 600, 200)])
def test_pfcwd_timer_accuracy(detect: int, restore: int, poll: int, early: bool) -> None:
    """Detected in [T, T + poll) of a storm with a packet, restored in [R, R + poll) of its last XOFF: any phase."""
    generator = random.Random(29)
    for _ in range(60):
        start = 2000 * MS + generator.randrange(poll * MS)
        end = start + 5000 * MS + generator.randrange(poll * MS)
        poller = Poller(Line([(start, end)]), settings(detect=detect, restore=restore), poll * MS, early=early)
        (at, first), (until, second) = poller.run(end + 3000 * MS)
        assert (first, second) == (D, R)
        waits = (start // MS + 1) * MS  # the first packet that has to
        assert start + detect * MS <= at < waits + (detect + poll) * MS
        last_xoff = start + (end - start - 1) // (10 * MS) * 10 * MS
        assert restore * MS <= until - last_xoff < (restore + poll) * MS


def test_times_that_are_no_multiple_of_the_poll_hold_where_it_looks_when_due() -> None:
    """sonic-buildimage #3964: detection and restoration slower than configured."""
    generator = random.Random(3964)
    for _ in range(60):
        start = 2000 * MS + generator.randrange(200 * MS)
        end = start + 3000 * MS
        poller = Poller(Line([(start, end)]), settings(detect=250, restore=350), 200 * MS)
        (at, _), (until, _) = poller.run(end + 2000 * MS)
        assert 250 * MS <= at - start <= 251 * MS  # it looks again when the storm is old enough, at most 1 ms later
        assert 350 * MS <= until - (end - 10 * MS) < 550 * MS


def test_a_late_poll_counts_the_time_that_passed() -> None:
    """Polls are late at random, up to 150 ms: never early, and late by no more than the polls are."""
    generator = random.Random(5)
    for _ in range(60):
        line = Line([(1000 * MS + generator.randrange(200 * MS), 9000 * MS)])
        start = line._next[0] if line._next else 0
        machine, found = Machine(settings()), None
        while found is None:
            line.advance(line.now_ns + (200 + generator.randrange(150)) * MS)
            found = line.now_ns if machine.sample(line.sample()) is D else None
        assert T <= found - start < T + 350 * MS


@pytest.mark.parametrize("length", [100, 399])
def test_a_storm_shorter_than_detection_is_none(length: int) -> None:
    for phase in range(0, 200, 7):
        start = (2000 + phase) * MS
        assert Poller(Line([(start, start + length * MS)]), settings(), 200 * MS).run(start + 2000 * MS) == []


def test_storms_with_progress_between_do_not_add_up() -> None:
    storms = [(at * MS, (at + 300) * MS) for at in range(1000, 9000, 350)]
    assert Poller(Line(storms), settings(), 200 * MS).run(10_000 * MS) == []


def test_choppy_pauses_in_which_nothing_is_sent_are_a_storm() -> None:
    """sonic-mgmt #27589: software that pauses with gaps. Each XOFF holds for 8 of 10 ms; nothing is there to go."""
    line = Line([(1010 * MS, 3000 * MS)], pause_ns=8 * MS, spacing_ns=0)
    machine, found = Machine(settings(empty=True)), []
    for at in range(0, 3000, 100):
        line.advance(at * MS)
        if machine.sample(line.sample()) is D:
            found.append(at)
    assert found == [1500]  # the first 100 ms count only what was paused


def test_one_pause_without_end_is_a_storm_without_new_frames() -> None:
    """Dialect D1 (paused until resumed), or the largest pause at a low rate: no XOFF in a whole poll."""
    poller = Poller(Line(extra=[(1050 * MS, XOFF), (4000 * MS, XON)]), settings(), 200 * MS)
    (at, change), *rest = poller.run(4000 * MS)
    assert (at, change) == (1450 * MS, D)
    assert [change for _, change in rest] == [R]  # nothing more came


# ---- what counts ----------------------------------------------------------------------------------------------------


def test_pfcwd_no_traffic() -> None:
    """test_pfcwd_no_traffic: an empty queue is no storm."""
    assert Poller(Line([(1000 * MS, 5000 * MS)], spacing_ns=0), settings(), 200 * MS).run(6000 * MS) == []


def test_pfcwd_empty_queue_is_an_option() -> None:
    """PFCWD_BASIC.md: an empty queue paused longer than T is detected."""
    poller = Poller(Line([(1010 * MS, 5000 * MS)], spacing_ns=0), settings(empty=True), 200 * MS)
    assert poller.run(6000 * MS)[0] == (1410 * MS, D)


def test_a_packet_that_comes_late_into_a_pause_waits_the_whole_time() -> None:
    line = Line([(1000 * MS, 9000 * MS)], spacing_ns=3050 * MS)  # a packet at 3.05 s, two seconds into the pause
    assert Poller(line, settings(), 200 * MS).run(4000 * MS) == [(3600 * MS, D)]  # seen first at 3.2 s


@pytest.mark.parametrize("action", [Action.DROP, Action.FORWARD])
def test_xon_not_counted(action: Action) -> None:
    """sonic-swss #4581: a peer that goes on with XON frames kept the queue stormed for ever."""
    xons = [(at * MS, XON) for at in range(3000, 30_000, 10)]
    poller = Poller(Line([(1000 * MS, 3000 * MS)], extra=xons), settings(action), 200 * MS)
    assert [change for _, change in poller.run(6000 * MS)] == [D, R]


def test_xon_alone_is_never_a_storm() -> None:
    xons = [(at * MS, XON) for at in range(0, 5000, 10)]
    assert Poller(Line(extra=xons), settings(empty=True), 200 * MS).run(5000 * MS) == []


def test_all_priorities_stormed_at_once() -> None:
    """sonic-buildimage #29203: storm and restore in a loop, 170 cycles in 20 minutes. Here: one storm."""
    minutes_ns = 2 * 60_000 * MS
    for priority in range(8):
        line = Line([(1000 * MS + priority * MS, minutes_ns)], spacing_ns=50 * MS, refresh_ns=100 * MS)
        poller = Poller(line, settings(detect=200, restore=200), 200 * MS)
        assert [change for _, change in poller.run(minutes_ns + 1000 * MS)] == [D, R]


def test_a_mean_storm_that_pauses_less_often_than_the_restoration_time_comes_back() -> None:
    """What restores between two XOFFs is found again: the peer's interval is longer than the restoration time."""
    line = Line([(1000 * MS, 4000 * MS)], refresh_ns=1500 * MS)
    changes = [change for _, change in Poller(line, settings(detect=200, restore=200), 200 * MS).run(5000 * MS)]
    assert changes == [D, R, D, R]


# ---- actions and changes in a storm ---------------------------------------------------------------------------------


def test_alert_restores_at_the_first_clear_look() -> None:
    poller = Poller(Line([(1010 * MS, 3010 * MS)]), settings(Action.ALERT, restore=60_000), 200 * MS)
    assert poller.run(5000 * MS) == [(1410 * MS, D), (3200 * MS, R)]
    assert poller.line.drop_tx == 0


def test_never_restored_where_there_is_no_restoration_time() -> None:
    poller = Poller(Line([(1010 * MS, 3000 * MS)]), settings(restore=None), 200 * MS)
    assert poller.run(100_000 * MS) == [(1410 * MS, D)]
    assert poller.machine.due_ns() is None


def test_config_change_while_stormed() -> None:
    poller = Poller(Line([(1000 * MS, 20_000 * MS)]), settings(Action.DROP), 200 * MS)
    poller.run(2000 * MS)
    assert (poller.machine.stormed, poller.line.mitigation) == (True, Action.DROP)
    for action in (Action.FORWARD, Action.DROP):
        poller.machine.configure(settings(action))
        poller.apply()
        poller.run(poller.line.now_ns + 1000 * MS)
        assert (poller.machine.stormed, poller.line.mitigation) == (True, action)
    poller.machine.configure(settings(Action.DROP, restore=5000))
    poller.run(20_000 * MS)
    (restored, change), *_ = poller.run(26_000 * MS)[1:]
    assert change is R
    assert 5000 * MS <= restored - 19_990 * MS < 5200 * MS  # 5 s after the last XOFF, not 400 ms
    assert poller.machine.stats.detected == 1


def test_the_counters_of_a_storm_are_the_packets_of_it() -> None:
    poller = Poller(Line([(1010 * MS, 2000 * MS)]), settings(), 200 * MS)
    poller.run(5000 * MS)
    [(detected, _), (restored, _)] = poller.changes
    packets = (restored - detected) // MS + 400  # those that waited, and those that came until it was restored
    assert poller.machine.stats.last == Traffic(tx_drop=packets)
    assert poller.line.drop_tx == packets
    poller.machine.clear()
    assert poller.machine.stats.total == Traffic()


def test_last_is_the_newest_storm_and_total_all() -> None:
    poller = Poller(Line([(1010 * MS, 2000 * MS), (4010 * MS, 5500 * MS)]), settings(Action.FORWARD), 200 * MS)
    poller.run(9000 * MS)
    stats = poller.machine.stats
    assert (stats.detected, stats.restored) == (2, 2)
    lengths = [(poller.changes[n + 1][0] - poller.changes[n][0]) // MS for n in (0, 2)]
    assert stats.last.tx_ok == lengths[1] + 400  # the queue that waited goes as well
    assert stats.total.tx_ok == sum(lengths) + 800


def test_a_restarted_switch_does_not_end_or_begin_a_storm() -> None:
    poller = Poller(Line([(1000 * MS, 50_000 * MS)]), settings(), 200 * MS)
    poller.run(2000 * MS)
    anew = Line([(0, 50_000 * MS)])
    anew.now_ns = poller.line.now_ns
    anew.advance(2100 * MS)
    poller.line = anew
    poller.apply()
    poller.run(3000 * MS)
    assert (poller.machine.stormed, poller.machine.stats.detected) == (True, 1)


def test_a_storm_taken_over_is_counted_once_and_restored() -> None:
    machine = Machine(settings())
    machine.adopt(0)
    machine.adopt(0)
    assert (machine.stormed, machine.stats.detected) == (True, 1)
    machine.sample(Sample(100 * MS, xoff_rx=7))
    assert machine.sample(Sample(499 * MS, xoff_rx=7)) is None
    assert machine.sample(Sample(500 * MS, xoff_rx=7)) is R


def test_time_that_was_not_looked_at_proves_nothing() -> None:
    machine = Machine(settings())
    machine.sample(Sample(0, depth_bytes=1, paused=True, pauses=1))
    machine.sample(Sample(300 * MS, depth_bytes=1, paused=True, pauses=1, paused_ns=300 * MS))
    machine.lost_sight()
    machine.sample(Sample(900 * MS, depth_bytes=1, paused=True, pauses=1, paused_ns=900 * MS))
    assert machine.sample(Sample(1299 * MS, depth_bytes=1, paused=True, pauses=1, paused_ns=1299 * MS)) is None
    assert machine.due_ns() == 1300 * MS
    assert machine.sample(Sample(1300 * MS, depth_bytes=1, paused=True, pauses=1, paused_ns=1300 * MS)) is D


def test_what_was_long_on_its_way_makes_no_pause_longer() -> None:
    """Asked at 0, the switch says at 1000 ms that it has been paused for 5 ms, 2 ms later for 7 ms."""
    machine = Machine(Settings(detection_ns=200 * MS))
    first = Sample(0, depth_bytes=1, xoff_rx=1, paused=True, paused_ns=5 * MS, pauses=1, answered_ns=1000 * MS)
    assert machine.sample(first) is None
    now = replace(first, time_ns=1002 * MS, paused_ns=7 * MS, xoff_rx=2, answered_ns=1002 * MS)
    assert machine.sample(now) is None
    # the switch's clock has counted 198 ms more while the controller's knows of 190
    now = replace(now, time_ns=1192 * MS, paused_ns=205 * MS, answered_ns=1193 * MS)
    assert machine.sample(now) is Change.DETECTED
    # no XOFF for 200 ms: from the answer that showed one to the question whose answer shows none
    now = replace(now, time_ns=1300 * MS, xoff_rx=3, answered_ns=1350 * MS)
    assert machine.sample(now) is None
    assert machine.due_ns() == 1550 * MS
    assert machine.sample(replace(now, time_ns=1549 * MS, answered_ns=1600 * MS)) is None
    assert machine.sample(replace(now, time_ns=1600 * MS, answered_ns=1600 * MS)) is Change.RESTORED


def test_history_of_pauses() -> None:
    poller = Poller(Line([(1000 * MS, 1050 * MS), (1400 * MS, 1930 * MS)]), settings(detect=5000), 200 * MS)
    poller.run(1300 * MS)
    history = poller.machine.history
    assert (history.transitions, history.total_ns, history.recent_ns) == (1, 50 * MS, 50 * MS)
    assert history.recent_at_ns == 1200 * MS
    poller.run(3000 * MS)
    history = poller.machine.history
    assert (history.transitions, history.total_ns, history.recent_ns) == (2, 580 * MS, 530 * MS)
    assert history.recent_at_ns == 2000 * MS


@pytest.mark.parametrize(
    ("ports", "times"),
    [(1, (200, 200, 200)), (32, (200, 200, 200)), (33, (400, 400, 400)), (256, (1600, 1600, 1000))],
)
def test_default_times_by_number_of_ports(ports: int, times: tuple[int, int, int]) -> None:
    assert default_times_ms(ports) == times

"""LLDP's machines: what is sent when, how neighbours come, change, age and go; exact times, the clock is given."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dcbx_net import HIGH, LOW, MIDDLE, S, local, said

from dcb.lldp.agent import AdminStatus, FrameDiscarded, LldpAgent, TlvsDiscarded
from dcb.lldp.pdu import NEAREST_CUSTOMER_BRIDGE, build_frame, decode_frame
from dcb.lldp.receive import (
    NeighborAdded,
    NeighborChanged,
    NeighborDiscarded,
    NeighborRefreshed,
    NeighborRemoved,
    RemovalReason,
    TooManyNeighborsEnded,
)
from dcb.lldp.tlv import OrganizationalTlv
from dcb.lldp.transmit import LldpTimers, TransmitState

INFO = OrganizationalTlv(b"\xaa\xbb\xcc", 1, b"x")


def agent(**options: object) -> LldpAgent:
    one = LldpAgent(LOW, local(LOW), **options)  # type: ignore[arg-type]
    one.set_port_enabled(True, 0)
    return one


def run(one: LldpAgent, until_ns: int, at: dict[int, object] | None = None) -> list[tuple[int, int]]:
    """(time ns, TTL) of what is sent up to and including a time; `at` calls functions at times."""
    todo = dict(sorted((at or {}).items()))
    sent: list[tuple[int, int]] = []
    now_ns = 0
    while True:
        while todo and next(iter(todo)) <= now_ns:
            todo.pop(next(iter(todo)))(now_ns)  # type: ignore[operator]
        sent += [(now_ns, decode_frame(frame).pdu.ttl.seconds) for frame in one.frames_to_send(now_ns)]
        due = min((time for time in (one.next_deadline_ns(), next(iter(todo), None)) if time is not None), default=None)
        if due is None or due > until_ns:
            return sent
        assert due > now_ns or todo
        now_ns = due
        one.handle_timer(now_ns)


def seconds(sent: list[tuple[int, int]]) -> list[float]:
    return [time / S for time, _ in sent]


def test_interval_and_ttl() -> None:
    assert run(agent(), 95 * S) == [(0, 121), (30 * S, 121), (60 * S, 121), (90 * S, 121)]


@pytest.mark.parametrize(("interval", "hold", "ttl"), [(30, 4, 121), (1, 1, 2), (3600, 18, 64801), (3600, 100, 65535)])
def test_ttl_is_interval_times_hold_plus_one_and_capped(interval: int, hold: int, ttl: int) -> None:
    one = agent(timers=LldpTimers(msg_tx_interval_s=interval, msg_tx_hold=hold))
    assert run(one, 0) == [(0, ttl)]


def test_fast_start_is_four_frames_a_second_apart() -> None:
    one = agent()
    at = 10 * S + 250_000_000
    sent = run(one, 75 * S, {at: lambda now: one.receive(said(HIGH), now)})
    assert seconds(sent) == [0, 10.25, 11.25, 12.25, 13.25, 43.25, 73.25]


def test_a_second_neighbour_during_fast_start_sends_at_once_and_uses_one_of_the_four() -> None:
    """TX_FAST_START sets txFast only when it is 0; TX_TIMER_EXPIRES counts it down."""
    one = agent()
    sent = run(
        one,
        50 * S,
        {10 * S: lambda now: one.receive(said(HIGH), now), 10 * S + 1: lambda now: one.receive(said(MIDDLE), now)},
    )
    assert [time for time, _ in sent] == [0, 10 * S, 10 * S + 1, 11 * S + 1, 12 * S + 1, 42 * S + 1]


def test_a_refresh_or_change_starts_nothing() -> None:
    one = agent()
    one.receive(said(HIGH), 0)
    at = {20 * S: lambda now: one.receive(said(HIGH), now), 21 * S: lambda now: one.receive(said(HIGH, [INFO]), now)}
    assert seconds(run(one, 40 * S, at)) == [0, 1, 2, 3, 33]


def test_a_local_change_is_sent_at_once_and_restarts_the_interval() -> None:
    one = agent()
    assert seconds(run(one, 50 * S, {7 * S: lambda now: one.set_organizational([INFO], now)})) == [0, 7, 37]
    assert one.counters.stats_frames_out_total == 3


def test_saying_the_same_again_is_no_change() -> None:
    one = agent()
    at = {5 * S: lambda now: one.set_local(local(LOW), now), 6 * S: lambda now: one.set_organizational([], now)}
    assert seconds(run(one, 10 * S, at)) == [0]


def test_credit_bounds_a_burst_and_grows_by_one_a_second() -> None:
    """Five at once, then one at each tick of the second; the ticks count from the start of the machine."""
    one = agent()
    times = [10 * S + 100 * n for n in range(1, 9)]

    def change(now_ns: int) -> None:
        one.set_organizational([replace(INFO, info=str(now_ns).encode())], now_ns)

    sent = [time for time, _ in run(one, 15 * S, dict.fromkeys(times, change))]
    assert sent == [0, *times[:5], 11 * S]
    one.handle_timer(15 * S)
    assert one.transmitter.tx_credit == 4  # spent at 11 s, one more at 12, 13, 14 and 15 s

    def late(now_ns: int) -> None:
        change(now_ns)

    sent = [time - 20 * S for time, _ in _continue(one, [20 * S + 1 + n for n in range(7)], late)]
    assert sent == [1, 2, 3, 4, 5, S]


def _continue(one: LldpAgent, times: list[int], act: object) -> list[tuple[int, int]]:
    sent = []
    for now_ns in times:
        act(now_ns)  # type: ignore[operator]
        sent += [(now_ns, 0) for _ in one.frames_to_send(now_ns)]
    due = one.next_deadline_ns()
    assert due is not None
    one.handle_timer(due)
    return [*sent, *((due, 0) for _ in one.frames_to_send(due))]


def test_off_says_goodbye_and_waits_reinit_delay() -> None:
    one = agent()
    at = {
        10 * S: lambda now: one.set_admin_status(AdminStatus.DISABLED, now),
        10 * S + 5: lambda now: one.set_admin_status(AdminStatus.RX_TX, now),
    }
    assert run(one, 20 * S, at) == [(0, 121), (10 * S, 0), (12 * S, 121)]
    assert one.transmitter.state is TransmitState.IDLE


def test_off_stays_off() -> None:
    one = agent()
    assert run(one, 90 * S, {10 * S: lambda now: one.set_admin_status(AdminStatus.RX_ONLY, now)}) == [
        (0, 121),
        (10 * S, 0),
    ]
    assert one.next_deadline_ns() is None


def test_the_shutdown_pdu_byte_for_byte() -> None:
    one = agent()
    one.frames_to_send(0)
    one.set_admin_status(AdminStatus.DISABLED, 1)
    head = bytes.fromhex("0180c200000e 020000000001 88cc 0207 04 020000000001 0403 05 6531 0602 0000 0000")
    assert one.frames_to_send(1) == [head.ljust(60, b"\0")]


def test_a_port_that_goes_down_says_nothing_and_begins_anew() -> None:
    one = agent()
    at = {5 * S: lambda now: one.set_port_enabled(False, now), 50 * S: lambda now: one.set_port_enabled(True, now)}
    assert run(one, 60 * S, at) == [(0, 121), (50 * S, 121)]


def test_late_calls_neither_burst_nor_drift() -> None:
    one = agent()
    one.frames_to_send(0)
    one.handle_timer(30 * S + 400)
    assert len(one.frames_to_send(30 * S + 400)) == 1
    assert one.next_deadline_ns() == 60 * S
    one.handle_timer(500 * S)
    assert len(one.frames_to_send(500 * S)) == 1
    assert one.next_deadline_ns() == 530 * S


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("msg_tx_interval_s", 0, "1..3600"),
        ("msg_tx_hold", 101, "1..100"),
        ("tx_credit_max", 11, "1..10"),
        ("tx_fast_init", 0, "1..8"),
    ],
)
def test_timers_out_of_range(field: str, value: int, rule: str) -> None:
    with pytest.raises(ValueError, match=f"{field}: {value} is out of range, must be {rule}"):
        LldpTimers(**{field: value})


# Reception


@pytest.mark.parametrize("ttl", [1, 2, 121, 65535])
def test_ageing_to_the_nanosecond(ttl: int) -> None:
    one = agent()
    one.receive(said(HIGH, ttl=ttl), 7)
    assert one.receiver.next_deadline_ns() == 7 + ttl * S
    assert one.handle_timer(7 + ttl * S - 1) == []
    (event,) = one.handle_timer(7 + ttl * S)
    assert isinstance(event, NeighborRemoved)
    assert event.reason is RemovalReason.AGED
    assert (one.neighbors, one.counters.stats_ageouts_total, one.counters.rem_tables_deletes) == ((), 1, 1)


def test_a_refresh_starts_the_ttl_anew_with_the_new_value() -> None:
    one = agent()
    one.receive(said(HIGH, ttl=10), 0)
    (event,) = one.receive(said(HIGH, ttl=3), 9 * S)
    assert isinstance(event, NeighborRefreshed)
    assert one.receiver.next_deadline_ns() == 12 * S
    assert one.neighbors[0].first_seen_ns == one.neighbors[0].last_change_ns == 0
    assert one.neighbors[0].last_seen_ns == 9 * S


def test_arrival_change_shutdown() -> None:
    one = agent()
    (added,) = one.receive(said(HIGH), 0)
    (changed,) = one.receive(said(HIGH, [INFO]), S)
    assert isinstance(added, NeighborAdded)
    assert isinstance(changed, NeighborChanged)
    assert (changed.before, changed.neighbor.pdu.organizational) == (added.neighbor, (INFO,))
    (gone,) = one.receive(said(HIGH, ttl=0), 2 * S)
    assert isinstance(gone, NeighborRemoved)
    assert gone.reason is RemovalReason.SHUTDOWN
    assert one.receive(said(HIGH, ttl=0), 3 * S) == []
    assert (one.counters.rem_tables_inserts, one.counters.rem_tables_deletes, one.counters.stats_ageouts_total) == (
        1,
        1,
        0,
    )


def test_the_msap_is_chassis_and_port() -> None:
    one = agent()
    one.receive(said(HIGH, port="p1"), 0)
    one.receive(said(HIGH, port="p2"), 0)
    one.receive(said(MIDDLE, port="p1"), 0)
    assert len(one.neighbors) == 3
    (event,) = one.receive(said(MIDDLE, port="p1", chassis=HIGH), 0)
    assert isinstance(event, NeighborChanged)  # the same MSAP from another source MAC
    assert len(one.neighbors) == 3


def test_too_many_neighbours() -> None:
    one = agent(max_neighbors=2)
    one.receive(said(HIGH, port="p1"), 0)
    one.receive(said(HIGH, port="p2"), 0)
    (event,) = one.receive(said(HIGH, port="p3", ttl=60), S)
    assert isinstance(event, NeighborDiscarded)
    assert event.until_ns == 61 * S
    one.receive(said(HIGH, port="p4", ttl=20), 2 * S)  # would be gone sooner: the timer is the longer one
    assert one.receiver.too_many_until_ns == 61 * S
    assert (one.counters.rem_tables_drops, one.counters.stats_frames_discarded_total) == (2, 2)
    assert one.counters.stats_frames_in_errors_total == 0
    one.handle_timer(61 * S - 1)
    assert one.too_many_neighbors
    assert one.handle_timer(61 * S) == [TooManyNeighborsEnded()]
    assert not one.too_many_neighbors


def test_room_is_made_by_ageing_first() -> None:
    one = agent(max_neighbors=1)
    one.receive(said(HIGH, ttl=5), 0)
    events = one.receive(said(MIDDLE), 5 * S)
    assert [type(event) for event in events] == [NeighborRemoved, NeighborAdded]


def test_a_link_that_comes_back_forgets() -> None:
    one = agent()
    one.receive(said(HIGH), 0)
    assert one.set_port_enabled(False, S) == []
    assert len(one.neighbors) == 1  # ages, as the standard has it
    (event,) = one.set_port_enabled(True, 2 * S)
    assert isinstance(event, NeighborRemoved)
    assert event.reason is RemovalReason.REINITIALIZED


def test_reception_off() -> None:
    one = agent()
    one.receive(said(HIGH), 0)
    (event,) = one.set_admin_status(AdminStatus.TX_ONLY, S)
    assert isinstance(event, NeighborRemoved)
    assert one.receive(said(HIGH), S) == []
    assert one.counters.stats_frames_in_total == 1


def test_frames_that_are_not_for_the_agent_are_left_alone() -> None:
    one = agent()
    frame = said(HIGH)
    assert one.receive(NEAREST_CUSTOMER_BRIDGE + frame[6:], 0) == []
    assert one.receive(frame[:12] + b"\x08\x00" + frame[14:], 0) == []
    assert one.counters.stats_frames_in_total == 0


def test_error_counters() -> None:
    one = agent()
    (event,) = one.receive(build_frame(HIGH, b"\x04\x03\x05e1"), 0)
    assert event == FrameDiscarded("TLV 0: Port ID (type 2), must be Chassis ID (type 1)")
    assert one.last_error == "TLV 0: Port ID (type 2), must be Chassis ID (type 1)"
    counters = one.counters
    assert (counters.stats_frames_in_total, counters.stats_frames_discarded_total) == (1, 1)
    assert counters.stats_frames_in_errors_total == 1
    head = bytes.fromhex("0207 04 020000000002 0403 05 6531 0602 0079")
    bad, reserved, known = bytes.fromhex("0e03 001400"), bytes.fromhex("1400"), bytes.fromhex("fe04 0080c2 7f")
    events = one.receive(build_frame(HIGH, head + bad + reserved + INFO.raw().encode() + known + b"\0\0"), 0)
    assert [type(event) for event in events] == [NeighborAdded, TlvsDiscarded]
    assert (counters.stats_frames_discarded_total, counters.stats_frames_in_errors_total) == (1, 2)
    assert (counters.stats_tlvs_discarded_total, counters.stats_tlvs_unrecognized_total) == (1, 2)


def test_a_pdu_that_would_not_fit_is_refused_and_nothing_changes() -> None:
    one = agent()
    one.set_organizational([INFO], 0)
    # Three TLVs of 2 + 4 + 507 bytes, chassis ID 9, port ID 5, TTL 4, End 2.
    with pytest.raises(ValueError, match="LLDPDU: 1559 bytes, must fit into 1500"):
        one.set_organizational([replace(INFO, subtype=n, info=bytes(507)) for n in range(3)], 0)
    assert one.organizational == (INFO,)
    assert one.counters.lldpdu_length_errors == 1

"""Digest lists and idle time-outs without I/O, at exact times (nanoseconds)."""

from __future__ import annotations

import pytest
from finsy.proto import p4r
from p4rt_client import Names, p4info
from p4rt_direct import OK, Direct

from switch.p4rt.digests import UNLIMITED_LIST_SIZE, DigestConfig, Digests
from switch.p4rt.errors import P4RuntimeError
from switch.p4rt.schema import Schema

INFO = p4info()
LEARN = Names(INFO)["learn_t"]


def digests(max_timeout_ns: int, max_list_size: int, ack_timeout_ns: int) -> Digests:
    made = Digests(Schema(INFO))
    made.restore(LEARN, DigestConfig(max_timeout_ns, max_list_size, ack_timeout_ns))
    return made


def macs(digest_list: p4r.DigestList | None) -> list[int] | None:
    if digest_list is None:
        return None
    return [int.from_bytes(data.struct.members[0].bitstring, "big") for data in digest_list.data]


def add(made: Digests, mac: int, now_ns: int) -> list[int] | None:
    return macs(made.add("learn_t", (mac, 1), now_ns))


def test_list_is_sent_when_it_is_full() -> None:
    made = digests(1000, 3, 0)
    assert [add(made, mac, mac) for mac in (1, 2, 3, 4)] == [None, None, [1, 2, 3], None]


def test_list_is_sent_when_its_oldest_message_has_waited() -> None:
    made = digests(1000, 3, 0)
    assert made.next_deadline() is None
    add(made, 1, 100)
    add(made, 2, 900)
    assert made.next_deadline() == 1100
    assert made.advance(1099) == []
    assert [macs(item) for item in made.advance(1100)] == [[1, 2]]
    assert made.next_deadline() is None
    add(made, 3, 5000)
    assert made.next_deadline() == 6000


@pytest.mark.parametrize(("timeout", "size"), [(0, 5), (1000, 1), (0, 0)])
def test_no_timeout_or_size_one_sends_at_once(timeout: int, size: int) -> None:
    made = digests(timeout, size, 0)
    assert [add(made, mac, 0) for mac in (1, 2)] == [[1], [2]]


def test_size_zero_is_our_choice() -> None:
    made = digests(10**9, 0, 0)
    results = [add(made, mac, 0) for mac in range(UNLIMITED_LIST_SIZE)]
    assert results[:-1] == [None] * (UNLIMITED_LIST_SIZE - 1)
    assert results[-1] == list(range(UNLIMITED_LIST_SIZE))


def test_duplicates_in_a_list() -> None:
    made = digests(1000, 2, 0)
    assert [add(made, mac, 0) for mac in (1, 1, 1, 2)] == [None, None, None, [1, 2]]
    assert made.add("learn_t", (1, 2), 0) is None  # another port: another message


def test_unacknowledged_data_is_held_back_until_ack_or_timeout() -> None:
    made = digests(0, 1, 500)
    first = made.add("learn_t", (1, 1), 0)
    assert first is not None
    assert [add(made, 1, now) for now in (1, 499)] == [None, None]
    assert add(made, 1, 500) == [1]  # ack_timeout has passed
    assert add(made, 1, 600) is None
    made.ack(LEARN, first.list_id)  # too late, and for an older list: no effect
    assert add(made, 1, 601) is None
    made.ack(LEARN, first.list_id + 1)
    assert add(made, 1, 602) == [1]


def test_no_ack_timeout_means_no_memory() -> None:
    made = digests(0, 1, 0)
    assert [add(made, 1, now) for now in (0, 0, 1)] == [[1], [1], [1]]


def test_new_primary_hears_everything_again() -> None:
    made = digests(0, 1, 10**9)
    assert add(made, 1, 0) == [1]
    assert add(made, 1, 1) is None
    made.new_primary()
    assert add(made, 1, 2) == [1]


def test_list_ids_are_unique_and_unknown_digests_refused() -> None:
    made = digests(0, 1, 0)
    ids = [item.list_id for mac in range(5) if (item := made.add("learn_t", (mac, 1), 0))]
    assert ids == [1, 2, 3, 4, 5]
    made.ack(LEARN, 999)
    with pytest.raises(P4RuntimeError, match="digest_id 0x5: no such digest"):
        made.ack(5, 1)


def test_disabled_digest_is_silent() -> None:
    made = digests(1000, 2, 0)
    add(made, 1, 0)
    made.restore(LEARN, None)
    assert made.advance(10**9) == []
    assert add(made, 2, 0) is None


# --- idle time-outs ------------------------------------------------------------------------------------------------

MS = 1_000_000


def entry(mac: int, timeout_ms: int) -> str:
    return (
        f'table_entry {{ table_id: @l2 match {{ field_id: 1 exact {{ value: "\\x{mac:02x}" }} }} '
        f"action {{ action {{ action_id: @drop }} }} idle_timeout_ns: {timeout_ms * MS} }}"
    )


def idle_macs(switch: Direct, now_ms: int) -> list[int]:
    found = []
    for outgoing in switch.service.poll(now_ms * MS, 77):
        notice = outgoing.message.idle_timeout_notification
        assert notice.timestamp == 77
        found += [int.from_bytes(item.match[0].exact.value, "big") for item in notice.table_entry]
    return found


def test_idle_entries_are_reported_and_the_wait_starts_again() -> None:
    switch = Direct()
    assert switch.insert(entry(1, 100)) == OK
    assert switch.insert(entry(2, 200)) == OK
    assert switch.insert(entry(3, 0)) == OK
    entries = list(switch.pipeline.entries["IngressImpl.l2"].values())

    def last_hit(now_ms: int, *hits_ms: int) -> None:
        for item, hit in zip(entries, hits_ms, strict=True):
            item.age_us = (now_ms - hit) * 1000

    last_hit(1099, 1000, 1000, 1000)
    assert idle_macs(switch, 1099) == []
    last_hit(1100, 1000, 1000, 1000)
    assert idle_macs(switch, 1100) == [1]
    assert switch.service.next_deadline_ns(1100 * MS) == 1200 * MS
    last_hit(1199, 1000, 1000, 1000)
    assert idle_macs(switch, 1199) == []
    last_hit(1200, 1000, 1000, 1000)
    assert idle_macs(switch, 1200) == [1, 2]
    last_hit(1300, 1250, 1000, 1000)  # entry 1 was hit
    assert idle_macs(switch, 1300) == []
    last_hit(1350, 1250, 1000, 1000)
    assert idle_macs(switch, 1350) == [1]
    switch.delete(entry(1, 0))
    switch.modify(entry(2, 0))
    assert switch.service.next_deadline_ns(1350 * MS) is None
    assert idle_macs(switch, 5000) == []


def test_tiny_timeouts_do_not_spin() -> None:
    switch = Direct()
    switch.insert(entry(1, 0).replace("idle_timeout_ns: 0", "idle_timeout_ns: 1"))
    switch.pipeline.only("IngressImpl.l2").age_us = 10
    assert idle_macs(switch, 50) == [1]
    assert switch.service.next_deadline_ns(50 * MS) == 60 * MS

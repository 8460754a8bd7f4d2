"""What the service writes, seen by packets: the test program on the native switch, frames in and out by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from finsy.proto import p4r
from p4rt_direct import OK, Direct

from switch.core import SwitchCore
from switch.target import Target, TargetFactory

US = 1_000_000  # picoseconds
SRC = bytes.fromhex("020000000009")
PAYLOAD = bytes(30)


class Native(Direct):
    """Ports 1..3 without a rate."""

    def __init__(self) -> None:
        super().__init__(factory=TargetFactory())
        self.now_ps = 0
        for port in (1, 2, 3):
            self.switch_core.tm.add_port(port)

    @property
    def switch_core(self) -> SwitchCore:
        target = self.service.target
        assert isinstance(target, Target)
        return target.core

    def send(self, frame: bytes, port: int = 1) -> list[tuple[int, bytes]]:
        """What leaves the data ports."""
        self.now_ps += 10 * US
        self.switch_core.receive(port, frame, self.now_ps)
        self.switch_core.advance(self.now_ps + US)
        return [(output.port, output.frame) for output in self.switch_core.outputs()]

    def stream(self) -> list[p4r.StreamMessageResponse]:
        return [outgoing.message for outgoing in self.service.poll(self.now_ps // 1000, 1)]


@pytest.fixture
def switch() -> Iterator[Native]:
    made = Native()
    yield made
    made.service.close()


def ethernet(dst: int, ether_type: int = 0x1234, payload: bytes = PAYLOAD) -> bytes:
    return dst.to_bytes(6, "big") + SRC + ether_type.to_bytes(2, "big") + payload


def ipv4(dst: int, src: int = 1, protocol: int = 17, tos: int = 0) -> bytes:
    head = bytes([0x45, tos]) + (20).to_bytes(2, "big") + bytes(4) + bytes([64, protocol, 0, 0])
    return head + src.to_bytes(4, "big") + dst.to_bytes(4, "big")


def l2(mac: int, port: int) -> str:
    return (
        f'table_entry {{ table_id: @l2 match {{ field_id: 1 exact {{ value: "\\x{mac:02x}" }} }} '
        f'action {{ action {{ action_id: @forward params {{ param_id: 1 value: "\\x{port:02x}" }} }} }} }}'
    )


def test_entries_forward(switch: Native) -> None:
    frame = ethernet(2)
    assert switch.insert(l2(2, 3)) == OK
    assert switch.send(frame) == [(3, frame)]
    assert switch.modify(l2(2, 2)) == OK
    assert switch.send(frame) == [(2, frame)]
    assert switch.delete(l2(2, 2)) == OK
    default = (
        r"table_entry { table_id: @keyless is_default_action: true action { action { action_id: @forward "
        r'params { param_id: 1 value: "\x03" } } } }'
    )
    assert switch.modify(default) == OK
    assert switch.send(frame) == [(3, frame)]


def test_longest_prefix_and_ternary_priority(switch: Native) -> None:
    def route(value: str, length: int, port: int) -> str:
        return (
            f'table_entry {{ table_id: @routes match {{ field_id: 1 lpm {{ value: "{value}" '
            f"prefix_len: {length} }} }} action {{ action {{"
            f' action_id: @route params {{ param_id: 1 value: "\\x{port:02x}" }} params {{ param_id: '
            f'2 value: "\\x07" }} }} }} }}'
        )

    def sent_to(dst: int) -> list[int]:
        return [port for port, _ in switch.send(ethernet(2, 0x0800, ipv4(dst)))]

    assert switch.insert(route(r"\x0a\x00\x00\x00", 8, 2)) == OK
    assert switch.insert(route(r"\x0a\x01\x00\x00", 16, 3)) == OK
    assert (sent_to(0x0A020001), sent_to(0x0A010001), sent_to(0x0B000001)) == ([2], [3], [])
    deny = "table_entry { table_id: @acl priority: %d %s action { action { action_id: @%s } } }"
    everything = deny % (1, "", "acl_deny")
    assert switch.insert(everything) == OK
    assert sent_to(0x0A020001) == []
    udp = deny % (
        5,
        r'match { field_id: 3 optional { value: "\x11" } } match { field_id: 4 range { low: "\x10" high: '
        r'"\x20" } }',
        "acl_permit",
    )
    assert switch.insert(udp) == OK
    assert sent_to(0x0A020001) == [2]
    counters = switch.read("direct_counter_entry { table_entry { table_id: @acl } }")
    assert [
        (e.direct_counter_entry.table_entry.priority, e.direct_counter_entry.data.packet_count) for e in counters
    ] == [(1, 1), (5, 1)]
    assert counters[0].direct_counter_entry.data.byte_count == 34


def test_const_entries_hit_and_punt(switch: Native) -> None:
    assert switch.send(ethernet(2, 0x88CC), port=2) == []
    (message,) = switch.stream()
    assert message.packet.payload == ethernet(2, 0x88CC)
    assert [(m.metadata_id, m.value) for m in message.packet.metadata] == [(1, b"\x02"), (2, b"\x00"), (3, b"\x01")]


def test_packet_out(switch: Native) -> None:
    message = p4r.StreamMessageRequest()
    message.packet.payload = ethernet(9)
    message.packet.metadata.add(metadata_id=1, value=b"\x03")
    message.packet.metadata.add(metadata_id=2, value=b"\x00")
    assert switch.service.stream_message("me", message) == []
    switch.switch_core.advance(switch.switch_core.now_ps + US)
    assert [(output.port, output.frame) for output in switch.switch_core.outputs()] == [(3, ethernet(9))]


def test_digests(switch: Native) -> None:
    assert switch.insert("digest_entry { digest_id: @learn_t config { max_list_size: 1 } }") == OK
    switch.send(ethernet(2), port=3)
    (message,) = switch.stream()
    (data,) = message.digest.data
    assert [member.bitstring for member in data.struct.members] == [SRC.lstrip(b"\0"), b"\x03"]


def test_value_set(switch: Native) -> None:
    switch.insert(
        r'table_entry { table_id: @routes match { field_id: 1 lpm { value: "\x0a\x00\x00\x00" '
        r'prefix_len: 8 } } action { action { action_id: @route params { param_id: 1 value: "\x02" } '
        r'params { param_id: 2 value: "\x07" } } } }'
    )
    frame = ethernet(2, 0x4321, ipv4(0x0A000001))
    assert switch.send(frame) == []
    members = (
        r"value_set_entry { value_set_id: @ParserImpl.routed_types members { match { field_id: 1 exact { "
        r'value: "\x43\x21" } } } }'
    )
    assert switch.modify(members) == OK
    assert switch.send(frame) == [(2, bytes(5) + b"\x07" + frame[6:])]
    assert switch.modify("value_set_entry { value_set_id: @ParserImpl.routed_types }") == OK
    assert switch.send(frame) == []


def test_groups_share_by_weight(switch: Native) -> None:
    switch.modify(
        "table_entry { table_id: @routes is_default_action: true action { action { action_id: @route "
        "params { param_id: 1 value: '\\x01' } params { param_id: 2 value: '\\x01' } } } }"
    )
    action = (
        "action {{ action_id: @route params {{ param_id: 1 value: '\\x{:02x}' }} params {{ param_id: 2 "
        "value: '\\x01' }} }} weight: {}"
    )
    one_shot = (
        "table_entry { table_id: @balanced match { field_id: 1 exact { value: '\\x0a\\x00\\x00\\x01' "
        "} } action { action_profile_action_set {"
        f" action_profile_actions {{ {action.format(2, 1)} }} action_profile_actions {{ "
        f"{action.format(3, 3)} }} }} }} }}"
    )
    assert switch.insert(one_shot) == OK
    ports = [port for src in range(400) for port, _ in switch.send(ethernet(2, 0x0800, ipv4(0x0A000001, src)))]
    assert len(ports) == 400
    assert 60 <= ports.count(2) <= 140  # a quarter, within five standard deviations
    assert ports.count(3) == 400 - ports.count(2)


def test_arrays(switch: Native) -> None:
    switch.insert(l2(2, 3))
    for _ in range(3):
        switch.send(ethernet(2), port=2)
    (counter,) = switch.read("counter_entry { counter_id: @port_counter index { index: 2 } }")
    assert (counter.counter_entry.data.packet_count, counter.counter_entry.data.byte_count) == (3, 3 * 44)
    (register,) = switch.read("register_entry { register_id: @balance index { index: 0 } }")
    assert register.register_entry.data.bitstring == b"\xfd"  # int<12> -3
    text = r'register_entry { register_id: @last_seen index { index: 2 } data { bitstring: "\x01\x02" } }'
    assert switch.modify(text) == OK
    assert switch.read("register_entry { register_id: @last_seen index { index: 2 } }") == [switch.entity(text)]
    assert switch.modify("counter_entry { counter_id: @port_counter data { } }") == OK
    assert {e.counter_entry.data.packet_count for e in switch.read("counter_entry { counter_id: @port_counter }")} == {
        0
    }


def test_time_since_last_hit(switch: Native) -> None:
    switch.insert(l2(2, 3))
    switch.send(ethernet(2))
    switch.switch_core.advance(switch.now_ps + 500 * US)
    (entity,) = switch.read("table_entry { table_id: @l2 time_since_last_hit {} }")
    assert 490_000 <= entity.table_entry.time_since_last_hit.elapsed_ns <= 500_000


def test_reconcile_keeps_forwarding(switch: Native) -> None:
    from p4rt_client import config

    switch.insert(l2(2, 3))
    switch.send(ethernet(2))
    changed = config(cookie=9)
    changed.p4_device_config += b"\n"
    switch.set_config(changed, "RECONCILE_AND_COMMIT")
    for port in (1, 2, 3):
        switch.switch_core.tm.add_port(port)
    switch.now_ps = 0
    assert switch.send(ethernet(2)) == [(3, ethernet(2))]
    (counter,) = switch.read("counter_entry { counter_id: @port_counter index { index: 1 } }")
    assert counter.counter_entry.data.packet_count == 2

"""Counters, meters, registers, value sets, replication and digest entries over the service."""

from __future__ import annotations

import pytest
from p4rt_direct import OK, Direct

from switch.api import CounterValue, MeterConfig


@pytest.fixture
def switch() -> Direct:
    return Direct()


def test_counters(switch: Direct) -> None:
    cells = switch.pipeline.counters["IngressImpl.port_counter"]
    cells[3] = CounterValue(2, 200)
    one = "counter_entry { counter_id: @port_counter index { index: 3 } %s }"
    assert switch.read(one % "") == [switch.entity(one % "data { packet_count: 2 byte_count: 200 }")]
    assert len(switch.read("counter_entry { counter_id: @port_counter }")) == 16
    assert len(switch.read("counter_entry {}")) == 16 + 8
    assert switch.modify(one % "") == OK
    assert cells[3] == CounterValue(2, 200)
    assert switch.modify(one % "data { packet_count: 7 byte_count: 1 }") == OK
    assert cells[3] == CounterValue(7, 1)
    assert switch.modify("counter_entry { counter_id: @port_counter data { } }") == OK
    assert set(cells) == {CounterValue()}
    # What a counter does not count reads as 0.
    switch.pipeline.counters["IngressImpl.packet_counter"][1] = CounterValue(5, 320)
    (entity,) = switch.read("counter_entry { counter_id: @packet_counter index { index: 1 } }")
    assert (entity.counter_entry.data.packet_count, entity.counter_entry.data.byte_count) == (5, 0)


def test_meters(switch: Direct) -> None:
    cells = switch.pipeline.meters["IngressImpl.port_meter"]
    one = "meter_entry { meter_id: @port_meter index { index: 2 } %s }"
    config = "config { cir: 1 cburst: 2 pir: 3 pburst: 4 }"
    assert switch.modify(one % config) == OK
    assert cells == {2: MeterConfig(1, 2, 3, 4)}
    assert switch.read(one % "") == [switch.entity(one % config)]
    found = switch.read("meter_entry {}")
    assert [e.meter_entry.HasField("config") for e in found] == [False, False, True] + [False] * 5
    assert switch.modify(f"meter_entry {{ meter_id: @port_meter {config} }}") == OK
    assert len(cells) == 8
    assert switch.modify("meter_entry { meter_id: @port_meter }") == OK
    assert cells == {}


def test_registers(switch: Direct) -> None:
    cells = switch.pipeline.registers["IngressImpl.last_seen"]
    one = 'register_entry { register_id: @last_seen index { index: 5 } data { bitstring: "%s" } }'
    assert switch.modify(one % r"\x00\x01\x02") == OK
    assert cells[5] == 0x102
    assert switch.read("register_entry { register_id: @last_seen index { index: 5 } }") == [
        switch.entity(one % r"\x01\x02")
    ]
    assert switch.modify(r'register_entry { register_id: @last_seen data { bitstring: "\x09" } }') == OK
    assert cells == [9] * 16
    assert len(switch.read("register_entry {}")) == 16 + 4
    # int<12>: -739 is fd1d
    signed = r'register_entry { register_id: @balance index { index: 0 } data { bitstring: "%s" } }'
    assert switch.modify(signed % r"\xff\xfd\x1d") == OK
    assert switch.pipeline.registers["IngressImpl.balance"][0] == 0xD1D
    assert switch.read("register_entry { register_id: @balance index { index: 0 } }") == [
        switch.entity(signed % r"\xfd\x1d")
    ]


ARRAYS = [
    ("counter_entry { counter_id: @port_counter %s data { packet_count: 1 } }", 16),
    ("meter_entry { meter_id: @port_meter %s config { pir: 1 } }", 8),
    ("register_entry { register_id: @last_seen %s data { bitstring: '1' } }", 16),
]


@pytest.mark.parametrize(("text", "size"), ARRAYS)
def test_array_bounds_and_types(switch: Direct, text: str, size: int) -> None:
    before = switch.whole_state()
    for kind in ("INSERT", "DELETE"):
        assert switch.write((kind, text % ""))[0][0] == "INVALID_ARGUMENT"
    assert switch.modify(text % "index { index: -1 }")[0] == "INVALID_ARGUMENT"
    code, message = switch.modify(text % f"index {{ index: {size} }}")
    assert (code, f"index {size}: must be below its size {size}" in message) == ("OUT_OF_RANGE", True)
    query = text % f"index {{ index: {size} }}"
    assert switch.read_error(query)[0] == "OUT_OF_RANGE"
    assert switch.whole_state() == before


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("counter_entry { counter_id: 4 }", "NOT_FOUND", "counter_id 0x4"),
        ("counter_entry { data { } }", "INVALID_ARGUMENT", "counter_id: must be set"),
        ("counter_entry { counter_id: @acl_counter data { } }", "INVALID_ARGUMENT", "is a direct counter"),
        ("counter_entry { counter_id: @port_counter data { byte_count: -4 } }", "INVALID_ARGUMENT", "byte_count -4"),
        ("meter_entry { meter_id: @port_meter counter_data { } }", "UNIMPLEMENTED", "counter_data"),
        ("meter_entry { meter_id: @port_meter config { cir: 2 pir: 1 } }", "INVALID_ARGUMENT", "cir 2"),
        ("register_entry { register_id: @last_seen }", "INVALID_ARGUMENT", "data is missing"),
        (
            "register_entry { register_id: @last_seen data { bool: true } }",
            "INVALID_ARGUMENT",
            "expected bitstring, got bool",
        ),
        (
            r'register_entry { register_id: @last_seen data { bitstring: "\x01\0\0\0\0\0\0" } }',
            "OUT_OF_RANGE",
            "bit<48>",
        ),
        ("value_set_entry { value_set_id: 3 }", "NOT_FOUND", "value_set_id 0x3"),
        ("digest_entry { digest_id: 3 }", "NOT_FOUND", "digest_id 0x3"),
        ("digest_entry { digest_id: @learn_t }", "NOT_FOUND", "it is not enabled"),
        ("packet_replication_engine_entry { }", "INVALID_ARGUMENT", "type must be set"),
    ],
)
def test_refused_modifies(switch: Direct, text: str, code: str, said: str) -> None:
    before = switch.whole_state()
    got, message = switch.modify(text)
    assert got == code
    assert said in message
    assert switch.whole_state() == before


def test_array_reads_need_an_id_with_an_index(switch: Direct) -> None:
    for text in ("counter_entry { index { } }", "meter_entry { index { } }", "register_entry { index { } }"):
        assert switch.read_error(text)[0] == "INVALID_ARGUMENT"


def test_refusal_in_the_middle_of_an_array(switch: Direct) -> None:
    cells = switch.pipeline.registers["IngressImpl.last_seen"]
    cells[0] = 1
    original = switch.pipeline.register_write
    calls = []

    def third_fails(register: str, index: int, value: int) -> None:
        calls.append(index)
        if len(calls) == 3:
            switch.pipeline.refuse("register_write")
        original(register, index, value)

    switch.pipeline.register_write = third_fails  # type: ignore[method-assign]
    assert (
        switch.modify(r'register_entry { register_id: @last_seen data { bitstring: "\x09" } }')[0] == "INVALID_ARGUMENT"
    )
    assert cells == [1] + [0] * 15


def test_value_sets(switch: Direct) -> None:
    def text(*values: int) -> str:
        inner = " ".join(f'members {{ match {{ field_id: 1 exact {{ value: "\\x{v:02x}" }} }} }}' for v in values)
        return f"value_set_entry {{ value_set_id: @ParserImpl.routed_types {inner} }}"

    sets = switch.pipeline.value_sets
    assert switch.read("value_set_entry {}") == [switch.entity(text())]
    assert switch.modify(text(1, 2)) == OK
    assert sets["ParserImpl.routed_types"] == [(1, 0xFFFF), (2, 0xFFFF)]
    assert switch.read("value_set_entry { value_set_id: @ParserImpl.routed_types }") == [switch.entity(text(1, 2))]
    assert switch.modify(text(1, 2, 3, 4, 5))[0] == "RESOURCE_EXHAUSTED"
    assert switch.modify(text(1, 1))[0] == "ALREADY_EXISTS"
    assert switch.insert(text(1))[0] == "INVALID_ARGUMENT"
    assert switch.delete(text(1))[0] == "INVALID_ARGUMENT"
    assert sets["ParserImpl.routed_types"] == [(1, 0xFFFF), (2, 0xFFFF)]
    assert switch.modify(text()) == OK
    assert sets["ParserImpl.routed_types"] == []


def multicast(number: int, replicas: str, more: str = "") -> str:
    return (
        f"packet_replication_engine_entry {{ multicast_group_entry {{ multicast_group_id: {number} "
        f"{replicas} {more} }} }}"
    )


def clone(number: int, replicas: str, more: str = "") -> str:
    return f"packet_replication_engine_entry {{ clone_session_entry {{ session_id: {number} {replicas} {more} }} }}"


def test_multicast_groups(switch: Direct) -> None:
    replicas = r'replicas { port: "\x05" instance: 1 } replicas { egress_port: 300 instance: 2 }'
    assert switch.insert(multicast(9, replicas, "metadata: 'm'")) == OK
    assert switch.core.pre.groups == {9: [(5, 1), (300, 2)]}
    wanted = [switch.entity(multicast(9, replicas, "metadata: 'm'"))]
    assert switch.read(multicast(0, "")) == wanted
    assert switch.read(multicast(9, "")) == wanted
    assert switch.read(multicast(8, "")) == []
    assert switch.insert(multicast(9, replicas))[0] == "ALREADY_EXISTS"
    assert switch.modify(multicast(9, r'replicas { port: "\x06" }')) == OK
    assert switch.core.pre.groups == {9: [(6, 0)]}
    assert switch.delete(multicast(9, "")) == OK
    assert switch.core.pre.groups == {}
    assert switch.delete(multicast(9, ""))[0] == "NOT_FOUND"
    assert switch.modify(multicast(9, ""))[0] == "NOT_FOUND"


def test_clone_sessions(switch: Direct) -> None:
    text = clone(100, "replicas { egress_port: 510 instance: 1 }", "class_of_service: 2 packet_length_bytes: 128")
    assert switch.insert(text) == OK
    assert switch.core.pre.sessions == {100: ([(510, 1)], 2, 128)}
    assert switch.read(clone(0, "")) == [switch.entity(text)]
    assert switch.insert(text)[0] == "ALREADY_EXISTS"
    assert switch.modify(clone(100, "replicas { egress_port: 4 }")) == OK
    assert switch.core.pre.sessions == {100: ([(4, 0)], 0, 0)}
    assert switch.delete(clone(100, "")) == OK
    assert switch.core.pre.sessions == {}


@pytest.mark.parametrize("make", [multicast, clone])
@pytest.mark.parametrize(
    ("number", "replicas", "code", "said"),
    [
        (0, "", "INVALID_ARGUMENT", "must be 1..65535"),
        (70000, "", "INVALID_ARGUMENT", "must be 1..65535"),
        (1, "replicas { instance: 1 }", "INVALID_ARGUMENT", "replicas[0]: port is missing"),
        (1, "replicas { egress_port: 512 }", "INVALID_ARGUMENT", "does not fit in bit<9>"),
        (1, "replicas { egress_port: 1 instance: 65536 }", "INVALID_ARGUMENT", "instance 65536: must be 0..65535"),
        (
            1,
            "replicas { egress_port: 1 } replicas { port: '\\x01' }",
            "INVALID_ARGUMENT",
            "port 1 with instance 0 is given twice",
        ),
        (1, "replicas { egress_port: 1 backup_replicas { port: '2' } }", "UNIMPLEMENTED", "backup_replicas"),
    ],
)
def test_refused_replication(switch: Direct, make, number: int, replicas: str, code: str, said: str) -> None:
    got, message = switch.insert(make(number, replicas))
    assert got == code
    assert said in message
    assert (switch.core.pre.groups, switch.core.pre.sessions) == ({}, {})


def test_refused_clone_attributes(switch: Direct) -> None:
    assert "class_of_service 8: must be 0..7" in switch.insert(clone(1, "", "class_of_service: 8"))[1]
    assert "packet_length_bytes -1" in switch.insert(clone(1, "", "packet_length_bytes: -1"))[1]


def test_digest_entries(switch: Direct) -> None:
    text = "digest_entry { digest_id: @learn_t config { max_timeout_ns: 1 max_list_size: 2 ack_timeout_ns: 3 } }"
    assert switch.read("digest_entry {}") == []
    assert switch.insert(text) == OK
    assert switch.insert(text)[0] == "ALREADY_EXISTS"
    assert switch.read("digest_entry {}") == [switch.entity(text)]
    assert switch.read("digest_entry { digest_id: @learn_t }") == [switch.entity(text)]
    other = "digest_entry { digest_id: @learn_t config { max_list_size: 5 } }"
    assert switch.modify(other) == OK
    assert switch.read("digest_entry {}") == [switch.entity(other)]
    assert "max_timeout_ns -1" in switch.modify("digest_entry { digest_id: @learn_t config { max_timeout_ns: -1 } }")[1]
    assert switch.delete("digest_entry { digest_id: @learn_t }") == OK
    assert switch.delete("digest_entry { digest_id: @learn_t }")[0] == "NOT_FOUND"


def test_rollback(switch: Direct) -> None:
    switch.insert(multicast(1, "replicas { egress_port: 1 }"))
    switch.insert("digest_entry { digest_id: @learn_t config { max_list_size: 5 } }")
    before = switch.whole_state()
    outcomes = switch.write(
        ("MODIFY", "counter_entry { counter_id: @port_counter data { packet_count: 3 } }"),
        ("MODIFY", "meter_entry { meter_id: @port_meter index { index: 1 } config { pir: 3 } }"),
        ("MODIFY", "register_entry { register_id: @last_seen data { bitstring: '1' } }"),
        (
            "MODIFY",
            "value_set_entry { value_set_id: @ParserImpl.routed_types members { match { field_id: 1 "
            "exact { value: '1' } } } }",
        ),
        ("MODIFY", multicast(1, "replicas { egress_port: 2 }")),
        ("INSERT", clone(5, "replicas { egress_port: 2 }")),
        ("DELETE", multicast(1, "")),
        ("DELETE", "digest_entry { digest_id: @learn_t }"),
        ("INSERT", "extern_entry {}"),
        atomicity="ROLLBACK_ON_ERROR",
    )
    assert [code for code, _ in outcomes] == ["ABORTED"] * 8 + ["UNIMPLEMENTED"]
    assert switch.whole_state() == before
    assert switch.core.pre.groups == {1: [(1, 0)]}

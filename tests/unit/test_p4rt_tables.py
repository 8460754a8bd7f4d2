"""TableEntry over the service: insert, modify, delete, defaults, const tables, direct resources, wildcard reads,
roll-back."""

from __future__ import annotations

import pytest
from p4rt_direct import OK, Direct

from switch.api import ActionCall, CounterValue, KeyMatch, MatchKind, MeterConfig


@pytest.fixture
def switch() -> Direct:
    return Direct()


def l2(mac: int, action: str = r'action_id: @forward params { param_id: 1 value: "\x05" }', more: str = "") -> str:
    data = "".join(f"\\x{byte:02x}" for byte in mac.to_bytes(6, "big"))
    act = f"action {{ action {{ {action} }} }}" if action else ""
    return f'table_entry {{ table_id: @l2 match {{ field_id: 1 exact {{ value: "{data}" }} }} {act} {more} }}'


def acl(priority: int, port: int = 1, action: str = "acl_deny", more: str = "") -> str:
    act = f"action {{ action {{ action_id: @{action} }} }}" if action else ""
    return (
        f'table_entry {{ table_id: @acl priority: {priority} match {{ field_id: 1 ternary {{ value: "\\x{port:02x}"'
        f' mask: "\\x01\\xff" }} }} {act} {more} }}'
    )


def test_insert_reaches_the_pipeline_and_reads_back_canonical(switch: Direct) -> None:
    assert switch.insert(l2(0x02, more='metadata: "m" controller_metadata: 9 idle_timeout_ns: 5000')) == OK
    entry = switch.pipeline.only("IngressImpl.l2")
    assert entry.keys == (KeyMatch(MatchKind.EXACT, 2),)
    assert entry.action == ActionCall("IngressImpl.forward", (5,))
    assert switch.read("table_entry { table_id: @l2 }") == [
        switch.entity(
            r"""table_entry { table_id: @l2 match { field_id: 1 exact { value: "\x02" } }
            action { action { action_id: @forward params { param_id: 1 value: "\x05" } } }
            metadata: "m" controller_metadata: 9 idle_timeout_ns: 5000 }"""
        )
    ]


def test_optional_keys_go_down_as_the_program_has_them(switch: Direct) -> None:
    text = (
        r'table_entry { table_id: @acl priority: 1 match { field_id: 3 optional { value: "\x11" } } '
        r"action { action { action_id: @acl_deny } } }"
    )
    assert switch.insert(text) == OK
    keys = switch.pipeline.only("IngressImpl.acl").keys
    assert keys[2] == KeyMatch(MatchKind.TERNARY, 0x11, mask=0xFF)
    assert switch.read("table_entry { table_id: @acl }") == [switch.entity(text)]


def test_duplicates(switch: Direct) -> None:
    assert switch.insert(l2(1)) == OK
    code, message = switch.insert(l2(1, r'action_id: @forward params { param_id: 1 value: "\x06" }'))
    assert (code, message) == ("ALREADY_EXISTS", "table IngressImpl.l2: an entry with this match and priority exists")
    assert switch.pipeline.only("IngressImpl.l2").action == ActionCall("IngressImpl.forward", (5,))
    assert switch.insert(acl(1)) == OK
    assert switch.insert(acl(2)) == OK  # another priority is another entry
    assert switch.insert(acl(2))[0] == "ALREADY_EXISTS"


def test_capacity(switch: Direct) -> None:
    assert [switch.insert(l2(mac))[0] for mac in range(1, 6)] == ["OK"] * 4 + ["RESOURCE_EXHAUSTED"]
    assert "it is full (size 4)" in switch.insert(l2(9))[1]
    assert switch.delete(l2(1)) == OK
    assert switch.insert(l2(9)) == OK


def test_modify_and_delete(switch: Direct) -> None:
    assert switch.modify(l2(1))[0] == "NOT_FOUND"
    assert switch.delete(l2(1))[0] == "NOT_FOUND"
    switch.insert(l2(1, more='metadata: "a"'))
    assert switch.modify(l2(1, "action_id: @drop", 'metadata: "b"')) == OK
    assert switch.pipeline.only("IngressImpl.l2").action == ActionCall("IngressImpl.drop")
    assert switch.read("table_entry { table_id: @l2 }")[0].table_entry.metadata == b"b"
    assert switch.modify(l2(1, "")) == OK  # action unset: it stays
    assert switch.pipeline.only("IngressImpl.l2").action == ActionCall("IngressImpl.drop")
    # Only the key counts in DELETE.
    assert switch.delete(l2(1, "action_id: 99", "idle_timeout_ns: -1")) == OK
    assert switch.pipeline.entries["IngressImpl.l2"] == {}


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("table_entry { table_id: 5 }", "NOT_FOUND", "table_id 0x5: no such object in P4Info"),
        ("table_entry { }", "INVALID_ARGUMENT", "table_id: must be set"),
        (l2(1, ""), "INVALID_ARGUMENT", "action is missing"),
        (l2(1, "action_id: @drop", "is_const: true"), "INVALID_ARGUMENT", "is_const must not be set"),
        (
            l2(1, "action_id: @drop", "time_since_last_hit { }"),
            "INVALID_ARGUMENT",
            "time_since_last_hit must not be set",
        ),
        (l2(1, "action_id: @drop", "idle_timeout_ns: -5"), "INVALID_ARGUMENT", "idle_timeout_ns -5"),
        (l2(1, "action_id: @drop", "counter_data { }"), "INVALID_ARGUMENT", "it has no direct counter"),
        (l2(1, "action_id: @drop", "meter_config { }"), "INVALID_ARGUMENT", "it has no direct meter"),
        (l2(1, "action_id: @drop", "meter_counter_data { }"), "UNIMPLEMENTED", "meter_counter_data"),
        (acl(1, more="idle_timeout_ns: 5"), "INVALID_ARGUMENT", "does not support time-outs"),
        (acl(1, more="counter_data { packet_count: -1 }"), "INVALID_ARGUMENT", "packet_count -1: must not be negative"),
        (acl(1, more="meter_config { cir: 5 pir: 1 }"), "INVALID_ARGUMENT", "cir 5: must not exceed pir 1"),
        (acl(0), "INVALID_ARGUMENT", "priority 0: must be positive"),
        (
            "table_entry { table_id: @l2 is_default_action: true action { action { action_id: @drop } } }",
            "INVALID_ARGUMENT",
            "MODIFY it",
        ),
        (
            "table_entry { table_id: @keyless action { action { action_id: @NoAction } } }",
            "INVALID_ARGUMENT",
            "has no key",
        ),
        ("table_entry { table_id: @l2 action { action_profile_member_id: 1 } }", "INVALID_ARGUMENT", "is missing"),
        (
            r'table_entry { table_id: @l2 match { field_id: 1 exact { value: "\x01" } } action { '
            r"action_profile_member_id: 1 } }",
            "INVALID_ARGUMENT",
            "it is direct: action.action must be set, not action_profile_member_id",
        ),
        (
            r'table_entry { table_id: @fixed priority: 9 match { field_id: 1 ternary { value: "\x01" '
            r'mask: "\x01" } } action { action { action_id: @NoAction } } }',
            "PERMISSION_DENIED",
            "its entries are const",
        ),
        ("extern_entry { extern_type_id: 129 }", "UNIMPLEMENTED", "extern_entry"),
        ("", "INVALID_ARGUMENT", "entity: must be set"),
    ],
)
def test_refused_inserts_change_nothing(switch: Direct, text: str, code: str, said: str) -> None:
    before = switch.whole_state()
    got, message = switch.insert(text)
    assert got == code
    assert said in message
    assert switch.whole_state() == before


def test_unspecified_update_type(switch: Direct) -> None:
    assert switch.write(("UNSPECIFIED", l2(1)))[0] == (
        "INVALID_ARGUMENT",
        "update type 0: must be INSERT, MODIFY or DELETE",
    )


# --- default entries -----------------------------------------------------------------------------------------------

DEFAULT = (
    "table_entry { table_id: @l2 is_default_action: true action { action { action_id: @forward params { "
    "param_id: 1 value: '\\x07' } } } metadata: 'x' }"
)


def test_default_entry(switch: Direct) -> None:
    read = "table_entry { table_id: @l2 is_default_action: true }"
    (initial,) = switch.read(read)
    assert initial.table_entry.action.action.action_id == switch.names["NoAction"]
    assert switch.modify(DEFAULT) == OK
    assert switch.pipeline.defaults["IngressImpl.l2"] == ActionCall("IngressImpl.forward", (7,))
    assert switch.read(read) == [switch.entity(DEFAULT)]
    assert switch.read("table_entry { table_id: @l2 }") == []  # not an ordinary entry
    assert switch.modify(read) == OK  # without action: back to the program's
    assert switch.pipeline.defaults["IngressImpl.l2"] is None
    assert switch.read(read) == [initial]


@pytest.mark.parametrize(
    ("kind", "text", "code", "said"),
    [
        ("DELETE", "table_entry { table_id: @l2 is_default_action: true }", "INVALID_ARGUMENT", "to reset it"),
        (
            "MODIFY",
            "table_entry { table_id: @smac is_default_action: true action { action { action_id: @NoAction } } }",
            "PERMISSION_DENIED",
            "it is const",
        ),
        ("MODIFY", "table_entry { table_id: @smac is_default_action: true }", "PERMISSION_DENIED", "it is const"),
        (
            "MODIFY",
            "table_entry { table_id: @indirect is_default_action: true }",
            "PERMISSION_DENIED",
            "action profile",
        ),
        (
            "MODIFY",
            "table_entry { table_id: @l2 is_default_action: true priority: 1 }",
            "INVALID_ARGUMENT",
            "priority 0",
        ),
        (
            "MODIFY",
            "table_entry { table_id: @l2 is_default_action: true match { field_id: 1 exact { value: '1' } } }",
            "INVALID_ARGUMENT",
            "match must be empty",
        ),
        (
            "MODIFY",
            "table_entry { table_id: @l2 is_default_action: true idle_timeout_ns: 1 }",
            "INVALID_ARGUMENT",
            "idle_timeout_ns 1",
        ),
        (
            "MODIFY",
            "table_entry { table_id: @l2 is_default_action: true action { action_profile_group_id: 1 } }",
            "INVALID_ARGUMENT",
            "action.action must be set",
        ),
        (
            "MODIFY",
            "table_entry { table_id: @l2 is_default_action: true action { action { action_id: @punt "
            "params { param_id: 1 value: '\\x01' } } } }",
            "PERMISSION_DENIED",
            "@tableonly",
        ),
    ],
)
def test_refused_defaults(switch: Direct, kind: str, text: str, code: str, said: str) -> None:
    before = switch.whole_state()
    ((got, message),) = switch.write((kind, text))
    assert got == code
    assert said in message
    assert switch.whole_state() == before


def test_const_default_reads_as_const(switch: Direct) -> None:
    (entity,) = switch.read("table_entry { table_id: @smac is_default_action: true }")
    assert entity.table_entry.is_const
    assert entity.table_entry.action.action.action_id == switch.names["learn"]


# --- const entries -------------------------------------------------------------------------------------------------

FIXED = (
    r'table_entry { table_id: @fixed priority: 2 match { field_id: 1 ternary { value: "\x88\xcc" mask: '
    r'"\xff\xff" } } %s }'
)


def test_const_entries_are_read_with_their_inferred_priorities(switch: Direct) -> None:
    found = switch.read("table_entry { table_id: @fixed }")
    assert [(e.table_entry.priority, e.table_entry.match[0].ternary.value.hex()) for e in found] == [
        (2, "88cc"),
        (1, "8800"),
    ]
    assert all(entity.table_entry.is_const for entity in found)


def test_const_entries_cannot_be_changed(switch: Direct) -> None:
    assert switch.delete(FIXED % "")[0] == "PERMISSION_DENIED"
    assert switch.modify(FIXED % "action { action { action_id: @NoAction } }")[0] == "PERMISSION_DENIED"
    assert switch.modify(FIXED % "") == OK  # only direct resources, of which there are none: a no-op


# --- direct counters and meters ------------------------------------------------------------------------------------


def test_direct_resources_of_an_entry(switch: Direct) -> None:
    more = "counter_data { packet_count: 3 byte_count: 300 } meter_config { cir: 1 cburst: 2 pir: 3 pburst: 4 }"
    assert switch.insert(acl(1, more=more)) == OK
    entry = switch.pipeline.only("IngressImpl.acl")
    assert entry.counter == CounterValue(3, 300)
    assert entry.meter == MeterConfig(1, 2, 3, 4)
    assert switch.read("table_entry { table_id: @acl }") == [switch.entity(acl(1))]  # only what is asked for
    asked = "table_entry { table_id: @acl counter_data {} meter_config {} }"
    assert switch.read(asked) == [switch.entity(acl(1, more=more))]
    assert switch.modify(acl(1)) == OK  # meter unset: reset; counter unset: kept
    assert entry.meter is None
    assert entry.counter == CounterValue(3, 300)
    assert not switch.read(asked)[0].table_entry.HasField("meter_config")


def test_direct_counter_entry(switch: Direct) -> None:
    switch.insert(acl(1))
    key = acl(1, action="").removeprefix("table_entry")
    entry = switch.pipeline.only("IngressImpl.acl")
    entry.counter = CounterValue(1, 64)
    wanted = switch.entity(f"direct_counter_entry {{ table_entry {key} data {{ packet_count: 1 byte_count: 64 }} }}")
    for query in ("{}", "{ table_id: @acl }", "{ table_id: @acl priority: 1 }", key):
        assert switch.read(f"direct_counter_entry {{ table_entry {query} }}") == [wanted]
    assert switch.read("direct_counter_entry { table_entry { table_id: @acl priority: 2 } }") == []
    assert switch.modify(f"direct_counter_entry {{ table_entry {key} }}") == OK
    assert entry.counter == CounterValue(1, 64)
    assert switch.modify(f"direct_counter_entry {{ table_entry {key} data {{ packet_count: 9 }} }}") == OK
    assert entry.counter == CounterValue(9, 0)
    for kind in ("INSERT", "DELETE"):
        assert switch.write((kind, f"direct_counter_entry {{ table_entry {key} }}"))[0][0] == "INVALID_ARGUMENT"
    missing = acl(7, action="").removeprefix("table_entry")
    assert switch.read_error(f"direct_counter_entry {{ table_entry {missing} }}")[0] == "NOT_FOUND"
    assert switch.modify(f"direct_counter_entry {{ table_entry {missing} data {{ }} }}")[0] == "NOT_FOUND"
    assert switch.read_error("direct_counter_entry { table_entry { table_id: @l2 } }")[0] == "INVALID_ARGUMENT"
    default = "direct_counter_entry { table_entry { table_id: @acl is_default_action: true } }"
    assert switch.read_error(default)[0] == "UNIMPLEMENTED"


def test_direct_meter_entry(switch: Direct) -> None:
    switch.insert(acl(1))
    key = acl(1, action="").removeprefix("table_entry")
    config = "config { cir: 10 cburst: 20 pir: 30 pburst: 40 }"
    assert switch.modify(f"direct_meter_entry {{ table_entry {key} {config} }}") == OK
    assert switch.pipeline.only("IngressImpl.acl").meter == MeterConfig(10, 20, 30, 40)
    assert switch.read("direct_meter_entry { table_entry { table_id: @acl } }") == [
        switch.entity(f"direct_meter_entry {{ table_entry {key} {config} }}")
    ]
    assert switch.modify(f"direct_meter_entry {{ table_entry {key} }}") == OK
    assert switch.pipeline.only("IngressImpl.acl").meter is None
    assert (
        switch.read_error("direct_meter_entry { table_entry { table_id: @acl } counter_data { } }")[0]
        == "UNIMPLEMENTED"
    )


# --- reads ---------------------------------------------------------------------------------------------------------


def test_wildcards_and_filters(switch: Direct) -> None:
    switch.insert(l2(1, more="controller_metadata: 4 metadata: 'm'"))
    switch.insert(l2(2, "action_id: @drop"))
    switch.insert(acl(1))
    switch.insert(acl(2, 2))
    assert len(switch.read("table_entry {}")) == 4 + 2  # and the const ones
    assert len(switch.read("table_entry { is_default_action: true }")) == 8
    assert len(switch.read("table_entry { table_id: @acl }")) == 2
    assert [e.table_entry.priority for e in switch.read("table_entry { table_id: @acl priority: 2 }")] == [2]
    assert len(switch.read("table_entry { table_id: @l2 controller_metadata: 4 }")) == 1
    assert len(switch.read("table_entry { table_id: @l2 metadata: 'm' }")) == 1
    assert len(switch.read("table_entry { table_id: @l2 action { action { action_id: @drop } } }")) == 1
    assert len(switch.read(l2(2, ""))) == 1
    assert switch.read(l2(3, "")) == []
    assert switch.read_error("table_entry { table_id: 77 }")[0] == "NOT_FOUND"
    assert switch.read_error("table_entry { priority: 3 }")[0] == "INVALID_ARGUMENT"
    assert switch.read_error("table_entry { table_id: @acl time_since_last_hit {} }")[0] == "INVALID_ARGUMENT"
    assert switch.read_error("")[0] == "INVALID_ARGUMENT"


def test_a_match_without_a_priority_selects_all_priorities(switch: Direct) -> None:
    for priority, port in ((1, 1), (2, 1), (3, 2)):
        switch.insert(acl(priority, port))
    key = acl(0, 1, action="").replace("priority: 0", "")
    assert [e.table_entry.priority for e in switch.read(key)] == [1, 2]
    assert [e.table_entry.priority for e in switch.read(acl(2, 1, action=""))] == [2]
    direct = f"direct_counter_entry {{ {key} }}"
    assert [e.direct_counter_entry.table_entry.priority for e in switch.read(direct)] == [1, 2]


def test_time_since_last_hit(switch: Direct) -> None:
    switch.insert(l2(1))
    switch.pipeline.only("IngressImpl.l2").age_us = 1500
    (entity,) = switch.read("table_entry { table_id: @l2 time_since_last_hit {} }")
    assert entity.table_entry.time_since_last_hit.elapsed_ns == 1_500_000
    assert not switch.read("table_entry { table_id: @l2 }")[0].table_entry.HasField("time_since_last_hit")


# --- atomicity -----------------------------------------------------------------------------------------------------


def test_continue_on_error_does_the_rest(switch: Direct) -> None:
    outcomes = switch.write(("INSERT", l2(1)), ("INSERT", l2(1)), ("INSERT", l2(2)))
    assert [code for code, _ in outcomes] == ["OK", "ALREADY_EXISTS", "OK"]
    assert len(switch.pipeline.entries["IngressImpl.l2"]) == 2


@pytest.mark.parametrize("atomicity", ["ROLLBACK_ON_ERROR", "DATAPLANE_ATOMIC"])
def test_all_or_nothing(switch: Direct, atomicity: str) -> None:
    switch.insert(l2(1, more="metadata: 'old'"))
    more = "counter_data { packet_count: 3 } meter_config { cir: 1 cburst: 2 pir: 3 pburst: 4 }"
    switch.insert(acl(1, more=more))
    before, pipeline_before = (
        switch.whole_state(),
        sorted(map(str, switch.pipeline.entries["IngressImpl.acl"].values())),
    )
    key = acl(1, action="").removeprefix("table_entry")
    outcomes = switch.write(
        ("MODIFY", l2(1, "action_id: @drop", "metadata: 'new' idle_timeout_ns: 7")),
        ("INSERT", l2(2)),
        ("MODIFY", DEFAULT),
        ("MODIFY", acl(1, action="acl_permit")),
        ("MODIFY", f"direct_counter_entry {{ table_entry {key} data {{ packet_count: 9 }} }}"),
        ("MODIFY", f"direct_meter_entry {{ table_entry {key} config {{ pir: 9 }} }}"),
        ("DELETE", acl(1)),
        ("DELETE", l2(1)),
        ("INSERT", acl(0)),
        ("INSERT", l2(3)),
        atomicity=atomicity,
    )
    assert [code for code, _ in outcomes] == ["ABORTED"] * 8 + ["INVALID_ARGUMENT", "ABORTED"]
    assert "updates[8] failed" in outcomes[0][1]
    assert switch.whole_state() == before
    assert sorted(map(str, switch.pipeline.entries["IngressImpl.acl"].values())) == pipeline_before
    assert switch.pipeline.defaults["IngressImpl.l2"] is None
    assert switch.write(("MODIFY", l2(1, "action_id: @drop")), ("DELETE", acl(1)), atomicity=atomicity) == [OK, OK]
    assert switch.pipeline.entries["IngressImpl.acl"] == {}


def test_dataplane_atomic_holds_the_core_once(switch: Direct) -> None:
    switch.core.lock_log.clear()
    switch.write(("INSERT", l2(1)), ("INSERT", l2(2)), ("DELETE", l2(1)), atomicity="DATAPLANE_ATOMIC")
    assert switch.core.lock_log == ["lock"]


@pytest.mark.parametrize("step", ["table_insert", "direct_meter_write", "direct_counter_write"])
def test_refusal_half_way_through_an_insert_leaves_nothing(switch: Direct, step: str) -> None:
    switch.pipeline.refuse(step)
    more = "counter_data { packet_count: 3 } meter_config { cir: 1 cburst: 2 pir: 3 pburst: 4 }"
    assert switch.insert(acl(1, more=more)) == (
        "INVALID_ARGUMENT",
        f"table IngressImpl.acl: {step}: refused by the test",
    )
    assert switch.pipeline.entries["IngressImpl.acl"] == {}
    assert switch.read("table_entry { table_id: @acl }") == []
    assert switch.insert(acl(1, more=more)) == OK


@pytest.mark.parametrize("step", ["table_modify", "direct_meter_write", "direct_counter_write"])
def test_refusal_half_way_through_a_modify_leaves_the_old(switch: Direct, step: str) -> None:
    more = "counter_data { packet_count: 3 } meter_config { cir: 1 cburst: 2 pir: 3 pburst: 4 }"
    switch.insert(acl(1, more=more))
    before = switch.whole_state()
    switch.pipeline.refuse(step)
    assert (
        switch.modify(acl(1, action="acl_permit", more="counter_data { } meter_config { pir: 3 }"))[0]
        == "INVALID_ARGUMENT"
    )
    assert switch.whole_state() == before
    entry = switch.pipeline.only("IngressImpl.acl")
    assert (entry.action, entry.meter) == (ActionCall("IngressImpl.acl_deny"), MeterConfig(1, 2, 3, 4))

"""The target: `@tm` objects reach the traffic manager, everything else the pipeline; P4Info must fit the program."""

from __future__ import annotations

import pytest
from p4rt_client import DCB_JSON, DCB_P4INFO, EVERYTHING_JSON, EVERYTHING_P4INFO, Names, p4info
from p4rt_direct import OK, Direct
from p4rt_fakes import FakeTargetFactory

from switch.api import ActionCall, CounterValue, KeyMatch, MatchKind
from switch.core import (
    Cbs,
    DynamicGroup,
    DynamicLimit,
    Ets,
    StaticGroup,
    StaticLimit,
    StormAction,
    Strict,
    Watchdog,
)
from switch.loader import UnsupportedProgram, load
from switch.p4rt.control import DigestEvent, PacketInEvent, PortEvent
from switch.p4rt.schema import Schema
from switch.target import Target, TargetFactory
from switch.target_check import fit_problems


@pytest.fixture
def switch() -> Direct:
    return Direct(DCB_JSON, DCB_P4INFO)


def tm_entry(table: str, keys: dict[int, int], action: str = "", *params: int) -> str:
    match = " ".join(f'match {{ field_id: {i} exact {{ value: "{escape(v)}" }} }}' for i, v in keys.items())
    given = " ".join(f'params {{ param_id: {i} value: "{escape(v)}" }}' for i, v in enumerate(params, 1))
    act = f"action {{ action {{ action_id: @egress.{action} {given} }} }}" if action else ""
    return f"table_entry {{ table_id: @egress.{table} {match} {act} }}"


def escape(value: int) -> str:
    data = value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")
    return "".join(f"\\x{byte:02x}" for byte in data)


IDENTITY = 0b111_110_101_100_011_010_001_000

SETTINGS = [
    ("tm_port", {1: 3}, "tm_set_port", (10**11,), ("port", 3), (10**11,), (0,)),
    ("tm_pfc", {1: 3}, "tm_set_pfc", (8, 1000, IDENTITY), ("pfc", 3), (8, 1000, IDENTITY), (0, 65535, IDENTITY)),
    ("tm_scheduler", {1: 3, 2: 6}, "tm_strict", (), ("scheduler", 3, 6), (Strict(),), (Ets(1),)),
    ("tm_scheduler", {1: 3, 2: 6}, "tm_ets", (40,), ("scheduler", 3, 6), (Ets(40),), (Ets(1),)),
    ("tm_scheduler", {1: 3, 2: 6}, "tm_cbs", (10**7,), ("scheduler", 3, 6), (Cbs(10**7),), (Ets(1),)),
    (
        "tm_priority_group", {1: 3, 2: 5}, "tm_pg_static", (3000, 60000, 40000, 500000, 8),
        ("priority_group", 3, 5), (StaticGroup(3000, 60000, 40000, 500000, 8),), (DynamicGroup(),),
    ),
    (
        "tm_priority_group", {1: 3, 2: 5}, "tm_pg_dynamic", (3000, 0xFE, 3000, 500000, 8),
        ("priority_group", 3, 5), (DynamicGroup(3000, -2, 3000, 500000, 8),), (DynamicGroup(),),
    ),
    (
        "tm_queue", {1: 3, 2: 0}, "tm_queue_static", (200000,),
        ("queue", 3, 0), (StaticLimit(200000),), (StaticLimit(262144),),
    ),
    ("tm_queue", {1: 3, 2: 0}, "tm_queue_dynamic", (7,), ("queue", 3, 0), (DynamicLimit(7),), (StaticLimit(262144),)),
    ("tm_pool", {1: 0}, "tm_set_pool", (10**6,), ("pool", 0), (10**6,), (16 << 20,)),
    ("tm_pool", {1: 7}, "tm_set_pool", (10**6,), ("pool", 7), (10**6,), (0,)),
    ("tm_headroom_pool", {1: 7}, "tm_set_headroom_pool", (10**6,), ("headroom_pool", 7), (10**6,), (0,)),
    ("tm_pg_pool", {1: 3, 2: 5}, "tm_set_pg_pool", (1, 2), ("pg_pool", 3, 5), (1, 2), (0, 255)),
    ("tm_pg_pool", {1: 3, 2: 5}, "tm_set_pg_pool", (1, 255), ("pg_pool", 3, 5), (1, 255), (0, 255)),
    ("tm_storm", {1: 3, 2: 5}, "tm_storm_drop", (), ("storm", 3, 5), (StormAction.DROP,), (None,)),
    ("tm_storm", {1: 3, 2: 5}, "tm_storm_forward", (), ("storm", 3, 5), (StormAction.FORWARD,), (None,)),
    (
        "tm_watchdog", {1: 3, 2: 5}, "tm_set_watchdog", (200, 400, 1, 1),
        ("watchdog", 3, 5), (Watchdog(200, 400, StormAction.FORWARD, True),), (None,),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("table", "keys", "action", "params", "where", "setting", "default"), SETTINGS)
def test_entries_are_settings(switch: Direct, table, keys, action, params, where, setting, default) -> None:
    text = tm_entry(table, keys, action, *params)
    assert switch.insert(text) == OK
    assert switch.core.tm.settings == {where: setting}
    assert switch.pipeline.entries[f"egress.{table}"] == {}  # the pipeline is not bothered
    assert switch.read(f"table_entry {{ table_id: @egress.{table} }}") == [switch.entity(text)]
    assert switch.insert(text)[0] == "ALREADY_EXISTS"
    assert switch.delete(tm_entry(table, keys)) == OK
    assert switch.core.tm.settings == {where: default}
    assert switch.read(f"table_entry {{ table_id: @egress.{table} }}") == []


def test_modify_changes_the_setting(switch: Direct) -> None:
    switch.insert(tm_entry("tm_scheduler", {1: 1, 2: 1}, "tm_ets", 40))
    assert switch.modify(tm_entry("tm_scheduler", {1: 1, 2: 1}, "tm_strict")) == OK
    assert switch.core.tm.settings == {("scheduler", 1, 1): (Strict(),)}


REFUSED = [
    ("tm_port", {1: 3}, "tm_set_port", (800_000_000_001,), "rate_bps 800000000001: must be 0..800000000000"),
    ("tm_pfc", {1: 3}, "tm_set_pfc", (8, 0, IDENTITY), "quanta 0: must be 1..65535 where tx_enable is not 0"),
    ("tm_scheduler", {1: 3, 2: 1}, "tm_ets", (0,), "weight 0: must be 1..100"),
    ("tm_scheduler", {1: 3, 2: 1}, "tm_ets", (101,), "weight 101: must be 1..100"),
    ("tm_scheduler", {1: 3, 2: 1}, "tm_cbs", (0,), "idle_slope_bps 0: must be 1..800000000000"),
    ("tm_priority_group", {1: 3, 2: 1}, "tm_pg_static", (0, 5000, 5000, 0, 0), "xon 5000: must be below xoff 5000"),
    (
        "tm_priority_group",
        {1: 3, 2: 1},
        "tm_pg_static",
        (5001, 5000, 0, 0, 0),
        "reserved 5001: must not exceed xoff 5000",
    ),
    ("tm_priority_group", {1: 3, 2: 1}, "tm_pg_dynamic", (0, 8, 0, 0, 0), "alpha 8: must be -8..7"),
    ("tm_priority_group", {1: 3, 2: 1}, "tm_pg_dynamic", (0, 0xF7, 0, 0, 0), "alpha -9: must be -8..7"),
    ("tm_queue", {1: 3, 2: 1}, "tm_queue_dynamic", (8,), "alpha 8: must be -8..7"),
    ("tm_pool", {1: 8}, "tm_set_pool", (1000,), "pool 8: must be 0..7"),
    ("tm_headroom_pool", {1: 8}, "tm_set_headroom_pool", (1000,), "pool 8: must be 0..7"),
    ("tm_pg_pool", {1: 3, 2: 1}, "tm_set_pg_pool", (8, 255), "pool 8: must be 0..7"),
    (
        "tm_pg_pool",
        {1: 3, 2: 1},
        "tm_set_pg_pool",
        (0, 8),
        "headroom_pool 8: must be 0..7, or 255 for headroom of the group's own",
    ),
    ("tm_watchdog", {1: 3, 2: 1}, "tm_set_watchdog", (0, 1, 0, 0), "detect_us 0: must be 1..4294967295"),
    (
        "tm_watchdog",
        {1: 3, 2: 1},
        "tm_set_watchdog",
        (1, 1, 3, 0),
        "action 3: must be 0 (alert), 1 (forward) or 2 (drop)",
    ),
]


@pytest.mark.parametrize(("table", "keys", "action", "params", "said"), REFUSED)
def test_bad_settings_are_refused(switch: Direct, table, keys, action, params, said) -> None:
    assert switch.insert(tm_entry(table, keys, action, *params)) == (
        "INVALID_ARGUMENT",
        f"table egress.{table}: {said}"
        + (
            " (0 would resume instead of pause)"
            if "quanta" in said
            else " (xoff contains the reserved part)"
            if "reserved" in said
            else ""
        ),
    )
    assert switch.core.tm.settings == {}
    assert switch.read(f"table_entry {{ table_id: @egress.{table} }}") == []


def test_boundary_alphas(switch: Direct) -> None:
    for raw, alpha in ((7, 7), (0xF8, -8)):
        assert switch.insert(tm_entry("tm_queue", {1: raw, 2: 0}, "tm_queue_dynamic", raw)) == OK
        assert switch.core.tm.settings["queue", raw, 0] == (DynamicLimit(alpha),)


def test_refused_modify_keeps_the_setting(switch: Direct) -> None:
    switch.insert(tm_entry("tm_scheduler", {1: 1, 2: 1}, "tm_ets", 40))
    assert switch.modify(tm_entry("tm_scheduler", {1: 1, 2: 1}, "tm_ets", 0))[0] == "INVALID_ARGUMENT"
    assert switch.core.tm.settings == {("scheduler", 1, 1): (Ets(40),)}


def test_rollback_restores_settings(switch: Direct) -> None:
    switch.insert(tm_entry("tm_scheduler", {1: 1, 2: 1}, "tm_ets", 40))
    outcomes = switch.write(
        ("MODIFY", tm_entry("tm_scheduler", {1: 1, 2: 1}, "tm_ets", 60)),
        ("INSERT", tm_entry("tm_port", {1: 1}, "tm_set_port", 1000)),
        ("DELETE", tm_entry("tm_scheduler", {1: 1, 2: 1})),
        ("INSERT", tm_entry("tm_scheduler", {1: 1, 2: 2}, "tm_ets", 0)),
        atomicity="ROLLBACK_ON_ERROR",
    )
    assert [code for code, _ in outcomes] == ["ABORTED"] * 3 + ["INVALID_ARGUMENT"]
    assert switch.core.tm.settings == {("scheduler", 1, 1): (Ets(40),), ("port", 1): (0,)}


def test_counters_of_the_traffic_manager(switch: Direct) -> None:
    switch.core.tm.counters["drop_headroom", 11] = CounterValue(4, 4000)
    one = "counter_entry { counter_id: @egress.tm_drop_headroom index { index: 11 } %s }"
    assert switch.read(one % "") == [switch.entity(one % "data { packet_count: 4 byte_count: 4000 }")]
    code, message = switch.modify(one % "data { packet_count: 1 }")
    assert (code, "only 0 can be written (clear)" in message) == ("INVALID_ARGUMENT", True)
    assert switch.core.tm.counters == {("drop_headroom", 11): CounterValue(4, 4000)}
    assert switch.modify(one % "data { }") == OK
    assert switch.core.tm.counters == {}


def test_registers_of_the_traffic_manager(switch: Direct) -> None:
    tm = switch.core.tm
    tm.states["queue_depth", 8] = 70000
    tm.states["queue_watermark", 8] = 90000
    depth = "register_entry { register_id: @egress.tm_queue_depth index { index: 8 } %s }"
    watermark = "register_entry { register_id: @egress.tm_queue_watermark index { index: 8 } %s }"
    assert switch.read(depth % "") == [switch.entity(depth % r'data { bitstring: "\x01\x11\x70" }')]
    assert switch.modify(depth % r'data { bitstring: "\x00" }')[0] == "PERMISSION_DENIED"
    assert switch.modify(watermark % r'data { bitstring: "\x01" }')[0] == "INVALID_ARGUMENT"
    assert tm.states == {("queue_depth", 8): 70000, ("queue_watermark", 8): 90000}
    assert switch.modify(watermark % r'data { bitstring: "\x00" }') == OK
    assert tm.states == {("queue_depth", 8): 70000}


def test_clearing_cannot_be_part_of_a_rollback(switch: Direct) -> None:
    from switch.p4rt.errors import P4RuntimeError

    with pytest.raises(P4RuntimeError, match=r"clearing egress.tm_drop_headroom cannot be rolled back") as caught:
        switch.write(
            ("MODIFY", "counter_entry { counter_id: @egress.tm_drop_headroom data { } }"), atomicity="ROLLBACK_ON_ERROR"
        )
    assert caught.value.code.name == "UNIMPLEMENTED"


def test_default_of_a_tm_table_is_fixed(switch: Direct) -> None:
    text = (
        "table_entry { table_id: @egress.tm_scheduler is_default_action: true action { action { "
        "action_id: @egress.tm_strict } } }"
    )
    assert switch.modify(text)[0] in ("PERMISSION_DENIED", "INVALID_ARGUMENT")
    assert switch.core.tm.settings == {}


# --- P4Info against program ----------------------------------------------------------------------------------------


def test_our_programs_fit() -> None:
    for json_path, info_path in ((DCB_JSON, DCB_P4INFO), (EVERYTHING_JSON, EVERYTHING_P4INFO)):
        assert fit_problems(Schema(p4info(info_path)), load(json_path.read_bytes())) == []


def test_every_difference_is_named() -> None:
    info = p4info()
    names = Names(info)
    by_id = {item.preamble.id: item for kind in (info.tables, info.actions, info.registers) for item in kind}
    by_id[names["forward"]].params[0].bitwidth = 10
    by_id[names["routes"]].preamble.name = "gone"
    by_id[names["smac"]].idle_timeout_behavior = 1
    by_id[names["last_seen"]].type_spec.bitstring.bit.bitwidth = 47
    by_id[names["balance"]].size = 5
    info.counters[0].preamble.name = "lost"
    info.digests[0].preamble.name = "unread"
    info.value_sets[0].match[0].bitwidth = 8
    info.action_profiles[0].with_selector = True
    assert fit_problems(Schema(info), load(EVERYTHING_JSON.read_bytes())) == [
        "action IngressImpl.forward: its parameters have widths [10] in P4Info and [9] in the program",
        "table IngressImpl.smac: it supports time-outs in P4Info, but not in the program",
        "table gone: in P4Info, but not in the program",
        "action IngressImpl.forward: its parameters have widths [10] in P4Info and [9] in the program",
        "action IngressImpl.forward: its parameters have widths [10] in P4Info and [9] in the program",
        "action profile IngressImpl.shared: it has a selector in P4Info, but not in the program",
        "counter lost: in P4Info, but not in the program",
        "register IngressImpl.balance: its size is 5 in P4Info and 4 in the program",
        "register IngressImpl.last_seen: 47 bits wide in P4Info and 48 in the program",
        "digest unread: in P4Info, but not in the program",
        "value set ParserImpl.routed_types: 8 bits wide in P4Info and 16 in the program",
    ]


def test_unknown_tm_kinds_are_named() -> None:
    info = p4info(DCB_P4INFO)
    for item in (*info.tables, *info.counters, *info.registers):
        annotations = [
            a.replace('"pool"', '"lake"').replace('"drop_pg_limit"', '"leak"') for a in item.preamble.annotations
        ]
        item.preamble.annotations[:] = annotations
    problems = fit_problems(Schema(info), load(DCB_JSON.read_bytes()))
    assert [problem.split(": unknown")[0] for problem in problems] == [
        'table egress.tm_pool: @tm("lake")',
        'counter egress.tm_drop_pg: @tm("leak")',
    ]


def test_factory_lists_faults_of_program_and_p4info_together() -> None:
    info = p4info()
    info.tables[0].action_refs[0].id = 1234
    with pytest.raises(UnsupportedProgram) as caught:
        FakeTargetFactory()(b"{}", info)
    assert any("0x4d2" in problem for problem in caught.value.problems)
    assert len(caught.value.problems) >= 2


# --- events and ports ----------------------------------------------------------------------------------------------


def test_events() -> None:
    from switch.core import DigestData, PacketIn

    factory = FakeTargetFactory({1: "a", 2: "b"})
    target = factory(EVERYTHING_JSON.read_bytes(), p4info())
    target.start()
    core = factory.core
    core.happen(PacketIn(b"up"))
    core.happen(DigestData(1, bytes.fromhex("0200000000010105")))
    core.down.add(2)
    assert target.events() == [
        PacketInEvent(b"up"),
        DigestEvent("learn_t", (0x020000000001, 0x105)),
        PortEvent(2, False),
    ]
    assert (target.port_is_up(1), target.port_is_up(2), target.port_is_up(9)) == (True, False, True)
    assert target.events() == []
    assert [port for port in range(512) if target.port_exists(port)] == [1, 2, 510]
    target.close()
    assert (core.driver, core.closed) == (None, True)


def test_initial_entries_and_defaults() -> None:
    factory = FakeTargetFactory()
    target = factory(EVERYTHING_JSON.read_bytes(), p4info())
    entries = target.initial_entries("IngressImpl.fixed")
    assert [(entry.keys, entry.priority, entry.action, entry.handle) for entry in entries] == [
        ((KeyMatch(MatchKind.TERNARY, 0x88CC, mask=0xFFFF),), 2, ActionCall("IngressImpl.punt", (1,)), 0),
        ((KeyMatch(MatchKind.TERNARY, 0x8800, mask=0xFF00),), 1, ActionCall("IngressImpl.punt", (2,)), 1),
    ]
    assert target.initial_default("IngressImpl.smac") == ActionCall("IngressImpl.learn")
    assert target.initial_default("IngressImpl.indirect") is None


# --- the native core -----------------------------------------------------------------------------------------------


def test_native_core_takes_every_setting() -> None:
    """The same settings through the real traffic manager: it must not refuse what the checks here let through."""
    switch = Direct(DCB_JSON, DCB_P4INFO, factory=TargetFactory())
    for table, keys, action, params, *_ in SETTINGS:
        text = tm_entry(table, keys, action, *params)
        assert switch.insert(text) == OK
        assert switch.delete(tm_entry(table, keys)) == OK
    target = switch.service.target
    assert isinstance(target, Target)
    for name in (*target._tm_counters, *target._tm_registers):
        kind = "counter" if name in target._tm_counters else "register"
        text = f"{kind}_entry {{ {kind}_id: @{name} index {{ index: 4095 }} }}"
        assert len(switch.read(text)) == 1
    switch.service.close()

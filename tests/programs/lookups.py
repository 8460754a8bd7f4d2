"""Cases of tables, action profiles and selectors."""

from __future__ import annotations

from collections.abc import Sequence

from programs.steps import (
    At,
    Case,
    Check,
    Control,
    Packet,
    Ref,
    Refused,
    bits,
    crc16,
    exact,
    h,
    lpm,
    optional,
    span,
    ternary,
)

from switch.api import ActionCall, CounterValue, GroupRef, MemberRef, MeterConfig

# --- tables --------------------------------------------------------------------------------------------------------


def key(which: int, address: int = 0, port: int = 0, proto: int = 0, low: int = 0, rest: int = 0) -> bytes:
    return bits((which, 8), (address, 32), (port, 16), (proto, 8), (low, 3), (rest, 5))


def asked(frame: bytes, value: int, colour: int = 0, flow: int = 0) -> Packet:
    """The key comes back with rest = 31 and the result after it."""
    return Packet(
        0,
        frame + b"+",
        ((1, frame[:-1] + bytes((frame[-1] | 0x1F,)) + bits((value, 16), (colour, 8), (flow, 8)) + b"+"),),
    )


def give(value: int, name: str = "I.give") -> ActionCall:
    return ActionCall(name, (value,))


NOTHING = ActionCall("I.nothing")

EXACT = Case(
    "exact keys, default action, hit and miss, exit",
    "tables",
    (
        asked(key(0, 5, low=2), 0xD000, flow=2),
        Control("table_insert", ("I.exact_table", (exact(5), exact(2)), 0, give(0x1111)), "five"),
        Control("table_insert", ("I.exact_table", (exact(6), exact(2)), 0, NOTHING), "six"),
        asked(key(0, 5, low=2), 0x1111, flow=1),
        asked(key(0, 5, low=3), 0xD000, flow=2),
        asked(key(0, 6, low=2), 0, flow=1),
        Control("table_modify", ("I.exact_table", Ref("five"), give(0x2222))),
        asked(key(0, 5, low=2), 0x2222, flow=1),
        Control("table_set_default", ("I.exact_table", give(0xBEEF))),
        asked(key(0, 7, low=2), 0xBEEF, flow=2),
        Control("table_set_default", ("I.exact_table", None)),
        asked(key(0, 7, low=2), 0xD000, flow=2),
        Control("table_modify", ("I.exact_table", Ref("six"), ActionCall("I.leave"))),
        # exit: the rest of the control does not run, the packet still leaves
        Packet(0, key(0, 6, low=2), ((1, key(0, 6, low=2) + bytes(4)),)),
        Control("table_delete", ("I.exact_table", Ref("five"))),
        asked(key(0, 5, low=2), 0xD000, flow=2),
        Control("table_insert", ("I.exact_table", (exact(1), exact(0)), 0, NOTHING)),
        Control("table_insert", ("I.exact_table", (exact(2), exact(0)), 0, NOTHING)),
        Control("table_insert", ("I.exact_table", (exact(3), exact(0)), 0, NOTHING)),
        Refused("table_insert", ("I.exact_table", (exact(4), exact(0)), 0, NOTHING)),  # full: 4 entries
        Refused("table_delete", ("I.exact_table", Ref("five"))),
        Refused("table_modify", ("I.exact_table", Ref("six"), give(1, "I.give_counted"))),  # not an action of the table
        Refused("table_modify", ("I.exact_table", Ref("six"), ActionCall("I.give"))),  # parameter missing
        Refused("table_insert", ("I.no_table", (), 0, NOTHING)),
    ),
)

LPM = Case(
    "longest prefix, action_run, direct counter, age",
    "tables",
    (
        At(1000),
        Control("table_insert", ("I.lpm_table", (exact(6), lpm(0x0A000000, 8)), 0, give(8, "I.give_counted")), "8"),
        Control("table_insert", ("I.lpm_table", (exact(6), lpm(0x0A010000, 16)), 0, give(16, "I.give_counted")), "16"),
        Control("table_insert", ("I.lpm_table", (exact(6), lpm(0, 0)), 0, NOTHING), "0"),
        Control("table_insert", ("I.lpm_table", (exact(7), lpm(0x0A010203, 32)), 0, give(32, "I.give_counted")), "32"),
        asked(key(1, 0x0A020304, proto=6), 8, flow=3),
        asked(key(1, 0x0A010304, proto=6), 16, flow=3),
        asked(key(1, 0x0B010304, proto=6), 0, flow=4),
        asked(key(1, 0x0A010203, proto=7), 32, flow=3),
        asked(key(1, 0x0A010202, proto=7), 0, flow=4),
        At(1500),
        asked(key(1, 0x0A010203, proto=6), 16, flow=3),
        At(1700),
        Check("table_hit_age_us", ("I.lpm_table", Ref("16")), 200),
        Check("table_hit_age_us", ("I.lpm_table", Ref("8")), 700),
        Check("direct_counter_read", ("I.lpm_table", Ref("16")), CounterValue(2, 20)),  # 9 bytes of key, 1 of payload
        Check("direct_counter_read", ("I.lpm_table", Ref("0")), CounterValue(1, 10)),
        Control("direct_counter_write", ("I.lpm_table", Ref("16"), CounterValue(100, 1 << 40))),
        asked(key(1, 0x0A010203, proto=6), 16, flow=3),
        Check("direct_counter_read", ("I.lpm_table", Ref("16")), CounterValue(101, (1 << 40) + 10)),
        Control("table_delete", ("I.lpm_table", Ref("16"))),
        asked(key(1, 0x0A010203, proto=6), 8, flow=3),
        Refused("direct_counter_read", ("I.lpm_table", Ref("16"))),
        Refused("direct_meter_write", ("I.lpm_table", Ref("8"), None)),
    ),
)

TERNARY_KEYS = (ternary(0x0A000000, 0xFF000000), ternary(0, 0), optional(0, 0))
METERED = "I.give_metered"

TERNARY = Case(
    "ternary and optional keys, priorities, direct meter",
    "tables",
    (
        Control("table_insert", ("I.ternary_table", TERNARY_KEYS, 10, give(1, METERED)), "wide"),
        Control("table_insert", ("I.ternary_table",
            (ternary(0x0A000001, 0xFFFFFFFF), ternary(80, 0xFFFF), optional(0, 0)), 20, give(2, METERED)), "narrow"),
        Control("table_insert", ("I.ternary_table",
            (ternary(0, 0), ternary(0x0050, 0x00F0), optional(17, 0xFF)), 5, give(3, METERED)), "low"),
        asked(key(2, 0x0A000001, 80, 6), 2),
        asked(key(2, 0x0A000001, 81, 6), 1),
        asked(key(2, 0x0A000002, 80, 17), 1),
        asked(key(2, 0x0B000002, 0xF05F, 17), 3),
        asked(key(2, 0x0B000002, 0xF05F, 16), 0),
        asked(key(2, 0x0B000002, 0xF06F, 17), 0),
        # 10 bytes a packet, 20 committed and 30 peak, 1 and 2 bytes a microsecond
        At(5000),
        Control("direct_meter_write", ("I.ternary_table", Ref("wide"), MeterConfig(10**6, 20, 2 * 10**6, 30))),
        asked(key(2, 0x0A000002), 1, colour=0),
        asked(key(2, 0x0A000002), 1, colour=0),
        asked(key(2, 0x0A000002), 1, colour=1),
        asked(key(2, 0x0A000002), 1, colour=2),
        At(5005),  # committed 5, peak 10
        asked(key(2, 0x0A000002), 1, colour=1),
        asked(key(2, 0x0A000002), 1, colour=2),
        At(5010),  # committed 10, peak 10
        asked(key(2, 0x0A000002), 1, colour=0),
        asked(key(2, 0x0A000002), 1, colour=2),
        At(6000),
        asked(key(2, 0x0A000002), 1, colour=0),
        Control("direct_meter_write", ("I.ternary_table", Ref("wide"), None)),
        asked(key(2, 0x0A000002), 1, colour=0),
        asked(key(2, 0x0A000002), 1, colour=0),
        asked(key(2, 0x0A000002), 1, colour=0),
        Control("table_delete", ("I.ternary_table", Ref("narrow"))),
        asked(key(2, 0x0A000001, 80, 6), 1),
    ),
)  # fmt: skip

RANGE = Case(
    "range keys, constant default action",
    "tables",
    (
        asked(key(3, port=5), 0xDEAD),
        Control("table_insert", ("I.range_table", (span(100, 200), ternary(0, 0)), 1, give(1))),
        Control("table_insert", ("I.range_table", (span(150, 150), ternary(6, 0xFF)), 2, give(2))),
        Control("table_insert", ("I.range_table", (span(0, 0xFFFF), ternary(7, 0xFF)), 3, give(3))),
        asked(key(3, port=99), 0xDEAD),
        asked(key(3, port=100), 1),
        asked(key(3, port=200), 1),
        asked(key(3, port=201), 0xDEAD),
        asked(key(3, port=150), 1),
        asked(key(3, port=150, proto=6), 2),
        asked(key(3, port=151, proto=6), 1),
        asked(key(3, port=0xFFFF, proto=7), 3),
        asked(key(3, port=150, proto=7), 3),
        Refused("table_set_default", ("I.range_table", NOTHING)),
        Refused("table_insert", ("I.range_table", (span(2, 1), ternary(0, 0)), 1, NOTHING)),
        Refused("table_insert", ("I.range_table", (exact(2), ternary(0, 0)), 1, NOTHING)),
        Refused("table_insert", ("I.range_table", (span(1, 2),), 1, NOTHING)),
    ),
)

CONST = Case(
    "entries of the program, the first that matches wins",
    "tables",
    (
        asked(key(4, port=0x1234, low=1), 1),
        asked(key(4, port=0x1235, low=1), 2),
        asked(key(4, port=0x1335, low=1), 3),
        asked(key(4, port=0x1234, low=2), 0),
        Refused("table_insert", ("I.const_table", (ternary(0, 0), exact(3)), 1, give(4))),
        Control("table_set_default", ("I.const_table", give(9))),
        asked(key(4, port=0x1234, low=2), 9),
        asked(key(4, port=0x0007, low=2), 0),
    ),
)

VALID = Case(
    "validity and a slice as keys",
    "tables",
    (
        Control("table_insert", ("I.valid_table", (exact(1), exact(0xAB)), 0, give(5))),
        asked(key(5, 0x0000AB00), 5),
        asked(key(5, 0x00AB0000), 0),
    ),
)

# --- selector ------------------------------------------------------------------------------------------------------


def chosen(flow: int, members: Sequence[tuple[int, int]]) -> Packet:
    """members: one (port, result) for each unit of weight, in order."""
    port, result = members[crc16(flow.to_bytes(2, "big")) % len(members)]
    return Packet(
        0, bits((1, 8), (1, 8), (flow, 16), (0, 16)), ((port, bits((1, 8), (1, 8), (flow, 16), (result, 16))),)
    )


def send(port: int, result: int) -> ActionCall:
    return ActionCall("I.send", (port, result))


A, B, C = (1, 0xA), (2, 0xB), (3, 0xC)
FLOWS = (0, 1, 2, 3, 0x1234, 0xFFFF, 0x8000, 77, 78, 79)

SELECTOR = Case(
    "action profile and selector",
    "selector",
    (
        Refused("table_insert", ("I.by_profile", (exact(1),), 0, MemberRef(1))),
        Control("member_set", ("I.profile", 1, send(4, 0x44))),
        Control("table_insert", ("I.by_profile", (exact(1),), 0, MemberRef(1)), "entry"),
        Packet(0, h("0001 0000 0000"), ((4, h("0001 0000 0044")),)),
        Packet(0, h("0002 0000 0000"), ((9, h("0002 0000 0000")),)),  # a miss runs nothing
        Control("member_set", ("I.profile", 1, ActionCall("I.discard"))),  # modifies what entries run
        Packet(0, h("0001 0000 0000"), ()),
        Refused("member_delete", ("I.profile", 1)),
        Refused("table_modify", ("I.by_profile", Ref("entry"), send(1, 1))),
        Refused("table_modify", ("I.by_profile", Ref("entry"), GroupRef(1))),
        Control("table_delete", ("I.by_profile", Ref("entry"))),
        Control("member_delete", ("I.profile", 1)),
        Refused("member_delete", ("I.profile", 1)),
        Control("member_set", ("I.choice", 10, send(*A))),
        Control("member_set", ("I.choice", 11, send(*B))),
        Control("member_set", ("I.choice", 12, send(*C))),
        Control("group_set", ("I.choice", 5, ((10, 1), (11, 1)))),
        Control("table_insert", ("I.by_selector", (exact(1),), 0, GroupRef(5)), "entry"),
        *(chosen(flow, (A, B)) for flow in FLOWS),
        Control("group_set", ("I.choice", 5, ((12, 2), (10, 1), (11, 3)))),
        *(chosen(flow, (C, C, A, B, B, B)) for flow in FLOWS),
        Control("group_set", ("I.choice", 5, ())),
        Packet(0, h("0101 0001 0000"), ((9, h("0101 0001 0000")),)),  # an empty group runs nothing
        Control("table_modify", ("I.by_selector", Ref("entry"), MemberRef(12))),
        Packet(0, h("0101 0001 0000"), ((3, h("0101 0001 000C")),)),
        Control("group_delete", ("I.choice", 5)),
        Refused("group_delete", ("I.choice", 5)),
        Refused("group_set", ("I.choice", 6, ((99, 1),))),
        Refused("group_set", ("I.profile", 6, ())),
    ),
)

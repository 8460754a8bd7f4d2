"""Small P4 programs with exact expectations, as data that any execution of a pipeline can run.

Each `Case` names a program (tests/programs/<program>.json, made by p4c from the .p4 beside it) and a list of steps.
Expectations are written from the P4_16 specification and from simple_switch's documented behaviour, never recorded from
an execution of ours. `run` drives a case through a `Target`; frames are compared port by port, in order on each port.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from switch.api import (
    ActionCall,
    CounterValue,
    GroupRef,
    KeyMatch,
    MatchKind,
    MemberRef,
    MeterConfig,
    PipelineControl,
    PipelineError,
)

DIRECTORY = Path(__file__).parent

Frames = tuple[tuple[int, bytes], ...]


# --- steps ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ref:
    """Stands for the handle that an earlier `Control(..., save=name)` returned."""

    name: str


@dataclass(frozen=True)
class Control:
    """Call a method of PipelineControl; `save` names its result."""

    method: str
    args: tuple[Any, ...]
    save: str = ""


@dataclass(frozen=True)
class Check:
    """Call a method of PipelineControl and compare its result."""

    method: str
    args: tuple[Any, ...]
    result: Any


@dataclass(frozen=True)
class Refused:
    """A call that must raise PipelineError."""

    method: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Multicast:
    group: int
    copies: tuple[tuple[int, int], ...]  # (port, egress_rid)


@dataclass(frozen=True)
class CloneTo:
    session: int
    copies: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class At:
    """Set the clock."""

    microseconds: int


@dataclass(frozen=True)
class Packet:
    """Send a frame; what must come out, and the digests (learn list id, bytes)."""

    port: int
    frame: bytes
    out: Frames
    digests: tuple[tuple[int, bytes], ...] = ()


Step = Control | Check | Refused | Multicast | CloneTo | At | Packet


@dataclass(frozen=True)
class Case:
    name: str
    program: str
    steps: tuple[Step, ...]

    @property
    def json(self) -> Path:
        return DIRECTORY / f"{self.program}.json"


class Target(Protocol):
    """What runs a case; the generator of random numbers is seeded with 0."""

    @property
    def control(self) -> PipelineControl: ...
    def receive(self, port: int, frame: bytes) -> Sequence[tuple[int, bytes]]: ...
    def take_digests(self) -> Sequence[tuple[int, bytes]]: ...
    def set_multicast_group(self, group: int, copies: Sequence[tuple[int, int]]) -> None: ...
    def set_clone_session(self, session: int, copies: Sequence[tuple[int, int]]) -> None: ...
    def set_time_us(self, microseconds: int) -> None: ...


def by_port(frames: Sequence[tuple[int, bytes]]) -> dict[int, list[str]]:
    """Frames in hexadecimal by port, in order."""
    ports: dict[int, list[str]] = {}
    for port, frame in frames:
        ports.setdefault(port, []).append(frame.hex())
    return ports


def run(case: Case, target: Target) -> None:
    """Run all steps of a case, asserting every expectation."""
    saved: dict[str, Any] = {}

    def call(method: str, args: tuple[Any, ...]) -> Any:
        return getattr(target.control, method)(*(saved[arg.name] if isinstance(arg, Ref) else arg for arg in args))

    for number, step in enumerate(case.steps):
        where = f"{case.name} step {number}: {step}"
        match step:
            case Control(method, args, save):
                saved[save] = call(method, args)
            case Check(method, args, result):
                assert call(method, args) == result, where
            case Refused(method, args):
                try:
                    call(method, args)
                except PipelineError:
                    continue
                raise AssertionError(f"{where}: was not refused")
            case Multicast(group, copies):
                target.set_multicast_group(group, copies)
            case CloneTo(session, copies):
                target.set_clone_session(session, copies)
            case At(microseconds):
                target.set_time_us(microseconds)
            case Packet(port, frame, out, digests):
                assert by_port(target.receive(port, frame)) == by_port(out), where
                assert tuple(target.take_digests()) == digests, where


# --- helpers -------------------------------------------------------------------------------------------------------


def bits(*fields: tuple[int, int]) -> bytes:
    """(value, width) fields laid end to end; negative values in two's complement."""
    value = width = 0
    for field_value, field_width in fields:
        value = (value << field_width) | (field_value % (1 << field_width))
        width += field_width
    assert width % 8 == 0
    return value.to_bytes(width // 8, "big")


def h(text: str) -> bytes:
    return bytes.fromhex(text)


def exact(value: int) -> KeyMatch:
    return KeyMatch(MatchKind.EXACT, value)


def lpm(value: int, length: int) -> KeyMatch:
    return KeyMatch(MatchKind.LPM, value, prefix_len=length)


def ternary(value: int, mask: int) -> KeyMatch:
    return KeyMatch(MatchKind.TERNARY, value, mask)


def optional(value: int, mask: int) -> KeyMatch:
    return KeyMatch(MatchKind.OPTIONAL, value, mask)


def span(low: int, high: int) -> KeyMatch:
    return KeyMatch(MatchKind.RANGE, low, high=high)


def crc(data: bytes, width: int, polynomial: int, initial: int) -> int:
    """Bit by bit, reflected in and out, no final exclusive or."""
    remainder = initial
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (polynomial if remainder & 1 else 0)
    return remainder & ((1 << width) - 1)


def crc16(data: bytes) -> int:
    return crc(data, 16, 0xA001, 0)


def crc32(data: bytes) -> int:
    return crc(data, 32, 0xEDB88320, 0xFFFFFFFF) ^ 0xFFFFFFFF


def internet_checksum(data: bytes) -> int:
    total = sum(byte << (8 if at % 2 == 0 else 0) for at, byte in enumerate(data))
    return 0xFFFF - (total % 0xFFFF or (0xFFFF if total else 0))


# --- expressions ---------------------------------------------------------------------------------------------------


def expression(a: int, b: int, c: int, d: int, w: int, x: int, y: int, z: int) -> Packet:
    """One vector; c and d are signed. The result is P4_16's, computed here with Python's integers."""

    def clamp(value: int, low: int, high: int) -> int:
        return max(low, min(high, value))

    flags = (
        (1 if c < d else 0)
        | (2 if a <= b and x != y else 0)
        | (4 if a != b or c == -1 else 0)
        | (8 if z > 1 << 127 else 0)
    )
    expected = bits(
        (a + b, 8), (a - b, 8), (a * b, 8), (clamp(a + b, 0, 255), 8), (clamp(a - b, 0, 255), 8),
        (c + d, 8), (clamp(c + d, -128, 127), 8), (clamp(c - d, -128, 127), 8), (-a, 8), (~a, 8),
        (a * 256 + b, 16), (w >> 6, 4), (0b1001 | (a % 4) << 1, 4), (a << b % 8, 8), (a >> b % 8, 8), (c >> 2, 8),
        (a, 16), (c, 16), (x + y, 40), ((z << 3) ^ w, 128), (min(a, b), 8), (flags, 8), (x * y, 80),
    )  # fmt: skip
    frame = bits((a, 8), (b, 8), (c, 8), (d, 8), (w, 16), (x, 40), (y, 40), (z, 128))
    return Packet(3, frame + b"rest", ((1, expected + b"rest"),))


EXPRESSIONS = Case(
    "expressions",
    "expressions",
    (
        expression(0, 0, 0, 0, 0, 0, 0, 0),
        expression(1, 2, 3, 4, 5, 6, 7, 8),
        expression(255, 255, -128, -128, 0xFFFF, 2**40 - 1, 2**40 - 1, 2**128 - 1),
        expression(200, 100, 127, 1, 0xA5C3, 0x123456789A, 0xFEDCBA9876, 0x8000_0000_0000_0000_0000_0000_0000_0000),
        expression(100, 200, -1, 127, 0x0240, 2**39, 2**39, 0x8000_0000_0000_0000_0000_0000_0000_0001),
        expression(7, 7, -1, -128, 0x03C0, 1, 1, 0x0123_4567_89AB_CDEF_0123_4567_89AB_CDEF),
        expression(128, 3, 127, -128, 0xFC3F, 2**40 - 1, 2, 1 << 124),
        expression(3, 15, -127, 126, 0x1234, 0, 2**40 - 1, 1 << 127),
    ),
)

# --- stacks --------------------------------------------------------------------------------------------------------

L0, L1, L2 = h("1102"), h("2204"), h("3306")  # value, hops * 2 + bottom


def bottom(label: bytes) -> bytes:
    return bytes((label[0], label[1] | 1))


def stack(op: int, index: int, labels: Sequence[bytes], out: str) -> Packet:
    return Packet(0, bytes((op, index, 0, 0)) + b"".join(labels) + b"!", ((1, h(out) + b"!"),))


STACKS = Case(
    "stacks",
    "stacks",
    (
        stack(0, 0, (bottom(L0),), "00000000 1103"),
        stack(0, 0, (L0, bottom(L1)), "00110000 1102 2205"),
        stack(1, 0, (L0, bottom(L1)), "01110000 AA00 1102 2205"),  # push_front makes room at the front
        stack(1, 0, (L0, L1, bottom(L2)), "01110000 AA00 1102 2204"),  # the last one falls out
        stack(2, 5, (L0, bottom(L1)), "02050000 2205"),
        stack(2, 5, (bottom(L0),), "02050000"),
        stack(3, 5, (L0, L1, bottom(L2)), "03050000 3307"),
        stack(4, 1, (L0, L1, bottom(L2)), "04110022 1102 2204 3307"),
        stack(4, 2, (L0, L1, bottom(L2)), "04110033 1102 2204 3307"),
        stack(4, 3, (L0, L1, bottom(L2)), "04110000 1102 2204 3307"),  # out of range reads as 0 on this target
        stack(5, 0, (L0, bottom(L1)), "05110000 CC02 2205"),
        stack(5, 200, (L0, bottom(L1)), "05110000 1102 2205"),  # and ignores stores
        stack(6, 0, (L0, bottom(L1)), "06000000 1102 2205"),  # saved is emitted after the emptied labels
        stack(7, 5, (L0, bottom(L1)), "07050000 1102"),
        stack(0, 0, (L0, L1, L2, bottom(L0)), "0011EEEE 1102 2204 3306 1103"),  # StackOutOfBounds; the rest is payload
        Packet(0, h("00000000 1102 22"), ((1, h("0000EEEE 1102 22")),)),  # PacketTooShort
    ),
)

# --- unions --------------------------------------------------------------------------------------------------------


def union(frame: str, out: str) -> Packet:
    return Packet(0, h(frame), ((1, h(out)),))


UNIONS = Case(
    "unions",
    "unions",
    (
        union("010000 0AB1 FF", "510000 0AB1 FF"),
        union("020000 0AB1B2B3 FF", "710000 0AB1B2B3 FF"),
        union("000000 FF", "000000 FF"),
        union("010100 0AB1 FF", "710100 09000000 FF"),  # l becomes valid and zero, s invalid
        union("020100 0AB1B2B3 FF", "710100 09B1B2B3 FF"),  # l is valid already and keeps its value
        union("010200 0AB1 FF", "000200 FF"),
        union("000002 01A1 02B1B2B3 FF", "000002 01A1 02B1B2B3 FF"),
        union("000001 02B1B2B3 FF", "000001 02ABCDEF FF"),
        union("000002 02B1B2B3 02C1C2C3 FF", "000002 02ABCDEF 02C1C2C3 FF"),
        union("000003 01A1 01A2 01A3 FF", "0000EE 01A1 01A2 01A3 FF"),  # StackOutOfBounds
        union("000002 01A1 03FF", "000002 01A1 03FF"),  # no transition matches: simple_switch accepts
        union("000002 01A1 02B1", "0000EE 01A1 02B1"),  # PacketTooShort
    ),
)

# --- parsing -------------------------------------------------------------------------------------------------------


def parsed(frame: str, out: str) -> Packet:
    return Packet(0, h(frame), ((1, h(out)),))


PARSING = Case(
    "parsing",
    "parsing",
    (
        parsed("5A10 1234 A1A2A3A4 EE 99", "5A10 0000 A1A2A3A4 A1A2A3A4 EE 99"),
        parsed("5A00 1234 EE 99", "5A00 0000 EE 99"),
        parsed("5A30 1234 A1A2A3A4B1B2B3B4C1C2C3C4 EE", "5A30 0000" + 2 * "A1A2A3A4B1B2B3B4C1C2C3C4" + "EE"),
        parsed("5A40 1234" + 16 * "AB" + "EE", "5A40 E400" + 16 * "AB" + "EE"),  # HeaderTooShort
        parsed("5A40 1234" + 15 * "AB", "5A40 E100" + 15 * "AB"),  # PacketTooShort comes first
        parsed("5A20 1234 A1A2A3", "5A20 E100 A1A2A3"),
        parsed("5A21 1234 A1A2 EE 99", "5A21 0100 EE 99"),  # what advance skips is gone
        parsed("5AF1 1234 A1A2 EE 99", "5AF1 E100 A1A2 EE 99"),
        parsed("5A02 1234 FF 99", "5A02 02FF FF 99"),
        parsed("5A02 1234 C3 99", "5A02 02C3 C3 99"),
        parsed("5A02 1234 C3", "5A02 E100 C3"),  # lookahead past the end
        parsed("5A03 0105", "5A03 0400"),
        Control("value_set_write", ("P.codes", ((0x0105, 0xFFFF), (0x7700, 0xFF00)))),
        parsed("5A03 0105", "5A03 0300"),
        parsed("5A03 0106", "5A03 0400"),
        parsed("5A03 7712", "5A03 0300"),
        parsed("5A03 0200", "5A03 0000"),
        Control("value_set_write", ("P.codes", ())),
        parsed("5A03 0105", "5A03 0400"),
        Refused("value_set_write", ("P.codes", tuple((code, 0xFFFF) for code in range(5)))),
        Refused("value_set_write", ("P.nothing", ())),
        Control("value_set_write", ("P.pairs", ((0x5ABCD, 0xFFFFF),))),
        parsed("5A05 ABCD", "5A05 0300"),
        parsed("5A06 ABCD", "5A06 0000"),
        parsed("5A05 ABCE", "5A05 0000"),
        parsed("5A08 ABCD", "5A08 0500"),
        parsed("5A09 ABCD", "5A09 0500"),
        parsed("5A0A ABCD", "5A0A 0000"),
        parsed("5B00 1234 EE", "5B00 EB00 EE"),  # verify
        parsed("5A00 12", "5A00 12"),  # nothing was extracted
        parsed("", ""),
    ),
)

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

# --- state ---------------------------------------------------------------------------------------------------------


def command(op: int, index: int = 0, value: int = 0, result: int = 0) -> Packet:
    frame = bits((op, 8), (index, 32), (value, 48), (0, 32))
    return Packet(0, frame, ((1, bits((op, 8), (index, 32), (value, 48), (result, 32))),))


ALL = 0xFFFFFFFF

REGISTERS = Case(
    "registers",
    "state",
    (
        command(0, 1, 0xABCDE, 0),
        command(0, 1, 0xFFFFF00001, 0xABCDE),
        command(0, 1, 0, 1),  # cut to 20 bits
        Control("register_write", ("I.cells", 3, 0x54321)),
        command(0, 3, 7, 0x54321),
        Check("register_read", ("I.cells", 3), 7),
        command(0, 4, 7, 0),  # out of range: nothing is read (the local was 0) or written
        command(0, ALL, 7, 0),
        command(11, 1, 0x123456789ABC, 0),
        command(11, 1, 0, 0x12345678),
        command(11, 1, 5, 0),
        Check("register_read", ("I.wide_cells", 1), 5 << 52),
        Control("register_write", ("I.wide_cells", 0, (1 << 100) - 1)),
        command(11, 0, 5, ALL),
        Refused("register_read", ("I.cells", 4)),
        Refused("register_write", ("I.nothing", 0, 0)),
    ),
)

COUNTERS = Case(
    "counters",
    "state",
    (
        command(1, 2, result=ALL),
        command(1, 2, result=ALL),
        command(1, 4, result=ALL),
        command(1, ALL, result=ALL),
        Check("counter_read", ("I.count", 2), CounterValue(2, 30)),
        Check("counter_read", ("I.count", 0), CounterValue()),
        Control("counter_write", ("I.count", 2, CounterValue(5, 7))),
        command(1, 2, result=ALL),
        Check("counter_read", ("I.count", 2), CounterValue(6, 22)),
        Refused("counter_read", ("I.count", 4)),
        Refused("counter_read", ("I.nothing", 0)),
    ),
)

METERS = Case(
    "meters (RFC 2698)",
    "state",
    (
        command(2, 0, result=0),  # not configured
        Control("meter_write", ("I.packet_meter", 0, MeterConfig(10, 1, 1000, 3))),
        command(2, 0, result=0),
        command(2, 0, result=1),
        command(2, 0, result=1),
        command(2, 0, result=2),
        At(999),  # peak 0.999
        command(2, 0, result=2),
        At(1000),  # peak 1
        command(2, 0, result=1),
        At(100000),  # committed 1
        command(2, 0, result=0),
        command(2, 0, result=1),
        command(2, 1, result=0),
        command(2, 4, result=ALL),  # out of range: the result is left alone
        # 15 bytes a packet; 125 bytes a second are one byte in 8 ms
        Control("meter_write", ("I.byte_meter", 3, MeterConfig(125, 15, 125, 15))),
        command(3, 3, result=0),
        command(3, 3, result=2),
        At(100000 + 119999),
        command(3, 3, result=2),
        At(100000 + 120000),
        command(3, 3, result=0),
        Control("meter_write", ("I.byte_meter", 3, None)),
        command(3, 3, result=0),
        command(3, 3, result=0),
        Refused("meter_write", ("I.byte_meter", 4, None)),
    ),
)


def random_numbers(count: int) -> list[int]:
    """xorshift64* started with splitmix64(0), which is known to be 0xE220A8397B1DCDAF."""
    state, numbers = 0xE220A8397B1DCDAF, []
    for _ in range(count):
        state ^= state >> 12
        state ^= state << 25 & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 27
        numbers.append(state * 0x2545F4914F6CDD1D & 0xFFFFFFFFFFFFFFFF)
    return numbers


N = random_numbers(6)

RANDOM = Case(
    "random numbers with seed 0",
    "state",
    (
        command(4, 0, 0xFFFFFFFF, N[0] % 2**32),
        command(4, 10, 19, 10 + N[1] % 10),
        command(4, 7, 7, 7),  # draws one all the same
        command(4, 8, 7, ALL),  # low above high: no draw, result left alone
        command(4, 0, 5, N[3] % 6),
        command(4, 1000, 0xFFFFFFFF, 1000 + N[4] % (2**32 - 1000)),
    ),
)

VALUE = 0x0123456789AB
VALUE_BYTES = VALUE.to_bytes(6, "big")

HASHES = Case(
    "hashes",
    "state",
    (
        command(5, 0, VALUE, crc32(VALUE_BYTES)),
        command(6, 0xDEADBEEF, VALUE, 5 + crc16(h("DEADBEEF") + VALUE_BYTES) % 1000),
        command(7, 0, VALUE, internet_checksum(VALUE_BYTES + h("A0"))),  # 52 bits, padded with zeros
        command(8, 0, VALUE, 0x0123 ^ 0x4567 ^ 0x89AB),
        command(9, 0, VALUE, VALUE % 2**32),
        command(10, 0, VALUE, 7),  # max 0 counts as 1
    ),
)

# --- redirect ------------------------------------------------------------------------------------------------------

PAY = b"pay"
LENGTH = 13


def asks(op: int, count: int = 0, tag: int = 0x1234) -> bytes:
    return bits((op, 8), (count, 8), (tag, 16), (0, 8), (0, 8), (0, 16), (0, 16)) + PAY


def seen(
    op: int, count: int = 0x11, tag: int = 0x1234, kind: int = 0, kept: int = 0x99, rid: int = 0, length: int = LENGTH
) -> bytes:
    return bits((op, 8), (count, 8), (tag, 16), (kind, 8), (kept, 8), (rid, 16), (length, 16)) + PAY


REDIRECT = Case(
    "clone, resubmit, recirculate, multicast, digest, truncate, drop, exit",
    "redirect",
    (
        Packet(2, asks(0), ((1, seen(0)),)),
        Packet(2, asks(1), ((1, seen(1)),)),  # no such session: no clone
        CloneTo(5, ((3, 8),)),
        Multicast(7, ((2, 100), (3, 101))),
        Packet(2, asks(1), ((3, seen(1, 0, kind=1, rid=8)), (1, seen(1)))),
        Packet(2, asks(2), ((3, seen(2, 0, tag=0, kind=1, kept=0, rid=8)),)),
        Packet(2, asks(3), ((6, seen(3, 0, kept=0)),)),
        Packet(2, asks(4), ((2, seen(4, kind=5, rid=100)), (3, seen(4, kind=5, rid=101)))),
        Packet(2, asks(5), ((1, seen(5)),), ((1, h("1234 0002 01")),)),
        Packet(2, asks(6), ((1, seen(6)[:12]),)),
        Packet(2, asks(7), ()),
        Packet(2, asks(9), ()),
        Packet(2, asks(10), ()),
        Packet(2, asks(11), ((1, seen(11, 1)),)),
        Packet(2, asks(12), ()),  # unknown group
        Packet(2, asks(20), ((1, seen(20, tag=0xAAAA)), (3, seen(20, tag=0xAAAA, kind=2, rid=8)))),
        Packet(2, asks(21), ((4, seen(0, kept=0x55)),)),
        Packet(2, asks(22), ()),
        Packet(2, asks(23), ((1, seen(23)[:5]),)),
        CloneTo(5, ((3, 8), (4, 9))),
        Packet(2, asks(1), ((3, seen(1, 0, kind=1, rid=8)), (4, seen(1, 0, kind=1, rid=9)), (1, seen(1)))),
    ),
)

ADDED = Case(
    "packet_length in egress counts an added header",
    "redirect",
    (Packet(2, asks(8), ((1, h("01020304") + seen(8, length=LENGTH + 4)),)),),
)

# --- checksums -----------------------------------------------------------------------------------------------------


def ip(checksum: int | None, ttl: int = 64, proto: int = 6, tos: int = 0, version: int = 4) -> bytes:
    """The IP-like header; None: the right checksum."""
    head = bits((version, 4), (5, 4), (tos, 8), (1000, 16), (ttl, 8), (proto, 8))
    tail = h("C0A80102")
    return head + (internet_checksum(head + tail) if checksum is None else checksum).to_bytes(2, "big") + tail


def udp(port: int, payload: bytes, checksum: int | None = None) -> bytes:
    value = internet_checksum(h("C0A80102") + port.to_bytes(2, "big") + payload) if checksum is None else checksum
    return port.to_bytes(2, "big") + value.to_bytes(2, "big") + payload


ODD = b"odd"

CHECKSUMS = Case(
    "checksums",
    "checksums",
    (
        Packet(0, ip(None) + ODD, ((1, ip(None, 63) + ODD),)),
        Packet(0, ip(0x1111) + ODD, ((2, ip(None, 63) + ODD),)),
        Packet(0, ip(0x1111, version=6) + ODD, ((1, ip(None, 63, version=6) + ODD),)),  # condition false: not verified
        Packet(0, ip(None, 0) + ODD, ((1, ip(None, 255) + ODD),)),
        Packet(0, ip(None, proto=17) + udp(53, ODD), ((1, ip(None, 63, 17) + udp(53, ODD)),)),
        Packet(0, ip(None, proto=17) + udp(53, b"even"), ((1, ip(None, 63, 17) + udp(53, b"even")),)),
        Packet(0, ip(None, proto=17) + udp(53, ODD, 1), ((2, ip(None, 63, 17) + udp(53, ODD)),)),
        Packet(0, ip(None, tos=0xFF, proto=17) + udp(53, ODD), ((1, ip(None, 63, 17, 0xFF) + udp(0x4321, ODD)),)),
        Packet(0, ip(None, proto=17) + h("0035"), ((1, ip(None, 63, 17) + h("0035")),)),  # udp too short: not valid
        Packet(0, h("4500"), ((1, h("4500")),)),
    ),
)

CASES: tuple[Case, ...] = (
    EXPRESSIONS, STACKS, UNIONS, PARSING, EXACT, LPM, TERNARY, RANGE, CONST, VALID, SELECTOR, REGISTERS, COUNTERS,
    METERS, RANDOM, HASHES, REDIRECT, ADDED, CHECKSUMS,
)  # fmt: skip

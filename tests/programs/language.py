"""Cases of the language: expressions, header stacks and unions, parsing."""

from __future__ import annotations

from collections.abc import Sequence

from programs.steps import Case, Control, Packet, Refused, bits, h

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

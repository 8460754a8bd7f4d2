"""Cases of registers, counters, meters, random numbers, hashes, redirection and checksums."""

from __future__ import annotations

from programs.steps import (
    At,
    Case,
    Check,
    CloneTo,
    Control,
    Multicast,
    Packet,
    Refused,
    bits,
    crc16,
    crc32,
    h,
    internet_checksum,
)

from switch.api import CounterValue, MeterConfig

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

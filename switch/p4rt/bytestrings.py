"""P4Runtime bytestrings (specification, "Bytestrings"): big-endian, shortest when sent, any length when received."""

from __future__ import annotations

from switch.p4rt.errors import Code, P4RuntimeError


def encode_unsigned(value: int) -> bytes:
    """The canonical string of a bit<W> value: the shortest one, never empty."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode_unsigned(data: bytes, bits: int, what: str, code: Code = Code.OUT_OF_RANGE) -> int:
    """The value of a bit<W> string of any length. `what` names the field in the error, `code` is its code."""
    if not data:
        raise P4RuntimeError(code, f"{what}: empty byte string; a bit<{bits}> value takes at least one byte")
    value = int.from_bytes(data, "big")
    if value.bit_length() > bits:
        raise P4RuntimeError(
            code, f"{what}: value {value:#x} does not fit in bit<{bits}> (at most {(1 << bits) - 1:#x})"
        )
    return value


def encode_signed(pattern: int, bits: int) -> bytes:
    """The canonical string of an int<W> value that is given as its two's complement bit pattern of W bits."""
    value = pattern - (1 << bits) if pattern >> (bits - 1) & 1 else pattern
    magnitude_bits = (value if value >= 0 else ~value).bit_length() + 1
    return value.to_bytes((magnitude_bits + 7) // 8, "big", signed=True)


def decode_signed(data: bytes, bits: int, what: str, code: Code = Code.OUT_OF_RANGE) -> int:
    """The two's complement bit pattern of W bits of an int<W> string of any length."""
    if not data:
        raise P4RuntimeError(code, f"{what}: empty byte string; an int<{bits}> value takes at least one byte")
    value = int.from_bytes(data, "big", signed=True)
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if not low <= value <= high:
        raise P4RuntimeError(code, f"{what}: value {value} does not fit in int<{bits}> ({low}..{high})")
    return value & ((1 << bits) - 1)

"""Hash and checksum algorithms of v1model on simple_switch, in plain Python.

Every algorithm maps bytes to a non-negative integer. The bytes of a calculation are its inputs as bit strings, most
significant bit first, laid end to end with no padding between them, then zero bits up to a whole byte (inputs of
invalid headers are left out). The generated C computes the same.

- crc16: CRC-16/ARC (polynomial 0x8005, reflected, initial and final 0). crc16_custom: the same, as BMv2 before any
  run-time configuration of the polynomial, which this target does not have.
- crc32: CRC-32 of IEEE 802.3 (zlib). crc32_custom: the same.
- crcCCITT: CRC-16/CCITT-FALSE (polynomial 0x1021, not reflected, initial 0xFFFF, final 0).
- csum16, cksum16: Internet checksum (RFC 1071), an odd last byte padded with a zero byte on the right.
- xor16: exclusive or of 16-bit big-endian words, padded on the right.
- identity: the first eight bytes (or fewer) as one big-endian number.

v1model also names `random`, for which BMv2 has no implementation: programs that use it are refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping


def _crc_table_reflected(polynomial: int) -> tuple[int, ...]:
    table = []
    for byte in range(256):
        remainder = byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (polynomial if remainder & 1 else 0)
        table.append(remainder)
    return tuple(table)


_CRC16_TABLE = _crc_table_reflected(0xA001)  # 0x8005 with its bits in reverse


def crc16(data: bytes) -> int:
    """CRC-16/ARC; check value 0xBB3D for b"123456789"."""
    remainder = 0
    for byte in data:
        remainder = (remainder >> 8) ^ _CRC16_TABLE[(remainder ^ byte) & 0xFF]
    return remainder


def crc32(data: bytes) -> int:
    """CRC-32 of IEEE 802.3; check value 0xCBF43926."""
    return zlib.crc32(data)


def crc_ccitt(data: bytes) -> int:
    """CRC-16/CCITT-FALSE; check value 0x29B1."""
    remainder = 0xFFFF
    for byte in data:
        remainder ^= byte << 8
        for _ in range(8):
            remainder = ((remainder << 1) ^ (0x1021 if remainder & 0x8000 else 0)) & 0xFFFF
    return remainder


def csum16(data: bytes) -> int:
    """Internet checksum: complement of the one's complement sum of 16-bit words (RFC 1071)."""
    padded = data + b"\0" if len(data) % 2 else data
    total = sum(int.from_bytes(padded[at : at + 2], "big") for at in range(0, len(padded), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def xor16(data: bytes) -> int:
    """Exclusive or of 16-bit words."""
    padded = data + b"\0" if len(data) % 2 else data
    result = 0
    for at in range(0, len(padded), 2):
        result ^= int.from_bytes(padded[at : at + 2], "big")
    return result


def identity(data: bytes) -> int:
    """The first eight bytes as a number."""
    return int.from_bytes(data[:8], "big")


ALGORITHMS: Mapping[str, Callable[[bytes], int]] = {
    "crc16": crc16,
    "crc16_custom": crc16,
    "crc32": crc32,
    "crc32_custom": crc32,
    "crcCCITT": crc_ccitt,
    "csum16": csum16,
    "cksum16": csum16,
    "xor16": xor16,
    "identity": identity,
}


def compute(algorithm: str, data: bytes) -> int:
    """The value of a named algorithm (one of `ALGORITHMS`) over `data`."""
    return ALGORITHMS[algorithm](data)

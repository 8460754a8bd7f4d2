"""Fields to bytes and bytes to fields at places that are known when C is generated.

A run of fields is a bit string, most significant bit first. Extraction loads the fewest big-endian words that cover a
field without leaving the header; packing builds whole words and stores each once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from switch.codegen.expressions import Emitter, u64
from switch.codegen.layout import cells_of

_SIZES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Piece:
    """A number as the C code of its cells, least significant first, none with bits above `bits`."""

    cells: tuple[str, ...]
    bits: int


def load_bits(base: str, first_bit: int, bits: int, size_bytes: int) -> str:
    """C code of a uint64_t of up to 64 bits at `first_bit` of the `size_bytes` readable bytes at `base`."""
    first, last = first_bit // 8, (first_bit + bits - 1) // 8
    span = last - first + 1
    if span > 8:  # 64 bits or nearly, not on a byte boundary
        head = 64 - first_bit % 8
        tail = bits - head
        high = load_bits(base, first_bit, head, size_bytes)
        return f"({high} << {tail} | {load_bits(base, first_bit + head, tail, size_bytes)})"
    size = next(size for size in _SIZES if size >= span)
    start = first
    if start + size > size_bytes:
        start = size_bytes - size
    if start < 0:  # the header is shorter than the word: two loads
        half = size // 2
        head = (first + half) * 8 - first_bit
        high = load_bits(base, first_bit, head, size_bytes)
        return f"({high} << {bits - head} | {load_bits(base, first_bit + head, bits - head, size_bytes)})"
    shift = (start + size) * 8 - (first_bit + bits)
    code = f"pl_ld{8 * size}({base} + {start})"
    if shift:
        code = f"({code} >> {shift})"
    if 8 * size - shift > bits:
        code = f"({code} & {u64((1 << bits) - 1)})"
    return code


def load_cells(base: str, first_bit: int, bits: int, size_bytes: int) -> list[str]:
    """C code of the cells of a field."""
    codes = []
    for cell in range(cells_of(bits)):
        high = min(bits, 64 * (cell + 1))
        codes.append(load_bits(base, first_bit + bits - high, high - 64 * cell, size_bytes))
    return codes


def _part(piece: Piece, low: int, high: int) -> str:
    """Bits low..high-1 of a piece, right aligned; at most 64."""
    cell, shift = divmod(low, 64)
    code = piece.cells[cell]
    if shift:
        code = f"({code} >> {shift})"
    if shift + high - low > 64:
        code = f"({code} | {piece.cells[cell + 1]} << {64 - shift})"
    top = min(piece.bits, 64 * (cell + 1)) if shift + high - low <= 64 else low + 64
    if high < top and high - low < 64:
        code = f"({code} & {u64((1 << high - low) - 1)})"
    return code


def store_pieces(emit: Emitter, base: str, pieces: Sequence[Piece]) -> int:
    """Writes pieces one after the other at `base`, zero bits up to a whole byte at the end; returns the bytes."""
    total = sum(piece.bits for piece in pieces)
    size = (total + 7) // 8
    at = 0
    while at < size:
        width = next(width for width in reversed(_SIZES) if width <= size - at)
        low_edge, high_edge = 8 * at, 8 * (at + width)
        parts: list[str] = []
        bit = 0
        for piece in pieces:
            start, end = max(bit, low_edge), min(bit + piece.bits, high_edge)
            if start < end:
                code = _part(piece, bit + piece.bits - end, bit + piece.bits - start)
                shift = high_edge - end
                parts.append(f"{code} << {shift}" if shift else code)
            bit += piece.bits
        emit(f"pl_st{8 * width}({base} + {at}, {' | '.join(parts)});")
        at += width
    return size

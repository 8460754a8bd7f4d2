"""Named calculations and selectors: their inputs as bytes, then the algorithm."""

from __future__ import annotations

from collections.abc import Sequence

from switch.codegen.bits import Piece, store_pieces
from switch.codegen.expressions import Emitter, Expressions, HeaderPlace, Scope
from switch.codegen.layout import CodegenError, FieldPlace, Layout, cells_of, max_bytes
from switch.model import CalcInput, Expr, FieldRef, HeaderRef

FUNCTIONS = {
    "crc8_custom": "crc8",
    "crc16": "crc16",
    "crc16_custom": "crc16",
    "crc32": "crc32",
    "crc32_custom": "crc32",
    "crc64_custom": "crc64",
    "crcCCITT": "crcCCITT",
    "csum16": "csum16",
    "cksum16": "csum16",
    "xor16": "xor16",
    "xor32": "xor32",
    "identity": "identity",
    "xxh64": "xxh64",
}


def header_pieces(header: HeaderPlace) -> list[Piece | tuple[FieldPlace, HeaderPlace]]:
    """A header's fields in order; a varbit field stands as its place."""
    pieces: list[Piece | tuple[FieldPlace, HeaderPlace]] = []
    for field in header.type.fields:
        place = header.layout.fields[field.name]
        pieces.append((place, header) if field.bits is None else field_piece(header, place))
    return pieces


def field_piece(header: HeaderPlace, place: FieldPlace) -> Piece:
    """A field of fixed width as cells."""
    return Piece(tuple(header.cell(place.cell + at) for at in range(cells_of(place.bits))), place.bits)


class Inputs:
    """The inputs of one calculation: runs of items that are there under the same condition."""

    def __init__(self, layout: Layout, items: Sequence[CalcInput]) -> None:
        self.layout = layout
        self.emit = Emitter()
        self.exprs = Expressions(layout, self.emit)
        self.runs: list[tuple[str | None, list[Piece | tuple[FieldPlace, HeaderPlace]]]] = []
        self.payload = False
        self.max_bits = 0
        for item in items:
            if item.value is None:
                self.payload = True
                continue
            condition, pieces = self.pieces(item.value, item.bits)
            if self.runs and self.runs[-1][0] == condition:
                self.runs[-1][1].extend(pieces)
            else:
                self.runs.append((condition, pieces))

    def pieces(self, value: Expr, bits: int | None) -> tuple[str | None, list[Piece | tuple[FieldPlace, HeaderPlace]]]:
        """What an input adds, and the condition under which it does."""
        match value:
            case HeaderRef(name):
                header = self.exprs.named_header(name)
                self.max_bits += 8 * max_bytes(header.type)
                return None if header.metadata else self.exprs.is_valid(header), header_pieces(header)
            case FieldRef(name, field):
                header = self.exprs.named_header(name)
                place = header.layout.fields[field]
                self.max_bits += place.bits
                varbit = place.length_cell is not None
                piece: Piece | tuple[FieldPlace, HeaderPlace] = (
                    (place, header) if varbit else field_piece(header, place)
                )
                # the validity bit is there whether or not the header is
                return None if header.metadata or field == "$valid$" else self.exprs.is_valid(header), [piece]
            case _:
                if bits is None:
                    raise CodegenError(f"{value} has no width and cannot be hashed")
                self.max_bits += bits
                number = self.exprs.low_bits(value, bits, Scope())
                return None, [Piece(tuple(self.exprs.words(number, cells_of(bits))), bits)]

    def write(self) -> None:
        """Emits code that fills `buf` and leaves the number of bytes in `n`."""
        capacity = (self.max_bits + 7) // 8 + 8
        payload = " + (p->len - p->payload_offset)" if self.payload else ""
        self.emit.lines[0:0] = [
            "    const uint64_t *const P = p->phv;",
            f"    uint8_t buf[{capacity}{payload}];",
            "    size_t n = 0;",
            "    (void)P;",
        ]
        aligned = all(
            isinstance(piece, Piece) and (index == len(self.runs) - 1 or sum(self.bits(run)) % 8 == 0)
            for index, (_, run) in enumerate(self.runs)
            for piece in run
        )
        if aligned:
            self.write_aligned()
        else:
            self.write_unaligned()
        if self.payload:
            self.emit("memcpy(buf + n, p->data + p->payload_offset, p->len - p->payload_offset);")
            self.emit("n += p->len - p->payload_offset;")

    @staticmethod
    def bits(run: Sequence[Piece | tuple[FieldPlace, HeaderPlace]]) -> list[int]:
        return [piece.bits if isinstance(piece, Piece) else 0 for piece in run]

    def write_aligned(self) -> None:
        """Every run starts on a byte."""
        for condition, run in self.runs:
            pieces = [piece for piece in run if isinstance(piece, Piece)]
            self.emit(f"if ({condition or 1}) {{")
            self.emit.depth += 1
            size = store_pieces(self.emit, "buf + n", pieces)
            self.emit(f"n += {size};")
            self.emit.depth -= 1
            self.emit("}")

    def write_unaligned(self) -> None:
        """Bit by bit offsets, for varbits and odd widths."""
        self.emit("memset(buf, 0, sizeof buf);")
        self.emit("size_t at = 0;")
        for condition, run in self.runs:
            self.emit(f"if ({condition or 1}) {{")
            self.emit.depth += 1
            put_pieces(self.emit, "buf", "at", run)
            self.emit.depth -= 1
            self.emit("}")
        self.emit("n = (at + 7) / 8;")


def put_pieces(emit: Emitter, base: str, offset: str, pieces: Sequence[Piece | tuple[FieldPlace, HeaderPlace]]) -> None:
    """Writes pieces at a bit offset known at run time, and moves it."""
    for piece in pieces:
        if isinstance(piece, Piece):
            name = emit.name("c")
            emit(f"const uint64_t {name}[{len(piece.cells)}] = {{{', '.join(piece.cells)}}};")
            emit(f"pl_put_bits({base}, {offset}, {piece.bits}, {name});")
            emit(f"{offset} += {piece.bits};")
            continue
        place, header = piece
        assert place.length_cell is not None
        length = header.cell(place.length_cell)
        emit(f"pl_put_bits({base}, {offset}, (unsigned){length}, &{header.cell(place.cell)});")
        emit(f"{offset} += {length};")


def function(layout: Layout, name: str, algorithm: str, items: Sequence[CalcInput]) -> list[str]:
    """A C function `uint64_t name(const pkt_t *p)`."""
    if algorithm not in FUNCTIONS:
        raise CodegenError(f"hash algorithm {algorithm!r} is not known")
    inputs = Inputs(layout, items)
    inputs.write()
    return [
        f"static inline uint64_t {name}(const pkt_t *p)",
        "{",
        *inputs.emit.lines,
        f"    return pl_hash_{FUNCTIONS[algorithm]}(buf, n);",
        "}",
        "",
    ]

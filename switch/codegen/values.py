"""Values in C: the kinds in which numbers are held, and the conversions between them.

Kinds: uint64_t (u), int64_t (i), unsigned and signed 128 bits (U, I), and limbs (W, pl_wide.h).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from switch.codegen.layout import FieldPlace, TypeLayout
from switch.model import HeaderType


class Emitter:
    """Lines of C with indentation and fresh names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self._names = 0

    def __call__(self, line: str) -> None:
        self.lines.append("    " * self.depth + line if line else "")

    def name(self, prefix: str) -> str:
        """A name that this function has not used."""
        self._names += 1
        return f"{prefix}{self._names}"

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:;")


@dataclass(frozen=True, slots=True)
class Value:
    """C code of one number: kind u, i, U, I or W. A W is the name of an array of `limbs` limbs, signed if `low` < 0.

    `low` and `high` bound the exact value; a value made modulo 2^n has the bounds of n bits.
    """

    code: str
    kind: str
    low: int
    high: int
    limbs: int = 0


@dataclass(frozen=True, slots=True)
class HeaderPlace:
    """A header, at a fixed cell or at one computed at run time (`index` C code of an element, with `stride` cells)."""

    base: int
    type: HeaderType
    layout: TypeLayout
    index: str | None = None  # C code; cells are at base + index * stride
    stride: int = 0
    guard: str | None = None  # C condition under which the element exists
    metadata: bool = False
    peers: tuple[int, ...] = ()  # validity cells of the other members of its union, in element 0

    def cell(self, offset: int) -> str:
        """C lvalue of a cell."""
        return self.at(self.base + offset)

    def at(self, cell: int) -> str:
        """C lvalue of a cell of the same element, given by its place in element 0."""
        return f"P[{cell}]" if self.index is None else f"P[{cell} + {self.index} * {self.stride}]"


@dataclass(frozen=True, slots=True)
class UnionPlace:
    """A union, fixed or picked at run time: its member headers."""

    members: tuple[HeaderPlace, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """A field to store into."""

    header: HeaderPlace
    place: FieldPlace  # offsets in the block

    def cell(self, index: int = 0) -> str:
        return self.header.cell(self.place.cell + index)


@dataclass
class Scope:
    """Where an expression is compiled: the parameters of an action, and how a parser reads ahead."""

    params: tuple[tuple[int, int], ...] = ()  # (first cell in `d`, bits) of each parameter
    lookahead: dict[tuple[int, int], Value] = field(default_factory=dict)


def kind_for(low: int, high: int) -> str:
    """The narrowest kind that holds low..high."""
    if low >= 0 and high < 1 << 64:
        return "u"
    if low >= -(1 << 63) and high < 1 << 63:
        return "i"
    if low >= -(1 << 127) and high < 1 << 127:
        return "I"
    if low >= 0 and high < 1 << 128:
        return "U"
    return "W"


def limbs_for(low: int, high: int) -> int:
    """Limbs of a two's complement number that holds low..high."""
    bits = max(high.bit_length(), (-low - 1).bit_length() if low < 0 else 0) + 1
    return (bits + 63) // 64


def u64(value: int) -> str:
    """A 64-bit constant, taken modulo 2^64."""
    word = value & (1 << 64) - 1
    return f"{word}ull" if word < 1000 else f"0x{word:x}ull"


class Conversions:
    """Conversions of values; what needs statements goes to the emitter."""

    def __init__(self, emit: Emitter) -> None:
        self.emit = emit

    def named(self, value: Value) -> Value:
        """The value in a variable, so that its code can be repeated."""
        if value.kind == "W" or value.code.isidentifier():
            return value
        name = self.emit.name("v")
        kinds = {"u": "uint64_t", "i": "int64_t", "U": "pl_u128", "I": "pl_i128"}
        self.emit(f"const {kinds[value.kind]} {name} = {value.code};")
        return Value(name, value.kind, value.low, value.high)

    def words(self, value: Value, count: int) -> list[str]:
        """Cells of a value that `low_bits` made, zeros above it."""
        if value.kind == "u":
            codes = [value.code]
        elif value.kind == "U":
            value = self.named(value)
            codes = [f"(uint64_t){value.code}", f"(uint64_t)({value.code} >> 64)"]
        else:
            codes = [f"{value.code}[{at}]" for at in range(value.limbs)]
        return codes[:count] + ["0ull"] * (count - len(codes))

    def word(self, value: Value) -> str:
        """The low 64 bits as uint64_t."""
        if value.kind == "u":
            return value.code
        return f"{value.code}[0]" if value.kind == "W" else f"(uint64_t)({value.code})"

    def double(self, value: Value) -> str:
        """The low 128 bits as pl_u128."""
        match value.kind:
            case "u":
                return f"(pl_u128)({value.code})"
            case "i":
                return f"(pl_u128)(pl_i128)({value.code})"
            case "U":
                return value.code
            case "I":
                return f"(pl_u128)({value.code})"
            case _:
                return f"PL_U128({value.code}[0], {value.code}[1])"

    def limbs(self, value: Value, limbs: int) -> str:
        """The name of an array with the low limbs, sign extended."""
        if value.kind == "W" and value.limbs == limbs:
            return value.code
        name = self.emit.name("w")
        self.emit(f"uint64_t {name}[{limbs}];")
        if value.kind == "W":
            self.emit(f"pl_w_from({name}, {limbs}, {value.code}, {value.limbs}, {int(value.low < 0)});")
        else:
            kind = {"u": "u64", "i": "i64", "U": "u128", "I": "i128"}[value.kind]
            self.emit(f"pl_w_from_{kind}({name}, {limbs}, {value.code});")
        return name

    def whole(self, value: Value) -> Value:
        """The value with room for its sign, where it is in limbs (low bits may fill theirs)."""
        limbs = limbs_for(value.low, value.high)
        if value.kind != "W" or value.limbs >= limbs:
            return value
        return Value(self.limbs(value, limbs), "W", value.low, value.high, limbs)

    def convert(self, value: Value, kind: str) -> str:
        """Code in another kind, for a value that fits it."""
        if kind == value.kind:
            return value.code
        match kind:
            case "u":
                return self.word(value)
            case "i":
                return f"(int64_t){self.word(value)}"
            case "U":
                return self.double(value)
            case _:
                return f"(pl_i128){self.double(value)}"

    def amount(self, value: Value) -> str:
        """A shift amount or index as uint64_t: saturated above, 0 where negative."""
        match value.kind:
            case "u":
                return value.code
            case "W":
                return f"pl_w_sat_u64({value.code}, {value.limbs})"
            case _:
                value = self.named(value)
                code = f"(uint64_t){value.code}"
                if value.high >= 1 << 64:
                    code = f"{value.code} > (pl_{'u' if value.kind == 'U' else 'i'}128)UINT64_MAX ? UINT64_MAX : {code}"
                return f"({value.code} < 0 ? 0 : {code})" if value.low < 0 else f"({code})"

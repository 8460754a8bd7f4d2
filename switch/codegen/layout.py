"""Where everything lies: PHV cells, packed table keys, and the index of each table and extern in a pl_t.

A pure function of the program, shared by the generator and by `switch.native_pipeline`, which packs keys and names
fields from the same `Layout`.

PHV: metadata instances first (an egress clone zeroes that prefix), then the counts of stacks, then headers. A block is
the validity cell followed by the fields; the elements of a stack lie one after the other in blocks of equal size, so
that an element picked at run time is an offset. A varbit field has a length cell (in bits) before its value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from switch.api import MatchKind
from switch.model import Action, FieldRef, FieldType, HeaderType, Pipeline, Program, Table

DIRECT_KEY_BITS = 12  # an exact table with a key of so few bits is an array


class CodegenError(ValueError):
    """A program that loads but that the generator cannot turn into C; the message names the place and the rule."""


def cells_of(bits: int) -> int:
    """64-bit cells that hold `bits` bits."""
    return (bits + 63) // 64


@dataclass(frozen=True, slots=True)
class FieldPlace:
    """A field: absolute first cell in the PHV (or offset in its block), bits, sign; varbits have a length cell."""

    cell: int
    bits: int
    signed: bool = False
    length_cell: int | None = None


@dataclass(frozen=True, slots=True)
class TypeLayout:
    """Offsets of the fields in a block of a header type; the validity cell is at 0."""

    fields: Mapping[str, FieldPlace]
    cells: int


def varbit_bits(header_type: HeaderType) -> int:
    """The most bits that the varbit field of a type can have."""
    assert header_type.max_length_bytes is not None
    return header_type.max_length_bytes * 8 - sum(field.bits or 0 for field in header_type.fields)


def lay_out_type(header_type: HeaderType) -> TypeLayout:
    """The block of a header type."""
    places: dict[str, FieldPlace] = {"$valid$": FieldPlace(0, 1)}
    at = 1
    for field in header_type.fields:
        length_cell: int | None = None
        if field.bits is None:
            length_cell, at = at, at + 1
        bits = field.bits if field.bits is not None else varbit_bits(header_type)
        places[field.name] = FieldPlace(at, bits, field.signed, length_cell)
        at += cells_of(bits)
    return TypeLayout(places, at)


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """A key field in packed words: the word and shift of its least significant bit."""

    word: int
    shift: int
    bits: int


@dataclass(frozen=True, slots=True)
class KeyLayout:
    places: tuple[KeyPlace, ...]
    words: int
    bits: int

    def pack(self, values: Sequence[int]) -> list[int]:
        """Packed words of one value per key field."""
        words = [0] * self.words
        for place, value in zip(self.places, values, strict=True):
            for index in range(cells_of(place.bits)):
                words[place.word + index] |= (value >> (64 * index) & (1 << 64) - 1) << place.shift
        return words


def lay_out_key(widths: Sequence[int]) -> KeyLayout:
    """First fit, in key order: fields of up to 64 bits share words, wider ones have words of their own."""
    places: list[KeyPlace] = []
    used: list[int] = []  # bits taken in each word
    for bits in widths:
        if bits > 64:
            places.append(KeyPlace(len(used), 0, bits))
            used += [64] * cells_of(bits)
            continue
        word = next((index for index, taken in enumerate(used) if taken + bits <= 64), None)
        if word is None:
            word = len(used)
            used.append(0)
        places.append(KeyPlace(word, used[word], bits))
        used[word] += bits
    return KeyLayout(tuple(places), max(1, len(used)), sum(widths))


def match_of(table: Table) -> str:
    """The structure that serves a table: none, direct, exact, lpm or ternary."""
    if not table.keys:
        return "none"
    if table.kind in (MatchKind.TERNARY, MatchKind.RANGE):
        return "ternary"
    if any(key.kind is MatchKind.LPM for key in table.keys):
        return "lpm"
    return "direct" if sum(key.bits for key in table.keys) <= DIRECT_KEY_BITS else "exact"


class ActionData:
    """Cells of an action's parameters in an entry."""

    def __init__(self, action: Action) -> None:
        self.offsets: list[int] = []
        self.cells = 0
        for param in action.params:
            self.offsets.append(self.cells)
            self.cells += cells_of(param.bits)
        self.action = action

    def pack(self, values: Sequence[int]) -> list[int]:
        """Cells of the parameters' values."""
        cells: list[int] = []
        for param, value in zip(self.action.params, values, strict=True):
            cells += [value >> (64 * index) & (1 << 64) - 1 for index in range(cells_of(param.bits))]
        return cells


class Layout:
    """All places of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.types: dict[str, TypeLayout] = {}
        self.header_base: dict[str, int] = {}
        self.stack_next: dict[str, int] = {}
        at = 0
        for header in program.headers.values():
            if header.metadata:
                self.header_base[header.name] = at
                at += self._type(header.type).cells
        self.metadata_cells = at
        for stack in (*program.stacks, *program.union_stacks):
            self.stack_next[stack] = at
            at += 1
        grouped = [list(stack.headers) for stack in program.stacks.values()]
        grouped += [
            [header for union in stack.unions for header in program.unions[union].headers]
            for stack in program.union_stacks.values()
        ]
        grouped += [list(union.headers) for union in program.unions.values()]
        for group in grouped:
            if any(header in self.header_base for header in group):
                continue  # a union of a union stack: its place is taken
            for name in group:
                self.header_base[name] = at
                at += self._type(program.headers[name].type).cells
        for header in program.headers.values():
            if header.name not in self.header_base:
                self.header_base[header.name] = at
                at += self._type(header.type).cells
        self.phv_cells = at

        self.union_of: dict[str, str] = {
            header: union.name for union in program.unions.values() for header in union.headers
        }
        self.pipelines: tuple[Pipeline, ...] = (program.ingress, program.egress)
        self.tables: dict[str, Table] = {}
        for pipeline in self.pipelines:
            self.tables.update(pipeline.tables)
        self.profiles = {**program.ingress.action_profiles, **program.egress.action_profiles}
        self.table_index = {name: index for index, name in enumerate(self.tables)}
        self.profile_index = {name: index for index, name in enumerate(self.profiles)}
        self.counter_index = {name: index for index, name in enumerate(program.counters)}
        self.meter_index = {name: index for index, name in enumerate(program.meters)}
        self.register_index = {name: index for index, name in enumerate(program.registers)}
        self.vset_index = {name: index for index, name in enumerate(program.value_sets)}
        self.keys = {name: lay_out_key([key.bits for key in table.keys]) for name, table in self.tables.items()}
        self.action_data = {identifier: ActionData(action) for identifier, action in program.actions.items()}

    def _type(self, header_type: HeaderType) -> TypeLayout:
        if header_type.name not in self.types:
            self.types[header_type.name] = lay_out_type(header_type)
        return self.types[header_type.name]

    def block(self, header: str) -> TypeLayout:
        """The block layout of a header instance's type."""
        return self._type(self.program.headers[header].type)

    def field(self, ref: FieldRef) -> FieldPlace:
        """The absolute place of a field."""
        place = self.block(ref.header).fields[ref.field]
        base = self.header_base[ref.header]
        length = None if place.length_cell is None else base + place.length_cell
        return FieldPlace(base + place.cell, place.bits, place.signed, length)

    def valid(self, header: str) -> int:
        """The validity cell of a header."""
        return self.header_base[header]

    def peers(self, header: str) -> tuple[int, ...]:
        """Validity cells of the other members of a header's union."""
        union = self.union_of.get(header)
        if union is None:
            return ()
        return tuple(self.valid(other) for other in self.program.unions[union].headers if other != header)

    def all_fields(self) -> list[tuple[str, int, int]]:
        """(name, cell, bits) of every field and validity bit, with the names of pl_field_t."""
        named: list[tuple[str, int, int]] = []
        for header in self.program.headers.values():
            base = self.header_base[header.name]
            for name, place in self.block(header.name).fields.items():
                named.append((f"{header.name}.{name}", base + place.cell, place.bits))
        return named

    def find_field(self, name: str) -> FieldRef | None:
        """A standard field by simple_switch's name, through the aliases; None where the program has no such field."""
        alias = self.program.field_aliases.get(name)
        if alias is not None:
            return alias
        header, _, field = name.rpartition(".")
        known = self.program.headers.get(header)
        if known is not None and any(member.name == field for member in known.type.fields):
            return FieldRef(header, field)
        return None

    def data_cells(self, action_ids: Sequence[int]) -> int:
        """Cells of the longest parameter list among actions."""
        return max((self.action_data[identifier].cells for identifier in action_ids), default=0)

    def profile_actions(self, profile: str) -> tuple[int, ...]:
        """Ids of the actions of the tables that use a profile."""
        ids: dict[int, None] = {}
        for table in self.tables.values():
            if table.implementation == profile:
                ids.update(dict.fromkeys(table.action_ids))
        return tuple(ids)


def fixed_bytes(header_type: HeaderType) -> int:
    """Bytes of a header without its varbit field."""
    return sum(field.bits or 0 for field in header_type.fields) // 8


def max_bytes(header_type: HeaderType) -> int:
    """Most bytes that a header can have."""
    return header_type.max_length_bytes if header_type.max_length_bytes is not None else fixed_bytes(header_type)


def varbit_of(header_type: HeaderType) -> FieldType | None:
    """The varbit field of a type."""
    return next((field for field in header_type.fields if field.bits is None), None)

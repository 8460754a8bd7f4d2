"""State of one packet in the interpreter, and the layout of a program's headers.

A `PacketState` owns every header instance's fields, validity, stack positions and the requests that a control left
for the target. Field values are Python integers: signed fields hold the signed number, `get` and the deparser show its
two's complement bit pattern. A fresh state has all headers invalid and all fields 0; a header that becomes invalid
keeps its values until it is made valid again, which zeroes them (as simple_switch does).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from switch.model import FieldRef, HeaderType, Program

if TYPE_CHECKING:
    from switch.interpreter import Interpreter

VALID = "$valid$"
NO_TRUNCATION = 0xFFFFFFFF


@dataclass(slots=True)
class Requests:
    """What a control asked of the target; same fields and values as `pl_requests_t` in switch/native/abi.h."""

    clone: int = 0
    resubmit: int = 0
    recirculate: int = 0
    exited: int = 0
    clone_field_list: int = -1
    resubmit_field_list: int = -1
    recirculate_field_list: int = -1
    clone_session: int = 0
    truncate_bytes: int = NO_TRUNCATION


@dataclass(frozen=True, slots=True)
class FieldSlot:
    """One fixed-width field of a header instance: its position, width and how to keep a value inside the width."""

    header: str
    index: int
    bits: int
    signed: bool

    def fit(self, value: int) -> int:
        """`value` truncated to the width, as the number that the field then holds."""
        value &= (1 << self.bits) - 1
        if self.signed and value >> (self.bits - 1):
            value -= 1 << self.bits
        return value

    def pattern(self, value: int) -> int:
        """The bit pattern of a value that the field holds."""
        return value & ((1 << self.bits) - 1)


@dataclass(frozen=True, slots=True)
class VarbitSlot:
    """The varbit field of a header instance; its current length is in `PacketState.varbit_bits`."""

    header: str
    index: int
    max_bits: int


Slot = FieldSlot | VarbitSlot


class Layout:
    """Slots of all fields, by (header, field) and by full name, and the neighbours of headers in unions and stacks."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.slots: dict[tuple[str, str], Slot] = {}
        self.header_slots: dict[str, tuple[Slot, ...]] = {}
        self.by_name: dict[str, Slot] = {}
        self.valid_names: dict[str, str] = {}
        self.metadata = tuple(name for name, header in program.headers.items() if header.metadata)
        for name, header in program.headers.items():
            slots = tuple(self._slot(name, index, header.type) for index in range(len(header.type.fields)))
            self.header_slots[name] = slots
            self.valid_names[f"{name}.{VALID}"] = name
            for field_type, slot in zip(header.type.fields, slots, strict=True):
                self.slots[name, field_type.name] = slot
                self.by_name[f"{name}.{field_type.name}"] = slot
        self.union_peers: dict[str, tuple[str, ...]] = {}
        for union in program.unions.values():
            for member in union.headers:
                self.union_peers[member] = tuple(other for other in union.headers if other != member)

    def _slot(self, header: str, index: int, header_type: HeaderType) -> Slot:
        field_type = header_type.fields[index]
        if field_type.bits is None:
            assert header_type.max_length_bytes is not None  # the loader saw to it
            fixed_bits = sum(other.bits or 0 for other in header_type.fields)
            return VarbitSlot(header, index, header_type.max_length_bytes * 8 - fixed_bits)
        return FieldSlot(header, index, field_type.bits, field_type.signed)

    def fixed(self, ref: FieldRef) -> FieldSlot:
        """The slot of a field of fixed width."""
        slot = self.slots[ref.header, ref.field]
        assert isinstance(slot, FieldSlot)
        return slot

    def standard(self, name: str) -> FieldSlot | None:
        """The field that simple_switch knows as `name` ("standard_metadata.egress_spec", ...), through the aliases."""
        alias = self.program.field_aliases.get(name)
        if alias is not None:
            return self.fixed(alias)
        slot = self.by_name.get(name)
        return slot if isinstance(slot, FieldSlot) else None


@dataclass(slots=True)
class PacketState:
    """One packet between parser and deparser.

    `frame` is the packet as it arrived at the parser of this pass, `payload_offset` the bytes that the parser consumed.
    `added_bytes` is what add_header and remove_header added to its length. `digests` collects (learn list id, bytes).
    """

    pipeline: Interpreter
    frame: bytes = b""
    payload_offset: int = 0
    values: dict[str, list[int]] = field(default_factory=dict)
    valid: dict[str, bool] = field(default_factory=dict)
    varbit_bits: dict[str, int] = field(default_factory=dict)  # by header
    next_index: dict[str, int] = field(default_factory=dict)  # by stack
    requests: Requests = field(default_factory=Requests)
    digests: list[tuple[int, bytes]] = field(default_factory=list)
    pending_digest: int | None = None  # learn list that the running control asked for last
    added_bytes: int = 0
    cursor_bits: int | None = None  # None outside of the parser

    def __post_init__(self) -> None:
        if not self.values:
            self.reset()

    def reset(self) -> None:
        """All headers invalid, all fields 0."""
        program = self.pipeline.program
        self.values = {name: [0] * len(header.type.fields) for name, header in program.headers.items()}
        self.valid = {name: header.metadata for name, header in program.headers.items()}
        self.varbit_bits = dict.fromkeys(program.headers, 0)
        self.next_index = dict.fromkeys((*program.stacks, *program.union_stacks), 0)
        self.requests = Requests()
        self.payload_offset = 0
        self.added_bytes = 0

    def clone(self) -> PacketState:
        """An independent copy with the same headers, without requests and digests."""
        other = copy(self)
        other.values = {name: list(values) for name, values in self.values.items()}
        other.valid = dict(self.valid)
        other.varbit_bits = dict(self.varbit_bits)
        other.next_index = dict(self.next_index)
        other.requests = Requests()
        other.digests = []
        return other

    def parse(self, frame: bytes, port: int, **standard_metadata: int) -> None:
        """Start over with `frame` from `port`: reset, standard metadata, then the parser."""
        self.pipeline.parse_packet(self, frame, port, standard_metadata)

    def get(self, name: str) -> int:
        """Bit pattern of the field "<header>.<field>", or 0/1 for "<header>.$valid$". KeyError for unknown names."""
        layout = self.pipeline.layout
        header = layout.valid_names.get(name)
        if header is not None:
            return int(self.valid[header])
        slot = layout.by_name[name]
        value = self.values[slot.header][slot.index]
        return slot.pattern(value) if isinstance(slot, FieldSlot) else value

    def set(self, name: str, value: int) -> None:
        """Store into the field "<header>.<field>", truncated; "<header>.$valid$" makes a header valid or invalid."""
        layout = self.pipeline.layout
        header = layout.valid_names.get(name)
        if header is not None:
            self.set_valid(header, bool(value))
            return
        slot = layout.by_name[name]
        if isinstance(slot, VarbitSlot):
            raise KeyError(f"{name} is a varbit field, which has no fixed width to store into")
        self.values[slot.header][slot.index] = slot.fit(value)

    def read(self, slot: FieldSlot) -> int:
        return self.values[slot.header][slot.index]

    def store(self, slot: FieldSlot, value: int) -> None:
        self.values[slot.header][slot.index] = slot.fit(value)

    def set_valid(self, header: str, valid: bool) -> None:
        """Validity of a header; in a union at most one member stays valid. Metadata is always valid."""
        if header in self.pipeline.metadata_headers:
            return
        self.valid[header] = valid
        if valid:
            for peer in self.pipeline.layout.union_peers.get(header, ()):
                self.valid[peer] = False

    def zero(self, header: str) -> None:
        """All fields of a header 0, its varbit empty."""
        self.values[header] = [0] * len(self.values[header])
        self.varbit_bits[header] = 0

    def header_bits(self, header: str) -> int:
        """Bits that the header takes in a packet, its varbit at its current length."""
        slots = self.pipeline.layout.header_slots[header]
        return sum(slot.bits if isinstance(slot, FieldSlot) else self.varbit_bits[header] for slot in slots)

    def header_as_bits(self, header: str) -> tuple[int, int]:
        """(value, bits) of the header's fields laid end to end."""
        value = bits = 0
        for slot in self.pipeline.layout.header_slots[header]:
            width = slot.bits if isinstance(slot, FieldSlot) else self.varbit_bits[header]
            value = (value << width) | (self.values[header][slot.index] & ((1 << width) - 1))
            bits += width
        return value, bits

    @property
    def payload(self) -> bytes:
        """What follows the parsed headers."""
        return self.frame[self.payload_offset :]


def copy_header(state: PacketState, target: str, source: str) -> None:
    """P4 header assignment: validity and, when the source is valid, all fields."""
    if not state.valid[source]:
        state.set_valid(target, False)
        return
    state.set_valid(target, True)
    slots = state.pipeline.layout.header_slots[target]
    values = state.values[source]
    state.values[target] = [
        slot.fit(values[slot.index]) if isinstance(slot, FieldSlot) else values[slot.index] for slot in slots
    ]
    state.varbit_bits[target] = state.varbit_bits[source]

"""The parser of a program over packets.

A parser error stops the parser; what was extracted before stays, the payload starts at the cursor, and the packet goes
on to ingress with standard_metadata.parser_error set, as in simple_switch. A state whose transitions all miss accepts
(p4c adds no default transition for an incomplete select; BMv2 accepts too). A parser that visits more than `MAX_STATES`
states ends with ParserTimeout, which BMv2 would answer with an endless loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from switch.interp_actions import Primitives
from switch.interp_exprs import Compiler, ParserError, take_bits
from switch.interp_state import FieldSlot, PacketState, VarbitSlot
from switch.model import (
    Advance,
    Extract,
    FieldRef,
    HeaderRef,
    ParserOp,
    ParseState,
    SetField,
    StackRef,
    Transition,
    UnionStackRef,
    Verify,
)

if TYPE_CHECKING:
    from switch.interpreter import Interpreter

MAX_STATES = 65536

Step = Callable[[PacketState], None]
Match = Callable[[int, int], bool]  # (padded key, unpadded key)


class PacketParser:
    """The compiled parser."""

    def __init__(self, interpreter: Interpreter, compiler: Compiler, primitives: Primitives) -> None:
        self.interpreter = interpreter
        self.compiler = compiler
        self.primitives = primitives
        self.program = interpreter.program
        self.states = {name: self._state(state) for name, state in self.program.parser.states.items()}

    def parse(self, state: PacketState) -> None:
        """Run over `state.frame`; sets `payload_offset` and standard_metadata.parser_error."""
        state.cursor_bits = 0
        error: str | int = "NoError"
        name = self.program.parser.init_state
        try:
            for _ in range(MAX_STATES):
                if name is None:
                    break
                name = self.states[name](state)
            else:
                error = "ParserTimeout"
        except ParserError as raised:
            error = raised.error
        state.payload_offset = state.cursor_bits // 8
        state.cursor_bits = None
        code = self.program.errors[error] if isinstance(error, str) else error
        self.interpreter.set_standard(state, "standard_metadata.parser_error", code)

    def _state(self, state: ParseState) -> Callable[[PacketState], str | None]:
        steps = [self._op(op) for op in state.ops]
        keys = [self.compiler.value(expr) for expr in state.key]
        transitions = [
            (self._match(transition, state), transition.next_state)
            for transition in state.transitions
            if transition.kind != "default"
        ]
        # the last default wins, and only after all others, in whatever place it stands
        default = next((t.next_state for t in reversed(state.transitions) if t.kind == "default"), None)
        widths = state.key_bits

        def run(packet: PacketState) -> str | None:
            for step in steps:
                step(packet)
            padded = unpadded = 0
            for key, bits in zip(keys, widths, strict=True):
                value = key(packet, ()) & ((1 << bits) - 1)
                padded = (padded << (8 * ((bits + 7) // 8))) | value
                unpadded = (unpadded << bits) | value
            for match, next_state in transitions:
                if match(padded, unpadded):
                    return next_state
            return default

        return run

    def _match(self, transition: Transition, state: ParseState) -> Match:
        if transition.kind == "value":
            if transition.mask is None:
                return lambda padded, unpadded: padded == transition.value
            mask = transition.mask
            return lambda padded, unpadded: padded & mask == transition.value & mask
        members = self.interpreter.value_sets[transition.value_set]
        set_mask = unpad(transition.mask, state.key_bits)

        def in_set(padded: int, unpadded: int) -> bool:
            return any((unpadded ^ value) & mask & set_mask == 0 for value, mask in members)

        return in_set

    def _op(self, op: ParserOp) -> Step:
        match op:
            case Extract():
                return self._extract(op)
            case SetField(target, value):
                if isinstance(target, FieldRef) and self._is_varbit(target):
                    return self._set_varbit(op)
                store, source = self.compiler.store(target), self.compiler.value(value)
                return lambda packet: store(packet, (), source(packet, ()))
            case Verify(condition, error):
                holds, code = self.compiler.value(condition), self.compiler.value(error)

                def verify(packet: PacketState) -> None:
                    if not holds(packet, ()):
                        raise ParserError(code(packet, ()))

                return verify
            case Advance(bits):
                amount = self.compiler.value(bits)
                return lambda packet: advance(packet, amount(packet, ()))
            case _:
                run = self.primitives.primitive(op)

                def primitive(packet: PacketState) -> None:
                    run(packet, ())

                return primitive

    def _is_varbit(self, target: FieldRef) -> bool:
        return isinstance(self.compiler.layout.slots[target.header, target.field], VarbitSlot)

    def _set_varbit(self, op: SetField) -> Step:
        copy = self.primitives.copy_varbit(op.target, op.value)

        def assign(packet: PacketState) -> None:
            copy(packet, ())

        return assign

    def _extract(self, op: Extract) -> Step:
        length = None if op.varbit_bits is None else self.compiler.value(op.varbit_bits)
        match op.target:
            case HeaderRef(name):
                return lambda packet: self._extract_header(packet, name, None if length is None else length(packet, ()))
            case StackRef(stack):
                headers = self.program.stacks[stack].headers
            case UnionStackRef(stack):
                unions = [self.program.unions[name] for name in self.program.union_stacks[stack].unions]
                headers = tuple(union.headers[union.members.index(op.union_member or "")] for union in unions)

        def extract_next(packet: PacketState) -> None:
            position = packet.next_index[stack]
            if position >= len(headers):
                raise ParserError("StackOutOfBounds")
            self._extract_header(packet, headers[position], None if length is None else length(packet, ()))
            packet.next_index[stack] = position + 1

        return extract_next

    def _extract_header(self, packet: PacketState, header: str, varbit_bits: int | None) -> None:
        slots = self.compiler.layout.header_slots[header]
        fixed_bits = sum(slot.bits for slot in slots if isinstance(slot, FieldSlot))
        bits = fixed_bits
        assert packet.cursor_bits is not None
        if varbit_bits is not None:
            if varbit_bits % 8:
                raise ParserError("ParserInvalidArgument")
            bits += varbit_bits
        if packet.cursor_bits + bits > 8 * len(packet.frame) or bits < fixed_bits:
            raise ParserError("PacketTooShort")
        if varbit_bits is not None and any(isinstance(s, VarbitSlot) and varbit_bits > s.max_bits for s in slots):
            raise ParserError("HeaderTooShort")
        at, values = packet.cursor_bits, []
        for slot in slots:
            width = slot.bits if isinstance(slot, FieldSlot) else varbit_bits or 0
            value = take_bits(packet.frame, at, width)
            values.append(slot.fit(value) if isinstance(slot, FieldSlot) else value)
            at += width
        packet.values[header] = values
        packet.varbit_bits[header] = varbit_bits or 0
        packet.cursor_bits = at
        packet.set_valid(header, True)


def advance(packet: PacketState, bits: int) -> None:
    """packet.advance(bits): whole bytes, inside the packet."""
    assert packet.cursor_bits is not None
    if bits % 8 or bits < 0:
        raise ParserError("ParserInvalidArgument")
    if packet.cursor_bits + bits > 8 * len(packet.frame):
        raise ParserError("PacketTooShort")
    packet.cursor_bits += bits


def unpad(padded: int | None, key_bits: tuple[int, ...]) -> int:
    """A padded mask of a transition key without its padding; None is all ones."""
    if padded is None:
        return (1 << sum(key_bits)) - 1
    result, shift = 0, 0
    for bits in reversed(key_bits):
        result |= (padded & ((1 << bits) - 1)) << shift
        shift += bits
        padded >>= 8 * ((bits + 7) // 8)
    return result

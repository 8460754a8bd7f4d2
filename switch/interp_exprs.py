"""Expressions of the model as Python closures over a packet.

Arithmetic has infinite precision. Where P4 and BMv2 leave a result open (BMv2 aborts), the target defines one, and the
generated C agrees:

- x / 0 and x % 0 are 0; both round towards zero;
- a shift by a negative amount is a shift by 0, a left shift by more than 65536 bits gives 0;
- a stack element out of range, or the last element of an empty stack, reads as 0 and invalid and ignores stores;
  in the parser it is the error StackOutOfBounds;
- a register cell out of range reads as 0.

Lookahead past the end of the packet is the parser error PacketTooShort.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from switch.interp_state import FieldSlot, Layout, PacketState, VarbitSlot
from switch.model import (
    BoolConst,
    Const,
    Expr,
    FieldRef,
    HeaderRef,
    Lookahead,
    Op,
    ParamRef,
    RegisterRef,
    StackFieldRef,
    StackRef,
    UnionRef,
    UnionStackFieldRef,
    UnionStackRef,
)

if TYPE_CHECKING:
    from switch.interpreter import Interpreter

Params = Sequence[int]
Eval = Callable[[PacketState, Params], int]
Store = Callable[[PacketState, Params, int], None]
Locate = Callable[[PacketState, Params], str | None]  # name of a header or union; None where there is none

MAX_SHIFT = 1 << 16


class ParserError(Exception):
    """A parser error by the name of its constant in P4, or a value given to verify."""

    def __init__(self, error: str | int) -> None:
        super().__init__(error)
        self.error = error


def no_element(state: PacketState) -> None:
    """A stack element that does not exist was used: an error in the parser, nothing elsewhere."""
    if state.cursor_bits is not None:
        raise ParserError("StackOutOfBounds")


def lookahead(state: PacketState, offset_bits: int, bits: int) -> int:
    """`bits` bits of the packet, `offset_bits` after the parser's cursor."""
    assert state.cursor_bits is not None  # the loader allows it in parsers only
    return take_bits(state.frame, state.cursor_bits + offset_bits, bits)


def take_bits(frame: bytes, first_bit: int, bits: int) -> int:
    """`bits` bits of a frame; PacketTooShort where the frame ends before."""
    end = first_bit + bits
    if end > 8 * len(frame):
        raise ParserError("PacketTooShort")
    chunk = frame[first_bit // 8 : (end + 7) // 8]
    return (int.from_bytes(chunk, "big") >> (-end % 8)) & ((1 << bits) - 1)


def present(part: Expr | None) -> Expr:
    """An operand that the loader has seen to be there."""
    assert part is not None
    return part


def divide(left: int, right: int) -> int:
    if right == 0:
        return 0
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def modulo(left: int, right: int) -> int:
    return 0 if right == 0 else left - right * divide(left, right)


def shift_left(left: int, right: int) -> int:
    return 0 if right > MAX_SHIFT else left << max(right, 0)


def shift_right(left: int, right: int) -> int:
    return left >> max(right, 0)


def two_comp_mod(value: int, bits: int) -> int:
    """`value` as a signed number of `bits` bits in two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def usat_cast(value: int, bits: int) -> int:
    return min(max(value, 0), (1 << bits) - 1)


def sat_cast(value: int, bits: int) -> int:
    return min(max(value, -(1 << (bits - 1))), (1 << (bits - 1)) - 1)


ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": divide,
    "%": modulo,
    "<<": shift_left,
    ">>": shift_right,
    "&": lambda left, right: left & right,
    "|": lambda left, right: left | right,
    "^": lambda left, right: left ^ right,
    "==": lambda left, right: int(left == right),
    "!=": lambda left, right: int(left != right),
    "<": lambda left, right: int(left < right),
    "<=": lambda left, right: int(left <= right),
    ">": lambda left, right: int(left > right),
    ">=": lambda left, right: int(left >= right),
    "and": lambda left, right: int(bool(left and right)),
    "or": lambda left, right: int(bool(left or right)),
    "two_comp_mod": two_comp_mod,
    "usat_cast": usat_cast,
    "sat_cast": sat_cast,
}


class Compiler:
    """Turns the expressions of one program into closures; bool is 0 or 1."""

    def __init__(self, interpreter: Interpreter, layout: Layout) -> None:
        self.interpreter = interpreter
        self.layout = layout
        self.program = layout.program

    # --- values ---------------------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Eval:
        """An expression of kind data, bool or varbit."""
        match expr:
            case Const(value) | BoolConst(value):
                number = int(value)
                return lambda state, params: number
            case FieldRef(name, "$valid$"):
                return lambda state, params: int(state.valid[name])
            case FieldRef(name, field):
                at = self.layout.slots[name, field].index
                return lambda state, params: state.values[name][at]
            case ParamRef(index):
                return lambda state, params: params[index]
            case Lookahead(offset_bits, bits):
                return lambda state, params: lookahead(state, offset_bits, bits)
            case RegisterRef(register, index_expr):
                cells, index_of = self.interpreter.registers[register], self.value(index_expr)

                def read_register(state: PacketState, params: Params) -> int:
                    cell = index_of(state, params)
                    return cells[cell] if 0 <= cell < len(cells) else 0

                return read_register
            case StackFieldRef() | UnionStackFieldRef():
                return self._located_value(*self._located_field(expr))
            case Op("access_field", header, Const(index)):
                assert header is not None
                return self._located_value(self.header(header), index)
            case Op():
                return self._operation(expr)
            case _:
                raise AssertionError(f"{expr} is not a value")

    def _located_value(self, locate: Locate, index: int) -> Eval:
        def read(state: PacketState, params: Params) -> int:
            header = locate(state, params)
            if header is None:
                no_element(state)
                return 0
            return int(state.valid[header]) if index < 0 else state.values[header][index]

        return read

    def _located_field(self, expr: Expr) -> tuple[Locate, int]:
        """Where a field of the last element of a stack is: the header and the index of the field (-1: validity)."""
        if isinstance(expr, StackFieldRef):
            stack = self.program.stacks[expr.stack]
            return self._last(stack.name, stack.headers), self._index(stack.headers[0], expr.field)
        assert isinstance(expr, UnionStackFieldRef)
        union_stack = self.program.union_stacks[expr.stack]
        unions = [self.program.unions[name] for name in union_stack.unions]
        headers = tuple(union.headers[union.members.index(expr.member)] for union in unions)
        return self._last(union_stack.name, headers), self._index(headers[0], expr.field)

    def _index(self, header: str, field: str) -> int:
        return -1 if field == "$valid$" else self.layout.slots[header, field].index

    def _last(self, stack: str, headers: tuple[str, ...]) -> Locate:
        def last(state: PacketState, params: Params) -> str | None:
            count = state.next_index[stack]
            return headers[count - 1] if count else None

        return last

    def _operation(self, expr: Op) -> Eval:
        op = expr.op
        if op == "?":
            condition, yes, no = (self.value(present(part)) for part in (expr.cond, expr.left, expr.right))
            return lambda state, params: yes(state, params) if condition(state, params) else no(state, params)
        assert expr.right is not None
        if op == "valid":
            header = self.header(expr.right)

            def valid(state: PacketState, params: Params) -> int:
                name = header(state, params)
                return int(name is not None and state.valid[name])

            return valid
        if op == "valid_union":
            union = self.union(expr.right)

            def valid_union(state: PacketState, params: Params) -> int:
                name = union(state, params)
                return int(name is not None and any(state.valid[h] for h in self.program.unions[name].headers))

            return valid_union
        if op in ("last_stack_index", "size_stack"):
            assert isinstance(expr.right, StackRef | UnionStackRef)
            stack, less = expr.right.stack, int(op == "last_stack_index")
            return lambda state, params: state.next_index[stack] - less
        if op in ("==", "!=") and isinstance(expr.right, HeaderRef | UnionRef):
            return self._comparison(expr)
        if op in ("==", "!=") and isinstance(expr.right, Op) and expr.right.op.startswith(("deref", "access_union")):
            return self._comparison(expr)
        right = self.value(expr.right)
        if expr.left is None:
            return self._unary(op, right)
        left, function = self.value(expr.left), ARITHMETIC[op]
        return lambda state, params: function(left(state, params), right(state, params))

    def _unary(self, op: str, right: Eval) -> Eval:
        match op:
            case "~":
                return lambda state, params: ~right(state, params)
            case "-":
                return lambda state, params: -right(state, params)
            case "not":
                return lambda state, params: int(not right(state, params))
            case "d2b":
                return lambda state, params: int(right(state, params) != 0)
            case _:  # + and b2d
                return right

    def _comparison(self, expr: Op) -> Eval:
        """Headers are equal when both are valid and all fields are; unions when the same member is and equals."""
        negate = expr.op == "!="
        is_union = isinstance(expr.right, UnionRef) or (
            isinstance(expr.right, Op) and expr.right.op == "dereference_union_stack"
        )
        locate = self.union if is_union else self.header
        left, right = locate(present(expr.left)), locate(present(expr.right))

        def headers_equal(state: PacketState, one: str, other: str) -> bool:
            return (
                state.valid[one]
                and state.valid[other]
                and state.values[one] == state.values[other]
                and state.varbit_bits[one] == state.varbit_bits[other]
            )

        def compare(state: PacketState, params: Params) -> int:
            one, other = left(state, params), right(state, params)
            if one is None or other is None:
                equal = False
            elif is_union:
                pairs = zip(self.program.unions[one].headers, self.program.unions[other].headers, strict=True)
                equal = any(headers_equal(state, mine, its) for mine, its in pairs)
            else:
                equal = headers_equal(state, one, other)
            return int(equal != negate)

        return compare

    # --- headers and unions ---------------------------------------------------------------------------------------

    def header(self, expr: Expr) -> Locate:
        """The name of the header instance that an expression of kind header denotes."""
        match expr:
            case HeaderRef(name):
                return lambda state, params: name
            case Op("dereference_header_stack", StackRef(stack), index):
                assert index is not None
                return self._element(self.program.stacks[stack].headers, index)
            case Op("access_union_header", union, Const(member)):
                assert union is not None
                locate = self.union(union)

                def member_header(state: PacketState, params: Params) -> str | None:
                    name = locate(state, params)
                    return None if name is None else self.program.unions[name].headers[member]

                return member_header
            case _:
                raise AssertionError(f"{expr} is not a header")

    def union(self, expr: Expr) -> Locate:
        """The name of the union instance that an expression of kind union denotes."""
        match expr:
            case UnionRef(name):
                return lambda state, params: name
            case Op("dereference_union_stack", UnionStackRef(stack), index):
                assert index is not None
                return self._element(self.program.union_stacks[stack].unions, index)
            case _:
                raise AssertionError(f"{expr} is not a union")

    def _element(self, names: tuple[str, ...], index: Expr) -> Locate:
        index_of = self.value(index)

        def element(state: PacketState, params: Params) -> str | None:
            at = index_of(state, params)
            if 0 <= at < len(names):
                return names[at]
            no_element(state)
            return None

        return element

    # --- stores ---------------------------------------------------------------------------------------------------

    def store(self, expr: Expr) -> Store:
        """A store into a field of fixed width, truncated to it."""
        match expr:
            case FieldRef():
                slot = self.layout.fixed(expr)
                return lambda state, params, value: state.store(slot, value)
            case StackFieldRef() | UnionStackFieldRef():
                locate, index = self._located_field(expr)
            case Op("access_field", header, Const(index)):
                assert header is not None
                locate = self.header(header)
            case _:
                raise AssertionError(f"{expr} cannot be stored into")

        def store(state: PacketState, params: Params, value: int) -> None:
            name = locate(state, params)
            if name is None:
                no_element(state)
                return
            target = self.layout.header_slots[name][index]
            assert isinstance(target, FieldSlot)
            state.store(target, value)

        return store

    def varbit(self, expr: Expr) -> Callable[[PacketState, Params], VarbitSlot | None]:
        """The varbit field that an expression denotes."""
        match expr:
            case FieldRef(header, field):
                slot = self.layout.slots[header, field]
                assert isinstance(slot, VarbitSlot)
                found = slot
                return lambda state, params: found
            case StackFieldRef() | UnionStackFieldRef():
                locate, index = self._located_field(expr)
            case Op("access_field", target, Const(index)):
                assert target is not None
                locate = self.header(target)
            case _:
                raise AssertionError(f"{expr} is not a varbit field")

        def varbit_slot(state: PacketState, params: Params) -> VarbitSlot | None:
            name = locate(state, params)
            if name is None:
                no_element(state)
                return None
            slot = self.layout.header_slots[name][index]
            assert isinstance(slot, VarbitSlot)
            return slot

        return varbit_slot

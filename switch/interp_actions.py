"""Primitives and actions of the model as Python closures over a packet.

Indexes out of range make counters, meters and registers do nothing and leave the result field alone. `count` and byte
meters take the length of the packet as it arrived at the parser of this pass. A failing assert or assume is logged and
counted (`Interpreter.failed_asserts`), and the packet goes on: a switch must not stop for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from switch.interp_exprs import Compiler, Params
from switch.interp_state import FieldSlot, PacketState, copy_header
from switch.model import (
    Const,
    Expr,
    ExternRef,
    Primitive,
    StackRef,
    StringConst,
    UnionStackRef,
    Vector,
)
from switch.rng import MASK64

if TYPE_CHECKING:
    from switch.interpreter import Interpreter

log = logging.getLogger("switch.p4")

Run = Callable[[PacketState, Params], int | None]  # a number: go on with the primitive at that index
CLONE_SESSION_MASK = 0x7FFF


def format_log(template: str, values: Sequence[int]) -> str:
    """The line of log_msg: each {} takes the next value; too few values leave the rest as they are."""
    pieces = template.split("{}")
    line = pieces[0]
    for position, piece in enumerate(pieces[1:]):
        line += (str(values[position]) if position < len(values) else "{}") + piece
    return line


class Primitives:
    """Compiles primitive calls."""

    def __init__(self, interpreter: Interpreter, compiler: Compiler) -> None:
        self.interpreter = interpreter
        self.compiler = compiler
        self.program = interpreter.program

    def action(self, primitives: Sequence[Primitive]) -> Callable[[PacketState, Params], None]:
        """A whole action body."""
        steps = [self.primitive(primitive) for primitive in primitives]

        def run(state: PacketState, params: Params) -> None:
            at = 0
            while at < len(steps):
                jump = steps[at](state, params)
                at = at + 1 if jump is None else jump

        return run

    def primitive(self, call: Primitive) -> Run:
        """One call."""
        args = call.args
        match call.op:
            case "assign":
                return self._assign(args[0], args[1])
            case "assign_VL":
                return self.copy_varbit(args[0], args[1])
            case "assign_header":
                return self._assign_header(args[0], args[1])
            case "assign_union":
                return self._assign_union(args[0], args[1])
            case "assign_header_stack" | "assign_union_stack":
                return self._assign_stack(args[0], args[1])
            case "push" | "pop":
                return self._shift(args[0], args[1], push=call.op == "push")
            case "add_header" | "remove_header":
                return self._set_validity(args[0], add=call.op == "add_header")
            case "mark_to_drop":
                return self._mark_to_drop(args[0])
            case "drop":
                return self._drop
            case "_jump":
                target = self._constant(args[0])
                return lambda state, params: target
            case "_jump_if_zero":
                condition, where = self.compiler.value(args[0]), self._constant(args[1])
                return lambda state, params: None if condition(state, params) else where
            case "assert" | "assume":
                return self._assert(call)
            case "log_msg":
                return self._log(args[0], args[1])
            case "no_op" | "_no_op":
                return lambda state, params: None
            case "register_read" | "register_write" | "count" | "execute_meter":
                return self._extern(call)
            case "modify_field_with_hash_based_offset":
                return self._hash(args)
            case "modify_field_rng_uniform":
                return self._random(args)
            case _:
                return self._request(call)

    def _constant(self, expr: Expr) -> int:
        assert isinstance(expr, Const)
        return expr.value

    def _name(self, expr: Expr) -> str:
        assert isinstance(expr, ExternRef)
        return expr.name

    # --- data -----------------------------------------------------------------------------------------------------

    def _assign(self, target: Expr, source: Expr) -> Run:
        store, value = self.compiler.store(target), self.compiler.value(source)
        return lambda state, params: store(state, params, value(state, params))

    def copy_varbit(self, target: Expr, source: Expr) -> Run:
        """Copy one varbit field to another with its length, cut to what the target can hold."""
        left, right = self.compiler.varbit(target), self.compiler.varbit(source)

        def assign(state: PacketState, params: Params) -> None:
            to, origin = left(state, params), right(state, params)
            if to is None or origin is None:
                return
            bits = min(state.varbit_bits[origin.header], to.max_bits)
            state.varbit_bits[to.header] = bits
            state.values[to.header][to.index] = state.values[origin.header][origin.index] & ((1 << bits) - 1)

        return assign

    def _assign_header(self, target: Expr, source: Expr) -> Run:
        left, right = self.compiler.header(target), self.compiler.header(source)

        def assign(state: PacketState, params: Params) -> None:
            to, origin = left(state, params), right(state, params)
            if to is None:
                return
            if origin is None:
                state.set_valid(to, False)
                return
            copy_header(state, to, origin)

        return assign

    def _copy_union(self, state: PacketState, to: str, origin: str) -> None:
        pairs = zip(self.program.unions[to].headers, self.program.unions[origin].headers, strict=True)
        for target, source in pairs:
            copy_header(state, target, source)

    def _assign_union(self, target: Expr, source: Expr) -> Run:
        left, right = self.compiler.union(target), self.compiler.union(source)

        def assign(state: PacketState, params: Params) -> None:
            to, origin = left(state, params), right(state, params)
            if to is None:
                return
            if origin is None:
                for header in self.program.unions[to].headers:
                    state.set_valid(header, False)
                return
            self._copy_union(state, to, origin)

        return assign

    def _assign_stack(self, target: Expr, source: Expr) -> Run:
        if isinstance(target, StackRef) and isinstance(source, StackRef):
            to, origin = self.program.stacks[target.stack], self.program.stacks[source.stack]

            def assign(state: PacketState, params: Params) -> None:
                state.next_index[to.name] = state.next_index[origin.name]
                for left, right in zip(to.headers, origin.headers, strict=True):
                    copy_header(state, left, right)

            return assign
        assert isinstance(target, UnionStackRef)
        assert isinstance(source, UnionStackRef)
        unions_to, unions_from = self.program.union_stacks[target.stack], self.program.union_stacks[source.stack]

        def assign_unions(state: PacketState, params: Params) -> None:
            state.next_index[unions_to.name] = state.next_index[unions_from.name]
            for left, right in zip(unions_to.unions, unions_from.unions, strict=True):
                self._copy_union(state, left, right)

        return assign_unions

    def _shift(self, stack: Expr, amount: Expr, *, push: bool) -> Run:
        """push_front and pop_front of P4_16; elements that come in are invalid and zero."""
        if isinstance(stack, StackRef):
            rows = [self.program.stacks[stack.stack].headers]
        else:
            assert isinstance(stack, UnionStackRef)
            unions = [self.program.unions[name].headers for name in self.program.union_stacks[stack.stack].unions]
            rows = list(zip(*unions, strict=True))  # one row for each member
        name, count_of = stack.stack, self.compiler.value(amount)

        def shift(state: PacketState, params: Params) -> None:
            size = len(rows[0])
            count = min(max(count_of(state, params), 0), size)
            position = state.next_index[name]
            state.next_index[name] = min(size, position + count) if push else max(0, position - count)
            for row in rows:
                old = [(state.values[header], state.valid[header], state.varbit_bits[header]) for header in row]
                for at, header in enumerate(row):
                    source = at - count if push else at + count
                    if 0 <= source < size:
                        values, state.valid[header], state.varbit_bits[header] = old[source]
                        state.values[header] = list(values)
                    else:
                        state.valid[header] = False
                        state.zero(header)

        return shift

    def _set_validity(self, header: Expr, *, add: bool) -> Run:
        locate = self.compiler.header(header)

        def change(state: PacketState, params: Params) -> None:
            name = locate(state, params)
            if name is None or state.valid[name] == add or name in self.interpreter.metadata_headers:
                return
            if add:
                state.zero(name)
                state.added_bytes += state.header_bits(name) // 8
            else:
                state.added_bytes -= state.header_bits(name) // 8
            state.set_valid(name, add)

        return change

    def _mark_to_drop(self, header: Expr) -> Run:
        locate = self.compiler.header(header)
        slots = self.compiler.layout.slots

        def mark(state: PacketState, params: Params) -> None:
            name = locate(state, params)
            for field, value in (("egress_spec", self.interpreter.drop_port), ("mcast_grp", 0)):
                slot = slots.get((name or "", field))
                if isinstance(slot, FieldSlot):
                    state.store(slot, value)

        return mark

    def _drop(self, state: PacketState, params: Params) -> None:
        self.interpreter.set_standard(state, "standard_metadata.egress_spec", self.interpreter.drop_port)
        self.interpreter.set_standard(state, "intrinsic_metadata.mcast_grp", 0)

    # --- externs --------------------------------------------------------------------------------------------------

    def _extern(self, call: Primitive) -> Run:
        args, value = call.args, self.compiler.value
        match call.op:
            case "register_read":
                store, cells, index = self.compiler.store(args[0]), self._cells(args[1]), value(args[2])

                def read(state: PacketState, params: Params) -> None:
                    at = index(state, params)
                    if 0 <= at < len(cells):
                        store(state, params, cells[at])

                return read
            case "register_write":
                array, where, what = self._cells(args[0]), value(args[1]), value(args[2])
                mask = (1 << self.program.registers[self._name(args[0])].bits) - 1

                def write(state: PacketState, params: Params) -> None:
                    at = where(state, params)
                    if 0 <= at < len(array):
                        array[at] = what(state, params) & mask

                return write
            case "count":
                counter, index = self.interpreter.counters[self._name(args[0])], value(args[1])

                def count(state: PacketState, params: Params) -> None:
                    at = index(state, params)
                    if 0 <= at < len(counter):
                        counter[at].add(len(state.frame))

                return count
            case _:
                meter, index, store = self._name(args[0]), value(args[1]), self.compiler.store(args[2])
                by_bytes = self.program.meters[meter].bytes
                meters = self.interpreter.meters[meter]

                def execute(state: PacketState, params: Params) -> None:
                    at = index(state, params)
                    if 0 <= at < len(meters):
                        size = len(state.frame) if by_bytes else 1
                        store(state, params, meters[at].execute(size, self.interpreter.now_ps))

                return execute

    def _cells(self, expr: Expr) -> list[int]:
        return self.interpreter.registers[self._name(expr)]

    def _hash(self, args: Sequence[Expr]) -> Run:
        """result = base + hash % max, with max 0 taken as 1; 64-bit arithmetic."""
        store, base, size = self.compiler.store(args[0]), self.compiler.value(args[1]), self.compiler.value(args[3])
        calculation = self._name(args[2])

        def compute(state: PacketState, params: Params) -> None:
            modulus = size(state, params) & MASK64 or 1
            value = self.interpreter.calculate(state, calculation) % modulus
            store(state, params, (value + base(state, params)) & MASK64)

        return compute

    def _random(self, args: Sequence[Expr]) -> Run:
        store, low_of, high_of = (
            self.compiler.store(args[0]),
            self.compiler.value(args[1]),
            self.compiler.value(args[2]),
        )

        def draw(state: PacketState, params: Params) -> None:
            low, high = low_of(state, params) & MASK64, high_of(state, params) & MASK64
            if low <= high:
                store(state, params, self.interpreter.generator.uniform(low, high))

        return draw

    # --- requests to the target -----------------------------------------------------------------------------------

    def _request(self, call: Primitive) -> Run:
        args, value = call.args, self.compiler.value
        match call.op:
            case "clone_ingress_pkt_to_egress" | "clone_egress_pkt_to_egress":
                session, field_list = value(args[0]), self._constant(args[1])

                def clone(state: PacketState, params: Params) -> None:
                    state.requests.clone = 1
                    state.requests.clone_session = session(state, params) & CLONE_SESSION_MASK
                    state.requests.clone_field_list = field_list

                return clone
            case "resubmit":
                resubmit_list = self._constant(args[0])

                def resubmit(state: PacketState, params: Params) -> None:
                    state.requests.resubmit, state.requests.resubmit_field_list = 1, resubmit_list

                return resubmit
            case "recirculate":
                recirculate_list = self._constant(args[0])

                def recirculate(state: PacketState, params: Params) -> None:
                    state.requests.recirculate, state.requests.recirculate_field_list = 1, recirculate_list

                return recirculate
            case "generate_digest":
                learn_list = self._constant(args[1])

                def digest(state: PacketState, params: Params) -> None:
                    state.pending_digest = learn_list

                return digest
            case "truncate":
                length = value(args[0])

                def truncate(state: PacketState, params: Params) -> None:
                    wanted = max(length(state, params), 0)
                    state.requests.truncate_bytes = min(state.requests.truncate_bytes, wanted)

                return truncate
            case "exit":

                def leave(state: PacketState, params: Params) -> None:
                    state.requests.exited = 1

                return leave
            case op:
                raise AssertionError(f"primitive {op!r} passed the loader and is not implemented")

    def _assert(self, call: Primitive) -> Run:
        condition, where = self.compiler.value(call.args[0]), call.source

        def check(state: PacketState, params: Params) -> None:
            if not condition(state, params):
                self.interpreter.failed_asserts += 1
                log.error("%s failed: %s", call.op, where)

        return check

    def _log(self, template: Expr, values: Expr) -> Run:
        assert isinstance(template, StringConst)
        assert isinstance(values, Vector)
        text, items = template.value, [self.compiler.value(item) for item in values.items]

        def write(state: PacketState, params: Params) -> None:
            log.info("%s", format_log(text, [item(state, params) for item in items]))

        return write


__all__ = ["Primitives", "Run", "format_log"]

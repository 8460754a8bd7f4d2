"""The parser as straight-line C: a label for each state, gotos between them, one bounds check for each header."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from switch.codegen.actions import Primitives, comment
from switch.codegen.bits import load_cells
from switch.codegen.expressions import Emitter, Expressions, HeaderPlace, Scope, u64
from switch.codegen.layout import Layout, cells_of, fixed_bytes, varbit_of
from switch.model import (
    Advance,
    Expr,
    Extract,
    FieldRef,
    HeaderRef,
    Lookahead,
    Op,
    ParserOp,
    ParseState,
    Primitive,
    RegisterRef,
    SetField,
    StackFieldRef,
    StackRef,
    Transition,
    UnionStackFieldRef,
    UnionStackRef,
    Vector,
    Verify,
)

MAX_STATES = 65536  # visits of states in one packet, as in the interpreter


def lookaheads(expr: Expr | None) -> Iterator[Lookahead]:
    """All lookaheads inside an expression."""
    match expr:
        case Lookahead():
            yield expr
        case Op(_, left, right, cond):
            for part in (cond, left, right):
                yield from lookaheads(part)
        case RegisterRef(_, index):
            yield from lookaheads(index)
        case Vector(items):
            for item in items:
                yield from lookaheads(item)
        case _:
            return


class ParserWriter:
    """Emits the body of the parse function. Variables: cur, end, err (an error's number)."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.program = layout.program
        self.emit = Emitter()
        self.exprs = Expressions(layout, self.emit, no_element=self.fail("StackOutOfBounds"))
        self.primitives = Primitives(self.exprs)
        self.labels = {name: f"S{index}" for index, name in enumerate(self.program.parser.states)}
        self.cyclic = self.has_cycle()

    def fail(self, error: str) -> str:
        """A C statement that ends parsing with an error."""
        return f"{{ err = {self.program.errors[error]}; goto done; }}"

    def write(self) -> list[str]:
        """The lines of the body."""
        parser = self.program.parser
        if parser.init_state is None:
            return []
        order, seen = [parser.init_state], {parser.init_state}
        for name in order:
            for transition in parser.states[name].transitions:
                if transition.next_state is not None and transition.next_state not in seen:
                    seen.add(transition.next_state)
                    order.append(transition.next_state)
        if self.cyclic:
            self.emit("uint32_t visits = 0;")
        self.emit(f"goto {self.labels[parser.init_state]};")
        for name in order:
            self.state(parser.states[name])
        return self.emit.lines

    def has_cycle(self) -> bool:
        """Whether a state can be reached from itself."""
        states = self.program.parser.states
        following = {
            name: {item.next_state for item in state.transitions if item.next_state is not None}
            for name, state in states.items()
        }
        while True:  # take away states that lead nowhere until none is left, or only circles
            ends = {name for name, successors in following.items() if not successors}
            if not ends:
                return bool(following)
            following = {name: successors - ends for name, successors in following.items() if name not in ends}

    def state(self, state: ParseState) -> None:
        self.emit.lines.append(f"{self.labels[state.name]}: {{ {comment(state.name)}")
        if self.cyclic:
            self.emit(f"if (++visits > {MAX_STATES}) {self.fail('ParserTimeout')}")
        for op in state.ops:
            self.emit("{")
            self.emit.depth += 1
            self.op(op)
            self.emit.depth -= 1
            self.emit("}")
        self.transitions(state)
        self.emit.lines.append("}")

    def scope(self, *exprs: Expr | None) -> Scope:
        """Reads the lookaheads of expressions into variables, checking that the packet has them."""
        scope = Scope()
        for expr in exprs:
            for item in lookaheads(expr):
                if (item.offset_bits, item.bits) in scope.lookahead:
                    continue
                size = (item.offset_bits + item.bits + 7) // 8
                self.need(size)
                cells = []
                for code in load_cells("cur", item.offset_bits, item.bits, size):
                    name = self.emit.name("la")
                    self.emit(f"const uint64_t {name} = {code};")
                    cells.append(name)
                scope.lookahead[item.offset_bits, item.bits] = self.exprs.cells(cells, item.bits, signed=False)
        return scope

    def need(self, size: int) -> None:
        self.emit(f"if ((size_t)(end - cur) < {size}u) {self.fail('PacketTooShort')}")

    # --- operations ------------------------------------------------------------------------------------------------

    def op(self, op: ParserOp) -> None:
        match op:
            case Extract():
                self.extract(op)
            case SetField(target, value):
                self.set(target, value)
            case Verify(condition, error):
                scope = self.scope(condition, error)
                self.emit(f"if (!({self.exprs.boolean(condition, scope)})) {{")
                self.emit.depth += 1
                self.emit(f"err = (int64_t){self.exprs.low_bits(error, 32, scope).code};")
                self.emit("goto done;")
                self.emit.depth -= 1
                self.emit("}")
            case Advance(bits):
                self.advance(bits)
            case Primitive(_, args):
                self.primitives.one(op, self.scope(*args), {})

    def advance(self, bits: Expr) -> None:
        scope = self.scope(bits)
        self.emit(f"const uint64_t by = {self.exprs.index(bits, scope)};")
        self.emit(f"if (by % 8) {self.fail('ParserInvalidArgument')}")
        self.emit(f"if (by / 8 > (size_t)(end - cur)) {self.fail('PacketTooShort')}")
        self.emit("cur += by / 8;")

    def set(self, target: FieldRef | StackFieldRef | UnionStackFieldRef, value: Expr) -> None:
        scope = self.scope(value)
        place = self.exprs.target(target, scope)
        if place.place.length_cell is not None:
            self.primitives.copy_varbit(place, self.exprs.target(value, scope))
        else:
            self.exprs.store(place, value, scope)

    def extract(self, op: Extract) -> None:
        match op.target:
            case HeaderRef(name):
                header, next_cell = self.exprs.named_header(name), None
            case StackRef(stack):
                next_cell = self.layout.stack_next[stack]
                header = self.exprs.stack_element(stack, f"P[{next_cell}]")
            case UnionStackRef(stack):
                next_cell = self.layout.stack_next[stack]
                union = self.program.unions[self.program.union_stacks[stack].unions[0]]
                assert op.union_member is not None
                members = self.exprs.union_element(stack, f"P[{next_cell}]").members
                header = members[union.members.index(op.union_member)]
        if op.varbit_bits is None:
            self.extract_fixed(header)
        else:
            self.extract_varbit(header, op.varbit_bits)
        self.primitives.set_valid(header)
        if next_cell is not None:
            self.emit(f"P[{next_cell}]++;")

    def extract_fixed(self, header: HeaderPlace) -> None:
        size = fixed_bytes(header.type)
        self.need(size)
        at = 0
        for field in header.type.fields:
            place = header.layout.fields[field.name]
            for cell, code in enumerate(load_cells("cur", at, place.bits, size)):
                self.emit(f"{header.cell(place.cell + cell)} = {code};")
            at += place.bits
        self.emit(f"cur += {size};")

    def extract_varbit(self, header: HeaderPlace, length: Expr) -> None:
        """Fixed fields before the varbit are at known places, the rest moves with its length."""
        scope = self.scope(length)
        fixed = fixed_bytes(header.type)
        varbit = varbit_of(header.type)
        assert varbit is not None
        self.emit(f"const uint64_t bits = {self.exprs.count(length, scope)};")
        self.emit(f"if (bits % 8) {self.fail('ParserInvalidArgument')}")
        self.emit(f"if (bits / 8 + {fixed} > (size_t)(end - cur)) {self.fail('PacketTooShort')}")
        most = header.layout.fields[varbit.name].bits
        self.emit(f"if (bits > {most}u) {self.fail('HeaderTooShort')}")
        at, moved = 0, ""
        for field in header.type.fields:
            place = header.layout.fields[field.name]
            if field.bits is None:
                assert place.length_cell is not None
                for cell in range(cells_of(place.bits)):
                    self.emit(f"{header.cell(place.cell + cell)} = 0;")
                self.emit(f"pl_get_bits(cur, {at}, (unsigned)bits, &{header.cell(place.cell)});")
                self.emit(f"{header.cell(place.length_cell)} = bits;")
                moved = " + bits"
                continue
            if moved:
                self.emit(f"pl_get_bits(cur, {at}{moved}, {place.bits}, &{header.cell(place.cell)});")
            else:
                for cell, code in enumerate(load_cells("cur", at, place.bits, fixed)):
                    self.emit(f"{header.cell(place.cell + cell)} = {code};")
            at += place.bits
        self.emit(f"cur += {fixed} + bits / 8;")

    # --- transitions -----------------------------------------------------------------------------------------------

    def go(self, state: str | None) -> str:
        return "goto done;" if state is None else f"goto {self.labels[state]};"

    def transitions(self, state: ParseState) -> None:
        keys = self.key(state)
        for transition in state.transitions:
            if transition.kind != "default":
                condition = self.matches(state, transition, keys)
                if condition is not None:
                    self.emit(f"if ({condition}) {self.go(transition.next_state)}")
        # the last default wins, and only after all others, in whatever place it stands (BMv2)
        default = next((item for item in reversed(state.transitions) if item.kind == "default"), None)
        self.emit(self.go(None if default is None else default.next_state))

    def key(self, state: ParseState) -> list[list[str]]:
        """Variables with the cells of each key."""
        scope = self.scope(*state.key)
        keys: list[list[str]] = []
        for expr, bits in zip(state.key, state.key_bits, strict=True):
            names = []
            for code in self.exprs.words(self.exprs.low_bits(expr, bits, scope), cells_of(bits)):
                name = self.emit.name("k")
                self.emit(f"const uint64_t {name} = {code};")
                self.emit(f"(void){name};")
                names.append(name)
            keys.append(names)
        return keys

    def split(self, state: ParseState, padded: int) -> list[int]:
        """The parts of a padded key value, one for each key."""
        parts: list[int] = []
        for bits in reversed(state.key_bits):
            width = 8 * ((bits + 7) // 8)
            parts.append(padded & (1 << width) - 1)
            padded >>= width
        return parts[::-1]

    def matches(self, state: ParseState, transition: Transition, keys: Sequence[Sequence[str]]) -> str | None:
        """C condition of a transition; None where it can never hold."""
        whole = (1 << sum(8 * ((bits + 7) // 8) for bits in state.key_bits)) - 1
        masks = self.split(state, whole if transition.mask is None else transition.mask)
        if transition.kind == "vset":
            return self.in_value_set(state, transition, keys, masks)
        values = self.split(state, transition.value)
        conditions: list[str] = []
        for names, bits, value, mask in zip(keys, state.key_bits, values, masks, strict=True):
            if (value & mask) >> bits:
                return None  # wants a bit in the padding
            mask &= (1 << bits) - 1
            for at, name in enumerate(names):
                part = mask >> 64 * at & (1 << 64) - 1
                full = part == min((1 << bits) - 1 >> 64 * at, (1 << 64) - 1)
                if part:
                    code = name if full else f"({name} & {u64(part)})"
                    conditions.append(f"{code} == {u64((value & mask) >> 64 * at)}")
        return " && ".join(conditions) or "1"

    def in_value_set(
        self, state: ParseState, transition: Transition, keys: Sequence[Sequence[str]], masks: Sequence[int]
    ) -> str:
        """A value set holds members of the keys laid end to end without padding."""
        number = self.layout.vset_index[transition.value_set]
        total = sum(state.key_bits)
        words = cells_of(total)
        parts: list[list[str]] = [[] for _ in range(words)]
        mask = 0
        at = total
        for names, bits, part in zip(keys, state.key_bits, masks, strict=True):
            at -= bits
            mask |= (part & (1 << bits) - 1) << at
            for cell, name in enumerate(names):
                word, shift = divmod(at + 64 * cell, 64)
                width = min(64, bits - 64 * cell)
                parts[word].append(f"{name} << {shift}" if shift else name)
                if shift + width > 64:
                    parts[word + 1].append(f"{name} >> {64 - shift}")
        key, masked = self.emit.name("vk"), self.emit.name("vm")
        self.emit(f"const uint64_t {key}[{words}] = {{{', '.join(' | '.join(part) for part in parts)}}};")
        cells = ", ".join(u64(mask >> 64 * word) for word in range(words))
        self.emit(f"static const uint64_t {masked}[{words}] = {{{cells}}};")
        return f"pl_vset_has(&pl->vsets[{number}], {key}, {masked}, {words})"

"""Expressions to C by range analysis.

A BMv2 expression has infinite precision; what is stored is cut. The compiler knows the range of every operand, so
each node is computed in the narrowest of: uint64_t (u), int64_t (i), 128 bits (U, I), or limbs (W, pl_wide.h). Where
only the low bits of a result are wanted (it is stored into a field, or masked), sums, products, bit operations and left
shifts are computed modulo a power of two, which keeps most P4 arithmetic in one machine word.

Expressions have no side effects, so operands may be evaluated in any order and number. Wide results need statements:
they go to `Emitter` lines before the statement that uses them.
"""

from __future__ import annotations

from switch.codegen.layout import CodegenError, cells_of
from switch.codegen.places import Places
from switch.codegen.values import (
    Emitter,
    HeaderPlace,
    Scope,
    Target,
    UnionPlace,
    Value,
    kind_for,
    limbs_for,
    u64,
)
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

MAX_SHIFT = 1 << 16  # a left shift by more gives 0, as in the interpreter


class Expressions(Places):
    """Compiles expressions of one C function into an emitter."""

    # --- exact values ----------------------------------------------------------------------------------------------

    def exact(self, expr: Expr, scope: Scope) -> Value:
        """The value with its full precision."""
        match expr:
            case Const(value):
                return self.constant(value)
            case FieldRef() | StackFieldRef() | UnionStackFieldRef() | Op("access_field"):
                return self.load(expr, scope)
            case ParamRef(index):
                cell, bits = scope.params[index]
                return self.cells([f"d[{cell + at}]" for at in range(cells_of(bits))], bits, signed=False)
            case Lookahead(offset, bits):
                return scope.lookahead[offset, bits]
            case RegisterRef(name, index):
                return self.register(name, index, scope)
            case Op():
                return self.operator(expr, scope)
            case _:
                raise CodegenError(f"{expr} is not a number")

    def constant(self, value: int) -> Value:
        kind = kind_for(value, value)
        if kind == "u":
            return Value(u64(value), kind, value, value)
        if kind == "i":
            return Value(f"(int64_t){u64(value)}", kind, value, value)
        if kind in "UI":
            code = f"PL_U128({u64(value)}, {u64(value >> 64)})"
            return Value(code if kind == "U" else f"(pl_i128){code}", kind, value, value)
        limbs = limbs_for(value, value)
        name = self.emit.name("w")
        words = ", ".join(u64(value >> (64 * at)) for at in range(limbs))
        self.emit(f"const uint64_t {name}[{limbs}] = {{{words}}};")
        return Value(name, "W", value, value, limbs)

    def cells(self, cells: list[str], bits: int, *, signed: bool) -> Value:
        """A field's value from its cells."""
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        if bits <= 64:
            if signed:
                return Value(f"pl_sext64({cells[0]}, {bits})", "i", low, high)
            return Value(cells[0], "u", low, high)
        if bits <= 128:
            code = f"PL_U128({cells[0]}, {cells[1]})"
            return Value(f"pl_sext128({code}, {bits})" if signed else code, "I" if signed else "U", low, high)
        limbs = limbs_for(low, high)
        name = self.emit.name("w")
        padded = cells + ["0"] * (limbs - len(cells))
        self.emit(f"uint64_t {name}[{limbs}] = {{{', '.join(padded)}}};")
        if signed:
            self.emit(f"pl_w_cut({name}, {limbs}, {bits}, 1);")
        return Value(name, "W", low, high, limbs)

    def load(self, expr: Expr, scope: Scope) -> Value:
        target = self.target(expr, scope)
        place = target.place
        if target.header.metadata and place.cell == 0:
            return self.constant(1)
        cells = [target.cell(at) for at in range(cells_of(place.bits))]
        if target.header.guard is not None:  # an element that does not exist reads as 0
            cells = [f"({target.header.guard} ? {cell} : 0)" for cell in cells]
        return self.cells(cells, place.bits, signed=place.signed)

    def register(self, name: str, index: Expr, scope: Scope) -> Value:
        array = self.program.registers[name]
        number = self.layout.register_index[name]
        safe, inside = self.bounded(self.index(index, scope), array.size)
        width = cells_of(array.bits)
        cells = [
            f"({inside} ? pl->registers[{number}][{safe} * {width} + {at}] : 0)" if array.size else "0"
            for at in range(width)
        ]
        return self.cells(cells, array.bits, signed=array.signed)

    # --- operators -------------------------------------------------------------------------------------------------

    def operator(self, expr: Op, scope: Scope) -> Value:
        op, left, right = expr.op, expr.left, expr.right
        if op == "b2d":
            assert right is not None
            return Value(f"(uint64_t)({self.boolean(right, scope)})", "u", 0, 1)
        if op in ("last_stack_index", "size_stack"):
            return self.stack_number(op, right)
        if op == "?":
            return self.choice(expr, scope)
        assert right is not None
        if op == "two_comp_mod" and left is not None and isinstance(right, Const):
            return self.sign_cut(left, right.value, scope)
        if op in ("usat_cast", "sat_cast") and left is not None and isinstance(right, Const):
            return self.saturate(op, left, right.value, scope)
        if op == "&" and left is not None:
            return self.bit_and(left, right, scope)
        rhs = self.exact(right, scope)
        if left is None:
            if op == "~":
                return self.modular(op, [rhs], -rhs.high - 1, -rhs.low - 1)
            if op == "-":
                return self.modular("-", [self.constant(0), rhs], -rhs.high, -rhs.low)
            if op == "+":
                return rhs
            raise CodegenError(f"operator {op!r} is not known")
        lhs = self.exact(left, scope)
        match op:
            case "+":
                return self.modular(op, [lhs, rhs], lhs.low + rhs.low, lhs.high + rhs.high)
            case "-":
                return self.modular(op, [lhs, rhs], lhs.low - rhs.high, lhs.high - rhs.low)
            case "*":
                products = [a * b for a in (lhs.low, lhs.high) for b in (rhs.low, rhs.high)]
                return self.modular(op, [lhs, rhs], min(products), max(products))
            case "|" | "^":
                bits = max(limit.bit_length() for limit in (lhs.low, lhs.high, rhs.low, rhs.high))
                low = -(1 << bits) if min(lhs.low, rhs.low) < 0 else 0
                return self.modular(op, [lhs, rhs], low, (1 << bits) - 1)
            case "<<":
                return self.shift_left(lhs, rhs)
            case ">>":
                return self.shift_right(lhs, rhs)
            case "/" | "%":
                return self.divide(op, lhs, rhs)
            case _:
                raise CodegenError(f"operator {op!r} is not known")

    def stack_number(self, op: str, stack: Expr | None) -> Value:
        match stack:
            case StackRef(name) | UnionStackRef(name):
                cell = f"P[{self.layout.stack_next[name]}]"
            case _:
                raise CodegenError(f"{stack} is not a stack")
        if op == "size_stack":
            return Value(cell, "u", 0, (1 << 32) - 1)
        return Value(f"(int64_t)({cell} - 1)", "i", -1, (1 << 32) - 1)

    def choice(self, expr: Op, scope: Scope) -> Value:
        assert expr.cond is not None
        assert expr.left is not None
        assert expr.right is not None
        condition = self.boolean(expr.cond, scope)
        left, right = self.exact(expr.left, scope), self.exact(expr.right, scope)
        low, high = min(left.low, right.low), max(left.high, right.high)
        kind = kind_for(low, high)
        if kind != "W":
            code = f"({condition} ? {self.convert(left, kind)} : {self.convert(right, kind)})"
            return Value(code, kind, low, high)
        limbs = limbs_for(low, high)
        name = self.emit.name("w")
        one, other = self.limbs(left, limbs), self.limbs(right, limbs)
        self.emit(f"uint64_t {name}[{limbs}];")
        self.emit(f"pl_w_from({name}, {limbs}, {condition} ? {one} : {other}, {limbs}, 1);")
        return Value(name, "W", low, high, limbs)

    def sign_cut(self, source: Expr, bits: int, scope: Scope) -> Value:
        value = self.low_bits(source, bits, scope)
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        if bits <= 64:
            return Value(f"pl_sext64({value.code}, {bits})", "i", low, high)
        if bits <= 128:
            return Value(f"pl_sext128({value.code}, {bits})", "I", low, high)
        name = self.emit.name("w")
        limbs = limbs_for(low, high)
        self.emit(f"uint64_t {name}[{limbs}];")
        self.emit(f"pl_w_from({name}, {limbs}, {value.code}, {value.limbs}, 0);")
        self.emit(f"pl_w_cut({name}, {limbs}, {bits}, 1);")
        return Value(name, "W", low, high, limbs)

    def saturate(self, op: str, source: Expr, bits: int, scope: Scope) -> Value:
        low, high = (0, (1 << bits) - 1) if op == "usat_cast" else (-(1 << bits - 1), (1 << bits - 1) - 1)
        value = self.named(self.exact(source, scope))
        floor, ceiling = self.constant(low), self.constant(high)
        below = self.compare("<", value, floor) if value.low < low else "0"
        above = self.compare(">", value, ceiling) if value.high > high else "0"
        kind = kind_for(low, high)
        if kind != "W":
            inner = self.convert(value, kind)
            code = f"({below} ? {self.convert(floor, kind)} : {above} ? {self.convert(ceiling, kind)} : {inner})"
            return Value(code, kind, low, high)
        limbs = limbs_for(low, high)
        one, two, three = (self.limbs(item, limbs) for item in (floor, ceiling, value))
        name = self.emit.name("w")
        self.emit(f"uint64_t {name}[{limbs}];")
        self.emit(f"pl_w_from({name}, {limbs}, {below} ? {one} : {above} ? {two} : {three}, {limbs}, 1);")
        return Value(name, "W", low, high, limbs)

    def bit_and(self, left: Expr, right: Expr, scope: Scope) -> Value:
        """A mask that is known to be small wants only the low bits of the other side."""
        for mask, other in ((right, left), (left, right)):
            if isinstance(mask, Const) and mask.value >= 0:
                bits = max(1, mask.value.bit_length())
                value = self.low_bits(other, bits, scope)
                high = mask.value
                if high == (1 << bits) - 1 and value.low >= 0 and value.high <= high:
                    return self.whole(value)
                return self.modular("&", [value, self.constant(mask.value)], 0, high)
        lhs, rhs = self.exact(left, scope), self.exact(right, scope)
        if lhs.low >= 0 or rhs.low >= 0:
            high = min(value.high for value in (lhs, rhs) if value.low >= 0)
            return self.modular("&", [lhs, rhs], 0, high)
        bits = max(limit.bit_length() for limit in (lhs.low, lhs.high, rhs.low, rhs.high))
        return self.modular("&", [lhs, rhs], -(1 << bits), (1 << bits) - 1)

    def modular(self, op: str, operands: list[Value], low: int, high: int) -> Value:
        """An operation that is right modulo any power of two, in the kind that holds low..high."""
        kind = kind_for(low, high)
        if kind in "ui":
            parts = [self.word(value) for value in operands]
            code = f"(~{parts[0]})" if op == "~" else f"({parts[0]} {op} {parts[1]})"
            return Value(f"(int64_t){code}" if kind == "i" else code, kind, low, high)
        if kind in "UI":
            parts = [self.double(value) for value in operands]
            code = f"(~{parts[0]})" if op == "~" else f"({parts[0]} {op} {parts[1]})"
            return Value(f"(pl_i128){code}" if kind == "I" else code, kind, low, high)
        limbs = limbs_for(low, high)
        return Value(self.wide(op, [self.limbs(value, limbs) for value in operands], limbs), "W", low, high, limbs)

    def wide(self, op: str, names: list[str], limbs: int) -> str:
        function = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor", "~": "not"}[op]
        name = self.emit.name("w")
        self.emit(f"uint64_t {name}[{limbs}];")
        self.emit(f"pl_w_{function}({name}, {', '.join(names)}, {limbs});")
        return name

    def shift_left(self, value: Value, amount: Value) -> Value:
        most = min(max(0, amount.high), MAX_SHIFT)
        low = value.low << most if value.low < 0 else 0
        high = max(0, value.high << most)
        kind, by = kind_for(low, high), self.amount(amount)
        if amount.high > MAX_SHIFT:
            by = self.named(Value(by, "u", 0, amount.high)).code
            by = f"({by} > {MAX_SHIFT} ? UINT64_MAX : {by})"
        if kind in "ui":
            code = f"pl_shl_u64({self.word(value)}, {by})"
            return Value(f"(int64_t){code}" if kind == "i" else code, kind, low, high)
        if kind in "UI":
            code = f"pl_shl_u128({self.double(value)}, {by})"
            return Value(f"(pl_i128){code}" if kind == "I" else code, kind, low, high)
        limbs = limbs_for(low, high)
        return Value(self.wide_shift("shl", self.limbs(value, limbs), limbs, by), "W", low, high, limbs)

    def shift_right(self, value: Value, amount: Value) -> Value:
        least, by = max(0, amount.low), self.amount(amount)
        least = min(least, MAX_SHIFT)
        low = min(value.low >> least, 0) if value.low < 0 else 0
        high = max(value.high >> least, 0)
        if value.kind == "W":
            value = self.whole(value)
            name = self.wide_shift("shr", value.code, value.limbs, by)
            return Value(name, "W", low, high, value.limbs)
        function = {"u": "pl_shr_u64", "i": "pl_shr_i64", "U": "pl_shr_u128", "I": "pl_shr_i128"}[value.kind]
        return self.narrowed(Value(f"{function}({value.code}, {by})", value.kind, low, high))

    def narrowed(self, value: Value) -> Value:
        """The same value in the narrowest kind of its range."""
        kind = kind_for(value.low, value.high)
        return value if kind == value.kind or value.kind == "W" else Value(
            self.convert(value, kind), kind, value.low, value.high
        )  # fmt: skip

    def wide_shift(self, function: str, source: str, limbs: int, by: str) -> str:
        name = self.emit.name("w")
        self.emit(f"uint64_t {name}[{limbs}];")
        self.emit(f"pl_w_{function}({name}, {source}, {limbs}, {by});")
        return name

    def divide(self, op: str, lhs: Value, rhs: Value) -> Value:
        """Quotient rounded towards zero, or its remainder; a divisor of 0 gives 0."""
        size = max(abs(lhs.low), abs(lhs.high))
        low = -size if lhs.low < 0 or (op == "/" and rhs.low < 0) else 0
        high = size
        kind = kind_for(min(low, lhs.low, rhs.low), max(high, lhs.high, rhs.high))
        if kind != "W":
            top = self.named(Value(self.convert(lhs, kind), kind, lhs.low, lhs.high))
            bottom = self.named(Value(self.convert(rhs, kind), kind, rhs.low, rhs.high))
            return self.narrowed(Value(f"({bottom.code} ? {top.code} {op} {bottom.code} : 0)", kind, low, high))
        limbs = limbs_for(min(low, lhs.low, rhs.low), max(high, lhs.high, rhs.high))
        top_name, bottom_name = self.limbs(lhs, limbs), self.limbs(rhs, limbs)
        quotient, remainder = self.emit.name("w"), self.emit.name("w")
        self.emit(f"uint64_t {quotient}[{limbs}], {remainder}[{limbs}];")
        self.emit(f"pl_w_divmod({quotient}, {remainder}, {top_name}, {bottom_name}, {limbs});")
        return Value(quotient if op == "/" else remainder, "W", low, high, limbs)

    # --- values modulo 2^bits --------------------------------------------------------------------------------------

    def low_bits(self, expr: Expr, bits: int, scope: Scope) -> Value:
        """The low `bits` bits as an unsigned number: kind u, U or W; W has cells_of(bits) limbs."""
        return self.cut(self.congruent(expr, bits, scope), bits)

    def cut(self, value: Value, bits: int) -> Value:
        """The low bits of a value, as `low_bits`."""
        fits = value.low >= 0 and value.high < 1 << bits
        if bits <= 64:
            code = self.word(value)
            return Value(code if fits else f"({code} & {u64((1 << bits) - 1)})" if bits < 64 else code, "u", 0,
                         min(value.high, (1 << bits) - 1) if fits else (1 << bits) - 1)  # fmt: skip
        high = value.high if fits else (1 << bits) - 1
        if bits <= 128:
            code = self.double(value)
            mask = f"PL_U128({u64((1 << 64) - 1)}, {u64((1 << bits - 64) - 1)})"
            return Value(code if fits or bits == 128 else f"({code} & {mask})", "U", 0, high)
        limbs = cells_of(bits)
        name = self.emit.name("w")
        self.emit(f"uint64_t {name}[{limbs}];")
        self.emit(f"pl_w_from({name}, {limbs}, {self.limbs(value, limbs)}, {limbs}, 0);")
        if bits % 64:
            self.emit(f"pl_w_cut({name}, {limbs}, {bits}, 0);")
        return Value(name, "W", 0, high, limbs)

    def congruent(self, expr: Expr, bits: int, scope: Scope) -> Value:
        """A value that is right modulo 2^bits; its bounds are those of what the code yields."""
        if isinstance(expr, Op) and expr.right is not None:
            op = expr.op
            if op in ("+", "-", "*", "|", "^") and expr.left is not None:
                parts = [self.congruent(expr.left, bits, scope), self.congruent(expr.right, bits, scope)]
                return self.wrap(op, parts, bits)
            if op == "~" and expr.left is None:
                return self.wrap(op, [self.congruent(expr.right, bits, scope)], bits)
            if op == "-" and expr.left is None:
                return self.wrap("-", [self.constant(0), self.congruent(expr.right, bits, scope)], bits)
            if op == "<<" and expr.left is not None:
                value = self.congruent(expr.left, bits, scope)
                return self.wrap_shift(value, self.exact(expr.right, scope), bits)
            if op == "two_comp_mod" and isinstance(expr.right, Const) and expr.right.value >= bits:
                assert expr.left is not None
                return self.congruent(expr.left, bits, scope)
        return self.exact(expr, scope)

    def wrap(self, op: str, parts: list[Value], bits: int) -> Value:
        """An operation modulo 2^64, 2^128 or whole limbs; exact where the bounds of the operands allow to say so."""
        low, high = self.bounds(op, parts)
        size = 64 if bits <= 64 else 128 if bits <= 128 else 64 * cells_of(bits)
        if low < 0 or high >= 1 << size:
            low, high = 0, (1 << size) - 1
        if size <= 128:
            codes = [self.word(part) if size == 64 else self.double(part) for part in parts]
            code = f"(~{codes[0]})" if op == "~" else f"({codes[0]} {op} {codes[1]})"
            return Value(code, "u" if size == 64 else "U", low, high)
        limbs = cells_of(bits)
        name = self.wide(op, [self.limbs(part, limbs) for part in parts], limbs)
        return Value(name, "W", 0, (1 << 64 * limbs) - 1, limbs)

    @staticmethod
    def bounds(op: str, parts: list[Value]) -> tuple[int, int]:
        """Bounds of the exact result of an operation on non-negative operands; negative: not known."""
        if any(part.low < 0 for part in parts):
            return -1, -1
        highs = [part.high for part in parts]
        match op:
            case "+":
                return 0, highs[0] + highs[1]
            case "*":
                return 0, highs[0] * highs[1]
            case "|" | "^":
                return 0, (1 << max(high.bit_length() for high in highs)) - 1
            case _:
                return -1, -1

    def wrap_shift(self, value: Value, amount: Value, bits: int) -> Value:
        by = self.amount(amount)
        if bits <= 64:
            return Value(f"pl_shl_u64({self.word(value)}, {by})", "u", 0, (1 << 64) - 1)
        if bits <= 128:
            return Value(f"pl_shl_u128({self.double(value)}, {by})", "U", 0, (1 << 128) - 1)
        limbs = cells_of(bits)
        name = self.wide_shift("shl", self.limbs(value, limbs), limbs, by)
        return Value(name, "W", 0, (1 << 64 * limbs) - 1, limbs)

    def index(self, expr: Expr, scope: Scope) -> str:
        """An expression as an index: uint64_t, saturated; a negative one is out of every range."""
        value = self.exact(expr, scope)
        if value.low >= 0:
            return self.amount(value)
        value = self.named(value)
        negative = f"{value.code}[{value.limbs - 1}] >> 63" if value.kind == "W" else f"{value.code} < 0"
        return f"({negative} ? UINT64_MAX : {self.amount(value)})"

    def count(self, expr: Expr, scope: Scope) -> str:
        """An expression as a number of things: uint64_t, saturated on both sides."""
        return self.amount(self.exact(expr, scope))

    # --- booleans --------------------------------------------------------------------------------------------------

    def boolean(self, expr: Expr, scope: Scope) -> str:
        """C code of a condition."""
        match expr:
            case BoolConst(value):
                return "1" if value else "0"
            case Op("and" | "or" as op, left, right) if left is not None and right is not None:
                sign = "&&" if op == "and" else "||"
                return f"({self.boolean(left, scope)} {sign} {self.boolean(right, scope)})"
            case Op("not", _, right) if right is not None:
                return f"!({self.boolean(right, scope)})"
            case Op("d2b", _, right) if right is not None:
                return self.nonzero(self.exact(right, scope))
            case Op("valid", _, right) if right is not None:
                return self.is_valid(self.header(right, scope))
            case Op("valid_union", _, right) if right is not None:
                members = self.union(right, scope).members
                return "(" + " || ".join(self.is_valid(member) for member in members) + ")"
            case Op("?", left, right, condition) if left is not None and right is not None and condition is not None:
                parts = [self.boolean(part, scope) for part in (condition, left, right)]
                return f"({parts[0]} ? {parts[1]} : {parts[2]})"
            case Op("==" | "!=" | "<" | "<=" | ">" | ">=" as op, left, right) if left is not None and right is not None:
                return self.relation(op, left, right, scope)
            case _:
                raise CodegenError(f"{expr} is not a condition")

    def condition(self, expr: Expr, scope: Scope) -> str:
        """A condition given as a bool or as data (non-zero)."""
        return self.boolean(expr, scope) if self.is_boolean(expr) else self.nonzero(self.exact(expr, scope))

    @staticmethod
    def is_boolean(expr: Expr) -> bool:
        match expr:
            case BoolConst():
                return True
            case Op("?", left, _, _) if left is not None:
                return Expressions.is_boolean(left)
            case Op(op):
                return op in ("and", "or", "not", "d2b", "valid", "valid_union", "==", "!=", "<", "<=", ">", ">=")
            case _:
                return False

    def nonzero(self, value: Value) -> str:
        if value.kind == "W":
            return f"!pl_w_zero({value.code}, {value.limbs})"
        return f"({value.code} != 0)"

    def is_valid(self, header: HeaderPlace) -> str:
        if header.metadata:
            return "1"
        code = f"({header.cell(0)} != 0)"
        return code if header.guard is None else f"({header.guard} && {code})"

    def relation(self, op: str, left: Expr, right: Expr, scope: Scope) -> str:
        if self.is_boolean(left):
            return f"(!({self.boolean(left, scope)}) {op} !({self.boolean(right, scope)}))"
        if self.is_header(left):
            return self.same(op, self.equal_headers(self.header(left, scope), self.header(right, scope)))
        if self.is_union(left):
            pairs = zip(self.union(left, scope).members, self.union(right, scope).members, strict=True)
            return self.same(op, "(" + " || ".join(self.equal_headers(one, other) for one, other in pairs) + ")")
        return self.compare(op, self.exact(left, scope), self.exact(right, scope))

    @staticmethod
    def same(op: str, equal: str) -> str:
        return equal if op == "==" else f"!{equal}"

    @staticmethod
    def is_header(expr: Expr) -> bool:
        return isinstance(expr, HeaderRef) or (
            isinstance(expr, Op) and expr.op in ("dereference_header_stack", "access_union_header")
        )

    @staticmethod
    def is_union(expr: Expr) -> bool:
        return isinstance(expr, UnionRef) or (isinstance(expr, Op) and expr.op == "dereference_union_stack")

    def equal_headers(self, left: HeaderPlace, right: HeaderPlace) -> str:
        """Both valid, of one type, and equal in every field."""
        if left.type.name != right.type.name:
            return "0"
        cells = " && ".join(f"{left.cell(at)} == {right.cell(at)}" for at in range(1, left.layout.cells))
        both = f"{self.is_valid(left)} && {self.is_valid(right)}"
        return f"({both} && {cells})" if cells else f"({both})"

    def compare(self, op: str, left: Value, right: Value) -> str:
        low, high = min(left.low, right.low), max(left.high, right.high)
        kind = kind_for(low, high)
        if kind == "W":
            limbs = limbs_for(low, high)
            return f"(pl_w_cmp({self.limbs(left, limbs)}, {self.limbs(right, limbs)}, {limbs}) {op} 0)"
        return f"({self.convert(left, kind)} {op} {self.convert(right, kind)})"

    # --- stores ----------------------------------------------------------------------------------------------------

    def store(self, target: Target, expr: Expr, scope: Scope) -> None:
        """Assigns an expression to a field, cut to its width."""
        self.store_value(target, self.low_bits(expr, target.place.bits, scope))

    def store_value(self, target: Target, value: Value) -> None:
        """Assigns a value that already fits the width of the field, as a bit pattern."""
        width = cells_of(target.place.bits)
        guard = "" if target.header.guard is None else f"if ({target.header.guard}) "
        codes = self.words(value, width)
        if len(codes) > 1:  # the source may be the target
            codes = [self.named(Value(code, "u", 0, 0)).code if code != "0ull" else code for code in codes]
        for at, code in enumerate(codes):
            self.emit(f"{guard}{target.cell(at)} = {code};")


__all__ = ["Emitter", "Expressions", "HeaderPlace", "Scope", "Target", "UnionPlace", "Value", "u64"]

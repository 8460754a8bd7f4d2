"""Primitives of actions, parser states and deparsers to C statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from switch.codegen.expressions import Expressions, HeaderPlace, Scope, Target, UnionPlace, u64
from switch.codegen.layout import CodegenError, Layout, cells_of, fixed_bytes
from switch.model import (
    Const,
    Expr,
    ExternRef,
    FieldRef,
    HeaderRef,
    Primitive,
    StackRef,
    StringConst,
    UnionRef,
    UnionStackRef,
    Vector,
)

CLONE_SESSION_BITS = 15  # as in simple_switch


def c_string(text: str) -> str:
    """A C string literal of a text in UTF-8."""
    plain = {ord('"'): '\\"', ord("\\"): "\\\\"}
    parts = [plain.get(byte) or (chr(byte) if 32 <= byte < 127 and byte != ord("?") else f"\\{byte:03o}")
             for byte in text.encode()]  # fmt: skip
    return '"' + "".join(parts) + '"'


def comment(text: str) -> str:
    """A name inside a C comment."""
    return "/* " + text.encode("ascii", "replace").decode().replace("*/", "* /").replace("/*", "/ *") + " */"


class Primitives:
    """Emits primitives into the function of an `Expressions`."""

    def __init__(self, exprs: Expressions) -> None:
        self.exprs = exprs
        self.emit = exprs.emit
        self.layout: Layout = exprs.layout
        self.program = exprs.program
        simple: dict[str, Callable[[Sequence[Expr], Scope], None]] = {
            "assign": lambda args, scope: self.exprs.store(self.exprs.target(args[0], scope), args[1], scope),
            "assign_VL": self.assign_varbit,
            "assign_header": self.assign_header,
            "assign_union": self.assign_union,
            "assign_header_stack": self.assign_stack,
            "assign_union_stack": self.assign_stack,
            "push": lambda args, scope: self.shift_stack("push", args, scope),
            "pop": lambda args, scope: self.shift_stack("pop", args, scope),
            "add_header": self.add_header,
            "remove_header": self.remove_header,
            "mark_to_drop": self.mark_to_drop,
            "drop": lambda args, scope: self.drop(),
            "generate_digest": self.generate_digest,
            "clone_ingress_pkt_to_egress": self.clone,
            "clone_egress_pkt_to_egress": self.clone,
            "resubmit": lambda args, scope: self.again("resubmit", args),
            "recirculate": lambda args, scope: self.again("recirculate", args),
            "modify_field_with_hash_based_offset": self.hash,
            "modify_field_rng_uniform": self.random,
            "execute_meter": self.execute_meter,
            "count": self.count,
            "register_read": self.register_read,
            "register_write": self.register_write,
            "truncate": self.truncate,
            "exit": lambda args, scope: self.emit("p->req.exited = 1;"),
            "log_msg": self.log_msg,
            "no_op": lambda args, scope: None,
            "_no_op": lambda args, scope: None,
        }
        self.simple = simple

    def run(self, primitives: Sequence[Primitive], scope: Scope) -> None:
        """All primitives of an action, with its jumps."""
        targets = {
            argument.value
            for primitive in primitives
            if primitive.op in ("_jump", "_jump_if_zero")
            for argument in primitive.args[-1:]
            if isinstance(argument, Const)
        }
        labels = {target: self.emit.name("J") for target in sorted(targets)}
        for index, primitive in enumerate(primitives):
            if index in labels:
                self.emit.label(labels[index])
            self.emit("{")
            self.emit.depth += 1
            self.one(primitive, scope, labels)
            self.emit.depth -= 1
            self.emit("}")
        for target, label in labels.items():
            if target >= len(primitives):
                self.emit.label(label)

    def one(self, primitive: Primitive, scope: Scope, labels: dict[int, str]) -> None:
        """One primitive."""
        op, args = primitive.op, primitive.args
        if op in ("_jump", "_jump_if_zero"):
            target = args[-1]
            assert isinstance(target, Const)
            condition = f"if (!({self.exprs.condition(args[0], scope)})) " if op == "_jump_if_zero" else ""
            self.emit(f"{condition}goto {labels[target.value]};")
        elif op in ("assert", "assume"):
            self.emit(f"if (!({self.exprs.condition(args[0], scope)})) {{")
            self.emit("    pl->failed_asserts++;")
            text = f"{op} failed: {primitive.source}"
            self.emit(f"    pl_log_line(pl, {c_string(text)});")
            self.emit("}")
        elif op in self.simple:
            self.simple[op](args, scope)
        else:
            raise CodegenError(f"primitive {op!r} is not known")

    # --- headers ---------------------------------------------------------------------------------------------------

    def set_valid(self, header: HeaderPlace) -> None:
        """Marks a header valid; the other members of its union become invalid. Metadata is always valid."""
        if header.metadata:
            return
        self.emit(f"{header.cell(0)} = 1;")
        for peer in header.peers:
            self.emit(f"{header.at(peer)} = 0;")

    def bytes_of(self, header: HeaderPlace) -> str:
        """C code of the bytes of a header as it is now."""
        fixed = fixed_bytes(header.type)
        for field in header.type.fields:
            if field.bits is None:
                length = header.layout.fields[field.name].length_cell
                assert length is not None
                return f"({fixed}u + (uint32_t)({header.cell(length)} / 8))"
        return f"{fixed}u"

    def add_header(self, args: Sequence[Expr], scope: Scope) -> None:
        header = self.exprs.header(args[0], scope)
        if header.metadata:
            return
        guard = "" if header.guard is None else f"{header.guard} && "
        self.emit(f"if ({guard}!{header.cell(0)}) {{")
        self.emit.depth += 1
        for cell in range(1, header.layout.cells):
            self.emit(f"{header.cell(cell)} = 0;")
        self.set_valid(header)
        self.emit(f"p->packet_length += {self.bytes_of(header)};")
        self.emit.depth -= 1
        self.emit("}")

    def remove_header(self, args: Sequence[Expr], scope: Scope) -> None:
        header = self.exprs.header(args[0], scope)
        if header.metadata:
            return
        guard = "" if header.guard is None else f"{header.guard} && "
        self.emit(f"if ({guard}{header.cell(0)}) {{")
        self.emit(f"    p->packet_length -= {self.bytes_of(header)};")
        self.emit(f"    {header.cell(0)} = 0;")
        self.emit("}")

    def copy_header(self, target: HeaderPlace, source: HeaderPlace) -> None:
        """A valid source is copied, an invalid one makes the target invalid."""
        outer = "" if target.guard is None else f"if ({target.guard}) "
        self.emit(f"{outer}{{")
        self.emit.depth += 1
        self.emit(f"if ({self.exprs.is_valid(source)}) {{")
        self.emit.depth += 1
        for cell in range(1, target.layout.cells):
            self.emit(f"{target.cell(cell)} = {source.cell(cell)};")
        self.set_valid(target)
        self.emit.depth -= 1
        self.emit("} else {")
        if not target.metadata:
            self.emit(f"    {target.cell(0)} = 0;")
        self.emit("}")
        self.emit.depth -= 1
        self.emit("}")

    def assign_header(self, args: Sequence[Expr], scope: Scope) -> None:
        self.copy_header(self.exprs.header(args[0], scope), self.exprs.header(args[1], scope))

    def copy_union(self, target: UnionPlace, source: UnionPlace) -> None:
        for one, other in zip(target.members, source.members, strict=True):
            self.copy_header(one, other)

    def assign_union(self, args: Sequence[Expr], scope: Scope) -> None:
        self.copy_union(self.exprs.union(args[0], scope), self.exprs.union(args[1], scope))

    def assign_stack(self, args: Sequence[Expr], scope: Scope) -> None:
        match args:
            case (StackRef(target), StackRef(source)):
                pairs = zip(self.program.stacks[target].headers, self.program.stacks[source].headers, strict=True)
                for one, other in pairs:
                    self.copy_header(self.exprs.named_header(one), self.exprs.named_header(other))
            case (UnionStackRef(target), UnionStackRef(source)):
                stacks = self.program.union_stacks
                for one, other in zip(stacks[target].unions, stacks[source].unions, strict=True):
                    self.copy_union(
                        self.exprs.union(UnionRef(one), Scope()), self.exprs.union(UnionRef(other), Scope())
                    )
            case _:
                raise CodegenError(f"{args} are not two stacks")
        self.emit(f"P[{self.layout.stack_next[target]}] = P[{self.layout.stack_next[source]}];")

    def shift_stack(self, name: str, args: Sequence[Expr], scope: Scope) -> None:
        match args[0]:
            case StackRef(stack):
                headers = self.program.stacks[stack].headers
                size = len(headers)
                first, stride = self.layout.header_base[headers[0]], self.layout.block(headers[0]).cells
            case UnionStackRef(stack):
                unions = [self.program.unions[union] for union in self.program.union_stacks[stack].unions]
                size, first = len(unions), self.layout.header_base[unions[0].headers[0]]
                stride = sum(self.layout.block(header).cells for header in unions[0].headers)
            case _:
                raise CodegenError(f"{args[0]} is not a stack")
        count = self.exprs.count(args[1], scope)
        next_cell = self.layout.stack_next[stack]
        self.emit(f"pl_stack_{name}(P + {first}, {stride}, {size}, &P[{next_cell}], {count});")

    def assign_varbit(self, args: Sequence[Expr], scope: Scope) -> None:
        target, source = self.exprs.target(args[0], scope), self.exprs.target(args[1], scope)
        self.copy_varbit(target, source)

    def copy_varbit(self, target: Target, source: Target) -> None:
        """Value and length, cut to what the target can hold."""
        assert target.place.length_cell is not None
        assert source.place.length_cell is not None
        guards = [header.guard for header in (target.header, source.header) if header.guard is not None]
        self.emit(f"if ({' && '.join(guards) or '1'}) {{")
        self.emit.depth += 1
        for at in range(cells_of(target.place.bits)):
            cell = source.cell(at) if at < cells_of(source.place.bits) else "0"
            self.emit(f"{target.cell(at)} = {cell};")
        most, length = target.place.bits, source.header.cell(source.place.length_cell)
        code = length if source.place.bits <= most else f"({length} < {most} ? {length} : {most})"
        self.emit(f"{target.header.cell(target.place.length_cell)} = {code};")
        self.emit.depth -= 1
        self.emit("}")

    # --- what happens to the packet --------------------------------------------------------------------------------

    def set_field(self, ref: FieldRef | None, code: str) -> None:
        if ref is None:
            return
        place = self.layout.field(ref)
        mask = f" & {u64((1 << place.bits) - 1)}" if place.bits < 64 else ""
        self.emit(f"P[{place.cell}] = (uint64_t)({code}){mask};")

    def mark_to_drop(self, args: Sequence[Expr], scope: Scope) -> None:
        match args[0]:
            case HeaderRef(name):
                fields = {field.name for field in self.program.headers[name].type.fields}
                self.set_field(FieldRef(name, "egress_spec") if "egress_spec" in fields else None, "pl->drop_port")
                self.set_field(FieldRef(name, "mcast_grp") if "mcast_grp" in fields else None, "0")
            case _:
                raise CodegenError(f"mark_to_drop of {args[0]}, which is not the standard metadata")

    def drop(self) -> None:
        self.set_field(self.layout.find_field("standard_metadata.egress_spec"), "pl->drop_port")
        self.set_field(self.layout.find_field("intrinsic_metadata.mcast_grp"), "0")

    def generate_digest(self, args: Sequence[Expr], scope: Scope) -> None:
        assert isinstance(args[1], Const)
        self.emit(f"digest = {args[1].value};")

    def clone(self, args: Sequence[Expr], scope: Scope) -> None:
        assert isinstance(args[1], Const)
        self.emit("p->req.clone = 1;")
        self.emit(f"p->req.clone_session = (uint32_t)({self.exprs.low_bits(args[0], CLONE_SESSION_BITS, scope).code});")
        self.emit(f"p->req.clone_field_list = {args[1].value};")

    def again(self, what: str, args: Sequence[Expr]) -> None:
        assert isinstance(args[0], Const)
        self.emit(f"p->req.{what} = 1;")
        self.emit(f"p->req.{what}_field_list = {args[0].value};")

    def truncate(self, args: Sequence[Expr], scope: Scope) -> None:
        self.emit(f"const uint64_t to = {self.exprs.count(args[0], scope)};")
        self.emit("if (to < p->req.truncate_bytes)")
        self.emit("    p->req.truncate_bytes = (uint32_t)to;")

    # --- externs ---------------------------------------------------------------------------------------------------

    def store_code(self, target: Expr, code: str, bits: int, scope: Scope) -> None:
        """Stores a uint64_t of `bits` significant bits."""
        place = self.exprs.target(target, scope)
        if place.place.bits < bits:
            code = f"(({code}) & {u64((1 << place.place.bits) - 1)})"
        name = self.emit.name("v")
        self.emit(f"const uint64_t {name} = {code};")
        guard = "" if place.header.guard is None else f"if ({place.header.guard}) "
        self.emit(f"{guard}{place.cell()} = {name};")
        for at in range(1, cells_of(place.place.bits)):
            self.emit(f"{guard}{place.cell(at)} = 0;")

    def hash(self, args: Sequence[Expr], scope: Scope) -> None:
        match args[2]:
            case ExternRef(_, name):
                index = list(self.program.calculations).index(name)
            case _:
                raise CodegenError(f"{args[2]} is not a calculation")
        base, size = self.exprs.low_bits(args[1], 64, scope), self.exprs.low_bits(args[3], 64, scope)
        self.emit(f"const uint64_t base = {base.code}, size = {size.code};")
        self.store_code(args[0], f"base + calc_{index}(p) % (size ? size : 1)", 64, scope)

    def random(self, args: Sequence[Expr], scope: Scope) -> None:
        low, high = self.exprs.low_bits(args[1], 64, scope), self.exprs.low_bits(args[2], 64, scope)
        self.emit(f"const uint64_t low = {low.code}, high = {high.code};")
        self.emit("if (low <= high) {")
        self.emit.depth += 1
        self.store_code(args[0], "pl_random_uniform(pl, low, high)", 64, scope)
        self.emit.depth -= 1
        self.emit("}")

    def extern(self, expr: Expr) -> str:
        if not isinstance(expr, ExternRef):
            raise CodegenError(f"{expr} is not an extern")
        return expr.name

    def execute_meter(self, args: Sequence[Expr], scope: Scope) -> None:
        meter = self.program.meters[self.extern(args[0])]
        number = self.layout.meter_index[meter.name]
        self.emit(f"const uint64_t index = {self.exprs.index(args[1], scope)};")
        self.emit(f"if (index < {meter.size}u) {{")
        self.emit.depth += 1
        size = "p->len" if meter.bytes else "1"
        self.store_code(args[2], f"pl_meter_execute(&pl->meters[{number}][index], {size}, pl->now_ps)", 2, scope)
        self.emit.depth -= 1
        self.emit("}")

    def count(self, args: Sequence[Expr], scope: Scope) -> None:
        counter = self.program.counters[self.extern(args[0])]
        number = self.layout.counter_index[counter.name]
        self.emit(f"const uint64_t index = {self.exprs.index(args[1], scope)};")
        self.emit(f"if (index < {counter.size}u)")
        self.emit(f"    pl_count(&pl->counters[{number}][index], p->len);")

    def register_read(self, args: Sequence[Expr], scope: Scope) -> None:
        array = self.program.registers[self.extern(args[1])]
        number, width = self.layout.register_index[array.name], cells_of(array.bits)
        target = self.exprs.target(args[0], scope)
        self.emit(f"const uint64_t index = {self.exprs.index(args[2], scope)};")
        self.emit(f"if (index < {array.size}u) {{")
        self.emit.depth += 1
        self.emit(f"const uint64_t *element = pl->registers[{number}] + index * {width};")
        value = self.exprs.cells([f"element[{at}]" for at in range(width)], array.bits, signed=array.signed)
        self.exprs.store_value(target, self.exprs.cut(value, target.place.bits))
        self.emit.depth -= 1
        self.emit("}")

    def register_write(self, args: Sequence[Expr], scope: Scope) -> None:
        array = self.program.registers[self.extern(args[0])]
        number, width = self.layout.register_index[array.name], cells_of(array.bits)
        self.emit(f"const uint64_t index = {self.exprs.index(args[1], scope)};")
        codes = self.exprs.words(self.exprs.low_bits(args[2], array.bits, scope), width)
        self.emit(f"if (index < {array.size}u) {{")
        self.emit(f"    uint64_t *element = pl->registers[{number}] + index * {width};")
        for at, code in enumerate(codes):
            self.emit(f"    element[{at}] = {code};")
        self.emit("}")

    def log_msg(self, args: Sequence[Expr], scope: Scope) -> None:
        assert isinstance(args[0], StringConst)
        assert isinstance(args[1], Vector)
        parts = split_format(args[0].value, len(args[1].items))
        self.emit("char line[2048];")
        self.emit("size_t used = 0;")
        for part in parts:
            if isinstance(part, str):
                self.emit(f"used = pl_append(line, used, sizeof line, {c_string(part)});")
                continue
            value = self.exprs.exact(args[1].items[part], scope)
            limbs = max(2, -(-max(value.high.bit_length(), value.low.bit_length() + 1) // 64) + 1)
            self.emit(f"used = pl_append_number(line, used, sizeof line, {self.exprs.limbs(value, limbs)}, {limbs});")
        self.emit("pl_log_line(pl, line);")


def split_format(text: str, count: int) -> list[str | int]:
    """Texts and argument numbers of a log_msg format: each {} takes the next argument while there are any."""
    pieces = text.split("{}")
    parts: list[str | int] = [pieces[0]]
    for argument, piece in enumerate(pieces[1:]):
        parts += [argument if argument < count else "{}", piece]
    return [part for part in parts if part != ""]

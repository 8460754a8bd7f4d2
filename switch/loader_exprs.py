"""Type-value objects and expression trees of a BMv2 JSON to `switch.model` expressions, with their kinds checked.

Kinds: data (an integer), bool, varbit, header, stack, union, union_stack, string, vector, and the extern kinds
(calculation, counter_array, meter_array, register_array). BMv2 converts between data and bool only where the JSON says
so (d2b, b2d), and so do we: a data value where a bool is needed is a problem, not a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

from switch.loader_json import Node
from switch.loader_scope import Scope
from switch.model import (
    BoolConst,
    Const,
    Expr,
    ExternRef,
    FieldRef,
    HeaderRef,
    HeaderType,
    Lookahead,
    Op,
    ParamRef,
    RegisterRef,
    StackFieldRef,
    StackRef,
    StringConst,
    UnionRef,
    UnionStackFieldRef,
    UnionStackRef,
    Vector,
)

Typed = tuple[Expr, str]

# operator -> (kinds of left and right, kind of the result); left None for unary operators
_BINARY: dict[str, tuple[str, str, str]] = {
    **dict.fromkeys(("+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^"), ("data", "data", "data")),
    **dict.fromkeys(("two_comp_mod", "sat_cast", "usat_cast"), ("data", "data", "data")),
    **dict.fromkeys(("<", "<=", ">", ">="), ("data", "data", "bool")),
    **dict.fromkeys(("and", "or"), ("bool", "bool", "bool")),
    "dereference_header_stack": ("stack", "data", "header"),
    "dereference_stack": ("stack", "data", "header"),
    "dereference_union_stack": ("union_stack", "data", "union"),
}
_UNARY: dict[str, tuple[tuple[str, ...], str]] = {
    "~": (("data",), "data"),
    "not": (("bool",), "bool"),
    "d2b": (("data",), "bool"),
    "b2d": (("bool",), "data"),
    "valid": (("header",), "bool"),
    "valid_union": (("union",), "bool"),
    "last_stack_index": (("stack", "union_stack"), "data"),
    "size_stack": (("stack", "union_stack"), "data"),
}
OPERATORS = (*_BINARY, *_UNARY, "==", "!=", "?", "access_field", "access_union_header")
_WIDTH_OPS = ("two_comp_mod", "sat_cast", "usat_cast")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an expression stands: what it may refer to."""

    parser: bool = False  # lookahead is allowed
    params: int | None = None  # number of parameters of the enclosing action


class Expressions:
    """Builds expressions against the names of a scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def of_kind(self, node: Node, place: Place, *kinds: str) -> Expr:
        """The type-value object at `node`, which must be of one of `kinds`."""
        expr, kind = self.typed(node, place)
        if kind not in kinds:
            raise node.bad(f"is of kind {kind}, must be {' or '.join(kinds)}")
        return expr

    def typed(self, node: Node, place: Place) -> Typed:
        """The type-value object at `node` and its kind."""
        kind = node.get("type").string()
        value = node.get("value")
        match kind:
            case "expression":
                return self._expression(value, place)
            case "field":
                ref, field = self.scope.field_ref(value)
                return ref, "varbit" if field.bits is None else "data"
            case "hexstr":
                return Const(value.hexstr()), "data"
            case "bool":
                if not isinstance(value.value, bool):
                    raise value.wrong("true or false")
                return BoolConst(value.value), "bool"
            case "string":
                return StringConst(value.string()), "string"
            case "header":
                return HeaderRef(self.scope.header(value.string(), value).name), "header"
            case "header_stack":
                return StackRef(self.scope.stack(value.string(), value).name), "stack"
            case "header_union":
                union = self.scope.resolve("header union", self.scope.unions, value.string(), value)
                return UnionRef(union.name), "union"
            case "header_union_stack":
                stack = self.scope.resolve("header union stack", self.scope.union_stacks, value.string(), value)
                return UnionStackRef(stack.name), "union_stack"
            case "stack_field":
                return self._stack_field(value)
            case "union_stack_field":
                return self._union_stack_field(value)
            case "lookahead":
                return self._lookahead(node, value, place)
            case "runtime_data" | "local":
                return self._parameter(kind, value, place)
            case "register":
                return self._register(value, place)
            case "parameters_vector":
                # p4c writes {} for a vector without elements
                items = [] if value.value == {} else value.items()
                return Vector(tuple(self.of_kind(item, place, "data") for item in items)), "vector"
            case "calculation" | "counter_array" | "meter_array" | "register_array":
                return self._extern(kind, value)
            case _:
                raise node.get("type").bad(f"is {kind!r}, which this target does not support as a value")

    def _stack_field(self, value: Node) -> Typed:
        stack_node, field_node = value.items(2)
        stack = self.scope.stack(stack_node.string(), value)
        field = self.scope.field_of(stack.type, field_node.string(), value)
        return StackFieldRef(stack.name, field.name), "varbit" if field.bits is None else "data"

    def _union_stack_field(self, value: Node) -> Typed:
        stack_node, member_node, field_node = value.items(3)
        name = stack_node.string()
        stack = self.scope.resolve("header union stack", self.scope.union_stacks, name, value)
        member = member_node.string()
        header_type = self.scope.union_member(self.scope.union_stack_types[stack.name], member, value)
        field = self.scope.field_of(header_type, field_node.string(), value)
        return UnionStackFieldRef(stack.name, member, field.name), "varbit" if field.bits is None else "data"

    def _lookahead(self, node: Node, value: Node, place: Place) -> Typed:
        if not place.parser:
            raise node.bad("is a lookahead, which only parser states may use")
        offset, bits = value.items(2)
        return Lookahead(offset.integer(0, 1 << 20), bits.integer(1, 1 << 20)), "data"

    def _parameter(self, kind: str, value: Node, place: Place) -> Typed:
        index = value.integer()
        if place.params is None:
            raise value.bad(f"refers to {kind} {index} outside of an action")
        if index >= place.params:
            raise value.bad(f"refers to parameter {index}, the action has {place.params}")
        return ParamRef(index), "data"

    def _register(self, value: Node, place: Place) -> Typed:
        name, index = value.items(2)
        register = self.scope.resolve("register array", self.scope.registers, name.string(), value)
        return RegisterRef(register.name, self.of_kind(index, place, "data")), "data"

    def _extern(self, kind: str, value: Node) -> Typed:
        name = value.string()
        if kind == "calculation":
            self.scope.resolve("calculation", self.scope.calculations, name, value)
        elif kind == "counter_array":
            counter = self.scope.resolve("counter array", self.scope.counters, name, value)
            if counter.direct_table is not None:
                raise value.bad(f"counter array {name!r} is direct and cannot be indexed")
        elif kind == "meter_array":
            meter = self.scope.resolve("meter array", self.scope.meters, name, value)
            if meter.direct_table is not None:
                raise value.bad(f"meter array {name!r} is direct and cannot be indexed")
        else:
            self.scope.resolve("register array", self.scope.registers, name, value)
        return ExternRef(kind, name), kind

    def _expression(self, value: Node, place: Place) -> Typed:
        # p4c wraps: {type: expression, value: {type: expression, value: {op: ...}}}
        if value.has("type"):
            return self.typed(value, place)
        op = value.get("op").string()
        left, right = value.opt("left"), value.get("right")
        if op == "access_field":
            return self._access_field(value, place)
        if op == "access_union_header":
            return self._access_union_header(value, place)
        if op == "?":
            return self._ternary(value, place)
        if op in ("==", "!="):
            lhs, left_kind = self.typed(value.get("left"), place)
            rhs, right_kind = self.typed(right, place)
            if left_kind != right_kind or left_kind not in ("data", "bool", "varbit", "header", "union"):
                raise value.bad(
                    f"{op!r} compares {left_kind} with {right_kind}; must be two data, bool, varbit, header or union"
                )
            return Op(op, lhs, rhs), "bool"
        if op in ("+", "-") and left is None:
            return Op(op, None, self.of_kind(right, place, "data")), "data"
        if op in _UNARY:
            if left is not None:
                raise value.get("left").bad(f"must be null for the unary operator {op!r}")
            kinds, result = _UNARY[op]
            return Op(op, None, self.of_kind(right, place, *kinds)), result
        if op not in _BINARY:
            raise value.get("op").bad(f"is {op!r}, must be one of {' '.join(OPERATORS)}")
        left_kind, right_kind, result = _BINARY[op]
        lhs = self.of_kind(value.get("left"), place, left_kind)
        rhs = self.of_kind(right, place, right_kind)
        if op in _WIDTH_OPS and not (isinstance(rhs, Const) and rhs.value >= 1):
            raise right.bad(f"must be a constant width of at least 1 for {op!r}")
        return Op("dereference_header_stack" if op == "dereference_stack" else op, lhs, rhs), result

    def _ternary(self, value: Node, place: Place) -> Typed:
        condition = self.of_kind(value.get("cond"), place, "bool")
        lhs, left_kind = self.typed(value.get("left"), place)
        rhs, right_kind = self.typed(value.get("right"), place)
        if left_kind != right_kind or left_kind not in ("data", "bool"):
            raise value.bad(f"'?' chooses between {left_kind} and {right_kind}; must be two data or two bool")
        return Op("?", lhs, rhs, condition), left_kind

    def _access_field(self, value: Node, place: Place) -> Typed:
        header = self.of_kind(value.get("left"), place, "header")
        header_type = self.header_type_of(header, value)
        index = value.get("right").integer()
        if index >= len(header_type.fields):
            raise value.get("right").bad(
                f"is field {index}, header type {header_type.name!r} has {len(header_type.fields)}"
            )
        kind = "varbit" if header_type.fields[index].bits is None else "data"
        return Op("access_field", header, Const(index)), kind

    def _access_union_header(self, value: Node, place: Place) -> Typed:
        union = self.of_kind(value.get("left"), place, "union")
        size = len(self.scope.unions[self._some_union(union)].members)
        index = value.get("right").integer()
        if index >= size:
            raise value.get("right").bad(f"is member {index}, the union has {size}")
        return Op("access_union_header", union, Const(index)), "header"

    def _some_union(self, expr: Expr) -> str:
        """A union that the expression may denote; all of a stack have one type."""
        match expr:
            case UnionRef(union):
                return union
            case Op("dereference_union_stack", UnionStackRef(stack), _):
                return self.scope.union_stacks[stack].unions[0]
            case _:
                raise AssertionError(expr)

    def header_type_of(self, expr: Expr, node: Node) -> HeaderType:
        """The header type of an expression of kind header."""
        match expr:
            case HeaderRef(header):
                return self.scope.headers[header].type
            case Op("dereference_header_stack", StackRef(stack), _):
                return self.scope.stacks[stack].type
            case Op("access_union_header", union, Const(index)) if union is not None:
                return self.scope.headers[self.scope.unions[self._some_union(union)].headers[index]].type
            case _:
                raise node.bad("is a header that is not a header, a stack element or a union member")

    def shape(self, expr: Expr, node: Node) -> tuple[tuple[int | None, ...], ...]:
        """Field widths of every header behind a header, union, stack or union stack (None: varbit)."""
        match expr:
            case StackRef(stack):
                types = [self.scope.headers[name].type for name in self.scope.stacks[stack].headers]
            case UnionStackRef(stack):
                unions = [self.scope.unions[name] for name in self.scope.union_stacks[stack].unions]
                types = [self.scope.headers[name].type for union in unions for name in union.headers]
            case UnionRef() | Op("dereference_union_stack"):
                types = [self.scope.headers[name].type for name in self.scope.unions[self._some_union(expr)].headers]
            case _:
                types = [self.header_type_of(expr, node)]
        return tuple(tuple(field.bits for field in header_type.fields) for header_type in types)

    def is_lvalue(self, expr: Expr) -> bool:
        """Whether a field can be stored through this expression."""
        match expr:
            case FieldRef(_, "$valid$") | StackFieldRef(_, "$valid$"):
                return False
            case FieldRef() | StackFieldRef() | Op("access_field"):
                return True
            case _:
                return False

"""The parser and the value sets of a BMv2 JSON to the model."""

from __future__ import annotations

from switch.loader_actions import Primitives, named
from switch.loader_exprs import Expressions, Place
from switch.loader_json import Node
from switch.loader_scope import Scope
from switch.model import (
    Advance,
    Const,
    Expr,
    Extract,
    FieldRef,
    HeaderRef,
    HeaderType,
    Lookahead,
    Parser,
    ParserOp,
    ParseState,
    SetField,
    StackFieldRef,
    StackRef,
    Transition,
    UnionStackFieldRef,
    UnionStackRef,
    ValueSet,
    Verify,
)

_PLACE = Place(parser=True)


def load_value_sets(root: Node, scope: Scope) -> None:
    """All value sets into the scope. A set without max_size (p4c always writes one) is unbounded."""
    for node in root.list_of("parse_vsets"):
        with scope.each("value set", node):
            name = node.get("name").string()
            size = node.opt("max_size")
            bits = node.get("compressed_bitwidth").integer(1, 1 << 16)
            value_set = ValueSet(name, bits, (1 << 31) - 1 if size is None else size.integer())
            scope.declare("value set", scope.value_sets, name, value_set, node)


def load_parser(root: Node, scope: Scope, exprs: Expressions) -> Parser:
    """The parser named "parser", as simple_switch picks it."""
    node = named(root, "parsers", "parser")
    loader = _Loader(scope, exprs)
    state_nodes = node.get("parse_states").items()
    names = {item.value["name"] for item in state_nodes if item.has("name") and isinstance(item.value["name"], str)}
    states: dict[str, ParseState] = {}
    for item in state_nodes:
        with scope.each():
            state = loader.state(item, names)
            scope.declare("parse state", states, state.name, state, item)
    init = node.get("init_state").string_or_null()
    if init is not None and init not in names:
        raise node.get("init_state").bad(f"is {init!r}, which is not a state of the parser")
    return Parser("parser", init, states)


class _Loader:
    def __init__(self, scope: Scope, exprs: Expressions) -> None:
        self.scope = scope
        self.exprs = exprs
        self.primitives = Primitives(scope, exprs)

    def state(self, node: Node, names: set[str]) -> ParseState:
        name = node.get("name").string()
        ops: list[ParserOp] = []
        for item in node.list_of("parser_ops"):
            with self.scope.each():
                ops.append(self._op(item))
        key: list[Expr] = []
        bits: list[int] = []
        for item in node.list_of("transition_key"):
            expr = self.exprs.of_kind(item, _PLACE, "data")
            key.append(expr)
            bits.append(self._key_bits(expr, item))
        transitions: list[Transition] = []
        for item in node.list_of("transitions"):
            with self.scope.each():
                transitions.append(self._transition(item, tuple(bits), names))
        return ParseState(name, tuple(ops), tuple(key), tuple(bits), tuple(transitions))

    def _key_bits(self, expr: Expr, node: Node) -> int:
        bits: int | None
        match expr:
            case FieldRef(header, field):
                bits = self.scope.field_of(self.scope.headers[header].type, field, node).bits
            case StackFieldRef(stack, field):
                bits = self.scope.field_of(self.scope.stacks[stack].type, field, node).bits
            case UnionStackFieldRef(stack, member, field):
                members = self.scope.union_stack_types[stack]
                bits = self.scope.field_of(self.scope.union_member(members, member, node), field, node).bits
            case Lookahead(_, width):
                bits = width
            case _:
                raise node.bad("must be a field, stack_field, union_stack_field or lookahead")
        assert bits is not None  # of kind data
        return bits

    def _op(self, node: Node) -> ParserOp:
        op = node.get("op").string()
        parameters = node.get("parameters")
        match op:
            case "extract":
                (target,) = parameters.items(1)
                return self._extract(target, None)
            case "extract_VL":
                target, length = parameters.items(2)
                return self._extract(target, self.exprs.of_kind(length, _PLACE, "data"))
            case "set":
                return self._set(parameters)
            case "verify":
                condition, error = parameters.items(2)
                return Verify(
                    self.exprs.of_kind(condition, _PLACE, "bool"),
                    Const(error.integer()) if isinstance(error.value, int) else self._error(error),
                )
            case "advance":
                (bits,) = parameters.items(1)
                return Advance(self.exprs.of_kind(bits, _PLACE, "data"))
            case "shift":
                (shift,) = parameters.items(1)
                return Advance(Const(8 * shift.integer(0, 1 << 20)))
            case "primitive":
                (call,) = parameters.items(1)
                return self.primitives.load(call, _PLACE, None, "parser")
            case _:
                raise node.get("op").bad(
                    f"is {op!r}, must be extract, extract_VL, set, verify, advance, shift or primitive"
                )

    def _error(self, node: Node) -> Expr:
        return self.exprs.of_kind(node, _PLACE, "data")

    def _extract(self, node: Node, varbit_bits: Expr | None) -> Extract:
        kind, value = node.get("type").string(), node.get("value")
        target: HeaderRef | StackRef | UnionStackRef
        member: str | None = None
        header_type: HeaderType
        match kind:
            case "regular":
                header = self.scope.header(value.string(), value)
                if header.metadata:
                    raise value.bad(f"extracts into {header.name!r}, which is metadata")
                target, header_type = HeaderRef(header.name), header.type
            case "stack":
                stack = self.scope.stack(value.string(), value)
                target, header_type = StackRef(stack.name), stack.type
            case "union_stack":
                stack_node, member_node = value.items(2)
                name = stack_node.string()
                union_stack = self.scope.resolve("header union stack", self.scope.union_stacks, name, value)
                member = member_node.string()
                header_type = self.scope.union_member(self.scope.union_stack_types[name], member, value)
                target = UnionStackRef(union_stack.name)
            case _:
                raise node.get("type").bad(f"is {kind!r}, must be regular, stack or union_stack")
        if header_type.max_length_bytes is None and varbit_bits is not None:
            raise node.bad(f"extract_VL of header type {header_type.name!r}, which has no varbit field")
        if header_type.max_length_bytes is not None and varbit_bits is None:
            raise node.bad(f"extract of header type {header_type.name!r}, which has a varbit field: needs extract_VL")
        return Extract(target, member, varbit_bits)

    def _set(self, parameters: Node) -> SetField:
        target_node, value_node = parameters.items(2)
        target, kind = self.exprs.typed(target_node, _PLACE)
        if not isinstance(target, FieldRef | StackFieldRef) or not self.exprs.is_lvalue(target):
            raise target_node.bad("is not a field that a parser state can set")
        return SetField(target, self.exprs.of_kind(value_node, _PLACE, kind))

    def _transition(self, node: Node, key_bits: tuple[int, ...], names: set[str]) -> Transition:
        type_node = node.opt("type")
        kind = "hexstr" if type_node is None else type_node.string()
        next_state = node.get("next_state").string_or_null()
        if next_state is not None and next_state not in names:
            raise node.get("next_state").bad(f"is {next_state!r}, which is not a state of the parser")
        if kind == "default" or (kind == "hexstr" and node.get("value").value == "default"):
            return Transition("default", next_state)
        mask_node = node.opt("mask")
        key_bytes = sum((bits + 7) // 8 for bits in key_bits)
        if kind == "parse_vset":
            return self._value_set_transition(node, key_bits, next_state, mask_node)
        if kind != "hexstr":
            raise node.get("type").bad(f"is {kind!r}, must be default, hexstr or parse_vset")
        value = self._padded(node.get("value"), key_bytes)
        mask = None if mask_node is None else self._padded(mask_node, key_bytes)
        return Transition("value", next_state, value, mask)

    def _padded(self, node: Node, key_bytes: int) -> int:
        value = node.hexstr()
        if value < 0 or node.hex_bytes() != key_bytes:
            raise node.wrong(f"{key_bytes} bytes, the padded width of the transition key")
        return value

    def _value_set_transition(
        self, node: Node, key_bits: tuple[int, ...], next_state: str | None, mask_node: Node | None
    ) -> Transition:
        name = node.get("value").string()
        value_set = self.scope.resolve("value set", self.scope.value_sets, name, node.get("value"))
        if sum(key_bits) != value_set.bits:
            raise node.bad(f"value set {name!r} has {value_set.bits} bits, the transition key {sum(key_bits)}")
        mask: int | None = None
        if mask_node is not None:
            mask = self._padded(mask_node, sum((bits + 7) // 8 for bits in key_bits))
        return Transition("vset", next_state, mask=mask, value_set=name)

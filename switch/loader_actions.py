"""Primitives, actions, deparser and parser of a BMv2 JSON to the model, with arities and argument kinds checked."""

from __future__ import annotations

from switch.loader_exprs import Expressions, Place
from switch.loader_json import Node
from switch.loader_scope import Scope
from switch.model import (
    Action,
    ActionParam,
    Const,
    Deparser,
    Expr,
    Primitive,
)

# Classes of arguments. "target": a field that can be stored into; "varbit target": the same for varbit.
# "offset": a constant index of a primitive; "field_list", "learn_list": a constant id of one.
SIGNATURES: dict[str, tuple[str, ...]] = {
    "assign": ("target", "data"),
    "assign_VL": ("varbit target", "varbit"),
    "assign_header": ("header", "header"),
    "assign_union": ("union", "union"),
    "assign_header_stack": ("stack", "stack"),
    "assign_union_stack": ("union_stack", "union_stack"),
    "push": ("any stack", "data"),
    "pop": ("any stack", "data"),
    "add_header": ("header",),
    "remove_header": ("header",),
    "mark_to_drop": ("header",),
    "drop": (),
    "generate_digest": ("data", "learn_list"),
    "clone_ingress_pkt_to_egress": ("data", "field_list"),
    "clone_egress_pkt_to_egress": ("data", "field_list"),
    "resubmit": ("field_list",),
    "recirculate": ("field_list",),
    "modify_field_with_hash_based_offset": ("target", "data", "calculation", "data"),
    "modify_field_rng_uniform": ("target", "data", "data"),
    "execute_meter": ("meter_array", "data", "target"),
    "count": ("counter_array", "data"),
    "register_read": ("target", "register_array", "data"),
    "register_write": ("register_array", "data", "data"),
    "truncate": ("data",),
    "assert": ("condition",),
    "assume": ("condition",),
    "exit": (),
    "log_msg": ("string", "vector"),
    "_jump": ("offset",),
    "_jump_if_zero": ("condition", "offset"),
    "no_op": (),
    "_no_op": (),
}
_HEADER_PRIMITIVES = ("assign_header", "assign_union", "assign_header_stack", "assign_union_stack")
_DEPARSER_PRIMITIVES = frozenset(("assert", "assume", "log_msg"))
_PARSER_PRIMITIVES = _DEPARSER_PRIMITIVES.union(
    _HEADER_PRIMITIVES, ("assign", "assign_VL", "push", "pop", "add_header", "remove_header")
)


class Primitives:
    """Loads primitive calls."""

    def __init__(self, scope: Scope, exprs: Expressions) -> None:
        self.scope = scope
        self.exprs = exprs

    def load(self, node: Node, place: Place, calls: int | None, where: str) -> Primitive:
        """One call. `calls`: number of calls in the action, for jumps; `where`: action, parser or deparser."""
        op = node.get("op").string()
        if op not in SIGNATURES:
            raise node.get("op").bad(f"is {op!r}, which is not a primitive of this target")
        allowed = {"parser": _PARSER_PRIMITIVES, "deparser": _DEPARSER_PRIMITIVES}.get(where)
        if allowed is not None and op not in allowed:
            raise node.get("op").bad(f"is {op!r}, which a {where} cannot run")
        classes = SIGNATURES[op]
        arguments = node.list_of("parameters")
        if len(arguments) != len(classes):
            raise node.bad(f"{op} has {len(arguments)} parameters, must have {len(classes)}")
        args = tuple(
            self._argument(argument, argument_class, place, calls)
            for argument, argument_class in zip(arguments, classes, strict=True)
        )
        if op in _HEADER_PRIMITIVES:
            self._same_shape(node, op, args)
        return Primitive(op, args, _source(node))

    def _argument(self, node: Node, argument_class: str, place: Place, calls: int | None) -> Expr:
        match argument_class:
            case "target":
                expr = self.exprs.of_kind(node, place, "data")
                if not self.exprs.is_lvalue(expr):
                    raise node.bad("is not a field that can be written")
                return expr
            case "varbit target" | "varbit":
                return self.exprs.of_kind(node, place, "varbit")
            case "any stack":
                return self.exprs.of_kind(node, place, "stack", "union_stack")
            case "condition":
                return self.exprs.of_kind(node, place, "data", "bool")
            case "offset":
                return self._constant(node, place, 0, calls if calls is not None else 0, "the index of a primitive")
            case "field_list" | "learn_list":
                expr = self._constant(node, place, 0, (1 << 31) - 1, f"the id of a {argument_class}")
                if argument_class == "field_list":
                    self.scope.resolve("field list", self.scope.field_lists, expr.value, node)
                else:
                    self.scope.resolve("learn list", self.scope.learn_lists, expr.value, node)
                return expr
            case _:
                return self.exprs.of_kind(node, place, argument_class)

    def _constant(self, node: Node, place: Place, low: int, high: int, what: str) -> Const:
        expr = self.exprs.of_kind(node, place, "data")
        if not isinstance(expr, Const) or not low <= expr.value <= high:
            raise node.wrong(f"a constant in {low}..{high}, {what}")
        return expr

    def _same_shape(self, node: Node, op: str, args: tuple[Expr, ...]) -> None:
        left, right = (self.exprs.shape(arg, node) for arg in args)
        if left != right:
            raise node.bad(f"{op} copies between different types (field widths {right} to {left})")


def _source(node: Node) -> str:
    info = node.opt("source_info")
    if info is None or not isinstance(info.value, dict):
        return ""
    file_name, line = info.value.get("filename", ""), info.value.get("line", "")
    return f"{file_name}:{line}: {info.value.get('source_fragment', '')}"


def load_actions(root: Node, scope: Scope, exprs: Expressions) -> None:
    """All actions into the scope, by id."""
    primitives = Primitives(scope, exprs)
    for node in root.list_of("actions"):
        with scope.each("action", node, "id"):
            name, identifier = node.get("name").string(), node.get("id").integer()
            params = tuple(
                ActionParam(item.get("name").string(), item.get("bitwidth").integer(1, 1 << 20))
                for item in node.list_of("runtime_data")
            )
            calls = node.list_of("primitives")
            loaded: list[Primitive] = []
            for call in calls:
                with scope.each():
                    loaded.append(primitives.load(call, Place(params=len(params)), len(calls), "action"))
            scope.declare("action id", scope.actions, identifier, Action(identifier, name, params, tuple(loaded)), node)


def load_deparser(root: Node, scope: Scope, exprs: Expressions) -> Deparser:
    """The deparser named "deparser", as simple_switch picks it."""
    node = named(root, "deparsers", "deparser")
    primitives = Primitives(scope, exprs)
    order: list[str] = []
    for item in node.get("order").items():
        with scope.each():
            header = scope.header(item.string(), item)
            if header.metadata:
                raise item.bad(f"emits {header.name!r}, which is metadata")
            order.append(header.name)
    calls = []
    for call in node.list_of("primitives"):
        with scope.each():
            calls.append(primitives.load(call, Place(), None, "deparser"))
    return Deparser("deparser", tuple(order), tuple(calls))


def named(root: Node, key: str, name: str) -> Node:
    """The element of the array `key` with that name; it must be there once."""
    found = [node for node in root.get(key).items() if node.has("name") and node.value["name"] == name]
    if len(found) != 1:
        names = ", ".join(str(node.value.get("name")) for node in root.get(key).items() if isinstance(node.value, dict))
        raise root.get(key).bad(f"must have exactly one element named {name!r} (v1model), has: {names}")
    return found[0]

"""Counters, meters, registers, calculations, checksums, field lists and learn lists of a BMv2 JSON to the model."""

from __future__ import annotations

from switch.hashes import ALGORITHMS
from switch.loader_exprs import Expressions, Place
from switch.loader_json import Node
from switch.loader_scope import Scope
from switch.model import (
    CalcInput,
    Calculation,
    Checksum,
    Const,
    CounterArray,
    Expr,
    FieldList,
    FieldRef,
    HeaderRef,
    LearnList,
    MeterArray,
    RegisterArray,
)

MAX_CELLS = 1 << 26  # cells of one array; keeps a wrong size from eating the machine's memory


def load_arrays(root: Node, scope: Scope) -> None:
    """Counter, meter and register arrays into the scope."""
    for node in root.list_of("counter_arrays"):
        with scope.each("counter array", node):
            name, table = node.get("name").string(), _direct_table(node)
            size = node.get("size").integer(0, MAX_CELLS) if table is None else 0
            scope.declare("counter array", scope.counters, name, CounterArray(name, size, table), node)
    for node in root.list_of("meter_arrays"):
        with scope.each("meter array", node):
            _meter(node, scope)
    for node in root.list_of("register_arrays"):
        with scope.each("register array", node):
            name = node.get("name").string()
            size, bits = node.get("size").integer(0, MAX_CELLS), node.get("bitwidth").integer(1, 1 << 16)
            scope.declare("register array", scope.registers, name, RegisterArray(name, size, bits), node)
    for node in root.list_of("extern_instances"):
        with scope.each():
            raise node.bad(f"is an extern of type {node.get('type').value!r}, this target has no user externs")


def _direct_table(node: Node) -> str | None:
    direct = node.opt("is_direct")
    return node.get("binding").string() if direct is not None and direct.boolean() else None


def _meter(node: Node, scope: Scope) -> None:
    name, kind, table = node.get("name").string(), node.get("type").string(), _direct_table(node)
    if kind not in ("bytes", "packets"):
        raise node.get("type").wrong("bytes or packets")
    rates = node.get("rate_count").integer()
    if rates != 2:
        raise node.get("rate_count").bad(f"is {rates}, this target has meters of 2 rates")
    size = node.get("size").integer(0, MAX_CELLS) if table is None else 0
    result: FieldRef | None = None
    if table is not None:
        result = scope.fixed_field(node.get("result_target"))[0]
    scope.declare(
        "meter array", scope.meters, name, MeterArray(name, size, kind == "bytes", rates, table, result), node
    )


def load_calculations(root: Node, scope: Scope) -> None:
    """Named calculations into the scope."""
    for node in root.list_of("calculations"):
        with scope.each("calculation", node):
            name, algorithm = node.get("name").string(), algorithm_of(node)
            items = node.get("input").items()
            inputs = tuple(_input(item, scope, last=index == len(items) - 1) for index, item in enumerate(items))
            scope.declare("calculation", scope.calculations, name, Calculation(name, algorithm, inputs), node)


def algorithm_of(node: Node) -> str:
    """The hash algorithm `algo` of a calculation or selector, which this target must have."""
    algorithm = node.get("algo").string()
    if algorithm not in ALGORITHMS:
        raise node.get("algo").bad(f"is {algorithm!r}, must be one of {' '.join(sorted(ALGORITHMS))}")
    return algorithm


def _input(node: Node, scope: Scope, *, last: bool) -> CalcInput:
    kind = node.get("type").string()
    match kind:
        case "field":
            ref, field = scope.field_ref(node.get("value"))
            return CalcInput(ref, field.bits)
        case "hexstr":
            bits = node.get("bitwidth").integer(1, 1 << 16)
            value = node.get("value").hexstr()
            return CalcInput(Const(value % (1 << bits)), bits)
        case "header":
            return CalcInput(HeaderRef(scope.header(node.get("value").string(), node).name), None)
        case "payload":
            if not last:
                raise node.bad("the payload must be the last input")
            return CalcInput(None, None)
        case _:
            raise node.get("type").bad(f"is {kind!r}, must be field, hexstr, header or payload")


def load_checksums(root: Node, scope: Scope, exprs: Expressions) -> tuple[Checksum, ...]:
    """Checksums in the order in which they are computed."""
    checksums: list[Checksum] = []
    for node in root.list_of("checksums"):
        with scope.each():
            kind = node.get("type").string()
            if kind != "generic":
                raise node.get("type").bad(f"is {kind!r}, this target has generic checksums only")
            name_node = node.get("calculation")
            calculation = scope.resolve("calculation", scope.calculations, name_node.string(), name_node)
            condition = node.opt("if_cond")
            flags = [node.opt(key) for key in ("verify", "update")]
            verify, update = (flag is None or flag.boolean() for flag in flags)
            checksums.append(
                Checksum(
                    node.get("name").string(),
                    scope.fixed_field(node.get("target"))[0],
                    calculation.name,
                    None if condition is None else exprs.of_kind(condition, Place(), "bool"),
                    verify,
                    update,
                )
            )
    return tuple(checksums)


def load_lists(root: Node, scope: Scope) -> None:
    """Field lists and learn lists into the scope, by id. Ids start at 1: simple_switch takes 0 for "none"."""
    for node in root.list_of("field_lists"):
        with scope.each("field list", node, "id"):
            identifier, elements = node.get("id").integer(1, (1 << 15) - 1), []
            for item in node.get("elements").items():
                elements.append(_list_element(item, scope))
            name = node.get("name").string()
            scope.declare(
                "field list", scope.field_lists, identifier, FieldList(identifier, name, tuple(elements)), node
            )
    for node in root.list_of("learn_lists"):
        with scope.each("learn list", node, "id"):
            identifier = node.get("id").integer(1, (1 << 15) - 1)
            learned = tuple(_learn_element(item, scope) for item in node.get("elements").items())
            name = node.get("name").string()
            scope.declare("learn list", scope.learn_lists, identifier, LearnList(identifier, name, learned), node)


def _list_element(node: Node, scope: Scope) -> Expr:
    kind = node.get("type").string()
    if kind == "field":
        return scope.field_ref(node.get("value"))[0]
    if kind == "header":
        return HeaderRef(scope.header(node.get("value").string(), node).name)
    raise node.get("type").bad(f"is {kind!r}, a field list preserves fields and headers")


def _learn_element(node: Node, scope: Scope) -> tuple[Expr, int]:
    kind = node.get("type").string()
    if kind == "field":
        return scope.fixed_field(node.get("value"))
    if kind == "hexstr":
        # no width in the JSON: BMv2 sends the bytes as they are spelled
        value = node.get("value")
        bits = 8 * value.hex_bytes()
        return Const(value.hexstr() % (1 << bits)), bits
    raise node.get("type").bad(f"is {kind!r}, a digest holds fields and constants")

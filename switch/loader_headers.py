"""Header types, instances, stacks, unions, aliases, errors and enums of a BMv2 JSON into a `Scope`."""

from __future__ import annotations

from collections.abc import Mapping

from switch.loader_json import Node
from switch.loader_scope import Scope
from switch.model import (
    FieldRef,
    FieldType,
    Header,
    HeaderStack,
    HeaderType,
    HeaderUnion,
    HeaderUnionStack,
)

# Errors of core.p4 in its order; the parser raises them by name.
CORE_ERRORS = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)
_MAX_ERROR = (1 << 31) - 2

# What simple_switch itself reads and writes; a program without them cannot run on it.
REQUIRED_FIELDS = ("ingress_port", "packet_length", "instance_type", "egress_spec", "egress_port")


def load_headers(root: Node, scope: Scope) -> None:
    """Everything that declares storage, in the order of its dependencies."""
    for node in root.list_of("header_types"):
        with scope.each("header type", node):
            _header_type(node, scope)
    for node in root.list_of("header_union_types"):
        with scope.each("header union type", node):
            _union_type(node, scope)
    for node in root.list_of("headers"):
        with scope.each("header", node):
            _header(node, scope)
    for node in root.list_of("header_stacks"):
        with scope.each("header stack", node):
            _stack(node, scope)
    for node in root.list_of("header_unions"):
        with scope.each("header union", node):
            _union(node, scope)
    for node in root.list_of("header_union_stacks"):
        with scope.each("header union stack", node):
            _union_stack(node, scope)


def _field_type(node: Node) -> FieldType:
    items = node.items()
    if len(items) not in (2, 3):
        raise node.wrong("[name, bits] or [name, bits, signed]")
    name = items[0].string()
    signed = len(items) == 3 and items[2].boolean()
    if items[1].value == "*":
        return FieldType(name, None)
    return FieldType(name, items[1].integer(1, 1 << 20), signed)


def _header_type(node: Node, scope: Scope) -> None:
    name = node.get("name").string()
    fields = tuple(_field_type(item) for item in node.get("fields").items())
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            raise node.bad(f"has field {field.name!r} twice")
        seen.add(field.name)
    if node.opt("length_exp") is not None:
        raise node.bad("has a length_exp (P4_14); this target takes the length from extract_VL")
    varbits = sum(field.bits is None for field in fields)
    if varbits > 1:
        raise node.bad(f"has {varbits} varbit fields, one is allowed")
    max_length: int | None = None
    if varbits:
        max_length = node.get("max_length").integer(1, 1 << 16)
        fixed_bits = sum(field.bits or 0 for field in fields)
        if max_length * 8 < fixed_bits:
            raise node.get("max_length").bad(f"is {max_length} bytes, the fixed fields alone have {fixed_bits} bits")
    scope.declare("header type", scope.header_types, name, HeaderType(name, fields, max_length), node)


def _union_type(node: Node, scope: Scope) -> None:
    name = node.get("name").string()
    members: list[tuple[str, str]] = []
    for item in node.get("headers").items():
        member, type_node = item.items(2)
        header_type = scope.resolve("header type", scope.header_types, type_node.string(), type_node)
        members.append((member.string(), header_type.name))
    if not members:
        raise node.bad("has no members")
    scope.declare("header union type", scope.union_types, name, tuple(members), node)


def _header(node: Node, scope: Scope) -> None:
    name = node.get("name").string()
    type_node = node.get("header_type")
    header_type = scope.resolve("header type", scope.header_types, type_node.string(), type_node)
    metadata_node = node.opt("metadata")
    metadata = metadata_node is not None and metadata_node.boolean()
    bits = sum(field.bits or 0 for field in header_type.fields)
    if not metadata and bits % 8:
        raise node.bad(f"has {bits} bits, a header that is not metadata needs whole bytes")
    identifier = node.get("id").integer()
    scope.declare("header", scope.headers, name, Header(name, header_type, metadata), node)
    scope.declare("header id", scope.header_ids, identifier, name, node)


def _member_headers(node: Node, scope: Scope) -> tuple[str, ...]:
    names = []
    for item in node.get("header_ids").items():
        names.append(scope.resolve("header id", scope.header_ids, item.integer(), item))
    if not names:
        raise node.get("header_ids").bad("is empty")
    return tuple(names)


def _check_type(node: Node, header: str, expected: str, scope: Scope) -> None:
    actual = scope.headers[header].type.name
    if actual != expected:
        raise node.bad(f"holds header {header!r} of type {actual!r}, must be of type {expected!r}")


def _stack(node: Node, scope: Scope) -> None:
    name = node.get("name").string()
    type_node = node.get("header_type")
    header_type = scope.resolve("header type", scope.header_types, type_node.string(), type_node)
    headers = _member_headers(node, scope)
    for header in headers:
        _check_type(node, header, header_type.name, scope)
    scope.declare("header stack", scope.stacks, name, HeaderStack(name, header_type, headers), node)


def _union(node: Node, scope: Scope) -> None:
    name = node.get("name").string()
    type_node = node.get("union_type")
    members = scope.resolve("header union type", scope.union_types, type_node.string(), type_node)
    headers = _member_headers(node, scope)
    if len(headers) != len(members):
        raise node.get("header_ids").bad(f"has {len(headers)} headers, the union type has {len(members)} members")
    for header, (_, expected) in zip(headers, members, strict=True):
        _check_type(node, header, expected, scope)
    union = HeaderUnion(name, tuple(member for member, _ in members), headers)
    scope.declare("header union", scope.unions, name, union, node)
    scope.declare("header union id", scope.union_ids, node.get("id").integer(), name, node)


def _union_stack(node: Node, scope: Scope) -> None:
    name = node.get("name").string()
    type_node = node.get("union_type")
    members = scope.resolve("header union type", scope.union_types, type_node.string(), type_node)
    unions = []
    for item in node.get("header_union_ids").items():
        union = scope.resolve("header union id", scope.union_ids, item.integer(), item)
        types = tuple(scope.headers[header].type.name for header in scope.unions[union].headers)
        if types != tuple(header_type for _, header_type in members):
            raise item.bad(f"is union {union!r}, whose members are not those of type {type_node.value!r}")
        unions.append(union)
    if not unions:
        raise node.get("header_union_ids").bad("is empty")
    scope.declare("header union stack", scope.union_stacks, name, HeaderUnionStack(name, tuple(unions)), node)
    scope.union_stack_types[name] = members


def load_errors(root: Node, scope: Scope) -> dict[str, int]:
    """Errors by name. Core errors that the JSON does not list get free values, as in BMv2."""
    errors: dict[str, int] = {}
    for node in root.list_of("errors"):
        with scope.each():
            name_node, value_node = node.items(2)
            name, value = name_node.string(), value_node.integer(0, _MAX_ERROR)
            if name in errors or value in errors.values():
                raise node.bad(f"declares error {name!r} = {value}, names and values must be unique")
            errors[name] = value
    for name in CORE_ERRORS:
        if name not in errors:
            errors[name] = next(value for value in range(len(errors) + 1) if value not in errors.values())
    return errors


def load_enums(root: Node, scope: Scope) -> dict[str, Mapping[str, int]]:
    """Enums by name: constant -> value."""
    enums: dict[str, Mapping[str, int]] = {}
    for node in root.list_of("enums"):
        with scope.each():
            entries: dict[str, int] = {}
            for entry in node.get("entries").items():
                name_node, value_node = entry.items(2)
                scope.declare("enum entry", entries, name_node.string(), value_node.integer(), entry)
            scope.declare("enum", enums, node.get("name").string(), entries, node)
    return enums


def load_aliases(root: Node, scope: Scope) -> dict[str, FieldRef]:
    """Target names of fields -> fields; adds a problem for each field that simple_switch needs and does not find."""
    aliases: dict[str, FieldRef] = {}
    for node in root.list_of("field_aliases"):
        with scope.each():
            name_node, field_node = node.items(2)
            aliases[name_node.string()] = scope.field_ref(field_node)[0]
    header = scope.headers.get("standard_metadata")
    fields = {field.name for field in header.type.fields} if header is not None else set()
    for name in REQUIRED_FIELDS:
        if name not in fields and f"standard_metadata.{name}" not in aliases:
            scope.problems.append(f"headers: field standard_metadata.{name} is missing, simple_switch needs it")
    return aliases

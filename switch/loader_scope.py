"""Names of a program while it is loaded: what exists, what is broken, and how references are resolved.

An object that could not be loaded is remembered as broken, so that references to it do not add noise to the list of
problems; a reference to a name that nothing declares is a problem of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from switch.loader_json import Bad, Node
from switch.model import (
    Action,
    ActionProfile,
    Calculation,
    CounterArray,
    FieldList,
    FieldRef,
    FieldType,
    Header,
    HeaderStack,
    HeaderType,
    HeaderUnion,
    HeaderUnionStack,
    LearnList,
    MeterArray,
    RegisterArray,
    ValueSet,
)

VALID = "$valid$"

K = TypeVar("K", str, int)
V = TypeVar("V")


class Scope:
    """Everything declared so far, by name."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        self.broken: set[tuple[str, str | int]] = set()
        self.header_types: dict[str, HeaderType] = {}
        self.union_types: dict[str, tuple[tuple[str, str], ...]] = {}  # member name, header type
        self.headers: dict[str, Header] = {}
        self.header_ids: dict[int, str] = {}
        self.stacks: dict[str, HeaderStack] = {}
        self.unions: dict[str, HeaderUnion] = {}
        self.union_ids: dict[int, str] = {}
        self.union_stacks: dict[str, HeaderUnionStack] = {}
        self.union_stack_types: dict[str, tuple[tuple[str, str], ...]] = {}  # of its unions
        self.value_sets: dict[str, ValueSet] = {}
        self.counters: dict[str, CounterArray] = {}
        self.meters: dict[str, MeterArray] = {}
        self.registers: dict[str, RegisterArray] = {}
        self.calculations: dict[str, Calculation] = {}
        self.field_lists: dict[int, FieldList] = {}
        self.learn_lists: dict[int, LearnList] = {}
        self.actions: dict[int, Action] = {}
        self.profiles: dict[str, ActionProfile] = {}

    @contextmanager
    def each(self, kind: str = "", node: Node | None = None, key: str = "name") -> Iterator[None]:
        """Load one object; if that fails, go on with the next and remember this one's `key` as broken."""
        try:
            yield
        except Bad:
            if kind and node is not None and node.has(key) and isinstance(node.value[key], str | int):
                self.broken.add((kind, node.value[key]))

    def declare(self, kind: str, table: dict[K, V], key: K, value: V, node: Node) -> None:
        """Add a declaration; the same key twice is a problem."""
        if key in table:
            raise node.bad(f"declares {kind} {key!r} a second time")
        table[key] = value

    def resolve(self, kind: str, table: Mapping[K, V], key: K, node: Node) -> V:
        """The object that `key` names; a dangling reference is a problem at `node`."""
        if key in table:
            return table[key]
        if (kind, key) in self.broken:
            raise Bad
        raise node.bad(f"refers to {kind} {key!r}, which is not declared")

    def header(self, name: str, node: Node) -> Header:
        return self.resolve("header", self.headers, name, node)

    def stack(self, name: str, node: Node) -> HeaderStack:
        return self.resolve("header stack", self.stacks, name, node)

    def field_of(self, header_type: HeaderType, name: str, node: Node) -> FieldType:
        if name == VALID:
            return FieldType(VALID, 1)
        for candidate in header_type.fields:
            if candidate.name == name:
                return candidate
        raise node.bad(f"refers to field {name!r}, which header type {header_type.name!r} does not have")

    def field_ref(self, node: Node) -> tuple[FieldRef, FieldType]:
        """A field reference [header, field] with its type."""
        header_node, field_node = node.items(2)
        header = self.header(header_node.string(), node)
        field = self.field_of(header.type, field_node.string(), node)
        return FieldRef(header.name, field.name), field

    def fixed_field(self, node: Node) -> tuple[FieldRef, int]:
        """A field reference that must not be a varbit, and its width in bits."""
        ref, field = self.field_ref(node)
        if field.bits is None:
            raise node.bad(f"refers to varbit field {ref.header}.{ref.field}, a field of fixed width is needed here")
        return ref, field.bits

    def union_member(self, members: tuple[tuple[str, str], ...], name: str, node: Node) -> HeaderType:
        for member, type_name in members:
            if member == name:
                return self.resolve("header type", self.header_types, type_name, node)
        raise node.bad(f"refers to union member {name!r}, which the union type does not have")

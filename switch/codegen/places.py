"""Where headers, unions and fields of an expression are in the PHV, also those that are picked at run time."""

from __future__ import annotations

from abc import abstractmethod

from switch.codegen.layout import CodegenError, Layout
from switch.codegen.values import Conversions, Emitter, HeaderPlace, Scope, Target, UnionPlace
from switch.model import (
    Const,
    Expr,
    FieldRef,
    HeaderRef,
    Op,
    StackFieldRef,
    StackRef,
    UnionRef,
    UnionStackFieldRef,
    UnionStackRef,
)


class Places(Conversions):
    """Places of one C function. A stack element that does not exist reads as 0 and ignores stores."""

    def __init__(self, layout: Layout, emit: Emitter, no_element: str | None = None) -> None:
        super().__init__(emit)
        self.no_element = no_element  # C statement for a stack element that does not exist
        self.layout = layout
        self.program = layout.program

    @abstractmethod
    def index(self, expr: Expr, scope: Scope) -> str:
        """An expression as an index: uint64_t, saturated; a negative one is out of every range."""

    def header(self, expr: Expr, scope: Scope) -> HeaderPlace:
        """The place of an expression of kind header."""
        match expr:
            case HeaderRef(name):
                return self.named_header(name)
            case Op("dereference_header_stack", StackRef(stack), index) if index is not None:
                return self.stack_element(stack, self.index(index, scope))
            case Op("access_union_header", union, Const(member)) if union is not None:
                return self.union(union, scope).members[member]
            case _:
                raise CodegenError(f"{expr} is not a header that this target can reach")

    def named_header(self, name: str) -> HeaderPlace:
        header = self.program.headers[name]
        return HeaderPlace(
            self.layout.header_base[name],
            header.type,
            self.layout.block(name),
            metadata=header.metadata,
            peers=self.layout.peers(name),
        )

    def stack_element(self, stack: str, index: str) -> HeaderPlace:
        """Element `index` (C code of a uint64_t) of a stack; outside of the stack there is none."""
        names = self.program.stacks[stack].headers
        first = self.named_header(names[0])
        if index.rstrip("ul").isdigit():
            number = int(index.rstrip("ul"))
            if number < len(names):
                return self.named_header(names[number])
        safe, inside = self.element(index, len(names))
        return HeaderPlace(first.base, first.type, first.layout, safe, first.layout.cells, inside)

    def union(self, expr: Expr, scope: Scope) -> UnionPlace:
        """The place of an expression of kind union."""
        match expr:
            case UnionRef(name):
                return UnionPlace(tuple(self.named_header(header) for header in self.program.unions[name].headers))
            case Op("dereference_union_stack", UnionStackRef(stack), index) if index is not None:
                return self.union_element(stack, self.index(index, scope))
            case _:
                raise CodegenError(f"{expr} is not a union that this target can reach")

    def union_element(self, stack: str, index: str) -> UnionPlace:
        """Element `index` (C code) of a stack of unions."""
        unions = [self.program.unions[name] for name in self.program.union_stacks[stack].unions]
        firsts = [self.named_header(name) for name in unions[0].headers]
        stride = sum(place.layout.cells for place in firsts)
        safe, inside = self.element(index, len(unions))
        return UnionPlace(
            tuple(
                HeaderPlace(place.base, place.type, place.layout, safe, stride, inside, peers=place.peers)
                for place in firsts
            )
        )

    def element(self, index: str, size: int) -> tuple[str, str]:
        """As `bounded`; where the parser runs, an element that does not exist is an error."""
        safe, inside = self.bounded(index, size)
        if self.no_element is not None:
            self.emit(f"if (!({inside})) {self.no_element}")
        return safe, inside

    def bounded(self, index: str, size: int) -> tuple[str, str]:
        """Code of an index cut to 0..size-1 and of whether it was inside."""
        name = self.emit.name("at")
        self.emit(f"const uint64_t {name} = {index};")
        self.emit(f"const uint64_t {name}s = {name} < {size}u ? {name} : 0;")
        return f"{name}s", f"{name} < {size}u"

    def last(self, stack: str) -> str:
        """Code of the index of a stack's last element (huge where the stack is empty)."""
        return f"(P[{self.layout.stack_next[stack]}] - 1)"

    def target(self, expr: Expr, scope: Scope) -> Target:
        """A field that can be stored into, or read."""
        match expr:
            case FieldRef(header, name):
                place = self.named_header(header)
                return Target(place, place.layout.fields[name])
            case StackFieldRef(stack, name):
                place = self.stack_element(stack, self.last(stack))
                return Target(place, place.layout.fields[name])
            case UnionStackFieldRef(stack, member, name):
                union = self.program.unions[self.program.union_stacks[stack].unions[0]]
                place = self.union_element(stack, self.last(stack)).members[union.members.index(member)]
                return Target(place, place.layout.fields[name])
            case Op("access_field", header_expr, Const(index)) if header_expr is not None:
                place = self.header(header_expr, scope)
                return Target(place, place.layout.fields[place.type.fields[index].name])
            case _:
                raise CodegenError(f"{expr} is not a field")

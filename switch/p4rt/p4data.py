"""P4Data: typed values of registers and digests, to and from flat integers.

A P4DataTypeSpec of P4Info becomes a `DataType` tree whose leaves are fixed-width numbers; the data plane knows only the
leaves, in order. Unsigned values and two's complement bit patterns are kept as non-negative integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from finsy.proto import p4d, p4t

from switch.p4rt.bytestrings import decode_signed, decode_unsigned, encode_signed, encode_unsigned
from switch.p4rt.errors import invalid


class UnsupportedType(ValueError):
    """A P4 type that a v1model data plane cannot hold in a register or a digest."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """kind: bit, int, bool or enum (a serializable one)."""

    kind: str
    bits: int


@dataclass(frozen=True, slots=True)
class Aggregate:
    """kind: struct or tuple."""

    kind: str
    names: tuple[str, ...]
    members: tuple[DataType, ...]


DataType = Leaf | Aggregate


def data_type(spec: p4t.P4DataTypeSpec, types: p4t.P4TypeInfo, depth: int = 0) -> DataType:
    """Resolve a type of P4Info. Raises UnsupportedType, also for names that P4Info does not define."""
    if depth > 16:
        raise UnsupportedType("type definitions are nested more than 16 deep")
    kind = spec.WhichOneof("type_spec")
    if kind == "bitstring":
        return _bitstring(spec.bitstring)
    if kind == "bool":
        return Leaf("bool", 1)
    if kind == "tuple":
        members = tuple(data_type(member, types, depth + 1) for member in spec.tuple.members)
        return Aggregate("tuple", tuple(str(i) for i in range(len(members))), members)
    if kind == "struct":
        if spec.struct.name not in types.structs:
            raise UnsupportedType(f"struct {spec.struct.name!r} is not in type_info")
        fields = types.structs[spec.struct.name].members
        return Aggregate(
            "struct",
            tuple(member.name for member in fields),
            tuple(data_type(member.type_spec, types, depth + 1) for member in fields),
        )
    if kind == "serializable_enum":
        if spec.serializable_enum.name not in types.serializable_enums:
            raise UnsupportedType(f"enum {spec.serializable_enum.name!r} is not in type_info")
        bits = types.serializable_enums[spec.serializable_enum.name].underlying_type.bitwidth
        return Leaf("enum", bits)
    if kind == "new_type":
        return _new_type(spec.new_type.name, types, depth)
    raise UnsupportedType(f"{kind or 'an unset type'} is not supported in a register or a digest")


def _bitstring(spec: p4t.P4BitstringLikeTypeSpec) -> Leaf:
    kind = spec.WhichOneof("type_spec")
    if kind == "bit":
        return Leaf("bit", spec.bit.bitwidth)
    if kind == "int":
        return Leaf("int", spec.int.bitwidth)
    raise UnsupportedType(f"{kind or 'an unset bitstring type'} is not supported in a register or a digest")


def _new_type(name: str, types: p4t.P4TypeInfo, depth: int) -> DataType:
    if name not in types.new_types:
        raise UnsupportedType(f"type {name!r} is not in type_info")
    new_type = types.new_types[name]
    if new_type.WhichOneof("representation") == "original_type":
        return data_type(new_type.original_type, types, depth + 1)
    translated = new_type.translated_type
    if translated.WhichOneof("sdn_type") == "sdn_bitwidth":
        return Leaf("bit", translated.sdn_bitwidth)
    raise UnsupportedType(f"type {name!r} is translated to a string, which this target cannot do")


def leaves(kind: DataType) -> Iterator[Leaf]:
    """The fixed-width numbers in a type, in declaration order."""
    if isinstance(kind, Leaf):
        yield kind
    else:
        for member in kind.members:
            yield from leaves(member)


def encode(kind: DataType, values: Sequence[int]) -> p4d.P4Data:
    """One value a leaf, in order."""
    return _encode(kind, iter(values))


def _encode(kind: DataType, values: Iterator[int]) -> p4d.P4Data:
    if isinstance(kind, Aggregate):
        like = p4d.P4StructLike(members=[_encode(member, values) for member in kind.members])
        return p4d.P4Data(struct=like) if kind.kind == "struct" else p4d.P4Data(tuple=like)
    value = next(values)
    if kind.kind == "bool":
        return p4d.P4Data(bool=bool(value))
    if kind.kind == "int":
        return p4d.P4Data(bitstring=encode_signed(value, kind.bits))
    if kind.kind == "enum":
        return p4d.P4Data(enum_value=encode_unsigned(value))
    return p4d.P4Data(bitstring=encode_unsigned(value))


def decode(kind: DataType, data: p4d.P4Data, what: str) -> list[int]:
    """The leaves of a P4Data message; `what` names it in errors."""
    given = data.WhichOneof("data")
    if isinstance(kind, Aggregate):
        if given != kind.kind:
            raise invalid(f"{what}: expected {kind.kind}, got {given or 'nothing'}")
        members = data.struct.members if kind.kind == "struct" else data.tuple.members
        if len(members) != len(kind.members):
            raise invalid(f"{what}: expected {len(kind.members)} members, got {len(members)}")
        values: list[int] = []
        for name, member, value in zip(kind.names, kind.members, members, strict=True):
            values += decode(member, value, f"{what}.{name}")
        return values
    wanted = {"bool": "bool", "enum": "enum_value"}.get(kind.kind, "bitstring")
    if given != wanted:
        raise invalid(f"{what}: expected {wanted}, got {given or 'nothing'}")
    if kind.kind == "bool":
        return [int(data.bool)]
    if kind.kind == "int":
        return [decode_signed(data.bitstring, kind.bits, what)]
    return [decode_unsigned(data.enum_value if kind.kind == "enum" else data.bitstring, kind.bits, what)]

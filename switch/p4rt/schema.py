"""An index of P4Info: plain frozen records by id, checked for consistency once.

`Schema(p4info)` is immutable; codec, store, write and read look everything up here and never touch P4Info. What P4Info
itself gets wrong (dangling ids, duplicates, types that no v1model target can hold) is collected and raised as one
`SchemaError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeVar

from finsy.proto import p4i

from switch.api import MatchKind
from switch.p4rt import p4data
from switch.p4rt.errors import invalid, not_found

_KINDS = {
    p4i.MatchField.EXACT: MatchKind.EXACT,
    p4i.MatchField.LPM: MatchKind.LPM,
    p4i.MatchField.TERNARY: MatchKind.TERNARY,
    p4i.MatchField.RANGE: MatchKind.RANGE,
    p4i.MatchField.OPTIONAL: MatchKind.OPTIONAL,
}
_PRIORITY_KINDS = {MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL}
_TM = re.compile(r'^@tm\s*\(\s*"([^"]*)"\s*\)$')


class SchemaError(ValueError):
    """P4Info that cannot be used; `problems` has one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)


@dataclass(frozen=True, slots=True)
class MatchField:
    id: int
    name: str
    bits: int
    kind: MatchKind


@dataclass(frozen=True, slots=True)
class Param:
    id: int
    name: str
    bits: int


@dataclass(frozen=True, slots=True)
class Action:
    id: int
    name: str
    params: tuple[Param, ...]


@dataclass(frozen=True, slots=True)
class ActionRef:
    """An action of a table, and where the table may use it."""

    action: Action
    in_entries: bool
    as_default: bool


@dataclass(frozen=True, slots=True)
class Table:
    """`size` is the promised number of entries (0: unbounded). `tm` is the kind of an `@tm` table, or empty."""

    id: int
    name: str
    fields: tuple[MatchField, ...]
    actions: Mapping[int, ActionRef]
    size: int
    const_default: bool
    profile_id: int
    direct_counter: int
    direct_meter: int
    idle_timeout: bool
    const_entries: bool
    tm: str

    @property
    def has_priority(self) -> bool:
        """Entries carry a priority: some key is ternary, range or optional."""
        return any(field.kind in _PRIORITY_KINDS for field in self.fields)

    def action_named(self, name: str) -> Action:
        """The action of this table with that name in P4Info; KeyError when there is none."""
        for ref in self.actions.values():
            if ref.action.name == name:
                return ref.action
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class ActionProfile:
    """`size`, `max_group_size` and weights as in P4Info; 0 means no limit."""

    id: int
    name: str
    table_ids: tuple[int, ...]
    selector: bool
    size: int
    max_group_size: int
    sum_of_members: bool
    max_member_weight: int
    weights_disallowed: bool


@dataclass(frozen=True, slots=True)
class Counter:
    """`size` is 0 for a direct counter, whose `table_id` says of what."""

    id: int
    name: str
    size: int
    table_id: int
    counts_bytes: bool
    counts_packets: bool
    tm: str


@dataclass(frozen=True, slots=True)
class Meter:
    """`size` is 0 for a direct meter. `single_rate`: cir == pir is required; `two_color`: no excess burst."""

    id: int
    name: str
    size: int
    table_id: int
    single_rate: bool
    two_color: bool


@dataclass(frozen=True, slots=True)
class Register:
    id: int
    name: str
    size: int
    type: p4data.DataType
    tm: str


@dataclass(frozen=True, slots=True)
class Digest:
    id: int
    name: str
    type: p4data.DataType


@dataclass(frozen=True, slots=True)
class ValueSet:
    id: int
    name: str
    fields: tuple[MatchField, ...]
    size: int


@dataclass(frozen=True, slots=True)
class ControllerHeader:
    """Metadata of packet-in or packet-out: fields packed most significant bit first, in front of the frame."""

    name: str
    fields: tuple[Param, ...]

    @property
    def length_bytes(self) -> int:
        return (sum(field.bits for field in self.fields) + 7) // 8


class _Named(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...


_T = TypeVar("_T")
_N = TypeVar("_N", bound=_Named)
_P = TypeVar("_P", p4i.Register, p4i.Digest)


class Schema:
    """The index. Look-ups by id raise `P4RuntimeError`: NOT_FOUND, or INVALID_ARGUMENT for an id of another kind."""

    def __init__(self, p4info: p4i.P4Info) -> None:
        self.p4info = p4info
        self._problems: list[str] = []
        self.names: dict[int, str] = {}
        self.actions = self._index("action", map(self._action, p4info.actions))
        self.profiles = self._index("action profile", map(_profile, p4info.action_profiles))
        counters = [_counter(c, c.size, 0) for c in p4info.counters]
        self.counters = self._index("counter", counters)
        self.direct_counters = self._index(
            "counter", [_counter(c, 0, c.direct_table_id) for c in p4info.direct_counters]
        )
        self.meters = self._index("meter", [_meter(m, m.size, 0) for m in p4info.meters])
        self.direct_meters = self._index("meter", [_meter(m, 0, m.direct_table_id) for m in p4info.direct_meters])
        self.tables = self._index("table", map(self._table, p4info.tables))
        self.registers = self._index("register", self._typed(p4info.registers, self._register))
        self.digests = self._index("digest", self._typed(p4info.digests, self._digest))
        self.value_sets = self._index("value set", map(self._value_set, p4info.value_sets))
        headers = [self._header(header) for header in p4info.controller_packet_metadata]
        self.packet_in = next((h for h in headers if h.name == "packet_in"), ControllerHeader("packet_in", ()))
        self.packet_out = next((h for h in headers if h.name == "packet_out"), ControllerHeader("packet_out", ()))
        self._check()
        if self._problems:
            raise SchemaError(self._problems)

    # --- look-ups that a client's id goes through ---

    def table(self, table_id: int) -> Table:
        return self._get(self.tables, table_id, "table_id")

    def profile(self, profile_id: int) -> ActionProfile:
        return self._get(self.profiles, profile_id, "action_profile_id")

    def counter(self, counter_id: int) -> Counter:
        if counter_id in self.direct_counters:
            raise invalid(
                f"counter_id {counter_id:#x}: {self.names[counter_id]} is a direct counter; use DirectCounterEntry"
            )
        return self._get(self.counters, counter_id, "counter_id")

    def meter(self, meter_id: int) -> Meter:
        if meter_id in self.direct_meters:
            raise invalid(f"meter_id {meter_id:#x}: {self.names[meter_id]} is a direct meter; use DirectMeterEntry")
        return self._get(self.meters, meter_id, "meter_id")

    def register(self, register_id: int) -> Register:
        return self._get(self.registers, register_id, "register_id")

    def digest(self, digest_id: int) -> Digest:
        return self._get(self.digests, digest_id, "digest_id")

    def value_set(self, value_set_id: int) -> ValueSet:
        return self._get(self.value_sets, value_set_id, "value_set_id")

    def _get(self, objects: Mapping[int, _T], object_id: int, field: str) -> _T:
        found = objects.get(object_id)
        if found is None:
            self._no_such(field, object_id)
        return found

    def _no_such(self, field: str, object_id: int) -> NoReturn:
        if object_id == 0:
            raise invalid(f"{field}: must be set")
        if object_id in self.names:
            raise invalid(
                f"{field} {object_id:#x}: that is the id of {self.names[object_id]}, which is of another kind"
            )
        raise not_found(f"{field} {object_id:#x}: no such object in P4Info")

    # --- construction ---

    def _index(self, kind: str, objects: Iterable[_N]) -> dict[int, _N]:
        found: dict[int, _N] = {}
        for item in objects:
            if item.id in self.names:
                self._problems.append(f"{kind} {item.name}: id {item.id:#x} is taken by {self.names[item.id]}")
            if item.id == 0:
                self._problems.append(f"{kind} {item.name}: id is 0")
            self.names[item.id] = item.name
            found[item.id] = item
        return found

    def _width(self, bits: int, what: str) -> int:
        if bits <= 0:
            self._problems.append(
                f"{what}: bit width {bits}; only fixed-width numbers are supported (no string translation)"
            )
        return bits

    def _action(self, action: p4i.Action) -> Action:
        name = action.preamble.name
        params = tuple(Param(p.id, p.name, self._width(p.bitwidth, f"{name}.{p.name}")) for p in action.params)
        if len({param.id for param in params}) != len(params):
            self._problems.append(f"action {name}: two parameters share an id")
        return Action(action.preamble.id, name, params)

    def _match_fields(self, owner: str, fields: Iterable[p4i.MatchField]) -> tuple[MatchField, ...]:
        result = []
        for field in fields:
            kind = _KINDS.get(field.match_type)
            if kind is None:
                self._problems.append(
                    f"{owner}: key {field.name} has match type {field.other_match_type or 'UNSPECIFIED'}"
                )
                continue
            result.append(MatchField(field.id, field.name, self._width(field.bitwidth, f"{owner}.{field.name}"), kind))
        if len({field.id for field in result}) != len(result):
            self._problems.append(f"{owner}: two match fields share an id")
        return tuple(result)

    def _table(self, table: p4i.Table) -> Table:
        name = table.preamble.name
        refs: dict[int, ActionRef] = {}
        for ref in table.action_refs:
            if ref.id not in self.actions:
                self._problems.append(f"table {name}: action id {ref.id:#x} is not in P4Info")
                continue
            refs[ref.id] = ActionRef(
                self.actions[ref.id],
                in_entries=ref.scope != p4i.ActionRef.DEFAULT_ONLY,
                as_default=ref.scope != p4i.ActionRef.TABLE_ONLY,
            )
        counter = meter = 0
        for resource in table.direct_resource_ids:
            if resource in self.direct_counters:
                counter = resource
            elif resource in self.direct_meters:
                meter = resource
            else:
                self._problems.append(f"table {name}: direct resource {resource:#x} is not in P4Info")
        return Table(
            id=table.preamble.id,
            name=name,
            fields=self._match_fields(f"table {name}", table.match_fields),
            actions=refs,
            size=table.size,
            const_default=table.const_default_action_id != 0,
            profile_id=table.implementation_id,
            direct_counter=counter,
            direct_meter=meter,
            idle_timeout=table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL,
            const_entries=table.is_const_table,
            tm=tm_kind(table.preamble),
        )

    def _typed(self, objects: Iterable[_P], make: Callable[[_P], _T]) -> Iterator[_T]:
        for item in objects:
            try:
                yield make(item)
            except p4data.UnsupportedType as error:
                self._problems.append(f"{item.preamble.name}: {error}")

    def _register(self, register: p4i.Register) -> Register:
        kind = p4data.data_type(register.type_spec, self.p4info.type_info)
        if not isinstance(kind, p4data.Leaf):
            raise p4data.UnsupportedType(f"a register of {kind.kind} is not supported; cells are fixed-width numbers")
        pre = register.preamble
        return Register(pre.id, pre.name, register.size, kind, tm_kind(pre))

    def _digest(self, digest: p4i.Digest) -> Digest:
        kind = p4data.data_type(digest.type_spec, self.p4info.type_info)
        return Digest(digest.preamble.id, digest.preamble.name, kind)

    def _value_set(self, value_set: p4i.ValueSet) -> ValueSet:
        name = value_set.preamble.name
        return ValueSet(
            value_set.preamble.id, name, self._match_fields(f"value set {name}", value_set.match), value_set.size
        )

    def _header(self, header: p4i.ControllerPacketMetadata) -> ControllerHeader:
        name = header.preamble.name
        fields = tuple(Param(m.id, m.name, self._width(m.bitwidth, f"{name}.{m.name}")) for m in header.metadata)
        return ControllerHeader(name, fields)

    def _check(self) -> None:
        for table in self.tables.values():
            if table.profile_id and table.profile_id not in self.profiles:
                self._problems.append(f"table {table.name}: action profile {table.profile_id:#x} is not in P4Info")
        for profile in self.profiles.values():
            for table_id in profile.table_ids:
                if table_id not in self.tables:
                    self._problems.append(f"action profile {profile.name}: table {table_id:#x} is not in P4Info")
        directs: list[Counter | Meter] = [*self.direct_counters.values(), *self.direct_meters.values()]
        for direct in directs:
            if direct.table_id not in self.tables:
                self._problems.append(f"{direct.name}: its table {direct.table_id:#x} is not in P4Info")


def tm_kind(preamble: p4i.Preamble) -> str:
    """The kind in an `@tm("kind")` annotation, or empty."""
    for annotation in preamble.annotations:
        found = _TM.match(annotation.strip())
        if found:
            return found[1]
    for structured in preamble.structured_annotations:
        if structured.name == "tm" and structured.expression_list.expressions:
            return structured.expression_list.expressions[0].string_value
    return ""


def _profile(profile: p4i.ActionProfile) -> ActionProfile:
    return ActionProfile(
        id=profile.preamble.id,
        name=profile.preamble.name,
        table_ids=tuple(profile.table_ids),
        selector=profile.with_selector,
        size=profile.size,
        max_group_size=profile.max_group_size,
        sum_of_members=profile.WhichOneof("selector_size_semantics") == "sum_of_members",
        max_member_weight=profile.sum_of_members.max_member_weight,
        weights_disallowed=profile.weights_disallowed,
    )


def _counter(counter: p4i.Counter | p4i.DirectCounter, size: int, table_id: int) -> Counter:
    unit = counter.spec.unit
    return Counter(
        id=counter.preamble.id,
        name=counter.preamble.name,
        size=size,
        table_id=table_id,
        counts_bytes=unit != p4i.CounterSpec.PACKETS,
        counts_packets=unit != p4i.CounterSpec.BYTES,
        tm=tm_kind(counter.preamble),
    )


def _meter(meter: p4i.Meter | p4i.DirectMeter, size: int, table_id: int) -> Meter:
    kind = meter.spec.type
    return Meter(
        id=meter.preamble.id,
        name=meter.preamble.name,
        size=size,
        table_id=table_id,
        single_rate=kind != p4i.MeterSpec.TWO_RATE_THREE_COLOR,
        two_color=kind == p4i.MeterSpec.SINGLE_RATE_TWO_COLOR,
    )

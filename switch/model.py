"""The typed model of a BMv2 JSON program.

`switch.loader` makes it, `switch.interpreter` runs it, `switch.codegen` emits C from it. It mirrors
behavioral-model's docs/JSON_format.md (2.x) with every name resolved: expressions are trees, references are
names that the loader has checked to exist. Frozen data, no behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from switch.api import MatchKind

# --- headers -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldType:
    """A member of a header type; `bits` is None for the one varbit member a type may have."""

    name: str
    bits: int | None
    signed: bool = False


@dataclass(frozen=True, slots=True)
class HeaderType:
    name: str
    fields: tuple[FieldType, ...]
    max_length_bytes: int | None = None  # with a varbit member: of the whole header


@dataclass(frozen=True, slots=True)
class Header:
    """An instance. Metadata instances are always valid and never parsed or emitted."""

    name: str
    type: HeaderType
    metadata: bool


@dataclass(frozen=True, slots=True)
class HeaderStack:
    name: str
    type: HeaderType
    headers: tuple[str, ...]  # instance names, stack[0] first


@dataclass(frozen=True, slots=True)
class HeaderUnion:
    name: str
    members: tuple[str, ...]  # member names, e.g. "h1"
    headers: tuple[str, ...]  # instance names, in member order


@dataclass(frozen=True, slots=True)
class HeaderUnionStack:
    name: str
    unions: tuple[str, ...]


# --- expressions ---------------------------------------------------------------------------------------------------
# Arithmetic has infinite precision; a value is truncated only when it is stored into a field.


@dataclass(frozen=True, slots=True)
class Const:
    value: int


@dataclass(frozen=True, slots=True)
class BoolConst:
    value: bool


@dataclass(frozen=True, slots=True)
class StringConst:
    value: str


@dataclass(frozen=True, slots=True)
class FieldRef:
    header: str
    field: str  # "$valid$" for the hidden validity field


@dataclass(frozen=True, slots=True)
class StackFieldRef:
    """A field of the last valid element of a stack."""

    stack: str
    field: str


@dataclass(frozen=True, slots=True)
class UnionStackFieldRef:
    stack: str
    member: str
    field: str


@dataclass(frozen=True, slots=True)
class HeaderRef:
    header: str


@dataclass(frozen=True, slots=True)
class StackRef:
    stack: str


@dataclass(frozen=True, slots=True)
class UnionRef:
    union: str


@dataclass(frozen=True, slots=True)
class UnionStackRef:
    stack: str


@dataclass(frozen=True, slots=True)
class ParamRef:
    """A parameter of the enclosing action (JSON types `runtime_data` and `local`)."""

    index: int


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Parser only: `bits` bits that start `offset_bits` after the cursor."""

    offset_bits: int
    bits: int


@dataclass(frozen=True, slots=True)
class RegisterRef:
    register: str
    index: Expr


@dataclass(frozen=True, slots=True)
class ExternRef:
    """A named extern or calculation as a primitive's argument (kind: counter_array, calculation, ...)."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Vector:
    """`parameters_vector` (arguments of log_msg)."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Op:
    """An operator of the JSON: unary ones have `left` None; `?` has `cond`; access_field keeps its integer as Const."""

    op: str
    left: Expr | None
    right: Expr | None
    cond: Expr | None = None


Expr = (
    Const | BoolConst | StringConst | FieldRef | StackFieldRef | UnionStackFieldRef | HeaderRef | StackRef | UnionRef
    | UnionStackRef | ParamRef | Lookahead | RegisterRef | ExternRef | Vector | Op
)  # fmt: skip

# --- parser --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Extract:
    """Extract into a header, the next element of a stack, or a member of the next union of a union stack."""

    target: HeaderRef | StackRef | UnionStackRef
    union_member: str | None = None
    varbit_bits: Expr | None = None  # extract_VL


@dataclass(frozen=True, slots=True)
class SetField:
    target: FieldRef | StackFieldRef | UnionStackFieldRef
    value: Expr


@dataclass(frozen=True, slots=True)
class Verify:
    condition: Expr
    error: Expr


@dataclass(frozen=True, slots=True)
class Advance:
    bits: Expr


@dataclass(frozen=True, slots=True)
class Primitive:
    op: str
    args: tuple[Expr, ...]
    source: str = ""  # "file:line: fragment", for messages


ParserOp = Extract | SetField | Verify | Advance | Primitive


@dataclass(frozen=True, slots=True)
class Transition:
    """kind: default, value (value, mask) or vset (value-set name, mask)."""

    kind: str
    next_state: str | None  # None: accept
    value: int = 0
    mask: int | None = None
    value_set: str = ""


@dataclass(frozen=True, slots=True)
class ParseState:
    name: str
    ops: tuple[ParserOp, ...]
    key: tuple[Expr, ...]  # each padded to whole bytes and concatenated, as Transition.value is
    key_bits: tuple[int, ...]  # width of each key before padding
    transitions: tuple[Transition, ...]  # in order, first match wins; none matches: accept (BMv2)


@dataclass(frozen=True, slots=True)
class Parser:
    name: str
    init_state: str | None
    states: Mapping[str, ParseState]


@dataclass(frozen=True, slots=True)
class ValueSet:
    name: str
    bits: int
    max_size: int


@dataclass(frozen=True, slots=True)
class Deparser:
    name: str
    order: tuple[str, ...]
    primitives: tuple[Primitive, ...] = ()


# --- match-action --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ActionParam:
    name: str
    bits: int


@dataclass(frozen=True, slots=True)
class Action:
    """An action. Names may repeat in a JSON (p4c's generated ones); `id` is unique and is what tables refer to."""

    id: int
    name: str
    params: tuple[ActionParam, ...]
    primitives: tuple[Primitive, ...]


@dataclass(frozen=True, slots=True)
class TableKey:
    name: str
    kind: MatchKind
    target: FieldRef
    bits: int
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class ConstEntry:
    """An entry written in the program. priority: as in JSON, smaller wins."""

    keys: tuple[object, ...]  # switch.api.KeyMatch
    action_id: int
    action_data: tuple[int, ...]
    priority: int


@dataclass(frozen=True, slots=True)
class DefaultEntry:
    action_id: int
    action_data: tuple[int, ...]
    action_const: bool
    entry_const: bool


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    kind: MatchKind  # the table's match_type: exact < lpm < ternary < range, as p4c chose
    keys: tuple[TableKey, ...]
    action_ids: tuple[int, ...]
    max_size: int
    implementation: str | None  # action profile
    selector: bool
    with_counters: bool
    direct_meter: str | None
    support_timeout: bool
    next_by_action: Mapping[int, str | None]  # action id -> next node
    next_hit: str | None  # where hit_miss is set
    next_miss: str | None
    hit_miss: bool  # next node chosen by __HIT__/__MISS__
    base_default_next: str | None
    default: DefaultEntry | None
    const_entries: tuple[ConstEntry, ...]
    has_const_entries: bool  # the table refuses run-time entries


@dataclass(frozen=True, slots=True)
class Conditional:
    name: str
    expression: Expr
    true_next: str | None
    false_next: str | None


@dataclass(frozen=True, slots=True)
class ActionCallNode:
    """A node of `action_calls`."""

    name: str
    action_id: int
    next_node: str | None


@dataclass(frozen=True, slots=True)
class Selector:
    algorithm: str
    inputs: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class ActionProfile:
    name: str
    max_size: int
    selector: Selector | None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """ingress or egress: a graph of tables and conditionals by name."""

    name: str
    init_node: str | None
    tables: Mapping[str, Table]
    conditionals: Mapping[str, Conditional]
    action_calls: Mapping[str, ActionCallNode]
    action_profiles: Mapping[str, ActionProfile]


# --- externs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CounterArray:
    name: str
    size: int
    direct_table: str | None


@dataclass(frozen=True, slots=True)
class MeterArray:
    name: str
    size: int
    bytes: bool  # else packets
    rate_count: int
    direct_table: str | None
    result: FieldRef | None  # direct meters: the field that takes the colour


@dataclass(frozen=True, slots=True)
class RegisterArray:
    name: str
    size: int
    bits: int
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Calculation:
    """A named hash or checksum over a list. Items: Expr of known width, HeaderRef, or PayloadRef."""

    name: str
    algorithm: str
    inputs: tuple[CalcInput, ...]


@dataclass(frozen=True, slots=True)
class CalcInput:
    """One element of a calculation: `value` None stands for the payload; `bits` None for a varbit or a header."""

    value: Expr | None
    bits: int | None


@dataclass(frozen=True, slots=True)
class Checksum:
    """type generic: target field, calculation, condition; verify and update as simple_switch does."""

    name: str
    target: FieldRef
    calculation: str
    condition: Expr | None
    verify: bool
    update: bool


@dataclass(frozen=True, slots=True)
class LearnList:
    id: int
    name: str
    elements: tuple[tuple[Expr, int], ...]  # (value, bits)


@dataclass(frozen=True, slots=True)
class FieldList:
    id: int
    name: str
    elements: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A whole program. `sha256` of the JSON text names it in caches."""

    sha256: str
    version: tuple[int, int]
    headers: Mapping[str, Header]
    stacks: Mapping[str, HeaderStack]
    unions: Mapping[str, HeaderUnion]
    union_stacks: Mapping[str, HeaderUnionStack]
    errors: Mapping[str, int]
    parser: Parser
    deparser: Deparser
    value_sets: Mapping[str, ValueSet]
    actions: Mapping[int, Action]
    ingress: Pipeline
    egress: Pipeline
    counters: Mapping[str, CounterArray]
    meters: Mapping[str, MeterArray]
    registers: Mapping[str, RegisterArray]
    calculations: Mapping[str, Calculation]
    checksums: tuple[Checksum, ...]
    field_lists: Mapping[int, FieldList]
    learn_lists: Mapping[int, LearnList]
    field_aliases: Mapping[str, FieldRef] = field(default_factory=dict)  # "queueing_metadata.enq_qdepth" -> field
    enums: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

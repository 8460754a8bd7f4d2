"""What the P4Runtime server asks of a pipeline: names, integers and plain records, no protobuf.

Both executions of a BMv2 JSON serve this protocol: `switch.interpreter` (slow and obvious) and
`switch.native_pipeline` (generated C). Tables, actions and externs are named as in the JSON, which are also the names
in P4Info. Values are non-negative integers already checked against their widths by the caller; a pipeline checks
structure (does the table exist, is it full, is the action allowed) and raises `PipelineError`.
Match entries are identified by their handle; the pipeline does not search for duplicates, the server does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class PipelineError(ValueError):
    """A request that this program or target cannot satisfy; the message names the object, the value and the rule."""


class MatchKind(Enum):
    """Kinds of table keys, with the spelling of BMv2 JSON."""

    EXACT = "exact"
    LPM = "lpm"
    TERNARY = "ternary"
    RANGE = "range"
    OPTIONAL = "optional"
    SELECTOR = "selector"


@dataclass(frozen=True, slots=True)
class KeyMatch:
    """One key of an entry, in the order of the table's keys.

    exact: value. lpm: value, prefix_len. ternary and optional: value, mask (mask 0 = do not care, and for optional
    otherwise all ones). range: value = low, high inclusive.
    """

    kind: MatchKind
    value: int = 0
    mask: int = 0
    prefix_len: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class ActionCall:
    """An action by name with its parameters in declaration order."""

    name: str
    params: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberRef:
    """The action of an entry of a table with an action profile: one member."""

    member_id: int


@dataclass(frozen=True, slots=True)
class GroupRef:
    """The action of an entry of a table with an action selector: one group."""

    group_id: int


EntryAction = ActionCall | MemberRef | GroupRef


@dataclass(frozen=True, slots=True)
class MeterConfig:
    """Two rates, three colours (RFC 2698): rates in bytes or packets a second, bursts in bytes or packets."""

    cir: int
    cburst: int
    pir: int
    pburst: int


@dataclass(frozen=True, slots=True)
class CounterValue:
    """A counter cell; what the counter does not count is 0."""

    packets: int = 0
    bytes: int = 0


class PipelineControl(Protocol):
    """Control side of a running pipeline. Every call takes effect before it returns."""

    # tables; `priority`: larger wins; 0 for tables without ternary, range or optional keys
    def table_insert(self, table: str, keys: Sequence[KeyMatch], priority: int, action: EntryAction) -> int: ...
    def table_modify(self, table: str, handle: int, action: EntryAction) -> None: ...
    def table_delete(self, table: str, handle: int) -> None: ...
    def table_set_default(self, table: str, action: EntryAction | None) -> None: ...  # None: the program's own
    def table_hit_age_us(self, table: str, handle: int) -> int: ...  # time since insert or last hit

    # action profiles and selectors; ids are the caller's; group members are (member id, weight)
    def member_set(self, profile: str, member_id: int, action: ActionCall) -> None: ...  # insert or modify
    def member_delete(self, profile: str, member_id: int) -> None: ...
    def group_set(self, profile: str, group_id: int, members: Sequence[tuple[int, int]]) -> None: ...
    def group_delete(self, profile: str, group_id: int) -> None: ...

    # indexed externs
    def counter_read(self, counter: str, index: int) -> CounterValue: ...
    def counter_write(self, counter: str, index: int, value: CounterValue) -> None: ...
    def register_read(self, register: str, index: int) -> int: ...
    def register_write(self, register: str, index: int, value: int) -> None: ...
    def meter_write(self, meter: str, index: int, config: MeterConfig | None) -> None: ...  # None: unlimited, all green

    # direct externs of an entry
    def direct_counter_read(self, table: str, handle: int) -> CounterValue: ...
    def direct_counter_write(self, table: str, handle: int, value: CounterValue) -> None: ...
    def direct_meter_write(self, table: str, handle: int, config: MeterConfig | None) -> None: ...

    # parser value sets: members are (value, mask) of the whole key
    def value_set_write(self, value_set: str, members: Sequence[tuple[int, int]]) -> None: ...

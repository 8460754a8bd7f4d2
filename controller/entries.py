"""What a switch holds, in a neutral form: names and integers, no protobuf, hashable and comparable.

`desired` makes these from a config, `codec` from what P4Runtime reads back; `diff` compares the sets. Names are full
names as in P4Info. A match is sorted by field name and leaves out fields that match everything, so that equal
entries are equal values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Lpm:
    """Longest prefix match: the bits of `value` beyond the prefix are 0."""

    value: int
    prefix_len: int


@dataclass(frozen=True, slots=True, order=True)
class Ternary:
    """Value and mask; bits of `value` outside the mask are 0."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Low and high, both included."""

    low: int
    high: int


MatchValue = int | Lpm | Ternary | Range
Match = tuple[tuple[str, MatchValue], ...]


def match(fields: Mapping[str, MatchValue]) -> Match:
    """The canonical match of some fields: sorted, without the fields that match everything."""
    kept = []
    for name, value in sorted(fields.items()):
        if isinstance(value, Lpm) and value.prefix_len == 0:
            continue
        if isinstance(value, Ternary) and value.mask == 0:
            continue
        kept.append((name, value))
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Action:
    """An action with its parameters by name, sorted."""

    name: str
    params: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, _name: str, /, **params: int) -> Action:
        """`Action.of("egress.tm_ets", weight=40)`."""
        return cls(_name, tuple(sorted(params.items())))

    def __getitem__(self, param: str) -> int:
        return dict(self.params)[param]


@dataclass(frozen=True, slots=True)
class MemberRef:
    """The action of an entry: one member of the table's action profile."""

    member_id: int


@dataclass(frozen=True, slots=True)
class GroupRef:
    """The action of an entry: one group of the table's action selector."""

    group_id: int


@dataclass(frozen=True, slots=True)
class OtherAction:
    """An action that this controller never writes (a one-shot set); only ever read back, equal to nothing desired."""

    text: str


EntryAction = Action | MemberRef | GroupRef | OtherAction
Key = tuple[str, str, Match | int, int]


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One entry of a table; `priority` is 0 but for tables with ternary, range or optional keys (larger wins)."""

    table: str
    match: Match
    action: EntryAction
    priority: int = 0

    @property
    def key(self) -> Key:
        """What makes it the same entry for P4Runtime, whatever its action."""
        return ("table", self.table, self.match, self.priority)

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={_show(value)}" for name, value in self.match)
        return f"{self.table}[{shown}]" + (f" priority {self.priority}" if self.priority else "")


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an action profile."""

    profile: str
    member_id: int
    action: Action

    @property
    def key(self) -> Key:
        """Profile and id."""
        return ("member", self.profile, self.member_id, 0)

    def __str__(self) -> str:
        return f"{self.profile} member {self.member_id}"


@dataclass(frozen=True, slots=True)
class Group:
    """One group of an action selector: (member id, weight), sorted."""

    profile: str
    group_id: int
    members: tuple[tuple[int, int], ...]

    @property
    def key(self) -> Key:
        """Profile and id."""
        return ("group", self.profile, self.group_id, 0)

    def __str__(self) -> str:
        return f"{self.profile} group {self.group_id}"


@dataclass(frozen=True, slots=True)
class CloneSession:
    """One clone session: where clones go, as (port, instance); length 0 = whole frames."""

    session_id: int
    replicas: tuple[tuple[int, int], ...]
    class_of_service: int = 0
    length_bytes: int = field(default=0)

    @property
    def key(self) -> Key:
        """The session id."""
        return ("clone", "", self.session_id, 0)

    def __str__(self) -> str:
        return f"clone session {self.session_id}"


@dataclass(frozen=True, slots=True)
class MeterCell:
    """The configuration of one cell of a meter: units (packets or bytes) a second, and units at once.

    A cell always exists, so P4Runtime knows no insert and no delete of it: a cell that is not configured passes all.
    """

    meter: str
    index: int
    rate: int
    burst: int

    @property
    def key(self) -> Key:
        """Meter and index."""
        return ("meter", self.meter, self.index, 0)

    def __str__(self) -> str:
        return f"{self.meter}[{self.index}]"


Entity = TableEntry | Member | Group | CloneSession | MeterCell


def _show(value: MatchValue) -> str:
    if isinstance(value, Lpm):
        return f"{value.value:#x}/{value.prefix_len}"
    if isinstance(value, Ternary):
        return f"{value.value:#x}&&&{value.mask:#x}"
    if isinstance(value, Range):
        return f"{value.low}..{value.high}"
    return str(value)

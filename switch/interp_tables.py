"""Match-action tables, action profiles and counters of the interpreter.

Winner of a lookup: in an lpm table the longest prefix; in ternary and range tables the highest precedence (run time:
the larger priority; entries of the program: the smaller number in the JSON), and among equals the entry that was
inserted first. Prefixes of lpm keys do not count in ternary and range tables. Fields of invalid headers match as 0.

Handles are integers from 0 that are not used again; the entries of the program have handles 0.. in their order.

Group members: in the order given to `group_set`, each repeated weight times; the choice is number hash % total, with
the hash taken over the selector's fields (those of invalid headers left out). A group without members hits and runs no
action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from switch.api import ActionCall, EntryAction, GroupRef, KeyMatch, MatchKind, MemberRef, PipelineError
from switch.meter import MeterCell
from switch.model import Action, ActionProfile, Table, TableKey


@dataclass(slots=True)
class CounterCell:
    packets: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        self.packets += 1
        self.bytes += size


@dataclass(frozen=True, slots=True)
class BoundAction:
    """An action with its arguments, ready to run."""

    action: Action
    params: tuple[int, ...]


Target = BoundAction | MemberRef | GroupRef


@dataclass(slots=True)
class Entry:
    handle: int
    keys: tuple[KeyMatch, ...]
    precedence: int  # larger wins
    target: Target
    last_hit_ps: int
    counter: CounterCell = field(default_factory=CounterCell)
    meter: MeterCell = field(default_factory=MeterCell)


def bind(call: ActionCall, actions: Sequence[Action], where: str) -> BoundAction:
    """The action that a call names among `actions`."""
    for action in actions:
        if action.name == call.name:
            if len(call.params) != len(action.params):
                wanted = f"{len(action.params)} parameters"
                raise PipelineError(f"{where}: action {call.name!r} is given {len(call.params)}, must be {wanted}")
            return BoundAction(action, tuple(call.params))
    names = ", ".join(action.name for action in actions)
    raise PipelineError(f"{where}: action {call.name!r} is not one of: {names}")


class ProfileState:
    """Members and groups of an action profile."""

    def __init__(self, profile: ActionProfile, actions: Sequence[Action]) -> None:
        self.profile = profile
        self.actions = actions
        self.members: dict[int, BoundAction] = {}
        self.groups: dict[int, tuple[tuple[int, int], ...]] = {}

    def set_member(self, member_id: int, call: ActionCall) -> None:
        where = f"action profile {self.profile.name!r} member {member_id}"
        bound = bind(call, self.actions, where)
        if member_id not in self.members and len(self.members) >= self.profile.max_size:
            raise PipelineError(f"{where}: the profile is full ({self.profile.max_size} members)")
        self.members[member_id] = bound

    def member(self, member_id: int) -> BoundAction:
        if member_id not in self.members:
            raise PipelineError(f"action profile {self.profile.name!r}: member {member_id} does not exist")
        return self.members[member_id]

    def group(self, group_id: int) -> tuple[tuple[int, int], ...]:
        if group_id not in self.groups:
            raise PipelineError(f"action profile {self.profile.name!r}: group {group_id} does not exist")
        return self.groups[group_id]

    def set_group(self, group_id: int, members: Sequence[tuple[int, int]]) -> None:
        if self.profile.selector is None:
            raise PipelineError(f"action profile {self.profile.name!r}: has no selector, so no groups")
        for member_id, weight in members:
            self.member(member_id)
            if weight < 1:
                raise PipelineError(f"group {group_id}: member {member_id} has weight {weight}, must be at least 1")
        self.groups[group_id] = tuple(members)

    def choose(self, group_id: int, hash_value: Callable[[], int]) -> BoundAction | None:
        """The member of a group that a hash picks; None where the group is empty."""
        members = self.groups[group_id]
        total = sum(weight for _, weight in members)
        if total == 0:
            return None
        number = hash_value() % total
        for member_id, weight in members:
            if number < weight:
                return self.members[member_id]
            number -= weight
        raise AssertionError("the weights add up to the total")


class TableState:
    """Entries of one table."""

    def __init__(self, table: Table, actions: Mapping[int, Action], profile: ProfileState | None) -> None:
        self.table = table
        self.actions = [actions[identifier] for identifier in table.action_ids]
        self.profile = profile
        self.entries: dict[int, Entry] = {}
        self.exact: dict[tuple[int, ...], Entry] = {}  # of tables with exact keys only
        self.next_handle = 0
        self.initial_default: Target | None = None
        if table.default is not None:
            self.initial_default = BoundAction(actions[table.default.action_id], table.default.action_data)
        self.default: Target | None = self.initial_default
        for const in table.const_entries:
            keys = tuple(key for key in const.keys if isinstance(key, KeyMatch))
            target = BoundAction(actions[const.action_id], const.action_data)
            self._add(keys, -const.priority, target, 0)

    # --- lookup ---------------------------------------------------------------------------------------------------

    def find(self, values: Sequence[int]) -> Entry | None:
        """The entry that wins for these key values (bit patterns, masks of the keys not yet applied)."""
        masked = tuple(
            value if key.mask is None else value & key.mask for value, key in zip(values, self.table.keys, strict=True)
        )
        if self.table.kind is MatchKind.EXACT:
            return self.exact.get(masked)
        best: Entry | None = None
        for entry in self.entries.values():  # oldest first
            if best is not None and self._rank(entry) <= self._rank(best):
                continue
            parts = zip(entry.keys, masked, self.table.keys, strict=True)
            if all(matches(match, value, key) for match, value, key in parts):
                best = entry
        return best

    def _rank(self, entry: Entry) -> int:
        if self.table.kind is MatchKind.LPM:
            return next(key.prefix_len for key in entry.keys if key.kind is MatchKind.LPM)
        return entry.precedence

    # --- control --------------------------------------------------------------------------------------------------

    def insert(self, keys: Sequence[KeyMatch], priority: int, action: EntryAction, now_ps: int) -> int:
        self._check_mutable()
        checked = self._check_keys(keys)
        target = self.target(action)
        if len(self.entries) >= self.table.max_size:
            raise PipelineError(f"table {self.table.name!r}: is full ({self.table.max_size} entries)")
        return self._add(checked, priority, target, now_ps)

    def _add(self, keys: tuple[KeyMatch, ...], precedence: int, target: Target, now_ps: int) -> int:
        entry = Entry(self.next_handle, keys, precedence, target, now_ps)
        self.next_handle += 1
        self.entries[entry.handle] = entry
        if self.table.kind is MatchKind.EXACT:
            self.exact[self._exact_key(keys)] = entry
        return entry.handle

    def _exact_key(self, keys: Sequence[KeyMatch]) -> tuple[int, ...]:
        return tuple(
            match.value if key.mask is None else match.value & key.mask
            for match, key in zip(keys, self.table.keys, strict=True)
        )

    def delete(self, handle: int) -> None:
        self._check_mutable()
        entry = self.entry(handle)
        del self.entries[handle]
        if self.table.kind is MatchKind.EXACT and self.exact.get(self._exact_key(entry.keys)) is entry:
            del self.exact[self._exact_key(entry.keys)]

    def modify(self, handle: int, action: EntryAction) -> None:
        self._check_mutable()
        self.entry(handle).target = self.target(action)

    def set_default(self, action: EntryAction | None) -> None:
        default = self.table.default
        if action is None:
            self.default = self.initial_default
            return
        target = self.target(action)
        if default is not None and target != self.initial_default:
            same_action = isinstance(target, BoundAction) and target.action.id == default.action_id
            if default.entry_const or (default.action_const and not same_action):
                raise PipelineError(f"table {self.table.name!r}: the default action is constant")
        self.default = target

    def entry(self, handle: int) -> Entry:
        if handle not in self.entries:
            raise PipelineError(f"table {self.table.name!r}: no entry has handle {handle}")
        return self.entries[handle]

    def target(self, action: EntryAction) -> Target:
        """What an entry runs, checked against the table."""
        where = f"table {self.table.name!r}"
        if isinstance(action, ActionCall):
            if self.profile is not None:
                raise PipelineError(f"{where}: takes members or groups of {self.profile.profile.name!r}, not actions")
            return bind(action, self.actions, where)
        if self.profile is None:
            raise PipelineError(f"{where}: takes actions, it has no action profile")
        if isinstance(action, MemberRef):
            self.profile.member(action.member_id)
            return action
        if not self.table.selector:
            raise PipelineError(f"{where}: has no action selector, so no groups")
        self.profile.group(action.group_id)
        return action

    def _check_mutable(self) -> None:
        if self.table.has_const_entries:
            raise PipelineError(f"table {self.table.name!r}: its entries are constant")

    def _check_keys(self, keys: Sequence[KeyMatch]) -> tuple[KeyMatch, ...]:
        where = f"table {self.table.name!r}"
        if len(keys) != len(self.table.keys):
            raise PipelineError(f"{where}: {len(keys)} keys are given, must be {len(self.table.keys)}")
        for match, key in zip(keys, self.table.keys, strict=True):
            allowed = {key.kind}
            if key.kind in (MatchKind.TERNARY, MatchKind.OPTIONAL):
                allowed = {MatchKind.TERNARY, MatchKind.OPTIONAL}
            name = f"{where} key {key.name!r}"
            if match.kind not in allowed:
                raise PipelineError(f"{name}: is given as {match.kind.value}, must be {key.kind.value}")
            if match.kind is MatchKind.LPM and not 0 <= match.prefix_len <= key.bits:
                raise PipelineError(f"{name}: prefix length {match.prefix_len}, must be 0..{key.bits}")
            if match.kind is MatchKind.RANGE and match.value > match.high:
                raise PipelineError(f"{name}: empty range {match.value}..{match.high}")
        return tuple(keys)


def matches(match: KeyMatch, value: int, key: TableKey) -> bool:
    """Whether a key of an entry matches a value to which the key's own mask has been applied."""
    own = (1 << key.bits) - 1 if key.mask is None else key.mask
    match match.kind:
        case MatchKind.RANGE:
            return match.value <= value <= match.high
        case MatchKind.LPM:
            mask = ((1 << match.prefix_len) - 1) << (key.bits - match.prefix_len)
        case MatchKind.TERNARY | MatchKind.OPTIONAL:
            mask = match.mask
        case _:
            mask = own
    return (value ^ match.value) & mask & own == 0

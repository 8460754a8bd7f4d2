"""What the clients have written, in P4Runtime terms: entries by key, members and groups, PRE, meters, digest settings.

The store answers reads, finds duplicates and counts references; it validates nothing and never calls the target.
`write` changes it step by step together with the target. Entries are immutable: a change replaces the object under its
key.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Iterator
from dataclasses import dataclass, field

from switch.api import ActionCall, GroupRef, KeyMatch, MemberRef, MeterConfig
from switch.p4rt.control import TargetControl
from switch.p4rt.schema import Schema, Table


@dataclass(frozen=True, slots=True)
class Watch:
    """A watched port and the field of the message that it came in."""

    port: int
    deprecated_field: bool = False


@dataclass(frozen=True, slots=True)
class OneShotAction:
    call: ActionCall
    weight: int
    watch: Watch | None = None


@dataclass(frozen=True, slots=True)
class ActionSet:
    """A one-shot action set, with the ids of the group and the members that stand for it in the pipeline."""

    actions: tuple[OneShotAction, ...]
    action_selection_mode: int = 0
    size_semantics: int = 0
    group_id: int = 0
    member_ids: tuple[int, ...] = ()


StoredAction = ActionCall | MemberRef | GroupRef | ActionSet
Key = tuple[tuple[KeyMatch, ...], int]  # match fields and priority


@dataclass(frozen=True, slots=True)
class Entry:
    """A table entry; `const` for entries that the program declares unchangeable."""

    keys: tuple[KeyMatch, ...]
    priority: int
    handle: int
    action: StoredAction
    controller_metadata: int = 0
    metadata: bytes = b""
    idle_timeout_ns: int = 0
    meter: MeterConfig | None = None
    role: str = ""
    const: bool = False

    @property
    def key(self) -> Key:
        return self.keys, self.priority


@dataclass(frozen=True, slots=True)
class DefaultEntry:
    """The default entry; `action` None stands for a program without one (no-op)."""

    action: ActionCall | None
    controller_metadata: int = 0
    metadata: bytes = b""
    role: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    member_id: int
    action: ActionCall


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: int
    weight: int
    watch: Watch | None = None


@dataclass(frozen=True, slots=True)
class Group:
    group_id: int
    max_size: int
    members: tuple[GroupMember, ...]


@dataclass(slots=True)
class Profile:
    """Members and groups of one action profile. One-shot sets live in `hidden_*`, apart from the client's own."""

    members: dict[int, Member] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)
    member_refs: Multiset[int] = field(default_factory=Multiset)  # from groups and entries
    group_refs: Multiset[int] = field(default_factory=Multiset)  # from entries
    one_shots: dict[int, ActionSet] = field(default_factory=dict)  # by the id of the hidden group
    next_id: int = 1

    def free_ids(self, count: int) -> list[int]:
        """Ids that no member or group of a profile that is used with one-shots has. Never reused."""
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        return ids


@dataclass(frozen=True, slots=True)
class Replica:
    """`deprecated_field`: the port came in egress_port instead of port, and is read back so."""

    port: int
    instance: int
    deprecated_field: bool = False


@dataclass(frozen=True, slots=True)
class MulticastGroup:
    group_id: int
    replicas: tuple[Replica, ...]
    metadata: bytes = b""


@dataclass(frozen=True, slots=True)
class CloneSession:
    session_id: int
    replicas: tuple[Replica, ...]
    class_of_service: int = 0
    packet_length_bytes: int = 0


class Store:
    """The written state of one pipeline configuration, filled with what the program brings along."""

    def __init__(self, schema: Schema, target: TargetControl) -> None:
        self.entries: dict[int, dict[Key, Entry]] = {}
        self.defaults: dict[int, DefaultEntry] = {}
        self.initial_defaults: dict[int, ActionCall | None] = {}
        self.profiles: dict[int, Profile] = {profile_id: Profile() for profile_id in schema.profiles}
        self.meters: dict[int, dict[int, MeterConfig]] = {meter_id: {} for meter_id in schema.meters}
        self.multicast_groups: dict[int, MulticastGroup] = {}
        self.clone_sessions: dict[int, CloneSession] = {}
        self.value_sets: dict[int, tuple[tuple[KeyMatch, ...], ...]] = dict.fromkeys(schema.value_sets, ())
        self.idle_entries: dict[tuple[int, Key], None] = {}  # entries with an idle timeout, in order
        for table in schema.tables.values():
            self.entries[table.id] = {}
            for initial in target.initial_entries(table.name):
                entry = Entry(initial.keys, initial.priority, initial.handle, initial.action, const=table.const_entries)
                self.entries[table.id][entry.key] = entry
            self.initial_defaults[table.id] = target.initial_default(table.name)
            self.defaults[table.id] = DefaultEntry(self.initial_defaults[table.id])

    def put(self, table: Table, entry: Entry) -> None:
        """Add an entry or replace the one with its key."""
        old = self.entries[table.id].get(entry.key)
        if old is not None:
            self._count(table, old, -1)
            self.idle_entries.pop((table.id, old.key), None)
        self.entries[table.id][entry.key] = entry  # a replaced entry keeps its place in reads
        self._count(table, entry, 1)
        if entry.idle_timeout_ns:
            self.idle_entries[table.id, entry.key] = None

    def drop(self, table: Table, key: Key) -> None:
        """Remove an entry; nothing happens when there is none."""
        entry = self.entries[table.id].pop(key, None)
        if entry is not None:
            self._count(table, entry, -1)
            self.idle_entries.pop((table.id, key), None)

    def _count(self, table: Table, entry: Entry, step: int) -> None:
        if isinstance(entry.action, MemberRef):
            self.profiles[table.profile_id].member_refs[entry.action.member_id] += step
        elif isinstance(entry.action, GroupRef):
            self.profiles[table.profile_id].group_refs[entry.action.group_id] += step

    def put_group(self, profile_id: int, group: Group) -> None:
        """Add a group or replace the one with its id."""
        profile = self.profiles[profile_id]
        old = profile.groups.get(group.group_id)
        if old is not None:
            profile.member_refs.subtract(member.member_id for member in old.members)
        profile.groups[group.group_id] = group
        profile.member_refs.update(member.member_id for member in group.members)

    def drop_group(self, profile_id: int, group_id: int) -> None:
        """Remove a group; nothing happens when there is none."""
        profile = self.profiles[profile_id]
        group = profile.groups.pop(group_id, None)
        if group is not None:
            profile.member_refs.subtract(member.member_id for member in group.members)

    def indirect_entries(self, schema: Schema, profile_id: int) -> Iterator[Entry]:
        """Entries of all tables that an action profile implements."""
        for table_id in schema.profiles[profile_id].table_ids:
            yield from self.entries[table_id].values()

    def watches_ports(self) -> bool:
        """Some group member or one-shot action has a watch port."""
        return any(
            any(m.watch for g in profile.groups.values() for m in g.members)
            or any(a.watch for s in profile.one_shots.values() for a in s.actions)
            for profile in self.profiles.values()
        )

"""The Read RPC: each requested entity is a query, wildcards included; results are in canonical form.

Configuration comes from the store, counters, registers and hit times from the target. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from finsy.proto import p4r

from switch.api import CounterValue, GroupRef, MemberRef
from switch.p4rt import codec, p4data
from switch.p4rt.bytestrings import encode_unsigned
from switch.p4rt.control import TargetControl
from switch.p4rt.digests import Digests
from switch.p4rt.errors import invalid, not_found, target_errors, unimplemented
from switch.p4rt.schema import Counter, Schema, Table
from switch.p4rt.store import ActionSet, DefaultEntry, Entry, Group, Replica, Store, StoredAction, Watch

_T = TypeVar("_T")
_ArrayQuery = p4r.CounterEntry | p4r.MeterEntry | p4r.RegisterEntry


class Reader:
    """Answers queries about one pipeline configuration."""

    def __init__(self, schema: Schema, store: Store, target: TargetControl, digests: Digests) -> None:
        self._schema = schema
        self._store = store
        self._target = target
        self._digests = digests

    def read(self, query: p4r.Entity, role: str = "") -> Iterator[p4r.Entity]:
        """The entities that a query selects; `role`, when given, selects table entries by who wrote them."""
        name = query.WhichOneof("entity")
        if name == "table_entry":
            for entry in self._table_entries(query.table_entry, role):
                yield p4r.Entity(table_entry=entry)
        elif name == "direct_counter_entry":
            for direct_counter in self._direct_counters(query.direct_counter_entry):
                yield p4r.Entity(direct_counter_entry=direct_counter)
        elif name == "direct_meter_entry":
            for direct_meter in self._direct_meters(query.direct_meter_entry):
                yield p4r.Entity(direct_meter_entry=direct_meter)
        elif name == "counter_entry":
            yield from self._counters(query.counter_entry)
        elif name == "meter_entry":
            yield from self._meters(query.meter_entry)
        elif name == "register_entry":
            yield from self._registers(query.register_entry)
        elif name == "action_profile_member":
            yield from self._members(query.action_profile_member)
        elif name == "action_profile_group":
            yield from self._groups(query.action_profile_group)
        elif name == "packet_replication_engine_entry":
            yield from self._replication(query.packet_replication_engine_entry)
        elif name == "value_set_entry":
            yield from self._value_sets(query.value_set_entry)
        elif name == "digest_entry":
            yield from self._digest_entries(query.digest_entry)
        elif name == "extern_entry":
            if query.extern_entry.extern_type_id or query.extern_entry.extern_id:
                raise unimplemented("extern_entry: a v1model program has no externs of this kind")
        else:
            raise invalid("entity: must be set")

    # --- tables ---

    def _table_entries(self, query: p4r.TableEntry, role: str) -> Iterator[p4r.TableEntry]:
        if query.HasField("meter_counter_data"):
            raise unimplemented("meter_counter_data: this target does not count packets per meter colour")
        if query.table_id == 0:
            if query.match or query.HasField("action") or query.priority:
                raise invalid("table_entry: with table_id 0 no match, action or priority can be given")
            tables: Iterable[Table] = self._schema.tables.values()
        else:
            table = self._schema.table(query.table_id)
            if query.HasField("time_since_last_hit") and not table.idle_timeout:
                raise invalid(f"table {table.name}: time_since_last_hit: the table does not support time-outs")
            tables = (table,)
        for table in tables:
            if query.is_default_action:
                yield from self._default_entry(table, query, role)
            else:
                for entry in self._select(table, query):
                    if not role or entry.role == role:
                        yield self._encode_entry(table, entry, query)

    def _select(self, table: Table, query: p4r.TableEntry) -> Iterator[Entry]:
        candidates = self._with_key(table, query) if query.match else list(self._store.entries[table.id].values())
        action_name = None
        if query.HasField("action"):
            if query.action.WhichOneof("type") != "action" or table.profile_id:
                raise invalid(f"table {table.name}: entries can only be selected by the action_id of a direct table")
            action_name = codec.table_action(table, query.action.action.action_id, default=False).name
        for entry in candidates:
            if query.priority and entry.priority != query.priority:
                continue
            if query.controller_metadata and entry.controller_metadata != query.controller_metadata:
                continue
            if query.metadata and entry.metadata != query.metadata:
                continue
            if action_name is not None and getattr(entry.action, "name", None) != action_name:
                continue
            yield entry

    def _with_key(self, table: Table, query: p4r.TableEntry) -> list[Entry]:
        """Entries with the match of a query, and its priority where that is given."""
        entries = self._store.entries[table.id]
        if table.has_priority and query.priority == 0:
            keys = codec.decode_match(f"table {table.name}", table.fields, query.match)
            return [entry for entry in entries.values() if entry.keys == keys]
        found = entries.get(codec.decode_key(table, query))
        return [] if found is None else [found]

    def _default_entry(self, table: Table, query: p4r.TableEntry, role: str) -> Iterator[p4r.TableEntry]:
        if query.match or query.priority:
            raise invalid(f"table {table.name}: the default entry has no match and no priority")
        if query.HasField("time_since_last_hit"):
            raise invalid(f"table {table.name}: time_since_last_hit: a default entry has no idle timeout")
        default: DefaultEntry = self._store.defaults[table.id]
        if role and default.role != role:
            return
        message = p4r.TableEntry(
            table_id=table.id,
            is_default_action=True,
            controller_metadata=default.controller_metadata,
            metadata=default.metadata,
            is_const=table.const_default,
        )
        if default.action is not None:
            action = table.action_named(default.action.name)
            message.action.action.CopyFrom(codec.encode_action(action, default.action))
        yield message

    def _encode_entry(self, table: Table, entry: Entry, query: p4r.TableEntry) -> p4r.TableEntry:
        message = encode_key(table, entry)
        message.action.CopyFrom(encode_table_action(table, entry.action))
        message.controller_metadata = entry.controller_metadata
        message.metadata = entry.metadata
        message.idle_timeout_ns = entry.idle_timeout_ns
        message.is_const = entry.const
        if query.HasField("meter_config") and entry.meter is not None:
            message.meter_config.CopyFrom(codec.encode_meter(entry.meter))
        if query.HasField("counter_data") and table.direct_counter:
            message.counter_data.CopyFrom(self._direct_counter(table, entry))
        if query.HasField("time_since_last_hit") and table.idle_timeout:
            with target_errors(f"table {table.name}"):
                age_us = self._target.table_hit_age_us(table.name, entry.handle)
            message.time_since_last_hit.elapsed_ns = age_us * 1000
        return message

    # --- direct resources ---

    def _direct(self, query: p4r.TableEntry, what: str, counter: bool) -> Iterator[tuple[Table, Entry]]:
        """Entries that a Direct*Entry query selects."""
        if query.table_id == 0:
            if query.match or query.priority:
                raise invalid(f"{what}: with table_id 0 no match or priority can be given")
            for table in self._schema.tables.values():
                if table.direct_counter if counter else table.direct_meter:
                    for entry in list(self._store.entries[table.id].values()):
                        yield table, entry
            return
        table = self._schema.table(query.table_id)
        if not (table.direct_counter if counter else table.direct_meter):
            raise invalid(f"{what}: table {table.name} has no direct {'counter' if counter else 'meter'}")
        if query.is_default_action:
            raise unimplemented(
                f"{what}: table {table.name}: this target has no direct counter or meter on default entries"
            )
        if query.match:
            found = self._with_key(table, query)
            if not found:
                raise not_found(f"{what}: table {table.name}: no entry with this match and priority")
            yield from ((table, entry) for entry in found)
            return
        for entry in list(self._store.entries[table.id].values()):
            if not query.priority or entry.priority == query.priority:
                yield table, entry

    def _direct_counters(self, query: p4r.DirectCounterEntry) -> Iterator[p4r.DirectCounterEntry]:
        for table, entry in self._direct(query.table_entry, "direct_counter_entry", counter=True):
            yield p4r.DirectCounterEntry(table_entry=encode_key(table, entry), data=self._direct_counter(table, entry))

    def _direct_counter(self, table: Table, entry: Entry) -> p4r.CounterData:
        with target_errors(f"table {table.name}"):
            value = self._target.direct_counter_read(table.name, entry.handle)
        return encode_counter(self._schema.direct_counters[table.direct_counter], value)

    def _direct_meters(self, query: p4r.DirectMeterEntry) -> Iterator[p4r.DirectMeterEntry]:
        if query.HasField("counter_data"):
            raise unimplemented("direct_meter_entry: counter_data: this target does not count packets per meter colour")
        for table, entry in self._direct(query.table_entry, "direct_meter_entry", counter=False):
            message = p4r.DirectMeterEntry(table_entry=encode_key(table, entry))
            if entry.meter is not None:
                message.config.CopyFrom(codec.encode_meter(entry.meter))
            yield message

    # --- arrays ---

    def _counters(self, query: p4r.CounterEntry) -> Iterator[p4r.Entity]:
        for counter in _some(query.counter_id, query, self._schema.counters, self._schema.counter):
            for index in _indices(f"counter {counter.name}", query, counter.size):
                with target_errors(f"counter {counter.name}[{index}]"):
                    value = self._target.counter_read(counter.name, index)
                # Set in place: whole arrays are read at once, and copies of sub-messages are what that costs.
                entity = p4r.Entity()
                entry = entity.counter_entry
                entry.counter_id = counter.id
                entry.index.index = index
                entry.data.packet_count = value.packets if counter.counts_packets else 0
                entry.data.byte_count = value.bytes if counter.counts_bytes else 0
                yield entity

    def _meters(self, query: p4r.MeterEntry) -> Iterator[p4r.Entity]:
        if query.HasField("counter_data"):
            raise unimplemented("meter_entry: counter_data: this target does not count packets per meter colour")
        for meter in _some(query.meter_id, query, self._schema.meters, self._schema.meter):
            cells = self._store.meters[meter.id]
            for index in _indices(f"meter {meter.name}", query, meter.size):
                entry = p4r.MeterEntry(meter_id=meter.id, index=p4r.Index(index=index))
                if index in cells:
                    entry.config.CopyFrom(codec.encode_meter(cells[index]))
                yield p4r.Entity(meter_entry=entry)

    def _registers(self, query: p4r.RegisterEntry) -> Iterator[p4r.Entity]:
        for register in _some(query.register_id, query, self._schema.registers, self._schema.register):
            for index in _indices(f"register {register.name}", query, register.size):
                with target_errors(f"register {register.name}[{index}]"):
                    value = self._target.register_read(register.name, index)
                entity = p4r.Entity()
                entry = entity.register_entry
                entry.register_id = register.id
                entry.index.index = index
                entry.data.MergeFrom(p4data.encode(register.type, [value]))
                yield entity

    # --- action profiles ---

    def _members(self, query: p4r.ActionProfileMember) -> Iterator[p4r.Entity]:
        profiles = [self._schema.profile(query.action_profile_id)] if query.action_profile_id else []
        if query.member_id and not profiles:
            raise invalid("action_profile_member: member_id cannot be given without action_profile_id")
        for profile in profiles or self._schema.profiles.values():
            for member in list(self._store.profiles[profile.id].members.values()):
                if query.member_id in (0, member.member_id):
                    table = self._schema.tables[profile.table_ids[0]]
                    action = codec.encode_action(table.action_named(member.action.name), member.action)
                    message = p4r.ActionProfileMember(
                        action_profile_id=profile.id, member_id=member.member_id, action=action
                    )
                    yield p4r.Entity(action_profile_member=message)

    def _groups(self, query: p4r.ActionProfileGroup) -> Iterator[p4r.Entity]:
        profiles = [self._schema.profile(query.action_profile_id)] if query.action_profile_id else []
        if query.group_id and not profiles:
            raise invalid("action_profile_group: group_id cannot be given without action_profile_id")
        for profile in profiles or self._schema.profiles.values():
            for group in list(self._store.profiles[profile.id].groups.values()):
                if query.group_id in (0, group.group_id):
                    yield p4r.Entity(action_profile_group=_encode_group(profile.id, group))

    # --- the rest ---

    def _replication(self, query: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
        which = query.WhichOneof("type")
        if which == "multicast_group_entry":
            wanted = query.multicast_group_entry.multicast_group_id
            for group in list(self._store.multicast_groups.values()):
                if wanted in (0, group.group_id):
                    multicast = p4r.MulticastGroupEntry(
                        multicast_group_id=group.group_id,
                        replicas=map(_encode_replica, group.replicas),
                        metadata=group.metadata,
                    )
                    yield _pre(p4r.PacketReplicationEngineEntry(multicast_group_entry=multicast))
        elif which == "clone_session_entry":
            wanted = query.clone_session_entry.session_id
            for session in list(self._store.clone_sessions.values()):
                if wanted in (0, session.session_id):
                    clone = p4r.CloneSessionEntry(
                        session_id=session.session_id,
                        replicas=map(_encode_replica, session.replicas),
                        class_of_service=session.class_of_service,
                        packet_length_bytes=session.packet_length_bytes,
                    )
                    yield _pre(p4r.PacketReplicationEngineEntry(clone_session_entry=clone))
        else:
            raise invalid("packet_replication_engine_entry: type must be set")

    def _value_sets(self, query: p4r.ValueSetEntry) -> Iterator[p4r.Entity]:
        if query.members:
            raise invalid("value_set_entry: members cannot be given in a read")
        if query.value_set_id:
            self._schema.value_set(query.value_set_id)
        for value_set in self._schema.value_sets.values():
            if query.value_set_id in (0, value_set.id):
                members = [
                    p4r.ValueSetMember(match=codec.encode_match(value_set.fields, keys))
                    for keys in self._store.value_sets[value_set.id]
                ]
                yield p4r.Entity(value_set_entry=p4r.ValueSetEntry(value_set_id=value_set.id, members=members))

    def _digest_entries(self, query: p4r.DigestEntry) -> Iterator[p4r.Entity]:
        if query.digest_id:
            self._schema.digest(query.digest_id)
        for digest_id, config in self._digests.configs().items():
            if query.digest_id in (0, digest_id):
                message = p4r.DigestEntry(
                    digest_id=digest_id,
                    config=p4r.DigestEntry.Config(
                        max_timeout_ns=config.max_timeout_ns,
                        max_list_size=config.max_list_size,
                        ack_timeout_ns=config.ack_timeout_ns,
                    ),
                )
                yield p4r.Entity(digest_entry=message)


def _some(object_id: int, query: _ArrayQuery, objects: Mapping[int, _T], look_up: Callable[[int], _T]) -> Iterable[_T]:
    """One array by id, or all for id 0."""
    if object_id:
        return (look_up(object_id),)
    if query.HasField("index"):
        raise invalid("index: cannot be given without the id of the array")
    return objects.values()


def _indices(what: str, query: _ArrayQuery, size: int) -> Iterable[int]:
    if not query.HasField("index"):
        return range(size)
    return (codec.check_index(what, query.index.index, size),)


def encode_key(table: Table, entry: Entry) -> p4r.TableEntry:
    """The key fields of an entry."""
    return p4r.TableEntry(
        table_id=table.id, match=codec.encode_match(table.fields, entry.keys), priority=entry.priority
    )


def encode_counter(counter: Counter, value: CounterValue) -> p4r.CounterData:
    """Counter data; what the counter does not count is 0."""
    return p4r.CounterData(
        packet_count=value.packets if counter.counts_packets else 0,
        byte_count=value.bytes if counter.counts_bytes else 0,
    )


def encode_table_action(table: Table, action: StoredAction) -> p4r.TableAction:
    """The action of an entry as it was written."""
    if isinstance(action, MemberRef):
        return p4r.TableAction(action_profile_member_id=action.member_id)
    if isinstance(action, GroupRef):
        return p4r.TableAction(action_profile_group_id=action.group_id)
    if not isinstance(action, ActionSet):
        return p4r.TableAction(action=codec.encode_action(table.action_named(action.name), action))
    actions = []
    for one in action.actions:
        message = p4r.ActionProfileAction(
            action=codec.encode_action(table.action_named(one.call.name), one.call), weight=one.weight
        )
        _encode_watch(message, one.watch)
        actions.append(message)
    action_set = p4r.ActionProfileActionSet(action_profile_actions=actions)
    action_set.action_selection_mode = action.action_selection_mode  # type: ignore[assignment]
    action_set.size_semantics = action.size_semantics  # type: ignore[assignment]
    return p4r.TableAction(action_profile_action_set=action_set)


def _encode_group(profile_id: int, group: Group) -> p4r.ActionProfileGroup:
    message = p4r.ActionProfileGroup(action_profile_id=profile_id, group_id=group.group_id, max_size=group.max_size)
    for member in group.members:
        encoded = message.members.add(member_id=member.member_id, weight=member.weight)
        _encode_watch(encoded, member.watch)
    return message


def _encode_watch(message: p4r.ActionProfileAction | p4r.ActionProfileGroup.Member, watch: Watch | None) -> None:
    if watch is None:
        return
    if watch.deprecated_field:
        message.watch = watch.port
    else:
        message.watch_port = encode_unsigned(watch.port)


def _encode_replica(replica: Replica) -> p4r.Replica:
    if replica.deprecated_field:
        return p4r.Replica(egress_port=replica.port, instance=replica.instance)
    return p4r.Replica(port=encode_unsigned(replica.port), instance=replica.instance)


def _pre(entry: p4r.PacketReplicationEngineEntry) -> p4r.Entity:
    return p4r.Entity(packet_replication_engine_entry=entry)

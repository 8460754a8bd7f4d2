"""Writes to tables and their direct resources: INSERT, MODIFY, DELETE of TableEntry, MODIFY of Direct*Entry.

Each method checks everything first, then changes target and store step by step and notes the way back in the journal,
so that a refusal by the target half-way leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import replace

from finsy.proto import p4r

from switch.api import ActionCall, CounterValue, EntryAction, GroupRef, MeterConfig
from switch.p4rt import codec
from switch.p4rt.codec import decode_key
from switch.p4rt.control import TargetControl
from switch.p4rt.errors import Code, P4RuntimeError, invalid, not_found, target_errors, unimplemented
from switch.p4rt.journal import Journal
from switch.p4rt.schema import Schema, Table
from switch.p4rt.store import ActionSet, DefaultEntry, Entry, Key, Store, StoredAction
from switch.p4rt.write_profiles import ProfileWriter


class TableWriter:
    """Owns no state: store and target are shared with the other writers."""

    def __init__(self, schema: Schema, store: Store, target: TargetControl, profiles: ProfileWriter) -> None:
        self._schema = schema
        self._store = store
        self._target = target
        self._profiles = profiles

    # --- TableEntry ---

    def insert(self, message: p4r.TableEntry, role: str, journal: Journal) -> None:
        """INSERT of an entry."""
        table = self._schema.table(message.table_id)
        _check_writable(table, message)
        if message.is_default_action:
            raise invalid(f"table {table.name}: the default entry always exists: MODIFY it (INSERT is not allowed)")
        if table.const_entries:
            raise _denied(f"table {table.name}: its entries are const")
        if not table.fields:
            raise invalid(f"table {table.name}: it has no key, so it can hold no entries, only a default")
        keys, priority = decode_key(table, message)
        entries = self._store.entries[table.id]
        if (keys, priority) in entries:
            raise P4RuntimeError(
                Code.ALREADY_EXISTS, f"table {table.name}: an entry with this match and priority exists"
            )
        if table.size and len(entries) >= table.size:
            raise P4RuntimeError(Code.RESOURCE_EXHAUSTED, f"table {table.name}: it is full (size {table.size})")
        if not message.HasField("action"):
            raise invalid(f"table {table.name}: action is missing")
        action = self._profiles.decode_table_action(table, message.action)
        meter = self._decode_meter(table, message)
        counter = self._decode_counter(table, message)
        if isinstance(action, ActionSet):
            action = self._profiles.install_one_shot(table, action, journal)
        with target_errors(f"table {table.name}"):
            handle = self._target.table_insert(table.name, keys, priority, pipeline_action(action))
        entry = Entry(
            keys,
            priority,
            handle,
            action,
            message.controller_metadata,
            message.metadata,
            message.idle_timeout_ns,
            meter,
            role,
        )
        self._store.put(table, entry)
        journal.done(lambda: self._remove(table, entry.key))
        with target_errors(f"table {table.name}"):
            if meter is not None:
                self._target.direct_meter_write(table.name, handle, meter)
            if counter is not None:
                self._target.direct_counter_write(table.name, handle, counter)

    def modify(self, message: p4r.TableEntry, role: str, journal: Journal) -> None:
        """MODIFY of an entry or of the default entry."""
        table = self._schema.table(message.table_id)
        _check_writable(table, message)
        if message.is_default_action:
            self._modify_default(table, message, role, journal)
            return
        old = self.find(table, message)
        if old.const and (message.HasField("action") or message.idle_timeout_ns or message.metadata):
            raise _denied(f"table {table.name}: the entry is const: only its direct counter and meter can be written")
        action: StoredAction = old.action
        if message.HasField("action"):
            action = self._profiles.decode_table_action(table, message.action, old.action)
        meter = self._decode_meter(table, message)
        counter = self._decode_counter(table, message)
        if isinstance(action, ActionSet) and isinstance(old.action, ActionSet) and action is not old.action:
            # A profile is programmed with one-shots only or with members and groups only: never one to the other.
            action = self._profiles.replace_one_shot(table, old.action, action, journal)
        new = replace(
            old,
            action=action,
            controller_metadata=message.controller_metadata,
            metadata=message.metadata,
            idle_timeout_ns=message.idle_timeout_ns,
            meter=meter,
            role=role,
        )
        if pipeline_action(action) != pipeline_action(old.action):
            self._set_action(table, old.key, action)
            journal.done(lambda: self._set_action(table, old.key, old.action))
        self._store.put(table, new)
        journal.done(lambda: self._store.put(table, replace(old, handle=self._handle(table, old.key))))
        if table.direct_meter and meter != old.meter:
            self._write_meter(table, old.key, meter)
            journal.done(lambda: self._write_meter(table, old.key, old.meter))
        if counter is not None:
            self._write_counter(table, old.key, counter, journal)

    def delete(self, message: p4r.TableEntry, journal: Journal) -> None:
        """DELETE of an entry. Only the key of the message counts."""
        table = self._schema.table(message.table_id)
        if message.is_const:
            raise invalid(f"table {table.name}: is_const must not be set in a write")
        if message.is_default_action:
            raise invalid(f"table {table.name}: the default entry always exists: MODIFY it without action to reset it")
        if table.const_entries:
            raise _denied(f"table {table.name}: its entries are const")
        entry = self.find(table, message)
        if entry.const:
            raise _denied(f"table {table.name}: the entry is const")
        counter = None
        with target_errors(f"table {table.name}"):
            if table.direct_counter:
                counter = self._target.direct_counter_read(table.name, entry.handle)
            self._target.table_delete(table.name, entry.handle)
        self._store.drop(table, entry.key)
        journal.done(lambda: self._put_back(table, entry, counter))
        if isinstance(entry.action, ActionSet):
            self._profiles.remove_one_shot(table, entry.action, journal)

    def find(self, table: Table, message: p4r.TableEntry) -> Entry:
        """The stored entry with the key of a message."""
        entry = self._store.entries[table.id].get(decode_key(table, message))
        if entry is None:
            raise not_found(f"table {table.name}: no entry with this match and priority")
        return entry

    # --- default entry ---

    def _modify_default(self, table: Table, message: p4r.TableEntry, role: str, journal: Journal) -> None:
        what = f"table {table.name}: default entry"
        if message.match or message.priority:
            raise invalid(f"{what}: match must be empty and priority 0")
        if message.idle_timeout_ns:
            raise invalid(f"{what}: idle_timeout_ns {message.idle_timeout_ns}: a default entry has no idle timeout")
        if table.const_default:
            raise _denied(f"{what}: it is const")
        if table.profile_id:
            raise _denied(f"{what}: the table has an action profile, so its default is constant")
        if message.HasField("counter_data") or message.HasField("meter_config"):
            raise unimplemented(f"{what}: this target has no direct counter or meter on default entries")
        old = self._store.defaults[table.id]
        if message.HasField("action"):
            if message.action.WhichOneof("type") != "action":
                raise invalid(f"{what}: the table is direct: action.action must be set")
            call: ActionCall | None = codec.decode_action(table, message.action.action, default=True)
            new = DefaultEntry(call, message.controller_metadata, message.metadata, role)
        else:
            call = None
            new = DefaultEntry(self._store.initial_defaults[table.id])
        with target_errors(f"table {table.name}"):
            self._target.table_set_default(table.name, call)
        self._store.defaults[table.id] = new
        journal.done(lambda: self._restore_default(table, old))

    def _restore_default(self, table: Table, old: DefaultEntry) -> None:
        initial = old.action == self._store.initial_defaults[table.id]
        self._target.table_set_default(table.name, None if initial else old.action)
        self._store.defaults[table.id] = old

    # --- direct resources ---

    def modify_direct_counter(self, message: p4r.DirectCounterEntry, journal: Journal) -> None:
        """MODIFY of a DirectCounterEntry; without data it changes nothing."""
        table = self._direct_table(message.table_entry)
        if not table.direct_counter:
            raise invalid(f"table {table.name}: it has no direct counter")
        entry = self.find(table, message.table_entry)
        if message.HasField("data"):
            self._write_counter(table, entry.key, decode_counter(table.name, message.data), journal)

    def modify_direct_meter(self, message: p4r.DirectMeterEntry, journal: Journal) -> None:
        """MODIFY of a DirectMeterEntry; without config the meter goes back to green for all."""
        table = self._direct_table(message.table_entry)
        if not table.direct_meter:
            raise invalid(f"table {table.name}: it has no direct meter")
        if message.HasField("counter_data"):
            raise unimplemented(f"table {table.name}: this target does not count packets per meter colour")
        old = self.find(table, message.table_entry)
        meter = None
        if message.HasField("config"):
            meter = codec.decode_meter(self._schema.direct_meters[table.direct_meter], message.config)
        self._write_meter(table, old.key, meter)
        self._store.put(table, replace(old, meter=meter))
        journal.done(lambda: self._restore_meter(table, old))

    def _direct_table(self, message: p4r.TableEntry) -> Table:
        table = self._schema.table(message.table_id)
        if message.is_default_action:
            raise unimplemented(f"table {table.name}: this target has no direct counter or meter on default entries")
        return table

    def _decode_meter(self, table: Table, message: p4r.TableEntry) -> MeterConfig | None:
        if not message.HasField("meter_config"):
            return None
        if not table.direct_meter:
            raise invalid(f"table {table.name}: meter_config is set, but it has no direct meter")
        return codec.decode_meter(self._schema.direct_meters[table.direct_meter], message.meter_config)

    def _decode_counter(self, table: Table, message: p4r.TableEntry) -> CounterValue | None:
        if not message.HasField("counter_data"):
            return None
        if not table.direct_counter:
            raise invalid(f"table {table.name}: counter_data is set, but it has no direct counter")
        return decode_counter(table.name, message.counter_data)

    # --- steps and their way back; keys, not handles, because handles change when an entry returns ---

    def _handle(self, table: Table, key: Key) -> int:
        return self._store.entries[table.id][key].handle

    def _remove(self, table: Table, key: Key) -> None:
        self._target.table_delete(table.name, self._handle(table, key))
        self._store.drop(table, key)

    def _put_back(self, table: Table, entry: Entry, counter: CounterValue | None) -> None:
        handle = self._target.table_insert(table.name, entry.keys, entry.priority, pipeline_action(entry.action))
        self._store.put(table, replace(entry, handle=handle))
        if counter is not None:
            self._target.direct_counter_write(table.name, handle, counter)
        if entry.meter is not None:
            self._target.direct_meter_write(table.name, handle, entry.meter)

    def _set_action(self, table: Table, key: Key, action: StoredAction) -> None:
        with target_errors(f"table {table.name}"):
            self._target.table_modify(table.name, self._handle(table, key), pipeline_action(action))

    def _write_meter(self, table: Table, key: Key, meter: MeterConfig | None) -> None:
        with target_errors(f"table {table.name}"):
            self._target.direct_meter_write(table.name, self._handle(table, key), meter)

    def _restore_meter(self, table: Table, old: Entry) -> None:
        self._write_meter(table, old.key, old.meter)
        self._store.put(table, replace(old, handle=self._handle(table, old.key)))

    def _write_counter(self, table: Table, key: Key, value: CounterValue, journal: Journal) -> None:
        with target_errors(f"table {table.name}"):
            old = self._target.direct_counter_read(table.name, self._handle(table, key))
            self._target.direct_counter_write(table.name, self._handle(table, key), value)
        journal.done(lambda: self._target.direct_counter_write(table.name, self._handle(table, key), old))


def _check_writable(table: Table, message: p4r.TableEntry) -> None:
    if message.is_const:
        raise invalid(f"table {table.name}: is_const must not be set in a write")
    if message.HasField("time_since_last_hit"):
        raise invalid(f"table {table.name}: time_since_last_hit must not be set in a write")
    if message.HasField("meter_counter_data"):
        raise unimplemented(
            f"table {table.name}: meter_counter_data: this target does not count packets per meter colour"
        )
    if message.idle_timeout_ns < 0:
        raise invalid(f"table {table.name}: idle_timeout_ns {message.idle_timeout_ns}: must not be negative")
    if message.idle_timeout_ns and not table.idle_timeout:
        raise invalid(
            f"table {table.name}: idle_timeout_ns {message.idle_timeout_ns}: the table does not support time-outs"
        )


def decode_counter(what: str, data: p4r.CounterData) -> CounterValue:
    """Counter data of a write."""
    for name in ("packet_count", "byte_count"):
        if getattr(data, name) < 0:
            raise invalid(f"{what}: {name} {getattr(data, name)}: must not be negative")
    return CounterValue(packets=data.packet_count, bytes=data.byte_count)


def pipeline_action(action: StoredAction) -> EntryAction:
    """What the pipeline is told: a one-shot set is the group that stands for it."""
    return GroupRef(action.group_id) if isinstance(action, ActionSet) else action


def _denied(message: str) -> P4RuntimeError:
    return P4RuntimeError(Code.PERMISSION_DENIED, message)

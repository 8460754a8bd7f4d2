"""Writes to what is addressed by index or id alone: counters, meters, registers, value sets, replication engine.

All but the replication engine's entries are MODIFY only: the cells exist from the start.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from finsy.proto import p4r

from switch.api import CounterValue, KeyMatch, MatchKind, MeterConfig
from switch.p4rt import codec, p4data
from switch.p4rt.bytestrings import encode_unsigned
from switch.p4rt.control import TargetControl
from switch.p4rt.errors import Code, P4RuntimeError, invalid, not_found, target_errors, unimplemented
from switch.p4rt.journal import Journal
from switch.p4rt.schema import MatchField, Schema
from switch.p4rt.store import CloneSession, MulticastGroup, Replica, Store
from switch.p4rt.write_tables import decode_counter

MULTICAST_GROUP_MAX = 0xFFFF  # v1model: mcast_grp is bit<16>
CLONE_SESSION_MAX = 0xFFFF
INSTANCE_MAX = 0xFFFF  # v1model: egress_rid is bit<16>
CLASS_OF_SERVICE_MAX = 7


class ArrayWriter:
    """Owns no state: store and target are shared with the other writers."""

    def __init__(self, schema: Schema, store: Store, target: TargetControl) -> None:
        self._schema = schema
        self._store = store
        self._target = target

    def counter(self, message: p4r.CounterEntry, journal: Journal) -> None:
        """MODIFY of one cell, or of all when index is unset; nothing without data."""
        counter = self._schema.counter(message.counter_id)
        indices = self._indices(f"counter {counter.name}", message, counter.size)
        if not message.HasField("data"):
            return
        value = decode_counter(f"counter {counter.name}", message.data)
        for index in indices:
            with target_errors(f"counter {counter.name}[{index}]"):
                old = CounterValue() if counter.tm else self._target.counter_read(counter.name, index)
                self._target.counter_write(counter.name, index, value)
            if not counter.tm:
                journal.done(partial(self._target.counter_write, counter.name, index, old))

    def meter(self, message: p4r.MeterEntry, journal: Journal) -> None:
        """MODIFY of one cell, or of all when index is unset; without config back to green for all packets."""
        meter = self._schema.meter(message.meter_id)
        if message.HasField("counter_data"):
            raise unimplemented(f"meter {meter.name}: counter_data: this target does not count packets per colour")
        indices = self._indices(f"meter {meter.name}", message, meter.size)
        config = codec.decode_meter(meter, message.config) if message.HasField("config") else None
        cells = self._store.meters[meter.id]
        for index in indices:
            old = cells.get(index)
            self._set_meter(meter.id, index, config)
            journal.done(partial(self._set_meter, meter.id, index, old))

    def _set_meter(self, meter_id: int, index: int, config: MeterConfig | None) -> None:
        meter = self._schema.meters[meter_id]
        with target_errors(f"meter {meter.name}[{index}]"):
            self._target.meter_write(meter.name, index, config)
        if config is None:
            self._store.meters[meter_id].pop(index, None)
        else:
            self._store.meters[meter_id][index] = config

    def register(self, message: p4r.RegisterEntry, journal: Journal) -> None:
        """MODIFY of one cell, or of all when index is unset."""
        register = self._schema.register(message.register_id)
        what = f"register {register.name}"
        indices = self._indices(what, message, register.size)
        if not message.HasField("data"):
            raise invalid(f"{what}: data is missing")
        value = p4data.decode(register.type, message.data, f"{what}: data")[0]
        for index in indices:
            with target_errors(f"{what}[{index}]"):
                old = 0 if register.tm else self._target.register_read(register.name, index)
                self._target.register_write(register.name, index, value)
            if not register.tm:
                journal.done(partial(self._target.register_write, register.name, index, old))

    def _indices(
        self, what: str, message: p4r.CounterEntry | p4r.MeterEntry | p4r.RegisterEntry, size: int
    ) -> Iterable[int]:
        if not message.HasField("index"):
            return range(size)
        return (codec.check_index(what, message.index.index, size),)

    def value_set(self, message: p4r.ValueSetEntry, journal: Journal) -> None:
        """MODIFY: the new members take the place of all old ones."""
        value_set = self._schema.value_set(message.value_set_id)
        what = f"value set {value_set.name}"
        members = tuple(codec.decode_match(what, value_set.fields, member.match) for member in message.members)
        if len(members) > value_set.size:
            raise P4RuntimeError(
                Code.RESOURCE_EXHAUSTED, f"{what}: {len(members)} members exceed its size {value_set.size}"
            )
        if len(set(members)) != len(members):
            raise P4RuntimeError(Code.ALREADY_EXISTS, f"{what}: two members are the same")
        old = self._store.value_sets[value_set.id]
        self._set_value_set(value_set.id, members)
        journal.done(lambda: self._set_value_set(value_set.id, old))

    def _set_value_set(self, value_set_id: int, members: tuple[tuple[KeyMatch, ...], ...]) -> None:
        value_set = self._schema.value_sets[value_set_id]
        with target_errors(f"value set {value_set.name}"):
            self._target.value_set_write(value_set.name, [_value_and_mask(value_set.fields, keys) for keys in members])
        self._store.value_sets[value_set_id] = members

    # --- packet replication engine ---

    def multicast_group(
        self, message: p4r.MulticastGroupEntry, kind: p4r.Update.Type.ValueType, journal: Journal
    ) -> None:
        """INSERT, MODIFY or DELETE of a multicast group."""
        group_id = message.multicast_group_id
        what = f"multicast_group_id {group_id}"
        old = self._store.multicast_groups.get(group_id)
        _check_existence(what, group_id, MULTICAST_GROUP_MAX, old is not None, kind)
        new = None
        if kind != p4r.Update.DELETE:
            new = MulticastGroup(group_id, _replicas(what, message.replicas), message.metadata)
        self._set_multicast(group_id, new)
        journal.done(lambda: self._set_multicast(group_id, old))

    def _set_multicast(self, group_id: int, group: MulticastGroup | None) -> None:
        with target_errors(f"multicast_group_id {group_id}"):
            if group is None:
                self._target.delete_multicast_group(group_id)
            else:
                self._target.set_multicast_group(group_id, [(r.port, r.instance) for r in group.replicas])
        if group is None:
            del self._store.multicast_groups[group_id]
        else:
            self._store.multicast_groups[group_id] = group

    def clone_session(self, message: p4r.CloneSessionEntry, kind: p4r.Update.Type.ValueType, journal: Journal) -> None:
        """INSERT, MODIFY or DELETE of a clone session."""
        session_id = message.session_id
        what = f"clone session_id {session_id}"
        old = self._store.clone_sessions.get(session_id)
        _check_existence(what, session_id, CLONE_SESSION_MAX, old is not None, kind)
        new = None
        if kind != p4r.Update.DELETE:
            if message.class_of_service > CLASS_OF_SERVICE_MAX:
                raise invalid(f"{what}: class_of_service {message.class_of_service}: must be 0..{CLASS_OF_SERVICE_MAX}")
            if message.packet_length_bytes < 0:
                raise invalid(f"{what}: packet_length_bytes {message.packet_length_bytes}: must not be negative")
            replicas = _replicas(what, message.replicas)
            new = CloneSession(session_id, replicas, message.class_of_service, message.packet_length_bytes)
        self._set_clone(session_id, new)
        journal.done(lambda: self._set_clone(session_id, old))

    def _set_clone(self, session_id: int, session: CloneSession | None) -> None:
        with target_errors(f"clone session_id {session_id}"):
            if session is None:
                self._target.delete_clone_session(session_id)
            else:
                replicas = [(r.port, r.instance) for r in session.replicas]
                self._target.set_clone_session(
                    session_id, replicas, session.class_of_service, session.packet_length_bytes
                )
        if session is None:
            del self._store.clone_sessions[session_id]
        else:
            self._store.clone_sessions[session_id] = session


def _check_existence(what: str, value: int, maximum: int, exists: bool, kind: p4r.Update.Type.ValueType) -> None:
    if not 0 < value <= maximum:
        raise invalid(f"{what}: must be 1..{maximum}")
    if kind == p4r.Update.INSERT and exists:
        raise P4RuntimeError(Code.ALREADY_EXISTS, f"{what}: it exists")
    if kind != p4r.Update.INSERT and not exists:
        raise not_found(f"{what}: it does not exist")


def _replicas(what: str, messages: Iterable[p4r.Replica]) -> tuple[Replica, ...]:
    replicas: list[Replica] = []
    seen: set[tuple[int, int]] = set()
    for number, message in enumerate(messages):
        where = f"{what}: replicas[{number}]"
        kind = message.WhichOneof("port_kind")
        if kind is None:
            raise invalid(f"{where}: port is missing")
        data = message.port if kind == "port" else encode_unsigned(message.egress_port)
        port = codec.decode_port(data, f"{where}: {kind}")
        if message.instance > INSTANCE_MAX:
            raise invalid(f"{where}: instance {message.instance}: must be 0..{INSTANCE_MAX}")
        if message.backup_replicas:
            raise unimplemented(f"{where}: backup_replicas are not supported")
        if (port, message.instance) in seen:
            raise invalid(f"{where}: port {port} with instance {message.instance} is given twice")
        seen.add((port, message.instance))
        replicas.append(Replica(port, message.instance, deprecated_field=kind == "egress_port"))
    return tuple(replicas)


def _value_and_mask(fields: tuple[MatchField, ...], keys: tuple[KeyMatch, ...]) -> tuple[int, int]:
    """The key's fields, concatenated without gaps, first one in the highest bits."""
    value = mask = 0
    for field, key in zip(fields, keys, strict=True):
        full = (1 << field.bits) - 1
        if field.kind is MatchKind.EXACT:
            field_mask = full
        elif field.kind is MatchKind.LPM:
            field_mask = full ^ (full >> key.prefix_len)
        elif field.kind is MatchKind.RANGE:
            if key.value != key.high and not codec.is_dont_care(field, key):
                raise unimplemented(f"value set field {field.name}: ranges are not supported in value sets")
            field_mask = full if key.value == key.high else 0
        else:
            field_mask = key.mask
        value = value << field.bits | (key.value & field_mask)
        mask = mask << field.bits | field_mask
    return value, mask

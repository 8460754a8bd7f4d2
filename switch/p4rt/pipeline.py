"""One pipeline configuration that is in place: P4Info, target, written state, and what works on them."""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4r

from switch.p4rt.control import TargetControl
from switch.p4rt.digests import Digests
from switch.p4rt.errors import invalid
from switch.p4rt.idle import IdleTimeouts
from switch.p4rt.read import Reader
from switch.p4rt.schema import Schema
from switch.p4rt.store import Entry, Store
from switch.p4rt.write import Writer


class Pipeline:
    """Owns the store; the target is owned by whoever made this."""

    def __init__(self, config: p4r.ForwardingPipelineConfig, schema: Schema, target: TargetControl) -> None:
        self.config = config
        self.schema = schema
        self.target = target
        self.digests = Digests(schema)
        self.store = Store(schema, target)
        self.writer = Writer(schema, self.store, target, self.digests)
        self.reader = Reader(schema, self.store, target, self.digests)
        self.idle = IdleTimeouts(self.store, self._age_ns)

    def _age_ns(self, table_id: int, entry: Entry) -> int:
        return self.target.table_hit_age_us(self.schema.tables[table_id].name, entry.handle) * 1000


def take_over(old: Pipeline, new: Pipeline) -> None:
    """Write the state of `old` into `new` (RECONCILE_AND_COMMIT). Raises INVALID_ARGUMENT where `new` refuses some of
    it."""
    for object_id in old.schema.names.keys() & new.schema.names.keys():
        before, after = old.schema.names[object_id], new.schema.names[object_id]
        if before != after:
            raise invalid(f"config: id {object_id:#x} was {before} and is {after} now: the state cannot be preserved")
    problems = []
    for update in _updates(old):
        error = new.writer.update(update, "")
        if error is not None:
            problems.append(error.message)
    if problems:
        raise invalid("config: the forwarding state cannot be preserved: " + "; ".join(problems[:10]))


_EVERYTHING = (
    p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
    p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
    p4r.Entity(table_entry=p4r.TableEntry(counter_data=p4r.CounterData(), meter_config=p4r.MeterConfig())),
    p4r.Entity(table_entry=p4r.TableEntry(is_default_action=True)),
    p4r.Entity(counter_entry=p4r.CounterEntry()),
    p4r.Entity(meter_entry=p4r.MeterEntry()),
    p4r.Entity(register_entry=p4r.RegisterEntry()),
    p4r.Entity(
        packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(
            multicast_group_entry=p4r.MulticastGroupEntry()
        )
    ),
    p4r.Entity(
        packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(clone_session_entry=p4r.CloneSessionEntry())
    ),
    p4r.Entity(value_set_entry=p4r.ValueSetEntry()),
    p4r.Entity(digest_entry=p4r.DigestEntry()),
)
_INSERTED = {"action_profile_member", "action_profile_group", "packet_replication_engine_entry", "digest_entry"}


def _updates(old: Pipeline) -> Iterator[p4r.Update]:
    """Updates that bring a fresh pipeline into the state of `old`; what is still as the program made it is left out."""
    for query in _EVERYTHING:
        for entity in old.reader.read(query):
            update = _update(old, entity)
            if update is not None:
                yield update


def _update(old: Pipeline, entity: p4r.Entity) -> p4r.Update | None:
    name = entity.WhichOneof("entity")
    if name in _INSERTED:
        return p4r.Update(type=p4r.Update.INSERT, entity=entity)
    if name == "table_entry":
        entry = entity.table_entry
        if entry.is_const:
            return None
        if entry.is_default_action:
            default = old.store.defaults[entry.table_id]
            if default.action is None or default.action == old.store.initial_defaults[entry.table_id]:
                return None
            return p4r.Update(type=p4r.Update.MODIFY, entity=entity)
        return p4r.Update(type=p4r.Update.INSERT, entity=entity)
    if name == "counter_entry":
        counter = old.schema.counters[entity.counter_entry.counter_id]
        data = entity.counter_entry.data
        if counter.tm or not (data.packet_count or data.byte_count):
            return None
    elif name == "meter_entry" and not entity.meter_entry.HasField("config"):
        return None
    elif name == "register_entry":
        register = old.schema.registers[entity.register_entry.register_id]
        if register.tm or not any(entity.register_entry.data.bitstring):
            return None
    elif name == "value_set_entry" and not entity.value_set_entry.members:
        return None
    return p4r.Update(type=p4r.Update.MODIFY, entity=entity)

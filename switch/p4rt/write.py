"""The Write RPC: batches of updates, each with an outcome of its own, with or without roll-back.

Every update is all-or-nothing by itself. Updates run in the order of the batch. ROLLBACK_ON_ERROR takes the whole batch
back at the first error; DATAPLANE_ATOMIC does the same with the data plane held for the length of the batch.
"""

from __future__ import annotations

from contextlib import nullcontext

from finsy.proto import p4r

from switch.p4rt.control import TargetControl
from switch.p4rt.digests import Digests
from switch.p4rt.errors import Code, P4RuntimeError, invalid, unimplemented
from switch.p4rt.journal import Journal
from switch.p4rt.schema import Schema
from switch.p4rt.store import Store
from switch.p4rt.write_arrays import ArrayWriter
from switch.p4rt.write_profiles import ProfileWriter
from switch.p4rt.write_tables import TableWriter

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE


class Writer:
    """Applies updates to one pipeline configuration."""

    def __init__(self, schema: Schema, store: Store, target: TargetControl, digests: Digests) -> None:
        self._schema = schema
        self._target = target
        self._digests = digests
        self.profiles = ProfileWriter(schema, store, target)
        self._tables = TableWriter(schema, store, target, self.profiles)
        self._arrays = ArrayWriter(schema, store, target)

    def write(self, request: p4r.WriteRequest) -> list[P4RuntimeError | None]:
        """Apply a batch; one outcome an update, None for success. Raises where the whole request is refused."""
        atomicity = request.atomicity
        if atomicity not in p4r.WriteRequest.Atomicity.values():
            raise invalid(f"atomicity {atomicity}: no such mode")
        if atomicity == p4r.WriteRequest.CONTINUE_ON_ERROR:
            return [self.update(update, request.role) for update in request.updates]
        for number, update in enumerate(request.updates):
            self._check_reversible(number, update)
        hold = self._target.lock() if atomicity == p4r.WriteRequest.DATAPLANE_ATOMIC else nullcontext()
        with hold:
            return self._all_or_nothing(request)

    def _all_or_nothing(self, request: p4r.WriteRequest) -> list[P4RuntimeError | None]:
        journal = Journal()
        for number, update in enumerate(request.updates):
            try:
                error = self.update(update, request.role, journal)
            except BaseException:
                journal.rollback()
                raise
            if error is None:
                continue
            journal.rollback()
            undone = P4RuntimeError(Code.ABORTED, f"taken back or not attempted: updates[{number}] failed")
            return [error if i == number else undone for i in range(len(request.updates))]
        return [None] * len(request.updates)

    def _check_reversible(self, number: int, update: p4r.Update) -> None:
        """Clearing a counter or watermark of the traffic manager cannot be taken back."""
        entity = update.entity
        counter = self._schema.counters.get(entity.counter_entry.counter_id)
        register = self._schema.registers.get(entity.register_entry.register_id)
        for found in (counter, register):
            if found is not None and found.tm:
                raise unimplemented(
                    f"updates[{number}]: clearing {found.name} cannot be rolled back; send it with CONTINUE_ON_ERROR"
                )

    def update(self, update: p4r.Update, role: str, journal: Journal | None = None) -> P4RuntimeError | None:
        """Apply one update; what it did, if it succeeded, is added to `journal`."""
        own = Journal()
        try:
            with self._target.lock():
                self._dispatch(update, role, own)
        except P4RuntimeError as error:
            own.rollback()
            return error
        except BaseException:
            own.rollback()
            raise
        if journal is not None:
            journal.extend(own)
        return None

    def _dispatch(self, update: p4r.Update, role: str, journal: Journal) -> None:
        kind = update.type
        if kind not in (INSERT, MODIFY, DELETE):
            raise invalid(f"update type {kind}: must be INSERT, MODIFY or DELETE")
        entity = update.entity
        name = entity.WhichOneof("entity")
        if name == "table_entry":
            self._table_entry(entity.table_entry, kind, role, journal)
        elif name == "action_profile_member":
            self._member(entity.action_profile_member, kind, journal)
        elif name == "action_profile_group":
            self._group(entity.action_profile_group, kind, journal)
        elif name == "packet_replication_engine_entry":
            self._replication(entity.packet_replication_engine_entry, kind, journal)
        elif name == "digest_entry":
            self._digest(entity.digest_entry, kind, journal)
        elif name == "extern_entry":
            raise unimplemented("extern_entry: a v1model program has no externs of this kind")
        elif name is None:
            raise invalid("entity: must be set")
        else:
            self._modify_only(entity, name, kind, journal)

    def _table_entry(self, entry: p4r.TableEntry, kind: p4r.Update.Type.ValueType, role: str, journal: Journal) -> None:
        if kind == INSERT:
            self._tables.insert(entry, role, journal)
        elif kind == MODIFY:
            self._tables.modify(entry, role, journal)
        else:
            self._tables.delete(entry, journal)

    def _member(self, member: p4r.ActionProfileMember, kind: p4r.Update.Type.ValueType, journal: Journal) -> None:
        if kind == INSERT:
            self.profiles.insert_member(member, journal)
        elif kind == MODIFY:
            self.profiles.modify_member(member, journal)
        else:
            self.profiles.delete_member(member, journal)

    def _group(self, group: p4r.ActionProfileGroup, kind: p4r.Update.Type.ValueType, journal: Journal) -> None:
        if kind == INSERT:
            self.profiles.insert_group(group, journal)
        elif kind == MODIFY:
            self.profiles.modify_group(group, journal)
        else:
            self.profiles.delete_group(group, journal)

    def _replication(
        self, entry: p4r.PacketReplicationEngineEntry, kind: p4r.Update.Type.ValueType, journal: Journal
    ) -> None:
        which = entry.WhichOneof("type")
        if which == "multicast_group_entry":
            self._arrays.multicast_group(entry.multicast_group_entry, kind, journal)
        elif which == "clone_session_entry":
            self._arrays.clone_session(entry.clone_session_entry, kind, journal)
        else:
            raise invalid("packet_replication_engine_entry: type must be set")

    def _digest(self, entry: p4r.DigestEntry, kind: p4r.Update.Type.ValueType, journal: Journal) -> None:
        digest = self._schema.digest(entry.digest_id)
        old = self._digests.config(digest.id)
        self._digests.write(digest, entry, kind)
        journal.done(lambda: self._digests.restore(digest.id, old))

    def _modify_only(self, entity: p4r.Entity, name: str, kind: p4r.Update.Type.ValueType, journal: Journal) -> None:
        if kind != MODIFY:
            raise invalid(
                f"{name}: {p4r.Update.Type.Name(kind)} is not allowed: cells exist from the start, MODIFY them"
            )
        if name == "counter_entry":
            self._arrays.counter(entity.counter_entry, journal)
        elif name == "meter_entry":
            self._arrays.meter(entity.meter_entry, journal)
        elif name == "register_entry":
            self._arrays.register(entity.register_entry, journal)
        elif name == "value_set_entry":
            self._arrays.value_set(entity.value_set_entry, journal)
        elif name == "direct_counter_entry":
            self._tables.modify_direct_counter(entity.direct_counter_entry, journal)
        else:
            self._tables.modify_direct_meter(entity.direct_meter_entry, journal)

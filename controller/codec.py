"""Neutral entries <-> P4Runtime protobuf, for one program. Sans-IO.

Byte strings are canonical (P4Runtime 8.4: shortest big-endian form, one zero byte for 0) on the way out, any width on
the way in. Values are checked against the width of their field, so that a wrong one is named here and not by the
switch.
"""

from __future__ import annotations

from finsy.proto import p4r

from controller.diff import Kind, Update
from controller.entries import (
    Action,
    CloneSession,
    Entity,
    EntryAction,
    Group,
    GroupRef,
    Lpm,
    MatchValue,
    Member,
    MemberRef,
    MeterCell,
    OtherAction,
    Range,
    TableEntry,
    Ternary,
    match,
)
from controller.program import Field, P4Program, ProgramError, find_field

_UPDATE_TYPES = {
    Kind.INSERT: p4r.Update.INSERT,
    Kind.MODIFY: p4r.Update.MODIFY,
    Kind.DELETE: p4r.Update.DELETE,
}


def encode_int(value: int) -> bytes:
    """Shortest big-endian byte string; 0 is one zero byte."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode_int(data: bytes) -> int:
    """Big-endian byte string of any length -> integer."""
    return int.from_bytes(data, "big")


class Codec:
    """Encodes and decodes the entities of one P4 program."""

    def __init__(self, program: P4Program) -> None:
        self.program = program

    # ---- out ------------------------------------------------------------------------------------------------------

    def update(self, update: Update) -> p4r.Update:
        """One update. Raises ProgramError when the program lacks an object or a value does not fit its field."""
        entity = update.entity
        message = self.entity(entity)
        if update.kind is Kind.DELETE and isinstance(entity, TableEntry):
            message.table_entry.ClearField("action")
        kind = _UPDATE_TYPES[update.kind]
        if isinstance(entity, MeterCell):
            kind = p4r.Update.MODIFY  # the only one for cells; without a configuration it takes it away
            if update.kind is Kind.DELETE:
                message.meter_entry.ClearField("config")
        return p4r.Update(type=kind, entity=message)

    def entity(self, entity: Entity) -> p4r.Entity:
        """One entity, complete."""
        if isinstance(entity, TableEntry):
            return p4r.Entity(table_entry=self._table_entry(entity))
        if isinstance(entity, Member):
            return p4r.Entity(
                action_profile_member=p4r.ActionProfileMember(
                    action_profile_id=self._profile(entity.profile),
                    member_id=entity.member_id,
                    action=self._action(entity.action),
                )
            )
        if isinstance(entity, Group):
            profile_id, largest = self._profile(entity.profile), self.program.max_group_sizes[entity.profile]
            total = sum(weight for _, weight in entity.members)
            if largest and total > largest:
                raise ProgramError(f"{entity}: {total}: the weights of a group must not sum to more than {largest}")
            return p4r.Entity(
                action_profile_group=p4r.ActionProfileGroup(
                    action_profile_id=profile_id,
                    group_id=entity.group_id,
                    max_size=largest,  # it cannot be changed later: leave room for all that the program allows
                    members=[
                        p4r.ActionProfileGroup.Member(member_id=member_id, weight=weight)
                        for member_id, weight in entity.members
                    ],
                )
            )
        if isinstance(entity, MeterCell):
            return p4r.Entity(meter_entry=self._meter(entity))
        return p4r.Entity(
            packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(
                clone_session_entry=p4r.CloneSessionEntry(
                    session_id=entity.session_id,
                    class_of_service=entity.class_of_service,
                    packet_length_bytes=entity.length_bytes,
                    replicas=[
                        p4r.Replica(port=encode_int(port), instance=instance) for port, instance in entity.replicas
                    ],
                )
            )
        )

    def _profile(self, name: str) -> int:
        if name not in self.program.profiles:
            raise ProgramError(f"action profile {name}: not in the P4 program")
        return self.program.profiles[name]

    def _meter(self, cell: MeterCell) -> p4r.MeterEntry:
        array = self.program.meters.get(cell.meter)
        if array is None:
            raise ProgramError(f"meter {cell.meter}: not in the P4 program")
        if not 0 <= cell.index < array.size:
            raise ProgramError(f"{cell}: the meter has cells 0..{array.size - 1}")
        # one rate for both buckets: there is green and red, no yellow
        config = p4r.MeterConfig(cir=cell.rate, cburst=cell.burst, pir=cell.rate, pburst=cell.burst)
        return p4r.MeterEntry(meter_id=array.id, index=p4r.Index(index=cell.index), config=config)

    def _table_entry(self, entry: TableEntry) -> p4r.TableEntry:
        table = self.program.table(entry.table)
        fields = []
        for name, value in entry.match:
            field = find_field(table.fields, name, f"table {entry.table}")
            fields.append((field.id, self._match(entry, field, value)))
        return p4r.TableEntry(
            table_id=table.id,
            match=[message for _, message in sorted(fields, key=lambda item: item[0])],
            action=self._table_action(entry),
            priority=entry.priority,
        )

    def _match(self, entry: TableEntry, field: Field, value: MatchValue) -> p4r.FieldMatch:
        where = f"{entry}: key {field.name}"
        message = p4r.FieldMatch(field_id=field.id)
        if isinstance(value, int) and field.kind == "exact":
            message.exact.value = _checked(value, field.bits, where)
        elif isinstance(value, int) and field.kind == "optional":
            message.optional.value = _checked(value, field.bits, where)
        elif isinstance(value, Lpm) and field.kind == "lpm":
            message.lpm.value = _checked(value.value, field.bits, where)
            message.lpm.prefix_len = value.prefix_len
        elif isinstance(value, Ternary) and field.kind == "ternary":
            message.ternary.value = _checked(value.value, field.bits, where)
            message.ternary.mask = _checked(value.mask, field.bits, where)
        elif isinstance(value, Range) and field.kind == "range":
            message.range.low = _checked(value.low, field.bits, where)
            message.range.high = _checked(value.high, field.bits, where)
        else:
            raise ProgramError(f"{where}: {value!r} is not a match of kind {field.kind}")
        return message

    def _table_action(self, entry: TableEntry) -> p4r.TableAction:
        action = entry.action
        if isinstance(action, MemberRef):
            return p4r.TableAction(action_profile_member_id=action.member_id)
        if isinstance(action, GroupRef):
            return p4r.TableAction(action_profile_group_id=action.group_id)
        if isinstance(action, Action):
            return p4r.TableAction(action=self._action(action))
        return p4r.TableAction()  # read back only: good for nothing but a DELETE, which carries no action

    def _action(self, action: Action) -> p4r.Action:
        info = self.program.action(action.name)
        values = dict(action.params)
        params = []
        for param in info.params:
            if param.name not in values:
                raise ProgramError(f"action {action.name}: parameter {param.name} has no value")
            value = _checked(values.pop(param.name), param.bits, f"action {action.name}: parameter {param.name}")
            params.append(p4r.Action.Param(param_id=param.id, value=value))
        if values:
            raise ProgramError(f"action {action.name}: parameter {', '.join(values)}: not in the P4 program")
        return p4r.Action(action_id=info.id, params=params)

    # ---- in -------------------------------------------------------------------------------------------------------

    def decode(self, message: p4r.Entity) -> Entity | None:
        """An entity as the switch holds it; None for what the controller does not own (default and const entries)."""
        kind = message.WhichOneof("entity")
        if kind == "table_entry":
            return self._decode_table_entry(message.table_entry)
        if kind == "action_profile_member":
            member = message.action_profile_member
            return Member(
                self._profile_name(member.action_profile_id), member.member_id, self._decode_action(member.action)
            )
        if kind == "action_profile_group":
            group = message.action_profile_group
            members = tuple(sorted((item.member_id, item.weight) for item in group.members))
            return Group(self._profile_name(group.action_profile_id), group.group_id, members)
        if kind == "meter_entry":
            return self._decode_meter(message.meter_entry)
        if kind == "packet_replication_engine_entry":
            entry = message.packet_replication_engine_entry
            if entry.WhichOneof("type") == "clone_session_entry":
                session = entry.clone_session_entry
                replicas = tuple(
                    sorted((decode_int(r.port) if r.port else r.egress_port, r.instance) for r in session.replicas)
                )
                return CloneSession(session.session_id, replicas, session.class_of_service, session.packet_length_bytes)
        return None

    def _decode_meter(self, entry: p4r.MeterEntry) -> MeterCell | None:
        for array in self.program.meters.values():
            if array.id == entry.meter_id and entry.HasField("config"):
                return MeterCell(array.name, entry.index.index, entry.config.pir, entry.config.pburst)
        return None

    def _profile_name(self, profile_id: int) -> str:
        if profile_id not in self.program.profile_by_id:
            raise ProgramError(f"action profile {profile_id:#x}: read back, but not in the P4 program")
        return self.program.profile_by_id[profile_id]

    def _decode_table_entry(self, entry: p4r.TableEntry) -> TableEntry | None:
        table = self.program.table_by_id.get(entry.table_id)
        if table is None:
            raise ProgramError(f"table {entry.table_id:#x}: read back, but not in the P4 program")
        if entry.is_default_action or entry.is_const or table.is_const:
            return None
        by_id = {field.id: field for field in table.fields}
        values: dict[str, MatchValue] = {}
        for item in entry.match:
            field = by_id[item.field_id]
            # the neutral form uses the short name
            values[field.name.rpartition(".")[2]] = _decode_match(item)
        return TableEntry(table.name, match(values), self._decode_table_action(entry.action), entry.priority)

    def _decode_table_action(self, action: p4r.TableAction) -> EntryAction:
        kind = action.WhichOneof("type")
        if kind == "action":
            return self._decode_action(action.action)
        if kind == "action_profile_member_id":
            return MemberRef(action.action_profile_member_id)
        if kind == "action_profile_group_id":
            return GroupRef(action.action_profile_group_id)
        return OtherAction(str(kind))

    def _decode_action(self, action: p4r.Action) -> Action:
        info = self.program.action_by_id.get(action.action_id)
        if info is None:
            raise ProgramError(f"action {action.action_id:#x}: read back, but not in the P4 program")
        names = {param.id: param.name for param in info.params}
        return Action.of(info.name, **{names[p.param_id]: decode_int(p.value) for p in action.params})


def _checked(value: int, bits: int, where: str) -> bytes:
    if not 0 <= value < 1 << bits:
        raise ProgramError(f"{where}: {value} does not fit in {bits} bits")
    return encode_int(value)


def _decode_match(item: p4r.FieldMatch) -> MatchValue:
    kind = item.WhichOneof("field_match_type")
    if kind == "exact":
        return decode_int(item.exact.value)
    if kind == "optional":
        return decode_int(item.optional.value)
    if kind == "lpm":
        return Lpm(decode_int(item.lpm.value), item.lpm.prefix_len)
    if kind == "ternary":
        return Ternary(decode_int(item.ternary.value), decode_int(item.ternary.mask))
    if kind == "range":
        return Range(decode_int(item.range.low), decode_int(item.range.high))
    raise ProgramError(f"match field {item.field_id}: unknown kind {kind}")

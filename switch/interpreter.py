"""The slow, obvious execution of a BMv2 program: the reference for generated C, and the fallback without a compiler.

`Interpreter` serves `switch.api.PipelineControl` and the pipeline test interface (docs/contract.md, section 6). It owns
tables, externs and the random generator; a `PacketState` owns what belongs to a packet. It reads no clock: the caller
sets `now_ps` (or `now_us`), which meters and idle ages use.

Digests are taken at the end of ingress from the list that generate_digest named last (as in simple_switch), each
element padded to whole bytes, most significant byte first. log_msg goes to the logger "switch.p4".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from switch import hashes
from switch.api import ActionCall, CounterValue, EntryAction, GroupRef, KeyMatch, MemberRef, MeterConfig, PipelineError
from switch.interp_actions import Primitives
from switch.interp_exprs import Compiler, Eval
from switch.interp_parser import PacketParser
from switch.interp_state import FieldSlot, Layout, PacketState, Requests
from switch.interp_tables import BoundAction, CounterCell, Entry, ProfileState, TableState, Target
from switch.meter import MeterCell
from switch.model import (
    Action,
    CalcInput,
    Calculation,
    Checksum,
    Const,
    FieldRef,
    HeaderRef,
    Pipeline,
    Program,
    Table,
)
from switch.rng import Generator

T = TypeVar("T")

DROP_PORT = 511
PS_PER_US = 10**6


class Interpreter:
    """One running pipeline of `program`; `seed` starts the generator of `random`."""

    def __init__(self, program: Program, seed: int = 0, *, drop_port: int = DROP_PORT) -> None:
        self.program = program
        self.drop_port = drop_port
        self.now_ps = 0
        self.generator = Generator(seed)
        self.failed_asserts = 0
        self.layout = Layout(program)
        self.metadata_headers = frozenset(self.layout.metadata)
        self.registers = {name: [0] * array.size for name, array in program.registers.items()}
        self.counters = {name: [CounterCell() for _ in range(array.size)] for name, array in program.counters.items()}
        self.meters = {name: [MeterCell() for _ in range(array.size)] for name, array in program.meters.items()}
        self.value_sets: dict[str, list[tuple[int, int]]] = {name: [] for name in program.value_sets}
        pipelines = (program.ingress, program.egress)
        all_tables = {name: table for pipeline in pipelines for name, table in pipeline.tables.items()}
        self.profiles = {
            name: ProfileState(profile, _profile_actions(program, name, all_tables.values()))
            for pipeline in pipelines
            for name, profile in pipeline.action_profiles.items()
        }
        self.tables = {
            name: TableState(table, program.actions, self.profiles.get(table.implementation or ""))
            for name, table in all_tables.items()
        }
        compiler = Compiler(self, self.layout)
        primitives = Primitives(self, compiler)
        self._actions = {action.id: primitives.action(action.primitives) for action in program.actions.values()}
        self._parser = PacketParser(self, compiler, primitives)
        self._deparser_primitives = primitives.action(program.deparser.primitives)
        self._conditions: dict[str, Eval] = {
            name: compiler.value(conditional.expression)
            for pipeline in pipelines
            for name, conditional in pipeline.conditionals.items()
        }
        self._checksum_conditions: list[Eval | None] = [
            None if checksum.condition is None else compiler.value(checksum.condition) for checksum in program.checksums
        ]
        self._key_fields: dict[str, list[Callable[[PacketState], int]]] = {
            name: [self._key_reader(key.target) for key in table.keys] for name, table in all_tables.items()
        }

    # --- time -----------------------------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        """The time in microseconds; setting it sets `now_ps`."""
        return self.now_ps // PS_PER_US

    @now_us.setter
    def now_us(self, microseconds: int) -> None:
        self.now_ps = microseconds * PS_PER_US

    # --- packets --------------------------------------------------------------------------------------------------

    def new_packet(self, frame: bytes, ingress_port: int, **standard_metadata: int) -> PacketState:
        """A packet that has just been parsed. Keywords set fields of standard_metadata before the parser runs."""
        state = PacketState(self)
        state.parse(frame, ingress_port, **standard_metadata)
        return state

    def parse_packet(self, state: PacketState, frame: bytes, port: int, standard_metadata: Mapping[str, int]) -> None:
        """What `PacketState.parse` does."""
        state.reset()
        state.frame = bytes(frame)
        self.set_standard(state, "standard_metadata.ingress_port", port)
        self.set_standard(state, "standard_metadata.packet_length", len(frame))
        for name, value in standard_metadata.items():
            state.set(f"standard_metadata.{name}", value)
        self.run_parser(state)

    def run_parser(self, state: PacketState) -> None:
        """Parse `state.frame` into a state that is otherwise as it should be when the parser starts."""
        self._parser.parse(state)

    def run_ingress(self, state: PacketState) -> None:
        """Checksum verification, the ingress control, then the digest. Clears `state.requests` first."""
        state.requests = Requests()
        state.pending_digest = None
        correct = all(self._verify(state, index) for index in range(len(self.program.checksums)))
        self.set_standard(state, "standard_metadata.checksum_error", int(not correct))
        self._control(self.program.ingress, state)
        if state.pending_digest is not None:
            state.digests.append((state.pending_digest, self._digest(state, state.pending_digest)))

    def run_egress(self, state: PacketState) -> None:
        """The egress control. Clears `state.requests` first; timestamps and packet_length are the caller's to set."""
        state.requests = Requests()
        self._control(self.program.egress, state)

    def deparse(self, state: PacketState) -> bytes:
        """Checksum update, the deparser's primitives, then valid headers and payload, cut to the truncation asked."""
        for index, checksum in enumerate(self.program.checksums):
            condition = self._checksum_conditions[index]
            if checksum.update and (condition is None or condition(state, ())):
                state.store(self.layout.fixed(checksum.target), self.calculate(state, checksum.calculation))
        self._deparser_primitives(state, ())
        out = bytearray()
        for header in self.program.deparser.order:
            if state.valid[header]:
                value, bits = state.header_as_bits(header)
                out += value.to_bytes(bits // 8, "big")
        out += state.payload
        return bytes(out[: state.requests.truncate_bytes])

    def copy_fields(self, field_list: int, to: PacketState, origin: PacketState) -> None:
        """Copy the fields of a field list between packets; -1 copies nothing."""
        if field_list < 0:
            return
        for element in self.program.field_lists[field_list].elements:
            match element:
                case FieldRef(header, name) if name != "$valid$":
                    index = self.layout.slots[header, name].index
                    to.values[header][index] = origin.values[header][index]
                    if self.program.headers[header].type.fields[index].bits is None:
                        to.varbit_bits[header] = origin.varbit_bits[header]
                case HeaderRef(header):
                    to.values[header] = list(origin.values[header])
                    to.varbit_bits[header] = origin.varbit_bits[header]

    def set_standard(self, state: PacketState, name: str, value: int) -> None:
        """Store into a field that simple_switch knows by `name`, where the program has it."""
        slot = self.layout.standard(name)
        if slot is not None:
            state.store(slot, value)

    def get_standard(self, state: PacketState, name: str) -> int:
        """Bit pattern of a field that simple_switch knows by `name`; 0 where the program does not have it."""
        slot = self.layout.standard(name)
        return 0 if slot is None else slot.pattern(state.read(slot))

    # --- controls -------------------------------------------------------------------------------------------------

    def _control(self, pipeline: Pipeline, state: PacketState) -> None:
        node = pipeline.init_node
        while node is not None and not state.requests.exited:
            if node in pipeline.tables:
                node = self._apply(pipeline.tables[node], state)
            elif node in pipeline.conditionals:
                conditional = pipeline.conditionals[node]
                taken = self._conditions[node](state, ())
                node = conditional.true_next if taken else conditional.false_next
            else:
                call = pipeline.action_calls[node]
                self._actions[call.action_id](state, ())
                node = call.next_node

    def _apply(self, table: Table, state: PacketState) -> str | None:
        tables = self.tables[table.name]
        entry = tables.find([read(state) for read in self._key_fields[table.name]])
        bound = self._hit(table, entry, state) if entry is not None else self._resolve(table, tables.default, state)
        if bound is not None:
            self._actions[bound.action.id](state, bound.params)
        if table.hit_miss:
            return table.next_miss if entry is None else table.next_hit
        return table.base_default_next if bound is None else table.next_by_action[bound.action.id]

    def _hit(self, table: Table, entry: Entry, state: PacketState) -> BoundAction | None:
        entry.last_hit_ps = self.now_ps
        if table.with_counters:
            entry.counter.add(len(state.frame))
        if table.direct_meter is not None:
            meter = self.program.meters[table.direct_meter]
            colour = entry.meter.execute(len(state.frame) if meter.bytes else 1, self.now_ps)
            if meter.result is not None:
                state.store(self.layout.fixed(meter.result), colour)
        return self._resolve(table, entry.target, state)

    def _resolve(self, table: Table, target: Target | None, state: PacketState) -> BoundAction | None:
        if target is None or isinstance(target, BoundAction):
            return target
        profile = self.profiles[table.implementation or ""]
        if isinstance(target, MemberRef):
            return profile.members[target.member_id]
        selector = profile.profile.selector
        assert selector is not None  # groups exist in profiles with a selector only

        def hash_value() -> int:
            inputs = tuple(CalcInput(expr, self._bits(expr)) for expr in selector.inputs)
            return hashes.compute(selector.algorithm, self._concatenate(state, inputs))

        return profile.choose(target.group_id, hash_value)

    def _bits(self, expr: object) -> int:
        assert isinstance(expr, FieldRef)
        return 1 if expr.field == "$valid$" else self.layout.fixed(expr).bits

    def _key_reader(self, target: FieldRef) -> Callable[[PacketState], int]:
        header = target.header
        if target.field == "$valid$":
            return lambda state: int(state.valid[header])
        slot = self.layout.fixed(target)
        return lambda state: slot.pattern(state.values[header][slot.index]) if state.valid[header] else 0

    # --- calculations ---------------------------------------------------------------------------------------------

    def calculate(self, state: PacketState, name: str) -> int:
        """The value of a named calculation."""
        calculation: Calculation = self.program.calculations[name]
        return hashes.compute(calculation.algorithm, self._concatenate(state, calculation.inputs))

    def _concatenate(self, state: PacketState, inputs: Sequence[CalcInput]) -> bytes:
        """Inputs end to end as bits, zero bits up to a whole byte, then the payload where it is an input."""
        value = bits = 0
        payload = b""
        for item in inputs:
            part, width = 0, 0
            match item.value:
                case None:
                    payload = state.payload
                case HeaderRef(header):
                    if state.valid[header]:
                        part, width = state.header_as_bits(header)
                case FieldRef(header, "$valid$"):
                    part, width = int(state.valid[header]), 1
                case FieldRef(header, name):
                    if state.valid[header]:
                        slot = self.layout.slots[header, name]
                        width = slot.bits if isinstance(slot, FieldSlot) else state.varbit_bits[header]
                        part = state.values[header][slot.index] & ((1 << width) - 1)
                case Const(number):
                    part, width = number, item.bits or 0
                case other:
                    raise AssertionError(f"{other} passed the loader as an input of a calculation")
            value = (value << width) | part
            bits += width
        padding = -bits % 8
        return (value << padding).to_bytes((bits + padding) // 8, "big") + payload

    def _verify(self, state: PacketState, index: int) -> bool:
        checksum: Checksum = self.program.checksums[index]
        condition = self._checksum_conditions[index]
        if not checksum.verify or not state.valid[checksum.target.header]:
            return True
        if condition is not None and not condition(state, ()):
            return True
        slot = self.layout.fixed(checksum.target)
        return slot.pattern(state.read(slot)) == self.calculate(state, checksum.calculation)

    def _digest(self, state: PacketState, learn_list: int) -> bytes:
        out = bytearray()
        for expr, bits in self.program.learn_lists[learn_list].elements:
            match expr:
                case FieldRef(header, "$valid$"):
                    value = int(state.valid[header])
                case FieldRef():
                    value = state.read(self.layout.fixed(expr))
                case Const(number):
                    value = number
                case _:
                    raise AssertionError(f"{expr} passed the loader as an element of a digest")
            out += (value & ((1 << bits) - 1)).to_bytes((bits + 7) // 8, "big")
        return bytes(out)

    # --- PipelineControl ------------------------------------------------------------------------------------------

    def _table(self, name: str) -> TableState:
        if name not in self.tables:
            raise PipelineError(f"table {name!r} does not exist")
        return self.tables[name]

    def table_insert(self, table: str, keys: Sequence[KeyMatch], priority: int, action: EntryAction) -> int:
        return self._table(table).insert(keys, priority, action, self.now_ps)

    def table_modify(self, table: str, handle: int, action: EntryAction) -> None:
        self._table(table).modify(handle, action)

    def table_delete(self, table: str, handle: int) -> None:
        self._table(table).delete(handle)

    def table_set_default(self, table: str, action: EntryAction | None) -> None:
        self._table(table).set_default(action)

    def table_hit_age_us(self, table: str, handle: int) -> int:
        return (self.now_ps - self._table(table).entry(handle).last_hit_ps) // PS_PER_US

    def _profile(self, name: str) -> ProfileState:
        if name not in self.profiles:
            raise PipelineError(f"action profile {name!r} does not exist")
        return self.profiles[name]

    def member_set(self, profile: str, member_id: int, action: ActionCall) -> None:
        self._profile(profile).set_member(member_id, action)

    def member_delete(self, profile: str, member_id: int) -> None:
        state = self._profile(profile)
        state.member(member_id)
        in_group = any(member_id in (member for member, _ in group) for group in state.groups.values())
        if in_group or self._refers(profile, MemberRef(member_id)):
            raise PipelineError(f"action profile {profile!r}: member {member_id} is in use")
        del state.members[member_id]

    def group_set(self, profile: str, group_id: int, members: Sequence[tuple[int, int]]) -> None:
        self._profile(profile).set_group(group_id, members)

    def group_delete(self, profile: str, group_id: int) -> None:
        state = self._profile(profile)
        state.group(group_id)
        if self._refers(profile, GroupRef(group_id)):
            raise PipelineError(f"action profile {profile!r}: group {group_id} is in use")
        del state.groups[group_id]

    def _refers(self, profile: str, target: Target) -> bool:
        users = [table for table in self.tables.values() if table.table.implementation == profile]
        return any(
            table.default == target or any(entry.target == target for entry in table.entries.values())
            for table in users
        )

    def counter_read(self, counter: str, index: int) -> CounterValue:
        cell = _cell("counter", self.counters, counter, index)
        return CounterValue(cell.packets, cell.bytes)

    def counter_write(self, counter: str, index: int, value: CounterValue) -> None:
        cell = _cell("counter", self.counters, counter, index)
        cell.packets, cell.bytes = value.packets, value.bytes

    def register_read(self, register: str, index: int) -> int:
        return _cell("register", self.registers, register, index)

    def register_write(self, register: str, index: int, value: int) -> None:
        _cell("register", self.registers, register, index)
        bits = self.program.registers[register].bits
        self.registers[register][index] = value & ((1 << bits) - 1)

    def meter_write(self, meter: str, index: int, config: MeterConfig | None) -> None:
        _cell("meter", self.meters, meter, index).configure(config, self.now_ps)

    def direct_counter_read(self, table: str, handle: int) -> CounterValue:
        cell = self._direct_counter(table, handle)
        return CounterValue(cell.packets, cell.bytes)

    def direct_counter_write(self, table: str, handle: int, value: CounterValue) -> None:
        cell = self._direct_counter(table, handle)
        cell.packets, cell.bytes = value.packets, value.bytes

    def _direct_counter(self, table: str, handle: int) -> CounterCell:
        state = self._table(table)
        if not state.table.with_counters:
            raise PipelineError(f"table {table!r}: has no direct counter")
        return state.entry(handle).counter

    def direct_meter_write(self, table: str, handle: int, config: MeterConfig | None) -> None:
        state = self._table(table)
        if state.table.direct_meter is None:
            raise PipelineError(f"table {table!r}: has no direct meter")
        state.entry(handle).meter.configure(config, self.now_ps)

    def value_set_write(self, value_set: str, members: Sequence[tuple[int, int]]) -> None:
        if value_set not in self.value_sets:
            raise PipelineError(f"value set {value_set!r} does not exist")
        limit = self.program.value_sets[value_set].max_size
        if len(members) > limit:
            raise PipelineError(f"value set {value_set!r}: {len(members)} members, at most {limit} fit")
        self.value_sets[value_set][:] = members


def _cell(kind: str, arrays: Mapping[str, list[T]], name: str, index: int) -> T:
    if name not in arrays:
        raise PipelineError(f"{kind} {name!r} does not exist")
    if not 0 <= index < len(arrays[name]):
        raise PipelineError(f"{kind} {name!r}: index {index}, must be below {len(arrays[name])}")
    return arrays[name][index]


def _profile_actions(program: Program, profile: str, tables: Iterable[Table]) -> list[Action]:
    """Actions of all tables that use a profile, once each."""
    ids = dict.fromkeys(i for table in tables if table.implementation == profile for i in table.action_ids)
    return [program.actions[identifier] for identifier in ids]

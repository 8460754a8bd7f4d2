"""The target behind the P4Runtime server: a `SwitchCore` seen through P4Info.

`Target` routes by name: objects that P4Info marks `@tm("kind")` go to the traffic manager (`switch.target_tm`),
everything else to the pipeline, replication entries to the replication engine. It owns the core; the server owns the
target. `TargetFactory` makes one of a program and P4Info, checking that the two fit, and hands the network interfaces
from one target to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from finsy.proto import p4i

from switch.api import (
    ActionCall,
    CounterValue,
    EntryAction,
    KeyMatch,
    MatchKind,
    MeterConfig,
    PipelineControl,
    PipelineError,
)
from switch.loader import UnsupportedProgram, load
from switch.model import Pipeline, Program, Table
from switch.p4rt.control import DigestEvent, Event, InitialEntry, PacketInEvent, PortEvent
from switch.p4rt.schema import Schema, SchemaError
from switch.target_check import fit_problems
from switch.target_tm import TrafficManagerTables

if TYPE_CHECKING:
    from switch.core import SwitchCore


class Target:
    """A program on a core. `interfaces` None: ports are driven from outside (fabric, tests), all are there and up."""

    def __init__(
        self,
        core: SwitchCore,
        p4info: p4i.P4Info,
        program: Program,
        *,
        interfaces: Mapping[int, str] | None = None,
        pcap_dir: Path | None = None,
    ) -> None:
        schema = Schema(p4info)
        self.core = core
        self._program = program
        self._interfaces = dict(interfaces) if interfaces is not None else None
        self._pcap_dir = pcap_dir
        self._pipeline: PipelineControl = core.pipeline
        self._tm = TrafficManagerTables(schema, core.tm)
        self._tables: dict[str, PipelineControl | TrafficManagerTables] = {
            table.name: self._tm if table.tm else self._pipeline for table in schema.tables.values()
        }
        self._tm_counters = {counter.name: counter.tm for counter in schema.counters.values() if counter.tm}
        self._tm_registers = {register.name: register.tm for register in schema.registers.values() if register.tm}
        self._kinds = {table.name: tuple(field.kind for field in table.fields) for table in schema.tables.values()}
        self._running = False
        self._ports_up: dict[int, bool] = {}

    # --- life ---

    def start(self) -> None:
        """Take over the interfaces. ValueError (SwitchCoreError) when one of them cannot be opened."""
        if self._interfaces is not None:
            self.core.start_driver(self._interfaces, self._pcap_dir)
        self._running = True
        self._ports_up = {port: self.core.port_up(port) for port in self._interfaces or ()}

    def stop(self) -> None:
        """Let go of the interfaces."""
        self._running = False
        if self._interfaces is not None:
            self.core.stop_driver()

    def close(self) -> None:
        """Stop and free the core."""
        self.stop()
        self.core.close()

    def lock(self) -> AbstractContextManager[object]:
        """Hold the core: no packet is processed meanwhile."""
        return self.core.lock()

    # --- tables ---

    def initial_entries(self, table: str) -> list[InitialEntry]:
        """Entries of the program, in P4Runtime terms: of N entries the first has priority N."""
        found = _table(self._program, table)
        if found is None:
            return []
        order = sorted(range(len(found.const_entries)), key=lambda number: found.const_entries[number].priority)
        priorities = {number: len(order) - rank for rank, number in enumerate(order)}
        ternary = any(key.kind.value in ("ternary", "range", "optional") for key in found.keys)
        entries = []
        for number, entry in enumerate(found.const_entries):
            keys = _as_kinds((key for key in entry.keys if isinstance(key, KeyMatch)), self._kinds[table])
            call = ActionCall(self._program.actions[entry.action_id].name, entry.action_data)
            entries.append(InitialEntry(keys, priorities[number] if ternary else 0, call, number))
        return entries

    def initial_default(self, table: str) -> ActionCall | None:
        """The default action of the program."""
        found = _table(self._program, table)
        if found is None or found.default is None:
            return None
        return ActionCall(self._program.actions[found.default.action_id].name, found.default.action_data)

    def table_insert(self, table: str, keys: Sequence[KeyMatch], priority: int, action: EntryAction) -> int:
        program_table = _table(self._program, table)
        assert program_table is not None
        keys = _as_kinds(keys, tuple(key.kind for key in program_table.keys))
        with self.core.lock():
            return self._tables[table].table_insert(table, keys, priority, action)

    def table_modify(self, table: str, handle: int, action: EntryAction) -> None:
        with self.core.lock():
            self._tables[table].table_modify(table, handle, action)

    def table_delete(self, table: str, handle: int) -> None:
        with self.core.lock():
            self._tables[table].table_delete(table, handle)

    def table_set_default(self, table: str, action: EntryAction | None) -> None:
        with self.core.lock():
            self._tables[table].table_set_default(table, action)

    def table_hit_age_us(self, table: str, handle: int) -> int:
        with self.core.lock():
            return self._pipeline.table_hit_age_us(table, handle)

    # --- action profiles ---

    def member_set(self, profile: str, member_id: int, action: ActionCall) -> None:
        with self.core.lock():
            self._pipeline.member_set(profile, member_id, action)

    def member_delete(self, profile: str, member_id: int) -> None:
        with self.core.lock():
            self._pipeline.member_delete(profile, member_id)

    def group_set(self, profile: str, group_id: int, members: Sequence[tuple[int, int]]) -> None:
        with self.core.lock():
            self._pipeline.group_set(profile, group_id, members)

    def group_delete(self, profile: str, group_id: int) -> None:
        with self.core.lock():
            self._pipeline.group_delete(profile, group_id)

    # --- indexed externs ---

    def counter_read(self, counter: str, index: int) -> CounterValue:
        kind = self._tm_counters.get(counter)
        if kind is not None:
            return self._tm.counter_read(kind, index)
        with self.core.lock():
            return self._pipeline.counter_read(counter, index)

    def counter_write(self, counter: str, index: int, value: CounterValue) -> None:
        kind = self._tm_counters.get(counter)
        if kind is not None:
            self._tm.counter_write(kind, index, value)
            return
        with self.core.lock():
            self._pipeline.counter_write(counter, index, value)

    def register_read(self, register: str, index: int) -> int:
        kind = self._tm_registers.get(register)
        if kind is not None:
            return self._tm.register_read(kind, index)
        with self.core.lock():
            return self._pipeline.register_read(register, index)

    def register_write(self, register: str, index: int, value: int) -> None:
        kind = self._tm_registers.get(register)
        if kind is not None:
            self._tm.register_write(kind, index, value)
            return
        with self.core.lock():
            self._pipeline.register_write(register, index, value)

    def meter_write(self, meter: str, index: int, config: MeterConfig | None) -> None:
        with self.core.lock():
            self._pipeline.meter_write(meter, index, config)

    def direct_counter_read(self, table: str, handle: int) -> CounterValue:
        with self.core.lock():
            return self._pipeline.direct_counter_read(table, handle)

    def direct_counter_write(self, table: str, handle: int, value: CounterValue) -> None:
        with self.core.lock():
            self._pipeline.direct_counter_write(table, handle, value)

    def direct_meter_write(self, table: str, handle: int, config: MeterConfig | None) -> None:
        with self.core.lock():
            self._pipeline.direct_meter_write(table, handle, config)

    def value_set_write(self, value_set: str, members: Sequence[tuple[int, int]]) -> None:
        with self.core.lock():
            self._pipeline.value_set_write(value_set, members)

    # --- replication ---

    def set_multicast_group(self, group_id: int, replicas: Sequence[tuple[int, int]]) -> None:
        try:
            self.core.pre.set_multicast_group(group_id, list(replicas))
        except ValueError as error:
            raise PipelineError(str(error)) from error

    def delete_multicast_group(self, group_id: int) -> None:
        self.core.pre.delete_multicast_group(group_id)

    def set_clone_session(
        self, session_id: int, replicas: Sequence[tuple[int, int]], class_of_service: int, packet_length_bytes: int
    ) -> None:
        try:
            self.core.pre.set_clone_session(session_id, list(replicas), class_of_service, packet_length_bytes)
        except ValueError as error:
            raise PipelineError(str(error)) from error

    def delete_clone_session(self, session_id: int) -> None:
        self.core.pre.delete_clone_session(session_id)

    # --- ports, packets, events ---

    def port_exists(self, port: int) -> bool:
        """A data port of this switch, or the CPU port."""
        if port == self.core.cpu_port:
            return True
        if self._interfaces is not None:
            return port in self._interfaces
        return 0 <= port < self.core.drop_port

    def port_is_up(self, port: int) -> bool:
        """Up, or not known to be down."""
        return self._ports_up.get(port, True)

    def packet_out(self, frame: bytes) -> None:
        """A frame from the CPU port, its packet-out header in front."""
        if not self.core.receive(self.core.cpu_port, frame):
            raise PipelineError(f"frame of {len(frame)} bytes with its header: the target takes no frame of this size")

    def events(self) -> list[Event]:
        """Packet-ins and digests in order, then what changed on the ports."""
        found: list[Event] = []
        for event in self.core.events():
            frame = getattr(event, "frame", None)
            if frame is not None:
                found.append(PacketInEvent(frame))
            else:
                found.append(self._digest(event.list_id, event.data))  # type: ignore[union-attr]
        if self._running:
            for port, was_up in self._ports_up.items():
                is_up = self.core.port_up(port)
                if is_up != was_up:
                    self._ports_up[port] = is_up
                    found.append(PortEvent(port, is_up))
        return found

    def _digest(self, list_id: int, data: bytes) -> DigestEvent:
        learn_list = self._program.learn_lists[list_id]
        values = []
        at = 0
        for _, bits in learn_list.elements:
            length = (bits + 7) // 8
            values.append(int.from_bytes(data[at : at + length], "big"))
            at += length
        return DigestEvent(learn_list.name, tuple(values))

    def event_fd(self) -> int | None:
        """Readable while `events` has packet-ins or digests."""
        return self.core.event_fd


def _pipelines(program: Program) -> tuple[Pipeline, Pipeline]:
    return program.ingress, program.egress


def _table(program: Program, name: str) -> Table | None:
    return next((p.tables[name] for p in _pipelines(program) if name in p.tables), None)


def _as_kinds(keys: Iterable[KeyMatch], kinds: tuple[MatchKind, ...]) -> tuple[KeyMatch, ...]:
    """p4c writes an optional key as a ternary one; both carry value and mask."""
    return tuple(key if key.kind is kind else replace(key, kind=kind) for key, kind in zip(keys, kinds, strict=True))


class TargetFactory:
    """Makes targets for one switch: the same ports, CPU port and seed for every program."""

    def __init__(
        self,
        *,
        interfaces: Mapping[int, str] | None = None,
        cpu_port: int = 510,
        drop_port: int = 511,
        priority_queues: int = 8,
        seed: int = 0,
        pcap_dir: Path | None = None,
        core_factory: Callable[[bytes], SwitchCore] | None = None,
    ) -> None:
        self.interfaces = interfaces
        self.cpu_port = cpu_port
        self.drop_port = drop_port
        self.priority_queues = priority_queues
        self.seed = seed
        self.pcap_dir = pcap_dir
        self._core_factory = core_factory or self._native_core

    def _load(self, device_config: bytes) -> Program:
        return load(device_config)

    def _native_core(self, device_config: bytes) -> SwitchCore:
        from switch.core import SwitchCore

        return SwitchCore(
            device_config,
            cpu_port=self.cpu_port,
            drop_port=self.drop_port,
            seed=self.seed,
            priority_queues=self.priority_queues,
        )

    def __call__(self, device_config: bytes, p4info: p4i.P4Info) -> Target:
        """Load, check and compile. UnsupportedProgram with everything that is wrong."""
        problems: list[str] = []
        program = None
        try:
            program = self._load(device_config)
        except UnsupportedProgram as error:
            problems += error.problems
        try:
            schema = Schema(p4info)
            if program is not None:
                problems += fit_problems(schema, program)
        except SchemaError as error:
            problems += error.problems
        if problems or program is None:
            raise UnsupportedProgram(problems)
        core = self._core_factory(device_config)
        try:
            return self._target(core, p4info, program)
        except BaseException:
            core.close()
            raise

    def _target(self, core: SwitchCore, p4info: p4i.P4Info, program: Program) -> Target:
        return Target(core, p4info, program, interfaces=self.interfaces, pcap_dir=self.pcap_dir)

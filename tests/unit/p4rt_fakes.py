"""An in-memory switch core for tests of the P4Runtime server: same calls as `switch.core.SwitchCore`, no packets.

`FakePipeline` is as strict as a real one about what exists and refuses the rest with PipelineError; everything it was
told can be looked at. `FakeTrafficManager` and `FakeReplication` keep the last setting. `refuse(name)` makes the next
such call fail, for tests of what is taken back then.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from switch.api import ActionCall, CounterValue, EntryAction, GroupRef, KeyMatch, MemberRef, MeterConfig, PipelineError
from switch.core import DigestData, PacketIn, SwitchCore
from switch.loader import load
from switch.model import Program
from switch.target import TargetFactory

load_once = lru_cache(maxsize=8)(load)  # programs are immutable


@dataclass
class FakeEntry:
    keys: tuple[KeyMatch, ...]
    priority: int
    action: EntryAction
    counter: CounterValue = field(default_factory=CounterValue)
    meter: MeterConfig | None = None
    age_us: int = 0


@dataclass
class FakeProfile:
    members: dict[int, ActionCall] = field(default_factory=dict)
    groups: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)


class FakePipeline:
    """`switch.api.PipelineControl` over dictionaries."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._tables = {**program.ingress.tables, **program.egress.tables}
        self._refused: list[str] = []
        self.entries: dict[str, dict[int, FakeEntry]] = {name: {} for name in self._tables}
        self.defaults: dict[str, EntryAction | None] = {}
        profiles = {**program.ingress.action_profiles, **program.egress.action_profiles}
        self.profiles = {name: FakeProfile() for name in profiles}
        self.counters = {name: [CounterValue()] * c.size for name, c in program.counters.items()}
        self.registers = {name: [0] * r.size for name, r in program.registers.items()}
        self.meters: dict[str, dict[int, MeterConfig]] = {name: {} for name in program.meters}
        self.value_sets: dict[str, list[tuple[int, int]]] = {name: [] for name in program.value_sets}
        self._next_handle = 1000
        for table in self._tables.values():
            for handle, entry in enumerate(table.const_entries):
                keys = tuple(key for key in entry.keys if isinstance(key, KeyMatch))
                call = ActionCall(program.actions[entry.action_id].name, entry.action_data)
                self.entries[table.name][handle] = FakeEntry(keys, -entry.priority, call)

    def refuse(self, name: str) -> None:
        """The next call of that name fails."""
        self._refused.append(name)

    def _called(self, name: str) -> None:
        if name in self._refused:
            self._refused.remove(name)
            raise PipelineError(f"{name}: refused by the test")

    def _entry(self, table: str, handle: int) -> FakeEntry:
        if handle not in self.entries[table]:
            raise PipelineError(f"table {table}: no entry with handle {handle}")
        return self.entries[table][handle]

    def _check(self, table: str, action: EntryAction) -> None:
        implementation = self._tables[table].implementation
        if isinstance(action, ActionCall):
            if implementation:
                raise PipelineError(f"table {table} is indirect")
            names = {self.program.actions[i].name: self.program.actions[i] for i in self._tables[table].action_ids}
            if action.name not in names or len(names[action.name].params) != len(action.params):
                raise PipelineError(f"table {table}: bad action {action}")
        elif implementation is None:
            raise PipelineError(f"table {table} is direct")
        elif isinstance(action, MemberRef):
            if action.member_id not in self.profiles[implementation].members:
                raise PipelineError(f"no member {action.member_id}")
        elif action.group_id not in self.profiles[implementation].groups:
            raise PipelineError(f"no group {action.group_id}")

    def table_insert(self, table: str, keys: Sequence[KeyMatch], priority: int, action: EntryAction) -> int:
        self._called("table_insert")
        self._check(table, action)
        assert [key.kind for key in keys] == [key.kind for key in self._tables[table].keys]
        self._next_handle += 1
        self.entries[table][self._next_handle] = FakeEntry(tuple(keys), priority, action)
        return self._next_handle

    def table_modify(self, table: str, handle: int, action: EntryAction) -> None:
        self._called("table_modify")
        self._check(table, action)
        self._entry(table, handle).action = action

    def table_delete(self, table: str, handle: int) -> None:
        self._called("table_delete")
        self._entry(table, handle)
        del self.entries[table][handle]

    def table_set_default(self, table: str, action: EntryAction | None) -> None:
        self._called("table_set_default")
        if action is not None:
            self._check(table, action)
        self.defaults[table] = action

    def table_hit_age_us(self, table: str, handle: int) -> int:
        return self._entry(table, handle).age_us

    def member_set(self, profile: str, member_id: int, action: ActionCall) -> None:
        self._called("member_set")
        self.profiles[profile].members[member_id] = action

    def member_delete(self, profile: str, member_id: int) -> None:
        self._called("member_delete")
        for members in self.profiles[profile].groups.values():
            if any(member == member_id for member, _ in members):
                raise PipelineError(f"member {member_id} is in a group")
        for table in self._tables.values():
            if table.implementation == profile and any(
                entry.action == MemberRef(member_id) for entry in self.entries[table.name].values()
            ):
                raise PipelineError(f"member {member_id} is in an entry")
        del self.profiles[profile].members[member_id]

    def group_set(self, profile: str, group_id: int, members: Sequence[tuple[int, int]]) -> None:
        self._called("group_set")
        for member_id, weight in members:
            assert weight > 0
            if member_id not in self.profiles[profile].members:
                raise PipelineError(f"no member {member_id}")
        self.profiles[profile].groups[group_id] = tuple(members)

    def group_delete(self, profile: str, group_id: int) -> None:
        self._called("group_delete")
        for table in self._tables.values():
            if table.implementation == profile and any(
                entry.action == GroupRef(group_id) for entry in self.entries[table.name].values()
            ):
                raise PipelineError(f"group {group_id} is in an entry")
        del self.profiles[profile].groups[group_id]

    def counter_read(self, counter: str, index: int) -> CounterValue:
        return self.counters[counter][index]

    def counter_write(self, counter: str, index: int, value: CounterValue) -> None:
        self._called("counter_write")
        self.counters[counter][index] = value

    def register_read(self, register: str, index: int) -> int:
        return self.registers[register][index]

    def register_write(self, register: str, index: int, value: int) -> None:
        self._called("register_write")
        assert 0 <= value < 1 << self.program.registers[register].bits
        self.registers[register][index] = value

    def meter_write(self, meter: str, index: int, config: MeterConfig | None) -> None:
        self._called("meter_write")
        if config is None:
            self.meters[meter].pop(index, None)
        else:
            self.meters[meter][index] = config

    def direct_counter_read(self, table: str, handle: int) -> CounterValue:
        return self._entry(table, handle).counter

    def direct_counter_write(self, table: str, handle: int, value: CounterValue) -> None:
        self._called("direct_counter_write")
        self._entry(table, handle).counter = value

    def direct_meter_write(self, table: str, handle: int, config: MeterConfig | None) -> None:
        self._called("direct_meter_write")
        self._entry(table, handle).meter = config

    def value_set_write(self, value_set: str, members: Sequence[tuple[int, int]]) -> None:
        self._called("value_set_write")
        self.value_sets[value_set] = list(members)

    def only(self, table: str) -> FakeEntry:
        """The one entry of a table."""
        (entry,) = self.entries[table].values()
        return entry


class FakeTrafficManager:
    """Last setting by (method, port, more key); counters and states are set by the test."""

    def __init__(self) -> None:
        self.settings: dict[tuple[object, ...], tuple[object, ...]] = {}
        self.counters: dict[tuple[str, int], CounterValue] = {}
        self.states: dict[tuple[str, int], int] = {}

    def set_port(self, port: int, rate_bps: int = 0) -> None:
        self.settings["port", port] = (rate_bps,)

    def set_pfc(self, port: int, tx_enable: int = 0, quanta: int = 65535, queue_map: int = 0xFAC688) -> None:
        self.settings["pfc", port] = (tx_enable, quanta, queue_map)

    def set_scheduler(self, port: int, queue: int, scheduler: object) -> None:
        self.settings["scheduler", port, queue] = (scheduler,)

    def set_priority_group(self, port: int, pg: int, group: object) -> None:
        self.settings["priority_group", port, pg] = (group,)

    def set_queue(self, port: int, queue: int, limit: object) -> None:
        self.settings["queue", port, queue] = (limit,)

    def set_pool(self, size: int = 16 << 20, pool: int = 0) -> None:
        self.settings["pool", pool] = (size,)

    def set_headroom_pool(self, pool: int, size: int = 0) -> None:
        self.settings["headroom_pool", pool] = (size,)

    def set_pg_pool(self, port: int, pg: int, pool: int = 0, headroom_pool: int = 255) -> None:
        self.settings["pg_pool", port, pg] = (pool, headroom_pool)

    def set_storm(self, port: int, priority: int, action: object = None) -> None:
        self.settings["storm", port, priority] = (action,)

    def set_watchdog(self, port: int, priority: int, watchdog: object = None) -> None:
        self.settings["watchdog", port, priority] = (watchdog,)

    def read_counter(self, kind: str, index: int) -> CounterValue:
        return self.counters.get((kind, index), CounterValue())

    def clear_counter(self, kind: str, index: int) -> None:
        self.counters.pop((kind, index), None)

    def read_state(self, kind: str, index: int) -> int:
        return self.states.get((kind, index), 0)

    def clear_watermark(self, kind: str, index: int) -> None:
        self.states.pop((kind, index), None)


class FakeReplication:
    """Multicast groups and clone sessions as they were set."""

    def __init__(self) -> None:
        self.groups: dict[int, list[tuple[int, int]]] = {}
        self.sessions: dict[int, tuple[list[tuple[int, int]], int, int]] = {}

    def set_multicast_group(self, group_id: int, replicas: list[tuple[int, int]]) -> None:
        self.groups[group_id] = replicas

    def delete_multicast_group(self, group_id: int) -> None:
        del self.groups[group_id]

    def set_clone_session(
        self, session_id: int, replicas: list[tuple[int, int]], cos: int = 0, length: int = 0
    ) -> None:
        self.sessions[session_id] = (replicas, cos, length)

    def delete_clone_session(self, session_id: int) -> None:
        del self.sessions[session_id]


class FakeCore:
    """`switch.core.SwitchCore` without packets. `happen` makes an event, as the data plane would."""

    def __init__(self, json_text: bytes, pipeline: Any = None) -> None:
        program = load_once(json_text)
        self.pipeline: Any = pipeline or FakePipeline(program)
        self.tm = FakeTrafficManager()
        self.pre = FakeReplication()
        self.cpu_port = 510
        self.drop_port = 511
        self.received: list[tuple[int, bytes]] = []
        self.driver: dict[int, str] | None = None
        self.down: set[int] = set()
        self.closed = False
        self.locked = 0
        self.lock_log: list[str] = []
        self._events: deque[PacketIn | DigestData] = deque()
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.fail_start: str | None = None

    def happen(self, event: PacketIn | DigestData) -> None:
        self._events.append(event)
        os.eventfd_write(self.event_fd, 1)

    def events(self) -> list[PacketIn | DigestData]:
        if self._events:
            os.eventfd_read(self.event_fd)
        events = list(self._events)
        self._events.clear()
        return events

    @contextmanager
    def lock(self) -> Iterator[None]:
        self.locked += 1
        if self.locked == 1:
            self.lock_log.append("lock")
        try:
            yield
        finally:
            self.locked -= 1

    def receive(self, port: int, frame: bytes, now_ps: int | None = None) -> bool:
        self.received.append((port, frame))
        return len(frame) <= 9728

    def start_driver(self, interfaces: Mapping[int, str], pcap_dir: Path | None = None) -> None:
        if self.fail_start:
            raise ValueError(self.fail_start)
        self.driver = dict(interfaces)

    def stop_driver(self) -> None:
        self.driver = None

    def port_up(self, port: int) -> bool:
        return port not in self.down

    def close(self) -> None:
        if not self.closed:
            os.close(self.event_fd)
        self.closed = True


class FakeTargetFactory(TargetFactory):
    """Real targets over fake cores; `cores` has them all, newest last."""

    def __init__(self, interfaces: Mapping[int, str] | None = None) -> None:
        self.cores: list[FakeCore] = []
        super().__init__(interfaces=interfaces, core_factory=cast("Callable[[bytes], SwitchCore]", self._make))
        self.fail_next_start: str | None = None

    def _load(self, device_config: bytes) -> Program:
        return load_once(device_config)

    def _make(self, device_config: bytes) -> FakeCore:
        core = FakeCore(device_config)
        core.fail_start, self.fail_next_start = self.fail_next_start, None
        self.cores.append(core)
        return core

    @property
    def core(self) -> FakeCore:
        return self.cores[-1]

"""A generated pipeline under Python: `NativePipeline`, the control side of a `pl_t` through ctypes.

It serves `switch.api.PipelineControl` for the pipeline of a switch core (which owns the `pl_t`), or for one of its own
(`NativePipeline.from_json`), and the pipeline test interface (docs/contract.md, section 6) with `NativePacket`. Checks
that need names are made here, with the messages of the interpreter; what needs the state of tables is checked in C.
No lock is taken: a caller beside a running driver holds the core's lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from switch.api import (
    ActionCall,
    CounterValue,
    EntryAction,
    GroupRef,
    KeyMatch,
    MatchKind,
    MemberRef,
    MeterConfig,
    PipelineError,
)
from switch.codegen.generator import pack_match, prefix_length
from switch.codegen.layout import Layout, cells_of
from switch.interp_state import NO_TRUNCATION, Requests
from switch.interp_tables import bind
from switch.model import Action, Program, Table
from switch.native_abi import (
    ABI_VERSION,
    DIGEST_SINK,
    KIND_ACTION,
    KIND_GROUP,
    KIND_MEMBER,
    LOG_SINK,
    PKT_HEADROOM,
    RULES,
    WORD,
    PlCount,
    PlPacket,
    PlRequests,
    load_library,
    prepare,
)


def _words(values: Sequence[int]) -> Any:
    return (ctypes.c_uint64 * max(1, len(values)))(*values)


def _cells(value: int, count: int) -> list[int]:
    return [value >> (64 * at) & WORD for at in range(count)]


class NativePipeline:
    """Control of one `pl_t` of a loaded library. `program` must be the one that the library was built from."""

    def __init__(self, library: ctypes.CDLL, pointer: int | None, program: Program) -> None:
        if not pointer:
            raise MemoryError("the pipeline has no memory")
        prepare(library)
        self.library = library
        self.pointer = ctypes.c_void_p(pointer)
        self.program = program
        self.layout = Layout(program)
        self.table_c = library.pl_program().contents
        if self.table_c.abi_version != ABI_VERSION:
            raise ValueError(f"the library has ABI version {self.table_c.abi_version}, must be {ABI_VERSION}")
        if self.table_c.name.decode() != program.sha256:
            raise ValueError("the library was built from another program")
        self.phv_bytes: int = self.table_c.phv_bytes
        self.fields = {
            item.name.decode(): (item.cell, item.bits)
            for item in self.table_c.fields[: self.table_c.n_fields]  # a pointer slice copies
        }
        self.fields |= {f"{name}.$valid$": (-1, 1) for name, header in program.headers.items() if header.metadata}
        self._owned = False
        self._sinks: tuple[Any, ...] = ()  # ctypes callbacks live as long as C may call them
        self._now_ps = 0
        self.digests: list[tuple[int, bytes]] = []
        self.log_lines: list[str] = []

    @classmethod
    def from_json(cls, text: str | bytes, seed: int = 0, *, sanitize: bool = False) -> NativePipeline:
        """A pipeline of its own, outside of a switch core; it collects digests and log lines."""
        from switch.build import build_program
        from switch.loader import load

        return cls.from_library(build_program(text, sanitize=sanitize), load(text), seed)

    @classmethod
    def from_library(cls, path: Path, program: Program, seed: int = 0) -> NativePipeline:
        """As `from_json`, with a shared object that is already built."""
        library = load_library(path)
        table = library.pl_program().contents
        pipeline = cls(library, table.create(seed & WORD), program)
        pipeline._owned = True
        digest_sink = DIGEST_SINK(pipeline._on_digest)
        log_sink = LOG_SINK(lambda _, line: pipeline.log_lines.append(line.decode(errors="replace")))
        table.set_digest_sink(pipeline.pointer, digest_sink, None)
        table.set_log_sink(pipeline.pointer, log_sink, None)
        pipeline._sinks = (digest_sink, log_sink)
        return pipeline

    def _on_digest(self, _: int | None, list_id: int, data: Any, size: int) -> None:
        self.digests.append((list_id, bytes(data[:size])))

    def close(self) -> None:
        """Frees a pipeline of its own; one of a switch core is the core's to free."""
        if self._owned:
            self._owned = False
            self.table_c.destroy(self.pointer)

    # --- time and target -------------------------------------------------------------------------------------------

    @property
    def now_ps(self) -> int:
        """The clock of a stand-alone pipeline; a switch core sets its pipeline's clock itself."""
        return self._now_ps

    @now_ps.setter
    def now_ps(self, value: int) -> None:
        self._now_ps = value
        self.table_c.clock(self.pointer, value)

    @property
    def failed_asserts(self) -> int:
        """How many assert and assume primitives failed so far."""
        return int(self.library.pl_failed_asserts(self.pointer))

    def set_drop_port(self, port: int) -> None:
        """What mark_to_drop writes into egress_spec."""
        self.table_c.set_drop_port(self.pointer, port)

    # --- tables ----------------------------------------------------------------------------------------------------

    def _table(self, name: str) -> tuple[int, Table]:
        if name not in self.layout.tables:
            raise PipelineError(f"table {name!r} does not exist")
        return self.layout.table_index[name], self.layout.tables[name]

    def _actions(self, ids: Sequence[int]) -> list[Action]:
        return [self.program.actions[identifier] for identifier in ids]

    def _resolve(self, table: Table, action: EntryAction) -> tuple[int, int, Any, int]:
        """Kind, number and data of an entry's action, checked against the table."""
        where = f"table {table.name!r}"
        if isinstance(action, ActionCall):
            if table.implementation is not None:
                raise PipelineError(f"{where}: takes members or groups of {table.implementation!r}, not actions")
            bound = bind(action, self._actions(table.action_ids), where)
            data = self.layout.action_data[bound.action.id].pack(bound.params)
            return KIND_ACTION, bound.action.id, _words(data), len(data)
        if table.implementation is None:
            raise PipelineError(f"{where}: takes actions, it has no action profile")
        if isinstance(action, MemberRef):
            return KIND_MEMBER, action.member_id, _words([]), 0
        if not table.selector:
            raise PipelineError(f"{where}: has no action selector, so no groups")
        return KIND_GROUP, action.group_id, _words([]), 0

    def _check(self, code: int, where: str, action: EntryAction | None = None) -> int:
        """The result of a control function, or the error that it stands for."""
        if code >= 0:
            return code
        rule = RULES.get(code, f"error {code}")
        if isinstance(action, MemberRef) and code == -3:
            rule = f"member {action.member_id} does not exist"
        if isinstance(action, GroupRef) and code == -4:
            rule = f"group {action.group_id} does not exist"
        raise PipelineError(f"{where}: {rule}")

    def _check_keys(self, table: Table, keys: Sequence[KeyMatch]) -> None:
        where = f"table {table.name!r}"
        if len(keys) != len(table.keys):
            raise PipelineError(f"{where}: {len(keys)} keys are given, must be {len(table.keys)}")
        for match, key in zip(keys, table.keys, strict=True):
            name = f"{where} key {key.name!r}"
            masked = (MatchKind.TERNARY, MatchKind.OPTIONAL)
            if match.kind is not key.kind and not (match.kind in masked and key.kind in masked):
                raise PipelineError(f"{name}: is given as {match.kind.value}, must be {key.kind.value}")
            if match.kind is MatchKind.LPM and not 0 <= match.prefix_len <= key.bits:
                raise PipelineError(f"{name}: prefix length {match.prefix_len}, must be 0..{key.bits}")
            if match.kind is MatchKind.RANGE and match.value > match.high:
                raise PipelineError(f"{name}: empty range {match.value}..{match.high}")
            for value in (match.value, match.mask, match.high):
                if not 0 <= value < 1 << key.bits:
                    raise PipelineError(f"{name}: {value} does not fit {key.bits} bits")

    def _check_mutable(self, table: Table) -> None:
        if table.has_const_entries:
            raise PipelineError(f"table {table.name!r}: its entries are constant")

    def table_insert(self, table: str, keys: Sequence[KeyMatch], priority: int, action: EntryAction) -> int:
        index, found = self._table(table)
        self._check_mutable(found)
        self._check_keys(found, keys)
        kind, number, data, size = self._resolve(found, action)
        words = [_words(part) for part in pack_match(keys, self.layout, found)]
        handle = self.library.pl_table_insert(
            self.pointer, index, *words, prefix_length(keys), priority, kind, number, data, size
        )
        where = f"table {table!r}"
        if handle == -1:
            raise PipelineError(f"{where}: is full ({found.max_size} entries)")
        return self._check(handle, where, action)

    def table_modify(self, table: str, handle: int, action: EntryAction) -> None:
        index, found = self._table(table)
        self._check_mutable(found)
        kind, number, data, size = self._resolve(found, action)
        code = self.library.pl_table_modify(self.pointer, index, handle & WORD, kind, number, data, size)
        self._check_handle(code, table, handle, action)

    def table_delete(self, table: str, handle: int) -> None:
        index, found = self._table(table)
        self._check_mutable(found)
        self._check_handle(self.library.pl_table_delete(self.pointer, index, handle & WORD), table, handle)

    def _check_handle(self, code: int, table: str, handle: int, action: EntryAction | None = None) -> int:
        if code == -2:
            raise PipelineError(f"table {table!r}: no entry has handle {handle}")
        return self._check(code, f"table {table!r}", action)

    def table_set_default(self, table: str, action: EntryAction | None) -> None:
        index, found = self._table(table)
        where = f"table {table!r}"
        if action is None:
            self._check(self.library.pl_table_reset_default(self.pointer, index), where)
            return
        kind, number, data, size = self._resolve(found, action)
        default = found.default
        if default is not None and isinstance(action, ActionCall):
            same_action = number == default.action_id
            same_entry = same_action and tuple(action.params) == default.action_data
            if not same_entry and (default.entry_const or (default.action_const and not same_action)):
                raise PipelineError(f"{where}: the default action is constant")
        code = self.library.pl_table_set_default(self.pointer, index, kind, number, data, size)
        self._check(code, where, action)

    def table_hit_age_us(self, table: str, handle: int) -> int:
        index, _ = self._table(table)
        return self._check_handle(self.library.pl_table_hit_age_us(self.pointer, index, handle & WORD), table, handle)

    # --- action profiles -------------------------------------------------------------------------------------------

    def _profile(self, name: str) -> int:
        if name not in self.layout.profile_index:
            raise PipelineError(f"action profile {name!r} does not exist")
        return self.layout.profile_index[name]

    def member_set(self, profile: str, member_id: int, action: ActionCall) -> None:
        index = self._profile(profile)
        where = f"action profile {profile!r} member {member_id}"
        bound = bind(action, self._actions(self.layout.profile_actions(profile)), where)
        data = self.layout.action_data[bound.action.id].pack(bound.params)
        code = self.library.pl_member_set(self.pointer, index, member_id, bound.action.id, _words(data), len(data))
        if code == -1:
            limit = self.layout.profiles[profile].max_size
            raise PipelineError(f"{where}: the profile is full ({limit} members)")
        self._check(code, where)

    def member_delete(self, profile: str, member_id: int) -> None:
        code = self.library.pl_member_delete(self.pointer, self._profile(profile), member_id)
        where = f"action profile {profile!r}: member {member_id}"
        if code in (-3, -5):
            raise PipelineError(f"{where} {'does not exist' if code == -3 else 'is in use'}")
        self._check(code, where)

    def group_set(self, profile: str, group_id: int, members: Sequence[tuple[int, int]]) -> None:
        index = self._profile(profile)
        if self.layout.profiles[profile].selector is None:
            raise PipelineError(f"action profile {profile!r}: has no selector, so no groups")
        for member_id, weight in members:
            if weight < 1:
                raise PipelineError(f"group {group_id}: member {member_id} has weight {weight}, must be at least 1")
        count = len(members)
        ids = (ctypes.c_uint32 * max(1, count))(*(member for member, _ in members))
        weights = (ctypes.c_uint32 * max(1, count))(*(weight for _, weight in members))
        code = self.library.pl_group_set(self.pointer, index, group_id, ids, weights, count)
        self._check(code, f"action profile {profile!r}: group {group_id}")

    def group_delete(self, profile: str, group_id: int) -> None:
        code = self.library.pl_group_delete(self.pointer, self._profile(profile), group_id)
        where = f"action profile {profile!r}: group {group_id}"
        if code in (-4, -5):
            raise PipelineError(f"{where} {'does not exist' if code == -4 else 'is in use'}")
        self._check(code, where)

    # --- externs ---------------------------------------------------------------------------------------------------

    @staticmethod
    def _cell(kind: str, indices: dict[str, int], name: str, index: int, size: int) -> int:
        if name not in indices:
            raise PipelineError(f"{kind} {name!r} does not exist")
        if not 0 <= index < size:
            raise PipelineError(f"{kind} {name!r}: index {index}, must be below {size}")
        return indices[name]

    def _counter(self, name: str, index: int) -> int:
        array = self.program.counters.get(name)
        return self._cell("counter", self.layout.counter_index, name, index, 0 if array is None else array.size)

    def counter_read(self, counter: str, index: int) -> CounterValue:
        value = PlCount()
        number = self._counter(counter, index)
        self._check(self.library.pl_counter(self.pointer, number, index, ctypes.byref(value), 0), counter)
        return CounterValue(value.packets, value.bytes)

    def counter_write(self, counter: str, index: int, value: CounterValue) -> None:
        number = self._counter(counter, index)
        count = PlCount(value.packets, value.bytes)
        self._check(self.library.pl_counter(self.pointer, number, index, ctypes.byref(count), 1), counter)

    def counter_read_all(self, counter: str) -> list[CounterValue]:
        """Every cell of a counter array in one call."""
        array = self.program.counters.get(counter)
        if array is None:
            raise PipelineError(f"counter {counter!r} does not exist")
        values = (PlCount * max(1, array.size))()
        number = self.layout.counter_index[counter]
        self._check(self.library.pl_counter_all(self.pointer, number, values, array.size), counter)
        return [CounterValue(value.packets, value.bytes) for value in values[: array.size]]

    def _register(self, name: str, index: int) -> tuple[int, int]:
        array = self.program.registers.get(name)
        size, bits = (0, 1) if array is None else (array.size, array.bits)
        return self._cell("register", self.layout.register_index, name, index, size), bits

    def register_read(self, register: str, index: int) -> int:
        number, bits = self._register(register, index)
        cells = _words([0] * cells_of(bits))
        self._check(self.library.pl_register(self.pointer, number, index, cells, 0), register)
        return sum(cell << (64 * at) for at, cell in enumerate(cells))

    def register_write(self, register: str, index: int, value: int) -> None:
        number, bits = self._register(register, index)
        cells = _words(_cells(value & ((1 << bits) - 1), cells_of(bits)))
        self._check(self.library.pl_register(self.pointer, number, index, cells, 1), register)

    @staticmethod
    def _rates(config: MeterConfig | None) -> Any:
        return None if config is None else _words([config.cir, config.cburst, config.pir, config.pburst])

    def meter_write(self, meter: str, index: int, config: MeterConfig | None) -> None:
        array = self.program.meters.get(meter)
        number = self._cell("meter", self.layout.meter_index, meter, index, 0 if array is None else array.size)
        self._check(self.library.pl_meter_set(self.pointer, number, index, self._rates(config)), meter)

    def _direct_counter(self, table: str, handle: int, value: PlCount, write: int) -> None:
        index, found = self._table(table)
        if not found.with_counters:
            raise PipelineError(f"table {table!r}: has no direct counter")
        code = self.library.pl_direct_counter(self.pointer, index, handle & WORD, ctypes.byref(value), write)
        self._check_handle(code, table, handle)

    def direct_counter_read(self, table: str, handle: int) -> CounterValue:
        value = PlCount()
        self._direct_counter(table, handle, value, 0)
        return CounterValue(value.packets, value.bytes)

    def direct_counter_write(self, table: str, handle: int, value: CounterValue) -> None:
        self._direct_counter(table, handle, PlCount(value.packets, value.bytes), 1)

    def direct_meter_write(self, table: str, handle: int, config: MeterConfig | None) -> None:
        index, found = self._table(table)
        if found.direct_meter is None:
            raise PipelineError(f"table {table!r}: has no direct meter")
        code = self.library.pl_direct_meter(self.pointer, index, handle & WORD, self._rates(config))
        self._check_handle(code, table, handle)

    def value_set_write(self, value_set: str, members: Sequence[tuple[int, int]]) -> None:
        found = self.program.value_sets.get(value_set)
        if found is None:
            raise PipelineError(f"value set {value_set!r} does not exist")
        if len(members) > found.max_size:
            raise PipelineError(f"value set {value_set!r}: {len(members)} members, at most {found.max_size} fit")
        count = cells_of(found.bits)
        words = [cell for value, mask in members for part in (value, mask) for cell in _cells(part, count)]
        number = self.layout.vset_index[value_set]
        code = self.library.pl_vset_write(self.pointer, number, _words(words), len(members))
        self._check(code, f"value set {value_set!r}")

    # --- packets ---------------------------------------------------------------------------------------------------

    def new_packet(self, frame: bytes, ingress_port: int, **standard_metadata: int) -> NativePacket:
        """A packet that has just been parsed. Keywords set fields of standard_metadata before the parser runs."""
        packet = NativePacket(self)
        packet.parse(frame, ingress_port, **standard_metadata)
        return packet

    def run_ingress(self, packet: NativePacket) -> None:
        """Checksum verification, the ingress control, then the digest. Clears the requests first."""
        packet.run(self.table_c.ingress)

    def run_egress(self, packet: NativePacket) -> None:
        """The egress control. Clears the requests first; sets packet_length, timestamps are the caller's."""
        packet.run(self.table_c.egress)

    def deparse(self, packet: NativePacket) -> bytes:
        """The frame, cut to the truncation asked. The packet can be deparsed once."""
        self.table_c.deparse(self.pointer, packet.pointer)
        return packet.frame[: packet.requests.truncate_bytes]

    def copy_fields(self, field_list: int, to: NativePacket, origin: NativePacket) -> None:
        """Copy the fields of a field list between packets; -1 copies nothing."""
        self.table_c.copy_fields(self.pointer, field_list, to.pointer, origin.pointer)

    def bench(self, frame: bytes, packets: int, port: int) -> tuple[float, int]:
        """(nanoseconds a packet, packets that were not dropped) of a frame through the pipeline alone."""
        cells = []
        for name in ("ingress_port", "egress_spec", "egress_port"):
            ref = self.layout.find_field(f"standard_metadata.{name}")
            cells.append(0xFFFFFFFF if ref is None else self.layout.field(ref).cell)
        sent = ctypes.c_uint64()
        spent = self.library.pl_bench(
            self.pointer, frame, len(frame), packets, (ctypes.c_uint32 * 3)(*cells), port, ctypes.byref(sent)
        )
        return spent / packets, sent.value


@dataclass
class NativePacket:
    """One packet in a buffer of its own: `PacketState` of the pipeline test interface over a pkt_t."""

    pipeline: NativePipeline
    room: int = 16384
    digests: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        headroom = max(PKT_HEADROOM, self.pipeline.table_c.headroom_bytes)
        self._headroom = headroom
        self._memory = ctypes.create_string_buffer(ctypes.sizeof(PlPacket) + self.pipeline.phv_bytes + 8)
        self._header = PlPacket.from_buffer(self._memory)
        self.pointer = ctypes.c_void_p(ctypes.addressof(self._memory))
        self._phv = (ctypes.c_uint64 * (self.pipeline.phv_bytes // 8)).from_buffer(
            self._memory, ctypes.sizeof(PlPacket)
        )
        self._buffer = ctypes.create_string_buffer(headroom + self.room)
        self._header.buf = ctypes.addressof(self._buffer)
        self._header.buf_bytes = len(self._buffer)
        self._load(b"")
        self.pipeline.table_c.reset_phv(self.pointer)
        self._clear_requests()

    def _load(self, frame: bytes) -> None:
        if len(frame) > self.room:
            raise ValueError(f"the frame has {len(frame)} bytes, the buffer takes {self.room}")
        start = ctypes.addressof(self._buffer) + self._headroom
        ctypes.memmove(start, frame, len(frame))
        self._header.data, self._header.len, self._header.payload_offset = start, len(frame), 0

    def _clear_requests(self) -> None:
        ctypes.memset(ctypes.byref(self._header.req), 0, ctypes.sizeof(PlRequests))
        request = self._header.req
        request.clone_field_list = request.resubmit_field_list = request.recirculate_field_list = -1
        request.truncate_bytes = NO_TRUNCATION

    def parse(self, frame: bytes, port: int, **standard_metadata: int) -> None:
        """Start over with `frame` from `port`: reset, standard metadata, then the parser."""
        self._load(frame)
        self.pipeline.table_c.reset_phv(self.pointer)
        self._clear_requests()
        self.set_standard("standard_metadata.ingress_port", port)
        self.set_standard("standard_metadata.packet_length", len(frame))
        for name, value in standard_metadata.items():
            self.set(f"standard_metadata.{name}", value)
        self.pipeline.table_c.parse(self.pipeline.pointer, self.pointer)

    def run(self, function: Callable[[Any, Any], None]) -> None:
        """One control over this packet; its digests are kept."""
        self._clear_requests()
        before = len(self.pipeline.digests)
        function(self.pipeline.pointer, self.pointer)
        self.digests += self.pipeline.digests[before:]

    def clone(self) -> NativePacket:
        """An independent copy with the same headers, without requests and digests."""
        other = NativePacket(self.pipeline, self.room)
        other._load(self.frame)
        other._header.payload_offset = self._header.payload_offset
        other._header.packet_length = self._header.packet_length
        ctypes.memmove(other._phv, self._phv, self.pipeline.phv_bytes)
        return other

    def set_standard(self, name: str, value: int) -> None:
        """Store into a field that simple_switch knows by `name`, where the program has it."""
        ref = self.pipeline.layout.find_field(name)
        if ref is not None:
            self.set(f"{ref.header}.{ref.field}", value)

    def get(self, name: str) -> int:
        """Bit pattern of the field "<header>.<field>", or 0/1 for "<header>.$valid$". KeyError for unknown names."""
        cell, bits = self.pipeline.fields[name]
        if cell < 0:
            return 1
        return sum(self._phv[cell + at] << (64 * at) for at in range(cells_of(bits)))

    def set(self, name: str, value: int) -> None:
        """Store into the field "<header>.<field>", truncated."""
        cell, bits = self.pipeline.fields[name]
        if cell < 0:
            return
        for at, word in enumerate(_cells(value & ((1 << bits) - 1), cells_of(bits))):
            self._phv[cell + at] = word

    def cells(self) -> list[int]:
        """The whole PHV."""
        return list(self._phv)

    @property
    def frame(self) -> bytes:
        """The bytes of the frame as they are now."""
        return ctypes.string_at(self._header.data, self._header.len)

    @property
    def payload_offset(self) -> int:
        """Bytes that the parser consumed."""
        return int(self._header.payload_offset)

    @property
    def packet_length(self) -> int:
        """simple_switch's packet-length register."""
        return int(self._header.packet_length)

    @property
    def requests(self) -> Requests:
        """What the last control asked of the target."""
        return Requests(**{name: getattr(self._header.req, name) for name, *_ in PlRequests._fields_})
